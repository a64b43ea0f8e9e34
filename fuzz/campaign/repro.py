"""Failing cases as scripts that run alone: write one, replay one, look at one.

A script holds the versions in comments, the case as Python, and a last line that judges it:
exit code 1 if the failure is still there, 0 if it is gone, 3 if the case is not judged any more.
The command reads it as data (`fuzz.failures.script`) and says what it will run.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import fuser
from fuser.runtime.executable import device_present
from fuzz import exit_code
from fuzz.campaign import gpu
from fuzz.campaign.child import LIMIT_S, Child, Lost
from fuzz.campaign.environment import versions
from fuzz.campaign.judge import CPU_ORACLES
from fuzz.campaign.ledger import ledger_option
from fuzz.campaign.record import FAILED, Record, failures
from fuzz.cases.case import Case, case_id, from_text, to_text
from fuzz.exit_code import CLEAN, HARNESS, Command, worst, writing
from fuzz.failures import bisect, script
from fuzz.failures.judge import LEAST, judge_text
from fuzz.failures.picture import pictures
from oracles import lanes
from oracles.witness import loads

FOLDER = Path("reports", "out", "repros")
"""Where a campaign writes scripts."""


def write(record: Record, text: str, *, folder: Path = FOLDER) -> Path:
    """Write the script of a failure, with the text of its case, and return its path."""
    words = re.sub(r"[^a-z0-9]+", "_", f"{record.oracle} {record.kind or record.status}".lower())
    path = folder / f"{words.strip('_')}_{case_id(text)}.py"
    with writing(f"repro.write({str(path)!r})", path, "name another place with --ledger"):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(written(record, text), encoding="utf-8")
    return path


def written(record: Record, text: str) -> str:
    """Return the script of a failure."""
    facts = ", ".join(f"{name} {value}" for name, value in versions().items())
    lines = [record.subject, *record.reason.splitlines()[:12]]
    said = "\n".join(f"# {line}" for line in lines)
    return f'''"""{record.oracle}: {record.kind or record.status}, {record.family}."""

# {facts}
{said}

{text}

from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="{record.oracle}")
'''


def judged(case: Case, oracle: str = "") -> list[Record] | Lost:
    """Judge a case again in a child, by an oracle, or all that need no GPU where none is named.

    Returns what they say, and why the case is not built, where that is so.  Without a device `gpu`
    says nothing.
    """
    text = to_text(case)
    if oracle == "gpu":
        if not device_present():
            print("gpu: no device")
            return []
        with Child(gpu.judge_case, wall_s=gpu.WALL_S, spawn=True) as device:
            answer = device.call(text)
    else:
        with Child(judge_text, limit_s=LIMIT_S) as child:
            answer = child.call(f"{LEAST}{', '.join(CPU_ORACLES)}\n{text}")
    if isinstance(answer, Lost):
        return answer
    unbuilt = [r for r in answer if r.oracle == "build" and r.status != "pass"]
    return [r for r in answer if oracle in ("", r.oracle) or r in unbuilt]


def outcome(answer: list[Record] | Lost) -> int:
    """Return the exit code for what was said of a case; only what passes is fixed."""
    if isinstance(answer, Lost):
        return exit_code.FAILED
    said = {record.status for record in answer}
    if said.intersection(FAILED):
        return exit_code.FAILED
    return CLEAN if said == {"pass"} else HARNESS


def replay(*cases: Case, oracle: str = "") -> NoReturn:
    """Judge cases by an oracle, or all that need no GPU, say what comes out, and exit."""
    sys.exit(shown(cases, oracle, Console(soft_wrap=True, highlight=False)))


def shown(
    cases: Sequence[Case],
    oracle: str,
    console: Console,
    *,
    pictured: bool = False,
    bisected: bool = False,
) -> int:
    """Judge cases, print what comes out, and return the exit code.

    Where it is `pictured`, with the fusion, the kernel's text, its witness, and where values are
    wrong; `bisected`, with the pass that the failure comes from.
    """
    codes = []
    for case in cases:
        console.print(_announced(case, oracle), markup=False)
        try:
            answer = judged(case, oracle)
        except Exception:  # 1 is Python's own exit code here, and would read as a failure
            traceback.print_exc()
            codes.append(HARNESS)
            continue
        codes.append(outcome(answer))
        if isinstance(answer, Lost):
            console.print(f"{answer.kind}: {answer.reason}", markup=False)
            continue
        for record in answer:
            if record.status != "pass":
                where = f"({record.family}, {record.subject})"
                reason = record.reason.splitlines()[0] if pictured else record.reason
                says = f"{record.oracle}: {record.status} {record.kind} {where}\n{reason}"
                console.print(says, markup=False)
        if bad := failures(answer):
            if pictured:
                _draw(case, bad, console)
            if bisected:
                _bisect(case, bad, console)
    ends = {CLEAN: "fixed", exit_code.FAILED: "still fails", HARNESS: "not judged any more"}
    code = worst(codes)
    console.print(f"{oracle or 'all'}: {ends[code]}")
    return code


def _announced(case: Case, oracle: str) -> str:
    """Say what is about to run, and of which compiler."""
    ops = " ".join(tv.op for tv in case.fusion.tensors if tv.op != "input")
    asked = oracle or ", ".join(CPU_ORACLES)
    where = Path(fuser.__file__).parent
    return f"case {case_id(to_text(case))} ({ops}; {case.params.family}): {asked}; of {where}"


def _draw(case: Case, bad: list[Record], console: Console) -> None:
    """Print the fusion, the kernel with the lines of the finding, its witness, and wrong values."""
    first = bad[0]
    console.print(f"\n{case.fusion}\n{case.params}\n", markup=False)
    marked = set(map(int, first.lines.split()))
    lines = first.kernel.splitlines()
    # PTX begins with what the compiler left of constants.
    begin = next((n for n, line in enumerate(lines, 1) if ".entry" in line), 1)
    for number, line in enumerate(lines[begin - 1 :], begin):
        console.print(Text(f"{number:>4}  {line}", style="red" if number in marked else ""))
    if first.witness:
        console.print(Text("\n" + lanes.text(loads(first.witness), width=max(console.width, 60))))
    if any(record.kind == "value" and record.oracle != "ptx" for record in bad):
        for picture in pictures(case):
            console.print(picture)


def _bisect(case: Case, bad: list[Record], console: Console) -> None:
    """Print what the prover says after each pass, and since which it says so."""
    first = next((r for r in bad if r.oracle in ("prover", "simulator") and r.kernel), None)
    if first is None:
        console.print(f"bisect: {bad[0].oracle} fails, and passes derive syncs alone: not a pass")
        return
    found = bisect.stages(case, first)
    table = Table("after", "the prover says")
    for stage in found:
        table.add_row(stage.name, stage.says)
    console.print(table)
    console.print(f"bisect: since {bisect.culprit(found)}")


def _of_ledger(ledger: Path, name: str) -> Case:
    """Return the case of a ledger whose id begins so; UsageError if there is not one of them."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as book:
        rows = book.execute('SELECT text FROM cases WHERE "case" GLOB ?', (f"{name}*",)).fetchall()
    if len(rows) != 1:
        raise click.UsageError(f"--case {name}: {len(rows)} cases of {ledger} begin so; name one")
    return from_text(rows[0][0])


