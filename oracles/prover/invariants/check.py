"""z3's proof of a kernel's synchronisation, for all trip counts at once.

It judges what `reachability` judges of the order of events, by other means: nothing is followed, no
trip count is chosen.  Events of iteration k and its neighbours are integers, what they require of
each other are constraints on differences, an obligation is what z3 must not find (`claims`), and k
and the trip count n are unknowns like the others.  Nested loops, roles that take tiles alternately
and clusters are first written as kernels with one loop, one role and one CTA (`rewriting`); of CTAs
that a semaphore serializes two are judged, k and a later one (`semaphore`); registers of wgmma are
a matter of one thread's text (`trace`).

Three questions.  *Schedule*: a time for every event that respects every requirement; with the
existence claims, nothing waits forever.  *Existence*: which iterations run what.  *Order*: no
event violates its obligation, if none before it did.  It is asked in a narrow window of iterations
around k first, and what that does not settle in wider ones; a claim that may hold through one of
several fences is asked for each.  That the assumptions alone have a model, with all iterations of
the window real, is asked too.

What z3 finds is refuted only if `reachability` refutes the kernel too, with a trip count that shows
it; else the window may have been too small, or a rule too narrow, and the answer is unknown.

Notes
-----
An event is an integer: its run in one execution.  Every constraint says that an event comes
after one that it requires, if it is real, that is, not of an iteration before the first.

What an engine has done is published by its end alone: a constraint that goes through the end of
some other copy orders nothing but time (`TIMED`), for the thread that issued that copy has released
nothing by it.

The constraints hold in every execution up to its first violation of an obligation, if the rest of
the execution is thought to go on as the schedule has it (`schedule`: an order of all events that
respects every requirement; it exists, for z3 finds one), and if iterations before the first are
thought to lie far in the past.  So an execution that violates an obligation first gives a model of
the constraints and the violation; if there is no model, there is no such execution.  Fewer events
or fewer constraints have more models, never fewer: leaving iterations out costs proofs, not truth.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import NegativeError, UnsupportedError
from oracles.prover.invariants.claims import Claim, Claims
from oracles.prover.invariants.graph import FAR, Cross, EventGraph, Item, Thread
from oracles.prover.invariants.rewriting import (
    Levels,
    Team,
    Whole,
    by_number,
    levels,
    teamed,
    unrolled,
    whole,
)
from oracles.prover.invariants.semaphore import Events, TurnClaims, split
from oracles.prover.invariants.trace import (
    Axiom,
    Bound,
    Obligation,
    RefusedError,
    Without,
    all_of,
    any_of,
    check,
    disjoint,
    initialised,
    number,
    one_way,
    read,
)
from oracles.prover.reachability import fixpoint
from oracles.prover.sites import AMONG_CTAS
from oracles.prover.solver import Answer, Script
from oracles.verdict import Finding, Status, Verdict

TIMED = "timed"
"""Whether a question is about time alone: then the end of an engine's work precedes what waits for
it, whatever it publishes."""


class Window:
    """The events at some offsets from iteration k."""

    def __init__(self, graph: EventGraph, offsets: set[int]) -> None:
        self._carried: dict[tuple[int, int], str] = {}
        self.graph = graph
        self.offsets = sorted(offsets)
        self.names: dict[tuple[int, int], str] = {}
        self.starts: dict[tuple[int, Thread], str] = {}
        self._order: dict[str, dict[str, None]] = {}
        if Axiom.PROGRAM not in graph.without:
            for thread, chain in graph.chains.items():
                self._chain(thread, chain)
        for cross in sorted(graph.crosses, key=lambda c: (c.node, c.cause, c.shift)):
            for offset in self.offsets:
                self._cross(cross, offset)

    def event(self, node: int, offset: int) -> str:
        """Return the name of a node's event in iteration `k + offset`."""
        return self.names.setdefault(
            (node, offset), f"e{node}_{offset}" if offset >= 0 else f"e{node}_m{-offset}"
        )

    def start(self, node: int, thread: Thread) -> str:
        """Return the name of the moment at which a thread begins a wait, in iteration k."""
        return self.starts.setdefault((node, thread), f"s{node}")

    def carries(self, node: int, offset: int) -> str:
        """Return that the end of an engine's work counts for what it publishes.

        That of a cp.async also counts where it arrives on an mbarrier.
        """
        later = [c for c in self.graph.crosses if c.rule is Axiom.FINISH and c.cause == node]
        ends = [(node, offset), *((c.node, offset - c.shift) for c in later)]
        return all_of(sorted(self._carried[end] for end in ends if end in self._carried))

    def _before(
        self, first: str, second: str, offset: int, guard: tuple[Bound, ...], when: str = "true"
    ) -> None:
        """Say that `first` precedes `second`, which is of iteration `k + offset`."""
        real = all_of([Bound(1, 0, offset).text(), *(g.text() for g in guard), when])
        self._order.setdefault(real, {})[f"(< {first} {second})"] = None

    def _chain(self, thread: Thread, chain: list[Item]) -> None:
        last: str | None = None
        skipped: list[tuple[str, tuple[Bound, ...]]] = []
        for offset in self.offsets:
            for item in chain:
                guard = tuple(g.at(offset) for g in item.guard)
                names = [(self.event(item.node, offset), guard)]
                if item.waits and offset == 0:
                    names.append((self.start(item.node, thread), guard))
                for name, held in names:
                    if last is not None:
                        self._before(last, name, offset, held)
                    for other, too in skipped:
                        self._before(other, name, offset, (*held, *too))
                if item.guard:
                    skipped.append(names[0])
                else:
                    last, skipped = names[0][0], []

    def _cross(self, cross: Cross, offset: int) -> None:
        held = tuple(g.at(offset) for g in cross.guard)
        at = cross.cause, offset + cross.shift
        cause, when = self.event(*at), "true"
        if cross.narrow:
            when = f"(or {TIMED} {self._carried.setdefault(at, f'c{cause}')})"
        self._before(cause, self.event(cross.node, offset), offset, held, when)

    def text(self) -> str:
        """Return declarations and constraints."""
        names = ["k", "n", *self.names.values(), *self.starts.values()]
        lines = [f"(declare-const {name} Int)" for name in names]
        lines += [f"(declare-const {name} Bool)" for name in (TIMED, *self._carried.values())]
        for real, order in self._order.items():
            claim = all_of(list(order))
            lines.append(f"(assert {claim if real == 'true' else f'(=> {real} {claim})'})")
        return "\n".join(lines)

    def inside(self, times: Mapping[int, int]) -> str:
        """Return that the execution is that of the schedule, all of the window being real."""
        far = max(abs(offset) for _, offset in self.names) + 2
        fixed = [TIMED, f"(= k {far})", f"(= n {4 * far})"]
        for (node, offset), name in self.names.items():
            fixed.append(f"(= {name} {number(2 * (times[node] + FAR * offset))})")
        for (node, _), name in self.starts.items():
            fixed.append(f"(= {name} {number(2 * times[node] - 1)})")
        return all_of(fixed)


