"""What lowerings of products share: tensors, tiles in an order that suits the L2, sums of CTAs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd

from fuser import kernel_ir as kir
from fuser.ampere_params import AmpereParams
from fuser.domain import Access, Product
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, ceildiv
from fuser.lower import seen
from fuser.matmul_params import MatmulParams
from fuser.matmul_scheduler import MatmulTiling, Operand
from fuser.ops import accumulator
from fuser.shape_class import ShapeClass

Pairs = list[tuple[Product, tuple[Operand, Operand]]]
"""Products with their operands."""
TURN, TILES, TILE, RASTER = Var("t"), Var("tiles"), Var("tile"), Var("raster")
STEP = Var("k")
SPLIT, SPLITS = Var("split"), Var("splits")
STAGED = 65_536
"""Bytes of shared memory for sums on their way to other CTAs, at most, unless one slot is more."""
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
    workspaces: list[kir.Tensor] = field(default_factory=list)
    _column: Expr = 0

    def __post_init__(self) -> None:
        self.extents = tuple(Var(f"n{axis}") for axis in range(self.tiling.rank))
        shared = self.params.splits > 1
        self.split: Expr = SPLIT if shared else 0
        self.splits: Expr = SPLITS if shared else 1

    @property
    def neighbours(self) -> bool:
        """Whether CTAs of one part of K follow one another, rather than those of one tile."""
        return self.params.splits > 1 and self.params.residency == "co-resident"

    @property
    def _ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def at_step(self, axis: int, step: Var) -> dict[int, Expr]:
        """Return where a step of a loop begins along the axis that is summed over."""
        return {axis: (self.split + step * self.splits) * self.tiling.tile[axis]}

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
        number: Expr = kir.BLOCK // (self._ctas * self.splits)
        if self.params.persistent:
            number = number + TURN * (kir.GRID // self._ctas)
        if self.neighbours:
            number = kir.BLOCK % self._count()
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

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...]) -> kir.Buffer:
        """Return a new buffer, with the widest swizzle that suits its rows."""
        swizzle = gcd(shape[-1] * dtype.nbytes, SPAN)
        end = max((b.end for b in self.buffers.values()), default=0)
        # Where its swizzle repeats; alike ones lie right behind each other.
        step = 8 * swizzle if swizzle >= 32 else SPAN
        offset = -(-end // step) * step
        buffer = kir.Buffer(name, dtype, shape, 1, offset, swizzle if swizzle >= 32 else 0)
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

    # --- CTAs that share a tile ---------------------------------------------------------------

    @property
    def scattered(self) -> bool:
        """Whether CTAs store all their sums, and each adds up some columns of all."""
        return self.params.splits > 1 and self.params.meet == "scatter"

    def partial(self, acc: kir.Fragment) -> DType:
        """Return the type in which sums go from one CTA to another.

        Raises
        ------
        ScheduleError
            If it does not hold them.
        """
        asked = DType.of(self.params.partial)
        if asked is DType.F32:
            return acc.dtype
        if acc.dtype is not DType.F32:
            raise ScheduleError(
                f'{type(self.params).__name__}(partial="{asked}"): {acc.name} adds up in '
                f"{acc.dtype}, only sums of f32 are rounded on their way; leave partial out"
            )
        return asked

    def _turns(self) -> kir.Semaphore:
        return kir.Semaphore("turns", self._count())

    def _meeting(self) -> list[kir.Stmt]:
        """Add up the sums of the CTAs that share a tile."""
        if self.params.splits == 1:
            return []
        out: list[kir.Stmt] = []
        for acc in dict.fromkeys(self.sums(product)[0] for product in self.tiling.domain.products):
            if acc.dtype is DType.F16:
                raise ScheduleError(
                    f"{type(self.params).__name__}(splits={self.params.splits}): sums of f16 would "
                    "be rounded in every turn; leave accumulate out, or use splits=1"
                )
            if self.scattered:
                out += self._parted(acc)
                out.append(kir.GridShare(f"W_{acc.name}", self._turns(), TILE, SPLITS))
            else:
                box = self._workspace(acc, 1, TILE, acc.layout.shape[-1])
                out.append(
                    kir.GridSum(acc, box, self._turns(), TILE, SPLIT, SPLITS, self._staged(acc))
                )
        return out

    def _parted(self, acc: kir.Fragment) -> list[kir.Stmt]:
        """Store sums: columns that are added up together lie together."""
        width = self.params.columns
        layout = replace(acc.layout, shape=(*acc.layout.shape[:-1], width))
        part = kir.Fragment(f"{acc.name}_mine", acc.dtype, layout)
        out: list[kir.Stmt] = []
        for group in range(acc.layout.shape[-1] // width):
            out.append(kir.Slice(part, acc, group * width))
            out.append(kir.Store(self.part_of(acc, SPLIT, group), part, 2))
        return out

    def part_of(self, acc: kir.Fragment, split: Expr, group: Expr) -> kir.Box:
        """Return a group of columns of the sums that a CTA of this tile has stored."""
        groups = acc.layout.shape[-1] // self.params.columns
        part = (TILE * SPLITS + split) * groups + group
        return self._workspace(acc, SPLITS * groups, part, self.params.columns)

    def _workspace(self, acc: kir.Fragment, parts: Expr, part: Expr, cols: int) -> kir.Box:
        """Return a place for some columns of sums: one part of so many that each tile has."""
        *outer, rows, _ = acc.layout.shape
        extents: tuple[Expr, ...] = (*outer, self._count() * parts * rows, cols)
        strides = (*(0 for _ in outer), cols, 1)
        dtype = self.partial(acc)
        aligned = gcd(16 // dtype.nbytes, cols)
        made = kir.Tensor(f"W_{acc.name}", dtype, extents, strides, aligned)
        if made not in self.workspaces:
            self.workspaces.append(made)
        origin: tuple[Expr, ...] = (*(0 for _ in outer), part * rows, 0)
        return kir.Box(made, origin, (*outer, rows, cols), extents)

    def _staged(self, acc: kir.Fragment) -> kir.Slot | None:
        """Return where TMA takes sums from, if it does: columns of the epilogue, at best all."""
        if not isinstance(self.params, MatmulParams) or self.params.meet != "tma":
            return None
        shape = (*acc.layout.shape[:-1], self.params.columns)
        one = self.buffer(f"S_{acc.name}", self.partial(acc), shape)
        many, nbytes = acc.layout.shape[-1] // shape[-1], one.slot_nbytes
        buffer = replace(one, slots=many if many * nbytes <= STAGED else 2 - many % 2)
        self.buffers[buffer.name] = buffer
        return kir.Slot(buffer, 0)


def loaded(dst: kir.Fragment, src: kir.Box, width: int) -> list[kir.Stmt]:
    """Load sums that other CTAs have stored, and promote them if they are stored in 16 bits."""
    dtype = src.tensor.dtype
    if dtype is dst.dtype:
        return [kir.Load(dst, src, width)]
    narrow = kir.Fragment(f"{dst.name}_{dtype}", dtype, dst.layout)
    return [kir.Load(narrow, src, width), kir.Compute(dst, "promote", (narrow,))]
