"""Threads: a tile was stored by TMA behind a join that stood before the fence of its writers.

The join was there for another buffer; only the thread that stores had a fence behind it.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 64], dtype="f32")
T1 = fd.define_tensor(shape=["i0", 64], dtype="bool")
T2 = fd.define_tensor(shape=["i0", 64], dtype="f32")
T3 = fd.ops.neg(T0)
T4 = fd.ops.permute(T1, dims=[1, 0])
T5 = fd.ops.relu(T2)
fd.add_output(T3)
fd.add_output(T4)
fd.add_output(T5)
fusion = fd.fusion()

params = PointwiseParams((2, 16), 1, 1, None, "direct", "tma", transpose=True, overlay=False)

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": n}, "integers", 0) for n in (1, 9)))
