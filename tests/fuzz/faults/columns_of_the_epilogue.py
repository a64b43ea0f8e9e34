"""prover: coverage, hopper-ping_pong."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# matmul2
# error: coverage at T2: trips=1, T0_operand_1_0_1_s0=4, T1_operand_1_1_0_s1=4, T2_s0=1, gridDim=1, n0=1, n1=1, n2=1, raster=1: element (0, 0) is written twice

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=[64, "i2"], dtype="f32")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="f32")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 1, 0]], dtype="f32", precision="tf32"
)
fd.add_output(T2)
fusion = fd.fusion()

params = MatmulParams(
    tile=(64, 16, 16),
    warpgroups=2,
    split="ping_pong",
    stages=1,
    prefetch=0,
    persistent=True,
    raster=1,
    columns=8,
    store="direct",
    registers=None,
    cluster=(1, 1),
    prologue="memory",
    inputs="direct",
    stacked=False,
    splits=1,
    meet="vectorized",
    residency="ticket",
    partial="f32",
    overlay=False,
    resident=1,
)
case = Case(fusion, params, extents={"i2": 1, "i1": 1}, kind="integers", seed=0, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="prover")
