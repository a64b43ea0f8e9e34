"""Two products of a loop, each of an operand that is computed in registers, by a load role.

Lanes of a warp read the second operand behind the join that handed back slots of the step before.
Behind the last step nothing joined them: one lane handed back a slot that others still read.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["m", "k"], dtype="bf16")
T1 = fd.define_tensor(shape=["m", "k"], dtype="bf16")
T2 = fd.define_tensor(shape=["n", "k"], dtype="bf16")
T3 = fd.define_tensor(shape=["n", "k"], dtype="bf16")
T4 = fd.ops.linear(fd.ops.silu(T0), T2)
fd.add_output(fd.ops.add(T4, fd.ops.linear(fd.ops.silu(T1), T3)))
fusion = fd.fusion()

params = MatmulParams(
    (64, 16, 16), 1, "cooperative", 3, 1, persistent=True, columns=16, prologue="registers"
)

if __name__ == "__main__":
    replay(Case(fusion, params, {"m": 24, "k": 96, "n": 80}, "reals", 0), oracle="prover")
