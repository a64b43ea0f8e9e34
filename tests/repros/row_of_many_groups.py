"""Printing: what each CTA has of a single row was sent by every group of threads that holds it.

The Kernel IR has the first holder send it; 96 times the bytes arrived, and the wait never ended
(an H100: unspecified launch failure).
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0"], dtype="f32")
T1 = fd.ops.max(T0, dims=[0])
T2 = fd.ops.broadcast(T1, is_broadcast_dim=[True])
T3 = fd.ops.mul(T0, T2)
fd.add_output(T3)
fusion = fd.fusion()

params = NormParams((96, 2), 2, 3, None, "direct", "direct", lanes=1, resident=2, cluster=2)

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": n}, "integers", 247) for n in (2, 3)))
