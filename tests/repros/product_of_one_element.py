"""Reference: the bound of a product was a 1e-10th too small, for 1 + r - 1 loses most of r."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
T1 = fd.ops.mul(T0, T0)
T2 = fd.ops.prod(T1, dtype="f32", dims=[1])
fd.add_output(T2)

params = PointwiseParams((1, 1), 1, 1, None, "direct", "direct")
case = Case(fd.fusion(), params, {"i0": 1, "i1": 1}, "integers", 0)

if __name__ == "__main__":
    replay(case, oracle="differential")
