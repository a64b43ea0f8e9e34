"""Products and operands for the reference."""

from __future__ import annotations

import torch

from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from oracles.reference.estimate import TORCH


def product(kind: str = "bf16", dtype: str = "f32", *, rows: int = 2) -> Fusion:
    """Return a [M, K] times b [K, N], or of higher rank."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1] * rows, kind) for _ in range(2))
    lead = list(range(rows - 2))
    mapping = ((*lead, rows - 2, -1, rows - 1), (*lead, -1, rows - 1, rows - 2))
    precision = "tf32" if kind == "f32" else None
    fd.add_output(fd.ops.fused_multiply_sum(a, b, [-1], mapping, dtype, precision))
    return fd.fusion()


def drawn(kind: str, data: str, k: int) -> list[torch.Tensor]:
    """Return operands of [5, K] and [K, 6]."""
    out = []
    for shape in ((5, k), (k, 6)):
        x = torch.rand(shape, dtype=F64) if data == "positive" else torch.randn(shape, dtype=F64)
        if data == "wild":
            x = x * 2.0 ** torch.randint(-12, 7, shape)
        out.append(x.to(F32).to(TORCH_OF[kind]))
    return out


F32, F64 = torch.float32, torch.float64
TORCH_OF = {dtype.name: TORCH[dtype] for dtype in TORCH}


def torn(fd: FusionDefinition, x: TensorView, dtype: str) -> TensorView:
    """Infinite, of either sign: nothing is known of the difference of two equal exponentials."""
    made = fd.ops.reciprocal(fd.ops.sub(fd.ops.exp(x), fd.ops.exp(x)))
    return fd.ops.cast(made, dtype)
