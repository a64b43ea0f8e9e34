"""A peer of the benchmark: a persistent matmul in Triton, over tensor descriptors.

Needs a GPU and Triton; only `products` imports it, and only where both are there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

CONFIGS = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (64, 128, 64, 4, 5))
"""Rows, columns and depth of a tile, warps and stages; the fastest one is the peer."""


@triton.jit
def _persistent(  # noqa: ANN202 - Triton's types are not Python's
    a,  # noqa: ANN001
    b,  # noqa: ANN001
    c,  # noqa: ANN001
    M,  # noqa: ANN001
    N,  # noqa: ANN001
    K,  # noqa: ANN001
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SMS: tl.constexpr,
):
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), down * across, SMS, flatten=True):
        group = tile // (GROUP * across)
        first = group * GROUP
        rows = tl.minimum(down - first, GROUP)
        m = (first + (tile % (GROUP * across)) % rows) * BM
        n = ((tile % (GROUP * across)) // rows) * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            left = a.load([m, k * BK])
            right = b.load([n, k * BK])
            acc = tl.dot(left, right.T, acc)
        c.store([m, n], acc.to(tl.bfloat16))


def matmul(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, config: tuple[int, int, int, int, int]
) -> None:
    """Compute out = x @ w.T, all row-major bf16, by one of `CONFIGS`."""
    bm, bn, bk, warps, stages = config
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    (m, k), n = x.shape, w.shape[0]
    tiles = -(-m // bm) * -(-n // bn)
    maps = (
        TensorDescriptor.from_tensor(x, [bm, bk]),
        TensorDescriptor.from_tensor(w, [bn, bk]),
        TensorDescriptor.from_tensor(out, [bm, bn]),
    )
    grid = (min(sms, tiles),)
    _persistent[grid](*maps, m, n, k, bm, bn, bk, 8, sms, num_warps=warps, num_stages=stages)
