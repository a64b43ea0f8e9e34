"""build: heuristic refused, direct/direct."""

# python 3.11.7, nvrtc 13.0, torch 2.13.0+cpu, z3-solver 5.4.0.0, hypothesis 6.170.15, numpy 2.4.6, cupy-cuda13x 14.2.0
#
# ScheduleError: MatmulParams(tile=(128, 256, 32), stages=6): needs 360544 bytes of shared memory, sm_90a has 232448; use stages=3

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i1", "i0"], dtype="f32")
T1 = fd.define_tensor(shape=["i3", "i0"], dtype="f32")
T2 = fd.ops.linear(T0, T1, precision="tf32")
T3 = fd.ops.sqrt(T2)
fd.add_output(T3)
fusion = fd.fusion()

params = PointwiseParams(
    tile=(1, 1),
    vector=1,
    warps=1,
    ctas_per_sm=None,
    load="direct",
    store="direct",
    stages=1,
    prefetch=0,
    warp_specialized=False,
    flat=False,
    transpose=False,
    overlay=False,
)
case = Case(
    fusion,
    params,
    extents={"i0": 1024, "i1": 4096, "i3": 4096},
    kind="integers",
    seed=0,
    gap=0,
    offset=0,
)


from fuzz.campaign.repro import replay  # noqa: E402  (the case is above)

if __name__ == "__main__":
    replay(case, oracle="build")
