"""Kernels that only move a tile, each by another pair of ways; what goes in must come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.cookbook.ring import BULK, CP_ASYNC, ELECT, start
from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir

ROWS, COLS = 64, 128
THREADS = 128
M, N = Var("M"), Var("N")
X = kir.Tensor("X", DType.BF16, (M, N), (N, 1), 8)
Y = kir.Tensor("Y", DType.BF16, (M, N), (N, 1), 8)
FULL = kir.MBarrier("full", 1, 1)
ROUND = kir.Layout((ROWS, COLS), 8, THREADS)
STRIPS = kir.Layout((ROWS, COLS), 2, THREADS, kir.Deal.STRIPS)
EACH_WARP = kir.Layout((ROWS, COLS), 2, THREADS, kir.Deal.EACH_WARP)


def fragment(layout: kir.Layout, name: str = "x") -> kir.Fragment:
    """A tile in registers."""
    return kir.Fragment(name, DType.BF16, layout)


def slot(swizzle: int) -> kir.Slot:
    """The one slot."""
    return kir.Slot(kir.Buffer("S", DType.BF16, (ROWS, COLS), 1, 0, swizzle), 0)


def box(tensor: kir.Tensor, number: Expr = kir.BLOCK) -> kir.Box:
    """Tile `number`, downwards."""
    return kir.Box(tensor, (number * ROWS, 0), (ROWS, COLS), (M, N))


def through_registers(
    layout: kir.Layout, width: int, *, matrix: bool = False
) -> Callable[[kir.Slot], tuple[kir.Stmt, ...]]:
    """Fill a slot by stores."""
    frag = fragment(layout, "filled")

    def fill(at: kir.Slot) -> tuple[kir.Stmt, ...]:
        fence = kir.FenceAsyncProxy(kir.Space.SHARED)
        return kir.Load(frag, box(X), width), kir.Store(at, frag, width, matrix), fence

    return fill


def by_tma(at: kir.Slot) -> tuple[kir.Stmt, ...]:
    """Fill a slot by a bulk copy."""
    issue = (
        kir.MBarrierArriveExpectTx(FULL, 0, at.buffer.slot_nbytes),
        kir.TmaLoad(at, box(X), FULL, 0),
    )
    return kir.Elect(ELECT, issue), kir.MBarrierWaitParity(FULL, 0, 0)


def by_cp_async(at: kir.Slot) -> tuple[kir.Stmt, ...]:
    """Fill a slot by cp.async."""
    fence = kir.FenceAsyncProxy(kir.Space.SHARED)
    copy = kir.CpAsync(at, box(X), ROUND, 8)
    return copy, kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0), fence


FILLS: dict[str, Callable[[kir.Slot], tuple[kir.Stmt, ...]]] = {
    "tma": by_tma,
    "cp_async": by_cp_async,
    "round": through_registers(ROUND, 8),
    "round-2": through_registers(ROUND, 2),
    "strips": through_registers(STRIPS, 2),
    "strips-1": through_registers(STRIPS, 1),
    "stmatrix": through_registers(STRIPS, 2, matrix=True),
    "stmatrix-each-warp": through_registers(EACH_WARP, 2, matrix=True),
}


def to_registers(
    layout: kir.Layout, width: int, *, matrix: bool = False, seen: bool = False
) -> Callable[[kir.Slot], tuple[kir.Stmt, ...]]:
    """Empty a slot by loads; `seen`: something computes with the fragment on the way."""
    frag = fragment(layout, "drained")

    def drain(at: kir.Slot) -> tuple[kir.Stmt, ...]:
        same = (kir.Compute(frag, "set", (frag,)),) if seen else ()
        return kir.Load(frag, at, width, matrix=matrix), *same, kir.Store(box(Y), frag, width)

    return drain


def to_tma(at: kir.Slot) -> tuple[kir.Stmt, ...]:
    """Empty a slot by a bulk copy."""
    out = (kir.TmaStore(box(Y), at), kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0))
    return (kir.Elect(ELECT, out),)


def to_reduction(at: kir.Slot) -> tuple[kir.Stmt, ...]:
    """Add a slot to what is there."""
    out = (kir.TmaReduce(box(Y), at), kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0))
    return (kir.Elect(ELECT, out),)


DRAINS: dict[str, Callable[[kir.Slot], tuple[kir.Stmt, ...]]] = {
    "tma": to_tma,
    "reduction": to_reduction,
    "round": to_registers(ROUND, 8),
    "strips": to_registers(STRIPS, 2),
    "strips-1": to_registers(STRIPS, 1),
    "strips-seen": to_registers(STRIPS, 2, seen=True),
    "ldmatrix": to_registers(STRIPS, 2, matrix=True),
    "ldmatrix-seen": to_registers(STRIPS, 2, matrix=True, seen=True),
    "each-warp": to_registers(EACH_WARP, 2),
    "ldmatrix-each-warp": to_registers(EACH_WARP, 2, matrix=True),
}


def whole(name: str, body: tuple[kir.Stmt, ...], *buffers: kir.Buffer) -> kir.Kernel:
    """A kernel in which every CTA moves one tile."""
    body = (*start(FULL, threads=THREADS), *body)
    return kir.Kernel(name, (M, N), (X, Y), (), buffers, (FULL,), THREADS, body, ("Y",))


def move(fill: str, drain: str, swizzle: int) -> kir.Kernel:
    """In by one way, out by another, through a slot with this swizzle."""
    at = slot(swizzle)
    return whole(
        "move", (*FILLS[fill](at), kir.BlockSync(0, THREADS), *DRAINS[drain](at)), at.buffer
    )


def swap(swizzle: int, *, push: bool) -> kir.Kernel:
    """Two CTAs of a cluster exchange tiles: each reads the other's slot, or writes it."""
    at, frag = slot(swizzle), fragment(STRIPS)
    other = replace(at, cta=1 - kir.RANK)
    first, second = (other, at) if push else (at, other)
    body = (
        kir.ClusterArrive(),
        kir.ClusterWait(),
        kir.Load(frag, box(X), 2),
        kir.Store(first, frag, 2),
        kir.ClusterArrive(),
        kir.ClusterWait(),
        kir.Load(frag, second, 2),
        kir.Store(box(Y), frag, 2),
        kir.ClusterArrive(),
        kir.ClusterWait(),
    )
    return replace(whole("swap", body, at.buffer), cluster=2)


