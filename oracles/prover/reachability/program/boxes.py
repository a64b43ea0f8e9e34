"""Boxes of global memory in the prover's states: which ones share elements, as far as is known.

A box is known by the place of its origin: on each axis a constant and multiples of what no thread
knows.  Two that differ by a constant only are compared; of others it is not known.  A box that
moves along a loop of unknown length is one *rolling* region, whose last place is kept: what the
same threads did at earlier places precedes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.program.code import Code, Do, Enter, Set
from oracles.prover.reachability.state import Agent
from oracles.prover.sites import touches

Form = tuple[int, frozenset[tuple[Expr, int]]]
"""A constant, and multiples of what is not known."""


class Share(Enum):
    """Whether two accesses touch the same elements."""

    SAME = "the same box"
    SOME = "boxes that overlap"
    MAYBE = "boxes that may overlap"


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a tensor; `rolls` is what moves it on each axis.

    `loop` is the loop along which it rolls, -1 if it stands: the one whose index moves it, or the
    innermost one where something else does.
    """

    tensor: str
    origin: tuple[Form, ...]
    shape: tuple[int, ...]
    rolls: tuple[frozenset[tuple[Expr, int]], ...]
    loop: int = -1


def rolling(code: Code) -> frozenset[str]:
    """Return the variables whose values follow a loop of unknown length, or an assignment."""
    names = {i.name for p in code.programs for i in p if isinstance(i, Enter) and i.atom >= 0}
    for program in code.programs:
        sets = [i.name for i in program if isinstance(i, Set)]
        names |= {name for name in sets if sets.count(name) > 1}
    more = True
    while more:
        found = {
            i.name
            for p in code.programs
            for i in p
            if isinstance(i, Set) and any(v.name in names for v in variables(i.expr))
        }
        more = not found <= names
        names |= found
    return frozenset(names)


def region(do: Do, a: Agent, moving: frozenset[str]) -> Region:
    """Return the region of a statement's box, as these threads execute it now."""
    box = touches(do.site.stmt)
    assert box is not None, "asked of accesses of global memory only"
    known: Mapping[Var, Expr] = {Var(n): v for n, v in a.env.items() if n not in moving}
    origin: list[Form] = []
    rolls: list[frozenset[tuple[Expr, int]]] = []
    for expr in do.origin:
        constant, parts = linear(substitute(expr, known))
        origin.append((constant, frozenset(parts.items())))
        on = {(e, n) for e, n in parts.items() if any(v.name in moving for v in variables(e))}
        rolls.append(frozenset(on))
    by = {v.name for on in rolls for atom, _ in on for v in variables(atom)} & moving
    loop = a.loops[-1][0] if any(rolls) and a.loops else -1
    if len(by) == 1:
        loop = next((number for number, _, name, _ in a.loops if name in by), loop)
    return Region(box.tensor.name, tuple(origin), box.shape, tuple(rolls), loop)


def outside(do: Do, a: Agent) -> bool:
    """Whether a box begins at its limit or behind it, for sure: then it has no element."""
    known: Mapping[Var, Expr] = {Var(n): v for n, v in a.env.items()}
    for start, end in zip(do.origin, do.limit, strict=True):
        over, parts = linear(substitute(start, known) - substitute(end, known))
        if over >= 0 and not parts:
            return True
    return False


def place(do: Do, a: Agent, moving: frozenset[str]) -> tuple[int, ...]:
    """Return where a rolling region is now."""
    names = {v.name for e in do.origin for v in variables(e)} & moving
    return tuple(a.env.get(name, -1) for name in sorted(names))


def share(a: Region, b: Region, *, still: bool = False) -> Share | None:
    """Return how two regions share elements, None if they do not.

    `still` says that both are where the same values of what moves them have brought them.
    """
    if a == b:
        return Share.MAYBE if any(a.rolls) and not still else Share.SAME
    how = Share.SOME
    for (low, parts), (other, others), size, extent, moves in zip(
        a.origin, b.origin, a.shape, b.shape,
        ((x or y) and not still for x, y in zip(a.rolls, b.rolls, strict=True)), strict=True,
    ):  # fmt: skip
        if parts != others or moves:
            how = Share.MAYBE
        elif low >= other + extent or other >= low + size:
            return None
        elif low != other and parts:
            how = Share.MAYBE
    return how


def filled(inner: Region, written: list[Region]) -> bool:
    """Whether boxes hold all elements of another one: one of them does, or several side by side.

    Those that roll along one loop are given where they are at the same time; others that roll are
    taken to.
    """
    rolling_ = [r for r in written if any((*r.rolls, *inner.rolls)) and not alike(r, inner)]
    if any(share(r, inner) is not None for r in rolling_):
        return True
    for axis in range(len(inner.shape)):
        row = sorted(
            (r.origin[axis][0], r.origin[axis][0] + r.shape[axis])
            for r in written
            if all(_within(inner, r, n) for n in range(len(inner.shape)) if n != axis)
            and r.origin[axis][1] == inner.origin[axis][1]
        )
        start = inner.origin[axis][0]
        end = start + inner.shape[axis]
        for low, high in row:
            if low <= start < high:
                start = high
        if start >= end:
            return True
    return False


def _within(inner: Region, outer: Region, axis: int) -> bool:
    """Whether the range of a box on an axis lies in that of another one."""
    (low, parts), (other, others) = outer.origin[axis], inner.origin[axis]
    inside = low <= other and other + inner.shape[axis] <= low + outer.shape[axis]
    return parts == others and inside


def alike(a: Region, b: Region) -> bool:
    """Whether two regions roll along one loop, in the same steps."""
    return any(a.rolls) and a.loop == b.loop and a.rolls == b.rolls


def strides(a: Region, b: Region, positive: frozenset[Expr]) -> bool:
    """Whether regions that roll alike share nothing while they are at different places.

    Along one axis they lie within less than the length of a step, which is a multiple of what one
    variable is multiplied with: a number, or one times something `positive`.
    """
    moving = [axis for axis, on in enumerate(a.rolls) if on]
    if len(moving) != 1 or len(a.rolls[moving[0]]) != 1:
        return False
    (axis,) = moving
    ((atom, times),) = a.rolls[axis]
    match atom:
        case Var():
            pass
        case Op(Kind.MUL, Var(), stride) if stride in positive:
            pass
        case _:
            return False
    (low, parts), (other, others) = a.origin[axis], b.origin[axis]
    ends = max(low + a.shape[axis], other + b.shape[axis])
    return parts == others and ends - min(low, other) <= abs(times)
