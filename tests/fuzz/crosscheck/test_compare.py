"""Two runs compared: order and time may differ, verdicts may not."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fuzz.crosscheck.compare import main
from fuzz.crosscheck.judge import Answer, Bucket, Outcome
from fuzz.exit_code import FAILED, HARNESS

PASS = Answer("pass", reason="3 launches", seconds=2.0)
FAIL = Answer("fail", ("RAW",), "error: RAW", 1.0)
SAFE = Outcome("old 0 1", "ring", (), (), Bucket.SAFE, PASS, PASS)
UNSAFE = Outcome("old 0 2", "ring", (), (), Bucket.UNSAFE, FAIL, FAIL, FAIL)


def run(folder: Path, old: list[Outcome], new: list[Outcome], *options: str) -> Result:
    """Compare two files with these results."""
    paths = []
    for name, outcomes in (("old", old), ("new", new)):
        paths.append(folder / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(asdict(one)) + "\n" for one in outcomes))
    return CliRunner().invoke(main, [*map(str, paths), *options])


def test_equal_verdicts_pass_with_the_ratio_of_times(tmp_path: Path) -> None:
    """Order, reasons and seconds may change; a subject of one run alone is no difference."""
    faster = replace(SAFE, prover=replace(PASS, seconds=1.0, reason="other words"))
    done = run(tmp_path, [SAFE, UNSAFE], [UNSAFE, faster, replace(SAFE, subject="another")])
    assert done.exit_code == 0, done.output
    assert "2 common subjects of 2 and 3, 0 differ" in done.output
    assert "prover: 3.0 s -> 2.0 s (0.67 times)" in done.output


@pytest.mark.parametrize(
    "changed",
    [
        replace(UNSAFE, bucket=Bucket.LATER),
        replace(UNSAFE, prover=PASS),
        replace(UNSAFE, explorer=replace(FAIL, kinds=("RAW", "WAR"))),
        replace(UNSAFE, simulator=None),
    ],
)
def test_another_verdict_of_any_judge_fails(tmp_path: Path, changed: Outcome) -> None:
    """And names the subject with both verdicts."""
    done = run(tmp_path, [SAFE, UNSAFE], [SAFE, changed])
    assert done.exit_code == FAILED
    assert "old 0 2: ('agree: unsafe', 'fail RAW'" in done.output
    assert "2 common subjects of 2 and 2, 1 differ" in done.output


def test_renamed_subjects_are_found_again(tmp_path: Path) -> None:
    """Nothing in common is no agreement."""
    new = [replace(SAFE, subject="template 0 1")]
    assert run(tmp_path, [SAFE], new).exit_code == HARNESS
    assert run(tmp_path, [SAFE], new, "--rename", "old=template").exit_code == 0
    assert "give OLD=NEW" in run(tmp_path, [SAFE], new, "--rename", "old").output
