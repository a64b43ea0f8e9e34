"""Kernels with what a matmul adds, which pairs about it are variants of."""

from __future__ import annotations

from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    SHARED,
    TILE,
    WGMMA,
    Body,
    Run,
    elect,
    fragment,
    init,
    k,
    kernel,
    n,
    said,
    store,
    t,
    wait,
    zero,
)
from litmus.products import ROWS

DEPTH, WIDE, HALF = 16, 16, 8
STRIPS = kir.Deal.STRIPS


def strips(name: str, columns: int, dtype: DType = DType.F32) -> kir.Fragment:
    """Return a part of a result of a warpgroup."""
    return kir.Fragment(name, dtype, kir.Layout((ROWS, columns), 2, 128, STRIPS))


def tensor(name: str, *shape: Expr) -> kir.Tensor:
    """Return a tensor of 16-bit elements, rows one behind the other."""
    strides: tuple[Expr, ...] = (1,)
    for extent in reversed(shape[1:]):
        strides = (strides[0] * extent, *strides)
    return kir.Tensor(name, DType.BF16, shape, strides, 8)


def whole(of: kir.Tensor, *shape: int, at: tuple[Expr, ...] = (0, 0)) -> kir.Box:
    """Return a box of a tensor."""
    return kir.Box(of, at, shape, of.extents)


A, B, Y = tensor("A", ROWS, DEPTH), tensor("B", WIDE, DEPTH), tensor("Y", ROWS, WIDE)
ACC = strips("acc", WIDE)
ZERO = kir.Literal(0.0, DType.F32)


# --- an epilogue by parts -----------------------------------------------------------------------

BY_PARTS = "await left put_left right put_right fence_proxy sync out end"


def by_parts(epilogue: str, *, swizzle: int = 0) -> kir.Kernel:
    """Return a product whose result leaves in two halves of its columns."""
    a = kir.Buffer("SA", DType.BF16, (ROWS, DEPTH), 1, 0, swizzle)
    b = kir.Buffer("SB", DType.BF16, (WIDE, DEPTH), 1, a.end, swizzle)
    staged = kir.Buffer("SY", DType.BF16, (ROWS, HALF), 2, b.end)
    full = kir.MBarrier("full", 1, 1)
    words: dict[str, kir.Stmt] = {
        "await": kir.AsyncAwait(WGMMA, 0),
        "fence_proxy": kir.FenceAsyncProxy(SHARED),
        "sync": kir.BlockSync(0, 128),
        "warp": kir.WarpSync(),
        "end": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    }
    out: Body = ()
    for i, side in enumerate(("left", "right")):
        part, slot = strips(side, HALF), kir.Slot(staged, i)
        words[side] = kir.Slice(part, ACC, i * HALF)
        words[f"put_{side}"] = kir.Store(slot, part, 2, matrix=True)
        words[f"get_{side}"] = kir.Load(part, slot, 2)
        out = (*out, kir.TmaStore(whole(Y, ROWS, HALF, at=(0, i * HALF)), slot))
    words["out"] = elect(*out, kir.AsyncCommit(BULK))
    body = (
        init(full),
        kir.BlockSync(0, 128),
        elect(
            kir.MBarrierArriveExpectTx(full, 0, a.slot_nbytes + b.slot_nbytes),
            kir.TmaLoad(kir.Slot(a, 0), whole(A, ROWS, DEPTH), full, 0),
            kir.TmaLoad(kir.Slot(b, 0), whole(B, WIDE, DEPTH), full, 0),
        ),
        wait(full, 0, 0),
        kir.WgmmaFence(),
        kir.Wgmma(ACC, kir.Slot(a, 0), kir.Slot(b, 0), 0),
        kir.AsyncCommit(WGMMA),
        *said(epilogue, words),
    )
    return kernel(
        body, threads=128, buffers=(a, b, staged), barriers=(full,), tensors=(A, B, Y), params=()
    )


# --- a result that is the next operand ----------------------------------------------------------

CHAINED = "first fence mma commit await second fence2 mma2 commit2 await2"


