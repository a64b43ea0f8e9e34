"""Two runs of the crosscheck, subject by subject: the same verdicts, in how much time.

`python -m fuzz.crosscheck.compare OLD.jsonl NEW.jsonl` reads the `results.jsonl` of both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from fuzz.crosscheck.judge import JUDGES, Answer, Outcome
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command

MOST = 20
"""Differences that are printed."""


def read(path: Path, renamed: Sequence[tuple[str, str]] = ()) -> dict[str, Outcome]:
    """Return the outcomes of a run by subject, parts of whose names are replaced."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        for judge in JUDGES:
            fields[judge] = fields[judge] and Answer(**fields[judge])
        name = fields["subject"]
        for old, new in renamed:
            name = name.replace(old, new)
        found[name] = Outcome(**fields)
    return found


def verdict(outcome: Outcome) -> tuple[str, ...]:
    """Return what must not change: the bucket, and status and kinds of every judge."""
    said: list[Answer | None] = [getattr(outcome, judge) for judge in JUDGES]
    return outcome.bucket, *(" ".join((one.status, *one.kinds)) if one else "-" for one in said)


def lines(old: dict[str, Outcome], new: dict[str, Outcome]) -> Iterator[str]:
    """Every line of the comparison."""
    common = [name for name in old if name in new]
    differ = [name for name in common if verdict(old[name]) != verdict(new[name])]
    for name in differ[:MOST]:
        yield f"{name}: {verdict(old[name])} -> {verdict(new[name])}"
    yield f"{len(common)} common subjects of {len(old)} and {len(new)}, {len(differ)} differ"
    before, after = (sum(run[name].prover.seconds for name in common) for run in (old, new))
    ratio = f" ({after / before:.2f} times)" if before else ""
    yield f"prover: {before:.1f} s -> {after:.1f} s{ratio}"


def code(old: dict[str, Outcome], new: dict[str, Outcome]) -> int:
    """Return the exit code: without a common subject nothing was compared."""
    common = old.keys() & new.keys()
    differ = any(verdict(old[name]) != verdict(new[name]) for name in common)
    return FAILED if differ else CLEAN if common else HARNESS


def _pair(
    context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise click.BadParameter(f"{' '.join(texts)}: give OLD=NEW, such as ring=tma_ring")
    return [(old, new) for old, _, new in pairs]


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@click.option(
    "--rename",
    "renamed",
    multiple=True,
    metavar="OLD=NEW",
    callback=_pair,
    help="A part of the names of the old run's subjects, and what it is called now.",
)
def main(old: Path, new: Path, renamed: Sequence[tuple[str, str]]) -> None:
    """Compare two results.jsonl: exit code 1 if a verdict differs, 3 if nothing is common."""
    before, after = read(old, renamed), read(new)
    for line in lines(before, after):
        click.echo(line)
    sys.exit(code(before, after))


if __name__ == "__main__":
    main(prog_name="python -m fuzz.crosscheck.compare")
