"""From a domain with reductions and params to the axes of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.domain import Access, Domain, unit_stride
from fuser.params import PointwiseParams
from fuser.scheduler import Tiling

Group = tuple[int, ...]


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
