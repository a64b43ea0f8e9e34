"""The GPU as an oracle: it says so where there is none, and guards what it judges."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from records import record

from fuser.dtype import DType
from fuser.errors import CompileError, ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.runtime import nvrtc
from fuser.runtime.executable import Executable, device_present
from fuser.schedule.params import PointwiseParams
from fuzz.campaign import gpu
from fuzz.campaign.gpu import (
    AGAIN,
    LAUNCHES,
    PROBE,
    SHAPES,
    VISIBLE,
    Device,
    Guarded,
    _another,
    _guarded,
    _passed,
    _results,
    device_of,
    judge_case,
    main,
    settled,
    splits_of,
)
from fuzz.campaign.record import Record
from fuzz.cases.calls import called
from fuzz.cases.case import Case, compiled, from_text, inputs, to_text
from fuzz.cases.enlarged.call import Enlarged, enlarged
from fuzz.cases.metamorphic import agree
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import REDUCTIONS
from fuzz.exit_code import HARNESS, CannotWrite
from oracles.verdict import Finding, Status, Verdict

RING = PointwiseParams((1, 256), 1, 4, None, "tma", "direct", 4, 2)
"""Not for addresses that are no multiples of 16 bytes."""


@pytest.mark.skipif(device_present(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_claimed() -> None:
    """No case run is no praise: the exit code is that of a harness error."""
    done = CliRunner().invoke(main, ["--count", "1"])
    assert done.output == "gpu: no device, 0 cases run\n"
    assert done.exit_code == 3


def test_a_family_that_is_none_is_refused_by_name() -> None:
    """A filter that fits nothing must not look like a clean run."""
    done = CliRunner().invoke(main, ["--family", "hopper"])
    assert done.exit_code == 2
    assert "'hopper' is not one of" in done.output


def test_cases_in_which_ctas_share_tiles_are_told() -> None:
    """Whatever multiplies or reduces; a pointwise kernel has nothing to share."""
    plain = from_text(PROBE)
    assert splits_of(plain) == 1
    assert splits_of(replace(plain, params=REDUCTIONS)) == REDUCTIONS.splits == 3


@pytest.mark.parametrize("passing", [0, 3, AGAIN])
def test_what_fails_now_and_then_is_flaky(passing: int) -> None:
    """And says how often; what always fails keeps its kind."""
    wrong = Finding("value", "output 0", "1 of 8 elements wrong")
    failed = Verdict("gpu", Status.FAIL, 8, (wrong,))
    answers = iter([failed] * (1 + AGAIN - passing) + [Verdict("gpu", Status.PASS, 8)] * passing)
    said = settled(lambda: next(answers))
    assert said.status is Status.FAIL
    (finding,) = said.findings
    if not passing:
        assert said == failed
        return
    assert (finding.kind, finding.where) == ("flaky", "output 0")
    often = f"fails {1 + AGAIN - passing} of {1 + AGAIN} launches with the same inputs: value: "
    assert finding.witness.startswith(often)


def test_what_passes_is_launched_once() -> None:
    """The time is for other cases."""
    answers = iter([Verdict("gpu", Status.PASS, 8)])
    assert settled(lambda: next(answers)).status is Status.PASS


def test_a_case_that_is_refused_is_an_answer() -> None:
    """Not an exception, which would end the run; without a device it says that there is none."""
    refused = replace(from_text(PROBE), params=RING, offset=1)
    with pytest.raises(ScheduleError):
        compiled(refused)
    (record,) = judge_case(to_text(refused))
    assert record.status in ("invalid", "error")


class Silent:
    """A device that passes everything."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def judge(self, case: Case, text: str) -> list[Record]:
        """Pass."""
        return [record(text)]


def test_a_full_disk_is_no_failure_of_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis runs a case that raises once more, and would call it flaky."""

    def full(*_: object, **__: object) -> None:
        raise CannotWrite("the ledger: cannot be written")

    monkeypatch.setattr("fuzz.campaign.gpu.device_present", lambda: True)
    monkeypatch.setattr("fuzz.campaign.gpu.Device", Silent)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "none")
    monkeypatch.setattr("fuzz.campaign.gpu.Ledger.append", full)
    words = ["--count", "9", "--family", FAMILIES[0], "--ledger", str(tmp_path / "gpu.sqlite")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == HARNESS
    assert done.stderr == "Error: the ledger: cannot be written\n"


def ragged() -> Case:
    """Flat relu(x) + bias, whose larger call has an odd number of elements above 2^27."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["m", "n"], dtype="bf16")
    bias = fd.ops.broadcast(fd.define_tensor(shape=["n"], dtype="bf16"), [True, False])
    fd.add_output(fd.ops.add(fd.ops.relu(x), bias))
    flat = PointwiseParams((1, 2048), 8, 8, None, "direct", "direct", flat=True)
    return Case(fd.fusion(), flat, {"m": 5, "n": 7}, "integers", 22)


def test_a_larger_call_has_words_of_its_own() -> None:
    """They name no other call: what fails is the case, whose script makes the larger call again."""
    case = ragged()
    large = enlarged(case, compiled(case))
    assert large is not None
    assert str(large) == "m=126025, n=3059"
    assert prod(large.case.extents.values()) % 2
    assert prod(large.case.extents.values()) > 1 << 27
    assert called(case, f"enlarged: {large}") is None
    assert record("a", subject=f"enlarged: {large}").is_enlarged
    assert not record("a", subject="another schedule").is_enlarged


