"""Lowering: a sum that is needed as it is and transposed was added up twice in one register."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1", "i0"], dtype="f32")
T1 = fd.ops.sum(T0, dims=[1])
T2 = fd.ops.neg(T1)
T3 = fd.ops.permute(T2, dims=[1, 0])
fd.add_output(T3)
T4 = fd.ops.relu(T1)
fd.add_output(T4)
fusion = fd.fusion()

params = PointwiseParams((4, 64), 1, 1, None, "direct", "direct")
case = Case(fusion, params, {"i0": 3, "i1": 5}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
