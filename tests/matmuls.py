"""Matmuls as the compiler writes them, by hand, beside that of `fuzz.kernels.product`."""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook.matmul import ACC, wgmma_ring
from fuser.cookbook.ring import CP_ASYNC, WGMMA, k, q, trips
from fuser.dtype import DType
from fuser.expr import Expr, ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.product import K, M, Matmul, N, swizzled


def ampere(tile: tuple[int, int, int] = (128, 128, 32), stages: int = 3) -> kir.Kernel:
    """Return the older way: cp.async of eight warps, `ldmatrix`, `mma`, a tile for each CTA."""
    bm, bn, bk = tile
    how, threads = Matmul(tile), 256
    a, b, d = how.tensor("A", M, K), how.tensor("B", N, K), how.tensor("D", M, N)
    sa = swizzled("SA", (bm, bk), stages, 0)
    sb = swizzled("SB", (bn, bk), stages, sa.end)
    acc, out = how.fragment("acc", DType.F32, bn), how.fragment("out", DType.BF16, bn)
    left = how.fragment("a", DType.BF16, bk)
    right = kir.Fragment("b", DType.BF16, kir.Layout((bn, bk), 2, threads, kir.Deal.EACH_WARP))
    across = ceildiv(N, bn)
    row, column = kir.BLOCK // across * bm, kir.BLOCK % across * bn

    def copy(at: Expr) -> kir.Stmt:
        into_a, into_b = kir.Slot(sa, at % stages), kir.Slot(sb, at % stages)
        copies = (
            kir.CpAsync(into_a, how.box(a, (row, at * bk), bm, bk), _round(bm, bk), 8),
            kir.CpAsync(into_b, how.box(b, (column, at * bk), bn, bk), _round(bn, bk), 8),
        )
        return kir.IfThenElse(at < trips, copies)

    loop = (
        kir.AsyncAwait(CP_ASYNC, stages - 2),
        kir.BlockSync(0, threads),
        copy(k + (stages - 1)),
        kir.AsyncCommit(CP_ASYNC),
        kir.Load(left, kir.Slot(sa, k % stages), 2, 0, matrix=True),
        kir.Load(right, kir.Slot(sb, k % stages), 2, 0, matrix=True),
        kir.Mma(acc, left, right),
    )
    body = (
        kir.Let(trips, ceildiv(K, bk)),
        kir.Compute(acc, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.ForLoop(q, stages - 1, (copy(q), kir.AsyncCommit(CP_ASYNC))),
        kir.ForLoop(k, trips, loop),
        kir.Compute(out, "cast", (acc,)),
        kir.Store(how.box(d, (row, column), bm, bn), out, 2),
    )
    return kir.Kernel(
        "ampere", (M, N, K), (a, b, d), (), (sa, sb), (), threads, body, ("D",),
        requires=(eq(kir.GRID, ceildiv(M, bm) * across),),
    )  # fmt: skip


SLICED = {"late": set[str](), "early": {"RAW"}, "onto": {"WAW"}, "unfenced": {"fence"}}
"""Ways to slice the accumulator of a ring, and the errors that judges find."""


def sliced(how: str) -> kir.Kernel:
    """Return a small ring whose result leaves by a slice, taken in one of the ways of `SLICED`."""
    kernel = wgmma_ring(4, 0)
    out, zero = replace(ACC, name="out"), kir.Literal(0.0, DType.F32)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        take, flush = kir.Slice(out, ACC, 0), kir.AsyncAwait(WGMMA, 0)
        match how, stmt:
            case "late", kir.Store(dst):
                return [take, kir.Store(dst, out, 2)]
            case "early", kir.AsyncAwait():
                return [take, flush]
            case "onto", kir.AsyncAwait():
                return [kir.Compute(out, "cast", (zero,)), kir.Slice(ACC, out, 0), flush]
            case "unfenced", kir.WgmmaFence():
                return [stmt, take]
            case _:
                return None

    return kernel.rewrite(rule)


def _round(rows: int, columns: int) -> kir.Layout:
    return kir.Layout((rows, columns), 8, 256)
