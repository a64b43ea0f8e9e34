"""What z3 is asked about a kernel: the schedule, who runs what, and the order of events.

The order is asked in a narrow window of iterations first, and what that does not settle in wider
ones.  A claim that may hold through one of several fences is asked for each in turn.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from oracles.prover.invariants.claims import Claim
from oracles.prover.invariants.events.graph import Skeleton
from oracles.prover.invariants.events.nodes import RefusedError
from oracles.prover.invariants.events.parametric import both, either, shift
from oracles.prover.invariants.rules import Axiom, Obligation
from oracles.prover.invariants.solver import Answer, Script
from oracles.prover.invariants.window import TIMED, Window, schedule

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
    """The questions about one skeleton, and the texts of those that were answered well.

    Parameters
    ----------
    skeleton : Skeleton
        The events, and what they require.
    rlimit : int
        Work limit of each question to z3, in its own units.

    Raises
    ------
    RefusedError
        If there is no schedule, which is a deadlock.
    UndecidedError
        If the solver gives up.
    """

    def __init__(self, skeleton: Skeleton, rlimit: int) -> None:
        self.skeleton = skeleton
        self.rlimit = rlimit
        self.proved: list[str] = []
        self.asks_premises = True
        self.times = self._scheduled()

    def _scheduled(self) -> Times:
        """Return the times of a schedule."""
        skeleton = self.skeleton
        names = [f"t{node}" for node in range(skeleton.size)]
        answer = Script(schedule(skeleton), self.rlimit).ask(values=names)
        stuck = _decided(answer, "schedule") == "unsat"
        if stuck and Obligation.SCHEDULE in skeleton.without:
            self.asks_premises = False
            freed = schedule(skeleton, {Axiom.WAIT, Axiom.TURN, Axiom.SIGNAL})
            answer = Script(freed, self.rlimit).ask(values=names)
        elif stuck:
            waits = [w for phase in skeleton.phases.values() for w, *_ in phase.waits]
            says = "events wait for each other"
            raise RefusedError("deadlock", waits[0] if waits else None, says)
        return {node: answer.values[name] for node, name in enumerate(names)}

    def existing(self, claims: list[Claim]) -> tuple[Claim, int] | None:
        """Return a claim about what runs that does not hold, with a trip count."""
        wrong = either([claim.when for claim in claims])
        if wrong == "false":
            return None
        text = f"{HEAD}(assert {wrong})"
        if _decided(Script(text, self.rlimit).ask(), "existence") == "unsat":
            self.proved.append(f"existence, {len(claims)} claims\n{text}\n(check-sat)")
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
        script = Script(self._order(self._window([claim], Width.WHOLE), [claim]), self.rlimit)
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
        window = self._window(claims, width)
        text = self._order(window, claims)
        script = Script(text, self.rlimit)
        if self.asks_premises and _decided(script.ask("deep"), "premises") == "unsat":
            raise UndecidedError("vacuous: the premises contradict each other")
        if _decided(script.ask("wrong"), "order") == "unsat":
            self._keep(window, claims, text)
            return []
        answers = [_decided(script.ask(f"c{i}"), c.kind) == "sat" for i, c in enumerate(claims)]
        held = [claim for claim, sat in zip(claims, answers, strict=True) if not sat]
        if held:
            self._keep(window, held, self._order(window, held))
        return [claim for claim, sat in zip(claims, answers, strict=True) if sat]

    def _window(self, claims: list[Claim], width: Width) -> Window:
        return Window(self.skeleton, _offsets(self.skeleton, claims, width))

    def _order(self, window: Window, claims: list[Claim]) -> str:
        """Return the question of some claims: `wrong` is that any does not hold."""
        violations = [_violation(window, claim) for claim in claims]
        text = [window.text(), "(assert (>= n 0))"]
        for i, violation in enumerate(violations):
            text.append(f"(declare-const c{i} Bool)(assert (=> c{i} {violation}))")
        names = " ".join(f"c{i}" for i in range(len(claims)))
        some = f"(or {names})" if len(claims) > 1 else names
        text.append(f"(declare-const wrong Bool)(assert (=> wrong {some}))")
        text.append(f"(declare-const deep Bool)(assert (=> deep {window.inside(self.times)}))")
        return "\n".join(text)

    def _keep(self, window: Window, claims: list[Claim], text: str) -> None:
        offsets = f"iterations k{window.offsets[0]:+} to k{window.offsets[-1]:+}"
        head = f"order, {len(claims)} claims, {offsets}"
        self.proved.append(f"{head}\n{text}\n(assert wrong)\n(check-sat)")


def asked(text: str, wrongs: list[str], rlimit: int) -> int | None:
    """Return which of some conditions can hold besides a text, the first; None if none can.

    Raises
    ------
    UndecidedError
        If the solver gives up, or the text contradicts itself.
    """
    lines = [f"(declare-const c{i} Bool)(assert (=> c{i} {w}))" for i, w in enumerate(wrongs)]
    some = either([f"c{i}" for i in range(len(wrongs))])
    wrong = f"(declare-const wrong Bool)(assert (=> wrong {some}))"
    script = Script("\n".join([text, *lines, wrong]), rlimit)
    if _decided(script.ask(), "premises") == "unsat":
        raise UndecidedError("vacuous: the premises contradict each other")
    together = script.ask("wrong").status
    if together == "unsat":
        return None
    for i in range(len(wrongs)):
        if _decided(script.ask(f"c{i}"), "order") == "sat":
            return i
    if together == "unknown":  # too many at once, but none of them can hold
        return None
    raise UndecidedError("the solver contradicts itself")


def evidence(name: str, text: str, wrongs: list[str]) -> str:
    """Return the question of `asked`, to be asked again.

    Raises
    ------
    UndecidedError
        If some condition can hold, so that there is nothing to show.
    """
    if asked(text, wrongs, RLIMIT) is not None:
        raise UndecidedError(f"text({name}): not proved: its turns")
    head = f"; {name}: turns, {len(wrongs)} claims"
    return f"{head}\n{text}\n(assert {either(wrongs)})\n(check-sat)"


def _violation(window: Window, claim: Claim) -> str:
    """Say in SMT-LIB that a claim does not hold."""
    first = window.event(*claim.first)
    then = window.event(claim.then, 0)
    if claim.start is not None:
        then = window.start(claim.then, claim.start)
    narrow = TIMED if claim.timed else window.carries(*claim.first)
    if not claim.between:
        late = either([f"(>= {window.event(*cause)} {then})" for cause in claim.causes])
        missing = [f"(>= {first} {then})", *((late,) if claim.causes else ())]
        return both([claim.when, narrow, *missing])
    (node, offset), runs = claim.between[0]
    if node < 0:
        return claim.when
    middle = window.event(node, offset)
    apart = [f"(not {runs})", f"(>= {first} {middle})", f"(>= {middle} {then})"]
    return both([claim.when, narrow, either(apart)])


def _offsets(skeleton: Skeleton, claims: list[Claim], width: Width) -> set[int]:
    """Return the iterations that matter: those of the claims, and each one before."""
    waits = {
        phase.node: {shift(place) for _, place, _, _ in phase.waits}
        for phase in skeleton.phases.values()
    }
    found = {0, -1}
    for claim in claims:
        node, offset = claim.first
        found |= {offset - ahead for ahead in waits.get(node, {0})}
        found |= {at[1] for at, _ in claim.between[:1]} | {at[1] for at in claim.causes}
    shifts = {cross.shift for cross in skeleton.crosses}
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
