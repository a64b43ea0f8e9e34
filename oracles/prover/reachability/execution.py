"""How threads go from statement to statement, and what they must decide on the way.

No thread knows the trip counts.  Where one matters and is open, the state forks: `ForkError` asks
for a state in which it is decided.  A count that several loops use, or one loop several times, is
decided for all uses at once while it is small (`World.few`), and for each use beyond.  Every loop
of unknown length has a gate in front of each iteration, so that the threads that run it go through
its rounds together as far as they can.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.barriers import CLUSTER, CLUSTER_DONE
from oracles.prover.reachability.grid.semaphores import all_left
from oracles.prover.reachability.program.code import (
    Asked,
    AtLeast,
    Branch,
    Condition,
    Do,
    Enter,
    Jump,
    Known,
    Next,
    Set,
    Several,
)
from oracles.prover.reachability.registers import contended
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import Agent, Phase, Range, State, Unknown, Where, knows
from oracles.prover.reachability.statements import execute
from oracles.prover.reachability.step import Scene, Step
from oracles.prover.sites import Site

EVERY = -1
"""The use of an unknown that stands for all its uses."""
SHORT = 64
"""Rounds of a loop of decided length that are gone through without comparing states."""

Watched = tuple[object, int]
"""What threads stand still for, and a number that is another one when they need not any more."""


class ForkError(Exception):
    """A number that no thread knows must be compared with `value` before anyone goes on."""

    def __init__(self, unknown: Unknown, value: int) -> None:
        super().__init__(f"{unknown.atom} >= {value}?")
        self.unknown = unknown
        self.value = value


class ChoiceError(Exception):
    """A condition on parameters must be decided before anyone goes on."""

    def __init__(self, test: Expr) -> None:
        super().__init__(f"{test}?")
        self.test = test


class Log(Protocol):
    """Who notes every statement that is executed."""

    def add(self, state: State, a: Agent, do: Do, k: int) -> None:
        """Take note of a statement, which has been executed."""


class Execution(Scene):
    """A state on its way, until its threads are done or wait for ever."""

    log: Log | None = None

    # --- going on -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let all threads go on until each waits, for another or at a gate.

        Who stands still is not asked again until what it waits for has changed; in the end all are.
        """
        asleep: dict[int, Watched] = {}
        while True:
            moved = skipped = False
            for a in self.state.agents:
                if a.done or a.waiting or a.gate:
                    continue
                index = a.kind.index
                if index in asleep and self._sleeps(asleep[index], a):
                    skipped = True
                elif self._advance(a):
                    moved = True
                    asleep.pop(index, None)
                elif (watched := self._watched(a)) is not None:
                    asleep[index] = watched
            if not moved and not skipped:
                return
            if not moved:
                asleep.clear()

    def _sleeps(self, was: Watched, a: Agent) -> bool:
        """Whether what threads stand still for is as it was."""
        now = self._watched(a)
        return now is not None and now[0] is was[0] and now[1] == was[1]

    def _watched(self, a: Agent) -> Watched | None:
        """Return what threads stand still for: a count to be decided, a phase, the cluster."""
        i = self.world.code.programs[a.kind.index][a.at]
        match i:
            case Set():
                return i, 0
            case Do(site) if isinstance(site.stmt, kir.MBarrierWaitParity):
                where = a.kind.cta, site.stmt.barrier.name, i.values["bar"](a.env)
                phase = self.state.phases.get(where)
                return phase, phase.count if phase is not None else 0
            case Do(site) if isinstance(site.stmt, kir.ClusterWait):
                return self.state.barriers.get(CLUSTER_DONE), 0
            case _:
                return None

    def _advance(self, a: Agent) -> bool:
        """Let threads of one kind go on as far as they can; return whether they did."""
        program = self.world.code.programs[a.kind.index]
        last = self.world.last_statements[a.kind.index]
        moved = False
        while True:
            if a.at > last:
                a.ends()
                return True
            if a.waiting:
                return moved
            i = program[a.at]
            match i:
                case Do():
                    return self._execute(a, i) or moved
                case Set(name):
                    value = self._exact(a, i)
                    if value is None:
                        return moved
                    a.sets(name, value)
                case Enter():
                    if not self._enter(a, i):
                        return moved
                case Next(enter):
                    a.next_round(enter)
                case Branch():
                    a.at = a.at + 1 if self._decide(a, i.test) else i.orelse
                case Jump(to):
                    a.at = to
            moved = True

    def _execute(self, a: Agent, do: Do) -> bool:
        """Execute a statement; return whether that has changed anything."""
        before, step = a.at, Step(self, a, do)
        moved = execute(step) or bool(a.waiting) or a.at != before
        if moved and self.log is not None:
            self.log.add(self.state, a, do, step.k)
        return moved

    def _enter(self, a: Agent, i: Enter) -> bool:
        """Begin a loop, or its next iteration, or leave it; False in front of a closed gate."""
        if not a.loops or a.loops[-1].number != i.number:
            a.enters(i.number, i.atom, i.name)
        if a.waits_at_gate():
            return False
        if self._decide(a, i.test):
            a.begins_round()
        else:
            a.leaves(i.end)
        return True

    # --- deciding -------------------------------------------------------------------------------

    def unknown_of(self, a: Agent, atom: int) -> Unknown:
        """Return which use of an unknown these threads mean."""
        for loop in a.loops:
            if loop.unknown is not None and loop.unknown.atom == atom:
                return loop.unknown
        if atom not in self.world.code.counts:
            return Unknown(atom, (), 0)
        outer = a.rounds
        return Unknown(atom, outer, max(0, a.passed.count((len(outer), atom)) - 1))

    def known_of(self, unknown: Unknown) -> Range:
        """Return what is known of a count in one of its uses."""
        world, ranges = self.world, self.state.ranges
        pinned = world.pinned.get(unknown.atom)
        if pinned is not None:
            return Range(pinned, exact=True)
        known = ranges.get(unknown)
        if known is None and unknown.use != EVERY and unknown.atom in world.few:
            known = ranges.get(Unknown(unknown.atom, (), EVERY))
        return known or Range(world.least.get(unknown.atom, 0))

    def _exact(self, a: Agent, i: Set) -> int | None:
        """Return the next value of a variable, None while somebody else has to decide it."""
        value = i.value(a.env)
        for atom, times in i.terms:
            known = self.known_of(self.unknown_of(a, atom))
            if not known.exact:
                return None
            value += times * known.low
        return value

    def _decide(self, a: Agent, test: Condition) -> bool:
        """Decide a condition.

        Raises
        ------
        ForkError
            If a trip count has to be decided first.
        ChoiceError
            If the condition itself has to be.
        """
        match test:
            case Known(value):
                return value(a.env) != 0
            case AtLeast(atom, bound, less):
                return self._at_least(self.unknown_of(a, atom), bound(a.env)) != less
            case Several(first, second, every):
                if self._decide(a, first) != every:
                    return not every
                return self._decide(a, second)
            case Asked(expr):
                return self._chosen(a, expr)

    def _chosen(self, a: Agent, test: Expr) -> bool:
        """Decide a condition on parameters once for all threads."""
        plain = substitute(test, {Var(name): value for name, value in a.env.items()})
        if isinstance(plain, int):
            return plain != 0
        moving = {loop.name for loop in a.loops if loop.unknown is not None}
        if plain != test and moving:
            fixed = substitute(test, {Var(n): v for n, v in a.env.items() if n not in moving})
            if fixed != plain:
                raise UnsupportedError(f"the condition `{test}` need not repeat along the loop")
        if plain not in self.state.chosen:
            raise ChoiceError(plain)
        return self.state.chosen[plain]

    def _at_least(self, unknown: Unknown, value: int) -> bool:
        known = self.known_of(unknown)
        if known.low >= value:
            return True
        if known.exact:
            return False
        few = self.world.few.get(unknown.atom, 0)
        if known.low < few:
            raise ForkError(Unknown(unknown.atom, (), EVERY), min(value, few))
        raise ForkError(unknown, value)

    def ways_on(self, error: ForkError | ChoiceError) -> list[State]:
        """Return the states in which a test has either answer, or a count is decided.

        The one to follow first, yes or the smallest count, is last.
        """
        if isinstance(error, ChoiceError):
            answers = [(self.state.copy(), answer) for answer in (False, True)]
            for other, answer in answers:
                other.chosen[error.test] = answer
            return [other for other, _ in answers]
        least = self.known_of(error.unknown).low
        exact = (Range(value, exact=True) for value in range(error.value - 1, least - 1, -1))
        ranges = [(self.state.copy(), known) for known in (Range(error.value), *exact)]
        for other, known in ranges:
            other.ranges[error.unknown] = known
        return [other for other, _ in ranges]

    def counting(self) -> bool:
        """Whether the threads that go on next are in a loop with a decided number of rounds to go.

        Such a state need not be compared with others: none before it on its way is the same, and
        after few rounds the loop is over, or may be.
        """
        for a in self.state.at_gate():
            unknown, k = a.loops[-1].unknown, a.k
            assert unknown is not None, "gates are of loops of unknown length"
            known, most = self.known_of(unknown), self.world.few.get(unknown.atom, 0)
            if not (known.low <= SHORT if known.exact else 0 < k < min(known.low, most)):
                return False
        return True

    # --- the end --------------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether no thread can go on: all are done, and that is judged, or they wait for ever.

        Raises
        ------
        ContestError
            If it has to be decided who gets registers first.
        """
        if self.state.over:
            self._ended()
        elif not any(a.gate for a in self.state.agents):
            self._stuck()
        else:
            return False
        return True

    def _wrong(self, rule: Rule, site: Site, says: str, k: int = -1) -> None:
        self.findings.record(self.violation(rule, site, says, k))

    def _ended(self) -> None:
        """Check that nothing is in flight when the threads of a CTA are gone."""
        state, sites = self.state, self.world.code.sites
        for event, (cta, site) in state.flying.items():
            self.findings.ask()
            if not knows(state.known_in(cta), event):
                k = state.when.get(event, (-1, 0))[0]
                says = f"{self.said(sites[site], k)} is still in flight when the CTA exits"
                found = self.violation(Rule.EXIT, sites[site], says, k)
                self.findings.record(replace(found, event=event))
        self._reached()
        for a in state.agents:
            if a.arrived:
                at = next(s for s in sites if isinstance(s.stmt, kir.ClusterArrive))
                says = f"{a.kind} has arrived at the cluster's barrier and never waits"
                self._wrong(Rule.SYNC_COUNT, at, says)
        for where, phase in state.phases.items():
            self.findings.ask()
            self._short(where, phase)
        all_left(self)

    def _short(self, where: Where, phase: Phase) -> bool:
        """Check that a phase got the bytes that it expects; return whether it did not."""
        if not (phase.alive and phase.nbytes and phase.site >= 0):
            return False
        total = "short of" if phase.nbytes > 0 else "beyond"
        says = (
            f"phase {phase.count} of {where[1]}[{where[2]}] is {abs(phase.nbytes)} bytes "
            f"{total} what it expects, and never completes"
        )
        self._wrong(Rule.BYTES, self.world.code.sites[phase.site], says)
        return True

    def _reached(self) -> None:
        """Check that no barrier of threads is left half reached."""
        for (cta, number), now in self.state.barriers.items():
            if number < 0 or cta < -1 or not now.threads:
                continue
            self.findings.ask()
            if now.count:
                name = f"barrier {number}" if (cta, number) != CLUSTER else "the cluster's barrier"
                says = f"{now.count} of {now.threads} threads have arrived at {name} at the end"
                arrives = (s for s in self.world.code.sites if _is_of(s.stmt, cta, number))
                self._wrong(Rule.SYNC_COUNT, next(arrives), says)

    def _stuck(self) -> None:
        """Explain why nobody can go on."""
        contended(self)
        ready = [(where, phase) for where, phase in self.state.phases.items() if not phase.pending]
        if any(self._short(where, phase) for where, phase in ready):
            return
        a = next(a for a in self.state.agents if not a.done)
        i = self.world.code.programs[a.kind.index][a.at]
        says, rule = f"{a.kind} waits for ever", Rule.LIVENESS
        if not isinstance(i, Do):
            self._wrong(rule, self.world.code.sites[0], says, a.k)
            return
        match i.site.stmt:
            case kir.MBarrierWaitParity(barrier):
                phase = self.state.phases.get((a.kind.cta, barrier.name, i.values["bar"](a.env)))
                if phase is not None:
                    left, of = phase.pending, phase.arrivals
                    says += f": {left} of {of} arrivals of phase {phase.count} are missing"
                    rule = Rule.ARRIVALS if 0 < left < of else rule
            case kir.SetMaxNReg():
                says += ": the registers it asks for are not given back"
                rule = Rule.BUDGET
            case kir.LastArriving(semaphore):
                says = f"not all CTAs come to {semaphore.name}: none is the last"
                rule = Rule.TURN_VALUES
            case kir.BlockSync(barrier):
                now = self.state.barriers[a.kind.cta, barrier]
                says += f": {now.count} of {now.threads} threads arrive at the barrier"
            case _:
                pass
        self._wrong(rule if self.holds(rule) else Rule.LIVENESS, i.site, says, a.k)


def _is_of(stmt: kir.Stmt, cta: int, number: int) -> bool:
    """Whether a statement arrives at a barrier of threads."""
    match stmt:
        case kir.BlockSync(barrier) | kir.NamedArrive(barrier):
            return cta >= 0 and barrier == number
        case kir.ClusterArrive():
            return cta < 0
        case _:
            return False
