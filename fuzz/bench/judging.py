"""Where the CPU time of a campaign goes, on a fixed set of drawn cases, without its processes.

`python -m fuzz.bench.judging --write OLD.json`, then, of another version of the same cases,
`--against OLD.json`: CPU seconds by part, and whether any verdict has changed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fuzz.bench.drawn import texts
from fuzz.campaign.child import account, add, seldom_collected
from fuzz.campaign.judge import CPU_ORACLES, judge_text, request
from fuzz.campaign.record import Record
from fuzz.campaign.summary import rates
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, Command

MOST = 20
"""Differences that are printed."""

Answers = dict[str, tuple[str, str, int]]
"""Status, kind and what was checked, by subject: case, oracle, kernel or launch."""


@dataclass(frozen=True, slots=True)
class Run:
    """Fixed cases, what every oracle said of each, and CPU seconds by part."""

    texts: tuple[str, ...]
    answers: Answers
    seconds: dict[str, float]


def judged(fixed: Sequence[str], console: Console) -> tuple[Run, list[Record]]:
    """Judge cases in this process, as a judge child does."""
    torch.set_num_threads(1)
    judge_text(request(fixed[0], CPU_ORACLES))  # what is loaded on the way is no part of a case
    seldom_collected()
    account.close()
    records = []
    for text in track(
        fixed, "judging", console=console, transient=True, disable=not console.is_terminal
    ):
        records += judge_text(request(text, CPU_ORACLES))
    said = {f"{r.case} {r.oracle} {r.subject}": (r.status, r.kind, r.checked) for r in records}
    return Run(tuple(fixed), said, dict(account.close())), records


def table(new: Mapping[str, float], old: Mapping[str, float]) -> Table:
    """Return one line a part, and one of all; `old` of another version, or nothing."""
    out = Table("part", title="CPU seconds")
    words = ("before", "after", "times") if old else ("seconds", "share")
    for word in words:
        out.add_column(word, justify="right")
    sums = Counter({"all": sum(new.values())}), Counter({"all": sum(old.values())})
    now, before = sums[0] + Counter(new), sums[1] + Counter(old)
    for part in sorted(now | before, key=lambda part: -now[part]):
        if old:
            ratio = f"{now[part] / before[part]:.2f}" if before[part] else "-"
            out.add_row(part, f"{before[part]:.2f}", f"{now[part]:.2f}", ratio)
        else:
            out.add_row(part, f"{now[part]:.2f}", f"{now[part] / now['all']:.1%}")
    return out


def differences(new: Answers, old: Answers) -> Iterator[str]:
    """Say where two versions answer otherwise, and how many answers there are."""
    common = [subject for subject in old if subject in new]
    differ = [subject for subject in common if tuple(old[subject]) != tuple(new[subject])]
    for subject in differ[:MOST]:
        yield f"{subject}: {old[subject]} -> {new[subject]}"
    yield f"{len(common)} common answers of {len(old)} and {len(new)}, {len(differ)} differ"


@click.command(cls=Command)
@click.option("--count", default=160, show_default=True, help="Cases to draw.")
@click.option("--seed", default=7, show_default=True, help="Seed of the draw.")
@click.option("--write", type=click.Path(path_type=Path), help="Write cases, answers, times here.")
@click.option(
    "--against",
    type=click.Path(exists=True, path_type=Path),
    help="Judge the cases of this file, and compare with what it has.",
)
def main(count: int, seed: int, write: Path | None, against: Path | None) -> None:
    """Judge fixed cases in one process; say where the CPU time goes and what has changed."""
    console = Console(width=100)
    old = Run(**json.loads(against.read_text())) if against else None
    start = time.process_time()
    fixed = old.texts if old else texts(cases(), count, seed)
    drawing = 0.0 if old else time.process_time() - start
    run, records = judged(fixed, console)
    add(run.seconds, {"drawing cases": drawing} if drawing else {})
    console.print(table(run.seconds, old.seconds if old else {}))
    console.print(rates(records, sum(run.seconds.values()), "CPU second"))
    if write is not None:
        found = {"texts": run.texts, "answers": run.answers, "seconds": run.seconds}
        write.write_text(json.dumps(found), encoding="utf-8")
    lines = list(differences(run.answers, old.answers)) if old else []
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    same = not lines or lines[-1].endswith(" 0 differ")
    sys.exit(CLEAN if same else FAILED)


if __name__ == "__main__":
    main()
