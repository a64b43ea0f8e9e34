"""ptx: value, norm-direct/direct."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# own launch
# error: value at output 0: 1 of 1 elements wrong; worst at [0]: got -8.0, expected 8.0, bound 0, error 16, error/bound inf

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1"], dtype="f32")
T1 = fd.define_tensor(shape=[1], dtype="f32")
T2 = fd.ops.sub(T0, T1)
fd.add_output(T2)
fusion = fd.fusion()

params = NormParams(
    tile=(1, 64),
    vector=1,
    warps=2,
    ctas_per_sm=None,
    load="direct",
    store="direct",
    stages=1,
    prefetch=0,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
    lanes=64,
    recompute=False,
    resident=1,
    reload=False,
    hold=False,
    cluster=1,
    slide=False,
)
case = Case(fusion, params, extents={"i1": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
