"""A repro is data first: what is no part of a case is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from records import record

from fuzz.campaign.mutants import representative
from fuzz.campaign.repro import written
from fuzz.cases.case import to_text
from fuzz.failures.script import read

TEXT = to_text(representative("direct/tma"))
SCRIPT = written(record("x"), TEXT)
ROOT = Path(__file__).parents[3]


def test_the_cases_of_every_script_of_ours_are_read() -> None:
    """Those that campaigns write, and those that stay in the tests, some of several cases."""
    scripts = [read(path) for path in sorted((ROOT / "tests" / "repros").glob("*.py"))]
    assert max(len(one.cases) for one in scripts) > 1


def test_a_script_of_a_campaign_says_its_oracle(tmp_path: Path) -> None:
    """And its case, text for text."""
    path = tmp_path / "some.py"
    path.write_text(SCRIPT)
    assert (read(path).text, read(path).oracle) == (TEXT, "prover")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("import os", "Import is no part of a case"),
        ("from fuser.runtime.executable import Executable", "imports fuser.runtime.executable"),
        ("from fuzz.cases.case import from_text", "imports fuzz.cases.case.from_text"),
        ("open('mark', 'w')", "calls open"),
        ("fd.__class__", "__class__ is hidden"),
        ("(lambda: 0)()", "calls what is no name"),
        ("def replay(): pass", "FunctionDef is no part of a case"),
        ("[].append[0]", "Subscript is no part of a case"),
    ],
)
def test_what_is_no_case_is_refused(line: str, says: str, tmp_path: Path) -> None:
    """With its line."""
    path = tmp_path / "some.py"
    path.write_text(f"{line}\n{SCRIPT}")
    with pytest.raises(ValueError, match=f"line 1: {says}"):
        read(path)


@pytest.mark.parametrize("text", ["if", "\0", TEXT])
def test_what_replays_nothing_is_no_repro(text: str, tmp_path: Path) -> None:
    """Nor is what is no Python."""
    path = tmp_path / "some.py"
    path.write_text(text)
    with pytest.raises(ValueError, match="SyntaxError|null bytes|not exactly once"):
        read(path)
