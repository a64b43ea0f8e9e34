"""ptx: WAR, direct/tma."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# pointwise0 own launch
# error: WAR at line 174 `cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd26, {%r5, %r38}], [%r36]`, line 160 `st.shared.f32 [%rd25], %f1`: shared 0x400 by t0 after bulk reads of t0 at line 174: nothing orders the earlier access before it
# error: exit at line 174 `cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd26, {%r5, %r38}], [%r36]`: t0 ends while its copy may still read shared memory; cp.async.bulk.wait_group.read 0 waits for it

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
T1 = fd.define_tensor(
    shape=["i0", "i1"], dtype="f32", contiguity=[False, True], stride_order=[1, 0]
)
T2 = fd.ops.add(T0, T1)
fd.add_output(T2)
fusion = fd.fusion()

params = PointwiseParams(
    tile=(1, 32),
    vector=1,
    warps=1,
    ctas_per_sm=1,
    load="direct",
    store="tma",
    stages=1,
    prefetch=0,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(fusion, params, extents={"i0": 3, "i1": 4}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
