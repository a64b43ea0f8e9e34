"""ptx: value, norm-direct/direct."""

# fuser f54bd10b, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# i0=1, i1=3, integers of seed 4
# error: value at output 0: 1 of 3 elements wrong; worst at [0, 2]: got -8.0, expected 0.0, bound 0, error 8, error/bound inf

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
T1 = fd.ops.max(T0, dims=[1])
T2 = fd.ops.broadcast(T1, is_broadcast_dim=[False, True])
T3 = fd.ops.add(T0, T2)
fd.add_output(T3)
fusion = fd.fusion()

params = NormParams(
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
    lanes=32,
    recompute=False,
    resident=1,
    reload=False,
    hold=False,
    cluster=1,
    slide=False,
)
case = Case(fusion, params, extents={"i0": 1, "i1": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
