"""`python -m fuzz.cases` draws as a campaign does, and says what it drew beside what it should."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from time import process_time

import click
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import seed as seeded
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fuser.errors import CompileError, FusionError, ScheduleError
from fuser.runtime.binding import bind
from fuzz.campaign.record import ENOUGH
from fuzz.cases.case import Case, compiled, specs, to_text
from fuzz.cases.features import (
    ROUND,
    WISHES,
    Coverage,
    asks,
    computes,
    has_diamond,
    has_norm,
    legal,
    live,
    plan,
)
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, Command

SHOWN = 24
"""Cells of a part of the table that are named where they were never drawn."""


@dataclass
class Distribution:
    """What was drawn, and the CPU seconds that drawing took."""

    coverage: Coverage = field(default_factory=Coverage)
    facts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    computing: list[int] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """Cases drawn."""
        return len(self.computing)

    def add(self, case: Case) -> None:
        """Look at a case, and compile it."""
        self.computing.append(sum(map(computes, live(case.fusion))))
        self.facts["diamond"] += has_diamond(case.fusion)
        self.facts["norm"] += has_norm(case.fusion)
        self.facts["asks"] += asks(case)
        try:
            found, program = plan(case), compiled(case)
            bind(program, specs(case), sms=2)
        except (FusionError, ScheduleError, CompileError) as error:
            self.refusals[str(error)] += 1
            if isinstance(error, CompileError):
                self.broken.append(to_text(case))
            return
        # By what the compiler made of it: who drops repeats does not compile.
        lengths = tuple(kernel.lengths for kernel in found.kernels)
        key = (tuple(launch.source for launch in program.launches), lengths, case.kind)
        self.facts["repeat"] += key in self.seen
        self.seen.add(key)
        sharing = [kernel for kernel in found.kernels if kernel.way != "alone"]
        self.facts["shares"] += bool(sharing)
        self.facts["tma"] += any(kernel.way == "tma" for kernel in sharing)

    def share(self, fact: str, of: str = "") -> float:
        """Return the per cent of all cases, or of those with another fact, that have a fact."""
        return 100 * self.facts[fact] / max(self.facts[of] if of else self.count, 1)

    def rows(self) -> list[tuple[str, float, str, float]]:
        """Return what is measured, how much, which way it should be, and from where on."""
        valid = 100 * (1 - self.refusals.total() / max(self.count, 1))
        return [
            ("computing operations, median", median(self.computing or [0]), ">=", 5),
            ("with a diamond, %", self.share("diamond"), ">=", 25),
            ("with a normalization pattern, %", self.share("norm"), ">=", 20),
            ("CTAs share tiles, % of those that ask", self.share("shares", "asks"), ">=", 30),
            ("of those by TMA reductions, %", self.share("tma", "shares"), ">=", 10),
            ("repeats among what is judged, %", self.share("repeat"), "<", 3),
            ("valid, %", valid, ">=", 95),
            ("legal cells never drawn", len(self.coverage.missing()), "<=", 0),
        ]


def draw(count: int, seed: int) -> Distribution:
    """Draw so many cases in rounds; each asks for what those before had least of."""
    found = Distribution()
    for number in range(-(-count // ROUND)):
        size = min(ROUND, count - number * ROUND)
        start = process_time()
        drawn = _round(found.coverage, seed * 1_000_003 + number, size)
        found.seconds += process_time() - start
        for case in track(drawn, f"round {number + 1}", transient=True):
            found.add(case)
    return found


def _round(coverage: Coverage, seed: int, size: int) -> list[Case]:
    drawn: list[Case] = []

    @seeded(seed)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=tuple(HealthCheck),
    )
    @given(cases(wishes=coverage.rarest(WISHES, seed)))
    def keep(case: Case) -> None:
        if coverage.knows(case):
            reject()
        drawn.append(case)

    keep()
    return drawn


@click.command(cls=Command)
@click.option("--count", default=2000, show_default=True, type=click.IntRange(1), help="Cases.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
def main(count: int, seed: int) -> None:
    """Draw cases as campaigns do, and compare what they are made of with the targets.

    Exit code 1 if a target is missed.
    """
    found = draw(count, seed)
    console = Console()
    table = Table(title=f"{found.count} drawn cases, seed {seed}")
    for name in ("of them", "measured", "target", ""):
        table.add_column(name, justify="left" if name in ("of them", "") else "right")
    missed = 0
    for name, value, way, target in found.rows():
        met = value >= target if way == ">=" else value <= target if way == "<=" else value < target
        missed += not met
        table.add_row(name, f"{value:.4g}", f"{way} {target:g}", "met" if met else "[red]missed[/]")
    dropped = 100 * found.coverage.repeats / (found.count + found.coverage.repeats)
    table.add_row("dropped as repeats before, % of draws", f"{dropped:.4g}", "", "")
    table.add_row("CTAs share tiles, % of all", f"{found.share('shares'):.4g}", "", "")
    milliseconds = 1e3 * found.seconds / max(found.count, 1)
    table.add_row("CPU ms to draw one", f"{milliseconds:.4g}", "", "")
    console.print(table)
    every = Counter(cell[0] for cell in legal())
    for part, many in every.items():
        left = [" ".join(cell[1:]) for cell in found.coverage.missing() if cell[0] == part]
        few = sum(cell[0] == part for cell in found.coverage.wanting())
        says = f"{part}: {many - len(left)} of {many} legal cells drawn"
        console.print(f"{says}, {few} less than {ENOUGH} times", highlight=False)
        for name in left[:SHOWN]:
            console.print(f"    never: {name}", highlight=False)
        if len(left) > SHOWN:
            console.print(f"    and {len(left) - SHOWN} more", highlight=False)
    for why, many in found.refusals.most_common(5):
        console.print(f"refused {many} times: {why}", highlight=False, markup=False)
    if found.broken:
        console.print("the compiler made an invalid kernel of:", style="red")
        console.print(min(found.broken, key=len), highlight=False, markup=False, soft_wrap=True)
    click.get_current_context().exit(FAILED if missed else CLEAN)


if __name__ == "__main__":
    main(prog_name="python -m fuzz.cases")
