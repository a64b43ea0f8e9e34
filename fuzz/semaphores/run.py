"""Subjects before every judge, into one JSON file: by default every semaphore mutant.

`python -m fuzz.semaphores [SUBJECT | FILE.py[:NAME]]... --out DIR`.  Prover, simulator and explorer
are asked on any machine; the others where there is a GPU: first values, by one child process that
has the device to itself, then compute-sanitizer, several processes at a time, for it does not look
at time.
"""

from __future__ import annotations

import difflib
import hashlib
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
import torch
from cuda.bindings import driver
from rich.console import Console
from rich.table import Table

from fuser.codegen import cuda
from fuser.kernel.text import text
from fuser.runtime.executable import device_present
from fuzz.campaign.environment import machine, versions
from fuzz.crosscheck.judge import Answer, explore, settle, simulate
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.kernels.draw import Subject
from fuzz.kernels.file import names
from fuzz.kernels.semaphores import MEMBERS
from fuzz.kernels.subjects import find
from fuzz.semaphores import sanitizers as compute_sanitizer
from fuzz.semaphores.gpu import Device, compiled, judge, request
from fuzz.semaphores.record import (
    JUDGES,
    NAME,
    PROVING,
    SANITIZERS,
    Book,
    Cell,
    Row,
    load,
    misjudged,
    unanswered,
    words,
)
from oracles.cli.target import TargetError
from oracles.prover import prove
from oracles.witness import dumps

PROBE = "semaphore split_k/control"
"""A subject that any working device passes."""
OTHERS = "subjects.json"
"""Name of the file where other subjects are asked for."""
STATES = 50_000
"""States after which the explorer gives up on a launch."""
LAUNCHES = 400
"""Launches of a kernel, over all shapes; with delays as many again."""
SECONDS = 4.0
"""After which a kernel is launched on no further shape more than once."""
SANITIZER_S = 180.0
"""Seconds for all sanitizers together; what is left over then has no answer, for `--resume`."""
WORKERS = 15
"""Processes at a time, at most, where nothing is timed."""

_BOX = re.compile(r"(?<=\w)\[[^\[\]]{17,}\]")
"""Coordinates of a box: they are the same in all kernels of a base."""


def row(name: str) -> Row:
    """Return the row of a subject that nobody has judged yet."""
    subject = find(name)
    digest = hashlib.sha256(cuda.source(subject.kernel).encode()).hexdigest()[:16]
    if name.startswith("semaphore "):
        one = MEMBERS[name.removeprefix("semaphore ")]
        return Row(name, one.base, one.name, one.says, one.legal, digest)
    legal = None if subject.faults else True
    return Row(name, subject.family, name, "; ".join(subject.faults), legal, digest)


def brief(said: str) -> str:
    """Return a text without the coordinates of boxes."""
    return _BOX.sub("[\u2026]", said)


def difference(subject: Subject) -> str:
    """Return the lines of the kernel's text that differ from the base's, with their neighbours."""
    old, new = (
        [brief(line) for line in text(kernel).splitlines()]
        for kernel in (subject.base, subject.kernel)
    )
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[3:]
    return "\n".join("  \u22ee" if line.startswith("@@") else line for line in lines)


def judged(name: str) -> tuple[dict[str, Cell], str, str]:
    """Judge a subject on the host, and compile it; return cells, difference, and witness."""
    subject = find(name)
    compiled(subject)
    explorer = partial(explore, states=STATES)
    outcome = settle(name, subject, explorer=explorer, search=simulate, always=True)
    cells = {judge: cell(getattr(outcome, judge)) for judge in PROVING}
    found = prove.witness(subject.kernel) if cells["prover"].status == "detected" else None
    return cells, difference(subject), "" if found is None else dumps(found)


def cell(answer: Answer) -> Cell:
    """Put the answer of a judge that needs no device into a cell."""
    match answer.status:
        case "pass":
            return Cell("silent", "", 0, answer.checked, answer.seconds)
        case "fail":
            kinds, detail = ", ".join(answer.kinds), brief(answer.reason)
            return Cell("detected", kinds, 1, max(answer.checked, 1), answer.seconds, detail)
        case status:
            return Cell("unknown", status, 0, answer.checked, answer.seconds, answer.reason)


