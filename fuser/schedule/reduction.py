"""From a domain with reductions and params to the axes of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from fuser.fusion.ops import added_by_tma, operand_dtypes
from fuser.schedule.domain import Access, Domain, unit_stride
from fuser.schedule.params import MAX_BOX, Meet, PointwiseParams, ReductionParams
from fuser.schedule.pointwise import Tiling

Group = tuple[int, ...]
PARTS = 64
"""Parts of a row in shared memory, at most: a thread puts them together in registers."""
LANES = 32
"""Lanes of a warp that put what they hold of a row together, at most."""
CROWD, AT_ONCE = 8, 32
"""CTAs whose results the last-arriving one loads, each by some of its threads, at most; and the
results of 4 bytes that a thread has on their way at once, at most.  The prover follows launches of
a few times as many CTAs."""
TMA_PARTS = 4
"""Parts of a row, or a multiple, that CTAs add up by TMA: 16 bytes of f32, 32 of i64."""


@dataclass(frozen=True, slots=True)
class ReductionTiling(Tiling):
    """The axes of a kernel with reductions: those kept, those reduced, and the two of a tile.

    `axes_of` are the axes of the domain behind each of them; an empty one has extent 1.  `reduced`
    are those that are reduced, the one with tiles last.
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
    kept, reduced = _sides(domain)
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
    kept, reduced = _sides(domain)
    return _inner(domain, reduced) is not None or _inner(domain, kept) is None


def how_split(params: PointwiseParams) -> Meet | None:
    """Return how CTAs that share a tile put together what they have of it; None if none do."""
    return params.meet if isinstance(params, ReductionParams) and params.splits > 1 else None


def lanes_together(vectors: int, params: PointwiseParams) -> int:
    """Return how many lanes put together a row; whole chunks of parts for TMA, 0 if too few."""
    even = vectors & -vectors
    return min(even // (TMA_PARTS if how_split(params) == "tma" else 1), LANES)


def not_added(domain: Domain) -> str | None:
    """Say what a kernel reduces that TMA does not add up; None if there is no such thing."""
    for tv in (reduction.tv for reduction in domain.reductions):
        if not added_by_tma(tv):
            return (
                f"TMA adds only, in f32 and i64, and {tv} is a {tv.op} in {operand_dtypes(tv)[0]}"
            )
    return None


def split_refusal(tiles: ReductionTiling, params: PointwiseParams) -> str | None:
    """Say why CTAs cannot put results together in the way that is asked; None if they can."""
    if how_split(params) != "tma":
        return None
    why = not_added(tiles.domain)
    if why is not None:
        return f'{why}; use meet="vectorized"'
    rows, cols = params.tile
    if not tiles.along:
        fits = cols <= MAX_BOX
        large, other = f"{cols} columns of results", (rows, MAX_BOX)
    else:
        fits = rows <= MAX_BOX
        large, other = f"{rows} rows of results", (MAX_BOX, cols)
    if not fits:
        return f'{large}, a TMA box has {MAX_BOX}; use tile={other}, or meet="vectorized"'
    vectors = cols // params.vector
    if tiles.along and not lanes_together(vectors, params):
        least = (rows, cols * TMA_PARTS // gcd(vectors, TMA_PARTS))
        return (
            f"TMA adds up {TMA_PARTS} parts of a row at a time, and {vectors} vectors of "
            f'{params.vector} are no multiple; use tile={least}, or meet="vectorized"'
        )
    return None


def suited(tiling: ReductionTiling, params: PointwiseParams) -> PointwiseParams:
    """Return params by which threads can put their parts of a tile together.

    ScheduleError if there are none for this tile, or CTAs cannot put results together as is asked.
    """
    rows, cols = params.tile
    why = split_refusal(tiling, params)
    if why is not None:
        params.refuse("tile vector meet", why)
    if tiling.along:
        vectors = cols // params.vector
        lanes = lanes_together(vectors, params)
        parts = vectors // lanes
        if parts > PARTS:
            params.refuse(
                "tile vector",
                f"a row is {vectors} vectors, of which a warp puts {lanes} together; {parts} parts "
                f"are left, at most {PARTS} are put together in shared memory: use "
                f"tile=({rows}, {params.vector * LANES})",
            )
        return params
    threads = LANES * params.warps
    even = cols % threads == 0 or threads % cols == 0
    if how_split(params) in (None, "last") and even and rows % groups(params) == 0:
        return params
    if cols % LANES:
        params.refuse(
            "tile",
            f"columns are reduced, each by one thread; {cols} are no whole warps: use "
            f"{cols + -cols % LANES} columns",
        )
    # Every thread holds whole columns.
    warps = next(w for w in range(params.warps, 0, -1) if cols % (LANES * w) == 0)
    return replace(params, warps=warps, vector=gcd(params.vector, cols // (LANES * warps)))


def groups(params: PointwiseParams) -> int:
    """Return how many groups of threads reduce columns, each some of the rows of a tile."""
    _, cols = params.tile
    return max(LANES * params.warps * params.vector // cols, 1)


def crowd(params: PointwiseParams, *, along: bool) -> int:
    """Return the CTAs whose results the last-arriving one loads in a step, by threads side by side.

    Those for a row by lanes of a warp, those for columns by groups of threads.
    """
    each_row = LANES * params.warps // params.tile[0]
    return 1 << (max(min(each_row, CROWD), 1).bit_length() - 1) if along else CROWD


def results_at_once(params: PointwiseParams, nbytes: int, *, along: bool) -> int:
    """Return how many CTAs' results, of so many bytes, the last-arriving one loads at once."""
    many, (rows, cols) = crowd(params, along=along), params.tile
    held = max(many * (rows if along else cols) // (LANES * params.warps), 1)
    return many * max(AT_ONCE // (held * max(nbytes // 4, 1)), 1)


def _sides(domain: Domain) -> tuple[list[Group], list[Group]]:
    kept = {axis for access in domain.writes for axis in access.coords}
    groups = domain.merged
    return [g for g in groups if g[-1] in kept], [g for g in groups if g[-1] not in kept]


def _inner(domain: Domain, groups: list[Group]) -> Group | None:
    """Return the group along which the largest input has its neighbours, if it is one of these."""
    for access in sorted(domain.leaves, key=lambda leaf: -sum(c is not None for c in leaf.coords)):
        for group in groups:
            walked = access.axis_of(group[-1])
            if walked is not None and unit_stride(access.tv, walked):
                return group
        if any(c is not None and unit_stride(access.tv, n) for n, c in enumerate(access.coords)):
            return None
    return None
