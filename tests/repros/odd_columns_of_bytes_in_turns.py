"""Heuristics: many odd columns of bytes whose sums CTAs put together in turns had no schedule: rows
of tiles were to have 128 bytes, and 32 threads have 64 of them, two each.

Found by a night on an H200, at usual extents.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i0"], dtype="bool")
T1 = fd.ops.sum(T0, dims=[0], dtype="i64")
T1.request_serial_grid_reduction(method="vectorized")
fd.add_output(T1)

params = PointwiseParams((1, 32), 1, 1, None, "direct", "direct")
case = Case(fd.fusion(), params, {"i0": 17}, kind="integers", seed=3)

if __name__ == "__main__":
    replay(case, oracle="build")
