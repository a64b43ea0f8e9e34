"""What a kernel may be scheduled by beside its default: what is worth measuring.

Every one is valid in itself; whether it suits a kernel, its class of shapes and the device the
runtime and the build find out.  Kernels with scans, and products by threads, have their default
only, and so has a product for which it is asked how CTAs add up its sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Any

from fuser.errors import ScheduleError
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import by_rows
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.norm_heuristic import norm_candidates, row_alignment
from fuser.schedule.params import NormParams, PointwiseParams
from fuser.schedule.pointwise import WARP, pointwise_candidates
from fuser.schedule.products.choose import candidates as product_candidates
from fuser.schedule.products.unaligned import Lying, ranked
from fuser.schedule.reduction_heuristic import reduction_candidates
from fuser.schedule.segment import Segment
from fuser.schedule.shape_class import Params, ShapeClass

VERSION = 5
"""Of what is yielded; counts up where an answer that was kept may no longer be the best."""


def candidates(
    segment: Segment, default: Params, shapes: ShapeClass, loops: Sequence[int], sms: int
) -> Iterator[Params]:
    """Yield schedules worth measuring beside the default, the most promising first.

    `shapes` are those of the kernel by its default schedule, `loops` the extents of its loop axes.
    The default may be among them; the same one may come twice.
    """
    domain = segment.domain
    if prod(loops) == 0:
        return
    if domain.products:
        if any(product.tv.meet is not None for product in domain.products):
            return
        if isinstance(default, MatmulParams):
            yield from product_candidates(segment.fusion, domain, loops, sms)
        elif isinstance(default, AmpereParams):
            every = ranked(domain, loops, Lying.of(domain, shapes), sms)
            yield from (one.params for one in every)
    elif domain.rows:
        yield from norm_candidates(domain, loops, aligned=row_alignment(domain, shapes))
        if isinstance(default, NormParams):
            yield from _dealt_anew(default, prod(loops[axis] for axis in domain.rows))
    elif domain.scanned is not None:
        return
    elif domain.reductions:
        aligned = row_alignment(by_rows(domain) or domain, shapes)
        yield from reduction_candidates(segment.fusion, domain, loops, aligned=aligned)
    elif isinstance(default, PointwiseParams):
        yield from pointwise_candidates(default)


def _dealt_anew(default: NormParams, columns: int) -> Iterator[NormParams]:
    """Yield neighbours of a default by which others share rows, valid in themselves.

    More and fewer lanes, warps, CTAs of a cluster and neighbours a thread, what is held or computed
    again; each has the registers that the compiler gives it.
    """
    sizes = ("lanes", "warps", "cluster", "vector")
    changes: list[dict[str, Any]] = [
        {name: size}
        for name in sizes
        for size in (2 * getattr(default, name), getattr(default, name) // 2)
    ]
    changes += [{name: not getattr(default, name)} for name in ("hold", "recompute")]
    for change in changes:
        lanes, warps, cluster, vector = (change.get(n, getattr(default, n)) for n in sizes)
        step = lanes * vector
        if not step or not cluster or WARP * warps < lanes:
            continue
        tile = (WARP * warps // lanes, -(-ceil(columns / cluster) // step) * step)
        try:
            yield replace(default, tile=tile, resident=1, **change)
        except ScheduleError:
            continue
