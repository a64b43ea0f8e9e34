"""Rings of slots, and where a statement stands among them: in which iteration, in which slot.

For the passes; nothing here decides on a sync.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuser.expr import Expr, Op, Var
from fuser.kernel import ir as kir

Body = tuple[kir.Stmt, ...]


@dataclass(frozen=True, slots=True)
class Ring:
    """Buffers whose slots are filled together, and the barriers by which these change hands.

    `full` tells its readers that a slot is filled, `empty`, if any, tells who fills it that its
    readers, other threads, have let a slot go.  One CTA of a cluster fills slots of all if
    `spread`.
    """

    number: int
    full: kir.MBarrier
    empty: kir.MBarrier | None
    buffers: frozenset[str]
    spread: bool

    @property
    def freed(self) -> kir.MBarrier:
        """The `empty` barrier of a ring whose slots other threads fill than read."""
        assert self.empty is not None, f"nobody waits for free slots of {self.full.name}"
        return self.empty


def numbered(word: str, number: int) -> str:
    """Return a word for the first of several, a word with a number for each other one."""
    return f"{word}{number}" if number else word


def rings(kernel: kir.Kernel) -> list[Ring]:
    """Find the rings of a kernel by what its statements fill, and wait for before they do."""
    buffers: dict[kir.MBarrier, set[str]] = {}
    empty: dict[kir.MBarrier, kir.MBarrier] = {}
    spread: set[kir.MBarrier] = set()
    copied: set[str] = set()
    queued: set[str] = set()
    over: set[str] = set()
    waited: kir.MBarrier | None = None
    for stmt in kernel.walk():
        match stmt:
            case kir.MBarrierWaitParity(barrier):
                waited = barrier
            case kir.MBarrierArriveExpectTx(full) if waited is not None:
                empty[full] = waited
            case kir.TmaLoad(dst, _, full):
                buffers.setdefault(full, set()).add(dst.buffer.name)
                if stmt.multicast is not None:
                    spread.add(full)
            case kir.CpAsync(dst):
                copied.add(dst.buffer.name)
            case kir.QueueCopy(dst):
                queued.add(dst.buffer.name)
            case kir.AsyncAwait(kir.AsyncKind.QUEUE):
                over, queued = queued, set()
            case kir.MBarrierArrive(full) if over:
                buffers.setdefault(full, set()).update(over)
                over = set()
                if waited is not None:
                    empty[full] = waited
            case kir.CpAsyncMBarrierArrive(full):
                buffers.setdefault(full, set()).update(copied)
                copied = set()
                if waited is not None:
                    empty[full] = waited
            case _:
                waited, over = None, set()
    order = [barrier for barrier in kernel.barriers if barrier in buffers]
    return [
        Ring(n, full, empty.get(full), frozenset(buffers[full]), full in spread)
        for n, full in enumerate(order)
    ]


@dataclass(frozen=True, slots=True)
class Context:
    """Where a body stands: its loop, the iteration of its rings, who executes it, its role."""

    position: Expr = 0
    elected: bool = False
    role: kir.Role | None = None
    loop: kir.ForLoop | None = None


def _position(loop: kir.ForLoop) -> Expr:
    return (loop.circular and loop.circular.position) or loop.index


def each_body(body: Body, rule: Callable[[Body, Context], Body], place: Context) -> Body:
    """Apply `rule` to every body, innermost first."""

    def within(stmt: kir.Stmt) -> kir.Stmt:
        match stmt:
            case kir.ForLoop():
                there = replace(place, position=_position(stmt), loop=stmt)
            case kir.Elect():
                there = replace(place, elected=True)
            case kir.Role():
                there = replace(place, role=stmt)
            case _:
                there = place
        return kir.inside(stmt, lambda inner: each_body(inner, rule, there))

    return rule(tuple(map(within, body)), place)


def by_one_thread(body: Body, place: Context) -> Body:
    """Return statements as the first thread of a role executes them alone."""
    return body if place.elected else (kir.Elect(kir.Per.ROLE, body),)


def each_loop(body: Body, rule: Callable[[kir.ForLoop], kir.ForLoop]) -> Body:
    """Apply `rule` to loops, innermost first."""
    inner = (kir.inside(stmt, lambda some: each_loop(some, rule)) for stmt in body)
    return tuple(rule(stmt) if isinstance(stmt, kir.ForLoop) else stmt for stmt in inner)


def at_least(stop: Expr, iterations: int) -> Expr:
    """Return whether a loop has so many iterations."""
    return stop >= iterations if isinstance(stop, Var | Op) else int(stop >= iterations)


def wait_phase(
    barrier: kir.MBarrier, slot: Expr, position: Expr, *, before: int = 0
) -> kir.MBarrierWaitParity:
    """Wait for the phase of iteration `position`, or for the one `before` it.

    Iteration `i` uses its slot for the `i // slots`-th time, so its phase has parity
    `i // slots % 2`; the phase before the first has parity 1, and a wait for it passes at once.
    """
    return kir.MBarrierWaitParity(barrier, slot, (position // barrier.slots + before) % 2)
