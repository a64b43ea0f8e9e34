"""Small fusions, specs and params that the compiler's tests share."""

from __future__ import annotations

from collections.abc import Mapping

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.pipeline import Program, build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.params import PointwiseParams

DIRECT = PointwiseParams((4, 128), 8, 2, None, "direct", "direct")
STORED = PointwiseParams((4, 128), 8, 2, 2, "direct", "tma")
PIPELINED = PointwiseParams((4, 128), 8, 2, 2, "tma", "direct", 3, 2)
SPECIALIZED = PointwiseParams((4, 128), 8, 2, 2, "tma", "tma", 3, 0, warp_specialized=True)
FAMILIES = {p.family: p for p in (DIRECT, STORED, PIPELINED, SPECIALIZED)}


def row_major(shape: tuple[int, ...], dtype: DType, address: int = 1024) -> Spec:
    """Return the spec of a contiguous tensor."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return Spec(shape, tuple(reversed(strides)), address, dtype)


def bias_relu() -> Fusion:
    """relu(x + y + bias): two tensors that fill the tile, one that does not."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    bias = fd.define_tensor(shape=[-1], dtype="bf16")
    wide = fd.ops.broadcast(bias, is_broadcast_dim=[True, False])
    fd.add_output(fd.ops.relu(fd.ops.add(fd.ops.add(x, y), wide)))
    return fd.fusion()


def bias_specs(rows: int = 10, cols: int = 256) -> dict[str, Spec]:
    """Specs of the inputs of `bias_relu`."""
    wide = row_major((rows, cols), DType.BF16)
    return {"T0": wide, "T1": wide, "T2": row_major((cols,), DType.BF16)}


def compiled(
    params: PointwiseParams | None,
    fusion: Fusion | None = None,
    specs: Mapping[str, Spec] | None = None,
) -> Program:
    """Build a fusion (`bias_relu` if none is given) for its own specs."""
    fusion = fusion or bias_relu()
    specs = specs or bias_specs()
    return build(fusion, params, classify(fusion, params, specs))
