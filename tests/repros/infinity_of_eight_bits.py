"""Rows whose ends are filled: registers hold bits of f8e4m3, which has no infinity to fill with."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 8], dtype="f8e4m3")
T1 = fd.ops.cast(T0, dtype="f32")
T2 = fd.ops.max(T1, dims=[1])
fd.add_output(T2)
fusion = fd.fusion()

params = NormParams((1, 512), 2, 4, None, "direct", "direct", lanes=128)
case = Case(fusion, params, extents={"i0": 1}, kind="integers", seed=0, gap=0, offset=0)

if __name__ == "__main__":
    replay(case)
