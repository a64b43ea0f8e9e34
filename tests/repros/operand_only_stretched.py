"""Compiler: an operand that is only stretched along what is summed over was read as if it had that
axis, with a stride of 1, where operands may be computed in registers: nothing of it is computed.

A tensor of five elements was read as one of five by two.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1"], dtype="bf16")
T1 = fd.define_tensor(shape=[1, "i3"], dtype="bf16")
T2 = fd.ops.expand(T1, shape=["i1", "i3"])
mapping = [[1, -1, 0], [0, 1, -1]]
fd.add_output(fd.ops.fused_multiply_sum(T0, T2, axes=[0], axis_mapping=mapping, dtype="bf16"))

params = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
case = Case(fd.fusion(), params, {"i0": 5, "i1": 2, "i3": 5}, kind="integers", seed=0)

if __name__ == "__main__":
    replay(case, oracle="differential")
