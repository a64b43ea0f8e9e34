"""Reference: quotients by one number of each row are rounded twice where they are subnormal.

Found by a night on an H200 (a GPU shows it): five of 96,000 elements, off by half the least number.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1", "i2"], dtype="f32")
T1 = fd.ops.min(T0, dims=[2], keepdim=True)
fd.add_output(fd.ops.div(T0, T1))

params = MatmulParams((64, 64, 64), 1, "pipelined", 2, 1, persistent=False)
case = Case(fd.fusion(), params, {"i0": 32, "i1": 40, "i2": 75}, kind="reals", seed=160)

if __name__ == "__main__":
    replay(case)
