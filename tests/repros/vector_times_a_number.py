"""Products of a vector and a number that is stretched along it were not built by default.

How rows of the larger operand begin was asked of a number, which has none (ValueError).
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="bf16")
T1 = fd.define_tensor(shape=[], dtype="bf16")
T2 = fd.ops.broadcast(T1, is_broadcast_dim=[True])
T3 = fd.ops.expand(T2, shape=["i0"])
T4 = fd.ops.fused_multiply_sum(T0, T3, axes=[0], axis_mapping=[[0], [0]], dtype="bf16")
fd.add_output(T4)

params = AmpereParams((48, 24, 16), 1, "groups", 1, 0, persistent=False, raster=1, columns=24)
case = Case(fd.fusion(), params, {"i0": 2}, kind="integers", seed=7)

if __name__ == "__main__":
    replay(case)
