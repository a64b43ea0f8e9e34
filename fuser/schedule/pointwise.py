"""From a domain and params to the axes of a kernel; and the default heuristic for params."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fuser.arch import SM_90A
from fuser.fusion.ir import Fusion, TensorView
from fuser.kernel.memory import exchanged
from fuser.schedule.domain import Access, Domain, crossed, unit_stride
from fuser.schedule.params import PointwiseParams
from fuser.schedule.shape_class import ShapeClass

MAX_TMA_RANK = 5
WARP = 32
"""Threads of a warp."""
VECTOR_BYTES = 16
"""Bytes of the widest access of a thread."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The axes of one kernel and the tile of each; 1 but for the last two.

    If `split`, one merged axis is seen as two, rows and columns; the launch chooses how many
    columns.  If it `transposes`, tensors with neighbours along the rows are seen with their last
    two axes exchanged.
    """

    domain: Domain
    split: bool
    tile: tuple[int, ...]
    transposes: bool = False

    @property
    def rank(self) -> int:
        """Axes of the kernel."""
        return len(self.tile)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Axes of the domain behind each axis of the kernel; one group stands for a split axis."""
        return self.domain.merged

    @property
    def walked(self) -> tuple[int, ...]:
        """Axes of the kernel whose tiles make up the result: all of them."""
        return tuple(range(self.rank))

    def axes(self, access: Access) -> tuple[int, ...]:
        """Axes of the kernel along which a tensor is seen, in its own order: all of them."""
        own = tuple(range(self.rank))
        return exchanged(own) if self.turned(access) else own

    def turned(self, access: Access) -> bool:
        """Tell whether tiles of a tensor are transposed: neighbours lie along rows."""
        if not self.transposes:
            return False
        *_, rows, cols = range(self.rank)
        return self.varies(access, cols) and self.unit(access, rows)

    def varies(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's elements differ along a kernel axis."""
        if all(walked is None for walked in self.domain.writes[0].coords):  # one element in all
            return access in self.domain.writes
        group = self.domain.merged[0 if self.split else axis]
        return access.axis_of(group[-1]) is not None

    def unit(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's stride along a kernel axis is known to be 1."""
        if (self.split and axis == 0) or not self.varies(access, axis):
            return False
        group = self.domain.merged[0 if self.split else axis]
        walked = access.axis_of(group[-1])
        return walked is None or unit_stride(access.tv, walked)

    def tma_shape(self, access: Access) -> tuple[int, ...]:
        """Tile of a tensor, in its own order: 1 along the axes that it does not vary along."""
        tile = self.tile
        return tuple(tile[axis] if self.varies(access, axis) else 1 for axis in self.axes(access))

    def covers(self, access: Access) -> bool:
        """Tell whether a tensor varies along all axes that a tile has more than one element of."""
        return prod(self.tma_shape(access)) == prod(self.tile)

    def tma_refusal(self, access: Access) -> str | None:
        """Say why TMA cannot move tiles of this tensor whatever its shape; None if it can.

        Source: CUDA driver API, cuTensorMapEncodeTiled (rank 1..5, contiguous inner axis, inner
        box a multiple of 16 bytes).
        """
        last = self.axes(access)[-1]
        nbytes = self.tile[last] * access.tv.dtype.nbytes
        if not self.varies(access, last) or not self.unit(access, last):
            return f"{access.tv} is not contiguous along the last axis of the loops"
        if self.rank > MAX_TMA_RANK:
            return f"the loops have {self.rank} axes, a TMA box at most {MAX_TMA_RANK}"
        if nbytes % 16:
            return f"a row of the tile is {nbytes} bytes, TMA needs multiples of 16"
        nbytes = prod(self.tma_shape(access)) * access.tv.dtype.nbytes
        if nbytes % 128:
            return f"a tile of {access.tv} is {nbytes} bytes, slots for TMA are multiples of 128"
        return None


def tiling(domain: Domain, params: PointwiseParams) -> Tiling:
    """Lay the tile of `params` over the merged axes of a domain."""
    rows, cols = params.tile
    if params.transpose:
        domain = crossed(domain)
    rank = len(domain.merged)
    if params.transpose and rank > 1:
        return Tiling(domain, split=False, tile=(1,) * (rank - 2) + (rows, cols), transposes=True)
    if rank == 1 and rows == 1:
        return Tiling(domain, split=False, tile=(cols,))
    if rank == 1:
        return Tiling(domain, split=True, tile=(rows, cols))
    return Tiling(domain, split=False, tile=(1,) * (rank - 2) + (rows, cols))


FEW = 8
"""Elements along an axis, at most, for which nothing is gained by transposing tiles."""
LINE = 128
"""Bytes of a row of a transposed tile as it lies in memory, and of the banks of shared memory."""
LEAST, MOST = 32, 64
"""Rows and columns of a transposed tile, where there are so many."""


def default_transposing(
    domain: Domain, loops: Sequence[int], *, by_tma: bool
) -> PointwiseParams | None:
    """Choose params for a kernel whose tensors lie in different orders; None if that is not so.

    `loops` are the extents of the loop axes.  A row of a tile is eight vectors, so that no two
    lanes of a warp meet in a bank; a column is a line of the narrowest transposed tensor.  By TMA
    tiles are on their way without registers.
    """
    asked = PointwiseParams((1, 1), 1, 1, None, "direct", "direct", transpose=True)
    tiles = tiling(domain, asked)
    whole = [a for a in (*domain.reads, *domain.writes) if tiles.turned(a) or _spans(tiles, a)]
    turned = [access.tv.dtype.nbytes for access in whole if tiles.turned(access)]
    extents = [prod(loops[axis] for axis in group) for group in tiles.groups]
    if not turned or min(extents[-2:]) <= FEW:
        return None
    vector = max(2, min(8, 16 // min(access.tv.dtype.nbytes for access in whole)))
    rows, cols = min(max(LINE // min(turned), LEAST), MOST), max(8 * vector, LEAST)
    while rows > vector and rows >= 2 * extents[-2]:
        rows //= 2
    while cols > vector and cols >= 2 * extents[-1]:
        cols //= 2
    around = prod(extents[:-2])
    while rows > 16 and around * -(-extents[-2] // rows) * -(-extents[-1] // cols) < SM_90A.sms:
        rows //= 2
    return PointwiseParams(
        tile=(rows, cols),
        vector=vector,
        warps=max(1, rows * cols // (WARP * 2 * vector)),
        ctas_per_sm=None,
        load="tma" if by_tma else "direct",
        store="direct",
        transpose=True,
    )


def _spans(tiles: Tiling, access: Access) -> bool:
    """Tell whether a tensor varies along both axes of a tile."""
    return all(tiles.varies(access, axis) for axis in range(tiles.rank)[-2:])


def suited(params: PointwiseParams, tiles: Tiling, shapes: ShapeClass) -> PointwiseParams:
    """Return params with vectors as wide as tensors that are not transposed are aligned."""
    vector = params.vector
    for access in (*tiles.domain.reads, *tiles.domain.writes):
        aligned = shapes.elements(access.name)
        narrow = aligned * access.tv.dtype.nbytes < VECTOR_BYTES
        if narrow and _spans(tiles, access) and not tiles.turned(access):
            vector = min(vector, aligned)
    return replace(params, vector=vector)


def default_params(fusion: Fusion) -> PointwiseParams:
    """Choose params for a fusion: direct, 16-byte accesses of the narrowest 1..2-byte type.

    Two vectors per thread and input in flight at full occupancy are 64 KB per SM, more than the
    48 KB that saturate an H200.
    """
    sizes = [tv.dtype.nbytes for tv in fusion.tensors if tv.op == "input" or _stored(fusion, tv)]
    vector = max(1, min(8, 16 // min(sizes, default=4)))
    return PointwiseParams(
        tile=(1, 128 * vector * 2),
        vector=vector,
        warps=4,
        ctas_per_sm=None,
        load="direct",
        store="direct",
    )


def _stored(fusion: Fusion, tv: TensorView) -> bool:
    return any(out is tv for out in fusion.outputs)
