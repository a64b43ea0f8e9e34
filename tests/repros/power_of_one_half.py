"""Simulator: a power of one half was a square root, of -inf and -0.0, too.

NumPy takes it where all exponents are one number; C has inf and 0.0.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 8], dtype="f32")
T1 = fd.ops.pow(T0, 0.5)
fd.add_output(T1)

params = PointwiseParams((1, 2), 1, 2, None, "direct", "direct", 1, 0, flat=False, overlay=True)
case = Case(fd.fusion(), params, {"i0": 39}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