def judge_on_host(book: Book, workers: int) -> None:
    """Ask prover, simulator and explorer, in as many processes."""
    open_ = book.open(*PROVING)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(open_)) or 1, mp_context=spawn) as pool:
        asked_of = {pool.submit(judged, name): name for name in open_}
        try:
            for future in as_completed(asked_of):
                book.add(asked_of[future], *future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def judge_on_device(book: Book, launches: int, seconds: float) -> None:
    """Launch every subject alone, first without delays; RuntimeError if the device is lost."""
    asked = partial(request, seconds=seconds)
    with Device(judge, asked(PROBE, delays=False, launches=8)) as device:
        for column, delays in (("gpu", False), ("gpu with delays", True)):
            for name in book.open(column):
                cell = device.ask(asked(name, delays=delays, launches=launches))
                _keep(book, name, column, cell)


def judge_by_sanitizers(book: Book, workers: int, seconds: float) -> None:
    """Watch one launch of every subject by every tool, until the seconds are over."""
    program, end = compute_sanitizer.find(), time.monotonic() + seconds
    if program is not None:
        book.note(sanitizer=compute_sanitizer.version(program))

    def watch(tool: str, name: str) -> Cell:
        left = end - time.monotonic()
        if left <= 0:
            return Cell("unknown", "no time left")
        if program is None:
            return Cell("unknown", "no compute-sanitizer")
        command = compute_sanitizer.command(program, tool, name)
        return compute_sanitizer.ran(command, tool, limit_s=min(left, compute_sanitizer.LIMIT_S))

    open_ = [(name, tool) for name in book.rows for tool in SANITIZERS if name in book.open(tool)]
    with ThreadPoolExecutor(workers) as pool:
        asked_of = {pool.submit(watch, tool, name): (name, tool) for name, tool in open_}
        for future in as_completed(asked_of):
            name, tool = asked_of[future]
            _keep(book, name, tool, future.result())


def _keep(book: Book, name: str, column: str, cell: Cell) -> None:
    book.add(name, {column: cell})
    click.echo(f"{column}: {name}: {words(column, cell)} ({cell.seconds:.1f} s)")


def begun(path: Path, chosen: Sequence[str], *, resume: bool) -> list[Row]:
    """Return the rows to fill in: those of a file where it has them, of the same kernels."""
    fresh = [row(name) for name in chosen]
    if not resume or not path.is_file():
        return fresh
    kept = {(row.subject, row.digest): row for row in load(path)[0]}
    return [kept.get((row.subject, row.digest), row) for row in fresh]


def subjects(asked: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return the subjects that are asked for: every semaphore mutant where none is."""
    found: list[str] = []
    try:
        for one in asked:
            if re.search(r"\.py(:\w+)?$", one):
                found += [f"of {name} 0" for name in names(one)]
            else:
                find(one)
                found.append(one)
    except (TargetError, ValueError) as error:
        raise click.UsageError(f"{one}: {error}") from error
    found = found if asked else [f"semaphore {key}" for key in MEMBERS]
    chosen = [name for name in found if not only or any(part in name for part in only)]
    if not chosen:
        raise click.UsageError(f"--only {' '.join(only)}: none of {', '.join(found)}")
    return chosen


@click.command(cls=Command)
@click.argument("asked", metavar="[SUBJECT]...", nargs=-1)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports", "out"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--only", multiple=True, help="Subjects that have this in their name; repeatable.")
@click.option("--resume", is_flag=True, help="Ask only for what the file of results lacks.")
@click.option(
    "--launches",
    default=LAUNCHES,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of each kernel; with delays as many again.",
)
@click.option("--seconds", default=SECONDS, show_default=True, help="Per kernel on the device.")
@click.option(
    "--workers",
    default=min(WORKERS, os.cpu_count() or 1),
    show_default=True,
    help="Processes of the judges.",
)
@click.option("--device/--no-device", default=True, help="Launch kernels, where there is a GPU.")
@click.option("--sanitizers/--no-sanitizers", default=True, help="Run compute-sanitizer too.")
@click.option(
    "--sanitizer-seconds", default=SANITIZER_S, show_default=True, help="For all of them together."
)
def main(
    asked: tuple[str, ...],
    out: Path,
    only: tuple[str, ...],
    resume: bool,
    launches: int,
    seconds: float,
    workers: int,
    device: bool,
    sanitizers: bool,
    sanitizer_seconds: float,
) -> None:
    """Ask every judge about every SUBJECT: by default about the semaphore mutants.

    A subject is a FILE.py[:NAME], or what the crosscheck calls one: "mutant split_k 2 17",
    "template 0 8", "of FILE.py:NAME 3".  Results: OUT/semaphore_mutants.json or OUT/subjects.json.

    Exit codes: 0 every judge was right, 1 one was wrong, 3 somebody had no answer.
    """
    begin, path = time.monotonic(), out / (OTHERS if asked else NAME)
    facts: dict[str, str | int | float] = {**versions(), **machine()}
    facts["started"] = datetime.now(UTC).isoformat(timespec="seconds")
    book = Book(path, begun(path, subjects(asked, only), resume=resume), facts)

    def note(name: str) -> None:
        book.note(**{name: round(time.monotonic() - begin, 1)})

    judge_on_host(book, workers)
    note("host_seconds")
    if device and device_present():
        _, number = driver.cuDriverGetVersion()
        version = f"{number // 1000}.{number % 100 // 10}"
        book.note(gpu=torch.cuda.get_device_name(), cuda_driver=version, launches=launches)
        try:
            judge_on_device(book, launches, seconds)
            note("device_seconds")
            if sanitizers:
                judge_by_sanitizers(book, workers, sanitizer_seconds)
        except RuntimeError as error:
            book.note(lost=str(error))
            click.echo(f"the device is lost: {error}")
    note("seconds")
    rows = list(book.rows.values())
    table = Table("kernel", *JUDGES)
    for one in rows:
        table.add_row(one.subject, *(words(name, one.cells.get(name)) for name in JUDGES))
    Console(width=220).print(table)
    wrong, open_ = misjudged(rows), unanswered(rows)
    for name, one in wrong:
        said = f"{words(name, one.cells[name])}; {one.says}"
        click.echo(f"{name} is wrong about {one.subject}: {said}")
    click.echo(
        f"{len(rows)} kernels, {len(wrong)} wrong answers, {open_} cells without an answer; "
        f"results {path}"
    )
    sys.exit(FAILED if wrong else HARNESS if open_ else CLEAN)
