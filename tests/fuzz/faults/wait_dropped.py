"""prover: WAW, ampere-mbarriers."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# matmul0
# error: WAW at line 24: S_T0[0] <~ cp_async(T0[c0+16, (k * 16)+16], width=2) | line 24: S_T0[0] <~ cp_async(T0[c0+16, (k * 16)+16], width=2): trips=2, k=1: `S_T0[0] <~ cp_async(T0[c0+16, (k * 16)+16], width=2)`: nothing orders the end of the cp.async k=0 (line 24) by lane 0 of warp 1 (load) before the cp.async k=1 (line 24) of S_T0[0] by lane 0 of warp 1 (load) (the other is `S_T0[0] <~ cp_async(T0[c0+16, (k * 16)+16], width=2)`)
# error: WAR at line 30: f_T0 = load(S_T0[0], width=2, matrix) | line 24: S_T0[0] <~ cp_async(T0[c0+16, (k * 16)+16], width=2): trips=2, k=1: `S_T0[0] <~ cp_async(T0[c0+16, (k * 16)+16], width=2)`: nothing orders the ldmatrix k=0 (line 30) by lane 0 of warp 0 (compute) before the cp.async k=1 (line 24) of S_T0[0] by lane 0 of warp 1 (load) (the other is `f_T0 = load(S_T0[0], width=2, matrix)`)
# error: WAW at line 25: S_T1[0] <~ cp_async(T1[c1+8, (k * 16)+16], width=2) | line 25: S_T1[0] <~ cp_async(T1[c1+8, (k * 16)+16], width=2): trips=2, k=1: `S_T1[0] <~ cp_async(T1[c1+8, (k * 16)+16], width=2)`: nothing orders the end of the cp.async k=0 (line 25) by lane 0 of warp 1 (load) before the cp.async k=1 (line 25) of S_T1[0] by lane 0 of warp 1 (load) (the other is `S_T1[0] <~ cp_async(T1[c1+8, (k * 16)+16], width=2)`)
# error: WAR at line 31: f_T1 = load(S_T1[0], width=2, matrix) | line 25: S_T1[0] <~ cp_async(T1[c1+8, (k * 16)+16], width=2): trips=2, k=1: `S_T1[0] <~ cp_async(T1[c1+8, (k * 16)+16], width=2)`: nothing orders the ldmatrix k=0 (line 31) by lane 0 of warp 0 (compute) before the cp.async k=1 (line 25) of S_T1[0] by lane 0 of warp 1 (load) (the other is `f_T1 = load(S_T1[0], width=2, matrix)`)
# error: parity at line 26: cp_async_mbarrier_arrive(full[0], noinc): trips=2, k=1: `cp_async_mbarrier_arrive(full[0], noinc)`: nothing orders the completion of phase 0 of full[0] before the arrival k=1 (line 26) in phase 1
# error: parity at line 26: cp_async_mbarrier_arrive(full[0], noinc) | line 29: mbarrier_wait_parity(full[0], (k % 2), cta): trips=2, k=0: `mbarrier_wait_parity(full[0], (k % 2), cta)`: phase 1 of full[0] may complete before the wait k=0 (line 29) by lane 0 of warp 0 (compute) has seen phase 0, and would wait for phase 2 then (the other is `cp_async_mbarrier_arrive(full[0], noinc)`)

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 0, 1]], dtype="bf16"
)
fd.add_output(T2)
fusion = fd.fusion()

params = AmpereParams(
    tile=(16, 8, 16),
    warps=1,
    observe="mbarriers",
    stages=1,
    prefetch=0,
    persistent=False,
    raster=1,
    columns=8,
    prologue="memory",
    splits=1,
    meet="vectorized",
    residency="ticket",
    partial="f32",
)
case = Case(
    fusion, params, extents={"i0": 1, "i1": 2, "i2": 1}, kind="integers", seed=0, gap=0, offset=0
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="prover")