def schedule(graph: EventGraph, without: Container[Axiom] = ()) -> str:
    """Ask for a time of every node that follows those of all that it requires.

    Requirements by the axioms of `without` are left out.

    Node x of iteration i has the time `t_x + FAR * i`.  A solution proves that no event waits for
    itself; without one, some do: a deadlock.
    """
    order: set[str] = set()
    for chain in graph.chains.values():
        if chain and Axiom.PROGRAM not in graph.without:
            steps = [(a.node, b.node, 0) for a, b in pairwise(chain)]
            steps.append((chain[-1].node, chain[0].node, -1))
            order |= {_sooner(*step) for step in steps}
    order |= {_sooner(c.cause, c.node, c.shift) for c in graph.crosses if c.rule not in without}
    lines = [f"(declare-const t{node} Int)" for node in range(graph.size)]
    return "\n".join([*lines, *(f"(assert {claim})" for claim in sorted(order))])


def _sooner(cause: int, node: int, shift: int) -> str:
    least = 1 + FAR * shift
    if cause == node:
        return "true" if least <= 0 else "false"
    return f"(>= (- t{node} t{cause}) {number(least)})"


RLIMIT = 3_000_000
"""Work limit of one question, in z3's units; the hardest one seen takes about a tenth of it."""
LARGEST = 200
"""Largest trip count that is looked for to show a refutation."""
Times = dict[int, int]
"""The time of each node in a schedule."""
HEAD = "(declare-const k Int)(declare-const n Int)(assert (>= n 0))"


class Width(Enum):
    """Which iterations a window shows, from few to many."""

    REQUIRED = "those of the claims, and what requires them"
    WHOLE = "all around them"


class UndecidedError(Exception):
    """The solver gave up, or what it says proves nothing."""


