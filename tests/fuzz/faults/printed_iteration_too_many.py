"""ptx: arrivals, tma-pipelined/direct."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# pointwise0 own launch
# error: arrivals at line 213 `mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 t, [%r54], %r48`: mbarrier shared 0x608: 1 arrivals where 0 are left of 1
# error: WAW at line 164 `cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r32], [%rd20`, line 221 `cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r49], [%rd27`: shared 0x480 by t0 after copies to mbarrier shared 0x608 at line 164: the copy is still in flight
# error: WAW at line 170 `cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r36], [%rd21`, line 226 `cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r53], [%rd28`: shared 0x580 by t0 after copies to mbarrier shared 0x608 at line 170: the copy is still in flight
# error: deadlock at line 246 `mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%r65], %r66`: 32 threads (t0, t1, t2, ...) wait for ever: mbarrier shared 0x600, phase 1, parity 1: 1 of 1 arrivals and 0 bytes are missing

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
    load="tma",
    store="direct",
    stages=2,
    prefetch=1,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(fusion, params, extents={"i0": 2, "i1": 4}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
