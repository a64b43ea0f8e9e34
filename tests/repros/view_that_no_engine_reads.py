"""An operand that is a view, as a slice, whose rows do not begin at multiples of 16 bytes.

What is copied first was found by the name that a definition gives a tensor, a view by one of its
own: it was never copied, and the call refused.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["m", 17], dtype="bf16")
T1 = fd.define_tensor(shape=["n", 16], dtype="bf16")
fd.add_output(fd.ops.linear(fd.ops.slice(T0, dim=1, start=1, end=17), T1))
fusion = fd.fusion()

params = MatmulParams((64, 16, 64), 1, "pipelined", 2, 1, persistent=False, columns=16)

if __name__ == "__main__":
    replay(Case(fusion, params, {"m": 40, "n": 24}, "integers", 0), oracle="build")
