"""Simulator: its sums of products rounded each of them, which no tensor core does: a false alarm.

A sum of 8 was off by 4.29e-6 where tensor cores lose 4.25e-6 at most.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1", "i3"], dtype="f16")
T1 = fd.define_tensor(shape=["i0", "i3", "i2"], dtype="f16")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[3], axis_mapping=[[0, 1, -1, 2], [0, -1, 2, 1]], dtype="f32"
)
fd.add_output(T2)

params = MatmulParams((64, 16, 32), 1, "pipelined", 1, 0, persistent=False, columns=8)
case = Case(fd.fusion(), params, {"i0": 1, "i1": 5, "i3": 8, "i2": 56}, kind="reals", seed=5)

if __name__ == "__main__":
    replay(case)
