"""Lowering: an output of one element was refused as if it did not vary along its own axis."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=[1], dtype="f32")
T1 = fd.ops.relu(T0)
fd.add_output(T1)
fusion = fd.fusion()

params = PointwiseParams((4, 128), 4, 1, None, "direct", "direct")
case = Case(fusion, params, extents={}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
