"""The class of states that a kept state stands for: its numbers, shifted.

Reachability keeps one state for all that have its canonical form.  What that claims is written here
as arithmetic: every number of threads is the one of the kept state plus the *shift* of its group,
and the shifts and the lengths of loops keep some facts.  The counters of one use of a loop are a
group, so are positions of rings that rotate together; any other variable is a group of its own.

Nothing here is believed.  Facts are candidates, and what z3 cannot keep is dropped (`check`).  They
are compared in one spelling (`normal`), and z3 is not asked what plainly follows (`Bounds`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import gcd, inf

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.canonical import Orbit
from oracles.prover.reachability.code import Code, Set
from oracles.prover.reachability.path import Number
from oracles.prover.reachability.state import Agent, Range, State, Unknown
from oracles.prover.reachability.sync import SLOTS

Position = tuple[int, str, int, Unknown | None]
"""What threads of a CTA have as a variable: its name and value, and which loop counts with it."""


class Class:
    """The states that one stands for.

    `numbers` are the variables of its threads, and places that were put down: what variable each is
    of, and its value.  `members` has them as sums of these values and shifts, `facts` what is
    claimed of the shifts and of lengths; each is a condition that is not 0.
    """

    def __init__(
        self,
        state: State,
        numbers: Mapping[Number, tuple[str, int]],
        code: Code,
        orbits: tuple[Orbit, ...],
        walk: str | None,
    ) -> None:
        self.state, self.numbers = state, numbers
        self.members: dict[Number, Expr] = {}
        self.defines: dict[Var, Number] = {}
        self._code, self._orbits, self._walk = code, orbits, walk
        self._loops: dict[Unknown, Var] = {}
        self._first: dict[int, int] = {}
        self._places: dict[Position, Expr] = {}
        facts: list[Expr] = [eq(rotation(i), 0) for i in range(len(orbits))]
        facts += [fold(Kind.LE, 0, rotation(i)) for i in range(len(orbits))]
        facts += [eq(fold(Kind.MOD, rotation(i), o.step), 0) for i, o in enumerate(orbits)]
        late: list[tuple[Agent, Set]] = []
        for a in state.agents:
            if a.done:
                continue
            i = code.programs[a.kind.index][a.at]
            unknowns = {one.name: one.unknown for one in reversed(a.loops)}
            for name, value in sorted(a.env.items()):
                place = a.kind.cta, name, value, unknowns.get(name)
                if isinstance(i, Set) and i.name == name and i.terms:
                    late.append((a, i))
                elif place in self._places:  # that others have, too
                    self.members[a.kind.index, name] = self._places[place]
                else:
                    facts += self._grouped(a, place)
        for a, i in late:
            self.members[a.kind.index, i.name] = self._behind(a, i)
        self._now: dict[str, dict[tuple[Expr, int], None]] = defaultdict(dict)
        for number, member in self.members.items():
            name, value = numbers[number]
            self._now[name][member, value] = None
        for number in sorted(numbers.keys() - self.members.keys(), key=str):
            facts += self._put_down(number)
        self.facts = facts
        self._suppose()

    def _grouped(self, a: Agent, place: Position) -> Iterator[Expr]:
        """Put a variable into its group; yield what may hold of its shift."""
        _, name, value, unknown = place
        turned = self._turned(a, name)
        if turned is not None:
            shift, orbit = turned
            if shift != rotation(orbit):
                apart = fold(Kind.SUB, shift, rotation(orbit))
                yield eq(shift, rotation(orbit))
                yield eq(Op(Kind.MOD, apart, self._orbits[orbit].period), 0)
        elif unknown is not None:
            shift = self._loops.setdefault(unknown, Var(f"shift k{len(self._loops)}"))
        else:
            shift = Var(f"shift {a.kind.index} {name}")
        if unknown is not None:
            first = self._loops.setdefault(unknown, shift)
            if first != shift:  # rings that rotate by themselves, in one loop
                yield eq(shift, first)
        member = self.members[a.kind.index, name] = fold(Kind.ADD, shift, value)
        if turned is not None or unknown is not None:
            self._places[place] = member
        self.defines.setdefault(shift, (a.kind.index, name))
        yield eq(shift, 0)
        yield fold(Kind.LE, 0, shift)
        threshold, period = self._code.cycles.get(name, (0, 1))
        if value >= threshold and period > 1:
            yield eq(Op(Kind.MOD, shift, period), 0)
        if name == self._walk:
            yield eq(Op(Kind.MOD, shift, SLOTS), 0)

    def _put_down(self, number: Number) -> Iterator[Expr]:
        """Give a number that was put down a shift; yield how it may lie to its variable's now."""
        name, value = self.numbers[number]
        shift = Var(f"shift {number}")
        self.members[number] = fold(Kind.ADD, shift, value)
        self.defines[shift] = number
        yield eq(shift, 0)
        for beside, now in self._now.get(name, ()):
            if value == now:
                yield eq(shift, fold(Kind.SUB, beside, value))
            if value <= now:
                yield fold(Kind.LT if value < now else Kind.LE, self.members[number], beside)
        if isinstance(number[0], tuple):  # of a map, in whichever loops its writer and copies are
            for beside, now in dict.fromkeys(one for each in self._now.values() for one in each):
                yield eq(shift, fold(Kind.SUB, beside, now))
        if number[0] == "turn":
            yield fold(Kind.LE, 0, self.members[number])
            yield eq(Op(Kind.MOD, shift, SLOTS), 0)

    def _turned(self, a: Agent, name: str) -> tuple[Var, int] | None:
        """Return the shift of a position of rings that rotate, and their number.

        Those of the first CTA that has such a position say how far the rings have gone.
        """
        for i, orbit in enumerate(self._orbits):
            if name in orbit.names:
                if self._first.setdefault(i, a.kind.cta) == a.kind.cta:
                    return rotation(i), i
                return Var(f"rotation {i} of CTA {a.kind.cta}"), i
        return None

    def _behind(self, a: Agent, i: Set) -> Expr:
        """Return the position of threads that are about to add the length of others' loop to it.

        Position and rounds together are as far as the others' position is.
        """
        turned = self._turned(a, i.name)
        at: Expr = fold(Kind.ADD, turned[0], a.env[i.name]) if turned else a.env[i.name]
        for number, times in i.terms:
            for unknown, shift in self._loops.items():
                if unknown.atom == number:
                    at = fold(Kind.SUB, at, fold(Kind.MUL, times, shift))
        return at

    def shift_of(self, unknown: Unknown) -> Expr:
        """Return the shift of the counters of a loop, 0 if nobody runs it."""
        return self._loops.get(unknown, 0)

    def _shifts(self, atom: int) -> set[Expr]:
        """Return the shifts of the counters of all loops of a length."""
        return {shift for unknown, shift in self._loops.items() if unknown.atom == atom}

    def _suppose(self) -> None:
        """Add what may hold of the lengths of loops."""
        counted = {**dict.fromkeys(self._loops, Range()), **self.state.ranges}
        for unknown, known in counted.items():
            n = self._code.atoms.meaning(unknown.atom)
            # what is known of all uses of a length is known of each loop that runs
            shifts = {self.shift_of(unknown), *self._shifts(unknown.atom)}
            for shift in sorted(shifts, key=str):
                at = fold(Kind.ADD, shift, known.low)
                if known.exact:
                    equal = eq(shift, fold(Kind.SUB, n, known.low)) if shift else eq(n, at)
                    self.facts += [equal, fold(Kind.LE, n, at)]
                self.facts.append(fold(Kind.LE, at, n))
            self.facts.append(fold(Kind.LE, known.low, n))
        for test, answer in self.state.chosen.items():
            self.facts.append(test if answer else eq(test, 0))
        self.facts = [f for f in dict.fromkeys(self.facts) if not isinstance(f, int)]

    def drop_refuted(self, shifts: Mapping[Var, Expr]) -> None:
        """Drop the candidates that do not hold of a state with these shifts; with none all do."""
        if any(shifts.values()):
            self.facts = [f for f in self.facts if substitute(f, shifts) != 0]