def chained(sentence: str) -> kir.Kernel:
    """Return two products by halves of a fragment, which one fragment of operands takes in turn."""
    wide = tensor("A", ROWS, 2 * DEPTH)
    b = kir.Buffer("SB", DType.BF16, (HALF, DEPTH), 1, 0)
    source, y = tensor("B", HALF, DEPTH), tensor("Y", ROWS, HALF)
    full = kir.MBarrier("full", 1, 1)
    given, operand = (strips(*of, DType.BF16) for of in (("given", 2 * DEPTH), ("half", DEPTH)))
    acc = strips("acc", HALF)
    words: dict[str, kir.Stmt] = {
        "first": kir.Slice(operand, given, 0),
        "second": kir.Slice(operand, given, DEPTH),
    }
    for i in ("", "2"):
        words["fence" + i] = kir.WgmmaFence()
        words["mma" + i] = kir.Wgmma(acc, operand, kir.Slot(b, 0), int(i == "2"))
        words["commit" + i] = kir.AsyncCommit(WGMMA)
        words["await" + i] = kir.AsyncAwait(WGMMA, 0)
    body = (
        init(full),
        kir.BlockSync(0, 128),
        elect(
            kir.MBarrierArriveExpectTx(full, 0, b.slot_nbytes),
            kir.TmaLoad(kir.Slot(b, 0), whole(source, HALF, DEPTH), full, 0),
        ),
        wait(full, 0, 0),
        kir.Load(given, whole(wide, ROWS, 2 * DEPTH), 2),
        *said(sentence, words),
        kir.Store(whole(y, ROWS, HALF), acc, 2),
    )
    return kernel(
        body, threads=128, buffers=(b,), barriers=(full,), tensors=(wide, source, y), params=()
    )


# --- matrix accesses ----------------------------------------------------------------------------


def round_trip(
    loop: str, *, put_matrix: bool = True, get_matrix: bool = True, deal: kir.Deal = STRIPS
) -> kir.Kernel:
    """Return a loop in which two warps put a tile into shared memory and take it out again."""
    shape = (32, 16)
    tile = kir.Fragment("x", DType.BF16, kir.Layout(shape, 2, 64, deal))
    buffer = kir.Buffer("S", DType.BF16, shape, 1, 0)
    slot, (x, y) = kir.Slot(buffer, 0), (tensor(name, n * 32, 16) for name in "XY")
    words: dict[str, kir.Stmt] = {
        "put": kir.Store(slot, tile, 2, matrix=put_matrix),
        "get": kir.Load(tile, slot, 2, matrix=get_matrix),
        "warp": kir.WarpSync(),
        "warp2": kir.WarpSync(),
        "sync": kir.BlockSync(0, 64),
    }
    body = (
        kir.Load(tile, whole(x, *shape, at=(k * 32, 0)), 2),
        *said(loop, words),
        kir.Store(whole(y, *shape, at=(k * 32, 0)), tile, 2),
    )
    return kernel((kir.ForLoop(k, n, body),), threads=64, buffers=(buffer,), tensors=(x, y))


# --- operands by columns, and in batches --------------------------------------------------------

TURNED = "fill wait fence mma commit await sync"


def turned(loop: str) -> kir.Kernel:
    """Return two warpgroups that each read their columns of A, refilled by the first thread."""
    rows = 2 * ROWS
    a = kir.Buffer("SA", DType.BF16, (DEPTH, rows), 1, 0)
    b = kir.Buffer("SB", DType.BF16, (HALF, DEPTH), 1, a.end)
    wide, narrow = tensor("A", n * DEPTH, rows), tensor("B", HALF, n * DEPTH)
    y = tensor("Y", rows, HALF)
    acc = kir.Fragment("acc", DType.F32, kir.Layout((rows, HALF), 2, 256, STRIPS))
    full = kir.MBarrier("full", 1, 1)
    words: dict[str, kir.Stmt] = {
        "fill": elect(
            kir.MBarrierArriveExpectTx(full, 0, a.slot_nbytes + b.slot_nbytes),
            kir.TmaLoad(kir.Slot(a, 0), whole(wide, DEPTH, rows, at=(k * DEPTH, 0)), full, 0),
            kir.TmaLoad(kir.Slot(b, 0), whole(narrow, HALF, DEPTH, at=(0, k * DEPTH)), full, 0),
        ),
        "wait": wait(full, 0, k),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(acc, kir.Slot(a, 0), kir.Slot(b, 0), 1, a_transposed=True),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "sync": kir.BlockSync(0, 256),
    }
    body = (
        init(full),
        kir.BlockSync(0, 256),
        kir.Compute(acc, "cast", (ZERO,)),
        kir.ForLoop(k, n, said(loop, words)),
        kir.AsyncAwait(WGMMA, 0),
        kir.Store(whole(y, rows, HALF), acc, 2),
    )
    return kernel(body, threads=256, buffers=(a, b), barriers=(full,), tensors=(wide, narrow, y))


OWN = "get put fence_proxy half other_half fence mma commit await half2 other_half2"


