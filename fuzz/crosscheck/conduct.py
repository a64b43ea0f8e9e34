"""The crosscheck: thousands of small kernels through two judges that share nothing.

A kernel that one proves and the other breaks is a bug of a judge, and fails the run; so do answers
withheld too often.  Every result is a line of JSON, written as it comes; every disagreement is a
script that replays it.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from threading import local

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fuzz.campaign.child import LIMIT_S, Child, Lost
from fuzz.crosscheck.judge import (
    DISAGREE,
    OPEN,
    STATES,
    Bucket,
    Outcome,
    judge_request,
    lost,
    report,
    request,
    settle_here,
)
from fuzz.crosscheck.report import kill_lines, lines, needless_lines, seed_lines, seeds_hold
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command, worst, writing
from fuzz.kernels.cookbook import STAGES, subjects
from fuzz.kernels.draw import family_of
from fuzz.kernels.file import subjects as subjects_of
from fuzz.kernels.matmul import COMPILED
from fuzz.kernels.matmul import subjects as products
from fuzz.kernels.subjects import find, together
from fuzz.kernels.template import FAMILIES
from fuzz.kernels.wide import WIDE
from oracles.cli.target import TargetError

FOLDER = Path("reports", "out", "crosscheck")
"""Where results and scripts go."""
OPEN_SHARE = 0.01
"""Part of the kernels that may stay without an answer of both judges."""
PRELOAD = ("z3", "fuzz.crosscheck.judge")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for.

    `states` limits the explorer, `limit_s` the CPU seconds of one kernel.  With `search` the
    simulator is asked where the explorer has no answer, and of sync mutants of the seeds.
    """

    names: Sequence[str]
    states: int
    workers: int
    search: bool
    folder: Path
    limit_s: float = LIMIT_S


Score = tuple[Callable[[Sequence[Outcome]], Iterator[str]], ...]
Work = Callable[[str], Outcome]
"""What a child does: `judge_request`, or a stand-in."""


def outcomes(plan: Plan, work: Work = judge_request) -> Generator[Outcome, None, None]:
    """Judge every subject, by a child for each thread of a pool; they come as they are done.

    Mutants of one kernel go to one child, and come together.
    """
    own, children = local(), list[Child[Outcome]]()

    def ask(subject: str, *, prover_only: bool = False) -> Outcome | Lost:
        if not hasattr(own, "child"):
            own.child = Child(work, limit_s=plan.limit_s, preload=PRELOAD)
            children.append(own.child)
        words = request(subject, plan.states, search=plan.search, prover_only=prover_only)
        answer: Outcome | Lost = own.child.call(words)
        return answer

    def judge(subject: str) -> Outcome:
        """Judge a subject in this thread's child; find out which judge it was that got lost."""
        answer = ask(subject)
        if not isinstance(answer, Lost):
            return answer
        alone = answer if answer.judge == "prover" else ask(subject, prover_only=True)
        proof = None if isinstance(alone, Lost) else alone.prover
        return lost(subject, find(subject), proof, f"{answer.kind}: {answer.reason}")

    def judge_all(subjects: Sequence[str]) -> list[Outcome]:
        return [judge(subject) for subject in subjects]

    groups = (tuple(names) for _, names in groupby(plan.names, together))
    with ThreadPoolExecutor(plan.workers) as pool:
        try:
            running: set[Future[list[Outcome]]] = set()
            while True:
                for names in islice(groups, 2 * plan.workers - len(running)):
                    running.add(pool.submit(judge_all, names))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.close()


