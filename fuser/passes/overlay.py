"""Pass: buffers whose lives are apart share bytes.

`placed` lays buffers out; `overlay` tells it which of them may lie in the same bytes.  The syncs
that a second life needs come from the passes behind, which look at bytes (`effects.sharers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.passes.effects import fills, reads, rebuffer, writes

LINE = 128
"""Bytes at whose multiples buffers begin: what TMA takes."""
Apart = Callable[[str, str], bool]


def overlay(kernel: kir.Kernel) -> kir.Kernel:
    """Let buffers whose lives are apart share bytes, where that is asked for and saves any.

    The life of a buffer is all between its first access in program order, a write, and its last
    one: what a body does behind the one buffer is apart from what it does before the other.  In a
    loop lives follow each other all the time, and threads join between them; so that counts for
    loops over tiles, not for those that fill rings.  Slots that another role fills end their life
    where they are read for the last time, as each fill is waited for; in a loop that role would be
    ahead by the next tile.  Two rings keep bytes of their own: the second one is filled while the
    last tensor-core groups still read the first.  What peers read they may read until CTAs have
    synced.

    Mbarriers stay where they are, behind all buffers.
    """
    if not kernel.overlay:
        return kernel
    lives = _Lives(kernel)
    made = placed(kernel, lives.apart)
    return made if made.smem_bytes < kernel.smem_bytes else kernel


def placed(kernel: kir.Kernel, apart: Apart = lambda one, other: False) -> kir.Kernel:
    """Lay each buffer at the first bytes that are free of those from which it is not `apart`.

    Those that one wgmma reads as columns lie together.
    """
    beside = {
        stmt.b.buffer.name: [buffer.name for buffer in stmt.beside]
        for stmt in kernel.walk()
        if isinstance(stmt, kir.Wgmma) and stmt.beside  # the first may be read alone, too
    }
    by_name = {b.name: b for b in kernel.buffers}
    behind = {name for names in beside.values() for name in names}
    at_home: dict[str, kir.Buffer] = {}
    taken: list[tuple[int, int, list[kir.Buffer]]] = []
    for first in sorted(kernel.buffers, key=lambda b: -b.swizzle):
        if first.name in behind:
            continue
        step = max(LINE, 8 * first.swizzle)
        together = [first, *(by_name[name] for name in beside.get(first.name, ()))]
        nbytes = first.slots * sum(b.slot_nbytes for b in together)
        at = 0
        for low, end, others in sorted(taken, key=lambda one: one[:2]):
            shares = all(apart(b.name, other.name) for b in together for other in others)
            if not shares and low < at + nbytes:
                at = max(at, -(-end // step) * step)
        taken.append((at, at + nbytes, together))
        pitch = nbytes // first.slots if len(together) > 1 else 0
        for b in together:
            at_home[b.name] = replace(b, offset=at, pitch=pitch)
            at += b.slot_nbytes
    moved = replace(kernel, buffers=tuple(at_home.values()))
    return moved.rewrite(lambda stmt: None if kir.bodies(stmt) else [rebuffer(stmt, at_home)])


@dataclass(frozen=True, slots=True)
class _Access:
    """Where a buffer is accessed: the statements around it, and the place in the body of each."""

    around: tuple[kir.Stmt, ...]
    path: tuple[int, ...]
    fills: bool
    writes: bool
    by_peer: bool

    @property
    def role(self) -> kir.Stmt | None:
        return next((stmt for stmt in self.around if isinstance(stmt, kir.Role)), None)

    @property
    def trips(self) -> tuple[tuple[type[kir.Stmt], Expr], ...]:
        """How often it is executed: loops and guards around it."""
        return tuple(
            (type(s), s.stop if isinstance(s, kir.ForLoop) else s.condition)
            for s in self.around
            if isinstance(s, kir.ForLoop | kir.IfThenElse)
        )


class _Lives:
    """Where each buffer of a kernel is accessed, in program order."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.accesses: dict[str, list[_Access]] = {b.name: [] for b in kernel.buffers}
        for name, access in _accesses(kernel.body, (), ()):
            self.accesses[name].append(access)
        pairs = combinations(self.accesses, 2)
        self._apart = {frozenset(pair) for pair in pairs if self._follow(*pair)}

    def apart(self, one: str, other: str) -> bool:
        """Whether two buffers are never in use at once."""
        return frozenset((one, other)) in self._apart

    def _follow(self, one: str, other: str) -> bool:
        """Whether all accesses of one buffer stand before those of the other, whoever does them."""
        first, second = self.accesses[one], self.accesses[other]
        if not first or not second:
            return False
        if len({a.role for a in second}) > 1:
            first, second = second, first
        roles = {a.role for a in second}
        mine = [a for a in first if a.role in roles]
        elsewhere = [a for a in first if a.role not in roles]
        if len(roles) > 1 or not mine:
            return False
        # In the innermost body around all of them, what its statements access.
        depth = _common([a.path for a in (*mine, *second)])
        places, others = ([a.path[depth] for a in accesses] for accesses in (mine, second))
        around = [s for s in mine[0].around[:depth] if isinstance(s, kir.ForLoop | kir.Loop)]
        if max(others) < min(places) and not elsewhere:
            first, second = second, first
        elif max(places) >= min(others):
            return False
        if not (first[0].writes and second[0].writes) or any(a.by_peer for a in first):
            return False
        if any(a.fills for a in first) and any(a.fills for a in second):
            return False
        if elsewhere:
            waited = {a.trips for a in mine}
            seen = all(a.fills and a.trips in waited for a in elsewhere)
            return seen and not around and roles != {None}
        ring = any(isinstance(s, kir.ForLoop) and s.circular is not None for s in around)
        return not ring and not (around and any(a.by_peer for a in second))


def _accesses(
    body: tuple[kir.Stmt, ...], around: tuple[kir.Stmt, ...], path: tuple[int, ...]
) -> Iterator[tuple[str, _Access]]:
    """Yield every access of a buffer, writes of a statement before its reads.

    Sums of one body are handed on together (`serialize_split_k`): all are staged before the first
    is copied.
    """
    meetings = [stmt.staged for stmt in body if isinstance(stmt, kir.GridSum) and stmt.staged]
    for n, stmt in enumerate(body):
        here = (*path, n)
        staged = meetings if isinstance(stmt, kir.GridSum) else ()
        for slots, written in (((*writes(stmt), *staged), True), (reads(stmt), False)):
            for slot in slots:
                far = slot.cta is not None
                yield (
                    slot.buffer.name,
                    _Access(around, here, fills(stmt) is not None, written, far),
                )
        for branch, inner in enumerate(kir.bodies(stmt)):
            # Branches follow each other as statements of one body do.
            yield from _accesses(inner, (*around, stmt, stmt), (*here, branch))


def _common(paths: list[tuple[int, ...]]) -> int:
    """Return how many places all paths begin with."""
    first = paths[0]
    depth = 0
    while all(len(path) > depth + 1 and path[depth] == first[depth] for path in paths):
        depth += 1
    return depth
