"""Heuristics: a kernel that only stretches vectors, in tiles that are transposed, was given loads
by TMA, which can move none of them.

Only large tiles are brought by TMA by default: it is refused at usual extents.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="f16")
T1 = fd.define_tensor(shape=["i1", 1], dtype="f16")
T2 = fd.define_tensor(shape=[1, "i1"], dtype="f16")
fd.add_output(fd.ops.linear(T0, fd.ops.expand(T1, ["i1", "i2"])))
fd.add_output(fd.ops.matmul(T0, fd.ops.expand(T2, ["i2", "i1"])))

params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
case = Case(fd.fusion(), params, {"i0": 8, "i1": 8, "i2": 8}, kind="integers", seed=9)

if __name__ == "__main__":
    replay(case, oracle="build")
