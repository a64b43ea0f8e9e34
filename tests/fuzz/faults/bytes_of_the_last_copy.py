"""prover: bytes, tma-pipelined/direct."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# pointwise0
# error: bytes at line 17: mbarrier_arrive_expect_tx(full[0], 128): trips=1: full expects 128 bytes an iteration, its copies 256
# error: parity at line 19: S_T1[0] <~ tma_load(T1[c0+32]) on full[0]: trips=1, k=0: `S_T1[0] <~ tma_load(T1[c0+32]) on full[0]`: nothing orders the completion of phase 0 of full[0] before the bytes of the TMA load k=0 (line 19) in phase 1
# error: RAW at line 19: S_T1[0] <~ tma_load(T1[c0+32]) on full[0] | line 22: r_T1 = load(S_T1[0], width=1): trips=1, k=0: `r_T1 = load(S_T1[0], width=1)`: nothing orders the end of the TMA load k=0 (line 19) before the load k=0 (line 22) of S_T1[0] by lanes 1..31 of warp 0 (the other is `S_T1[0] <~ tma_load(T1[c0+32]) on full[0]`)

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
    replay(case, oracle="prover")
