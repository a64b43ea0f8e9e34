"""ptx: proxy, direct/tma."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# pointwise0 own launch
# error: proxy at line 143 `st.shared.f32 [%rd19], %f1`, line 153 `cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd20, {%r5}], [%r30]`: shared 0x400 by t0 after t0 at line 143: ordered, but no fence.proxy.async stands between

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1"], dtype="f32")
T1 = fd.define_tensor(shape=["i1"], dtype="f32")
T2 = fd.ops.add(T0, T1)
fd.add_output(T2)
fusion = fd.fusion()

params = PointwiseParams(
    tile=(1, 32),
    vector=1,
    warps=1,
    ctas_per_sm=None,
    load="direct",
    store="tma",
    stages=1,
    prefetch=0,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(fusion, params, extents={"i1": 4}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
