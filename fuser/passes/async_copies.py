"""Passes: how the end of every asynchronous copy is observed, by what the statements touch.

`observe_copies` (RAW of loads), `fence_proxies` (ordinary writes that an engine reads, ordinary
accesses of what it fills again).  Groups of stores are those of `stores`; handing slots back is
left to `free_slots`, joining to `sync`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import prod

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from fuser.passes.effects import by_engine, fills, names, reads, sharers, writes
from fuser.passes.rings import (
    Body,
    Context,
    at_least,
    by_one_thread,
    each_body,
    each_loop,
    numbered,
    wait_phase,
)
from fuser.passes.stores import destination


def _grouped(body: Body) -> Iterator[tuple[bool, Body]]:
    """Split a body into runs of neighbours that fill slots, and what lies between.

    Those by a queue are runs of their own.
    """
    for (inside, _), run in groupby(
        body, key=lambda stmt: (fills(stmt) is not None, _queued(stmt))
    ):
        yield inside, tuple(run)


def _queued(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.Copy) and stmt.engine is kir.Engine.QUEUE


# --- RAW of loads -------------------------------------------------------------------------------


def observe_copies(kernel: kir.Kernel) -> kir.Kernel:
    """Give every copy from global memory a barrier, and its readers a wait.

    Copies issued together share one barrier per slot.  By TMA or BULK: one arrival that expects the
    summed bytes, then the loads, by one thread; CTA 0 of a cluster loads what is shared for all,
    and the bytes count on each one's own barrier.  By cp.async, in a role of its own: the copies,
    then an arrival of each thread that counts when its copies have landed; without roles there is
    no barrier, and groups tell the end (`group_copies`).  By a queue one thread waits for the end,
    too (`await_queues`).  In a role of its own it tells the others by an arrival; as many
    iterations as there are other slots stay in flight, so that it has told of what a slot holds
    when it asks for it again, and the last ones are told of behind the loop.  Readers wait before
    their first read: iteration `i` fills its slot for the `i // slots`-th time, so its phase has
    parity `(i // slots) % 2`.

    Source: PTX ISA, "mbarrier", phase completion; boxes count in full even out of bounds;
    "cp.async.mbarrier.arrive.noinc".
    """
    slots = {b.name: b.slots for b in kernel.buffers}
    full: dict[str, kir.MBarrier] = {}
    for n, (run, arrivals) in enumerate(sorted(_runs(kernel), key=lambda run: sorted(run[0]))):
        barrier = kir.MBarrier(numbered("full", n), arrivals, slots[min(run)])
        full.update(dict.fromkeys(run, barrier))

    def rule(body: Body, place: Context) -> Body:
        out: list[kir.Stmt] = []
        waited: set[kir.MBarrier] = set()
        for copies, run in _grouped(body):
            if copies:
                out.extend(_issued(run, full, place, kernel.cluster))
                continue
            for stmt in run:
                out.extend(_waits(stmt, full, waited, place.position))
                out.append(stmt)
                if isinstance(stmt, kir.ForLoop):
                    out.extend(_told_behind(stmt, full, place))
        return tuple(out)

    body = each_body(kernel.body, rule, Context())
    return replace(kernel, body=body, barriers=tuple(dict.fromkeys(full.values())))


def _runs(kernel: kir.Kernel) -> set[tuple[frozenset[str], int]]:
    """Return the buffers that are filled together through a barrier, and its arrivals."""
    found: set[tuple[frozenset[str], int]] = set()

    def rule(body: Body, place: Context) -> Body:
        for copies, run in _grouped(body):
            filled = frozenset(slot.buffer.name for stmt in run if (slot := fills(stmt)))
            if copies and not _by_cp_async(run) and (place.role or not _queued(run[0])):
                found.add((filled, 1))
            elif copies and place.role is not None:
                found.add((filled, place.role.warps * kir.WARP))
        return body

    each_body(kernel.body, rule, Context())
    return found


def _by_cp_async(run: Body) -> bool:
    return all(isinstance(s, kir.Copy) and s.engine.of_threads for s in run)


def _issued(run: Body, full: dict[str, kir.MBarrier], place: Context, ctas: int) -> Body:
    if _by_cp_async(run):
        return _by_threads(run, full)
    if _queued(run[0]):
        return by_one_thread(_by_queue(run, full, place), place)
    loads: list[kir.Stmt] = []
    for_all: list[kir.Stmt] = []
    nbytes: Expr = 0
    for stmt in run:
        match stmt:
            case kir.Copy(kir.Slot(buffer, index) as dst, kir.Box(shape=shape) as src, engine):
                barrier, slot = full[buffer.name], index
                bulk = engine is kir.Engine.BULK
                load = kir.TmaLoad(dst, src, barrier, index, bulk=bulk)
                if stmt.shared:
                    for_all.append(replace(load, multicast=(1 << ctas) - 1))
                else:
                    loads.append(load)
                nbytes += kir.run_nbytes(src) if bulk else prod(shape) * buffer.dtype.nbytes
            case _:
                raise AssertionError("a run holds copies into slots only")
    if for_all:
        loads.append(kir.IfThenElse(eq(kir.RANK, 0), tuple(for_all)))
    expect = kir.MBarrierArriveExpectTx(barrier, slot, nbytes)
    return by_one_thread((expect, *loads), place)


def _by_queue(run: Body, full: dict[str, kir.MBarrier], place: Context) -> Body:
    """Return copies of a queue, and what tells a role of readers that earlier ones are over."""
    copies: list[kir.Stmt] = []
    told: Body = ()
    for stmt in run:
        match stmt:
            case kir.Copy(kir.Slot(buffer, index) as dst, kir.Box() as src):
                copies.append(kir.QueueCopy(dst, src))
                if buffer.name in full:
                    lag = _in_flight(place.loop)
                    slot = (place.position + (buffer.slots - lag)) % buffer.slots if lag else index
                    told = _told(full[buffer.name], slot, lag * len(run))
                    if lag and place.loop is not None:
                        told = (kir.IfThenElse(place.loop.index >= lag, told),)
            case _:
                raise AssertionError("a run holds copies into slots only")
    return (*copies, *told)


def _in_flight(loop: kir.ForLoop | None) -> int:
    """Return of how many iterations a load role leaves the copies of its queue in flight."""
    request = loop.circular if loop is not None else None
    return request.stages - 1 if request is not None and request.specialized else 0


def _told(barrier: kir.MBarrier, slot: Expr, keep: int) -> Body:
    return kir.AsyncAwait(kir.AsyncKind.QUEUE, keep), kir.MBarrierArrive(barrier, slot)


def _told_behind(loop: kir.ForLoop, full: dict[str, kir.MBarrier], place: Context) -> Body:
    """Tell of the copies that the last iterations of a loop have left in flight, oldest first."""
    if place.role is None or not _in_flight(loop):
        return ()
    request = loop.circular
    assert request is not None, "only rings leave copies in flight"
    assert request.position is not None, "a ring counts its iterations"
    end: Expr = loop.stop if request.position == loop.index else request.position
    own = (s for stmt in loop.body for s in (stmt.body if isinstance(stmt, kir.Elect) else (stmt,)))
    many = Counter(full[s.dst.buffer.name] for s in own if isinstance(s, kir.QueueCopy))
    out: list[kir.Stmt] = []
    for back in range(_in_flight(loop), 0, -1):
        for barrier, each in many.items():
            slot = (end + (barrier.slots - back)) % barrier.slots
            told = _told(barrier, slot, (back - 1) * each)
            out.append(kir.IfThenElse(at_least(loop.stop, back), told))
    return by_one_thread(tuple(out), place) if out else ()


def _by_threads(run: Body, full: dict[str, kir.MBarrier]) -> Body:
    copies: list[kir.Stmt] = []
    arrive: Body = ()
    for stmt in run:
        match stmt:
            case kir.Copy(kir.Slot() as dst, kir.Box() as src, _, kir.Layout() as layout, width):
                copies.append(kir.CpAsync(dst, src, layout, width))
                if dst.buffer.name in full:
                    barrier = full[dst.buffer.name]
                    arrive = (kir.CpAsyncMBarrierArrive(barrier, dst.index, noinc=True),)
            case _:
                raise AssertionError("a copy by threads says who copies what")
    return (*copies, *arrive)


def group_copies(kernel: kir.Kernel) -> kir.Kernel:
    """Commit copies by cp.async that no barrier tells of, and await what is to be read.

    Every iteration commits a group, with or without copies in it, so that counting groups is
    counting iterations.  Where copies run `prefetch` iterations ahead, all but the latest `prefetch
    - 1` groups are awaited before the next copies are issued; else all are, behind the copies.
    """
    observed = any(isinstance(stmt, kir.CpAsyncMBarrierArrive) for stmt in kernel.walk())
    if observed or not any(isinstance(stmt, kir.CpAsync) for stmt in kernel.walk()):
        return kernel

    def rule(loop: kir.ForLoop) -> kir.ForLoop:
        body = loop.body
        last = max((n for n, stmt in enumerate(body) if _copies(stmt)), default=None)
        if last is None or any(_commits(stmt, kir.AsyncKind.CP_ASYNC) for stmt in body):
            return loop
        issued = (*body[: last + 1], kir.AsyncCommit(kir.AsyncKind.CP_ASYNC))
        if loop.circular is not None:  # it is not the loop that runs ahead
            ahead = loop.circular.prefetch
            wait = kir.AsyncAwait(kir.AsyncKind.CP_ASYNC, max(ahead - 1, 0))
            issued = (wait, *issued) if ahead else (*issued, wait)
        return replace(loop, body=(*issued, *body[last + 1 :]))

    return replace(kernel, body=each_loop(kernel.body, rule))


def _copies(stmt: kir.Stmt) -> bool:
    return any(isinstance(inner, kir.CpAsync) for inner in kir.walk((stmt,)))


def _commits(stmt: kir.Stmt, kind: kir.AsyncKind) -> bool:
    return kir.AsyncCommit(kind) in kir.walk((stmt,))


def _waits(
    stmt: kir.Stmt, full: dict[str, kir.MBarrier], waited: set[kir.MBarrier], position: Expr
) -> Iterator[kir.Stmt]:
    """Yield a wait for every barrier whose slots `stmt` is the first to read in its body."""
    for slot in reads(stmt):
        barrier = full.get(slot.buffer.name)
        if barrier is not None and barrier not in waited:
            waited.add(barrier)
            yield wait_phase(barrier, slot.index, position)


# --- proxies ------------------------------------------------------------------------------------


def fence_proxies(kernel: kir.Kernel) -> kir.Kernel:
    """Fence what crosses proxies.

    Ordinary writes of slots that an engine reads, and ordinary reads of slots that TMA loads fill
    again: by every such thread, before it signals that, or before the engine is started.  So, too,
    accesses of other buffers over these slots, where a loop comes back to fill them.  What CTAs did
    before in their turns with a workspace that an engine now reads or adds to: by the thread that
    issues it, behind its wait.  (The first to write reads nothing, and none was before it.)

    A read that is only *issued* does not hold an arrival back: where stores to global memory keep
    the load-store unit busy, the next tile arrives before the reads are served.  Seen on an H200:
    negating 4096 x 4104 numbers of f32 by tiles of 64 x 64, 3 stages, a load role and 4 CTAs an SM
    gave a few thousand wrong numbers in every one of 100 launches, all of them those of the tile
    that is loaded next into the slot; with the fence none, and in 320 us for 365.

    Source: PTX ISA, "Async proxy"; the writer, and the reader, fences before it signals.
    """
    turns = any(isinstance(stmt, kir.BlockSerializeWait) for stmt in kernel.walk())
    handed_on = frozenset(kernel.workspaces if turns else ())
    every = tuple(kernel.walk())
    sent = frozenset[str]().union(*(names(reads(s)) for s in every if by_engine(s)))
    filled = frozenset[str]().union(
        *(names(writes(s)) for s in every if isinstance(s, kir.TmaLoad | kir.QueueCopy))
    )

    over = _refilled(kernel)

    def ordinary(stmt: kir.Stmt) -> bool:
        touched = names(writes(stmt)) & (sent | over) | names(reads(stmt)) & (filled | over)
        return bool(touched) and not by_engine(stmt)

    def signals(stmt: kir.Stmt) -> bool:
        starts = kir.TmaLoad | kir.QueueCopy | kir.TmaStore | kir.TmaReduce | kir.Wgmma
        return any(isinstance(inner, starts | kir.MBarrierArrive) for inner in kir.walk((stmt,)))

    def rule(body: Body, place: Context) -> Body:
        del place
        out: list[kir.Stmt] = []
        fenced = False
        for n, stmt in enumerate(body):
            if isinstance(stmt, kir.TmaReduce) and destination(stmt) in handed_on and not fenced:
                out.append(kir.FenceAsyncProxy(kir.Space.GLOBAL))
                fenced = True
            out.append(stmt)
            if ordinary(stmt):
                after = next((s for s in body[n + 1 :] if ordinary(s) or signals(s)), None)
                if after is None or not ordinary(after):
                    out.append(kir.FenceAsyncProxy(kir.Space.SHARED))
        return tuple(out)

    return replace(kernel, body=each_body(kernel.body, rule, Context()))


def _refilled(kernel: kir.Kernel) -> frozenset[str]:
    """Return the buffers in a loop that by TMA loads fills others over their bytes."""
    over = sharers(kernel)
    found: set[str] = set()
    for loop in kernel.walk():
        if isinstance(loop, kir.ForLoop):
            inner = tuple(kir.walk(loop.body))
            loads = (s for s in inner if isinstance(s, kir.TmaLoad | kir.QueueCopy))
            filled = map(names, map(writes, loads))
            there = (over[name] - {name} for name in frozenset[str]().union(*filled))
            touched = (names((*reads(s), *writes(s))) for s in inner)
            found |= frozenset[str]().union(*there) & frozenset[str]().union(*touched)
    return frozenset(found)
