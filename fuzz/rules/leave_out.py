"""The suite against itself: leave out each rule of each engine, and see whether anybody notices.

Without an axiom something right is no longer proved; without an obligation something wrong passes.
That is the direction which a change has to have.  A change of the kind of an error is reported, but
shows only that another rule sees the same fault.

Cases come from outside, as a function that returns them.  Where they do not notice, the kernels of
the cookbook and their mutants are asked, against the verdict of the whole engine.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import click
from pebble import ProcessPool
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fuser.cookbook.recipes import RECIPES
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.kernels.cookbook import recipe, recipe_mutants
from fuzz.rules.engines import CRASHED, ENGINES, IMPLIED, Answer, Case, Engine
from oracles.verdict import Status

CASES = "rule_cases:cases"
"""What returns the cases: a module of the folder of tests, and a function."""
FOLDER = Path("tests")
LIMIT_S = 1800.0
"""Wall limit of one rule."""
STAGES = 2
"""Stages of the cookbook's kernels here: enough for a ring to be used twice over."""


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
    """A case as the whole engine sees it, which rules it looked up for that, and its time."""

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
    if after == before:
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
    """Look, likely and quick cases first, for one that notices the loss of a rule by its status."""
    found: Notice | None = None
    crashes: list[str] = []
    asked = [one for one in known if rule in one.consulted and one.answer.status != CRASHED]
    axiom = rule in engine.axioms
    asked.sort(key=lambda one: (one.case.safe is not axiom, len(one.answer.errors), one.seconds))
    for one in asked:
        after = engine.ask(one.case, {rule})
        how = strength(engine, rule, one.case, one.answer, after)
        if how is Strength.CRASH:
            crashes.append(f"{one.case.name}: {after.reason}")
        elif how > (found.strength if found else Strength.NONE):
            warned = how is Strength.WARNING
            before, left = one.answer.words(warned=warned), after.words(warned=warned)
            found = Notice(one.case.name, before, left, how)
        if how is Strength.STATUS:
            break
    return Search(found, len(asked), tuple(crashes))


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a rule."""

    engine: str
    rule: Enum
    found: Search
    broken: tuple[str, ...] = ()
    """Cases on which the whole engine raises, with what it says."""

    @property
    def axiom(self) -> bool:
        """Whether the rule grants an order; else it demands one."""
        return self.rule in ENGINES[self.engine].axioms

    @property
    def noticed(self) -> bool:
        """Whether a verdict changes, in the right direction."""
        notice = self.found.notice
        return notice is not None and notice.strength >= Strength.WARNING

    @property
    def open(self) -> bool:
        """Whether nobody notices and no argument says why."""
        return not self.noticed and self.rule not in IMPLIED

    @property
    def says(self) -> str:
        """By whom it is noticed or implied, or how far the search came."""
        notice = self.found.notice
        if self.noticed:
            return f"noticed by {notice}"
        if self.rule in IMPLIED:
            implied = IMPLIED[self.rule]
            return f"implied by {', '.join(sorted(r.name for r in implied.by))}: {implied.why}"
        if notice is not None:
            return f"OPEN, only the kind changes: {notice}"
        return f"OPEN, {self.found.consulting} cases consult it and none depends on it"


def named(cases: str, folder: Path) -> Sequence[Case]:
    """Return the cases of ``"module:function"``, the module being found in a folder too."""
    where = str(folder.resolve())
    if where not in sys.path:
        sys.path.insert(0, where)
    module, colon, function = cases.partition(":")
    if not colon:
        raise ValueError(f"named({cases!r}): give MODULE:FUNCTION, such as {CASES}")
    found = tuple(getattr(import_module(module), function)())
    if not found or not all(isinstance(one, Case) for one in found):
        raise ValueError(f"named({cases!r}): returns no cases of fuzz.rules.engines.Case")
    return found


@cache
def _known(engine: str, cases: str, folder: Path) -> tuple[Baseline, ...]:
    return tuple(baselines(ENGINES[engine], named(cases, folder)))


def recipe_cases(name: str, *, mutants: bool) -> Iterator[Case]:
    """Yield a recipe of the cookbook, which is right, or every mutant of it, taken for wrong."""
    whole = recipe(name, STAGES)
    start = whole.launches[-1]
    if not mutants:
        yield Case(name, whole.kernel, safe=True, start=start)
        return
    for mutant in recipe_mutants(name, STAGES):
        yield Case(f"{name}: {mutant.fault}", mutant.kernel, safe=False, start=start)


@cache
def _cookbook(engine: str, name: str, *, mutants: bool) -> tuple[Baseline, ...]:
    """Take the whole engine's word for which are safe; leave out what it does not judge."""
    known = baselines(ENGINES[engine], recipe_cases(name, mutants=mutants))
    passed, failed = Status.PASS.value, Status.FAIL.value
    return tuple(
        replace(one, case=replace(one.case, safe=one.answer.status == passed))
        for one in known
        if one.answer.status in (passed, failed)
    )


