"""`python -m fuzz.bench.sensitivity` injects value faults into drawn cases and asks who notices."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fuzz.bench.drawn import texts
from fuzz.bench.sensitivity.faults import KINDS
from fuzz.bench.sensitivity.measure import MAKERS, Tally, measure
from fuzz.bench.sensitivity.rules import OURS, RULES
from fuzz.cases.case import from_text
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command

TARGET = 98.0
"""Per cent of the injected faults that the oracle is to detect; undecided ones count against it."""


def drawn(count: int, seed: int) -> tuple[str, ...]:
    """Return the texts of so many different cases: as campaigns draw them, by rounds."""
    found: dict[str, None] = {}
    turn = 0
    while len(found) < count:
        more = texts(cases(), max(count - len(found), 8), seed * 1_000_003 + turn)
        found |= dict.fromkeys(more)
        turn += 1
    return tuple(found)[:count]


def detected(tally: Tally) -> Table:
    """Return a line for each kind of fault, and one for all."""
    out = Table("fault", title="value faults: injected, and who detects them")
    for words in ("injected", OURS, "of them", "undecided", "missed"):
        out.add_column(words, justify="right")
    peers = [name for name in RULES if name != OURS]
    for name in peers:
        out.add_column(name, justify="right")
        out.add_column("of them", justify="right")
    for kind in KINDS:
        by = {name: tally.detected[kind, name] for name in RULES}
        out.add_row(kind, *_cells(tally.injected[kind], by, tally.undecided[kind], peers))
    every = {name: sum(tally.detected[kind, name] for kind in KINDS) for name in RULES}
    cells = _cells(tally.injected.total(), every, tally.undecided.total(), peers)
    out.add_row("all", *cells, style="bold")
    return out


def alarms(tally: Tally) -> Table:
    """Return a line for each maker of right outputs: how many, and who calls some of them wrong."""
    out = Table("right outputs", title="false alarms")
    for words in ("number", *RULES, "undecided"):
        out.add_column(words, justify="right")
    for maker in MAKERS:
        by = (str(tally.alarms[maker, name]) for name in RULES)
        out.add_row(maker, str(tally.right[maker]), *by, str(tally.open[maker]))
    return out


def share(tally: Tally) -> float:
    """Return how many per cent of the faults the oracle detects; 0 of none."""
    found = sum(tally.detected[kind, OURS] for kind in KINDS)
    return _percent(found, tally.injected.total())


def _cells(injected: int, by: Mapping[str, int], undecided: int, peers: Iterable[str]) -> list[str]:
    def both(found: int) -> list[str]:
        return [str(found), f"{_percent(found, injected):.1f} %" if injected else "-"]

    missed = injected - by[OURS] - undecided
    cells = [str(injected), *both(by[OURS]), str(undecided), str(missed)]
    for name in peers:
        cells += both(by[name])
    return cells


def _percent(some: int, many: int) -> float:
    return 100 * some / many if many else 0.0


@click.command(cls=Command)
@click.option("--count", default=300, show_default=True, help="Cases to draw.")
@click.option("--seed", default=1, show_default=True, help="Seed of the draw.")
@click.option("--target", default=TARGET, show_default=True, help="Per cent that are enough.")
@click.option("--missed", default=12, show_default=True, help="Missed faults that are printed.")
@click.option("--no-kernels", is_flag=True, help="Simulate no compiled kernels for right outputs.")
@click.option("--write", type=click.Path(path_type=Path), help="Write cases and misses as JSON.")
def main(
    count: int, seed: int, target: float, missed: int, *, no_kernels: bool, write: Path | None
) -> None:
    """Inject value faults into drawn cases; ask the oracle, torch's defaults and nvFuser's rule."""
    console = Console(width=132)
    torch.set_num_threads(1)
    tally = Tally()
    every = drawn(count, seed)
    shown = track(
        every, "injecting", console=console, transient=True, disable=not console.is_terminal
    )
    for number, text in enumerate(shown):
        measure(number, from_text(text), tally, simulated=not no_kernels)
    console.print(detected(tally))
    console.print(alarms(tally))
    for number, maker in tally.disputed:
        console.print(f"case {number}: the oracle calls the outputs of {maker!r} wrong")
    for fault in tally.missed[:missed]:
        console.print(str(fault), markup=False, highlight=False, soft_wrap=True)
    if len(tally.missed) > missed:
        console.print(f"and {len(tally.missed) - missed} more, with --missed or --write")
    if write is not None:
        found = {"cases": every, "missed": [asdict(fault) for fault in tally.missed]}
        write.write_text(json.dumps(found), encoding="utf-8")
    if not tally.injected:
        console.print(f"no fault could be injected into {len(every)} cases; draw more by --count")
        sys.exit(HARNESS)
    false = sum(tally.alarms[maker, OURS] for maker in MAKERS)
    console.print(
        f"{share(tally):.2f} % of {tally.injected.total()} faults detected, at least {target:g} % "
        f"are to be; {false} false alarms, none is to be"
    )
    sys.exit(FAILED if share(tally) < target or false else CLEAN)


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench.sensitivity")
