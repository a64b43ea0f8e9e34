"""The GPU as an oracle: it says so where there is none, and guards what it judges."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from fuser.dtype import DType
from fuser.runtime.executable import device_present
from fuzz.campaign.gpu import LAUNCHES, PROBE, Device, Guarded, main, splits_of
from fuzz.cases.case import from_text
from fuzz.cases.strategies import REDUCTIONS


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


@pytest.mark.gpu
def test_a_write_past_the_end_is_noticed() -> None:
    """One element too many must not hide in an allocator's slack."""
    guarded = Guarded((4, 5), (5, 1), DType.F32)
    assert not guarded.overrun()
    guarded.tensor.as_strided((21,), (1,))[20] = 1.0
    assert guarded.overrun()


@pytest.mark.gpu
def test_the_probe_passes_in_every_launch() -> None:
    """A device that fails it must not be blamed on the next case.  Another schedule agrees."""
    with Device() as device:
        records = device.judge(from_text(PROBE), PROBE)
    assert [r.status for r in records] == ["pass"] * (LAUNCHES + 1)
    assert records[-1].subject == "another schedule"
