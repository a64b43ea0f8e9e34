"""Pass: slots that one role fills and another reads are handed back through barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuser.expr import Expr, Op, Var
from fuser.kernel import ir as kir
from fuser.passes.effects import by_engine, reads, writes
from fuser.passes.rings import Body, Place, each_body, wait_turn


def free_slots(kernel: kir.Kernel) -> kir.Kernel:
    """Let a role that refills slots wait until the roles that read them have let them go.

    One barrier per slot counts an arrival of every reading warp.  After ordinary reads its lanes
    join first.  After reads by wgmma the await of the group stands in their place: where it leaves
    `n` turns unfinished, the slot of `n` turns ago is handed back, and the last `n` slots of a run
    after the flush (only where somebody still asks for them: the ring goes on, or another CTA of
    the cluster fills it).
    """
    filler, reader = _roles(kernel, writes), _roles(kernel, reads)
    rings = [b for b in kernel.buffers if _crosses(filler.get(b.name), reader.get(b.name))]
    if not rings:
        return kernel
    full = _full(kernel)
    empty: dict[str, kir.MBarrier] = {}
    for b in rings:
        warps = [role.warps for role in reader[b.name].values()]
        arrivals = max(warps) if _in_turn(kernel) else sum(warps)
        suffix = full[b.name].name.removeprefix("full")
        empty[b.name] = kir.MBarrier(f"empty{suffix}", arrivals, b.slots)
    spread = frozenset(
        empty[s.dst.buffer.name]
        for s in kernel.walk()
        if isinstance(s, kir.TmaLoad) and s.multicast is not None
    )
    body = each_body(kernel.body, _Handing(full, empty, spread).body, Place())
    barriers = (*kernel.barriers, *dict.fromkeys(empty.values()))
    return replace(kernel, body=body, barriers=barriers)


@dataclass(frozen=True, slots=True)
class _Handing:
    full: dict[str, kir.MBarrier]
    empty: dict[str, kir.MBarrier]
    spread: frozenset[kir.MBarrier]

    def body(self, body: Body, place: Place) -> Body:
        """Put waits before the loads of a body, and arrivals after its reads."""
        out: list[kir.Stmt] = []
        waited: set[kir.MBarrier] = set()
        multiplied = self._multiplied(body)
        last = self._last(body, place)
        unfinished: dict[kir.MBarrier, kir.ForLoop] = {}
        for n, stmt in enumerate(body):
            for barrier, slot in self._filled(stmt):
                if barrier not in waited:
                    waited.add(barrier)
                    out.append(wait_turn(barrier, slot, place.position, turn=1))
            out.append(stmt)
            for barrier, at in last.items():
                if at == n and barrier not in multiplied:
                    out += [kir.WarpSync(), _arrive(barrier, place.position % barrier.slots)]
            match stmt:
                case kir.AsyncAwait(kir.AsyncKind.WGMMA) if multiplied:
                    # Lanes join where they have also read slots themselves.
                    if any(barrier in last for barrier in multiplied):
                        out.append(kir.WarpSync())
                    out += [_let_go(barrier, place, _kept(body)) for barrier in multiplied]
                case kir.AsyncAwait(kir.AsyncKind.WGMMA, 0):
                    for barrier, loop in unfinished.items():
                        if place.loop is not None or barrier in self.spread:
                            out += _rest(barrier, loop)
                    unfinished = {}
                case kir.ForLoop(_, _, inner):
                    unfinished |= dict.fromkeys(self._multiplied(inner), stmt)
                case _:
                    pass
        return tuple(out)

    def _filled(self, stmt: kir.Stmt) -> list[tuple[kir.MBarrier, Expr]]:
        """Barriers of the slots that copies are about to fill, and which slot."""
        match stmt:
            case kir.MBarrierArriveExpectTx(full, slot):
                names = [name for name in self.empty if self.full[name] == full]
            case kir.CpAsync(kir.Slot(buffer, slot)):
                names = [name for name in self.empty if name == buffer.name]
            case _:
                return []
        return [(self.empty[name], slot) for name in names]

    def _last(self, body: Body, place: Place) -> dict[kir.MBarrier, int]:
        """Where each barrier's slots are read by ordinary loads of a role for the last time."""
        if place.role is None:
            return {}
        return {
            self.empty[slot.buffer.name]: n
            for n, stmt in enumerate(body)
            if not by_engine(stmt)
            for slot in reads(stmt)
            if slot.buffer.name in self.empty
        }

    def _multiplied(self, body: Body) -> dict[kir.MBarrier, None]:
        """Barriers of the slots that wgmmas of this body read, in order."""
        return {
            self.empty[slot.buffer.name]: None
            for stmt in body
            if isinstance(stmt, kir.Wgmma)
            for slot in reads(stmt)
            if slot.buffer.name in self.empty
        }