def count_up(layout: kir.Layout) -> kir.Kernel:
    """Y = 100 * row + column, in f32, held in this layout."""
    y = replace(Y, dtype=DType.F32, aligned=2)
    row, col = (kir.Fragment(name, DType.I64, layout) for name in ("row", "col"))
    hundred = kir.Literal(100, DType.I64)
    out = kir.Fragment("out", DType.F32, layout)
    body = (
        kir.Coordinate(row, 0, kir.BLOCK * ROWS),
        kir.Coordinate(col, 1, 0),
        kir.Compute(row, "mul", (row, hundred)),
        kir.Compute(row, "add", (row, col)),
        kir.Compute(out, "cast", (row,)),
        kir.Store(kir.Box(y, (kir.BLOCK * ROWS, 0), (ROWS, COLS), (M, N)), out, 2),
    )
    return kir.Kernel("count_up", (M, N), (y,), (), (), (), THREADS, body, ("Y",))


def columns(column: int, width: int) -> kir.Kernel:
    """Y is a part of the columns of X, cut out in registers; the rest is not written."""
    at = fragment(STRIPS)
    part = fragment(replace(STRIPS, shape=(ROWS, width)), "part")
    where = kir.Box(Y, (kir.BLOCK * ROWS, column), (ROWS, width), (M, N))
    body = (kir.Load(at, box(X), 2), kir.Slice(part, at, column), kir.Store(where, part, 2))
    return whole("columns", body)


def add_up(dtype: DType) -> kir.Kernel:
    """Every CTA adds the one tile of X to Y."""
    x, y = (replace(tensor, dtype=dtype, aligned=2) for tensor in (X, Y))
    frag = kir.Fragment("x", dtype, STRIPS)
    body = (kir.Load(frag, box(x, 0), 2), kir.AtomicAdd(box(y, 0), frag))
    return replace(whole("add_up", body), tensors=(x, y))


def products(warps: int, swizzle: int, dtype: DType = DType.BF16) -> kir.Kernel:
    """Y = X @ X^T of one tile by `mma`, in f32, operands by ldmatrix."""
    threads = 32 * warps
    x = replace(X, dtype=dtype)
    y = kir.Tensor("Y", DType.F32, (M, M), (M, 1), 2)
    at = kir.Slot(kir.Buffer("S", dtype, (ROWS, COLS), 1, 0, swizzle), 0)
    a = kir.Fragment("a", dtype, kir.Layout((ROWS, COLS), 2, threads, kir.Deal.STRIPS))
    b = kir.Fragment("b", dtype, kir.Layout((ROWS, COLS), 2, threads, kir.Deal.EACH_WARP))
    acc = kir.Fragment("acc", DType.F32, kir.Layout((ROWS, ROWS), 2, threads, kir.Deal.STRIPS))
    body = (
        *start(FULL, threads=threads),
        kir.Elect(
            ELECT,
            (
                kir.MBarrierArriveExpectTx(FULL, 0, at.buffer.slot_nbytes),
                kir.TmaLoad(at, box(x), FULL, 0),
            ),
        ),
        kir.MBarrierWaitParity(FULL, 0, 0),
        kir.Load(a, at, 2, matrix=True),
        kir.Load(b, at, 2, matrix=True),
        kir.Compute(acc, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Mma(acc, a, b),
        kir.Store(kir.Box(y, (0, 0), (ROWS, ROWS), (M, M)), acc, 2),
    )
    return kir.Kernel("products", (M, N), (x, y), (), (at.buffer,), (FULL,), threads, body, ("Y",))
