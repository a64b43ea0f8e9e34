"""Launches of the release family: right numbers of CTAs here, right values on a device."""

from __future__ import annotations

import json

import pytest
import torch

from fuzz.semaphores.family import BASES, member
from fuzz.semaphores.launches import Trial, asked, judge, main, sources
from fuzz.semaphores.operands import SHAPES
from fuzz.semaphores.sanitizers import DONE


def test_a_member_has_two_texts() -> None:
    """With delays and without."""
    plain, late = sources("split_k/control")
    assert "delay::" not in plain
    assert "delay::sleep" in late


def test_a_request_is_a_line() -> None:
    """A child takes one string."""
    assert json.loads(asked("k", delays=True, launches=3, seconds=2.0)) == ["k", True, 3, 2.0]


@pytest.mark.gpu
@pytest.mark.parametrize("delays", [False, True])
@pytest.mark.parametrize("base", BASES)
def test_the_control_is_right(base: str, delays: bool) -> None:
    """Every launch, on the semaphores that the one before has left."""
    tried = judge(asked(f"{base}/control", delays=delays, launches=80, seconds=10.0))
    assert tried.cell.status == "silent", tried
    assert tried.cell.of == 80


@pytest.mark.gpu
def test_a_sum_that_counts_a_tile_many_times_is_seen() -> None:
    """The comparison is awake."""
    trial = Trial(
        member("split_k_tma/issued-by-a-whole-warp"), SHAPES["split_k_tma"][0], delays=False
    )
    trial.launch(0)
    torch.cuda.synchronize()
    assert trial.wrong() == 1


@pytest.mark.gpu
def test_the_launcher_says_that_it_has_launched(capsys: pytest.CaptureFixture[str]) -> None:
    """A sanitizer's summary alone does not."""
    assert main(["split_k/control"]) == 0
    assert capsys.readouterr().out == f'{DONE} {{"launches": 1, "wrong": 0}}\n'
