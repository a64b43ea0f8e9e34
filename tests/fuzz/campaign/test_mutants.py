"""Mutants of compiled kernels, which the prover and the simulator judge."""

from __future__ import annotations

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.mutants import SCHEDULES, conclude, judge_both
from fuzz.campaign.recorder import Recorder
from fuzz.cases.case import Case, compiled, to_text
from fuzz.mutation.operators import drop_each_sync


def test_a_wait_of_a_kernel_without_a_loop_is_killed_by_both() -> None:
    """A witness of it names no trip, and the kernel is launched for its tiles alone."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.relu(fd.define_tensor(["m", "n"], "bf16")))
    params = PointwiseParams((16, 64), 8, 4, None, "direct", "direct")
    of = Case(fd.fusion(), params, {"m": 37, "n": 72}, "integers", 0)
    (launch,) = compiled(of).launches
    (mutant,) = drop_each_sync(launch.kernel)
    assert "grid_dependency_wait" in mutant.change
    judged = judge_both(Recorder(of, to_text(of), phase="base"), launch, mutant, SCHEDULES)
    assert judged is not None
    assert conclude(*judged).reason == "killed by both"
