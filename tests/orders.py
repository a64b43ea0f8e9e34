"""Kernels that store the tiles of a matmul in every order that shares operands, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stores import COLS, LAYOUT, OUT, ROWS, VALUE, K, M, N, P, T, loop, when

from fuser.dtype import DType
from fuser.expr import Expr, Kind, ceildiv, eq, fold
from fuser.kernel import ir as kir

BATCH, GROUP = K, P
"""Matrices of a batch, and rows of tiles that are walked together before the next columns."""


@dataclass(frozen=True, slots=True)
class Order:
    """How the tiles of an output are dealt to CTAs.

    Parameters
    ----------
    deal : str
        "one" tile for each CTA, every GRID-th tile ("strided"), or those by two roles in "turns".
    grouped, batched : bool
        Whether groups of rows are walked together; whether there is a batch.
    cluster : int
        CTAs that take the tiles below each other.
    chunks : int
        Stores that make up the columns of a tile.
    group : Expr
        Rows of tiles of a group.
    """

    deal: str = "strided"
    grouped: bool = False
    batched: bool = False
    cluster: int = 1
    chunks: int = 1
    group: Expr = GROUP

    @property
    def down(self) -> Expr:
        """Rows of tiles, or of what a cluster takes."""
        return ceildiv(M, ROWS * self.cluster)

    @property
    def across(self) -> Expr:
        """Columns of tiles."""
        return ceildiv(N, COLS * self.chunks)

    @property
    def count(self) -> Expr:
        """What is numbered."""
        each = self.down * self.across
        return each * BATCH if self.batched else each

    @property
    def number(self) -> Expr:
        """Which one a CTA takes."""
        block, grid = kir.BLOCK // self.cluster, kir.GRID // self.cluster
        return block if self.deal == "one" else block + T * grid

    @property
    def requires(self) -> tuple[Expr, ...]:
        """What the launch keeps."""
        found: tuple[Expr, ...] = ()
        if self.grouped:
            found = (fold(Kind.LE, 1, self.group), eq(self.down % self.group, 0))
        if self.deal == "one":
            found = (*found, eq(kir.GRID, self.count * self.cluster))
        return found

    def origins(self, number: Expr) -> list[tuple[Expr, ...]]:
        """Return the origins of the stores of a tile."""
        rest = number % (self.down * self.across) if self.batched else number
        if self.grouped:
            row = rest // (self.across * self.group) * self.group + rest % self.group
            column = rest // self.group % self.across
        else:
            row, column = rest // self.across, rest % self.across
        row = row * self.cluster + kir.RANK if self.cluster > 1 else row
        batch = (number // (self.down * self.across),) if self.batched else ()
        columns = [column * (COLS * self.chunks) + i * COLS for i in range(self.chunks)]
        return [(*batch, row * ROWS, at) for at in columns]

    def stores(self, number: Expr) -> tuple[kir.Stmt, ...]:
        """Return the stores of a tile."""
        boxes = (
            kir.Box(self.tensor, at, self.box, self.tensor.extents) for at in self.origins(number)
        )
        return tuple(kir.Store(box, self.value, 4) for box in boxes)

    @property
    def box(self) -> tuple[int, ...]:
        """Elements of a store."""
        return (1, ROWS, COLS) if self.batched else (ROWS, COLS)

    @property
    def value(self) -> kir.Fragment:
        """What is stored."""
        return replace(VALUE, layout=replace(LAYOUT, shape=self.box))

    @property
    def tensor(self) -> kir.Tensor:
        """Where."""
        if not self.batched:
            return OUT
        return replace(OUT, extents=(BATCH, M, N), strides=(M * N, N, 1))


def kernel(
    order: Order,
    *tile: kir.Stmt,
    requires: tuple[Expr, ...] | None = None,
    stop: Expr | None = None,
) -> kir.Kernel:
    """Return the kernel of an order, or one nearby: with another tile, condition or end."""
    tile = tile or order.stores(order.number)
    block, grid = kir.BLOCK // order.cluster, kir.GRID // order.cluster
    end = ceildiv(order.count - block, grid) if stop is None else stop
    clear = kir.Compute(order.value, "cast", (kir.Literal(0.0, DType.F32),))
    body: tuple[kir.Stmt, ...] = (clear, loop(T, end, *tile))
    if order.deal == "one":
        body = (clear, *tile)
    elif order.deal == "turns":
        sides = [loop(T, end, when(eq(T % 2, me), *tile)) for me in (0, 1)]
        body = tuple(kir.Role(f"side{me}", me, 1, (clear, sides[me])) for me in (0, 1))
    many = 64 if order.deal == "turns" else 32
    return kir.Kernel(
        "k", (M, N, K, P), (order.tensor,), (), (), (), many, body, ("Y",),
        requires=order.requires if requires is None else requires, cluster=order.cluster,
    )  # fmt: skip


def paired(*requires: Expr, deal: str = "strided") -> kir.Kernel:
    """Return pairs of CTAs, each of which takes a row of tiles of a pair of them."""
    order, pairs = Order(deal, grouped=True, cluster=2), LINES // 2
    row = order.number // (GROUP * order.across) * GROUP + order.number % GROUP
    at = (row * 2 + kir.RANK) * ROWS, order.number // GROUP % order.across * COLS
    tile = kir.Store(kir.Box(OUT, at, (ROWS, COLS), OUT.extents), VALUE, 4)
    end = ceildiv(pairs * order.across - kir.BLOCK // 2, kir.GRID // 2)
    return kernel(order, tile, requires=(GROUP >= 1, *requires), stop=end)


LINES, ACROSS = ceildiv(M, ROWS), ceildiv(N, COLS)
GROUPS, PAIRS, PARTS = Order(grouped=True), Order(cluster=2), Order(chunks=4)
RIGHT: dict[str, kir.Kernel] = {
    **{
        f"{order.deal}: {order.grouped=}, {order.batched=}, {order.cluster=}, {order.chunks=}":
            kernel(order)
        for order in (
            Order(deal, grouped, batched, cluster, chunks)
            for deal in ("one", "strided", "turns")
            for grouped in (False, True)
            for batched in (False, True)
            for cluster in ((1,) if deal == "turns" else (1, 2, 4))
            for chunks in (1, 4)
        )
    },
    "groups of eight": kernel(Order(grouped=True, group=8)),
    "pairs of rows, groups of pairs": paired(eq(LINES % 2, 0), eq(LINES // 2 % GROUP, 0)),
    "pairs of rows, groups that divide them": paired(eq(LINES % (GROUP * 2), 0)),
    "a CTA for each row of a pair": paired(
        eq(LINES % (GROUP * 2), 0), eq(kir.GRID, LINES * ACROSS), deal="one"
    ),
}  # fmt: skip
"""Each writes its output once."""

WRONG: dict[str, kir.Kernel] = {
    "groups that do not divide the rows": kernel(GROUPS, requires=(GROUP >= 1,)),
    "groups that divide the columns": kernel(
        GROUPS, requires=(GROUP >= 1, eq(ACROSS % GROUP, 0))
    ),
    "a last group that is left out": kernel(GROUPS, stop=ceildiv(
        LINES // GROUP * GROUP * ACROSS - GROUP - kir.BLOCK, kir.GRID
    )),
    "three parts of four": kernel(PARTS, *PARTS.stores(PARTS.number)[:3]),
    "one part twice": kernel(
        PARTS, *PARTS.stores(PARTS.number)[:3], PARTS.stores(PARTS.number)[0]
    ),
    "as many turns as there are CTAs for": kernel(
        PAIRS, stop=ceildiv(PAIRS.count - kir.BLOCK // 2, kir.GRID)
    ),
    "strides of CTAs": kernel(PAIRS, *PAIRS.stores(kir.BLOCK // 2 + T * kir.GRID)),
    "numbers of CTAs": kernel(PAIRS, *PAIRS.stores(kir.BLOCK + T * kir.GRID)),
    "no rank": kernel(PAIRS, *replace(PAIRS, cluster=1).stores(PAIRS.number)),
    "an odd number of rows": paired(eq(LINES // 2 % GROUP, 0)),
    "half of the CTAs": paired(
        eq(LINES % (GROUP * 2), 0), eq(kir.GRID * 2, LINES * ACROSS), deal="one"
    ),
}  # fmt: skip
"""None does."""
