"""prover: deadlock, tma-specialized/direct."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# pointwise0
# error: deadlock at line 20: mbarrier_wait_parity(empty[(k % 2)], (((k + 1) // 2) % 2), cta): trips=1, k=0: `mbarrier_wait_parity(empty[(k % 2)], (((k + 1) // 2) % 2), cta)`: lane 0 of warp 1 (load) waits forever: 1 of 1 arrivals of phase 0 are missing; nothing has used S_T0[0] yet, so that no phase has to be over

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
    stages=2,
    prefetch=0,
    warp_specialized=True,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(fusion, params, extents={"i1": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="prover")
