"""From a domain with scans and params to the axes of a kernel; and the default heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from fuser.arch import SM_90A
from fuser.schedule.domain import Access, Domain, unit_stride
from fuser.schedule.params import ScanParams
from fuser.schedule.reduction import ReductionTiling

WARP = 32
"""Threads of a warp."""
VECTOR_BYTES = 16
"""Bytes of the widest access of a thread."""
MOST_LANES = 256
"""Threads that share a row, at most, where nothing is asked."""
LEAST_COPY = 4
"""Bytes of the narrowest copy of a thread.  Source: PTX ISA, "cp.async"."""
STEPS = 4
"""Tiles of a row from which on those that come next are copied ahead."""
ROW_STAGES, COLUMN_STAGES = 4, 8
"""Slots of rings of rows, and of columns, whose CTAs are small and few."""
HELD = 32
"""Elements of columns that a thread has at a time: so many loads are on their way."""


def scan_tiling(domain: Domain, params: ScanParams) -> ReductionTiling:
    """Lay the tile of `params` over the merged axes.

    Its rows run along what is scanned, where neighbours lie in memory along that; else its columns.
    """
    scan = next(group for group in domain.merged if domain.scanned in group)
    others = [group for group in domain.merged if group != scan]
    if scans_rows(domain):
        axes = (*(others or [()]), scan)
        tile = params.tile
    else:
        columns = _fastest(domain, others)
        axes = (*(group for group in others if group != columns), scan, columns)
        tile = params.down.tile
    rank = len(axes)
    return ReductionTiling(
        domain, False, (1,) * (rank - 2) + tile, axes_of=axes, reduced=(axes.index(scan),)
    )


def scans_rows(domain: Domain) -> bool:
    """Whether scans of a kernel run along rows of its tiles, whatever the params; else columns."""
    walked = [group for group in domain.merged if domain.scanned not in group]
    return not walked or _fast(_first(domain), domain.scanned)


def default_scan_params(domain: Domain, loops: Sequence[int], *, ring: bool = True) -> ScanParams:
    """Choose params for a kernel with scans; `loops` are the extents of its loop axes.

    Along rows threads have 16 bytes of the narrowest tensor each, and enough of them share a row
    that it is one tile, up to some warps.  Down columns there are as many threads as columns, which
    are few: a warp a CTA, each thread with several rows of loads on their way.  Of long rows and
    columns the next tiles are on their way in a `ring`, where that is allowed.
    """
    assert domain.scanned is not None, "a domain with scans"
    along, every = loops[domain.scanned], (*domain.reads, *domain.writes)
    rest = prod(loops) // max(along, 1)
    narrow = min(access.tv.dtype.nbytes for access in every)
    vector = max(1, min(8, VECTOR_BYTES // narrow))
    if scans_rows(domain):
        most = MOST_LANES if rest >= 2 * SM_90A.sms else 2 * MOST_LANES
        lanes = 1
        while lanes < most and lanes * vector < along:
            lanes *= 2
        warps = max(4, lanes // WARP)
        tile, stages = (WARP * warps // lanes, lanes * vector), ROW_STAGES
        steps = along // tile[1]
    else:
        while vector > 1 and rest < SM_90A.sms * WARP * 4 * vector:
            vector //= 2
        if ring and vector * narrow < LEAST_COPY:
            vector = LEAST_COPY // narrow
        lanes, warps = WARP, 1
        tile, stages = (HELD // vector, WARP * vector), COLUMN_STAGES
        steps = along // tile[0]
    plain = ScanParams(tile, vector, warps, None, "direct", "direct", lanes=lanes)
    slots = prod(tile) * sum(access.tv.dtype.nbytes for access in domain.reads)
    stages = min(stages, SM_90A.smem_bytes * 63 // 64 // max(slots, 1))  # parts of rows beside
    if not ring or not domain.reads or steps < STEPS or stages < 2:
        return plain
    return replace(plain, load="cp_async", stages=stages, prefetch=stages - 1)


def _first(domain: Domain) -> Access:
    return domain.writes[0]


def _fast(access: Access, axis: int | None) -> bool:
    """Tell whether a tensor has its neighbours along a loop axis."""
    walked = None if axis is None else access.axis_of(axis)
    return walked is not None and unit_stride(access.tv, walked)


def _fastest(domain: Domain, groups: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the axes along which the first result has its neighbours."""
    return next((g for g in groups if _fast(_first(domain), g[-1])), groups[-1])
