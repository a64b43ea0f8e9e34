"""differential: value, hopper-ping_pong.

Matrices that an index takes of what is permuted: the index was read at its first element for all of
them, as it varies along another axis than the tensor in memory.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1", "i3"], dtype="bf16")
T1 = fd.define_tensor(shape=["i3", "i0", "i2"], dtype="bf16")
T2 = fd.ops.permute(T1, dims=[1, 0, 2])
T3 = fd.define_tensor(shape=["i0"], dtype="i64")
T4 = fd.ops.broadcast(T3, is_broadcast_dim=[False, True, True])
T5 = fd.ops.gather(T2, dim=0, index=T4)
T6 = fd.ops.fused_multiply_sum(
    T0, T5, axes=[3], axis_mapping=[[0, 1, -1, 2], [0, -1, 2, 1]], dtype="bf16"
)
fd.add_output(T6)
fusion = fd.fusion()

params = MatmulParams(
    tile=(192, 16, 16),
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
    transpose=False,
    staging=1,
)
case = Case(
    fusion,
    params,
    extents={"i0": 3, "i1": 4, "i3": 1, "i2": 8},
    kind="integers",
    seed=8,
    gap=0,
    offset=0,
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="differential")
