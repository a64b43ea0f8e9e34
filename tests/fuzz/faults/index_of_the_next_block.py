"""differential: value, hopper-cooperative."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 64, 16], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", 16, 16], dtype="bf16")
T2 = fd.define_tensor(shape=["i0"], dtype="i32")
T3 = fd.ops.broadcast(T2, is_broadcast_dim=[False, True, True])
T4 = fd.ops.gather(T1, dim=0, index=T3)
T5 = fd.ops.fused_multiply_sum(
    T0, T4, axes=[3], axis_mapping=[[0, 1, -1, 2], [0, -1, 2, 1]], dtype="bf16"
)
fd.add_output(T5)
fusion = fd.fusion()

params = MatmulParams(
    tile=(64, 16, 16),
    warpgroups=1,
    split="cooperative",
    stages=2,
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
case = Case(fusion, params, extents={"i0": 3, "i1": 4}, kind="integers", seed=1, gap=0, offset=0)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="differential")