def own_rows(loop: str = OWN, *, a_transposed: bool = False) -> kir.Kernel:
    """Return two warpgroups that each store half of the rows of A, and join by themselves."""
    size, threads = 2 * ROWS, 256
    a = kir.Buffer("SA", DType.BF16, (size, size), 1, 0)
    b = kir.Buffer("SB", DType.BF16, (HALF, size), 1, a.end)
    wide, narrow = tensor("A", n * size, size), tensor("B", HALF, size)
    y = tensor("Y", size, HALF)
    acc, given = (
        kir.Fragment(name, dtype, kir.Layout((size, columns), 2, threads, STRIPS))
        for name, dtype, columns in (("acc", DType.F32, HALF), ("given", DType.BF16, size))
    )
    full = kir.MBarrier("full", 1, 1)
    words: dict[str, kir.Stmt] = {
        "get": kir.Load(given, whole(wide, size, size, at=(k * size, 0)), 2),
        "put": kir.Store(kir.Slot(a, 0), given, 2),
        "fence_proxy": kir.FenceAsyncProxy(SHARED),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(acc, kir.Slot(a, 0), kir.Slot(b, 0), a_transposed=a_transposed),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
    }
    for i, again in enumerate(("", "2")):
        for side, first in (("half", 0), ("other_half", 4)):
            join = kir.BlockSync(1 + 2 * i + first // 4, 128)
            words[side + again] = kir.Role(side, first, 4, (join,))
    body = (
        init(full),
        kir.BlockSync(0, threads),
        elect(
            kir.MBarrierArriveExpectTx(full, 0, b.slot_nbytes),
            kir.TmaLoad(kir.Slot(b, 0), whole(narrow, HALF, size), full, 0),
        ),
        wait(full, 0, 0),
        kir.Compute(acc, "cast", (ZERO,)),
        kir.ForLoop(k, n, said(loop, words)),
        kir.AsyncAwait(WGMMA, 0),
        kir.Store(whole(y, size, HALF), acc, 2),
    )
    return kernel(
        body, threads=threads, buffers=(a, b), barriers=(full,), tensors=(wide, narrow, y)
    )


BATCHED = "fill wait fence mma commit await out sync"


def batched(loop: str) -> kir.Kernel:
    """Return a warpgroup that multiplies one pair of matrices after the other."""
    a = kir.Buffer("SA", DType.BF16, (1, ROWS, DEPTH), 1, 0)
    b = kir.Buffer("SB", DType.BF16, (1, HALF, DEPTH), 1, a.end)
    left, right = tensor("A", n, ROWS, DEPTH), tensor("B", n, HALF, DEPTH)
    y = tensor("Y", n, ROWS, HALF)
    acc = kir.Fragment("acc", DType.F32, kir.Layout((1, ROWS, HALF), 2, 128, STRIPS))
    full, at = kir.MBarrier("full", 1, 1), (k, 0, 0)
    words: dict[str, kir.Stmt] = {
        "fill": elect(
            kir.MBarrierArriveExpectTx(full, 0, a.slot_nbytes + b.slot_nbytes),
            kir.TmaLoad(kir.Slot(a, 0), whole(left, 1, ROWS, DEPTH, at=at), full, 0),
            kir.TmaLoad(kir.Slot(b, 0), whole(right, 1, HALF, DEPTH, at=at), full, 0),
        ),
        "wait": wait(full, 0, k),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(acc, kir.Slot(a, 0), kir.Slot(b, 0), 0),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "sync": kir.BlockSync(0, 128),
        "out": kir.Store(whole(y, 1, ROWS, HALF, at=at), acc, 2),
    }
    body = (init(full), kir.BlockSync(0, 128), kir.ForLoop(k, n, said(loop, words)))
    return kernel(body, threads=128, buffers=(a, b), barriers=(full,), tensors=(left, right, y))


# --- orders of tiles ----------------------------------------------------------------------------

M, N, G = Var("M"), Var("N"), Var("G")


def in_groups(*requires: Expr) -> kir.Kernel:
    """Return a kernel whose CTAs walk groups of G rows of tiles, column by column."""
    y = kir.Tensor("Y", DType.F32, (M, N), (N, 1), 4)
    down, across = ceildiv(M, TILE[0]), ceildiv(N, TILE[1])
    number = kir.BLOCK + t * kir.GRID
    row = number // (G * across) * G + number % G
    place = kir.Box(y, (row * TILE[0], number // G % across * TILE[1]), TILE, y.extents)
    value = fragment("x")
    loop = kir.ForLoop(t, ceildiv(down * across - kir.BLOCK, kir.GRID), (store(place, value),))
    return kernel((zero(value), loop), tensors=(y,), params=(M, N, G), requires=(G >= 1, *requires))


def rasters(*cases: tuple[int, int, int, int]) -> tuple[Run, ...]:
    """Return launches by CTAs, rows, columns and rows of tiles in a group."""
    return tuple(Run(grid, (("M", m), ("N", n), ("G", g))) for grid, m, n, g in cases)
