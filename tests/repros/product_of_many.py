"""The campaign: a product of integers that is rounded on its way was held to be exact.

Signs were drawn, whose products are; damage and shrinking leave other factors.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 64], dtype="bf16")
T1 = fd.define_tensor(shape=[64, "i3"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 1, 0]], dtype="f32")
T3 = fd.ops.prod(T2, dtype="f32", dims=[1])
fd.add_output(T3)
fusion = fd.fusion()

params = MatmulParams(
    (192, 8, 16), 1, "pipelined", 1, 0, persistent=False, raster=1, columns=8, store="direct"
)
case = Case(fusion, params, extents={"i0": 2, "i3": 5}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