class Questions:
    """The questions about one event graph; `rlimit` is the work limit of each, in z3's units."""

    def __init__(self, graph: EventGraph, rlimit: int) -> None:
        self.graph = graph
        self.rlimit = rlimit
        self.asks_assumptions = True
        self.times = self._scheduled()

    def _scheduled(self) -> Times:
        """Return the times of a schedule; RefusedError if there is none, which is a deadlock."""
        graph = self.graph
        names = [f"t{node}" for node in range(graph.size)]
        answer = Script(schedule(graph), self.rlimit).ask(values=names)
        if _decided(answer, "schedule") == "unsat":
            if Obligation.SCHEDULE not in graph.without:
                waits = [at.step.stmt for phase in graph.phases.values() for at in phase.waits]
                stmt = waits[0] if waits else None
                raise RefusedError("deadlock", stmt, "events wait for each other")
            self.asks_assumptions = False
            freed = schedule(graph, {Axiom.WAIT, Axiom.BARRIER, Axiom.SIGNAL})
            answer = Script(freed, self.rlimit).ask(values=names)
        return {node: answer.values[name] for node, name in enumerate(names)}

    def existing(self, claims: list[Claim]) -> tuple[Claim, int] | None:
        """Return a claim about what runs that does not hold, with a trip count."""
        wrong = any_of([claim.when for claim in claims])
        if wrong == "false":
            return None
        script = Script(f"{HEAD}(assert {wrong})", self.rlimit)
        if _decided(script.ask(), "existence") == "unsat":
            return None
        for claim in claims:
            script = Script(f"{HEAD}(assert {claim.when})", self.rlimit)
            if _decided(script.ask(), "existence") == "sat":
                return claim, script.least("", "n", LARGEST)
        raise UndecidedError("the solver contradicts itself")

    def ordered(self, claims: list[Claim]) -> tuple[Claim, int] | None:
        """Return a claim about the order that is not proved, with a trip count."""
        left = claims
        for width in Width:
            left = self.violated(left, width)
            if not left:
                return None
        for width in Width:
            left = self._otherwise(left, width)
            if not left:
                return None
        claim = left[-1]
        script = Script(self._order([claim], Width.WHOLE), self.rlimit)
        return claim, script.least("c0", "n", LARGEST)

    def _otherwise(self, claims: list[Claim], width: Width) -> list[Claim]:
        """Return the claims that hold neither through another of their fences nor instead."""
        others: dict[Claim, Claim] = {}
        for claim in claims:
            for between in claim.between[1:]:
                others[replace(claim, between=(between,))] = claim
            for first, via in claim.instead:
                others[replace(claim, first=first, between=((via, "true"),), instead=())] = claim
        wrong = set(self.violated(list(others), width))
        held = {claim for other, claim in others.items() if other not in wrong}
        return [claim for claim in claims if claim not in held]

    def violated(self, claims: list[Claim], width: Width) -> list[Claim]:
        """Return the claims that z3 can violate."""
        if not claims:
            return []
        script = Script(self._order(claims, width), self.rlimit)
        if self.asks_assumptions and _decided(script.ask("deep"), "assumptions") == "unsat":
            raise UndecidedError("vacuous: the assumptions contradict each other")
        if _decided(script.ask("wrong"), "order") == "unsat":
            return []
        return [c for i, c in enumerate(claims) if _decided(script.ask(f"c{i}"), c.kind) == "sat"]

    def _order(self, claims: list[Claim], width: Width) -> str:
        """Return the question of some claims: `wrong` is that any does not hold."""
        window = Window(self.graph, _offsets(self.graph, claims, width))
        violations = [_violation(window, claim) for claim in claims]
        text = [window.text(), "(assert (>= n 0))"]
        for i, violation in enumerate(violations):
            text.append(f"(declare-const c{i} Bool)(assert (=> c{i} {violation}))")
        names = " ".join(f"c{i}" for i in range(len(claims)))
        some = f"(or {names})" if len(claims) > 1 else names
        text.append(f"(declare-const wrong Bool)(assert (=> wrong {some}))")
        text.append(f"(declare-const deep Bool)(assert (=> deep {window.inside(self.times)}))")
        return "\n".join(text)


