"""prover: drain, hopper-pipelined."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# matmul0
# error: drain at line 56: W_acc[(tile * 64)+64, 0+8] <~ tma_store(S_acc[0]) | line 47: acc_so_far = load(W_acc[(tile * 64)+64, 0+16], width=2): trips=1: `acc_so_far = load(W_acc[(tile * 64)+64, 0+16], width=2)`: nothing orders the end of the TMA store (line 56) before the load (line 47) of W_acc by lanes 1..31 of warp 0 of CTA 1: its turn was given away with the bulk writes in flight (the other is `W_acc[(tile * 64)+64, 0+8] <~ tma_store(S_acc[0])`)
# error: drain at line 57: W_acc[(tile * 64)+64, 8+8] <~ tma_store(S_acc[1]) | line 47: acc_so_far = load(W_acc[(tile * 64)+64, 0+16], width=2): trips=1: `acc_so_far = load(W_acc[(tile * 64)+64, 0+16], width=2)`: nothing orders the end of the TMA store (line 57) before the load (line 47) of W_acc by lanes 1..31 of warp 0 of CTA 1: its turn was given away with the bulk writes in flight (the other is `W_acc[(tile * 64)+64, 8+8] <~ tma_store(S_acc[1])`)

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2"], dtype="bf16")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 1, 0]], dtype="bf16"
)
fd.add_output(T2)
fusion = fd.fusion()

params = MatmulParams(
    tile=(64, 16, 16),
    warpgroups=1,
    split="pipelined",
    stages=1,
    prefetch=0,
    persistent=False,
    raster=1,
    columns=8,
    store="direct",
    registers=None,
    cluster=(1, 1),
    prologue="memory",
    inputs="direct",
    stacked=False,
    splits=2,
    meet="tma",
    residency="ticket",
    partial="f32",
    overlay=False,
    resident=1,
)
case = Case(
    fusion, params, extents={"i0": 1, "i2": 1, "i1": 1}, kind="integers", seed=0, gap=0, offset=0
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="prover")
