"""Assembler: of the smallest of four negated numbers one had lost its sign, on a GPU alone.

ptxas of CUDA 13.0 makes VIMNMX3 of min(-a, min(-b, -c)) for sm_90a, and negates a and c only.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=[3, "i2"], dtype="i32")
T1 = fd.ops.neg(T0)
T2 = fd.ops.min(T1, dims=[1])
fd.add_output(T2)
fusion = fd.fusion()

params = AmpereParams((16, 8, 16), 1, "groups", 1, 0, persistent=False, columns=8)
case = Case(fusion, params, extents={"i2": 4}, kind="integers", seed=0, gap=0, offset=0)

if __name__ == "__main__":
    replay(case)
