"""Gathers in kernels whose tiles are transposed: axes were merged that one of the two walks alone.

All elements along such an axis were taken from the first row.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=[1, 1, "i0", "i3"], dtype="f32")
T1 = fd.define_tensor(shape=["i0", 8, "i0", "i3"], dtype="i32")
fd.add_output(fd.ops.gather(T0, dim=3, index=T1))
fusion = fd.fusion()

params = PointwiseParams((1, 1), 1, 1, None, "direct", "direct", transpose=True)

if __name__ == "__main__":
    replay(Case(fusion, params, {"i0": 2, "i3": 40}, "integers", 0), oracle="differential")
