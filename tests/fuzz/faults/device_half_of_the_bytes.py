"""ptx: RAW, tma-pipelined/direct."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# pointwise0 own launch
# error: RAW at line 128 `cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%rd12`, line 146 `ld.shared.f32 %f2, [%rd1]`: shared 0x400 by t0 after copies to mbarrier shared 0x500 at line 128: the copy is still in flight
# error: exit at line 128 `cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%rd12`: CTA 0 ends while a copy into its shared memory is in flight

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
    load="tma",
    store="direct",
    stages=1,
    prefetch=0,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(fusion, params, extents={"i1": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
