"""ptx: RAW, hopper-pipelined."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# matmul0 own launch
# error: RAW at line 424 `wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f36, %f37, %f38, %f39}, %rd54, %rd55`: bytes shared 0xc00 that nobody has written by t0:

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.define_tensor(shape=["i2", "i1"], dtype="bf16")
T2 = fd.ops.fused_multiply_sum(
    T0, T1, axes=[2], axis_mapping=[[0, -1, 1], [-1, 0, 1]], dtype="bf16"
)
fd.add_output(T2)
fusion = fd.fusion()

params = MatmulParams(
    tile=(64, 8, 16),
    warpgroups=1,
    split="pipelined",
    stages=2,
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
    splits=1,
    meet="vectorized",
    residency="ticket",
    partial="f32",
    overlay=False,
    resident=1,
)
case = Case(
    fusion, params, extents={"i0": 1, "i1": 1, "i2": 1}, kind="integers", seed=0, gap=0, offset=0
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
