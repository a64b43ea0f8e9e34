"""Lowering: an A that is computed for a product as it is and transposed had one fragment."""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["b", "b", "m", "k"], dtype="bf16")
T1 = fd.define_tensor(shape=["b", "b", "k", "n"], dtype="bf16")
T2 = fd.ops.relu(T0)
T3 = fd.ops.matmul(T2, T1)
fd.add_output(T3)
T4 = fd.ops.permute(T3, dims=[1, 0, 2, 3])
fd.add_output(T4)
fusion = fd.fusion()

params = MatmulParams(
    (64, 16, 32), 1, "pipelined", 2, 1, persistent=False, columns=16, prologue="registers"
)
case = Case(fusion, params, {"b": 2, "m": 8, "k": 40, "n": 16}, kind="integers", seed=3)

if __name__ == "__main__":
    replay(case)
