"""Classes of shapes: TMA was to copy an operand whose batches lie one element apart.

With one element along K the contiguous axis is none of the tile's: the driver refuses the map.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.define_tensor(shape=["i1", "i0"], dtype="bf16")
T2 = fd.ops.permute(T1, dims=[1, 0])
T3 = fd.ops.fused_multiply_sum(T0, T2, axes=[1], axis_mapping=[[0, 1], [0, 1]], dtype="f32")
fd.add_output(T3)
fusion = fd.fusion()

params = MatmulParams((64, 16, 16), 1, "pipelined", 1, 0, False, columns=16)
case = Case(fusion, params, {"i0": 2, "i1": 1}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case)
