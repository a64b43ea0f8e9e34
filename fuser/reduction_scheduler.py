"""From a domain with reductions and params to the axes of a kernel; the heuristic for params."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fuser.arch import SM_90A
from fuser.domain import Access, Domain, unit_stride
from fuser.dtype import DType
from fuser.params import PointwiseParams
from fuser.promotion import arithmetic
from fuser.scheduler import Tiling, default_params
from fuser.tensor_view import Fusion

Group = tuple[int, ...]
TILE = 2048
"""Elements of a tile where the heuristic chooses: 16 for each of 128 threads."""
FEW = 4
"""Words of an element with which a thread has room for as many as it takes by default."""
ROWS = 64
"""Elements of a thread that reduces columns."""
WARP = 32
"""Threads that reduce columns together."""
WIDEST = 1024
"""Columns of the widest of them.  Measured on an H200, 32768 x 8192 in bf16: sums of rows by 2 x
1024 take 124 us, by 2 x 2048 128; maxima 144 and 173.  Sums of columns by 32 x 64 1054, by 64 x 32
2366 us (and 188 by TMA, which only a user can ask for: not every tensor suits it)."""


@dataclass(frozen=True, slots=True)
class ReductionTiling(Tiling):
    """The axes of a kernel with reductions: those kept, those reduced, and the two of a tile.

    Parameters
    ----------
    axes_of : tuple of tuple of int
        Axes of the domain behind each axis of the kernel; an empty one has extent 1.
    reduced : tuple of int
        Axes of the kernel that are reduced, the one with tiles last.
    """

    axes_of: tuple[Group, ...] = ()
    reduced: tuple[int, ...] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """Axes of the domain behind each axis of the kernel."""
        return self.axes_of

    @property
    def walked(self) -> tuple[int, ...]:
        """Axes of the kernel whose tiles make up the result: those kept."""
        return tuple(axis for axis in range(self.rank) if axis not in self.reduced)

    @property
    def along(self) -> bool:
        """Whether rows of a tile are reduced; else its columns."""
        return self.reduced[-1] == self.rank - 1

    def varies(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's elements differ along a kernel axis."""
        group = self.axes_of[axis]
        if not group:
            return access in self.domain.writes
        return access.axis_of(group[-1]) is not None

    def unit(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor's stride along a kernel axis is known to be 1."""
        group = self.axes_of[axis]
        walked = access.axis_of(group[-1]) if group else None
        return walked is not None and unit_stride(access.tv, walked)


def reduction_tiling(domain: Domain, params: PointwiseParams) -> ReductionTiling:
    """Lay the tile of `params` over the merged axes: neighbours in memory along its rows."""
    kept = [g for g in domain.merged if not _is_reduced(domain, g)]
    reduced = [g for g in domain.merged if _is_reduced(domain, g)]
    inner, down = _inner(domain, reduced), _inner(domain, kept)
    if inner is None and down is not None:
        order = (down, reduced[-1])
    else:
        order = (kept[-1] if kept else (), inner or reduced[-1])
    outer_kept = [g for g in kept if g != order[0]]
    outer_reduced = [g for g in reduced if g != order[1]]
    last = order if inner is not None or down is None else order[::-1]
    axes = (*outer_kept, *outer_reduced, *last)
    first = len(outer_kept)
    numbers = (*range(first, first + len(outer_reduced)), axes.index(order[1]))
    tile = (1,) * (len(axes) - 2) + params.tile
    return ReductionTiling(domain, split=False, tile=tile, axes_of=axes, reduced=numbers)


def reduces_rows(domain: Domain) -> bool:
    """Whether rows of tiles are reduced, whatever the params; else columns."""
    kept = [g for g in domain.merged if not _is_reduced(domain, g)]
    reduced = [g for g in domain.merged if _is_reduced(domain, g)]
    return _inner(domain, reduced) is not None or _inner(domain, kept) is None


def _is_reduced(domain: Domain, group: Group) -> bool:
    kept = {axis for access in domain.writes for axis in access.coords}
    return group[-1] not in kept


def _inner(domain: Domain, groups: list[Group]) -> Group | None:
    """Return the group along which the largest input has its neighbours, if it is one of these."""
    leaves = [leaf for reduction in domain.reductions for leaf in reduction.leaves]
    for access in sorted(leaves, key=lambda leaf: -sum(c is not None for c in leaf.coords)):
        for group in groups:
            walked = access.axis_of(group[-1])
            if walked is not None and unit_stride(access.tv, walked):
                return group
        if any(c is not None and unit_stride(access.tv, n) for n, c in enumerate(access.coords)):
            return None
    return None


def default_reduction_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int]
) -> PointwiseParams:
    """Choose params for a kernel with reductions: direct loads, about 16 elements a thread.

    Parameters
    ----------
    fusion : Fusion
        What the kernel computes.
    domain : Domain
        Its loop axes.
    loops : sequence of int
        The extent of each.
    """
    plain = default_params(fusion)
    tiles = reduction_tiling(domain, plain)
    extents = [prod(loops[axis] for axis in group) for group in tiles.groups]
    vector = plain.vector
    # Registers of a thread for an element: what is read, twice what it is added to.
    leaves = {leaf for reduction in domain.reductions for leaf in reduction.leaves}
    words = [_words(leaf.tv.dtype) for leaf in leaves]
    words += [2 * _words(arithmetic(one.tv.dtype)) for one in domain.reductions]
    crowd = max(sum(words) // FEW, 1)
    if tiles.along:
        reduced = max(extents[-1], 1)
        cols = min(max(1 << (reduced - 1).bit_length(), vector), WIDEST)
        return replace(plain, tile=(max(TILE // crowd // cols, 1), cols))
    # One warp for each few columns, and as many rows on their way as its registers hold.
    kept, around = extents[-1], prod(extents[axis] for axis in tiles.walked[:-1])
    while vector > 2 and around * kept // (WARP * vector) < 2 * SM_90A.sms:
        vector //= 2
    rows = max(ROWS // crowd // vector, 1)
    return replace(plain, tile=(rows, WARP * vector), vector=vector, warps=1)


def _words(dtype: DType) -> int:
    return max(dtype.nbytes // 4, 1)
