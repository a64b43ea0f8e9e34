"""Reference: integers went to bf16 by way of f32, which rounds a tie twice; kernels round once.

Found by a random case on a GPU, whose operand was `order` of small numbers.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="bf16")
T1 = fd.ops.cast(fd.ops.order(T0), dtype="bf16")
fd.add_output(T1)
fusion = fd.fusion()

params = PointwiseParams((1, 256), 2, 4, None, "direct", "direct")

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": 3000}, "reals", n) for n in (120, 121)))
