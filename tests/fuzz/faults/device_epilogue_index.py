"""ptx: value, hopper-pipelined."""

# fuser 2c005cf8, python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
# own launch
# error: value at output 0: 8 of 8 elements wrong; worst at [0, 0]: got 0.0, expected -16.0, bound 0, error 16, error/bound inf

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
    tile=(64, 16, 16),
    warpgroups=1,
    split="pipelined",
    stages=1,
    prefetch=0,
    persistent=False,
    raster=1,
    columns=16,
    store="tma",
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
    fusion, params, extents={"i0": 1, "i1": 1, "i2": 8}, kind="integers", seed=0, gap=0, offset=0
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="ptx")
