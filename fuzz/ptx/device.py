"""Random cases on a GPU and before the judge of PTX: what both leave in memory, bit by bit.

Cases of all schedule families in turn, as `fuzz.campaign.gpu` draws them, at launches of a few
CTAs.  Each worker has a child process with a GPU, which may crash or hang without losing more than
its case.  Every case is a line of the output as soon as it is compared.

    python -m fuzz.ptx.device --count 500 --workers 16
    CUDA_VISIBLE_DEVICES=1 python -m fuzz.ptx.device --count 500 --workers 16 --shard 1/4
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, Self

import click
import torch
from rich.console import Console
from rich.table import Table

from fuser.runtime.executable import device_present
from fuzz.bench.drawn import texts
from fuzz.campaign.child import Lost, Probed
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.gpu import PROBE, count_option, families_option, seed_option
from fuzz.cases.case import case_id
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command, worst, writing
from fuzz.ptx.bits import OUTCOMES, WRONG, Told, compare
from fuzz.ptx.hardware import Gpu

SAME = ("equal", "inside", "summed", "fused")
REASONED = ("inside", "summed", "fused", "undecided", "refused", "unsupported", "unknown")
"""Outcomes whose reasons are counted."""
LOST, BROKEN, LEFT = ("crash", "hang", "memory"), "error", "not begun"
"""What else may become of a case: its child is lost; it raises; the time is over."""
WALL_S = 60.0
"""Seconds of a case, by the clock and of CPU time."""
WORK = 60_000_000
"""What a launch may take of the judge (`oracles.ptx.machine.WORK`): four CPU seconds."""
SAID_S = 10.0
"""Seconds between two lines of progress."""
WIDE = 160
"""Columns of the table in a file or a pipe."""
AGAIN = 0.5
"""Share of cases that are drawn beyond those that are asked for: some come twice."""


def told_of(text: str, work: int = WORK) -> Told:
    """Compare the case of a text on the GPU of this process."""
    return compare(text, Gpu(), work)


class DeadError(Exception):
    """A GPU does not come back after a case."""


class Lane(Protocol):
    """What compares one case at a time."""

    def told(self, text: str) -> Told:
        """Compare a case; DeadError if no other can be."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Device(Probed[Told]):
    """The GPU and the judge in a child process."""

    def __init__(self, work: int = WORK, wall_s: float = WALL_S) -> None:
        super().__init__(partial(told_of, work=work), PROBE, _equal, limit_s=wall_s, wall_s=wall_s)

    def told(self, text: str) -> Told:
        """Compare a case; what its child has died of, or has raised, is its outcome."""
        try:
            answer = self.call(text)
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            kind = "crash" if isinstance(error, RuntimeError) else BROKEN  # CUDA's, torch's
            answer = Told(kind, f"{type(error).__name__}: {error}\n{notes}"[-3000:])
        if isinstance(answer, Lost):
            answer = Told(answer.kind, answer.reason)
        if answer.outcome in (*LOST, BROKEN):
            try:
                self.restart("a plain relu")
            except Exception as error:
                raise DeadError(f"{answer.outcome}: {answer.reason}; then {error}") from error
        return answer


def _equal(told: Told) -> bool:
    return told.outcome == "equal"


