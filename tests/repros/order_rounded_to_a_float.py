"""The campaign: the bits of a float, taken for an integer and rounded, were held to be exact.

`order` of 3 has 31 bits, of which bf16 keeps eight; shrinking left it in a case of small integers.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1", "i2", "i3", "i0"], dtype="f32")
T1 = fd.ops.order(T0)
T2 = fd.ops.cast(T1, dtype="bf16")
T3 = fd.ops.permute(T2, dims=[2, 0, 3, 1])
T4 = fd.define_tensor(shape=["i3", "i1", "i0", 1], dtype="bf16")
T5 = fd.ops.fused_multiply_sum(
    T3, T4, axes=[0], axis_mapping=[[0, 1, 2, 3], [0, 1, 2, -1]], dtype="f32"
)
fd.add_output(T5)
fusion = fd.fusion()

params = AmpereParams((16, 8, 16), 1, "groups", 1, 0, persistent=False, columns=8)
case = Case(fusion, params, extents={"i1": 1, "i2": 1, "i3": 14, "i0": 1}, kind="integers", seed=27)

if __name__ == "__main__":
    replay(case)
