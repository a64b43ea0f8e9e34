"""Classes of calls: a product of two kernels was refused where its operands had to be copied.

What the first of them asked for was taken for done when the second was looked at.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", "i2", "i0"], dtype="bf16")
T2 = fd.ops.permute(fd.ops.relu(T0), dims=[1, 0])
T3 = fd.ops.broadcast(T2, is_broadcast_dim=[True, False, False])
T4 = fd.ops.permute(fd.ops.relu(T1), dims=[2, 1, 0])
T5 = fd.ops.fused_multiply_sum(
    T3, T4, axes=[1, 2], axis_mapping=[[-1, 1, 2], [0, 1, 2]], dtype="bf16"
)
T6 = fd.ops.max(T5, dims=[0], keepdim=True)
fd.add_output(fd.ops.relu(T6))
fd.add_output(fd.ops.maximum(T5, T6))
fusion = fd.fusion()

params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
extents = {"i1": 16, "i2": 32, "i0": 32}

if __name__ == "__main__":
    replay(Case(fusion, params, extents, "reals", 0))