def test_a_device_without_memory_for_large_calls_still_works() -> None:
    """Others share it; a probe that fails would end the campaign."""
    rows = [record("a", oracle="gpu", subject="launch 0")]
    silent = record("a", oracle="gpu", subject="enlarged: i0=1", status="unknown")
    assert _passed([*rows, silent])
    assert not _passed([*rows, replace(silent, status="fail")])
    assert not _passed([*rows, replace(silent, subject="another schedule")])


def test_another_schedule_that_is_refused_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case as it stands is compiled: who reads the failure needs the other one's params."""
    own: Iterator[list[torch.Tensor]] = iter([[]])

    def results(*_: object) -> list[torch.Tensor]:
        for one in own:
            return one
        raise CompileError("NVRTC refused the kernel", "refused by NVRTC")

    monkeypatch.setattr(gpu, "_guarded", lambda *_: ([], []))
    monkeypatch.setattr(gpu, "_results", results)
    case = from_text(PROBE)
    with pytest.raises(CompileError) as refused:
        _another(Executable(case.fusion, case.params), case)
    assert refused.value.__notes__[0].startswith("under another schedule, ")
    assert f"{case.params}" not in refused.value.__notes__[0]


@pytest.mark.gpu
def test_a_large_odd_tensor_is_right() -> None:
    """A kernel of 2^27 elements once read zeros, and no case was as large."""
    *_, large, other = judge_case(to_text(ragged()))
    assert (large.subject, large.status) == ("enlarged: m=126025, n=3059", "pass"), large.reason
    assert large.checked == 126025 * 3059
    assert (other.subject, other.status) == ("another schedule", "pass")


@pytest.mark.gpu
def test_bits_counted_in_an_int_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that it had: 16 bits of each of the elements that are left."""
    headers = dict(nvrtc._headers(nvrtc.DEVICE))
    text = headers[b"tile.cuh"]
    for good, bad in (
        (b"min(src.col_limit - c, WIDTH)", b"src.col_limit - c"),
        (b"some[n] = left;", b"some[n] = left < WIDTH ? left : WIDTH;"),
        (b"ok[n] = left == WIDTH;", b"ok[n] = left >= WIDTH;"),
    ):
        assert text.count(good) == 1
        text = text.replace(good, bad)
    planted = tuple((headers | {b"tile.cuh": text}).items())
    monkeypatch.setattr(nvrtc, "_headers", lambda _: planted)
    *small, large = judge_case(to_text(ragged()))
    assert {one.status for one in small} == {"pass"}
    assert (large.subject, large.status) == ("enlarged: m=126025, n=3059", "fail")
    assert large.kind == "enlarged"
    assert "first at [" in large.reason


@pytest.mark.gpu
def test_an_fma_more_is_no_difference_of_schedules() -> None:
    """Of two products of a sum either may go into the fma: one element in twenty differed."""
    fd = FusionDefinition()
    a, b, c, d = (fd.define_tensor(shape=["i0"], dtype="f32") for _ in range(4))
    fd.add_output(fd.ops.add(fd.ops.mul(a, b), fd.ops.mul(fd.ops.neg(c), d)))
    ring = PointwiseParams((16, 16), 4, 2, 4, "cp_async", "direct", 8, 0, warp_specialized=True)
    case = Case(fd.fusion(), ring, {"i0": 4096}, "reals", seed=350)
    other = replace(case, params=PointwiseParams((2, 128), 2, 2, None, "direct", "direct"))
    arguments, _ = _guarded(Enlarged.of(case, {}), inputs(case, turn=0))
    (fused, _), (apart, its) = (
        [
            _results(Executable(one.fusion, one.params, fused=may), one, arguments)
            for one in (case, other)
        ]
        for may in (True, False)
    )
    assert agree(apart, its, case.params, other.params).status is Status.PASS
    assert not torch.equal(fused[0], apart[0])
    assert {one.status for one in judge_case(to_text(case))} == {"pass"}


@pytest.mark.gpu
def test_a_write_past_the_end_is_noticed() -> None:
    """One element too many must not hide in an allocator's slack."""
    guarded = Guarded((4, 5), (5, 1), DType.F32)
    assert not guarded.overrun()
    guarded.tensor.as_strided((21,), (1,))[20] = 1.0
    assert guarded.overrun()


def test_workers_share_the_devices_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In turn; of those that the user lets be seen, where some are named."""
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device_of(n) for n in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv(VISIBLE, "3,GPU-7b1")
    assert [device_of(n) for n in range(3)] == ["3", "GPU-7b1", "3"]
    monkeypatch.delenv(VISIBLE)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert device_of(5) == ""


@pytest.mark.gpu
def test_the_probe_passes_in_every_launch() -> None:
    """A device that fails it must not be blamed on the next case.  Another schedule agrees."""
    with Device() as device:
        records = device.judge(from_text(PROBE), PROBE)
    assert [r.status for r in records] == ["pass"] * (LAUNCHES + SHAPES + 2)
    assert records[-2].subject.startswith("enlarged: i0=")
    assert records[-1].subject == "another schedule"
