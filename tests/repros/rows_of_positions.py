"""Norms: rows of numbers that no tensor holds were added up beyond their end.

Nothing that is loaded was looked at for what it is behind the last column, and so all of it passed.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import NormParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.ops.tanh(fd.ops.iota("i1", start=0, step=-1, dtype="f32"))
T2 = fd.ops.mean(T1, dims=[0])
T3 = fd.ops.sub(T1, fd.ops.broadcast(T2, is_broadcast_dim=[True]))
T4 = fd.ops.mean(T0, dims=[1])
T5 = fd.ops.sub(T0, fd.ops.broadcast(T4, is_broadcast_dim=[False, True]))
fd.add_output(T3)
fd.add_output(T5)
fusion = fd.fusion()

params = NormParams((3, 512), 4, 3, None, "direct", "direct", lanes=32, resident=2)

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": 2, "i1": n}, "reals", 0) for n in (3, 511)))
