"""The engines of the judges with rules left out: what each says of a case, and what it looked up.

An engine consults a rule by asking whether it is in the set of those left out.  `Asked` is such a
set that remembers; a rule that nobody looked up in it cannot change the answer when it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from fuzz.kernels.tile import Start
from oracles.explorer import explore
from oracles.explorer import rules as explorer_rules
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability import rules as reachability_rules
from oracles.verdict import Status, Verdict

STATES = 20_000
"""States after which the explorer gives up."""
WORST = (Status.FAIL, Status.UNSUPPORTED, Status.UNKNOWN, Status.PASS)
"""Of several kernels of a program the worst answer counts."""
_Reach, _Explorer = reachability_rules.Rule, explorer_rules.Rule


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel whose truth is known: whether it is right, else a judge has to find an error.

    An unsafe one can go wrong in the launch `start`, at which the explorer looks, under `policy`.
    """

    name: str
    subject: kir.Kernel | LaunchSequence
    safe: bool
    start: Start
    policy: str = "default"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine says: its status, the kinds of its errors, and those of its warnings."""

    status: str
    errors: frozenset[str] = frozenset()
    warnings: frozenset[str] = frozenset()
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.words(warned=False)

    def words(self, *, warned: bool) -> str:
        """Put it in words, with what it warns of if that is asked."""
        said = " ".join((self.status, *sorted(self.errors)))
        more = " ".join(sorted(self.warnings)) or "nothing"
        return f"{said}, warns of {more}" if warned else said


CRASHED = "crashed"
"""Status of an engine that raised."""


class Asked(frozenset[Enum]):
    """A set of rules left out that notes which rules are looked up in it."""

    def __new__(cls, rules: AbstractSet[Enum] = frozenset()) -> Asked:
        """Make a set with nothing noted yet."""
        made = super().__new__(cls, rules)
        made.seen = set()
        return made

    seen: set[Enum]

    def __contains__(self, rule: object) -> bool:
        if isinstance(rule, Enum):
            self.seen.add(rule)
        return super().__contains__(rule)

    def __or__(self, more: AbstractSet[object]) -> Asked:
        joined = Asked(frozenset(self) | {rule for rule in more if isinstance(rule, Enum)})
        joined.seen = self.seen
        return joined


Judge = Callable[[Case, frozenset[Enum]], Answer]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine whose rules `judge` can leave out: axioms grant order, obligations demand it."""

    name: str
    axioms: tuple[Enum, ...]
    obligations: tuple[Enum, ...]
    judge: Judge

    @property
    def rules(self) -> tuple[Enum, ...]:
        """All its rules."""
        return (*self.axioms, *self.obligations)

    def ask(self, case: Case, without: AbstractSet[Enum] = frozenset()) -> Answer:
        """Return what the engine says of a case; a crash is an answer too."""
        return self.consulted(case, without)[0]

    def consulted(
        self, case: Case, without: AbstractSet[Enum] = frozenset()
    ) -> tuple[Answer, frozenset[Enum]]:
        """Return what the engine says of a case, and the rules that it looked up for that."""
        asked = Asked(without)
        try:
            answer = self.judge(case, asked)
        except Exception as error:
            answer = Answer(CRASHED, reason=f"{type(error).__name__}: {error}")
        return answer, frozenset(asked.seen)


def _kernels(case: Case) -> tuple[kir.Kernel, ...]:
    subject = case.subject
    return subject.launches if isinstance(subject, LaunchSequence) else (subject,)


def _answer(verdicts: Sequence[Verdict]) -> Answer:
    worst = min(verdicts, key=lambda verdict: WORST.index(verdict.status))
    findings = [f for verdict in verdicts for f in verdict.findings]
    errors = frozenset(f.kind for f in findings if f.severity == "error")
    warnings = frozenset(f.kind for f in findings if f.severity != "error")
    return Answer(worst.status.value, errors, warnings, worst.reason)


def _reachability(case: Case, without: frozenset[Enum]) -> Answer:
    rules = cast(frozenset[reachability_rules.Rule], without)
    errors, warnings, reason = set[str](), set[str](), ""
    for kernel in _kernels(case):
        try:
            closed = fixpoint.judge(kernel, policy=case.policy, without=rules)
        except UnsupportedError as error:
            return Answer(Status.UNSUPPORTED.value, reason=str(error))
        errors |= {v.kind for v in closed.violations}
        warnings |= {v.kind for v in closed.warnings}
        reason = reason or closed.reason
    status = Status.FAIL if errors else Status.UNKNOWN if reason else Status.PASS
    return Answer(status.value, frozenset(errors), frozenset(warnings), reason)


def _explorer(case: Case, without: frozenset[Enum]) -> Answer:
    each = (explore.Launch(*case.start),) * len(_kernels(case))
    rules = cast(frozenset[explorer_rules.Rule], without)
    verdict = explore.explore(case.subject, each, policy=case.policy, states=STATES, without=rules)
    return _answer([verdict])


def _split(rules: type[Enum], first: Enum) -> tuple[tuple[Enum, ...], tuple[Enum, ...]]:
    """Split an enum that lists its axioms first, at its first obligation."""
    every = tuple(rules)
    at = every.index(first)
    return every[:at], every[at:]


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("reachability", *_split(_Reach, _Reach.RAW), _reachability),
        Engine("explorer", *_split(_Explorer, _Explorer.RAW), _explorer),
    )
}
"""The engines, by name."""


# --- implied rules ------------------------------------------------------------------------------
# Their loss alone nobody can notice.  They are not idle: where the rules that imply one are left
# out too, some verdict depends on it.


@dataclass(frozen=True, slots=True)
class Implied:
    """Why a rule is implied by others: by which, and the argument.

    Without these, and without the obligations `besides`, which it violates too, the verdict on
    `case` depends on the rule.
    """

    by: frozenset[Enum]
    why: str
    case: str
    besides: frozenset[Enum] = frozenset()


IMPLIED: dict[Enum, Implied] = {
    _Explorer.GROUP: Implied(
        frozenset({_Explorer.EXIT, _Explorer.RAW, _Explorer.WAR, _Explorer.WAW}),
        "what is not committed is not covered by any await, so whoever uses its bytes races with "
        "it, and if nobody does it is in flight at the exit; the rule tells the cause",
        "rule_store_never_committed",
    ),
}
"""Every implied rule."""
UNSETTLED: dict[Enum, str] = {}
"""Rules that others seem to imply, with what is missing for a proof: they count as open."""
