"""Drawn cases before the judge of PTX: what it says of them, what it does not model, its time."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from statistics import median, quantiles

import click
from rich.console import Console
from rich.table import Table

from fuser.errors import ScheduleError
from fuser.pipeline import Program
from fuser.runtime.nvrtc import compile_ptx
from fuzz.bench.drawn import texts
from fuzz.cases.calls import others
from fuzz.cases.case import Case, compiled, from_text, to_text
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, Command
from fuzz.ptx.cases import judge_case
from oracles.verdict import Status


@dataclass(slots=True)
class Tally:
    """What was said of cases and their other calls: answers, what is not modelled, seconds."""

    answers: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    launches: int = 0
    failed: bool = False

    def judge(self, text: str, orders: range, calls: int) -> None:
        """Judge a case and other calls of its program, each under every order.

        A case that the compiler refuses is counted as such.
        """
        case = from_text(text)
        try:
            program = compiled(case)
        except ScheduleError:
            self.answers["refused by the compiler"] += 1
            return
        for launch in program.launches:
            compile_ptx(launch.source)  # cached, so that its time is not the judge's
        for call in (case, *islice(others(case, program), calls)):
            for order in orders:
                self._judged(call, program, order)

    def _judged(self, case: Case, program: Program, order: int) -> None:
        start = time.process_time()
        judged = judge_case(case, program=program, seed=order)
        self.seconds.append(time.process_time() - start)
        self.answers[judged.status.value] += 1
        self.launches += len(judged.reached)
        for one in judged.kernels:
            if one.status is Status.UNSUPPORTED:
                self.missing.update(one.reason.split(", "))
            elif one.status is Status.UNKNOWN:
                self.reasons[f"a kernel: {one.reason}"] += 1
        if judged.status is Status.UNKNOWN and judged.values.status is Status.UNKNOWN:
            _, _, why = judged.values.reason.rpartition(") ")  # without how many they are
            self.reasons[f"values: {why}"] += 1
        if judged.status is Status.FAIL:
            self.failed = True
            bad = next(one for one in (*judged.kernels, judged.values) if one.status is Status.FAIL)
            print(f"{bad}\n# order {order}\n{to_text(case)}", flush=True)

    def table(self) -> Table:
        """Return the answers and the times as a table."""
        out = Table("what", "count")
        for name, many in self.answers.most_common():
            out.add_row(name, str(many))
        out.add_row("launches executed", str(self.launches))
        for name, many in self.missing.most_common():
            out.add_row(f"not modelled: {name}", str(many))
        for name, many in self.reasons.most_common():
            out.add_row(f"unknown, {name}", str(many))
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
@click.option("--orders", default=1, show_default=True, help="So many of them, from --order on.")
@click.option("--calls", default=0, show_default=True, help="Other calls of each program, at most.")
def main(count: int, seed: int, order: int, orders: int, calls: int) -> None:
    """Judge drawn cases by their PTX; exit code 1 if one fails."""
    tally = Tally()
    for text in texts(cases(), count, seed):
        tally.judge(text, range(order, order + orders), calls)
    Console(width=100).print(tally.table())
    sys.exit(FAILED if tally.failed else CLEAN)


if __name__ == "__main__":
    main()
