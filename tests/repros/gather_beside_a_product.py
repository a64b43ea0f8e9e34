"""Segmentation: what is taken by index came into the kernel of a product of the same extents.

The lowering of products asserted that nothing is; the index lies behind a view.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 8], dtype="bf16")
T1 = fd.define_tensor(shape=[8, 8], dtype="bf16")
T2 = fd.ops.matmul(T0, T1)
T3 = fd.define_tensor(shape=["i0", 8], dtype="bf16")
T4 = fd.ops.broadcast(fd.ops.iota(8, start=0, step=0, dtype="i64"), is_broadcast_dim=[True, False])
T5 = fd.ops.gather(T3, dim=1, index=T4)
T6 = fd.ops.slice(T5, dim=1, start=4, end=8, step=1)
T7 = fd.ops.slice(T5, dim=1, start=0, end=4, step=1)
T8 = fd.ops.cat([T6, T7], dim=1)
fd.add_output(T2)
fd.add_output(T8)
fusion = fd.fusion()

params = MatmulParams((64, 16, 16), 1, "pipelined", 2, 1, False, columns=16)

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": n}, "reals", 0) for n in (1, 18, 128)))