def asked(text: str, wrongs: list[str], rlimit: int) -> int | None:
    """Return which of some conditions can hold besides a text, the first; None if none can.

    UndecidedError if the solver gives up, or the text contradicts itself.
    """
    lines = [f"(declare-const c{i} Bool)(assert (=> c{i} {w}))" for i, w in enumerate(wrongs)]
    some = any_of([f"c{i}" for i in range(len(wrongs))])
    wrong = f"(declare-const wrong Bool)(assert (=> wrong {some}))"
    script = Script("\n".join([text, *lines, wrong]), rlimit)
    if _decided(script.ask(), "assumptions") == "unsat":
        raise UndecidedError("vacuous: the assumptions contradict each other")
    together = script.ask("wrong").status
    if together == "unsat":
        return None
    for i in range(len(wrongs)):
        if _decided(script.ask(f"c{i}"), "order") == "sat":
            return i
    if together == "unknown":  # too many at once, but none of them can hold
        return None
    raise UndecidedError("the solver contradicts itself")


def _violation(window: Window, claim: Claim) -> str:
    """Say in SMT-LIB that a claim does not hold."""
    first = window.event(*claim.first)
    then = window.event(claim.then, 0)
    if claim.start is not None:
        then = window.start(claim.then, claim.start)
    narrow = TIMED if claim.timed else window.carries(*claim.first)
    if not claim.between:
        late = any_of([f"(>= {window.event(*cause)} {then})" for cause in claim.causes])
        missing = [f"(>= {first} {then})", *((late,) if claim.causes else ())]
        return all_of([claim.when, narrow, *missing])
    (node, offset), runs = claim.between[0]
    if node < 0:
        return claim.when
    middle = window.event(node, offset)
    apart = [f"(not {runs})", f"(>= {first} {middle})", f"(>= {middle} {then})"]
    return all_of([claim.when, narrow, any_of(apart)])


def _offsets(graph: EventGraph, claims: list[Claim], width: Width) -> set[int]:
    """Return the iterations that matter: those of the claims, and each one before."""
    waits = {phase.node: {at.run.phase for at in phase.waits} for phase in graph.phases.values()}
    found = {0, -1}
    for claim in claims:
        node, offset = claim.first
        found |= {offset - ahead for ahead in waits.get(node, {0})}
        found |= {at[1] for at, _ in claim.between[:1]} | {at[1] for at in claim.causes}
    shifts = {cross.shift for cross in graph.crosses}
    match width:
        case Width.REQUIRED:
            near = {o - by for o in found for by in shifts}
            found |= {o for o in near if min(found) <= o <= 1}
        case Width.WHOLE:
            reach = max(map(abs, shifts), default=0)
            return set(range(min(found) - reach - 2, max(found) + reach + 2))
    return found | {o - 1 for o in found}


def _decided(answer: Answer, question: str) -> str:
    if answer.status not in ("sat", "unsat"):
        raise UndecidedError(f"the solver gave up ({question})")
    return answer.status


ORACLE = "invariants"


def confirm(
    kernel: kir.Kernel,
    *,
    policy: str = "default",
    rlimit: int = RLIMIT,
    without: Without = frozenset(),
) -> Verdict:
    """Prove the synchronisation of a kernel for every trip count.

    Parameters are those of `prove`; rules may be left out, to see what each is good for.

    Returns
    -------
    Verdict
        PASS if z3 finds no way to violate a claim, for any trip count; FAIL if it finds one and
        `reachability` finds the kernel wrong too; UNKNOWN if that does not or the solver gave up;
        UNSUPPORTED, naming the construct, if the kernel is not of the kind described here.
    """
    try:
        one = whole(kernel)
        found = _Proof(policy, rlimit, without).kernel(by_number(one))
    except UnsupportedError as error:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=str(error))
    except NegativeError as error:
        reason = f"divides a negative number ({error})"
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=reason)
    except UndecidedError as error:
        return Verdict(ORACLE, Status.UNKNOWN, 0, reason=str(error))
    except RefusedError as error:
        stmt = error.stmt
        where = kernel.name if stmt is None else f"line {one.lines[stmt]}: {line(stmt)}"
        return _refuted(kernel, error, where, policy)
    if found == 0:
        return Verdict(ORACLE, Status.PASS, 1, reason="the threads share no memory")
    return Verdict(ORACLE, Status.PASS, found)


