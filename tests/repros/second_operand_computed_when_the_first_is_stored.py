"""Compiler: of a product whose operands both are cast from f32 the first, which was to be computed
in registers, was stored in the end; the second was then to be computed in its place, by transposed
tiles, which write no f32: the default was refused.
"""

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.ampere_params import AmpereParams
from fuzz.campaign.repro import replay
from fuzz.cases.case import Case

fd = FusionDefinition()
T0 = fd.define_tensor(shape=["i0", "i1", "i3"], dtype="f32")
T1 = fd.ops.cast(T0, dtype="bf16")
T2 = fd.define_tensor(shape=["i0", "i3", "i2"], dtype="f32")
T3 = fd.ops.cast(T2, dtype="bf16")
T4 = fd.ops.permute(T1, dims=[2, 1, 0])
T5 = fd.ops.broadcast(T4, is_broadcast_dim=[False, True, False, False])
T6 = fd.ops.permute(T3, dims=[1, 2, 0])
T7 = fd.ops.broadcast(T6, is_broadcast_dim=[False, False, True, False])
mapping = [[0, -1, 2, 3], [0, 1, -1, 3]]
fd.add_output(fd.ops.fused_multiply_sum(T5, T7, axes=[0], axis_mapping=mapping, dtype="f32"))

params = AmpereParams((16, 8, 16), 1, "groups", 1, 0, persistent=False, raster=1, columns=8)
extents = {"i0": 1, "i1": 1, "i3": 2, "i2": 1}
case = Case(fd.fusion(), params, extents, kind="integers", seed=6, gap=0, offset=0)

if __name__ == "__main__":
    replay(case, oracle="build")
