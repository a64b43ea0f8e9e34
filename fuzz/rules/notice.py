"""Whether anybody notices that an engine has lost a rule: the search for a kernel that shows it.

Without an axiom something right is no longer proved; without an obligation something wrong passes.
That is the direction which a change has to have.  A change of the kind of an error is reported, but
shows only that another rule sees the same fault.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cache

from fuser.cookbook.recipes import RECIPES
from fuzz.kernels.cookbook import recipe, recipe_mutants
from fuzz.rules.engines import CRASHED, Answer, Case, Engine
from oracles.verdict import Status

STAGES = 2
"""Stages of the cookbook's kernels here: enough for a ring to come round."""


class Strength(IntEnum):
    """What a change says, from nothing to all."""

    NONE = 0
    CRASH = 1
    """The engine raises: it may be lost without the rule, which says nothing of the suite."""
    KIND = 2
    """Other kinds of errors or warnings: others see the same fault."""
    WARNING = 3
    """A warning is gone, and nothing else says it."""
    STATUS = 4
    """Something right is refused, or something wrong passes."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A case as the whole engine sees it.

    Parameters
    ----------
    case : Case
        What was judged.
    answer : Answer
        Of the engine with all its rules.
    consulted : frozenset of Enum
        Rules that the engine looked up.
    seconds : float
        What it took.
    """

    case: Case
    answer: Answer
    consulted: frozenset[Enum]
    seconds: float


@dataclass(frozen=True, slots=True)
class Notice:
    """A case whose verdict changes without a rule."""

    case: str
    before: str
    after: str
    strength: Strength

    def __str__(self) -> str:
        return f"{self.case} ({self.before} -> {self.after})"


@dataclass(frozen=True, slots=True)
class Search:
    """What was found for a rule: the best notice, and how many cases consult the rule."""

    notice: Notice | None
    consulting: int
    crashes: tuple[str, ...]

    def joined(self, more: Search) -> Search:
        """Return the stronger notice of two searches, and what both of them saw."""
        notices = [found.notice for found in (self, more) if found.notice is not None]
        best = max(notices, key=lambda notice: notice.strength, default=None)
        return Search(best, self.consulting + more.consulting, (*self.crashes, *more.crashes))


def baselines(engine: Engine, cases: Iterable[Case]) -> Iterator[Baseline]:
    """Judge cases by the whole engine."""
    for case in cases:
        begin = time.perf_counter()
        answer, consulted = engine.consulted(case)
        yield Baseline(case, answer, consulted, time.perf_counter() - begin)


def strength(engine: Engine, rule: Enum, case: Case, before: Answer, after: Answer) -> Strength:
    """Return what the change of an answer says about a rule; NONE in the wrong direction."""
    if after.status == CRASHED:
        return Strength.CRASH
    if not after.differs(before):
        return Strength.NONE
    passed, passes = (a.status == Status.PASS.value for a in (before, after))
    if rule in engine.axioms:
        if case.safe and passed and not passes:
            return Strength.STATUS
        return Strength.KIND if not passes else Strength.NONE
    if not case.safe and not passed and passes:
        return Strength.STATUS
    if passed and passes and after.warnings < before.warnings:
        return Strength.WARNING
    return Strength.KIND if not passed else Strength.NONE


def search(engine: Engine, rule: Enum, known: Sequence[Baseline]) -> Search:
    """Look for a case that notices the loss of a rule; stop at the first whose status changes."""
    found: Notice | None = None
    crashes: list[str] = []
    asked = [one for one in known if rule in one.consulted and one.answer.status != CRASHED]
    for one in sorted(asked, key=lambda one: _unlikely(engine, rule, one)):
        after = engine.ask(one.case, {rule})
        how = strength(engine, rule, one.case, one.answer, after)
        if how is Strength.CRASH:
            crashes.append(f"{one.case.name}: {after.reason}")
        elif found is None or how > found.strength:
            found = _notice(one, after, how)
        if how is Strength.STATUS:
            break
    if found is not None and found.strength is Strength.NONE:
        found = None
    return Search(found, len(asked), tuple(crashes))


def _notice(one: Baseline, after: Answer, how: Strength) -> Notice:
    before, left = str(one.answer), str(after)
    if how is Strength.WARNING:
        before += f", warns of {' '.join(sorted(one.answer.warnings))}"
        left += f", warns of {' '.join(sorted(after.warnings)) or 'nothing'}"
    return Notice(one.case.name, before, left, how)


def _unlikely(engine: Engine, rule: Enum, one: Baseline) -> tuple[bool, int, float]:
    """Order cases: those that can show it, by how few errors they have besides, then by time."""
    axiom = rule in engine.axioms
    return one.case.safe is not axiom, len(one.answer.errors), one.seconds


# --- the cookbook -------------------------------------------------------------------------------


def recipe_case(name: str) -> Case:
    """Return a recipe of the cookbook, which is right."""
    whole = recipe(name, STAGES)
    return Case(name, whole.kernel, safe=True, start=whole.launches[-1])


def mutant_cases(name: str) -> Iterator[Case]:
    """Yield every mutant of a recipe; `settled` tells which of them are harmless."""
    start = recipe(name, STAGES).launches[-1]
    for mutant in recipe_mutants(name, STAGES):
        what = f"{name}: {mutant.operator}: {mutant.change}"
        yield Case(what, mutant.kernel, safe=False, start=start)


def settled(known: Iterable[Baseline]) -> Iterator[Baseline]:
    """Take the whole engine's word for which cases are safe; leave out what it does not judge."""
    for one in known:
        if one.answer.status in (Status.PASS.value, Status.FAIL.value):
            safe = one.answer.status == Status.PASS.value
            yield replace(one, case=replace(one.case, safe=safe))


@cache
def cookbook_case(name: str) -> Case:
    """Return a recipe or a mutant by the name of its case."""
    if name in RECIPES:
        return recipe_case(name)
    return next(case for case in mutant_cases(name.split(":", 1)[0]) if case.name == name)
