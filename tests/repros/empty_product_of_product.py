"""Segments: an empty product that is an operand of another one was computed, as one that is not."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="f16")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="f16")
T2 = fd.ops.matmul(T0, T1)
T3 = fd.define_tensor(shape=["i1", "i3"], dtype="f16")
T4 = fd.ops.matmul(T2, T3)
fd.add_output(T4)
fusion = fd.fusion()

params = PointwiseParams((4, 128), 4, 1, None, "direct", "direct")
case = Case(fusion, params, {"i0": 64, "i2": 0, "i1": 8, "i3": 40}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
