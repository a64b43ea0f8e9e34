"""Kernels that only store, in every way to deal tiles to CTAs, roles and turns, right and wrong."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Var, ceildiv, eq, fold
from fuser.kernel import ir as kir

M, N, K, P = Var("M"), Var("N"), Var("K"), Var("parts")
T, J, TILES, MOVED = Var("t"), Var("j"), Var("tiles"), Var("moved")
ROWS, COLS = 4, 64
LAYOUT = kir.Layout((ROWS, COLS), 4, 32)
VALUE = kir.Fragment("v", DType.F32, LAYOUT)
WIDE = ceildiv(N, COLS)
COUNT = ceildiv(M, ROWS) * WIDE
OUT = kir.Tensor("Y", DType.F32, (M, N), (N, 1), 4)


def zero() -> kir.Stmt:
    """Give the fragment a value."""
    return kir.Compute(VALUE, "cast", (kir.Literal(0.0, DType.F32),))


def store(row: Expr, col: Expr, tensor: kir.Tensor = OUT) -> kir.Stmt:
    """Store a tile at these elements."""
    return kir.Store(kir.Box(tensor, (row, col), (ROWS, COLS), tensor.extents), VALUE, 4)


def tile(number: Expr) -> kir.Stmt:
    """Store the tile of this number, row by row."""
    row, col = fold(Kind.FLOORDIV, number, WIDE), fold(Kind.MOD, number, WIDE)
    return store(row * ROWS, col * COLS)


def kernel(
    *body: kir.Stmt,
    requires: tuple[Expr, ...] = (),
    tensor: kir.Tensor = OUT,
    threads: int = 32,
    cluster: int = 1,
) -> kir.Kernel:
    """A kernel that writes one tensor."""
    return kir.Kernel(
        "k", (M, N, K, P), (tensor,), (), (), (), threads, (zero(), *body), ("Y",),
        requires=requires, cluster=cluster,
    )  # fmt: skip


def literal(*extents: int) -> kir.Tensor:
    """A tensor of known extents."""
    return kir.Tensor("Y", DType.F32, extents, (extents[1], 1), 4)


def loop(index: Var, stop: Expr, *body: kir.Stmt) -> kir.ForLoop:
    """A loop."""
    return kir.ForLoop(index, stop, body)


def when(condition: Expr, *body: kir.Stmt) -> kir.IfThenElse:
    """A condition."""
    return kir.IfThenElse(condition, body)


ONE = eq(kir.GRID, 1)
NUMBER: Expr = kir.BLOCK + T * kir.GRID
DEALT = kir.Let(TILES, ceildiv(COUNT - kir.BLOCK, kir.GRID))
STRIPE = kir.Tensor("Y", DType.F32, (N * ROWS, COLS), (COLS, 1), 4)
SIDES = (store(T * 2 * ROWS, 0, STRIPE), store(T * 2 * ROWS + ROWS, 0, STRIPE))
THIRD = kir.BLOCK * 3 + T
LONG = kir.Tensor("Y", DType.F32, (M, COLS), (COLS, 1), 4)

COVERED: dict[str, kir.Kernel] = {
    "one tile": kernel(store(0, 0, literal(4, 64)), requires=(ONE,), tensor=literal(4, 64)),
    "two boxes": kernel(
        store(0, 0, literal(8, 64)),
        store(4, 0, literal(8, 64)),
        requires=(ONE,),
        tensor=literal(8, 64),
    ),
    "a loop over literal tiles": kernel(
        loop(T, 100, store(T * ROWS, 0, literal(400, 64))),
        requires=(ONE,),
        tensor=literal(400, 64),
    ),
    "n tiles in one CTA": kernel(
        loop(T, N, store(T * ROWS, 0, STRIPE)), requires=(ONE,), tensor=STRIPE
    ),
    "a CTA for each of n tiles": kernel(
        store(kir.BLOCK * ROWS, 0, STRIPE), requires=(eq(kir.GRID, N),), tensor=STRIPE
    ),
    "ragged rows in one CTA": kernel(
        loop(T, ceildiv(M, ROWS), store(T * ROWS, 0, LONG)), requires=(ONE,), tensor=LONG
    ),
    "two nested loops in one CTA": kernel(
        loop(T, ceildiv(M, ROWS), loop(J, WIDE, store(T * ROWS, J * COLS))), requires=(ONE,)
    ),
    "rows by CTA, columns by loop": kernel(
        loop(J, WIDE, store(kir.BLOCK * ROWS, J * COLS)),
        requires=(eq(kir.GRID, ceildiv(M, ROWS)),),
    ),
    "a chunk of tiles for each CTA": kernel(
        loop(T, 4, store((kir.BLOCK * 4 + T) * ROWS, 0, LONG)),
        requires=(eq(kir.GRID, ceildiv(M, 4 * ROWS)),),
        tensor=LONG,
    ),
    "tiles dealt in turn": kernel(DEALT, loop(T, TILES, tile(NUMBER))),
    "the first tile ahead of the loop": kernel(
        DEALT, when(fold(Kind.LT, 0, TILES), tile(kir.BLOCK)),
        loop(T, TILES - 1, tile(kir.BLOCK + (T + 1) * kir.GRID)),
    ),
    "a loop of two ahead of the rest": kernel(
        DEALT,
        loop(J, 2, when(J < TILES, tile(kir.BLOCK + J * kir.GRID))),
        loop(T, TILES - 2, tile(kir.BLOCK + (T + 2) * kir.GRID)),
    ),
    "every second tile in a loop of its own": kernel(
        DEALT,
        loop(T, ceildiv(TILES, 2), tile(kir.BLOCK + T * 2 * kir.GRID)),
        loop(J, TILES // 2, tile(kir.BLOCK + (J * 2 + 1) * kir.GRID)),
    ),
    "a chunk of tiles for each CTA, in rows and columns": kernel(
        loop(T, 4, store((kir.BLOCK * 4 + T) // WIDE * ROWS, (kir.BLOCK * 4 + T) % WIDE * COLS)),
        requires=(eq(kir.GRID, K * WIDE),),
        tensor=replace(OUT, extents=(K * 4 * ROWS, N)),
    ),
    "two tiles a turn": kernel(
        DEALT,
        loop(
            T,
            ceildiv(TILES, 2),
            loop(J, 2, when(T * 2 + J < TILES, tile(kir.BLOCK + (T * 2 + J) * kir.GRID))),
        ),
    ),
    "quarters of a tile, two by two": kernel(
        *(
            loop(T, N, store(T * 2 * ROWS + row * ROWS, col * COLS, STRIPE))
            for row in (0, 1)
            for col in (0, 1)
        ),
        requires=(ONE,),
        tensor=replace(STRIPE, extents=(N * 2 * ROWS, 2 * COLS), strides=(2 * COLS, 1)),
    ),
    "two halves of a tile by two roles": kernel(
        kir.Role("upper", 0, 1, (loop(T, N, SIDES[0]),)),
        kir.Role("lower", 1, 1, (zero(), loop(J, N, store(J * 2 * ROWS + ROWS, 0, STRIPE)))),
        requires=(ONE,),
        tensor=replace(STRIPE, extents=(N * 2 * ROWS, COLS)),
        threads=64,
    ),
    "in the last iteration of a loop": kernel(
        kir.Let(TILES, ceildiv(K, 16)),
        loop(T, TILES, when(eq(T + 1, TILES), store(0, 0, literal(4, 64)))),
        requires=(ONE, K >= 1),
        tensor=literal(4, 64),
    ),
    "by CTA 0 alone": kernel(
        when(eq(kir.BLOCK, 0), loop(T, N, store(T * ROWS, 0, STRIPE))), tensor=STRIPE
    ),
    "in the first of P parts": kernel(
        when(eq(kir.BLOCK % P, 0), tile(kir.BLOCK // P)),
        requires=(P >= 1, eq(kir.GRID, COUNT * P)),
    ),
    "by rank 0 of each cluster": kernel(
        when(eq(kir.RANK, 0), tile(kir.BLOCK // 2)),
        requires=(eq(kir.GRID, COUNT * 2),),
        cluster=2,
    ),
}  # fmt: skip
"""Each writes its output once."""

WRONG: dict[str, tuple[kir.Kernel, str]] = {
    "all CTAs write one tile": (
        kernel(store(0, 0, literal(4, 64)), tensor=literal(4, 64)),
        "twice",
    ),
    "a row of boxes short": (
        kernel(store(0, 0, literal(8, 64)), requires=(ONE,), tensor=literal(8, 64)),
        "never",
    ),
    "one turn short": (
        kernel(loop(T, N - 1, store(T * ROWS, 0, STRIPE)), requires=(ONE,), tensor=STRIPE),
        "never",
    ),
    "one tile in every iteration": (
        kernel(loop(T, N, store(0, 0, literal(4, 64))), requires=(ONE,), tensor=literal(4, 64)),
        "",
    ),
    "three quarters of a tile": (
        kernel(
            *(
                loop(T, N, store(T * 2 * ROWS + row * ROWS, col * COLS, STRIPE))
                for row, col in ((0, 0), (0, 1), (1, 0))
            ),
            requires=(ONE,),
            tensor=replace(STRIPE, extents=(N * 2 * ROWS, 2 * COLS), strides=(2 * COLS, 1)),
        ),
        "never",
    ),
    "a chunk of four with a stride of three": (
        kernel(
            loop(
                T, 4, store((kir.BLOCK * 3 + T) // WIDE * ROWS, (kir.BLOCK * 3 + T) % WIDE * COLS)
            ),
            requires=(eq(kir.GRID, K * WIDE),),
            tensor=replace(OUT, extents=(K * 4 * ROWS, N)),
        ),
        "",
    ),
    "a remainder of the only CTA": (
        kernel(
            store(kir.BLOCK % ceildiv(M, ROWS) * ROWS, 0, LONG),
            requires=(ONE, M >= 1),
            tensor=LONG,
        ),
        "never",
    ),
    "one tile of two a turn": (
        kernel(
            DEALT,
            loop(T, ceildiv(TILES, 2), loop(J, 2, tile(kir.BLOCK + T * 2 * kir.GRID))),
        ),
        "twice",
    ),
    "tiles rounded down": (
        kernel(loop(T, M // ROWS, store(T * ROWS, 0, LONG)), requires=(ONE,), tensor=LONG),
        "never",
    ),
    "loops swapped": (
        kernel(
            loop(T, WIDE, loop(J, ceildiv(M, ROWS), store(T * ROWS, J * COLS))), requires=(ONE,)
        ),
        "",
    ),
    "tiles dealt, but not in strides": (
        kernel(DEALT, loop(T, TILES, tile(kir.BLOCK + T))),
        "twice",
    ),
    "the first tile twice": (
        kernel(DEALT, when(fold(Kind.LT, 0, TILES), tile(kir.BLOCK)), loop(T, TILES, tile(NUMBER))),
        "twice",
    ),
    "two roles, one of them late by two": (
        kernel(
            DEALT,
            loop(T, TILES, when(eq(T % 2, 0), tile(NUMBER))),
            loop(J, TILES, when(eq(J % 3, 1), tile(kir.BLOCK + J * kir.GRID))),
        ),
        "",
    ),
    "in the last iteration of a loop that may have none": (
        kernel(
            kir.Let(TILES, ceildiv(K, 16)),
            loop(T, TILES, when(eq(T + 1, TILES), store(0, 0, literal(4, 64)))),
            requires=(ONE,),
            tensor=literal(4, 64),
        ),
        "never",
    ),
    "in no part": (
        kernel(
            when(eq(kir.BLOCK % P, P), tile(kir.BLOCK // P)),
            requires=(P >= 1, eq(kir.GRID, COUNT * P)),
        ),
        "never",
    ),
    "in the second of P parts": (
        kernel(
            when(eq(kir.BLOCK % P, 1), tile(kir.BLOCK // P)),
            requires=(P >= 1, eq(kir.GRID, COUNT * P)),
        ),
        "never",
    ),
    "in two of P parts": (
        kernel(
            when(kir.BLOCK % P < 2, tile(kir.BLOCK // P)),
            requires=(P >= 1, eq(kir.GRID, COUNT * P)),
        ),
        "twice",
    ),
    "a wrong grid": (kernel(tile(kir.BLOCK), requires=(eq(kir.GRID, COUNT + 1),)), ""),
    "no fixed grid": (kernel(tile(kir.BLOCK)), ""),
    "by both ranks": (
        kernel(tile(kir.BLOCK // 2), requires=(eq(kir.GRID, COUNT * 2),), cluster=2),
        "twice",
    ),
    "a square of the index": (
        kernel(loop(T, N, store(T * T * ROWS, 0, STRIPE)), requires=(ONE,), tensor=STRIPE),
        "",
    ),
    "a doubled number in one axis": (
        kernel(
            store(kir.BLOCK * 2 // WIDE * ROWS, kir.BLOCK % WIDE * COLS),
            requires=(eq(kir.GRID, COUNT),),
        ),
        "",
    ),
}
"""None does, and what a refutation says of it."""
