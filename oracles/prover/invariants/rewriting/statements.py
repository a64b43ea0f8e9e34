"""What all rewriting shares: the lines of statements, other slots, a buffer for each slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from oracles.prover.sites import slots


class Lines:
    """The lines of statements, and of those made of them, in the text of the first kernel."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self._of = {id(stmt): (number, stmt) for number, stmt in numbered(kernel)}

    def __getitem__(self, stmt: kir.Stmt) -> int:
        """Return the line of a statement, 0 of one that has none."""
        return self._of[id(stmt)][0] if id(stmt) in self._of else 0

    def kept(self, old: kir.Stmt, new: kir.Stmt) -> kir.Stmt:
        """Give a new statement the line of the old one, and return it."""
        self._of[id(new)] = self[old], new  # it must live, else its id is given to another
        return new


@dataclass(frozen=True, slots=True)
class Whole:
    """A kernel, and the lines of its statements in the text of the one it is made of."""

    kernel: kir.Kernel
    lines: Lines


def with_slots(stmt: kir.Stmt, to: Callable[[kir.Slot], kir.Slot]) -> kir.Stmt:
    """Return a statement with other slots."""
    match stmt:
        case kir.Load(_, kir.Slot() as slot) | kir.TmaStore(_, slot) | kir.TmaReduce(_, slot):
            return replace(stmt, src=to(slot))
        case kir.Store(kir.Slot() as slot) | kir.TmaLoad(slot) | kir.CpAsync(slot):
            return replace(stmt, dst=to(slot))
        case kir.Wgmma(_, a, b):
            first = to(a) if isinstance(a, kir.Slot) else a
            more = tuple(to(slot).buffer for slot in stmt.columns[1:])
            return replace(stmt, a=first, b=to(b), beside=more)
        case _:
            return stmt


def by_number(one: Whole) -> Whole:
    """Return the same kernel with a buffer for each slot, where slots are given by numbers alone.

    A buffer that is used in turn is a ring; one of numbered slots is none, such as the staging of a
    result that leaves in chunks.
    """
    used: dict[str, set[Expr]] = {}
    for stmt in one.kernel.walk():
        for slot in slots(stmt):
            used.setdefault(slot.buffer.name, set()).add(slot.index)
    parted = {
        buffer.name
        for buffer in one.kernel.buffers
        if buffer.slots > 1 and used.get(buffer.name, set()) <= set(range(buffer.slots))
    }

    def part(slot: kir.Slot) -> kir.Slot:
        if slot.buffer.name not in parted or not isinstance(slot.index, int):
            return slot
        return replace(slot, buffer=_part(slot.buffer, slot.index), index=0)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if any(slot.buffer.name in parted for slot in slots(stmt)):
            return [one.lines.kept(stmt, with_slots(stmt, part))]
        return None

    if not parted:
        return one
    buffers: list[kir.Buffer] = []
    for buffer in one.kernel.buffers:
        parts = [_part(buffer, at) for at in range(buffer.slots)]
        buffers += parts if buffer.name in parted else [buffer]
    return Whole(replace(one.kernel.rewrite(rule), buffers=tuple(buffers)), one.lines)


def _part(buffer: kir.Buffer, at: int) -> kir.Buffer:
    """Return one slot of a buffer as a buffer."""
    return replace(buffer, name=f"{buffer.name}[{at}]", slots=1, offset=buffer.start(at))


def alone(stmt: kir.Stmt) -> bool:
    """Whether a statement touches nothing that threads of a CTA share."""
    match stmt:
        case kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate() | kir.Mma():
            return True
        case kir.Load(_, kir.Box()) | kir.Store(kir.Box()):
            return True
        case _:
            return False
