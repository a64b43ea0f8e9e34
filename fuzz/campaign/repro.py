"""Failing cases as scripts that run alone: write one, replay one.

A script holds the versions in comments, the case as Python, and a last line that judges it:
exit code 1 if the failure is still there, 0 if it is gone, 3 if the case is not judged any more.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import click

from fuser.runtime.executable import device_present
from fuzz import exit_code
from fuzz.campaign import gpu
from fuzz.campaign.child import LIMIT_S, Child, Lost
from fuzz.campaign.environment import versions
from fuzz.campaign.judge import CPU_ORACLES, judge_text, request
from fuzz.campaign.record import Record
from fuzz.cases.case import Case, case_id, to_text
from fuzz.exit_code import CLEAN, HARNESS, WORST_FIRST, Command, worst, writing

FOLDER = Path("reports", "out", "repros")
"""Where a campaign writes scripts."""
FAILED = ("fail", "error")
"""Statuses that are failures."""


def write(record: Record, text: str, *, folder: Path = FOLDER) -> Path:
    """Write the script of a failure, with the text of its case, and return its path."""
    words = re.sub(r"[^a-z0-9]+", "_", f"{record.oracle} {record.kind or record.status}".lower())
    path = folder / f"{words.strip('_')}_{case_id(text)}.py"
    with writing(f"repro.write({str(path)!r})", path, "name another place with --ledger"):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(script(record, text), encoding="utf-8")
    return path


def script(record: Record, text: str) -> str:
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
            answer = child.call(request(text, CPU_ORACLES))
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
    codes = []
    for case in cases:
        try:
            answer = judged(case, oracle)
        except Exception:  # 1 is Python's own exit code here, and would read as a failure
            traceback.print_exc()
            codes.append(HARNESS)
            continue
        codes.append(outcome(answer))
        if isinstance(answer, Lost):
            print(f"{answer.kind}: {answer.reason}")
            continue
        for record in answer:
            if record.status != "pass":
                where = f"({record.family}, {record.subject})"
                print(f"{record.oracle}: {record.status} {record.kind} {where}\n{record.reason}")
    ends = {CLEAN: "fixed", exit_code.FAILED: "still fails", HARNESS: "not judged any more"}
    code = worst(codes)
    print(f"{oracle or 'all'}: {ends[code]}")
    sys.exit(code)


def unfit(path: Path) -> str:
    """Say why a script is no repro: its last line must call `replay`; empty if it is one."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    given = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "fuzz.campaign.repro"
        for alias in node.names
    }
    return "" if "replay" in called & given else "it never calls fuzz.campaign.repro.replay"


def replayed(path: Path) -> int:
    """Run a script and return its exit code; one that does not reach its end judged nothing."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return end.code if end.code in WORST_FIRST else HARNESS
    except Exception:
        traceback.print_exc()
    return HARNESS


@click.command(cls=Command)
@click.argument(
    "scripts", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def main(scripts: tuple[Path, ...]) -> None:
    """Replay SCRIPTS, as a campaign writes them; exit with 1 if one of them still fails."""
    for path in scripts:
        if why := unfit(path):
            raise click.UsageError(f"{path}: {why}; name a script that a campaign wrote")
    codes = []
    for path in scripts:
        click.echo(f"{path}:")
        codes.append(replayed(path))
    sys.exit(worst(codes))


if __name__ == "__main__":
    main()
