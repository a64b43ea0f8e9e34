"""A night asks every harness, and its summary hides nothing."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz import nightly
from fuzz.exit_code import CLEAN, FAILED, HARNESS, USAGE
from fuzz.nightly import Stage, main, stages


def test_a_night_ends_with_retention_and_the_report() -> None:
    """Each stage is a command of its own; no stage needs a GPU where there is none."""
    names = [stage.name for stage in stages(60.0, 1, Path("ledger.sqlite"), 30.0)]
    assert names[:3] == ["crosscheck", "crosscheck, wide", "campaign"]
    assert names[-2:] == ["retention", "report"]


@pytest.mark.parametrize(
    ("codes", "code"), [((0, 0), CLEAN), ((3, 1, 0), FAILED), ((0, 3), HARNESS), ((-9,), HARNESS)]
)
def test_the_worst_stage_counts_and_stops_none(
    codes: tuple[int, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A red morning says which, and what the others found."""
    planned = [Stage(f"stage{n}", (str(said),)) for n, said in enumerate(codes)]
    monkeypatch.setattr(nightly, "stages", lambda *_: planned)
    monkeypatch.setattr(nightly, "_ended", lambda words: max(int(words[-1]), -1) % 4)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == code
    assert all(stage.name in done.stdout for stage in planned)


def test_a_command_that_dies_has_judged_nothing() -> None:
    """Its exit code is none of the table."""
    assert nightly._ended([sys.executable, "-c", "import os; os.abort()"]) == HARNESS


def test_an_unknown_stage_is_wrong_usage() -> None:
    """With the names that there are."""
    done = CliRunner().invoke(main, ["--only", "campain"])
    assert done.exit_code == USAGE
    assert "pick from crosscheck, crosscheck, wide, campaign" in done.stderr
