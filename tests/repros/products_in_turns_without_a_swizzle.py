"""Heuristics: three products in turns were given tiles of 40 columns, which no swizzle has where B
lies along its columns.

Found by a night on an H200, at usual extents.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
T2 = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
T3 = fd.define_tensor(shape=["i1", "i2"], dtype="bf16")
T4 = fd.ops.matmul(T0, T1)
T4.request_serial_grid_reduction("vectorized")
fd.add_output(fd.ops.add(fd.ops.add(T4, fd.ops.matmul(T0, T2)), fd.ops.matmul(T0, T3)))

params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
case = Case(fd.fusion(), params, {"i0": 8, "i1": 8, "i2": 8}, kind="integers", seed=2)

if __name__ == "__main__":
    replay(case, oracle="build")
