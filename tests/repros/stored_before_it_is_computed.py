"""Lowering: a tensor that is stored and holds another of its name was computed before that one."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", 16], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[1], axis_mapping=[[-1, 0], [1, 0]], dtype="bf16")
T3 = fd.define_tensor(shape=[16], dtype="bf16")
T4 = fd.define_tensor(shape=[16], dtype="f32")
T5 = fd.ops.mul(T3, T4)
T6 = fd.ops.relu(T2)
T7 = fd.define_tensor(shape=[16, 16], dtype="bf16")
T8 = fd.ops.broadcast(T6, is_broadcast_dim=[False, True])
T9 = fd.ops.fused_multiply_sum(T7, T8, axes=[0], axis_mapping=[[0, 1], [0, -1]], dtype="f32")
fd.add_output(T2)
fd.add_output(T5)
fd.add_output(T9)
fusion = fd.fusion()

params = MatmulParams(
    (64, 16, 48), warpgroups=1, split="pipelined", stages=1, prefetch=0, persistent=False, columns=8
)
case = Case(fusion, params, extents={"i1": 1}, kind="integers", seed=0, gap=0, offset=0)

if __name__ == "__main__":
    replay(case)
