"""Kernels of a file on a device: who is asked, what comes of it; on a GPU, right and wrong ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from fuzz.exit_code import FAILED, HARNESS
from fuzz.run import main, run
from oracles.cli.launching import Asked
from oracles.verdict import Finding, Status, Verdict

FILE = "tests/expected.py"


def fine(asked: str) -> Verdict:
    """A device on which all is right."""
    return Verdict("gpu", Status.PASS, len(json.loads(asked)))


def sick(asked: str) -> Verdict:
    """A device that raises for one kernel, and answers with a finding for another."""
    if "doubled" in asked:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return Verdict("gpu", Status.FAIL, 1, (Finding("value", "output Y", asked),))


def hangs(asked: str) -> Verdict:
    """A device that does not answer."""
    time.sleep(60)
    return fine(asked)


class Here:
    """A child that is this process."""

    def __init__(self, work: Callable[[str], Verdict], **limits: object) -> None:
        self.call = work

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process."""
    monkeypatch.setattr("fuzz.run.Child", Here)


@pytest.mark.usefixtures("here")
def test_every_launch_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other; not where a tensor has no elements."""
    statuses = run(f"{FILE}:doubled", Asked(), 2, fine)
    assert len(statuses) >= 3
    assert set(statuses) == {Status.PASS}
    said = capsys.readouterr().out
    assert "doubled  --grid 1 --set n=3" in said
    assert "--set n=0" not in said


def test_a_kernel_of_which_nothing_is_expected_is_not_launched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unsupported is no pass."""
    assert run("tests/kernels.py:direct", Asked(), 1, sick) == [Status.UNSUPPORTED]
    assert "write @expect above its function" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_an_error_of_the_device_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Like a wrong value; no further launch is asked for."""
    assert run(f"{FILE}:doubled", Asked(), 1, sick) == [Status.FAIL]
    assert run(f"{FILE}:copied", Asked(1, ("n=2",)), 1, sick) == [Status.FAIL]
    said = capsys.readouterr().out
    assert "error: crash" in said
    assert '[[1, {"n": 2}]], 1]' in said


def test_a_hang_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is ended at its limit."""
    monkeypatch.setattr("fuzz.run.LIMIT_S", 1.0)
    assert run(f"{FILE}:copied", Asked(1, ("n=2",)), 1, hangs) == [Status.FAIL]
    assert "error: hang" in capsys.readouterr().out


def test_without_a_device_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is no pass."""
    monkeypatch.setattr("fuzz.run.device_present", lambda: False)
    result = CliRunner().invoke(main, [f"{FILE}:copied"])
    assert result.exit_code == HARNESS
    assert "no CUDA device" in result.output


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["copied", "product", "doubled", "summed", "two_outputs"])
def test_a_right_kernel_passes(name: str) -> None:
    """On its default launches."""
    result = CliRunner().invoke(main, [f"{FILE}:{name}"])
    assert result.exit_code == 0, result.output


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["copied_from_the_next_tile", "product_of_the_last_step", "summed_without_those_before"]
)
def test_a_wrong_kernel_is_caught(name: str) -> None:
    """By its values."""
    result = CliRunner().invoke(main, [f"{FILE}:{name}"])
    assert result.exit_code == FAILED, result.output
    assert "error: value" in result.output
