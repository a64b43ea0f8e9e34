"""Overlay: the first tile of a stack, which another wgmma reads alone, was laid without the rest.

Two axes have one extent, so that a kernel has the product and its transpose: both read T1, and the
product reads T4 behind it.  The kernel was invalid.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i0", "i2"], dtype="f16")
T1 = fd.define_tensor(shape=["i1", "i2"], dtype="f16")
across = [0, 1, -1, 2]
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[3], axis_mapping=[across, [-1, -1, 0, 1]])
T3 = fd.ops.permute(T2, dims=[1, 0, 2])
T4 = fd.define_tensor(shape=["i0", "i1", "i2"], dtype="f16")
T5 = fd.ops.fused_multiply_sum(T0, T4, axes=[3], axis_mapping=[across, [0, -1, 1, 2]])
fd.add_output(T3)
fd.add_output(fd.ops.add(T2, T5))

params = MatmulParams(
    (64, 16, 64), 1, "pipelined", 3, 1, persistent=False, stacked=True, columns=16
)
case = Case(fd.fusion(), params, {"i0": 5, "i1": 16, "i2": 72}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
