"""Drawn cases before the judge of PTX: what it says of them, what it does not model, its time."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median, quantiles

import click
from rich.console import Console
from rich.table import Table

from fuser.errors import ScheduleError
from fuser.runtime.nvrtc import compile_ptx
from fuzz.bench.drawn import texts
from fuzz.cases.case import compiled, from_text
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, Command
from fuzz.ptx.cases import judge_case
from oracles.verdict import Status


@dataclass(slots=True)
class Tally:
    """What was said of cases: how often each answer, instructions not modelled, seconds."""

    answers: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def judge(self, text: str, seed: int) -> None:
        """Judge one case; one that the compiler refuses is counted as such."""
        case = from_text(text)
        try:
            program = compiled(case)
        except ScheduleError:
            self.answers["refused by the compiler"] += 1
            return
        for launch in program.launches:
            compile_ptx(launch.source)  # cached, so that its time is not the judge's
        start = time.process_time()
        judged = judge_case(case, program=program, seed=seed)
        self.seconds.append(time.process_time() - start)
        self.answers[judged.status.value] += 1
        for one in judged.kernels:
            if one.status is Status.UNSUPPORTED:
                self.missing.update(one.reason.split(", "))
        if judged.status is Status.FAIL:
            bad = next(one for one in (*judged.kernels, judged.values) if one.status is Status.FAIL)
            self.failures.append(f"{bad}\n{text}")

    def table(self) -> Table:
        """Return the answers and the times as a table."""
        out = Table("what", "count")
        for name, many in self.answers.most_common():
            out.add_row(name, str(many))
        for name, many in self.missing.most_common():
            out.add_row(f"not modelled: {name}", str(many))
        if len(self.seconds) > 1:
            out.add_row("median CPU seconds", f"{median(self.seconds):.3f}")
            out.add_row("90 % below", f"{quantiles(self.seconds, n=10)[-1]:.3f}")
            out.add_row("slowest", f"{max(self.seconds):.3f}")
        return out


@click.command(cls=Command)
@click.option(
    "--count", default=300, show_default=True, help="Cases to draw; equal ones count once."
)
@click.option("--seed", default=1, show_default=True, help="Seed of the draw.")
@click.option(
    "--order", default=0, show_default=True, help="Of engines and CTAs; 0 is late engines."
)
def main(count: int, seed: int, order: int) -> None:
    """Judge drawn cases by their PTX; exit code 1 if one fails."""
    console, tally = Console(width=100), Tally()
    for text in texts(cases(), count, seed):
        tally.judge(text, order)
    for failure in tally.failures:
        console.print(failure, markup=False, soft_wrap=True)
    console.print(tally.table())
    sys.exit(FAILED if tally.failures else CLEAN)


if __name__ == "__main__":
    main()
