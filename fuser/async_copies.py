"""Passes: how the end of every asynchronous copy is observed, by what the statements touch.

`observe_copies` (RAW of loads), `free_slots` (WAR of loads between roles), `drain_stores` (groups
of stores), `fence_proxies` (ordinary writes that an engine reads).  Joining is left to `sync`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from fuser import kernel_ir as kir
from fuser.effects import by_engine, drains, fills, reads, writes
from fuser.expr import Expr

Body = tuple[kir.Stmt, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a body stands: the loop around it, whether one thread executes it, and its role."""

    position: Expr = 0
    elected: bool = False
    role: kir.Role | None = None


def _each_body(body: Body, rule: Callable[[Body, Place], Body], place: Place) -> Body:
    """Apply `rule` to every body, innermost first."""
    out: list[kir.Stmt] = []
    for stmt in body:
        match stmt:
            case kir.ForLoop(index, _, inner):
                new = _each_body(inner, rule, replace(place, position=index))
                out.append(replace(stmt, body=new))
            case kir.Elect(_, inner):
                out.append(
                    replace(stmt, body=_each_body(inner, rule, replace(place, elected=True)))
                )
            case kir.Role(_, _, _, inner):
                out.append(replace(stmt, body=_each_body(inner, rule, replace(place, role=stmt))))
            case kir.IfThenElse(_, then, orelse):
                then, orelse = _each_body(then, rule, place), _each_body(orelse, rule, place)
                out.append(replace(stmt, then=then, orelse=orelse))
            case _:
                out.append(stmt)
    return rule(tuple(out), place)


def _grouped(
    body: Body, member: Callable[[kir.Stmt], kir.Slot | None]
) -> Iterator[tuple[bool, Body]]:
    """Split a body into runs of neighbours for which `member` answers, and what lies between."""
    for inside, run in groupby(body, key=lambda stmt: member(stmt) is not None):
        yield inside, tuple(run)


def _names(run: Body, member: Callable[[kir.Stmt], kir.Slot | None]) -> frozenset[str]:
    return frozenset(slot.buffer.name for stmt in run if (slot := member(stmt)))


def _one_thread(body: Body, place: Place) -> Body:
    return body if place.elected else (kir.Elect(kir.Per.ROLE, body),)


# --- RAW of loads -------------------------------------------------------------------------------


def observe_copies(kernel: kir.Kernel) -> kir.Kernel:
    """Give every copy from global memory a barrier, and its readers a wait.

    Copies issued together share one barrier per slot: one arrival that expects the summed bytes,
    then the loads, by one thread.  Readers wait before their first read: iteration `i` fills its
    slot for the `i // slots`-th time, so its phase has parity `(i // slots) % 2`.

    Source: PTX ISA, "mbarrier", phase completion; boxes count in full even out of bounds.
    """
    groups = sorted(
        {
            names
            for body in _all_bodies(kernel.body)
            for copies, run in _grouped(body, fills)
            if copies and (names := _names(run, fills))
        },
        key=sorted,
    )
    slots = {b.name: b.slots for b in kernel.buffers}
    full: dict[str, kir.MBarrier] = {}
    for n, names in enumerate(groups):
        barrier = kir.MBarrier(f"full{n}" if n else "full", 1, slots[min(names)])
        full.update(dict.fromkeys(names, barrier))

    def rule(body: Body, place: Place) -> Body:
        out: list[kir.Stmt] = []
        waited: set[kir.MBarrier] = set()
        for copies, run in _grouped(body, fills):
            if copies:
                out.extend(_one_thread(_issued(run, full), place))
                continue
            for stmt in run:
                out.extend(_waits(stmt, full, waited, place.position))
                out.append(stmt)
        return tuple(out)

    body = _each_body(kernel.body, rule, Place())
    return replace(kernel, body=body, barriers=tuple(dict.fromkeys(full.values())))


def _all_bodies(body: Body) -> Iterator[Body]:
    yield body
    for stmt in body:
        for inner in kir.bodies(stmt):
            yield from _all_bodies(inner)


def _issued(run: Body, full: dict[str, kir.MBarrier]) -> Body:
    loads: list[kir.Stmt] = []
    nbytes = 0
    for stmt in run:
        match stmt:
            case kir.Copy(kir.Slot(buffer, index) as dst, kir.Box(shape=shape) as src):
                loads.append(kir.TmaLoad(dst, src, full[buffer.name], index))
                nbytes += prod(shape) * buffer.dtype.nbytes
            case _:
                raise AssertionError("a run holds copies into slots only")
    first = loads[0]
    assert isinstance(first, kir.TmaLoad)
    return (kir.MBarrierArriveExpectTx(first.barrier, first.slot, nbytes), *loads)


def _waits(
    stmt: kir.Stmt, full: dict[str, kir.MBarrier], waited: set[kir.MBarrier], position: Expr
) -> Iterator[kir.Stmt]:
    """Yield a wait for every barrier whose slots `stmt` is the first to read in its body."""
    for slot in reads(stmt):
        barrier = full.get(slot.buffer.name)
        if barrier is not None and barrier not in waited:
            waited.add(barrier)
            yield _wait(barrier, slot.index, position, turn=0)


