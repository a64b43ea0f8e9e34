"""The reference: asin of a product that may be -3 or 1 by rounding was held to be NaN for certain.

It is so at both ends of what a right kernel may have, and not between them.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1", "i2", "i4"], dtype="bf16")
T1 = fd.define_tensor(shape=["i0", "i1", "i4", "i3"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[4], axis_mapping=[[0, 1, 2, -1, 3], [0, 1, -1, 3, 2]], dtype="bf16"
)
fd.add_output(fd.ops.asin(T2))

params = MatmulParams(
    (64, 8, 16), 1, "pipelined", 1, 0, persistent=False, raster=1, columns=8, store="direct",
    splits=4, partial="bf16", overlay=False,
)  # fmt: skip
extents = {"i0": 1, "i1": 3, "i2": 1, "i4": 46, "i3": 39}
case = Case(fd.fusion(), params, extents, "reals", 1)

if __name__ == "__main__":
    replay(case, oracle="differential")
