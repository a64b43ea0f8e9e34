"""Segmenting: the tiles of a product that had been given a kernel of its own began a reduction.

That kernel had no tiles; it wrote every element as if it were the part of one.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 0, 1]], dtype="f32")
T3 = fd.define_tensor(shape=["i2"], dtype="bf16")
T4 = fd.ops.broadcast(T3, is_broadcast_dim=[True, False])
T5 = fd.ops.fused_multiply_sum(T0, T4, axes=[1], axis_mapping=[[0, 1], [-1, 1]], dtype="f32")
T6 = fd.ops.broadcast(T5, is_broadcast_dim=[False, True])
T7 = fd.ops.add(T2, T6)
fd.add_output(T7)
T8 = fd.ops.min(T6, dims=[0])
fd.add_output(T8)
fusion = fd.fusion()

params = MatmulParams((128, 64, 64), 2, "pipelined", 2, 1, False)
case = Case(fusion, params, {"i0": 96, "i1": 104, "i2": 64}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
