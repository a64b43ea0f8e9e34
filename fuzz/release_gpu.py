"""The table of the release family: every kernel before every judge, into one JSON file.

`python -m fuzz.release_gpu --out DIR`.  Prover, simulator and explorer are asked on any machine;
the others where there is a GPU: first values, by one child process that has the device to itself,
then compute-sanitizer, several processes at a time, for it does not look at time.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

import click
import torch
from cuda.bindings import driver
from rich.console import Console
from rich.table import Table

from fuser.runtime import device_present
from fuzz import release_sanitizers
from fuzz.child import Child, Lost
from fuzz.environment import machine, versions
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.release_family import FAMILY, Member
from fuzz.release_judges import judged, rows
from fuzz.release_launches import asked, compiled, judge
from fuzz.release_record import (
    JUDGES,
    NAME,
    PROVING,
    SANITIZERS,
    Book,
    Cell,
    Row,
    Tried,
    load,
    misjudged,
    unanswered,
    words,
)

LAUNCHES = 400
"""Launches of a kernel, over all shapes; with delays as many again."""
SECONDS = 4.0
"""After which a kernel is launched on no further shape more than once."""
CHILD_LIMIT_S = 60.0
"""CPU seconds of a kernel's launches; by the clock twice as many, for a host that only waits."""
SANITIZER_S = 180.0
"""Seconds for all sanitizers together; what is left over then has no answer, for `--resume`."""
WORKERS = 15
"""Processes at a time, at most, where nothing is timed."""


class Device:
    """The GPU, in a child process that is replaced when a kernel does not come back.

    Parameters
    ----------
    work : callable
        What the child runs; another one in tests.
    probe : str
        A request that any working device answers: the unchanged kernel, launched a few times.
    """

    def __init__(
        self, work: Callable[[str], Tried], probe: str, *, limit_s: float = CHILD_LIMIT_S
    ) -> None:
        self._work, self._probe, self._limit_s = work, probe, limit_s
        self._child = self._new()

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def ask(self, request: str) -> Cell:
        """Run a request; a child that hangs or crashes says what the kernel did to it.

        Raises
        ------
        RuntimeError
            If afterwards not even the probe comes back.
        """
        begin = time.monotonic()
        try:
            answer = self._child.call(request)
        except Exception as error:  # CUDA errors have many types, and stay with the process
            self._restart()
            says = f"{type(error).__name__}: {error}"
            if "CUDA" in says.upper():
                return Cell("betrayed", "CUDA error", 1, 1, time.monotonic() - begin, says)
            return Cell("unknown", "error", seconds=time.monotonic() - begin, detail=says)
        if isinstance(answer, Lost):
            self._restart()
            seconds = time.monotonic() - begin
            if answer.kind == "hang":
                return Cell("betrayed", "hang", 1, 1, seconds, answer.reason)
            return Cell("unknown", answer.kind, seconds=seconds, detail=answer.reason)
        if answer.stuck:
            self._restart()
        return answer.cell

    def _restart(self) -> None:
        self.close()
        self._child = self._new()
        answer = self._child.call(self._probe)
        if isinstance(answer, Lost) or answer.cell.status != "silent":
            raise RuntimeError(f"the GPU does not run an unchanged kernel any more: {answer}")

    def _new(self) -> Child[Tried]:
        return Child(self._work, limit_s=self._limit_s, wall_s=2 * self._limit_s, spawn=True)


def prepared(key: str) -> tuple[str, str, dict[str, Cell]]:
    """Judge a member without a device, and compile what will be launched."""
    compiled(key)
    return judged(key)


def judge_on_host(book: Book, workers: int) -> None:
    """Ask prover, simulator and explorer, in as many processes."""
    keys = list(dict.fromkeys(key for name in PROVING for key in book.open(name)))
    if not keys:
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(keys)), mp_context=spawn) as pool:
        asked_of: dict[Future[tuple[str, str, dict[str, Cell]]], str] = {
            pool.submit(prepared, key): key for key in keys
        }
        try:
            for future in as_completed(asked_of):
                key = asked_of[future]
                diff, witness, cells = future.result()
                book.told(key, diff, witness)
                for name, cell in cells.items():
                    book.add(key, name, cell)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def judge_on_device(book: Book, launches: int, seconds: float) -> None:
    """Launch every member by itself, first without delays.

    Raises
    ------
    RuntimeError
        If the device is lost on the way; what was measured is in the book.
    """
    probe = asked(FAMILY[0].key, delays=False, launches=8, seconds=seconds)
    device = Device(judge, probe)
    try:
        for name, delays in (("gpu", False), ("gpu with delays", True)):
            for key in book.open(name):
                request = asked(key, delays=delays, launches=launches, seconds=seconds)
                cell = device.ask(request)
                book.add(key, name, cell)
                click.echo(f"{name}: {key}: {words(name, cell)} ({cell.seconds:.1f} s)")
    finally:
        device.close()


