"""Lowering: row reductions of a product added NaN from columns beyond its end, where rows hold inf.

Such columns were taken for zeros of zeros; but TMA's zeros times inf are NaN.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1", "i2", "i0", "i4"], dtype="f16")
T1 = fd.ops.permute(T0, dims=[2, 0, 1, 3])
T2 = fd.define_tensor(shape=["i1", "i4", "i0", "i0"], dtype="f16")
T3 = fd.ops.permute(T2, dims=[2, 0, 1, 3])
T4 = fd.ops.fused_multiply_sum(
    T1, T3, axes=[4], axis_mapping=[[0, 1, 2, -1, 3], [0, 1, -1, 3, 2]], dtype="f16"
)
T5 = fd.ops.mean(T4, dims=[3])
fd.add_output(T5)
fusion = fd.fusion()

params = MatmulParams((64, 16, 16), 1, "pipelined", 4, 2, False, columns=16)
extents = {"i1": 2, "i2": 8, "i0": 1, "i4": 64}

if __name__ == "__main__":
    replay(*(Case(fusion, params, extents, "reals", seed) for seed in range(2)))