def rotation(orbit: int) -> Var:
    """Return by how much the rings of an orbit are rotated."""
    return Var(f"rotation {orbit}")


ALWAYS = (
    fold(Kind.LE, 1, kir.GRID),
    fold(Kind.LT, kir.BLOCK, kir.GRID),
    fold(Kind.LE, 0, kir.BLOCK),
)
"""What holds of every CTA of every launch."""


# --- facts ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def normal(expr: Expr) -> Expr:
    """Return the one spelling of a sum, or of a comparison: of unknowns with a number.

    Multiples and constants leave quotients and remainders by numbers.
    """
    match expr:
        case Op(Kind.MOD | Kind.FLOORDIV as kind, a, int() as by) if by > 0:
            constant, parts = linear(normal(a))
            inner = _sum(constant % by, {part: times % by for part, times in parts.items()})
            if kind is Kind.MOD:
                return fold(Kind.MOD, inner, by)
            whole = _sum(constant // by, {part: times // by for part, times in parts.items()})
            return _sum(*linear(fold(Kind.ADD, whole, fold(Kind.FLOORDIV, inner, by))))
        case Op(Kind.EQ, Op(Kind.LT | Kind.LE as kind, a, b), 0):
            return normal(fold(Kind.LE if kind is Kind.LT else Kind.LT, b, a))
        case Op(Kind.EQ | Kind.LT | Kind.LE as kind, a, b):
            return _compared(kind, *linear(fold(Kind.SUB, normal(a), normal(b))))
        case Op(Kind.ADD | Kind.SUB | Kind.MUL as kind, a, b):
            return _sum(*linear(fold(kind, normal(a), normal(b))))
        case Op(kind, a, b):
            return fold(kind, normal(a), normal(b))
        case _:
            return expr


def _sum(constant: int, parts: Mapping[Expr, int]) -> Expr:
    total: Expr = 0
    for part in sorted(parts, key=str) if len(parts) > 1 else parts:
        total = fold(Kind.ADD, total, fold(Kind.MUL, parts[part], part))
    return fold(Kind.ADD, total, constant)


def _compared(kind: Kind, constant: int, parts: Mapping[Expr, int]) -> Expr:
    """Return whether a sum is 0, less, or not more; the first unknown counts as more than 0."""
    if not parts:
        return fold(kind, constant, 0)
    by = gcd(*parts.values())
    if kind is Kind.EQ and constant % by:
        return 0
    least = -(constant + (kind is Kind.LT)) // by  # the sum of the unknowns is that, or not more
    back = parts[min(parts, key=str)] < 0
    total = _sum(0, {part: times // (-by if back else by) for part, times in parts.items()})
    if kind is Kind.EQ:
        return fold(kind, total, -least if back else least)
    return fold(Kind.LE, -least, total) if back else fold(Kind.LE, total, least)


def solved(facts: list[Expr]) -> dict[Var, Expr]:
    """Return what equations say of single variables, in terms of others."""
    out: dict[Var, Expr] = {}
    for fact in facts:
        match fact:
            case Op(Kind.EQ, Op(Kind.MOD, Var(name) as x, int() as by), 0) if x not in out:
                right = fold(Kind.MUL, by, Var(f"{name} / {by}"))
                out = {other: substitute(e, {x: right}) for other, e in out.items()}
                out[x] = right
            case Op(Kind.EQ, Var() as x, y):
                right = substitute(y, out)
                if x not in out and x not in variables(right):
                    out = {name: substitute(e, {x: right}) for name, e in out.items()}
                    out[x] = right
            case _:
                pass
    return out


class Bounds:
    """What sums are at least, and what adding up such facts says of others.

    A sum that is at most so much is the negative one that is at least as much below 0.
    """

    def __init__(self, beside: Bounds | None = None) -> None:
        self._told: set[Expr] = set() if beside is None else beside._told.copy()
        self._least: dict[Total, int] = {} if beside is None else beside._least.copy()
        self._of: dict[tuple[Expr, bool], tuple[Total, ...]]
        self._of = {} if beside is None else beside._of.copy()

    def know(self, facts: Iterable[Expr]) -> Bounds:
        """Take facts in their normal form to be known."""
        for fact in facts:
            self._told.add(fact)
            for total, n in inequalities(fact):
                if total not in self._least and len(total) > 1:
                    for part, times in total:
                        self._of[part, times > 0] = (*self._of.get((part, times > 0), ()), total)
                self._least[total] = max(n, self._least.get(total, n))
        return self

    def give(self, goal: Expr) -> bool:
        """Whether a condition in its normal form plainly follows."""
        if isinstance(goal, int) or goal in self._told:
            return goal != 0
        asked = inequalities(goal)
        return bool(asked) and all(self._at_least(total, n) for total, n in asked)

    def _at_least(self, total: Total, n: int) -> bool:
        """Whether a sum is at least n: by its unknowns alone, or by a fact of some as well."""
        if self._least.get(total, n - 1) >= n or self._by_parts(total) >= n:
            return True
        beside = (known for part, times in total for known in self._of.get((part, times > 0), ()))
        for known in beside:
            rest = dict(total)
            for part, times in known:
                rest[part] = rest.get(part, 0) - times
            if self._least[known] + self._by_parts(rest.items()) >= n:
                return True
        return False

    def _by_parts(self, total: Iterable[tuple[Expr, int]]) -> float:
        """Return what a sum is at least by what is known of each of its unknowns alone."""
        found = 0
        for part, times in total:
            if times:
                least = self._least.get(((part, 1 if times > 0 else -1),))
                if least is None:
                    return -inf
                found += abs(times) * least
        return found


Total = tuple[tuple[Expr, int], ...]
"""A sum without its number: unknowns and how often it has each."""


@lru_cache(maxsize=1 << 14)
def inequalities(condition: Expr) -> tuple[tuple[Total, int], ...]:
    """Return which sums are at least how much just where a condition holds; none for any other."""
    match condition:
        case Op(Kind.LE, int() as n, total):
            constant, parts = linear(total)
            return ((tuple(parts.items()), n - constant),)
        case Op(Kind.LE, total, int() as n):
            constant, parts = linear(total)
            return ((tuple((part, -times) for part, times in parts.items()), constant - n),)
        case Op(Kind.EQ, total, int() as n):
            sides = fold(Kind.LE, n, total), fold(Kind.LE, total, n)
            return tuple(one for side in sides for one in inequalities(side))
        case Op(Kind.AND, a, b):
            left, right = inequalities(a), inequalities(b)
            return (*left, *right) if left and right else ()
        case _:
            return ()
