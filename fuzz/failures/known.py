"""Failures that are known, and those that are fixed: `known.json` beside this file, committed.

An entry has the fields of an `Identity`, the text of its least case, whether it is fixed, and a
note for people.  Every campaign begins with these cases.  What is known is still a failure, and a
campaign that meets it is not green; but what is new is told apart.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fuzz.campaign.record import Record, failures
from fuzz.cases.case import from_text
from fuzz.exit_code import Command, writing
from fuzz.failures import script
from fuzz.failures.identity import Identity, identified
from fuzz.failures.judge import judge_failure

FILE = Path(__file__).with_name("known.json")


@dataclass(frozen=True, slots=True)
class Entry:
    """A failure that somebody has looked at; `since` and `fixed` are days, or empty."""

    identity: Identity
    case: str
    note: str = ""
    since: str = ""
    fixed: str = ""


def entries(file: Path = FILE) -> dict[str, Entry]:
    """Return what is known, by the id of the failure."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    made = [Entry(Identity(**row.pop("identity")), **row) for row in rows]
    return {entry.identity.id: entry for entry in made}


def texts(file: Path = FILE) -> dict[str, str]:
    """Return the cases by name, those that are not fixed first."""
    found = sorted(entries(file).items(), key=lambda item: bool(item[1].fixed))
    return {f"known {name}": entry.case for name, entry in found}


def status(record: Record, file: Path = FILE) -> str:
    """Say of the least case of a failure whether it is new, known, or was fixed before."""
    entry = entries(file).get(record.failure)
    if entry is None:
        return "new"
    return f"back, fixed on {entry.fixed}" if entry.fixed else f"known since {entry.since}"


def write(found: dict[str, Entry], file: Path = FILE) -> None:
    """Write entries, the oldest first, so that branches that add some merge."""
    rows = sorted(found.values(), key=lambda entry: (entry.since, entry.identity.id))
    with writing(f"known.write({str(file)!r})", file, "name another with --file"):
        text = json.dumps([asdict(entry) for entry in rows], indent=1)
        file.write_text(text + "\n", encoding="utf-8")


@click.command(cls=Command)
@click.argument("scripts", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--note", default="", help="What people should know of those that are added.")
@click.option("--fixed", metavar="ID", multiple=True, help="Mark a failure as fixed.")
@click.option(
    "--file",
    default=FILE,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where known failures are kept.",
)
def main(scripts: tuple[Path, ...], note: str, fixed: tuple[str, ...], file: Path) -> None:
    """Add the failures of SCRIPTS, which must still fail, to those known; show them all."""
    found, today = entries(file), datetime.now(UTC).date().isoformat()
    for path in scripts:
        try:
            text = script.read(path).text
        except ValueError as error:
            raise click.UsageError(f"{path}: {error}") from error
        bad = failures(judge_failure(text))
        if not bad:
            raise click.UsageError(f"{path}: the judges find nothing wrong; it is fixed already")
        identity = identified(bad[0], from_text(text))
        found[identity.id] = Entry(identity, text, note, since=today)
    for name in fixed:
        if name not in found:
            raise click.UsageError(
                f"--fixed {name}: not known; one of {', '.join(found) or 'none'}"
            )
        found[name] = replace(found[name], fixed=today)
    if scripts or fixed:
        write(found, file)
    table = Table("id", "oracle", "symptom", "scheduler", "operators", "types", "state", "note")
    for name, entry in found.items():
        oracle, symptom, scheduler, _, operators, types = astuple(entry.identity)
        state = f"fixed {entry.fixed}" if entry.fixed else f"known {entry.since}"
        table.add_row(name, oracle, symptom, scheduler, operators, types, state, entry.note)
    Console().print(table if found else "no failure is known")


if __name__ == "__main__":
    main()
