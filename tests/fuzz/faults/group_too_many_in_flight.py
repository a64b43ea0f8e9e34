"""prover: RAW, ampere-groups."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# matmul1
# error: RAW at line 17: S_T0[(j % 2)] <~ cp_async(T0[c0+112, (j * 16)+16], width=2) | line 27: f_T0 = load(S_T0[(k % 2)], width=2, matrix): trips=1, k=0: `f_T0 = load(S_T0[(k % 2)], width=2, matrix)`: nothing orders the end of the cp.async j=0 (line 17) by lane 0 of warp 0 before the ldmatrix k=0 (line 27) of S_T0[0] by lane 0 of warp 0 (the other is `S_T0[(j % 2)] <~ cp_async(T0[c0+112, (j * 16)+16], width=2)`)
# error: RAW at line 18: S_T1_operand_1_1_0[(j % 2)] <~ cp_async(T1_operand_1_1_0[c1+8, (j * 16)+16], width=2) | line 28: f_T1_operand_1_1_0 = load(S_T1_operand_1_1_0[(k % 2)], width=2, matrix): trips=1, k=0: `f_T1_operand_1_1_0 = load(S_T1_operand_1_1_0[(k % 2)], width=2, matrix)`: nothing orders the end of the cp.async j=0 (line 18) by lane 0 of warp 0 before the ldmatrix k=0 (line 28) of S_T1_operand_1_1_0[0] by lane 0 of warp 0 (the other is `S_T1_operand_1_1_0[(j % 2)] <~ cp_async(T1_operand_1_1_0[c1+8, (j * 16)+16], width=2)`)

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="bf16")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 1, 0]], dtype="bf16"
)
fd.add_output(T2)
fusion = fd.fusion()

params = AmpereParams(
    tile=(112, 8, 16),
    warps=1,
    observe="groups",
    stages=2,
    prefetch=1,
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
    fusion, params, extents={"i0": 1, "i2": 2, "i1": 1}, kind="integers", seed=0, gap=0, offset=0
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="prover")
