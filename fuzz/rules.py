"""The suite against itself: leave out each rule of each engine, and see whether anybody notices.

Cases come from outside, as a function that returns them.  Where they do not notice, the kernels of
the cookbook and their mutants are asked, against the verdict of the whole engine.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path

import click
from pebble import ProcessPool
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fuser.cookbook import RECIPES
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.rules_engines import CRASHED, ENGINES, Case
from fuzz.rules_implied import IMPLIED
from fuzz.rules_notice import (
    Baseline,
    Search,
    Strength,
    baselines,
    mutant_cases,
    recipe_case,
    search,
    settled,
)

CASES = "rule_cases:cases"
"""What returns the cases: a module of the folder of tests, and a function."""
FOLDER = Path("tests")
LIMIT_S = 1800.0
"""Wall limit of one rule."""


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
        raise ValueError(f"named({cases!r}): returns no cases of fuzz.rules_engines.Case")
    return found


@cache
def _known(engine: str, cases: str, folder: Path) -> tuple[Baseline, ...]:
    return tuple(baselines(ENGINES[engine], named(cases, folder)))


@cache
def _cookbook(engine: str, recipe: str, *, mutants: bool) -> tuple[Baseline, ...]:
    """Return a recipe that the whole engine passes, or its mutants."""
    cases = mutant_cases(recipe) if mutants else [recipe_case(recipe)]
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
    for recipe in RECIPES if job.cookbook else ():
        if row.noticed:
            break
        more = search(engine, rule, _cookbook(job.engine, recipe, mutants=not row.axiom))
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


if __name__ == "__main__":
    main()
