"""Counts that no thread knows, as far as they tell states apart: their abstraction.

A count that a loop still runs is relative to the loop's rounds in a canonical form, and so is what
is known of it.  That is enough for the loop's own test.  Whoever compares the count with anything
else sees more: with a number, that is a threshold, below which what is known counts as it is and
beyond which it counts no more (`limit`); with a variable that goes on and on, the distance counts
(`margins`).

Nothing tells how long a loop is that a role has run through, or runs far ahead in, before another
begins, but the threads in it, and its rounds repeat; so the rounds of whoever comes later would be
followed for the first few lengths only.  Up to a few rounds the lead is part of a state (`leads`);
beyond, the late ones have a length of their own, of which nothing is known but that it is not
small.  That is more than a launch can show, as with two loops in a row (`World.few`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fuser.expr import Expr, Kind, Op, Var, variables
from oracles.prover.arithmetic import linear
from oracles.prover.reachability.canonical.rotation import numbers
from oracles.prover.reachability.execution import Execution
from oracles.prover.reachability.program.code import (
    AtLeast,
    Branch,
    Code,
    Condition,
    Enter,
    Instruction,
    Set,
    Several,
    reaches,
)
from oracles.prover.reachability.state import Agent, State, Unknown
from oracles.prover.reachability.world import World

TRIED = 4096
"""Values of a bound that are looked at to find the largest."""
APART = 1 << 16
"""Added to the use of a count that goes its own way."""


@dataclass(frozen=True, slots=True)
class Against:
    """A comparison of a count, and from where in its program it may still be made.

    From `last` on it is not made at all any more; from `inner` on not without another round of the
    loops of unknown length around it.  `names` are the variables in it that go on and on; if there
    are none, `most` is the largest number that it compares with.  If it `rises`, its answer can
    only get from yes to no.
    """

    last: int
    inner: int
    test: AtLeast
    names: frozenset[str]
    most: int = 0
    rises: bool = False


class Counts:
    """What the programs of a kernel still ask about counts, and by whom they are run apart.

    `parted` has the counts of which late threads have been given a length of their own.
    """

    def __init__(self, world: World) -> None:
        self.parted: set[int] = set()
        self._world = world
        self._against: dict[int, tuple[Against, ...]] = {}
        self._last_uses: dict[tuple[int, int], int] = {}
        self._entrances: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}

    def forget(self, state: State) -> None:
        """Drop the counts that nobody will compare with again, and variables nobody will read."""
        for a in state.agents:
            read = self._world.last_reads[a.kind.index]
            held = {loop.name for loop in a.loops}
            a.drops([n for n in a.env if n not in held and a.at > read.get(n, -1)])
        for unknown in list(state.ranges):
            if not any(self._asks(a, unknown) for a in state.agents):
                state.most = max(state.most, state.ranges[unknown].low)
                del state.ranges[unknown]

    def _asks(self, a: Agent, unknown: Unknown) -> bool:
        """Whether threads may still compare with a count."""
        if a.done or a.at > self._last_use(a.kind.index, unknown.atom):
            return False
        rounds = a.rounds
        if not unknown.outer or not rounds:
            return True
        return rounds[: len(unknown.outer)] <= unknown.outer

    def _last_use(self, index: int, atom: int) -> int:
        """Return the last place in a program from which a count may still be asked for."""
        key = index, atom
        if key not in self._last_uses:
            code = self._world.code
            meant = next(e for e, number in code.atoms.found.items() if number == atom)
            uses = (
                last
                for i, last in reaches(code.programs[index])
                if isinstance(i, Enter | Branch | Set)
                and _mentions(i.stop if isinstance(i, Enter) else i.expr, meant)
            )
            self._last_uses[key] = max(uses, default=-1)
        return self._last_uses[key]

    # --- thresholds and distances ---------------------------------------------------------------

    def against(self, index: int) -> tuple[Against, ...]:
        """Return what a program compares counts with."""
        if index not in self._against:
            self._against[index] = tuple(comparisons(self._world.code, index))
        return self._against[index]

    def margins(self, execution: Execution, a: Agent) -> tuple[int, ...]:
        """Return how far counts are known beyond the variables that threads compare them with.

        A loop's own counter is left out: it is relative to the loop's rounds, as is its length.
        """
        if a.done:
            return ()
        out = []
        for one in self.against(a.kind.index):
            if not one.names or a.at > one.last:
                continue
            unknown = execution.unknown_of(a, one.test.atom)
            if not one.names <= {loop.name for loop in a.loops if loop.unknown == unknown}:
                known = execution.known_of(unknown)
                margin = known.low - one.test.bound({**dict.fromkeys(one.names, 0), **a.env})
                out.append(max(margin, -1) if one.rises and known.exact else margin)
        return tuple(out)

    def limit(self, state: State, unknown: Unknown) -> int:
        """Return the largest number that somebody may still compare a count with in this use."""
        most = 0
        for a in state.agents:
            if a.done:
                continue
            for one in self.against(a.kind.index):
                more = one.test.atom == unknown.atom and not one.names and one.most > most
                if more and _may_ask(a, one, unknown):
                    most = one.most
        return most

    # --- leads ----------------------------------------------------------------------------------

    def leads(self, state: State, bases: dict[Unknown, int]) -> dict[Unknown, int]:
        """Return how far uses of counts are ahead of threads yet to begin; part who is far ahead.

        `bases` has the round of the slowest thread, by use, and changes with the state.
        """
        out: dict[Unknown, int] = {}
        depth = self._world.depth
        for unknown in {*bases, *state.ranges}:
            known = state.ranges.get(unknown)
            over = unknown not in bases
            if unknown.use >= APART:
                if over:
                    del state.ranges[unknown]
                continue
            if unknown.use < 0 or (over and not (known and known.exact)):
                continue
            if unknown.atom in self._world.pinned or not self._awaited(state, unknown):
                continue
            rounds = known.low if over and known else bases[unknown]
            if rounds < depth or self._added(state, unknown.atom):
                out[unknown] = rounds
                continue
            self.parted.add(unknown.atom)
            theirs = unknown._replace(use=unknown.use + APART)
            state.part(unknown, theirs, depth, runs=not over)
            if not over:
                bases[theirs] = bases.pop(unknown)
            out[unknown] = depth
        state.lead = max(out.values(), default=0)
        return out

    def _awaited(self, state: State, unknown: Unknown) -> bool:
        """Whether some threads may still begin a loop of this length."""
        return any(
            not a.done
            and all(loop.unknown != unknown for loop in a.loops)
            and self._may_enter(a, unknown)
            for a in state.agents
        )

    def _may_enter(self, a: Agent, unknown: Unknown) -> bool:
        many, rounds = len(unknown.outer), a.rounds
        met = rounds[:many] == unknown.outer
        if rounds[:many] > unknown.outer:
            return False
        if met and a.passed.count((many, unknown.atom)) > unknown.use:
            return False
        return any(
            a.at <= (inner if met and many else last)
            for last, inner in self._entered(a.kind.index, unknown.atom)
        )

    def _entered(self, index: int, atom: int) -> tuple[tuple[int, int], ...]:
        """Return from where loops of a length may still be begun: at all, and in the same round."""
        key = index, atom
        if key not in self._entrances:
            program = self._world.code.programs[index]
            self._entrances[key] = tuple(
                within(program, at, atom)
                for at, i in enumerate(program)
                if isinstance(i, Enter) and i.atom == atom
            )
        return self._entrances[key]

    def _added(self, state: State, atom: int) -> bool:
        """Whether somebody may still add the count to a variable, and so must know it."""
        return any(
            not a.done
            and any(
                isinstance(i, Set) and any(atom == number for number, _ in i.terms)
                for i in self._world.code.programs[a.kind.index]
            )
            for a in state.agents
        )


def _may_ask(a: Agent, one: Against, unknown: Unknown) -> bool:
    if a.at > one.last:
        return False
    rounds, many = a.rounds, len(unknown.outer)
    if not many or not rounds:
        return True
    if rounds[:many] == unknown.outer:
        return a.at <= one.inner
    return rounds[:many] < unknown.outer


def _mentions(expr: Expr, atom: Expr) -> bool:
    return bool(variables(expr) & variables(atom)) or isinstance(atom, Var)


# --- what programs compare counts with ------------------------------------------------------------


def comparisons(code: Code, index: int) -> Iterator[Against]:
    """Yield the comparisons of a program with something else than the counter of the loop."""
    program = code.programs[index]
    counters = frozenset(i.name for i in program if isinstance(i, Enter))
    numbered = numbers(code)
    for at, (i, last) in enumerate(reaches(program)):
        if not isinstance(i, Branch | Enter):
            continue
        branch = isinstance(i, Branch)
        used = variables(i.expr) if isinstance(i, Branch) else variables(i.stop)
        names = frozenset(v.name for v in used) & code.moving
        if not (names or branch):
            continue
        values = _values(names, numbered) if branch else None
        rises = isinstance(i, Branch) and _rises(i.expr, code.moving & counters)
        for test in _parts(i.test):
            _, inner = within(program, at, test.atom)
            inner = max(inner, last) if isinstance(i, Enter) else inner
            if values is None:
                yield Against(last, inner, test, names, rises=rises)
            else:
                yield Against(last, inner, test, frozenset(), max(map(test.bound, values)))


def within(program: Sequence[Instruction], at: int, atom: int) -> tuple[int, int]:
    """Return the last places from which a program may come to an instruction about a count.

    The first is the last of all; the second is the last without a new round of the loops of unknown
    length around it that tell one use of the count from the next.
    """
    around = [i for start, i in enumerate(program) if isinstance(i, Enter) and start < at < i.end]
    last = max((at, *(enter.end - 1 for enter in around)))
    own = next((n for n, enter in enumerate(around) if enter.atom == atom), len(around))
    telling = [n for n in range(own) if around[n].atom >= 0]
    # a loop of known length around them may enter them once more, and count the same rounds
    if not telling or len(telling) != telling[-1] + 1:
        return last, last
    return last, max((at, *(enter.end - 1 for enter in around[telling[-1] + 1 :])))


def _values(names: frozenset[str], numbered: Mapping[str, int]) -> list[dict[str, int]] | None:
    """Return all values of counters that count to a number; None if some do not, or too many."""
    ordered = sorted(names)
    if not all(name in numbered for name in ordered):
        return None
    if prod(numbered[name] + 1 for name in ordered) > TRIED:
        return None
    # a counter is at its end once, when the loop is left
    spans = [range(numbered[name] + 1) for name in ordered]
    return [dict(zip(ordered, one, strict=True)) for one in product(*spans)]


def _rises(expr: Expr, counters: frozenset[str]) -> bool:
    """Whether a comparison of a count with counters of loops can only get from yes to no."""
    if not isinstance(expr, Op) or expr.kind not in (Kind.LT, Kind.LE):
        return False
    _, parts = linear(expr.a - expr.b)
    mine = {e for e in parts if isinstance(e, Var) and e.name in counters}
    signs = {parts[e] > 0 for e in mine}, {n < 0 for e, n in parts.items() if e not in mine}
    return len(parts) == len(mine) + 1 and signs == ({True}, {True})


def _parts(test: Condition) -> Iterator[AtLeast]:
    match test:
        case AtLeast():
            yield test
        case Several(first, second):
            yield from _parts(first)
            yield from _parts(second)
        case _:
            pass
