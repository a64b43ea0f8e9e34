"""Pass: copies in a queue are awaited by how many of it may still be in flight.

A queue has no groups: an await counts the entries behind the one that is to be over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.kernel import ir as kir
from fuser.passes.effects import names, reads
from fuser.passes.rings import Body, Context, by_one_thread


def await_queues(kernel: kir.Kernel) -> kir.Kernel:
    """Let the thread of a queue await what is read before its copy is known to be over.

    Where copies of a loop run `prefetch` iterations ahead, `each` of them an iteration, those of
    the `prefetch - 1` iterations behind the one that is read may stay in flight: `each` entries for
    every one of these that there is.  There is none behind the last iteration, and a queue has no
    empty entries that could stand for it, so the await asks which of them are left.  Any other read
    awaits all of the queue: once before a loop that copies nothing of what is read there.

    Who else reads joins behind the await (`sync_threads`).
    """
    if not any(isinstance(stmt, kir.QueueCopy) for stmt in kernel.walk()):
        return kernel
    body, _ = _Queue(Open()).walk(kernel.body, Open(), Context())
    return replace(kernel, body=body)


Open = frozenset[str]
"""Buffers with copies that nothing has awaited."""


@dataclass(frozen=True, slots=True)
class _Queue:
    """The walk over a body, of an iteration whose copies into a `ring` have been awaited."""

    ring: Open

    def walk(self, body: Body, state: Open, place: Context) -> tuple[Body, Open]:
        """Return a body with its awaits, and what is open behind it."""
        out: list[kir.Stmt] = []
        for stmt in body:
            if self._asked(stmt, body) & state:
                out += by_one_thread((kir.AsyncAwait(kir.AsyncKind.QUEUE, 0),), place)
                state = Open()
            match stmt:
                case kir.QueueCopy(dst):
                    state |= {dst.buffer.name}
                    out.append(stmt)
                case kir.AsyncAwait(kir.AsyncKind.QUEUE, 0):
                    state = Open()
                    out.append(stmt)
                case kir.ForLoop() | kir.Loop():
                    made, state = self._loop(stmt, state, place)
                    out.append(made)
                case kir.IfThenElse(_, then, orelse):
                    then, after = self.walk(then, state, place)
                    orelse, other = self.walk(orelse, state, place)
                    out.append(replace(stmt, then=then, orelse=orelse))
                    state = after | other
                case kir.Elect():
                    inner, state = self.walk(stmt.body, state, replace(place, elected=True))
                    out.append(replace(stmt, body=inner))
                case kir.Role():  # its first thread has a queue of its own
                    inner, _ = _Queue(Open()).walk(stmt.body, Open(), Context(role=stmt))
                    out.append(replace(stmt, body=inner))
                case kir.LastArriving():
                    inner, after = self.walk(stmt.body, state, place)
                    out.append(replace(stmt, body=inner))
                    state |= after
                case _:
                    out.append(stmt)
        return tuple(out), state

    def _asked(self, stmt: kir.Stmt, body: Body) -> Open:
        """Return what is to be awaited in front of a statement: what it reads and does not copy.

        Roles run side by side: in front of the first is awaited what any of them reads.
        """
        match stmt:
            case kir.Role():
                roles = (beside for beside in body if isinstance(beside, kir.Role))
                return Open().union(*(_read(role.body) - _queued(role.body) for role in roles))
            case kir.ForLoop() | kir.Loop() | kir.Elect():
                return _read(stmt.body) - _queued(stmt.body) - self.ring
            case _:
                return names(reads(stmt)) - self.ring

    def _loop(
        self, loop: kir.ForLoop | kir.Loop, state: Open, place: Context
    ) -> tuple[kir.Stmt, Open]:
        queue, first = self, Body()
        if isinstance(loop, kir.ForLoop):
            ahead = _ahead(loop)
            ring = _queued(ahead) & _read(loop.body)
            if ring:
                queue = _Queue(self.ring | ring)
                first = by_one_thread((_await_iteration(loop, ahead),), place)
        while True:
            body, after = queue.walk(loop.body, state, place)
            if after | state == state:
                return replace(loop, body=(*first, *body)), state
            state |= after


def _queued(body: Body) -> Open:
    copies = (stmt for stmt in kir.walk(body) if isinstance(stmt, kir.QueueCopy))
    return frozenset(copy.dst.buffer.name for copy in copies)


def _read(body: Body) -> Open:
    return Open().union(*(names(reads(stmt)) for stmt in kir.walk(body)))


def _ahead(loop: kir.ForLoop) -> Body:
    """Return what a loop does for the iteration `prefetch` ahead, if there is one."""
    prefetch = loop.circular.prefetch if loop.circular is not None else 0
    later = loop.index + prefetch < loop.stop
    guards = (s for s in loop.body if isinstance(s, kir.IfThenElse) and s.condition == later)
    return tuple(stmt for guard in guards for stmt in guard.then) if prefetch else ()


def _await_iteration(loop: kir.ForLoop, ahead: Body) -> kir.Stmt:
    """Await the copies of an iteration, before those of a later one are issued."""
    assert loop.circular is not None, "only rings run ahead"
    each = sum(isinstance(stmt, kir.QueueCopy) for stmt in kir.walk(ahead))
    wait: kir.Stmt = kir.AsyncAwait(kir.AsyncKind.QUEUE, 0)
    for behind in range(1, loop.circular.prefetch):
        some = kir.AsyncAwait(kir.AsyncKind.QUEUE, behind * each)
        wait = kir.IfThenElse(loop.index + behind < loop.stop, (some,), (wait,))
    return wait
