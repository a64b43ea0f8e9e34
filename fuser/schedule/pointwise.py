"""From a domain and params to the axes of a kernel; and the default heuristic for params."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fuser.arch import SM_90A
from fuser.fusion.ir import Fusion, TensorView
from fuser.schedule.domain import (
    Access,
    Domain,
    crossed,
    flat_refusal,
    is_whole,
    runs,
    unit_stride,
)
from fuser.schedule.params import PointwiseParams
from fuser.schedule.shape_class import ShapeClass

MAX_TMA_RANK = 5
MAX_POSITION = 2**31 - 1
"""Positions along an axis are 32-bit."""
FILLED = 0.8
"""Of a tile's columns, the part below which rows leave too many threads without an element."""
WARP = 32
"""Threads of a warp."""
VECTOR_BYTES = 16
"""Bytes of the widest access of a thread."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The axes of one kernel and the tile of each; 1 but for the last two.

    If `split`, one merged axis is seen as two, rows and columns; the launch chooses how many
    columns.  If `flat`, all axes are walked as one; tensors without some of them then repeat.  If
    it `transposes`, tensors with neighbours along the rows are seen with their last two axes
    exchanged.
    """

    domain: Domain
    split: bool
    tile: tuple[int, ...]
    flat: bool = False
    transposes: bool = False

    @property
    def rank(self) -> int:
        """Axes of the kernel."""
        return len(self.tile)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Axes of the domain behind each axis of the kernel; one group stands for a split axis."""
        return (tuple(range(len(self.domain.extents))),) if self.flat else self.domain.merged

    @property
    def walked(self) -> tuple[int, ...]:
        """Axes of the kernel whose tiles make up the result: all of them."""
        return tuple(range(self.rank))

    def axes(self, access: Access) -> tuple[int, ...]:
        """Axes of the kernel along which a tensor is seen, in its own order: all of them."""
        own = tuple(range(self.rank))
        return (*own[:-2], *own[:-3:-1]) if self.turned(access) else own

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
        if self.flat:
            return any(walked is not None for walked in access.coords)
        group = self.domain.merged[0 if self.split else axis]
        return access.axis_of(group[-1]) is not None

    def unit(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's stride along a kernel axis is known to be 1."""
        if (self.split and axis == 0) or not self.varies(access, axis):
            return False
        if self.flat:
            return True
        group = self.domain.merged[0 if self.split else axis]
        walked = access.axis_of(group[-1])
        return walked is None or unit_stride(access.tv, walked)

    def cycles(self, access: Access) -> tuple[range, ...]:
        """Return the loop axes by which a tensor repeats along the one axis of the kernel."""
        rank = len(self.domain.extents)
        if not self.flat or not self.varies(access, 0) or is_whole(access, rank):
            return ()
        return runs(access, rank)

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
        if self.cycles(access):
            return f"{access.tv} repeats along the one axis of the loops"
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
    if params.flat and rank > 1:
        why = flat_refusal(domain)
        if why is not None:
            params.refuse("flat", f"{why}; use flat=False")
        return Tiling(domain, split=False, tile=(cols,), flat=True)
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


def flattened(params: PointwiseParams, domain: Domain, loops: Sequence[int]) -> PointwiseParams:
    """Walk all axes as one where that makes accesses wider, or rows fill tiles badly.

    Not where something else is in the way: tensors of all axes in another order or with gaps, or
    more positions than 32 bits count.
    """
    rank, cols = len(domain.extents), params.tile[1]
    every = [
        access
        for access in (*domain.reads, *domain.writes)
        if all(access.axis_of(axis) is not None for axis in range(rank))
    ]
    whole = all(is_whole(access, rank) for access in every)
    if not whole or len(domain.merged) == 1 or flat_refusal(domain) is not None:
        return params
    if prod(loops) + cols > MAX_POSITION:
        return params
    last = prod(loops[axis] for axis in domain.merged[-1])
    odd = any(last * access.tv.dtype.nbytes % 16 for access in every)
    filled = last / (-(-last // cols) * cols) if last else 1
    return replace(params, flat=True) if odd or filled < FILLED else params


def narrowed(params: PointwiseParams, domain: Domain, loops: Sequence[int]) -> PointwiseParams:
    """Let tiles have several rows where these are much shorter than a tile: no thread is idle.

    Measured on an H200, rotary positions of 4 x 2048 x 16 heads of 128, 135 MB in rows of 64: in
    tiles of 2048 they take 643 us, in tiles of 16 x 64 44 us.
    """
    rows, cols = params.tile
    if params.flat or params.transpose or rows > 1 or len(domain.merged) < 2:
        return params
    around, last = (prod(loops[axis] for axis in group) for group in domain.merged[-2:])
    many, wide = 1, cols
    while wide > params.vector and wide // 2 >= last:
        wide //= 2
    while many < around and many * wide < cols:
        many *= 2
    warps = max(1, min(params.warps, many * wide // (params.vector * WARP)))
    return replace(params, tile=(many, wide), warps=warps) if wide < cols else params


def _stored(fusion: Fusion, tv: TensorView) -> bool:
    return any(out is tv for out in fusion.outputs)
