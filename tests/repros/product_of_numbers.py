"""Classification: an operand made of numbers alone was to be computed in registers of `mma.sync`.

There is nothing in memory whose alignment could be asked for: `KeyError`.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.ops.full(shape=["i0", 8], value=1, dtype="bf16")
T1 = fd.define_tensor(shape=[8, "i1"], dtype="bf16")
T2 = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
T3 = fd.ops.add(fd.ops.matmul(fd.ops.neg(T0), T1), T2)
fd.add_output(T3)
fusion = fd.fusion()

params = AmpereParams((64, 8, 16), 4, "mbarriers", 2, 0, True, columns=8, prologue="registers")

if __name__ == "__main__":
    replay(*(Case(fusion, params, {"i0": n, "i1": 24}, "integers", 0) for n in (1, 18, 128)))
