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
from functools import cache
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
        what = f"{name}: {mutant.fault}"
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


# --- the tool -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One rule of one engine, and where the cases come from."""

    engine: str
    rule: str
    cases: str
    folder: Path
    cookbook: bool


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
    """Return the cases of ``"module:function"``, the module being found in a folder too.

    Raises
    ------
    ValueError
        If it names no function that returns cases.
    """
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


@cache
def _cookbook(engine: str, name: str, *, mutants: bool) -> tuple[Baseline, ...]:
    """Return a recipe that the whole engine passes, or its mutants."""
    cases = mutant_cases(name) if mutants else [recipe_case(name)]
    return tuple(settled(baselines(ENGINES[engine], cases)))


def look(job: Job) -> Row:
    """Look for who notices a rule: first among the cases, then in the cookbook.

    An axiom is missed by what is right, an obligation by a mutant.
    """
    engine = ENGINES[job.engine]
    rule = next(rule for rule in engine.rules if rule.name == job.rule)
    known = _known(job.engine, job.cases, job.folder)
    broken = tuple(
        f"{one.case.name}: {one.answer.reason}" for one in known if one.answer.status == CRASHED
    )
    row = Row(job.engine, rule, search(engine, rule, known), broken)
    for name in RECIPES if job.cookbook else ():
        if row.noticed:
            break
        more = search(engine, rule, _cookbook(job.engine, name, mutants=not row.axiom))
        row = replace(row, found=row.found.joined(more))
    return row


def rows(jobs: Sequence[Job], workers: int) -> Iterator[Row]:
    """Do jobs in processes of their own; rows come as they are done."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPool(max_workers=workers, context=context) as pool:
        for future in as_completed([pool.schedule(look, (job,), timeout=LIMIT_S) for job in jobs]):
            yield future.result()


def table(found: Sequence[Row]) -> Table:
    """Return what is printed: one line for each rule."""
    made = Table("engine", "rule", "kind", title="rules left out")
    made.add_column("who notices, or why nobody can", overflow="fold")
    for row in found:
        kind = "axiom" if row.axiom else "obligation"
        made.add_row(row.engine, row.rule.name, kind, row.says)
    return made


def crashes(found: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each rule without which an engine raises."""
    for row in found:
        if row.found.crashes:
            more = f", and {len(row.found.crashes) - 1} more"
            yield f"without {row.rule.name}, {row.engine} raises: {row.found.crashes[0]}{more}"


def summary(found: Sequence[Row]) -> str:
    """Return the line at the end."""
    noticed = sum(row.noticed for row in found)
    implied = sum(row.rule in IMPLIED and not row.noticed for row in found)
    left = sum(row.open for row in found)
    return f"{noticed} of {len(found)} noticed, {implied} implied, {left} open"


def record(found: Sequence[Row], path: Path) -> None:
    """Write down who notices each rule, by engine and rule.

    What is not in `found` stays, and so does what was found with a broken engine.
    """
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
    names = {engine: [rule.name for rule in ENGINES[engine].rules] for engine in ENGINES}
    ordered = {
        engine: {rule: known[engine][rule] for rule in names[engine] if rule in known[engine]}
        for engine in names
        if engine in known
    }
    path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


@click.command(cls=Command)
@click.option("--engine", "engines", multiple=True, type=click.Choice(tuple(ENGINES)))
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
@click.option("--workers", default=2, show_default=True, type=click.IntRange(min=1))
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
    jobs = [Job(engine, rule.name, cases, folder, cookbook) for engine, rule in chosen]
    seen: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("rules", total=len(jobs))
        for row in rows(jobs, workers):
            seen.append(row)
            progress.update(task, advance=1)
    place = {(engine, rule): number for number, (engine, rule) in enumerate(chosen)}
    seen.sort(key=lambda row: place[row.engine, row.rule])
    console.print(table(seen))
    broken = dict(sorted((row.engine, row.broken) for row in seen if row.broken))
    for engine, what in broken.items():
        text = f"{engine} raises with all its rules on {len(what)} cases: {what[0]}"
        console.print(text, markup=False)
    for text in crashes(seen):
        console.print(text, markup=False)
    if book is not None:
        record(seen, book)
    console.print(summary(seen))
    sys.exit(FAILED if any(row.open for row in seen) else HARNESS if broken else CLEAN)
