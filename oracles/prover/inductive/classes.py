"""The class of states that a kept state stands for: its numbers, shifted.

Reachability keeps one state for all that have its canonical form.  What that claims is written here
as arithmetic: every number of threads is the one of the kept state plus the *shift* of its group,
and the shifts and the lengths of loops keep some facts.  The counters of one use of a loop are a
group, so are positions of rings that rotate together; any other variable is a group of its own.

Nothing here is believed.  Facts are candidates, and what z3 cannot keep is dropped (`check`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from fuser.expr import Expr, Kind, Op, Var, eq, fold, substitute
from fuser.kernel import ir as kir
from oracles.prover.reachability.canonical import Orbit
from oracles.prover.reachability.code import Code, Set
from oracles.prover.reachability.path import Number
from oracles.prover.reachability.state import Agent, Range, State, Unknown
from oracles.prover.reachability.sync import SLOTS


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
        facts: list[Expr] = [eq(rotation(i), 0) for i in range(len(orbits))]
        facts += [fold(Kind.LE, 0, rotation(i)) for i in range(len(orbits))]
        facts += [eq(fold(Kind.MOD, rotation(i), o.step), 0) for i, o in enumerate(orbits)]
        late: list[tuple[Agent, Set]] = []
        for a in state.agents:
            if a.done:
                continue
            for name, value in sorted(a.env.items()):
                i = code.programs[a.kind.index][a.at]
                if isinstance(i, Set) and i.name == name and i.terms:
                    late.append((a, i))
                else:
                    facts += self._grouped(a, name, value)
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

    def _grouped(self, a: Agent, name: str, value: int) -> Iterator[Expr]:
        """Put a variable into its group; yield what may hold of its shift."""
        loop = next((one for one in a.loops if one.name == name), None)
        turned = self._turned(a, name)
        if turned is not None:
            shift, orbit = turned
            if shift != rotation(orbit):
                apart = fold(Kind.SUB, shift, rotation(orbit))
                yield eq(shift, rotation(orbit))
                yield eq(Op(Kind.MOD, apart, self._orbits[orbit].period), 0)
        elif loop is not None and loop.unknown is not None:
            shift = self._loops.setdefault(loop.unknown, Var(f"shift k{len(self._loops)}"))
        else:
            shift = Var(f"shift {a.kind.index} {name}")
        if loop is not None and loop.unknown is not None:
            first = self._loops.setdefault(loop.unknown, shift)
            if first != shift:  # rings that rotate by themselves, in one loop
                yield eq(shift, first)
        self.members[a.kind.index, name] = fold(Kind.ADD, shift, value)
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
            yield eq(shift, fold(Kind.SUB, beside, value))
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
        """Drop the candidates that do not hold of a state with these shifts."""
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
