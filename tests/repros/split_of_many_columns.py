"""Which CTAs stand for all: thousands of pairs of boxes made an expression too deep to look at.

A product of 24 column tiles, of which several CTAs add up their parts by TMA.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
fd.add_output(fd.ops.linear(T0, T1))

params = MatmulParams(
    tile=(192, 192, 32), warpgroups=3, split="pipelined", stages=1, prefetch=0, persistent=False,
    raster=8, columns=8, store="tma", splits=3, meet="tma", residency="co-resident", partial="f32",
)  # fmt: skip
case = Case(fd.fusion(), params, {"i0": 8, "i1": 8, "i2": 40}, kind="integers", seed=406)

if __name__ == "__main__":
    replay(case)
