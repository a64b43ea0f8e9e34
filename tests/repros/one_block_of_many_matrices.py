"""Compiler: one block whose matrix an index names was multiplied by another one: its axis had one
element, so that the stride by which the index finds the matrices was rounded up as if nobody walked
it.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i4", "i0", 8], dtype="bf16")
T1 = fd.define_tensor(shape=["i0"], dtype="i64")
T2 = fd.ops.broadcast(T1, is_broadcast_dim=[False, True, True])
T3 = fd.ops.gather(T0, dim=0, index=T2)
T4 = fd.define_tensor(shape=["i0", 8, "i2"], dtype="bf16")
mapping = [[0, 1, -1, 2], [0, -1, 2, 1]]
fd.add_output(fd.ops.fused_multiply_sum(T3, T4, axes=[3], axis_mapping=mapping, dtype="bf16"))

params = MatmulParams((64, 16, 32), 1, "pipelined", 2, 1, persistent=False, raster=2, columns=16)
extents = {"i4": 39, "i0": 1, "i2": 68}
case = Case(fd.fusion(), params, extents, kind="integers", seed=40, gap=0, offset=16)

if __name__ == "__main__":
    replay(case, oracle="differential")
