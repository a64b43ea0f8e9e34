"""Passes: CTAs that share a tile of a result add up their sums, in turns or each some of them.

In turns they serialize on a semaphore; else all of them, or those of a cluster, sync first.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from fuser.lower.split_k import loaded
from fuser.passes.effects import by_engine, names, reads, touches, writes
from fuser.passes.rings import Body, Context, each_body

Names = frozenset[str]
STRIP = 16
"""Rows of an accumulator that a warp holds together; see `Layout`."""


def serialize_split_k(kernel: kir.Kernel) -> kir.Kernel:
    """Write out what CTAs of a tile do in turns: each adds its sums to those before it.

    The first CTA of a tile reads nothing.  The last one writes no sums, but does all that stands
    behind the sum; the others do none of it.  Nobody waits for a turn behind the last one, so
    it leaves the semaphore at 0 for the next launch at once.
    """
    return replace(kernel, body=each_body(kernel.body, _serialized, Context()))


def _serialized(body: Body, place: Context) -> Body:
    del place
    first = next((n for n, s in enumerate(body) if isinstance(s, kir.GridSum)), None)
    if first is None:
        return body
    sums = [stmt for stmt in body if isinstance(stmt, kir.GridSum)]
    rest = tuple(stmt for stmt in body[first:] if not isinstance(stmt, kir.GridSum))
    slots = [slot for one in sums if (slot := one.staged) is not None]
    turns = _by_tma(sums, slots, rest) if slots else _by_threads(sums, rest)
    return *body[:first], *turns


def _by_threads(sums: list[kir.GridSum], rest: Body) -> Body:
    """Load the sums so far, add, and store them again: registers of accumulators as they are."""
    last, wait, reset, release = _turn(sums[0])
    held = [_in_rounds(one) for one in sums]
    pairs = [(one, other) for one, other in zip(sums, held, strict=True) if one != other]
    there = tuple(kir.Slice(other.acc, one.acc, 0) for one, other in pairs)
    back = tuple(kir.Slice(one.acc, other.acc, 0) for one, other in pairs)
    stored = (kir.Store(one.workspace, one.acc, _width(one)) for one in held)
    ends = kir.IfThenElse(last, (*back, *rest), (*stored, release))
    return wait, reset, *there, _added(held), ends


def _in_rounds(one: kir.GridSum) -> kir.GridSum:
    """Return the same with accumulators under the positions of vectors of 16 bytes, where it goes.

    A lane has neighbours of 8 bytes, next to those of 3 others; so it has 16 bytes, next to those
    of all its warp.  Sums are added up element by element, wherever they lie in a workspace.
    """
    layout, dtype = one.acc.layout, one.workspace.tensor.dtype
    strip = STRIP * (layout.threads // kir.WARP)
    if layout.deal is not kir.Deal.STRIPS or layout.shape[-2] % strip:
        return one
    each = prod(layout.shape) // layout.threads
    # Strips have 4 registers for every 8 columns: 8 of 16 bits are 16 bytes, but may not divide.
    vector = min(16 // dtype.nbytes, each & -each)
    rounds = kir.Layout(layout.shape, vector, layout.threads)
    return replace(one, acc=kir.Fragment(f"{one.acc.name}_rounds", one.acc.dtype, rounds))


def _by_tma(sums: list[kir.GridSum], slots: list[kir.Slot], rest: Body) -> Body:
    """Stage sums in shared memory; the first CTA stores them, the others add to what there is.

    Where all columns of a tile have a slot, they are staged before the turn has come, so that the
    engine is all that those wait for whose turn is later.
    """
    one = sums[0]
    last, wait, reset, release = _turn(one)

    def parts() -> list[tuple[Body, kir.Copy]]:
        both = zip(sums, slots, strict=True)
        return [part for asked, slot in both for part in _parts(asked, slot)]

    ahead = all(
        asked.acc.layout.shape[-1] <= slot.buffer.slots * slot.buffer.shape[-1]
        for asked, slot in zip(sums, slots, strict=True)
    )

    def copied(*, reduce: bool) -> Body:
        return tuple(
            stmt
            for stores, copy in parts()
            for stmt in (*(() if ahead else stores), replace(copy, reduce=reduce))
        )

    begun = kir.IfThenElse(eq(one.turn, 0), copied(reduce=False), copied(reduce=True))
    before: Body = ()
    if ahead:
        staged = tuple(stmt for stores, _ in parts() for stmt in stores)
        before = (kir.IfThenElse(one.turn + 1 < one.turns, staged),)
    return (
        *before,
        wait,
        reset,
        kir.IfThenElse(last, (_added(sums), *rest), (begun, release)),
    )


def _turn(one: kir.GridSum) -> tuple[Expr, kir.Stmt, kir.Stmt, kir.Stmt]:
    """Return whether it is the last turn, the wait for one's own, the reset, and the release."""
    last = eq(one.turn + 1, one.turns)
    reset, following = (
        kir.BlockSerializeRelease(one.semaphore, one.index, turn) for turn in (0, one.turn + 1)
    )
    return (
        last,
        kir.BlockSerializeWait(one.semaphore, one.index, one.turn),
        kir.IfThenElse(last, (kir.Elect(kir.Per.ROLE, (reset,)),)),
        kir.Elect(kir.Per.ROLE, (following,)),
    )


