"""What lowerings of products share: tensors, and tiles in an order that suits the L2."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd

from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv
from fuser.fusion.ops import accumulator
from fuser.kernel import ir as kir
from fuser.lower.partial_sums import meeting
from fuser.lower.split_k import TILE
from fuser.lower.tiling import seen
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Access, Product
from fuser.schedule.matmul import MatmulTiling, Operand
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.shape_class import ShapeClass

Pairs = list[tuple[Product, tuple[Operand, Operand]]]
"""Products with their operands."""
TURN, TILES, RASTER = Var("t"), Var("tiles"), Var("raster")
STEP = Var("k")
SPAN = 128
"""Bytes of the widest swizzle.  Source: PTX ISA, "tensor swizzling modes"."""


@dataclass
class TileLowering:
    """Where the tiles of one domain with products lie; subclasses add what is done with them.

    Parameters
    ----------
    name : str
        Name of the kernel.
    tiling : MatmulTiling
        Axes and tile.
    params : MatmulParams or AmpereParams
        Order of tiles, columns of the epilogue.
    shapes : ShapeClass
        Alignments.
    threads : int
        Threads that share a tile.
    by_tma : bool
        Whether outputs that TMA can write are written by it.
    cluster : tuple of int
        CTAs of a cluster along rows and columns of tiles.
    tiles : CircularBuffer
        What is asked of the passes for the loop over tiles, if there is one.
    """

    name: str
    tiling: MatmulTiling
    params: MatmulParams | AmpereParams
    shapes: ShapeClass
    threads: int
    by_tma: bool
    cluster: tuple[int, int] = (1, 1)
    tiles: kir.CircularBuffer = field(default_factory=lambda: kir.CircularBuffer(1, 0))
    tensors: dict[str, kir.Tensor] = field(default_factory=dict)
    scalars: dict[str, kir.Scalar] = field(default_factory=dict)
    buffers: dict[str, kir.Buffer] = field(default_factory=dict)
    _column: Expr = 0

    def __post_init__(self) -> None:
        self.extents = tuple(Var(f"n{axis}") for axis in range(self.tiling.rank))
        self.meeting = meeting(self.params, self._count(), self.buffer)

    @property
    def _ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def at_step(self, axis: int, step: Var) -> dict[int, Expr]:
        """Return where a step of a loop begins along the axis that is summed over."""
        at = self.meeting.split + step * self.meeting.splits
        return {axis: at * self.tiling.tile[axis]}

    # --- tensors and tiles ------------------------------------------------------------------

    def _tensor(self, access: Access) -> kir.Tensor:
        tensor = seen(access, self.tiling, self.extents, self.shapes)
        if not access.tv.parts:
            return tensor
        return replace(tensor, extents=(*tensor.extents[:-1], self._tiles_along(self.tiling.cols)))

    def _tiles_along(self, axis: int) -> Expr:
        return ceildiv(self.extents[axis], self.tiling.tile[axis])

    def _lines(self, axis: int) -> Expr:
        """Tiles of a whole cluster along an axis."""
        many = {self.tiling.rows: self.cluster[0], self.tiling.cols: self.cluster[1]}
        return ceildiv(self.extents[axis], self.tiling.tile[axis] * many.get(axis, 1))

    def _count(self) -> Expr:
        """Tiles of whole clusters."""
        total: Expr = 1
        for axis in self.tiling.walked:
            total = total * self._lines(axis)
        return total

    @staticmethod
    def _origin(axis: int) -> Var:
        return Var(f"c{axis}")

    def _origins(self) -> list[kir.Stmt]:
        """Give tiles their numbers: groups of `RASTER` rows of tiles, column after column.

        CTAs of a cluster take neighbours.
        """
        tiling = self.tiling
        number = self.meeting.tile(self._ctas)
        if self.params.persistent:
            number = number + TURN * self.meeting.takers(self._ctas)
        lets: list[kir.Stmt] = [kir.Let(TILE, number)]
        down, across = self._lines(tiling.rows), self._lines(tiling.cols)
        rest: Expr = TILE
        for axis in range(tiling.outer):
            inner: Expr = down * across
            for later in range(axis + 1, tiling.outer):
                inner = self._lines(later) * inner
            lets.append(kir.Let(self._origin(axis), rest // inner))
            rest = rest % inner
        row = rest // (RASTER * across) * RASTER + rest % RASTER
        col = rest // RASTER % across
        for axis, at, many in (
            (tiling.rows, row, self.cluster[0]),
            (tiling.cols, col, self.cluster[1]),
        ):
            one = at * many + kir.RANK if many > 1 else at
            if axis == tiling.cols:
                self._column = one
            lets.append(kir.Let(self._origin(axis), one * tiling.tile[axis]))
        return lets

    def box(self, access: Access, origins: dict[int, Expr], shape: tuple[int, ...]) -> kir.Box:
        """Return a part of a tensor: at the tile's origin, but for some axes of the kernel."""
        axes = self.tiling.axes(access)
        varies = [self.tiling.varies(access, axis) for axis in axes]
        return kir.Box(
            self.tensors[access.name],
            tuple(
                origins.get(a, self._origin(a)) if v else 0
                for a, v in zip(axes, varies, strict=True)
            ),
            shape,
            tuple(self.extents[a] if v else 1 for a, v in zip(axes, varies, strict=True)),
        )

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...], slots: int = 1) -> kir.Buffer:
        """Return a new buffer, with the widest swizzle that suits its rows."""
        swizzle = gcd(shape[-1] * dtype.nbytes, SPAN)
        end = max((b.end for b in self.buffers.values()), default=0)
        # Where its swizzle repeats; alike ones lie right behind each other.
        step = 8 * swizzle if swizzle >= 32 else SPAN
        offset = -(-end // step) * step
        buffer = kir.Buffer(name, dtype, shape, slots, offset, swizzle if swizzle >= 32 else 0)
        self.buffers[name] = buffer
        return buffer

    def sums(self, product: Product) -> tuple[kir.Fragment, int]:
        """Return the fragment that holds the sums of a product, and their first column there."""
        return self.accumulator(product), 0

    def accumulator(self, product: Product, *, many: int = 1) -> kir.Fragment:
        """Return the sums of a product, and of those whose columns follow, `many` in all."""
        n = self.tiling.domain.products.index(product)
        rows, columns = self.params.tile[:2]
        shape = (*(1,) * self.tiling.outer, rows, many * columns)
        layout = kir.Layout(shape, 2, self.threads, kir.Deal.STRIPS)
        return kir.Fragment(f"acc{n}" if n else "acc", accumulator(product.tv), layout)
