"""Cut: what is kept in f32 for other kernels was multiplied as f32, by a view of 16 bits."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[1], axis_mapping=[[0, 1], [-1, 0]], dtype="bf16")
T3 = fd.ops.max(T2, dims=[0])
T4 = fd.ops.broadcast(T3, is_broadcast_dim=[True])
T5 = fd.ops.add(T2, T4)
T6 = fd.define_tensor(shape=["i2", "i0"], dtype="bf16")
T7 = fd.ops.broadcast(T2, is_broadcast_dim=[True, False])
T8 = fd.ops.fused_multiply_sum(T6, T7, axes=[1], axis_mapping=[[0, 1], [-1, 1]], dtype="f32")
T9 = fd.define_tensor(shape=["i2", "i0"], dtype="bf16")
T10 = fd.define_tensor(shape=[1, "i0"], dtype="bf16")
T11 = fd.ops.fused_multiply_sum(T9, T10, axes=[1], axis_mapping=[[0, 1], [-1, 1]], dtype="bf16")
fd.add_output(T2)
fd.add_output(T5)
fd.add_output(T8)
fd.add_output(T11)
fusion = fd.fusion()

params = MatmulParams(
    (64, 8, 48), warpgroups=1, split="pipelined", stages=1, prefetch=0, persistent=False, columns=8
)
case = Case(fusion, params, extents={"i0": 40, "i1": 40, "i2": 40}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