def _arrive(barrier: kir.MBarrier, slot: Expr) -> kir.Stmt:
    return kir.Elect(kir.Per.WARP, (kir.MBarrierArrive(barrier, slot),))


def _let_go(barrier: kir.MBarrier, place: Place, keep: int) -> kir.Stmt:
    """Hand back the slot of `keep` turns ago."""
    assert place.loop is not None, "rings are of loops"
    back = (place.position + (barrier.slots - keep)) if keep else place.position
    arrive = _arrive(barrier, back % barrier.slots if isinstance(back, Var | Op) else 0)
    return kir.IfThenElse(place.loop.index >= keep, (arrive,)) if keep else arrive


def _kept(body: Body) -> int:
    """Return of how many turns the await of a loop leaves slots in use: one more if it is first."""
    for n, stmt in enumerate(body):
        match stmt:
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, keep):
                return keep + any(isinstance(later, kir.Wgmma) for later in body[n + 1 :])
            case _:
                pass
    raise AssertionError("a loop that multiplies awaits")


def _rest(barrier: kir.MBarrier, loop: kir.ForLoop) -> list[kir.Stmt]:
    """Hand back the slots that the last turns of a loop have kept, the oldest first."""
    request = loop.circular
    assert request is not None, "only rings are handed back"
    assert request.position is not None, "a ring counts its turns"
    end: Expr = loop.stop if request.position == loop.index else request.position
    out: list[kir.Stmt] = []
    for back in range(_kept(loop.body), 0, -1):
        slot = (end + (barrier.slots - back)) % barrier.slots
        out.append(kir.IfThenElse(_at_least(loop.stop, back), (_arrive(barrier, slot),)))
    return out


def _at_least(stop: Expr, turns: int) -> Expr:
    return stop >= turns if isinstance(stop, Var | Op) else int(stop >= turns)


def _full(kernel: kir.Kernel) -> dict[str, kir.MBarrier]:
    """Per buffer the barrier that tells that a slot is filled."""
    found: dict[str, kir.MBarrier] = {}
    copied: list[str] = []
    for stmt in kernel.walk():
        match stmt:
            case kir.TmaLoad(dst, _, barrier):
                found[dst.buffer.name] = barrier
            case kir.CpAsync(dst):
                copied.append(dst.buffer.name)
            case kir.CpAsyncMBarrierArrive(barrier):
                found |= dict.fromkeys(copied, barrier)
                copied = []
            case _:
                pass
    return found


def _roles(
    kernel: kir.Kernel, touched: Callable[[kir.Stmt], tuple[kir.Slot, ...]]
) -> dict[str, dict[str, kir.Role]]:
    """Per buffer the roles of the kernel that touch it, by name."""
    found: dict[str, dict[str, kir.Role]] = {}
    for top in kernel.body:
        if isinstance(top, kir.Role):
            for stmt in kir.walk((top,)):
                for slot in touched(stmt):
                    found.setdefault(slot.buffer.name, {})[top.name] = top
    return found


def _crosses(filler: dict[str, kir.Role] | None, reader: dict[str, kir.Role] | None) -> bool:
    return bool(filler) and bool(reader) and filler != reader


def _in_turn(kernel: kir.Kernel) -> bool:
    """Tell whether roles take the turns of a ring in turn, so that each slot has one reader."""
    return any(
        stmt.circular.specialized.ping_pong
        for stmt in kernel.walk()
        if isinstance(stmt, kir.ForLoop) and stmt.circular and stmt.circular.specialized
    )
