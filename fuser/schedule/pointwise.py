"""From a domain and params to the axes of a kernel; and the default heuristic for params."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fuser.fusion.ir import Fusion, TensorView
from fuser.schedule.domain import Access, Domain, flat_refusal, is_whole, runs, unit_stride
from fuser.schedule.params import PointwiseParams

MAX_TMA_RANK = 5
MAX_POSITION = 2**31 - 1
"""Positions along an axis are 32-bit."""
FILLED = 0.8
"""Of a tile's columns, the part below which rows leave too many threads without an element."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The axes of one kernel and the tile of each; 1 but for the last two.

    If `split`, one merged axis is seen as two, rows and columns; the launch chooses how many
    columns.  If `flat`, all axes are walked as one; tensors without some of them then repeat.
    """

    domain: Domain
    split: bool
    tile: tuple[int, ...]
    flat: bool = False

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
        del access
        return tuple(range(self.rank))

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
        """Tile of a tensor: 1 along the axes that it does not vary along."""
        return tuple(n if self.varies(access, axis) else 1 for axis, n in enumerate(self.tile))

    def tma_refusal(self, access: Access) -> str | None:
        """Say why TMA cannot move tiles of this tensor whatever its shape; None if it can.

        Source: CUDA driver API, cuTensorMapEncodeTiled (rank 1..5, contiguous inner axis, inner
        box a multiple of 16 bytes).
        """
        nbytes = self.tile[-1] * access.tv.dtype.nbytes
        if self.cycles(access):
            return f"{access.tv} repeats along the one axis of the loops"
        if not self.varies(access, self.rank - 1) or not self.unit(access, self.rank - 1):
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
    rank = len(domain.merged)
    if params.flat and rank > 1:
        why = flat_refusal(domain)
        if why is not None:
            params.refuse("flat", f"{why}; use flat=False")
        return Tiling(domain, split=False, tile=(cols,), flat=True)
    if rank == 1 and rows == 1:
        return Tiling(domain, split=False, tile=(cols,))
    if rank == 1:
        return Tiling(domain, split=True, tile=(rows, cols))
    return Tiling(domain, split=False, tile=(1,) * (rank - 2) + (rows, cols))


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


def _stored(fusion: Fusion, tv: TensorView) -> bool:
    return any(out is tv for out in fusion.outputs)
