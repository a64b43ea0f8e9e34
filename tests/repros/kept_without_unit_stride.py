"""Loads that leave the L2 last: columns that are no neighbours in memory were read as if they were.

A vector is found by the first one and a number of bytes, which took the stride for 1.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 8], dtype="i64", contiguity=[False, True], stride_order=[0, 1])
fd.add_output(fd.ops.cumsum(T0, dim=1, dtype="i64"))
fusion = fd.fusion()

params = PointwiseParams((1, 1), 1, 1, None, "direct", "direct")

if __name__ == "__main__":
    replay(Case(fusion, params, {"i0": 2}, "integers", 0), oracle="ptx")
