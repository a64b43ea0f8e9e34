"""Passes: slots that one role fills and another reads are handed back through barriers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from fuser.expr import Expr, Op, Var
from fuser.kernel import ir as kir
from fuser.passes.effects import by_engine, reads, writes
from fuser.passes.rings import (
    Body,
    Context,
    Ring,
    at_least,
    each_body,
    numbered,
    rings,
    wait_phase,
)


def free_slots(kernel: kir.Kernel) -> kir.Kernel:
    """Let a role that refills slots wait until the roles that read them have let them go.

    One barrier per slot counts an arrival of every reading warp.  After ordinary reads its lanes
    join first.  After reads by wgmma the await of the group stands in their place: where it leaves
    `n` iterations unfinished, the slot of `n` iterations ago is handed back, and the last `n` slots
    of a run after the flush (only where somebody still asks for them: the ring goes on, or another
    CTA of the cluster fills it).  There lanes join again where they have read slots behind the join
    of the last step.
    """
    filler, reader = _roles(kernel, writes), _roles(kernel, reads)
    handed: list[Ring] = []
    for ring in rings(kernel):
        fillers, readers = (
            {role: warps for name in ring.buffers for role, warps in roles.get(name, {}).items()}
            for roles in (filler, reader)
        )
        if fillers and readers and fillers != readers:
            warps = readers.values()
            arrivals = max(warps) if _alternate(kernel) else sum(warps)
            name = numbered("empty", ring.number)
            handed.append(replace(ring, empty=kir.MBarrier(name, arrivals, ring.full.slots)))
    if not handed:
        return kernel
    body = each_body(kernel.body, _Handing(handed).body, Context())
    places = {b.name: n for n, b in enumerate(kernel.buffers)}
    handed.sort(key=lambda ring: min(map(places.__getitem__, ring.buffers)))
    return replace(kernel, body=body, barriers=(*kernel.barriers, *(r.freed for r in handed)))


@dataclass(frozen=True, slots=True)
class _Handing:
    rings: list[Ring]

    def of(self, slots: Iterable[kir.Slot]) -> Iterator[Ring]:
        names = [slot.buffer.name for slot in slots]
        return (ring for name in names for ring in self.rings if name in ring.buffers)

    def body(self, body: Body, place: Context) -> Body:
        """Put waits before the loads of a body, and arrivals after its reads."""
        out: list[kir.Stmt] = []
        waited: set[Ring] = set()
        multiplied = self._multiplied(body)
        last = self._last(body, place)
        unfinished: dict[Ring, kir.ForLoop] = {}
        for n, stmt in enumerate(body):
            for ring, slot in self._filled(stmt):
                if ring not in waited:
                    waited.add(ring)
                    out.append(wait_phase(ring.freed, slot, place.position, before=1))
            out.append(stmt)
            for ring, at in last.items():
                if at == n and ring not in multiplied:
                    out += [kir.WarpSync(), _arrive(ring, place.position % ring.full.slots)]
            match stmt:
                case kir.AsyncAwait(kir.AsyncKind.WGMMA) if multiplied:
                    # Lanes join where they have also read slots themselves.
                    if any(ring in last for ring in multiplied):
                        out.append(kir.WarpSync())
                    out += [_hand_back(ring, place, _kept(body)) for ring in multiplied]
                case kir.AsyncAwait(kir.AsyncKind.WGMMA, 0):
                    asked = [r for r in unfinished if place.loop is not None or r.spread]
                    if any(self._read_late(ring, unfinished[ring].body, place) for ring in asked):
                        out.append(kir.WarpSync())
                    for ring in asked:
                        out += _rest(ring, unfinished[ring])
                    unfinished = {}
                case kir.ForLoop(_, _, inner):
                    unfinished |= dict.fromkeys(self._multiplied(inner), stmt)
                case _:
                    pass
        return tuple(out)

    def _filled(self, stmt: kir.Stmt) -> list[tuple[Ring, Expr]]:
        """Rings that copies are about to fill, and which slot."""
        match stmt:
            case kir.MBarrierArriveExpectTx(full, slot):
                return [(ring, slot) for ring in self.rings if ring.full == full]
            case kir.CpAsync(dst) | kir.QueueCopy(dst):
                return [(ring, dst.index) for ring in self.of((dst,))]
            case _:
                return []

    def _last(self, body: Body, place: Context) -> dict[Ring, int]:
        """Where each ring is read by ordinary loads of a role for the last time."""
        if place.role is None:
            return {}
        ordinary = ((n, stmt) for n, stmt in enumerate(body) if not by_engine(stmt))
        return {ring: n for n, stmt in ordinary for ring in self.of(reads(stmt))}

    def _read_late(self, ring: Ring, body: Body, place: Context) -> bool:
        """Whether a role reads slots itself behind an await, where lanes join for the step before.

        So it is with the second operand of a step that is computed in registers.
        """
        before = body[: self._last(body, place).get(ring, 0)]
        awaits = (stmt for stmt in before if isinstance(stmt, kir.AsyncAwait))
        return any(stmt.kind is kir.AsyncKind.WGMMA for stmt in awaits)

    def _multiplied(self, body: Body) -> dict[Ring, None]:
        """Rings that wgmmas of this body read, in order."""
        products = (stmt for stmt in body if isinstance(stmt, kir.Wgmma))
        return {ring: None for stmt in products for ring in self.of(reads(stmt))}


def _arrive(ring: Ring, slot: Expr) -> kir.Stmt:
    return kir.Elect(kir.Per.WARP, (kir.MBarrierArrive(ring.freed, slot),))


def _hand_back(ring: Ring, place: Context, keep: int) -> kir.Stmt:
    """Hand back the slot of `keep` iterations ago."""
    assert place.loop is not None, "rings are of loops"
    slots = ring.full.slots
    back = (place.position + (slots - keep)) if keep else place.position
    arrive = _arrive(ring, back % slots if isinstance(back, Var | Op) else 0)
    return kir.IfThenElse(place.loop.index >= keep, (arrive,)) if keep else arrive


def _kept(body: Body) -> int:
    """Return of how many iterations an await leaves slots in use: one more if it is first."""
    for n, stmt in enumerate(body):
        match stmt:
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, keep):
                return keep + any(isinstance(later, kir.Wgmma) for later in body[n + 1 :])
            case _:
                pass
    raise AssertionError("a loop that multiplies awaits")


def _rest(ring: Ring, loop: kir.ForLoop) -> list[kir.Stmt]:
    """Hand back the slots that the last iterations of a loop have kept, the oldest first."""
    request = loop.circular
    assert request is not None, "only rings are handed back"
    assert request.position is not None, "a ring counts its iterations"
    end: Expr = loop.stop if request.position == loop.index else request.position
    out: list[kir.Stmt] = []
    for back in range(_kept(loop.body), 0, -1):
        slot = (end + (ring.full.slots - back)) % ring.full.slots
        out.append(kir.IfThenElse(at_least(loop.stop, back), (_arrive(ring, slot),)))
    return out


def _roles(
    kernel: kir.Kernel, touched: Callable[[kir.Stmt], tuple[kir.Slot, ...]]
) -> dict[str, dict[str, int]]:
    """Per buffer the roles of the kernel that touch it, by name, and their warps."""
    found: dict[str, dict[str, int]] = {}
    for top in kernel.body:
        if isinstance(top, kir.Role):
            for stmt in kir.walk((top,)):
                for slot in touched(stmt):
                    found.setdefault(slot.buffer.name, {})[top.name] = top.warps
    return found


def _alternate(kernel: kir.Kernel) -> bool:
    """Tell whether roles take the iterations of a ring in turn, so that a slot has one reader."""
    requests = (stmt.circular for stmt in kernel.walk() if isinstance(stmt, kir.ForLoop))
    return any(r.specialized.ping_pong for r in requests if r and r.specialized)


# --- CTA 0 of a cluster fills slots of all ------------------------------------------------------


def free_shared_slots(kernel: kir.Kernel) -> kir.Kernel:
    """Let who hands back a slot that CTA 0 fills for all tell CTA 0, too, from the other CTAs.

    It arrives at its own CTA's `empty` barrier, for what that CTA fills itself, and at CTA 0's
    `shared` one, for which CTA 0 waits before it loads for all.  None can be a phase ahead: it
    would wait for CTA 0's next load.

    What it releases are reads of its own CTA's shared memory.  Measured on an H100, slots of 48 KB
    that two CTAs fill for each other: 553 ns a slot, and 1,300 with releases of all memory at
    cluster scope, which wait until all accesses of global memory are over.
    """
    by_full = {ring.full: ring for ring in rings(kernel)}
    shared: dict[kir.MBarrier, kir.MBarrier] = {}
    for load in filter(_for_all, kernel.walk()):
        ring = by_full[load.barrier]
        arrivals = (kernel.cluster - 1) * ring.freed.arrivals
        shared[ring.freed] = kir.MBarrier(
            numbered("shared", ring.number), arrivals, ring.full.slots
        )
    if not shared:
        return kernel

    def rule(body: Body, place: Context) -> Body:
        out: list[kir.Stmt] = []
        first = next(filter(_for_all, body), None)
        for stmt in body:
            if _for_all(stmt) and stmt is first:
                barrier = shared[by_full[stmt.barrier].freed]
                wait = wait_phase(barrier, stmt.slot, place.position, before=1)
                out.append(replace(wait, scope=kir.Scope.CLUSTER))
            out.append(stmt)
            if isinstance(stmt, kir.MBarrierArrive) and stmt.barrier in shared:
                tell = replace(
                    stmt,
                    barrier=shared[stmt.barrier],
                    scope=kir.Scope.CLUSTER,
                    cta=0,
                    space=kir.Space.SHARED,
                )
                out.append(kir.IfThenElse(kir.RANK >= 1, (tell,)))
        return tuple(out)

    body = each_body(kernel.body, rule, Context())
    return replace(kernel, body=body, barriers=(*kernel.barriers, *shared.values()))


def _for_all(stmt: kir.Stmt) -> TypeGuard[kir.TmaLoad]:
    return isinstance(stmt, kir.TmaLoad) and stmt.multicast is not None
