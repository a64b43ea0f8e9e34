"""Reduction: of two sums that CTAs add up by TMA the second was staged over the first."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import ReductionParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["m", "n"], dtype="f32")
T1 = fd.ops.sum(T0, dtype="f32", dims=[1])
T2 = fd.ops.gt(T0, 0.0)
T3 = fd.ops.sum(T2, dtype="i64", dims=[1])
fd.add_output(T1)
fd.add_output(T3)
fusion = fd.fusion()

params = ReductionParams(
    (4, 128), 8, 4, None, "direct", "direct", overlay=True, splits=3, meet="tma"
)
case = Case(fusion, params, extents={"m": 9, "n": 520}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
