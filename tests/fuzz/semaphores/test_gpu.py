"""Launches on a device: children that hang or crash cost one cell; right values, seen by itself."""

from __future__ import annotations

import json

import pytest
import torch
from fake_devices import FINE, broken, fake

from fuser.codegen import cuda
from fuzz.kernels.semaphores import BASES, semaphore_mutant
from fuzz.kernels.subjects import find
from fuzz.semaphores.gpu import Device, Trial, judge, main, request, source
from fuzz.semaphores.sanitizers import DONE
from fuzz.semaphores.workloads import workloads


def device(limit_s: float = 20.0) -> Device:
    """A runner of the fake."""
    return Device(fake, "probe", limit_s=limit_s)


def test_a_subject_has_two_texts() -> None:
    """With delays and without; rings find poison in shared memory."""
    subject = semaphore_mutant("split_k/control")
    assert source(subject, delays=False) == (cuda.source(subject.kernel), ())
    assert "delay::sleep" in source(subject, delays=True)[0]
    assert source(find("template 0 0"), delays=False)[1] == ("FUSER_POISON_SMEM",)


def test_a_request_is_a_line() -> None:
    """A child takes one string."""
    assert json.loads(request("k", delays=True, launches=3, seconds=2.0)) == ["k", True, 3, 2.0]


def test_without_expected_values_nothing_is_launched() -> None:
    """It has no answer then, which is never a pass."""
    cell = judge(request("matmul computed_ampere 0", delays=False, launches=1, seconds=1.0)).cell
    assert (cell.status, cell.says) == ("unknown", "no expected values")
    assert "values are rounded" in cell.detail


def test_whatever_a_kernel_does_the_next_one_is_judged() -> None:
    """After everything but a plain answer there is a new process."""
    one = device()
    try:
        pids = [one.ask("who").of]
        assert one.ask("plain") == FINE
        assert one.ask("who").of == pids[0]
        for request, status, says in (
            ("stuck", "detected", "hang"),
            ("crash", "unknown", "crash"),
            ("cuda", "detected", "CUDA error"),
            ("mistake", "unknown", "error"),
        ):
            cell = one.ask(request)
            assert (cell.status, cell.says) == (status, says)
            pids.append(one.ask("who").of)
        assert len(set(pids)) == len(pids)
    finally:
        one.close()


def test_a_child_that_does_not_answer_hangs() -> None:
    """At the limit, which here is short."""
    one = device(limit_s=1.5)
    try:
        cell = one.ask("hang")
        assert (cell.status, cell.says) == ("detected", "hang")
        assert cell.detail.startswith("no answer within 3 s by the clock (")
        assert one.ask("plain") == FINE
    finally:
        one.close()


def test_a_device_that_is_lost_is_not_blamed_on_the_next_kernel() -> None:
    """The run ends; what was measured is kept."""
    one = Device(broken, "probe", limit_s=20.0)
    try:
        with pytest.raises(RuntimeError, match="does not run an unchanged kernel any more"):
            one.ask("anything")
    finally:
        one.close()


@pytest.mark.gpu
@pytest.mark.parametrize("delays", [False, True])
@pytest.mark.parametrize("name", [*(f"semaphore {b}/control" for b in BASES), "template 0 5"])
def test_the_control_is_right(name: str, delays: bool) -> None:
    """Every launch, on the semaphores that the one before has left."""
    found = find(name)
    assert found.kernel == found.base
    tried = judge(request(name, delays=delays, launches=80, seconds=10.0))
    assert tried.cell.status == "silent", tried
    many = len(list(workloads(found)))
    assert tried.cell.of == -(-80 // many) * many


@pytest.mark.gpu
def test_a_sum_that_counts_a_tile_many_times_is_seen() -> None:
    """The comparison is awake."""
    subject = semaphore_mutant("split_k_tma/issued-by-a-whole-warp")
    trial = Trial(subject, next(workloads(subject)), delays=False)
    trial.launch(0)
    torch.cuda.synchronize()
    assert trial.wrong() == 1


@pytest.mark.gpu
def test_the_launcher_says_that_it_has_launched(capsys: pytest.CaptureFixture[str]) -> None:
    """A sanitizer's summary alone does not."""
    assert main(["semaphore split_k/control"]) == 0
    assert capsys.readouterr().out == f'{DONE} {{"launches": 1, "wrong": 0}}\n'


@pytest.mark.gpu
def test_a_hang_is_seen_and_the_device_goes_on() -> None:
    """The second launch of a kernel that leaves its semaphore dirty waits forever."""

    def asked(name: str) -> str:
        return request(f"semaphore split_k/{name}", delays=False, launches=8, seconds=10.0)

    one = Device(judge, asked("control"))
    try:
        cell = one.ask(asked("semaphore-not-reset"))
        assert (cell.status, cell.says, cell.of) == ("detected", "hang", 2)
        assert one.ask(asked("control")).status == "silent"
    finally:
        one.close()
