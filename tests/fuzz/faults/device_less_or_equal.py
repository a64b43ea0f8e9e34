"""ptx: value, direct/direct."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# i0=7, integers of seed 2
# error: value at output 0: 1 of 1 elements wrong; worst at [0]: got 0.0, expected 2.0, bound 0, error 2, error/bound inf

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 8], dtype="f32")
T1 = fd.ops.max(T0, dims=[0])
T2 = fd.ops.broadcast(T1, is_broadcast_dim=[True, False])
T3 = fd.ops.min(T2, dims=[1])
fd.add_output(T3)
fusion = fd.fusion()

params = PointwiseParams(
    tile=(1, 32),
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
