"""Products: TMA was to move an A whose batch axis is the contiguous one, of one element.

Its stride of 2 bytes is no multiple of 16: the driver refuses such a tensor map.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i0"], dtype="bf16")
T1 = fd.define_tensor(shape=["i0", "i0", "i2"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(T0, T1, axes=[0], axis_mapping=[[0, -1, 1], [1, 2, 0]], dtype="f32")
fd.add_output(T2)

params = MatmulParams((64, 16, 16), 2, "ping_pong", 1, 0, persistent=True, columns=8)
case = Case(fd.fusion(), params, {"i0": 1, "i2": 1}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