@dataclass(slots=True)
class Tally:
    """What was said of all cases."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    elements: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    launches: int = 0

    def add(self, family: str, told: Told) -> None:
        """Count a case."""
        self.outcomes[family, told.outcome] += 1
        self.elements.update(told.elements)
        self.launches += told.launches
        for part, seconds in told.seconds.items():
            self.seconds[part] += seconds  # type: ignore[assignment]  # of floats, too
        if told.outcome in REASONED:
            self.reasons[f"{told.outcome}: {told.reason.partition(': ')[2] or told.reason}"] += 1

    def count(self, *outcomes: str) -> int:
        """Return how many cases have one of these outcomes."""
        return sum(many for (_, outcome), many in self.outcomes.items() if outcome in outcomes)

    @property
    def code(self) -> int:
        """How the command ends."""
        codes = [CLEAN] if self.count(*SAME) else [HARNESS]
        codes += [FAILED] * bool(self.count(*WRONG, *LOST))
        codes += [HARNESS] * bool(self.count(BROKEN, LEFT))
        return worst(codes)

    def table(self) -> Table:
        """Return families and outcomes."""
        names = [one for one in (*OUTCOMES, *LOST, BROKEN, LEFT) if self.count(one)]
        out = Table("family", "cases", *names)
        met = {family for family, _ in self.outcomes}
        for family in sorted(met, key=lambda one: (*FAMILIES, one).index(one)):
            row = [self.outcomes[family, name] for name in names]
            out.add_row(family, str(sum(row)), *map(str, row))
        sums = [self.count(name) for name in names]
        out.add_row("all", str(sum(sums)), *map(str, sums))
        return out

    def lines(self) -> Iterator[str]:
        """Yield what the table does not have."""
        elements = ", ".join(f"{many:,} {name}" for name, many in self.elements.items())
        yield f"elements: {elements or 'none'}, of {self.launches} launches"
        yield "seconds: " + ", ".join(f"{s:.0f} {part}" for part, s in self.seconds.items())
        for reason, many in self.reasons.most_common(30):
            yield f"{many} {reason[:200]}"


def drawn(families: tuple[str, ...], count: int, number: int) -> list[tuple[str, str]]:
    """Draw so many different cases, families in turn; return these and the texts of the cases."""
    each = -(-count // len(families))
    rows = []
    for family in families:
        number_of = number * len(FAMILIES) + FAMILIES.index(family)
        some = texts(cases(families=(family,)), each + int(AGAIN * each), number_of)
        rows.append([(family, text) for text in some[:each]])
    longest = max(map(len, rows))
    turns = (row[n] for n in range(longest) for row in rows if n < len(row))
    return list(dict.fromkeys(turns))[:count]


class Lanes:
    """Lanes, each with one case at a time; one whose GPU does not come back takes no more."""

    def __init__(self, lanes: Sequence[Lane], end: float) -> None:
        self._free: SimpleQueue[Lane | None] = SimpleQueue()
        self._alive, self._end = len(lanes), end
        for lane in lanes:
            self._free.put(lane)

    def told(self, text: str) -> Told:
        """Compare a case by a lane that is free, if there is time."""
        lane = self._free.get()
        if lane is None or time.monotonic() > self._end:
            self._free.put(lane)
            return Told(LEFT, "no GPU is left" if lane is None else "the time is over")
        try:
            told = lane.told(text)
        except DeadError as error:
            self._alive -= 1
            if not self._alive:
                self._free.put(None)
            return Told("crash", str(error))
        self._free.put(lane)
        return told


def _part(context: click.Context, option: click.Parameter, value: str) -> tuple[int, int]:
    del context, option
    mine, _, of = value.partition("/")
    if not (mine.isdecimal() and of.isdecimal() and int(mine) < int(of)):
        raise click.BadParameter(f"{value!r}: 0/4 to 3/4 are the four parts of four")
    return int(mine), int(of)


@click.command(cls=Command)
@count_option
@seed_option
@click.option("--workers", default=16, show_default=True, help="Cases at a time.")
@click.option("--seconds", default=1e9, help="Begin none after so long.", show_default="no limit")
@families_option
@click.option(
    "--shard", default="0/1", callback=_part, show_default=True, help="I/N: every N-th case from I."
)
@click.option("--work", default=WORK, show_default=True, help="What a launch may take as PTX.")
@click.option("--wall", default=WALL_S, show_default=True, help="Seconds of a case, at most.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("reports", "out", "ptx_device.jsonl"),
    show_default=True,
    help="A line of JSON for every case, as it is compared.",
)
@click.option(
    "--case",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Only the case of a file: its text, as it is shown where something differs.",
)
def main(
    count: int,
    seed_: int,
    workers: int,
    seconds: float,
    families: tuple[str, ...],
    shard: tuple[int, int],
    work: int,
    wall: float,
    out: Path,
    file: Path | None,
) -> None:
    """Compare what random cases leave in memory on the GPU and before the judge of PTX."""
    if not device_present():
        click.echo("device: no device, 0 cases compared")
        sys.exit(HARNESS)
    start = time.monotonic()
    tally = Tally()
    with ExitStack() as stack:
        keep = stack.enter_context(_kept(out, seed_, shard, record=file is None))
        made = [stack.enter_context(Device(work, wall)) for _ in range(1 if file else workers)]
        lanes = Lanes(made, start + seconds)
        pool = stack.enter_context(ThreadPoolExecutor(len(made)))
        for _ in made:  # children start while cases are drawn
            pool.submit(lanes.told, PROBE)
        chosen = [("one case", file.read_text())] if file else drawn(families, count, seed_)
        chosen = chosen[shard[0] :: shard[1]]
        click.echo(f"{len(chosen)} cases, drawn in {time.monotonic() - start:.0f} s")
        jobs = {pool.submit(lanes.told, text): (family, text) for family, text in chosen}
        said = time.monotonic()
        for done in as_completed(jobs):
            family, text = jobs[done]
            told = done.result()
            tally.add(family, told)
            keep({"case": case_id(text), "family": family, **asdict(told), "text": text})
            if told.outcome in (*WRONG, *LOST, BROKEN) or file:
                click.echo(f"{told.outcome} {family}: {told.reason}\n{text}# {told.elements}")
            if time.monotonic() - said > SAID_S:
                said = time.monotonic()
                click.echo(_progress(tally, len(jobs), said - start))
    Console(width=WIDE).print(tally.table())
    for line in tally.lines():
        click.echo(line)
    click.echo(_progress(tally, len(jobs), time.monotonic() - start))
    sys.exit(tally.code)


@contextmanager
def _kept(
    out: Path, number: int, shard: tuple[int, int], *, record: bool
) -> Iterator[Callable[[dict[str, object]], None]]:
    """Yield what writes a line of JSON, and at once; the first says what the run was made with."""
    if not record:
        yield lambda _: None
        return
    with writing(f"device --out {out}", out, "give another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8", buffering=1) as lines:

            def keep(row: dict[str, object]) -> None:
                lines.write(json.dumps(row) + "\n")

            gpu = torch.cuda.get_device_name()
            keep({**versions(), **machine(), "gpu": gpu, "seed": number, "shard": shard})
            yield keep


def _progress(tally: Tally, every: int, seconds: float) -> str:
    wrong, lost = tally.count(*WRONG), tally.count(*LOST, BROKEN)
    done = tally.outcomes.total()
    return f"{done} of {every} cases in {seconds:.0f} s: {wrong} wrong, {lost} lost"


if __name__ == "__main__":
    main()