def conduct(plan: Plan, console: Console, work: Work = judge_request) -> list[Outcome]:
    """Judge every subject, write each result down, and show how far it is."""
    with _writing(plan):
        plan.folder.mkdir(parents=True, exist_ok=True)
        results(plan).write_text("", encoding="utf-8")
    seen, bad = list[Outcome](), 0
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with (
        closing(outcomes(plan, work)) as found,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        task = progress.add_task("crosscheck", total=len(plan.names))
        for outcome in found:
            seen.append(outcome)
            with _writing(plan), results(plan).open("a", encoding="utf-8") as book:
                book.write(json.dumps(asdict(outcome)) + "\n")
            if outcome.bucket in (*DISAGREE, Bucket.BROKEN):
                bad += 1
                with _writing(plan):
                    path = write(outcome, plan.folder)
                console.print(f"{outcome.bucket}: {path}", markup=False)
            progress.update(task, advance=1, description=f"crosscheck, {bad} bad")
    place = {name: number for number, name in enumerate(plan.names)}
    return sorted(seen, key=lambda outcome: place[outcome.subject])


def results(plan: Plan) -> Path:
    """Return the file of the results, a line of JSON each."""
    return plan.folder / "results.jsonl"


def _writing(plan: Plan) -> AbstractContextManager[None]:
    call = f"crosscheck {str(plan.folder)!r}"
    return writing(call, plan.folder, "name another place with --folder")


def write(outcome: Outcome, folder: Path) -> Path:
    """Write the script that replays an outcome, and return its path."""
    words = re.findall(r"[a-z0-9]+", f"{outcome.bucket} {outcome.subject}".lower())
    path = folder / f"{'_'.join(words)}.py"
    path.write_text(script(outcome), encoding="utf-8")
    return path


def script(outcome: Outcome) -> str:
    """Return a script that prints the kernel and both verdicts again, and ends like `show`."""
    lines = report(find(outcome.subject), outcome).splitlines()
    said = "\n".join(f"# {line}".rstrip() for line in lines)
    return f'''"""{outcome.bucket}: {outcome.subject}, family {outcome.family}."""

{said}

from fuzz.crosscheck.conduct import show

raise SystemExit(show({outcome.subject!r}))
'''


def show(subject: str, *, states: int = STATES) -> int:
    """Print a kernel and what both judges say of it; return the exit code."""
    outcome = settle_here(subject, states)
    print(report(find(subject), outcome))
    return exit_code([outcome])


def exit_code(seen: Sequence[Outcome]) -> int:
    """Tell a disagreement from a judge that broke, no kernel, or too many without an answer."""
    buckets = [outcome.bucket for outcome in seen]
    if any(bucket in DISAGREE for bucket in buckets):
        return FAILED
    withheld = sum(bucket in OPEN for bucket in buckets)
    judged = bool(seen) and Bucket.BROKEN not in buckets and withheld <= OPEN_SHARE * len(seen)
    return CLEAN if judged else HARNESS


def chosen(names: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return all names, or `count` of them drawn with a seed, in their order."""
    if count is None or count >= len(names):
        return list(names)
    picked = sorted(random.Random(seed).sample(range(len(names)), count))
    return [names[i] for i in picked]


def _numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give numbers such as 2,3,4") from error


def holds(kind: str, seen: Sequence[Outcome]) -> bool:
    """Tell whether a whole run showed what it is to show."""
    match kind:
        case "mutants":
            return seeds_hold(seen)
        case "matmul":
            right = [o.bucket == Bucket.SAFE for o in seen if not o.faults]
            return all(right) and seeds_hold(seen, tuple(COMPILED))
        case _:
            return True


@click.command(cls=Command)
@click.option("--count", type=click.IntRange(min=1), help="Kernels; 1000, or all mutants.")
@click.option("--seed", default=0, show_default=True, help="Of the kernels that are drawn.")
@click.option(
    "--workers",
    default=len(os.sched_getaffinity(0)),
    show_default="cores",
    type=click.IntRange(min=1),
    help="Children that judge.",
)
@click.option("--states", default=STATES, show_default=True, help="Limit of the explorer.")
@click.option("--only", type=click.IntRange(min=0), help="Print this kernel and both verdicts.")
@click.option(
    "--family",
    "families",
    multiple=True,
    type=click.Choice((*FAMILIES, *WIDE)),
    help="Of the templates with these indices, only this family; may be given again.",
)
@click.option("--wide", is_flag=True, help="Draw from the grammar of loops and limits instead.")
@click.option("--mutants", is_flag=True, help="Judge the mutants of the cookbook instead.")
@click.option("--matmul", is_flag=True, help="Judge the compiler's matmuls and their sync mutants.")
@click.option(
    "--of",
    "files",
    multiple=True,
    metavar="FILE.py[:NAME]",
    help="Judge the kernels of a file and their mutants instead; may be given again.",
)
@click.option(
    "--stages",
    default=",".join(map(str, STAGES)),
    show_default=True,
    callback=_numbers,
    help="Slots of the rings of mutants.",
)
@click.option(
    "--folder",
    default=FOLDER,
    show_default=True,
    help="Where results and scripts go.",
    type=click.Path(file_okay=False, path_type=Path),
)
def main(
    count: int | None,
    seed: int,
    workers: int,
    states: int,
    only: int | None,
    families: tuple[str, ...],
    wide: bool,
    mutants: bool,
    matmul: bool,
    files: tuple[str, ...],
    stages: tuple[int, ...],
    folder: Path,
) -> None:
    """Judge random small kernels by prover and explorer, and compare.

    The mutants of the cookbook are scored as well: per operator, per row of the hazard table, and
    for the seed kernels, whose sync mutants must all be killed by both or redundant; so are those
    of the compiler's matmuls.
    """
    console = Console(soft_wrap=True, highlight=False)
    drawn = "wide" if wide else "template"
    if only is not None:
        sys.exit(show(f"{drawn} {seed} {only}", states=states))
    kind = "files" if files else "mutants" if mutants else "matmul" if matmul else "templates"
    kind = "wide" if wide and kind == "templates" else kind
    before: Score = ()
    behind: Score = ()
    match kind:
        case "files":
            try:
                names = [f"of {name} {i}" for name, i in subjects_of(*files, workers=workers)]
            except TargetError as error:
                raise click.UsageError(f"--of {error}") from error
        case "mutants":
            names = [f"mutant {name} {slots} {i}" for name, slots, i in subjects(stages)]
            before, behind = (kill_lines,), (seed_lines,)
        case "matmul":
            names = [f"matmul {name} {i}" for name, i in products()]
            behind = (partial(seed_lines, names=tuple(COMPILED)), needless_lines)
        case _:
            of = WIDE if wide else FAMILIES
            wanted = (
                i for i in range(count or 1000) if not families or family_of(i, of) in families
            )
            names = [f"{drawn} {seed} {i}" for i in wanted]
    names = names if kind in ("templates", "wide") else chosen(names, count, seed)
    plan = Plan(names, states, workers, kind not in ("templates", "wide"), folder / kind)
    seen = conduct(plan, console)
    for said in (*before, lines, *behind):
        for text in said(seen):
            console.print(text, markup=False, highlight=False)
    shown = CLEAN if count is not None or holds(kind, seen) else FAILED
    code = worst((exit_code(seen), shown))
    console.print(f"results: {results(plan)}; exit code {code}", markup=False)
    sys.exit(code)
