"""Kill campaigns at random moments, resume them, and compare: `python -m fuzz.kill`.

What a resumed campaign has judged must be what one has that nobody disturbed: nothing lost, nothing
doubled, no process left over.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click
import psutil

from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import Record
from fuzz.exit_code import CLEAN, FAILED, Command

VICTIMS = ("campaign", "driver", "judge")
GONE_S = 10.0
"""Seconds in which what a dead campaign leaves behind must have ended."""


def campaign(ledger: Path, cases: int, *more: str) -> list[str]:
    """Return the command of a small campaign that ends by its number of cases."""
    words = f"-m fuzz --seconds 600 --cases {cases} --workers 2 --gpu off --no-mutants"
    words += " --oracles prover"
    return [sys.executable, *words.split(), "--ledger", str(ledger), *more]


def victim(root: psutil.Process, kind: str) -> psutil.Process | None:
    """Return a process of a campaign, if it has one of the kind by now."""
    if kind == "campaign":
        return root
    with suppress(psutil.NoSuchProcess):
        return _driver_or_judge(root, kind)
    return None


def _driver_or_judge(root: psutil.Process, kind: str) -> psutil.Process | None:
    drivers = [one for one in root.children() if "serve()" in " ".join(one.cmdline())]
    if kind == "judge":
        servers = [one for driver in drivers for one in driver.children()]
        drivers = [one for server in servers for one in server.children()]
    return drivers[0] if drivers else None


def compared(
    undisturbed: Sequence[Record], resumed: Sequence[Record], *, whole: bool
) -> Iterator[str]:
    """Say what a resumed campaign lost, doubled or judged otherwise.

    `whole` unless a judge was killed, whose case is a crash that ends its round early: then only
    cases that both have are compared.
    """
    wanted, got = _rows(undisturbed), _rows(resumed)
    for row, count in got.items():
        if count > 1:
            yield f"doubled: {' '.join(row)}"
    crashed = {row[0] for row in got if row[-1] == "error"}
    common = {row[0] for row in wanted} & {row[0] for row in got} - crashed
    for row in wanted:
        if row not in got and (whole or row[0] in common):
            yield f"lost: {' '.join(row)}"
    for row in got:
        if row not in wanted and (whole or row[0] in common):
            yield f"new: {' '.join(row)}"


def _rows(records: Sequence[Record]) -> Counter[tuple[str, ...]]:
    """Count what was said of each case, apart from how long it took."""
    return Counter(
        (r.case, r.phase, r.oracle, r.subject, r.mutant, r.status)
        for r in records
        if r.phase in ("base", "generate")
    )


def records_of(ledger: Path) -> list[Record]:
    """Return the records of the one run of a ledger."""
    with Ledger(ledger) as book:
        runs = [run for run, *_ in book.runs()]
        assert len(runs) <= 1, f"{ledger}: {runs}"
        return book.records()


def disturbed(ledger: Path, cases: int, kind: str, after: float) -> int | None:
    """Start a campaign, kill one of its processes after a time; return how many outlive it.

    None if the campaign was over before.
    """
    process = subprocess.Popen(campaign(ledger, cases), stdout=subprocess.DEVNULL)
    root, end = psutil.Process(process.pid), time.monotonic() + after
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile: another one, then
            if (one := victim(root, kind)) is not None:
                below = root.children(recursive=True)
                one.kill()
                break
        time.sleep(0.05)
    else:
        return None
    process.wait()
    _, left = psutil.wait_procs(below, timeout=GONE_S)
    return len(left)


@click.command(cls=Command)
@click.option("--campaigns", default=20, show_default=True, help="Campaigns to kill.")
@click.option("--cases", default=3, show_default=True, help="Cases of a driver, of two.")
@click.option("--seed", default=0, show_default=True, help="Of the moments and the victims.")
def main(campaigns: int, cases: int, seed: int) -> None:
    """Kill campaigns by SIGKILL at random moments, resume them, and compare what they judged."""
    draw, bad = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder, "reference", "ledger.sqlite")
        began = time.monotonic()
        subprocess.run(campaign(reference, cases), stdout=subprocess.DEVNULL, check=False)
        lasts, wanted = time.monotonic() - began, records_of(reference)
        click.echo(f"undisturbed: {len(wanted)} records in {lasts:.1f} s")
        for number in range(campaigns):
            ledger = Path(folder, str(number), "ledger.sqlite")
            kind, after = VICTIMS[number % len(VICTIMS)], draw.uniform(0, lasts)
            left = disturbed(ledger, cases, kind, after)
            found = [f"{left} processes are left over"] if left else []
            kept = len(records_of(ledger))
            again = campaign(ledger, cases, "--resume")
            done = subprocess.run(again, stdout=subprocess.DEVNULL, check=False)
            got = records_of(ledger)
            found += compared(wanted, got, whole=kind != "judge")
            bad += bool(found)
            who = "nobody" if left is None else kind
            click.echo(
                f"{number + 1}: {who} killed after {after:.1f} s, {kept} records kept, "
                f"{len(got)} after the resumed one (exit code {done.returncode}): "
                + ("; ".join(found[:3]) or "nothing lost, nothing doubled")
            )
    click.echo(f"{campaigns - bad} of {campaigns} campaigns lost nothing and doubled nothing")
    sys.exit(FAILED if bad else CLEAN)


if __name__ == "__main__":
    main(prog_name="python -m fuzz.kill")
