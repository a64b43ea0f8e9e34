"""Cut: two rows of a product are sums of one tensor, whose parts had one name for both.

What the kernel with the first product had begun could not be told apart, so that nobody asked
whether it can read its operand.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i2", "i4"], dtype="f32")
T1 = fd.ops.cast(T0, dtype="bf16")
T2 = fd.ops.permute(T1, dims=[2, 0, 1])
T3 = fd.ops.broadcast(T2, is_broadcast_dim=[False, True, False, False])
T4 = fd.define_tensor(shape=[1, "i1", "i0", "i2"], dtype="bf16")
T5 = fd.ops.fused_multiply_sum(
    T3, T4, axes=[3], axis_mapping=[[0, -1, 2, 3], [-1, 1, 2, 3]], dtype="bf16"
)
T6 = fd.define_tensor(shape=["i0", 1, 1, "i0"], dtype="bf16")
T7 = fd.ops.broadcast(T5, is_broadcast_dim=[True, False, False, False])
T8 = fd.ops.fused_multiply_sum(
    T6, T7, axes=[3], axis_mapping=[[0, -1, -1, 3], [-1, 1, 2, 3]], dtype="f32"
)
fd.add_output(T8)

params = MatmulParams((64, 8, 16), 1, "pipelined", 1, 0, persistent=False, raster=1, columns=8)
extents = {"i0": 2, "i2": 1, "i4": 5, "i1": 5}
case = Case(fd.fusion(), params, extents, "integers", 0)

if __name__ == "__main__":
    replay(case, oracle="build")
