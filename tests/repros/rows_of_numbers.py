"""Heuristic: rows that are computed of numbers alone have no type of what is read; `ValueError`."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", 8], dtype="bf16")
T1 = fd.ops.full(shape=["i0", 8], value=2, dtype="bf16")
T2 = fd.ops.prod(fd.ops.sign(T1), dtype="bf16", dims=[1])
fd.add_output(T2)
fusion = fd.fusion()

params = MatmulParams((64, 16, 16), 1, "pipelined", 2, 1, False, columns=16)

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": n}, "integers", 0) for n in (0, 1, 300)))
