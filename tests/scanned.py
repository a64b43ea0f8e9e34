"""Kernels that scan what they load, and fusions that do."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.schedule.params import ScanParams

PLAIN = ScanParams((4, 256), 8, 4, None, "direct", "direct", lanes=32)
SCHEDULES = {
    "a warp a row": PLAIN,
    "several warps a row": replace(PLAIN, tile=(2, 512), lanes=64),
    "persistent": replace(PLAIN, tile=(1, 1024), lanes=128, ctas_per_sm=1),
    "lanes of a warp": replace(PLAIN, tile=(64, 32), lanes=4),
    "a thread a row": replace(PLAIN, tile=(128, 8), lanes=1),
    "no vectors": replace(PLAIN, tile=(32, 4), vector=1, lanes=4),
    "cp.async, pipelined": replace(PLAIN, load="cp_async", stages=3, prefetch=2),
    "cp.async, specialized": replace(PLAIN, load="cp_async", stages=2, warp_specialized=True),
    "tma, pipelined": replace(PLAIN, load="tma", stages=2, prefetch=1),
    "tma, specialized": replace(PLAIN, load="tma", stages=3, warp_specialized=True),
    "tma, several warps a row": replace(
        PLAIN, tile=(2, 256), vector=4, lanes=64, load="tma", stages=3, prefetch=1, overlay=True
    ),
}
"""Every way to share rows, and every engine."""


def scan(dim: int, dtype: str = "bf16", *, around: bool = False) -> Fusion:
    """Return cumsum(x), or silu(cumsum(x * y))."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    if around:
        y = fd.define_tensor(["m", "n"], dtype)
        fd.add_output(fd.ops.silu(fd.ops.cumsum(fd.ops.mul(x, y), dim)))
    else:
        fd.add_output(fd.ops.cumsum(x, dim))
    return fd.fusion()


def kernel(
    src: kir.Layout,
    start: kir.Layout,
    op: str = "add",
    dst: kir.Layout | None = None,
    *,
    exclusive: bool = False,
) -> kir.Kernel:
    """Load X and what each run begins with, scan, and store Y."""
    dst = dst or src
    names = ("x", src), ("begin", start), ("y", dst)
    x, begin, y = (kir.Fragment(name, DType.F32, layout) for name, layout in names)
    tensors = tuple(
        kir.Tensor(name, DType.F32, shape, (shape[-1], 1), 1)
        for name, shape in (("X", src.shape), ("B", start.shape), ("Y", dst.shape))
    )
    boxes = [kir.Box(tensor, (0, 0), tensor.extents, tensor.extents) for tensor in tensors]  # type: ignore[arg-type]
    body = (
        kir.Load(x, boxes[0], 1),
        kir.Load(begin, boxes[1], 1),
        kir.Scan(y, x, op, begin, exclusive=exclusive),
        kir.Store(boxes[2], y, 1),
    )
    return kir.Kernel("k", (), tensors, (), (), (), max(src.threads, 32), body, ("Y",))
