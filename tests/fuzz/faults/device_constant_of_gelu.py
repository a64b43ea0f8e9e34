"""ptx: value, direct/direct."""

# fuser 95d09a5d, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# i0=1, reals of seed 1
# error: value at output 0: 1 of 1 elements wrong; worst at [0]: got 1.2565873861312866, expected 1.2563785386334803, bound 6.52e-06, error 0.000209, error/bound 32.1

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="f32")
T1 = fd.ops.gelu(T0)
fd.add_output(T1)
fusion = fd.fusion()

params = PointwiseParams(
    tile=(1, 1),
    vector=1,
    warps=1,
    ctas_per_sm=None,
    load="direct",
    store="direct",
    stages=1,
    prefetch=0,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(fusion, params, extents={"i0": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
