"""Random cases under memcheck: what a report, a lost process and no device come to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from fuzz import memcheck
from fuzz.exit_code import CLEAN, FAILED, HARNESS
from fuzz.semaphores.record import Cell
from fuzz.semaphores.sanitizers import find


def test_without_a_device_nothing_is_run() -> None:
    """Which is no pass."""
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    said = CliRunner().invoke(memcheck.main, ["--count", "1"])
    assert said.exit_code == HARNESS
    assert "0 cases run" in said.output


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [("silent", CLEAN, "pass"), ("detected", FAILED, "reported"), ("unknown", HARNESS, "lost")],
)
def test_a_report_is_looked_for_case_by_case(
    status: str, code: int, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One case of many is blamed, the others pass; a process that is lost is not a pass."""
    asked: list[int] = []

    def watched(program: Path, group: Sequence[str]) -> tuple[Cell, list[str]]:
        asked.append(len(group))
        wrong = "bad" in group and status != "silent"
        cell = Cell(status, "Invalid __global__ read", 1, 1) if wrong else Cell("silent", "", 0, 1)
        return cell, [] if wrong else ["pass"] * len(group)

    monkeypatch.setattr(memcheck, "watched", watched)
    monkeypatch.setattr(memcheck, "find", lambda: Path("compute-sanitizer"))
    monkeypatch.setattr(memcheck, "device_present", lambda: True)
    monkeypatch.setattr(memcheck, "texts", lambda *_: ("good", "bad", "right"))
    said = CliRunner().invoke(memcheck.main, [])
    assert said.exit_code == code, said.output
    assert word in said.output
    assert asked == ([3] if status == "silent" else [3, 1, 1, 1])


@pytest.mark.gpu
def test_memory_ends_with_the_last_word() -> None:
    """Of a row of three 16-bit numbers, 2 elements off alignment, 16 bytes; of none, nothing."""
    one = memcheck.tensor((3,), (1,), torch.bfloat16, 2)
    assert one.untyped_storage().nbytes() == 16
    assert memcheck.tensor((0, 3), (3, 1), torch.float32).untyped_storage().nbytes() == 0


@pytest.mark.gpu
def test_right_cases_are_silent() -> None:
    """A few of them, where compute-sanitizer is there."""
    if find() is None:
        pytest.skip("no compute-sanitizer")
    said = CliRunner().invoke(memcheck.main, ["--count", "4", "--workers", "1"])
    assert said.exit_code == CLEAN, said.output
