"""Reference: NaN to a power that is 0 by rounding alone is 1, and was held to be NaN.

silu(-687) is -0.0 in f32, and -1.9e-296.  Seen with torch.compile as the target.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="f32")
T1 = fd.ops.pow(fd.ops.sqrt(T0), fd.ops.silu(fd.ops.mul(fd.ops.abs(T0), -1000.0)))
fd.add_output(T1)

params = PointwiseParams((1, 2), 1, 2, None, "direct", "direct", 1, 0, flat=False, overlay=True)
case = Case(fd.fusion(), params, {"i0": 39}, kind="reals", seed=0)

if __name__ == "__main__":
    replay(case)