def look(name: str, rule: Enum, cases: str, folder: Path, *, cookbook: bool) -> Row:
    """Look among the cases, then in the cookbook (mutants, for obligations), who notices."""
    engine, known = ENGINES[name], _known(name, cases, folder)
    crashed = (one for one in known if one.answer.status == CRASHED)
    broken = tuple(f"{one.case.name}: {one.answer.reason}" for one in crashed)
    row = Row(name, rule, search(engine, rule, known), broken)
    for one in RECIPES if cookbook else ():
        if row.noticed:
            break
        more = search(engine, rule, _cookbook(name, one, mutants=not row.axiom))
        row = replace(row, found=row.found.joined(more))
    return row


def rows(
    chosen: Sequence[tuple[str, Enum]], cases: str, folder: Path, *, cookbook: bool, workers: int
) -> Iterator[Row]:
    """Look for rules in processes of their own; rows come as they are done."""
    context = multiprocessing.get_context("forkserver")
    asked = partial(look, cases=cases, folder=folder, cookbook=cookbook)
    with ProcessPool(max_workers=workers, context=context) as pool:
        for future in as_completed([pool.schedule(asked, one, timeout=LIMIT_S) for one in chosen]):
            yield future.result()


def table(found: Sequence[Row]) -> Table:
    """Return what is printed: one line for each rule."""
    made = Table("engine", "rule", "kind", title="rules left out")
    made.add_column("who notices, or why nobody can", overflow="fold")
    for row in found:
        kind = "axiom" if row.axiom else "obligation"
        made.add_row(row.engine, row.rule.name, kind, row.says)
    return made


def summary(found: Sequence[Row]) -> str:
    """Return the line at the end."""
    noticed = sum(row.noticed for row in found)
    implied = sum(row.rule in IMPLIED and not row.noticed for row in found)
    left = sum(row.open for row in found)
    return f"{noticed} of {len(found)} noticed, {implied} implied, {left} open"


def record(found: Sequence[Row], path: Path) -> None:
    """Write down who notices each rule; what is not in `found`, or of a broken engine, stays."""
    known: dict[str, dict[str, str]] = {}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
    for row in found:
        if row.broken:
            continue
        own = known.setdefault(row.engine, {})
        own.pop(row.rule.name, None)
        if row.noticed and row.found.notice is not None:
            own[row.rule.name] = row.found.notice.case
    ordered = {
        name: {r.name: known[name][r.name] for r in engine.rules if r.name in known[name]}
        for name, engine in ENGINES.items()
        if name in known
    }
    path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


@click.command(cls=Command)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=click.Choice(tuple(ENGINES)),
    help="Only this engine; may be given again.",
)
@click.option("--rule", "names", multiple=True, help="Only this rule; may be given again.")
@click.option("--cases", default=CASES, show_default=True, help="MODULE:FUNCTION with the cases.")
@click.option(
    "--folder",
    default=FOLDER,
    show_default=True,
    help="Where that module is.",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--cookbook/--no-cookbook",
    default=True,
    show_default=True,
    help="Where no case notices, ask the cookbook and its mutants.",
)
@click.option(
    "--workers", default=2, show_default=True, type=click.IntRange(min=1), help="Processes."
)
@click.option(
    "--record",
    "book",
    help="Write down who notices each rule, for the tests.",
    type=click.Path(dir_okay=False, path_type=Path),
)
def main(
    engines: tuple[str, ...],
    names: tuple[str, ...],
    cases: str,
    folder: Path,
    cookbook: bool,
    workers: int,
    book: Path | None,
) -> None:
    """Leave out each rule of each engine in turn: somebody has to notice."""
    console = Console(soft_wrap=True, highlight=False)
    chosen = [
        (engine, rule)
        for engine in engines or ENGINES
        for rule in ENGINES[engine].rules
        if not names or rule.name in names
    ]
    if not chosen:
        raise click.BadParameter(f"--rule {' '.join(names)}: no engine has such a rule")
    found = rows(chosen, cases, folder, cookbook=cookbook, workers=workers)
    with Progress(console=console, transient=True) as progress:
        seen = list(progress.track(found, total=len(chosen), description="rules"))
    seen.sort(key=lambda row: chosen.index((row.engine, row.rule)))
    console.print(table(seen))
    broken = dict(sorted((row.engine, row.broken) for row in seen if row.broken))
    for engine, what in broken.items():
        text = f"{engine} raises with all its rules on {len(what)} cases: {what[0]}"
        console.print(text, markup=False)
    for row in seen:
        if first := row.found.crashes[:1]:
            more = f"{first[0]}, and {len(row.found.crashes) - 1} more"
            text = f"without {row.rule.name}, {row.engine} raises: {more}"
            console.print(text, markup=False)
    if book is not None:
        record(seen, book)
    console.print(summary(seen))
    sys.exit(FAILED if any(row.open for row in seen) else HARNESS if broken else CLEAN)