def judge_by_sanitizers(book: Book, workers: int, seconds: float) -> None:
    """Watch one launch of every member by every tool, until the seconds are over."""
    program, end = release_sanitizers.find(), time.monotonic() + seconds
    if program is not None:
        book.note(sanitizer=release_sanitizers.version(program))

    def watch(tool: str, key: str) -> Cell:
        left = end - time.monotonic()
        if left <= 0:
            return Cell("unknown", "no time left")
        limit = min(left, release_sanitizers.LIMIT_S)
        return release_sanitizers.watched(program, tool, key, limit_s=limit)

    with ThreadPoolExecutor(workers) as pool:
        open_ = {tool: set(book.open(tool)) for tool in SANITIZERS}
        asked_of = {
            pool.submit(watch, tool, key): (key, tool)
            for key in book.rows
            for tool in SANITIZERS
            if key in open_[tool]
        }
        for future in as_completed(asked_of):
            key, tool = asked_of[future]
            cell = future.result()
            book.add(key, tool, cell)
            click.echo(f"{tool}: {key}: {words(tool, cell)} ({cell.seconds:.1f} s)")


def begun(path: Path, chosen: tuple[Member, ...], *, resume: bool) -> list[Row]:
    """Return the rows to fill in: those of a file where it has them, of the same kernels."""
    fresh = rows(chosen)
    if not resume or not path.is_file():
        return fresh
    kept = {(row.key, row.digest): row for row in load(path)[0]}
    return [kept.get((row.key, row.digest), row) for row in fresh]


def _facts() -> dict[str, str | int | float]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {**versions(), **machine(), "started": started}


def _chosen(only: tuple[str, ...]) -> tuple[Member, ...]:
    found = tuple(m for m in FAMILY if not only or any(part in m.key for part in only))
    if not found:
        keys = ", ".join(m.key for m in FAMILY)
        raise click.UsageError(f"--only {' '.join(only)}: no kernel of that name; there are {keys}")
    return found


@click.command(cls=Command)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports", "out"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--only", multiple=True, help="Kernels whose key has this in it; may be repeated.")
@click.option("--resume", is_flag=True, help="Ask only for what OUT/release.json lacks.")
@click.option("--launches", default=LAUNCHES, show_default=True, type=click.IntRange(min=1))
@click.option("--seconds", default=SECONDS, show_default=True, help="Per kernel on the device.")
@click.option("--workers", default=min(WORKERS, os.cpu_count() or 1), show_default=True)
@click.option("--device/--no-device", default=True, help="Launch kernels, where there is a GPU.")
@click.option("--sanitizers/--no-sanitizers", default=True, help="Run compute-sanitizer too.")
@click.option(
    "--sanitizer-seconds", default=SANITIZER_S, show_default=True, help="For all of them together."
)
def main(
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
    """Ask every judge about every kernel of the release family; results in OUT/release.json.

    Exit codes: 0 every judge was right, 1 one was wrong, 3 somebody had no answer.
    """
    begin = time.monotonic()
    book = Book(out / NAME, begun(out / NAME, _chosen(only), resume=resume), _facts())
    judge_on_host(book, workers)
    book.note(host_seconds=round(time.monotonic() - begin, 1))
    if device and device_present():
        _, cuda = driver.cuDriverGetVersion()
        version = f"{cuda // 1000}.{cuda % 100 // 10}"
        book.note(gpu=torch.cuda.get_device_name(), cuda_driver=version, launches=launches)
        try:
            judge_on_device(book, launches, seconds)
            book.note(device_seconds=round(time.monotonic() - begin, 1))
            if sanitizers:
                judge_by_sanitizers(book, workers, sanitizer_seconds)
        except RuntimeError as error:
            book.note(lost=str(error))
            click.echo(f"the device is lost: {error}")
    book.note(seconds=round(time.monotonic() - begin, 1))
    _print(book)
    judged_rows = list(book.rows.values())
    wrong = [(name, row) for row in judged_rows for name in JUDGES if misjudged(row, name)]
    open_ = unanswered(judged_rows)
    for name, row in wrong:
        click.echo(f"{name} is wrong about {row.key}: {words(name, row.cells[name])}; {row.says}")
    click.echo(
        f"{len(judged_rows)} kernels, {len(wrong)} wrong answers, {open_} cells without an answer; "
        f"results {out / NAME}"
    )
    sys.exit(FAILED if wrong else HARNESS if open_ else CLEAN)


def _print(book: Book) -> None:
    table = Table("kernel", *JUDGES)
    for row in book.rows.values():
        table.add_row(row.key, *(words(name, row.cells.get(name)) for name in JUDGES))
    Console(width=220).print(table)


if __name__ == "__main__":
    main()
