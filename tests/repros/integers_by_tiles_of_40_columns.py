"""Heuristics: three products of i8 were given tiles of 40 columns each, which no wgmma of i8 has.

Found by a night on an H200, at usual extents.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i0"], dtype="i8")
T1 = fd.define_tensor(shape=["i1", "i0"], dtype="i8")
T2 = fd.define_tensor(shape=["i1", "i0"], dtype="i8")
T3 = fd.define_tensor(shape=["i1", "i0"], dtype="i8")
rows, columns = [0, -1, 1], [-1, 0, 1]
T4 = fd.ops.fused_multiply_sum(T0, T1, axes=[2], axis_mapping=[rows, columns], dtype="i32")
T4.request_serial_grid_reduction(method="vectorized")
T5 = fd.ops.fused_multiply_sum(T0, T2, axes=[2], axis_mapping=[rows, columns], dtype="i32")
T6 = fd.ops.fused_multiply_sum(T0, T3, axes=[2], axis_mapping=[rows, columns], dtype="i32")
fd.add_output(fd.ops.add(fd.ops.add(T4, T5), T6))

params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
case = Case(fd.fusion(), params, {"i0": 8, "i1": 8}, kind="integers", seed=2)

if __name__ == "__main__":
    replay(case, oracle="build")