@dataclass(frozen=True, slots=True)
class _Proof:
    """How a kernel is judged; `without` are the rules that are left out."""

    policy: str
    rlimit: int
    without: Without

    def kernel(self, one: Whole) -> int:
        """Judge a kernel; one whose CTAs a semaphore serializes in two parts."""
        if not any(isinstance(stmt, AMONG_CTAS) for stmt in one.kernel.walk()):
            return self.cta(one)
        parts = split(one.kernel, self.without)
        checked = check(one.kernel, self.without)
        events = Events(read(parts.turn, one.lines), self.without)
        claims = TurnClaims(parts, events, self.policy).claims
        wrong = asked(events.text(), [claim.wrong for claim in claims], self.rlimit)
        if wrong is not None:
            claim = claims[wrong]
            raise RefusedError(claim.kind, claim.step.stmt, claim.says)
        rest = Whole(parts.rest, one.lines)
        return self._beside_registers().cta(rest) + checked + len(claims)

    def _beside_registers(self) -> _Proof:
        """Leave out what has been judged of the registers of the whole kernel."""
        return replace(self, without=self.without | {Obligation.REGISTERS, Obligation.FENCE})

    def cta(self, one: Whole) -> int:
        """Judge a kernel whose CTAs have nothing to do with each other."""
        team = teamed(one)
        if team is not None:
            return self._team(one, team)
        two = levels(one.kernel)
        if two is not None:
            return self._levels(one, two)
        return sum(map(self.loop, unrolled(one)))

    def _team(self, one: Whole, team: Team) -> int:
        """Judge the order of roles that take tiles alternately, and what they are as one role."""
        disjoint(one.kernel)
        checked = check(one.kernel, self.without)
        own = self._beside_registers()
        for part in team.handovers:
            try:
                checked += own.loop(part)
            except RefusedError as error:
                # one role in place of several needs all threads in order; they may do with less
                error.narrow |= error.kind in ("RAW", "WAR", "WAW")
                raise
        return checked + own.cta(team.one)

    def _levels(self, one: Whole, two: Levels) -> int:
        """Judge the steps and the tiles of a kernel, and that both together go on."""
        disjoint(one.kernel)
        one_way(one.kernel)
        checked = check(one.kernel, self.without)
        graph = EventGraph(read(two.whole, one.lines), self.without)
        # The stretching of a schedule relies on it that no tile waits for a later one.
        for name, phase in graph.phases.items():
            for wait in phase.waits if name in two.slow else ():
                causes = (*phase.arrivals, *phase.copies)
                if any(wait.run.phase > cause.run.phase for cause in causes):
                    raise UnsupportedError(f"{wait.step.where}: a tile waits for a later one")
        Questions(graph, self.rlimit)
        parts = (Whole(level, one.lines) for level in (two.steps, two.tiles))
        return checked + sum(map(self._beside_registers().loop, parts))

    def loop(self, one: Whole) -> int:
        """Judge a kernel with one loop; return how many claims were proved."""
        trace = read(one.kernel, one.lines)
        checked = initialised(trace) if Obligation.INIT not in self.without else 0
        graph = EventGraph(trace, self.without)
        if not {Obligation.REGISTERS, Obligation.FENCE} <= self.without:
            checked += check(one.kernel, self.without)
        questions = Questions(graph, self.rlimit)
        claims = Claims(graph, questions.times, self.policy)
        wrong = questions.existing(claims.existing) or questions.ordered(claims.ordered)
        gap = None if wrong else questions.existing(claims.returning)
        if (found := wrong or gap) is not None:
            claim, n = found
            raise RefusedError(claim.kind, claim.step.stmt, claim.says, n, narrow=wrong is None)
        proved = len(claims.existing) + len(claims.ordered) + len(claims.returning)
        if proved:
            return checked + proved + len(graph.crosses)
        if graph.accesses or graph.phases or graph.groups:
            raise UndecidedError("vacuous: nothing is claimed")
        return checked


def _refuted(kernel: kir.Kernel, error: RefusedError, where: str, policy: str) -> Verdict:
    """Answer for a claim that does not hold: FAIL if the other engine refutes the kernel too."""
    try:
        violations = fixpoint.judge(kernel, policy=policy).violations
    except UnsupportedError:
        violations = ()
    if violations:
        trips = min(v.trips for v in violations)
        finding = Finding(error.kind, where, f"trips={trips}: {error.says}", trips=trips)
        return Verdict(ORACLE, Status.FAIL, 1, (finding,))
    if error.narrow:
        return Verdict(ORACLE, Status.UNSUPPORTED, 0, reason=f"{where}: {error.says}")
    says = f"trips={error.trips}: {error.says}"
    warning = Finding(error.kind, where, says, "warning", trips=error.trips)
    reason = f"refuted, not replayed: {error.kind} at {where}: {error.says}"
    return Verdict(ORACLE, Status.UNKNOWN, 0, (warning,), reason)