@click.command(cls=Command)
@click.argument("scripts", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--case", "cases", multiple=True, metavar="ID", help="A case of the ledger; or more.")
@ledger_option("Where --case looks.")
@click.option("--bisect", "bisected", is_flag=True, help="Name the pass that a failure is of.")
def main(scripts: tuple[Path, ...], cases: tuple[str, ...], ledger: Path, bisected: bool) -> None:
    """Replay SCRIPTS, or cases of a ledger, before all oracles; exit with 1 if one still fails.

    Shows of what fails the kernel, the witness, and which tiles and elements are wrong.
    """
    if not scripts and not cases:
        raise click.UsageError("nothing to replay; name a script of a campaign, or --case ID")
    if cases and not ledger.exists():
        raise click.UsageError(f"--ledger {ledger}: there is none; run a campaign first")
    found: list[tuple[str, tuple[Case, ...], str]] = []
    for path in scripts:
        try:
            one = script.read(path)
        except ValueError as error:
            why = f"{path}: {error}; name a script that a campaign wrote"
            raise click.UsageError(why) from error
        except Exception as error:  # of an API that has changed since
            click.echo(f"{path}: {type(error).__name__}: {error}: not judged any more", err=True)
            found.append((str(path), (), ""))
        else:
            found.append((str(path), one.cases, "gpu" if one.oracle == "gpu" else ""))
    found += [(f"case {name}", (_of_ledger(ledger, name),), "") for name in cases]
    codes = []
    console = Console(soft_wrap=True, highlight=False)
    for name, some, oracle in found:
        console.print(f"{name}:", markup=False)
        codes.append(
            shown(some, oracle, console, pictured=True, bisected=bisected) if some else HARNESS
        )
    sys.exit(worst(codes))


if __name__ == "__main__":
    main()
