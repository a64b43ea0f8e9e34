"""The reference: cosh of what may have either sign is not inf because it is so at both ends.

A sum of large numbers may cancel: cosh of -8e6 +- 1.2e7 is inf there and 1 at 0, and the reference
said inf, without a bound.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1", "i2", "i3", "i0"], dtype="f32")
T1 = fd.ops.order(T0)
T2 = fd.ops.cast(T1, dtype="bf16")
T3 = fd.define_tensor(shape=[1, 1, 1], dtype="bf16")
T4 = fd.ops.expand(T3, shape=["i3", "i1", "i0"])
T5 = fd.ops.permute(T2, dims=[2, 0, 3, 1])
T6 = fd.ops.broadcast(T4, is_broadcast_dim=[False, False, False, True])
T7 = fd.ops.fused_multiply_sum(
    T5, T6, axes=[0], axis_mapping=[[0, 1, 2, 3], [0, 1, 2, -1]], dtype="f32"
)
T8 = fd.ops.cosh(T7)
fd.add_output(T8)
fusion = fd.fusion()

params = AmpereParams((16, 8, 16), 1, "groups", 1, 0, persistent=False, columns=8)
case = Case(fusion, params, extents={"i1": 1, "i2": 1, "i3": 2, "i0": 2}, kind="reals", seed=0)

if __name__ == "__main__":
    replay(case)
