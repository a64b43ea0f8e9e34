"""Failing cases as scripts that run alone: write one, replay one.

A script holds the versions in comments, the case as Python, and a last line that judges it:
exit code 1 if the failure is still there, 0 if it is gone.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import NoReturn

import click

from fuzz.campaign import gpu
from fuzz.campaign.environment import versions
from fuzz.campaign.judge import CPU_ORACLES, judge
from fuzz.campaign.record import Record
from fuzz.cases.case import Case, case_id, to_text

FOLDER = Path("reports", "out", "repros")
"""Where a campaign writes scripts."""
FAILED = ("fail", "error")
"""Statuses that are failures."""


def write(record: Record, text: str, *, folder: Path = FOLDER) -> Path:
    """Write the script of a failure and return its path.

    Parameters
    ----------
    record : Record
        What failed.
    text : str
        The text of its case.
    folder : Path
        Made where it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = re.sub(r"[^a-z0-9]+", "_", f"{record.oracle} {record.kind or record.status}".lower())
    path = folder / f"{words.strip('_')}_{case_id(text)}.py"
    path.write_text(script(record, text), encoding="utf-8")
    return path


def script(record: Record, text: str) -> str:
    """Return the script of a failure."""
    facts = ", ".join(f"{name} {value}" for name, value in versions().items())
    said = [f"# {line}" for line in record.reason.splitlines()[:12]]
    head = [
        f'"""{record.oracle}: {record.kind or record.status}, {record.family}."""',
        "",
        f"# {facts}",
        f"# {record.subject}",
        *said,
        "",
    ]
    tail = ["", "from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)", ""]
    tail += ['if __name__ == "__main__":', f'    replay(case, oracle="{record.oracle}")']
    return "\n".join([*head, text, *tail]) + "\n"


def failures(case: Case, oracle: str) -> list[Record]:
    """Judge a case again; return what still fails, of this oracle (`gpu` needs a device)."""
    records = gpu.judge_case(to_text(case)) if oracle == "gpu" else judge(case, CPU_ORACLES)
    return [r for r in records if r.status in FAILED and r.oracle == oracle]


def replay(case: Case, *, oracle: str) -> NoReturn:
    """Judge a case, say what came out, and end the process with 1 (still fails) or 0 (fixed)."""
    left = failures(case, oracle)
    for record in left:
        print(f"{record.oracle}: {record.status} {record.kind} ({record.family}, {record.subject})")
        print(record.reason)
    print(f"{oracle}: still fails" if left else f"{oracle}: fixed")
    sys.exit(1 if left else 0)


@click.command()
@click.argument(
    "scripts", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def main(scripts: tuple[Path, ...]) -> None:
    """Replay SCRIPTS; exit with 1 if one of them still fails."""
    worst = 0
    for path in scripts:
        click.echo(f"{path}:")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            worst = max(worst, end.code if isinstance(end.code, int) else 1)
    sys.exit(worst)


if __name__ == "__main__":
    main()
