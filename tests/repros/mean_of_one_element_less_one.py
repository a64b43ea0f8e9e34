"""Recording: a mean over axes declared with extent 1 divided by 1, whatever its correction."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 1], dtype="f32")
T1 = fd.ops.mean(T0, dims=[1], correction=1)
fd.add_output(T1)
fusion = fd.fusion()

params = PointwiseParams(
    (1, 256), vector=1, warps=4, ctas_per_sm=None, load="direct", store="direct"
)
case = Case(fusion, params, extents={"i0": 5}, kind="reals", seed=0)

if __name__ == "__main__":
    replay(case)
