"""Whole rows: where a cluster has one tile, what cp.async brings was never copied."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["m", "n"], dtype="bf16")
fd.add_output(fd.ops.sum(T0, dims=[1]))
fusion = fd.fusion()

params = NormParams(
    (1, 64), 2, 1, None, "cp_async", "direct", stages=1, prefetch=0, lanes=32, cluster=2
)
case = Case(fusion, params, extents={"n": 128, "m": 1}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
