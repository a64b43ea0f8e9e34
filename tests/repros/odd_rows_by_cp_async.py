"""Pointwise: cp.async copied a whole vector where a row ends in one."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="f32")
fd.add_output(fd.ops.relu(T0))
fusion = fd.fusion()

params = PointwiseParams(
    (2, 128), 2, 1, None, "cp_async", "direct", stages=1, prefetch=0, warp_specialized=True
)
case = Case(fusion, params, extents={"i0": 1}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
