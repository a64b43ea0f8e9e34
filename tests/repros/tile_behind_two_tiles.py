"""Lowering: a tile of B was to lie behind two others, as part of two stacks: an invalid kernel.

Two axes have one extent, so that a kernel has the product and its transpose, which share B.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i0", "i2", "i4"], dtype="i8")
T1 = fd.define_tensor(shape=["i4", 3], dtype="i8")
across = [0, 1, 2, -1, 3]
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[4], axis_mapping=[across, [-1, -1, -1, 1, 0]])
T3 = fd.define_tensor(shape=["i0", "i0", "i4", 3], dtype="i8")
T4 = fd.ops.fused_multiply_sum(T0, T3, axes=[4], axis_mapping=[across, [0, 1, -1, 3, 2]])
fd.add_output(T2)
fd.add_output(fd.ops.permute(fd.ops.add(T2, T4), dims=[1, 0, 3, 2]))

params = MatmulParams(
    (64, 16, 32), 1, "pipelined", 2, 1, persistent=False, stacked=True, columns=16
)
case = Case(fd.fusion(), params, {"i0": 2, "i2": 5, "i4": 40}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
