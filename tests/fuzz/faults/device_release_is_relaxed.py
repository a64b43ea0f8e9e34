"""ptx: RAW, direct/direct."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# reduction0 i0=1, i1=7, reals of seed 1
# error: RAW at line 242 `st.global.f32 [%rd8], %f19`, line 216 `ld.global.f32 %f18, [%rd8]`: global 0x500 by CTA 1 t0 after CTA 0 t0 at line 242: nothing orders the earlier access before it

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import ReductionParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
T1 = fd.ops.sum(T0, dtype="f32", dims=[1])
fd.add_output(T1)
fusion = fd.fusion()

params = ReductionParams(
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
    splits=2,
    meet="vectorized",
)
case = Case(fusion, params, extents={"i0": 1, "i1": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
