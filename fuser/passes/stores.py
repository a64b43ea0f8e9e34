"""Pass: groups of asynchronous stores, and waits for no more of them than is needed.

Source: PTX ISA, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group" (groups of a thread end in
order; `.read` waits for their reads of shared memory alone).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from fuser.kernel import ir as kir
from fuser.passes.effects import drains, reads, writes
from fuser.passes.rings import Body, Context, by_one_thread, each_body


def drain_stores(kernel: kir.Kernel) -> kir.Kernel:
    """Put copies to global memory into groups, and await their reads where bytes are reused.

    One thread issues neighbouring copies and commits them as one group.  The same thread awaits,
    before the bytes of a slot are written again, by whom and as whatever buffer, the latest group
    that may read them and those before it; groups behind that stay in flight.  At the end it awaits
    the reads of all.  What stands in a loop waits outside of it for groups that are not in it.

    A kernel boundary orders the writes; what another CTA reads in its turn is awaited in full at
    the end of the branch that copies it, behind which that turn is released (`serialize_split_k`).
    """
    released = any(isinstance(s, kir.BlockSerializeRelease) for s in kernel.walk())
    handed_on = frozenset(kernel.workspaces if released else ())

    def rule(body: Body, place: Context) -> Body:
        return _awaited(_grouped(body, place), place, handed_on)

    body = tuple(
        replace(stmt, body=_ended(stmt.body)) if isinstance(stmt, kir.Role) else stmt
        for stmt in each_body(kernel.body, rule, Context())
    )
    return replace(kernel, body=_ended(body))


def destination(stmt: kir.Stmt) -> str:
    """Return the tensor that an engine copies a slot to, if it does."""
    match stmt:
        case kir.Copy(kir.Box() as box) | kir.TmaStore(box) | kir.TmaReduce(box):
            return box.tensor.name
        case _:
            return ""


def _grouped(body: Body, place: Context) -> Body:
    """Issue and commit runs of neighbouring copies."""
    out: list[kir.Stmt] = []
    for copies, run in groupby(body, key=lambda stmt: drains(stmt) is not None):
        if copies:
            group = (*map(_store, run), kir.AsyncCommit(kir.AsyncKind.BULK))
            out.extend(by_one_thread(group, place))
        else:
            out.extend(run)
    return tuple(out)


def _store(stmt: kir.Stmt) -> kir.Stmt:
    match stmt:
        case kir.Copy(kir.Box() as dst, kir.Slot() as src, engine):
            bulk = engine is kir.Engine.BULK
            return kir.TmaReduce(dst, src) if stmt.reduce else kir.TmaStore(dst, src, bulk=bulk)
        case _:
            raise AssertionError("a run holds copies out of slots only")


@dataclass(frozen=True, slots=True)
class _Group:
    """Groups that read `sources`, committed by a statement of the body, `ago` executions before.

    It is one group, or where it is not `sure`, any number of them.
    """

    sources: tuple[kir.Slot, ...]
    stmt: kir.Stmt
    sure: bool
    ago: int = 0

    def reads(self, slot: kir.Slot) -> bool:
        """Whether bytes of a slot may be read; a ring is a slot further in each execution."""
        return any(
            slot.buffer.shares(other.buffer)
            if slot.buffer != other.buffer
            else self.ago % slot.buffer.slots == 0
            if slot.index == other.index and not isinstance(slot.index, int)
            else slot.index == other.index or not _both_known(slot, other)
            for other in self.sources
        )


@dataclass(frozen=True, slots=True)
class _Await:
    """All but the latest `keep` groups before have read their slots."""

    keep: int


def _awaited(body: Body, place: Context, handed_on: frozenset[str]) -> Body:
    """Await groups of a body before its statements reuse bytes, and at its end those handed on."""
    groups = [group for stmt in body if (group := _group(stmt)) is not None]
    if not groups:
        return body
    before: list[_Group | _Await] = []
    if place.loop is not None:
        most = max(slot.buffer.slots for group in groups for slot in group.sources)
        before += [replace(g, ago=ago) for ago in range(most, 0, -1) for g in groups]
    out: list[kir.Stmt] = []
    for stmt in body:
        inner = () if isinstance(stmt, kir.Role) else kir.walk((stmt,))
        waits = [_keep(slot, before, stmt) for s in inner for slot in writes(s)]
        keep = min((keep for keep in waits if keep is not None), default=None)
        if keep is not None:
            before.append(_Await(keep))
            wait = kir.AsyncAwait(kir.AsyncKind.BULK, keep, read_only=True)
            out.extend(by_one_thread((wait,), place))
        group = _group(stmt)
        before += [group] if group is not None else []
        out.append(stmt)
    behind = 0
    for group in reversed(groups):
        if group.sure and any(destination(s) in handed_on for s in kir.walk((group.stmt,))):
            out.extend(by_one_thread((kir.AsyncAwait(kir.AsyncKind.BULK, behind),), place))
            break
        behind += group.sure
    return tuple(out)


def _keep(slot: kir.Slot, before: list[_Group | _Await], stmt: kir.Stmt) -> int | None:
    """Return how many groups may stay in flight when `stmt` writes a slot; None if all may.

    Groups inside of `stmt` are waited for there.
    """
    later, awaited = 0, None
    for event in reversed(before):
        if isinstance(event, _Await):
            done = later + event.keep
            awaited = done if awaited is None else min(awaited, done)
        if awaited is not None and later >= awaited:
            return None
        if isinstance(event, _Group):
            if event.stmt is not stmt and event.reads(slot):
                return later
            later += event.sure
    return None


def _group(stmt: kir.Stmt) -> _Group | None:
    """Return the groups of bulk stores in a statement, if there are any."""
    stores = (s for s in kir.walk((stmt,)) if isinstance(s, kir.TmaStore | kir.TmaReduce))
    sources = tuple(slot for store in stores for slot in reads(store))
    sure = isinstance(stmt, kir.Elect) and kir.AsyncCommit(kir.AsyncKind.BULK) in stmt.body
    return _Group(sources, stmt, sure) if sources else None


def _both_known(one: kir.Slot, other: kir.Slot) -> bool:
    return isinstance(one.index, int) and isinstance(other.index, int)


def _ended(body: Body) -> Body:
    """Await the reads of all groups at the end of a role, or of what stands in none."""
    if not any(_group(stmt) for stmt in body if not isinstance(stmt, kir.Role)):
        return body
    wait = kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only=True)
    return (*body, *by_one_thread((wait,), Context()))