def _wait(barrier: kir.MBarrier, slot: Expr, position: Expr, *, turn: int) -> kir.Stmt:
    return kir.MBarrierWaitParity(barrier, slot, (position // barrier.slots + turn) % 2)


# --- WAR of loads between roles -----------------------------------------------------------------


def free_slots(kernel: kir.Kernel) -> kir.Kernel:
    """Let a role that refills slots wait until the role that reads them has let them go.

    One barrier per slot counts an arrival of every reading warp: its lanes join after their last
    read, then one of them arrives.  The first wait on a fresh slot passes at once (parity 1).
    """
    filler = _roles(kernel, writes)
    reader = _roles(kernel, reads)
    rings = [b for b in kernel.buffers if _crosses(filler.get(b.name), reader.get(b.name))]
    if not rings:
        return kernel
    full = {s.dst.buffer.name: s.barrier for s in kernel.walk() if isinstance(s, kir.TmaLoad)}
    empty: dict[str, kir.MBarrier] = {}
    for b in rings:
        role = reader[b.name]
        assert role is not None
        suffix = full[b.name].name.removeprefix("full")
        empty[b.name] = kir.MBarrier(f"empty{suffix}", role.warps, b.slots)

    def rule(body: Body, place: Place) -> Body:
        out: list[kir.Stmt] = []
        waited: set[kir.MBarrier] = set()
        last = {
            barrier: n
            for n, stmt in enumerate(body)
            for slot in reads(stmt)
            if (barrier := empty.get(slot.buffer.name)) and place.role is not None
        }
        for n, stmt in enumerate(body):
            if isinstance(stmt, kir.MBarrierArriveExpectTx):
                for name, barrier in empty.items():
                    if full[name] == stmt.barrier and barrier not in waited:
                        waited.add(barrier)
                        out.append(_wait(barrier, stmt.slot, place.position, turn=1))
            out.append(stmt)
            for slot in reads(stmt):
                barrier_ = empty.get(slot.buffer.name)
                if barrier_ is not None and last.get(barrier_) == n:
                    arrive = kir.MBarrierArrive(barrier_, slot.index)
                    out += [kir.WarpSync(), kir.Elect(kir.Per.WARP, (arrive,))]
        return tuple(out)

    body = _each_body(kernel.body, rule, Place())
    barriers = (*kernel.barriers, *dict.fromkeys(empty.values()))
    return replace(kernel, body=body, barriers=barriers)


def _roles(
    kernel: kir.Kernel, touched: Callable[[kir.Stmt], tuple[kir.Slot, ...]]
) -> dict[str, kir.Role | None]:
    found: dict[str, kir.Role | None] = {}
    for top in kernel.body:
        role = top if isinstance(top, kir.Role) else None
        for stmt in kir.walk((top,)):
            found.update({slot.buffer.name: role for slot in touched(stmt)})
    return found


def _crosses(filler: kir.Role | None, reader: kir.Role | None) -> bool:
    return filler is not None and reader is not None and filler.name != reader.name


# --- groups of stores ---------------------------------------------------------------------------


def drain_stores(kernel: kir.Kernel) -> kir.Kernel:
    """Put copies to global memory into groups, and await their reads where slots are reused.

    One thread issues the copies of an iteration and commits them as one group.  The same thread
    awaits, before the slots are written again, that all but the latest `slots - 1` groups have
    read their sources, and at the end that all have.  A kernel boundary orders the writes.
    """

    def rule(body: Body, place: Place) -> Body:
        staged = _names(body, drains)
        out: list[kir.Stmt] = []
        awaited = False
        for copies, run in _grouped(body, drains):
            if copies:
                group = (*map(_store, run), kir.AsyncCommit(kir.AsyncKind.BULK))
                out.extend(_one_thread(group, place))
                continue
            for stmt in run:
                for slot in writes(stmt):
                    if slot.buffer.name in staged and not awaited and not by_engine(stmt):
                        awaited = True
                        out.extend(_one_thread((_await(slot.buffer.slots - 1),), place))
                out.append(stmt)
                if isinstance(stmt, kir.ForLoop) and _commits(stmt):
                    out.extend(_one_thread((_await(0),), place))
        return tuple(out)

    return replace(kernel, body=_each_body(kernel.body, rule, Place()))


def _store(stmt: kir.Stmt) -> kir.Stmt:
    match stmt:
        case kir.Copy(kir.Box() as dst, kir.Slot() as src):
            return kir.TmaStore(dst, src)
        case _:
            raise AssertionError("a run holds copies out of slots only")


def _await(keep: int) -> kir.AsyncAwait:
    return kir.AsyncAwait(kir.AsyncKind.BULK, keep, read_only=True)


def _commits(loop: kir.ForLoop) -> bool:
    return any(isinstance(s, kir.AsyncCommit) for s in kir.walk(loop.body))


# --- proxies ------------------------------------------------------------------------------------


def fence_proxies(kernel: kir.Kernel) -> kir.Kernel:
    """Fence ordinary writes of slots that an engine reads: every writer, after its last write.

    Source: PTX ISA, "Async proxy"; the writer fences before it signals.
    """
    read_by_engine = {slot.buffer.name for s in kernel.walk() if by_engine(s) for slot in reads(s)}

    def rule(body: Body, place: Place) -> Body:
        del place
        written = [
            n
            for n, stmt in enumerate(body)
            if not by_engine(stmt) and any(w.buffer.name in read_by_engine for w in writes(stmt))
        ]
        if not written:
            return body
        after = written[-1] + 1
        return (*body[:after], kir.FenceAsyncProxy(kir.Space.SHARED), *body[after:])

    return replace(kernel, body=_each_body(kernel.body, rule, Place()))