def _parts(asked: kir.GridSum, staged: kir.Slot) -> list[tuple[Body, kir.Copy]]:
    """Return what puts columns into a slot, and the copy out of it, for all columns in turn."""
    acc, box = asked.acc, asked.workspace
    buffer, columns = staged.buffer, staged.buffer.shape[-1]
    out: list[tuple[Body, kir.Copy]] = []
    for n, column in enumerate(range(0, acc.layout.shape[-1], columns)):
        slot = kir.Slot(buffer, n % buffer.slots)
        part = acc
        cut: Body = ()
        if columns != acc.layout.shape[-1]:
            layout = replace(acc.layout, shape=buffer.shape)
            part = kir.Fragment(f"{acc.name}_staged", acc.dtype, layout)
            cut = (kir.Slice(part, acc, column),)
        *origin, left = box.origin
        target = replace(box, origin=(*origin, left + column), shape=buffer.shape)
        matrix = buffer.dtype.nbytes == 2
        width = 2 if part.layout.deal is kir.Deal.STRIPS else _width(asked)
        staging = kir.Store(slot, part, width, matrix=matrix)
        out.append(((*cut, staging), kir.Copy(target, slot, kir.Engine.TMA)))
    return out


def _added(sums: list[kir.GridSum]) -> kir.Stmt:
    out: list[kir.Stmt] = []
    for one in sums:
        sofar = kir.Fragment(f"{one.acc.name}_so_far", one.acc.dtype, one.acc.layout)
        out += loaded(sofar, one.workspace, _width(one))
        out.append(kir.Compute(one.acc, one.op, (one.acc, sofar)))
    return kir.IfThenElse(sums[0].turn >= 1, tuple(out))


def _width(asked: kir.GridSum) -> int:
    """Elements per access: what a thread has of them next to each other, aligned."""
    layout = asked.acc.layout
    return 1 if layout.folded > 1 else min(layout.vector, asked.workspace.tensor.aligned)


def sync_ctas(kernel: kir.Kernel) -> kir.Kernel:
    """Sync CTAs that read what others have stored in a workspace, before the first such read.

    Where one of them is to read alone, that is the last-arriving one; it does all the rest.  One
    sync does for all workspaces that are stored before it.
    """
    return replace(kernel, body=each_body(kernel.body, _synced, Context()))


def _synced(body: Body, place: Context) -> Body:
    del place
    asked = [stmt for stmt in body if isinstance(stmt, kir.GridShare)]
    open_: set[str] = set()
    out: list[kir.Stmt] = []
    for at, stmt in enumerate(body):
        if isinstance(stmt, kir.GridShare):
            open_.add(stmt.workspace)
            continue
        loads = (inner for inner in kir.walk((stmt,)) if isinstance(inner, kir.Load))
        if any(touches(load) & open_ for load in loads):
            where = asked[0].semaphore, asked[0].index, asked[0].ctas
            if asked[0].alone:
                return *out, kir.LastArriving(*where, body[at:])
            out.append(kir.GridSync(*where))
            open_ = set()
        out.append(stmt)
    return tuple(out)


def sync_clusters(kernel: kir.Kernel) -> kir.Kernel:
    """Sync the CTAs of a cluster between ordinary stores of slots and reads by their peers.

    All threads join, before the first such read, and before a slot that peers have read is written
    again; once for all slots that are stored before it.  Arrivals release the stores,
    waits acquire them, and the threads of a CTA are joined on the way.

    Source: PTX ISA, "barrier.cluster" (arrive.release, wait.acquire).
    """

    def from_peers(stmt: kir.Stmt) -> frozenset[str]:
        every = (
            names(tuple(s for s in reads(inner) if s.cta is not None))
            for inner in kir.walk((stmt,))
        )
        return frozenset[str]().union(*every)

    def stored_by(stmt: kir.Stmt) -> frozenset[str]:
        own = (inner for inner in kir.walk((stmt,)) if not by_engine(inner))
        return frozenset[str]().union(*(names(writes(inner)) for inner in own))

    far = frozenset[str]().union(*map(from_peers, kernel.body))
    if not far:
        return kernel

    def walk(body: Body, stored: Names, read: Names) -> tuple[Body, Names, Names]:
        """Walk a body before which some slots were stored, and some read by peers."""
        out: list[kir.Stmt] = []
        for stmt in body:
            reading, storing = from_peers(stmt), stored_by(stmt) & far
            if isinstance(stmt, kir.ForLoop) and reading & storing:
                inner, after, later = walk(stmt.body, stored, read)
                while not (after <= stored and later <= read):  # what the iteration before left
                    stored, read = stored | after, read | later
                    inner, after, later = walk(stmt.body, stored, read)
                out.append(replace(stmt, body=inner))
                continue
            assert not reading & storing, "no lowering stores and reads in one statement"
            if reading & stored or storing & read:
                out += [kir.ClusterArrive(), kir.ClusterWait()]
                stored, read = Names(), Names()
            stored, read = stored | storing, read | reading
            out.append(stmt)
        return tuple(out), stored, read

    body, _, _ = walk(kernel.body, Names(), Names())
    return replace(kernel, body=body)
