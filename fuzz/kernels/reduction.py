"""Kernels that the compiler makes of reductions, with small launches, to judge their mutants.

Tiles are as small as a warp or a TMA box, so that every interleaving of a launch can be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from fuser import pipeline
from fuser.expr import variables
from fuser.fusion.definition import Fusion
from fuser.kernel import ir as kir
from fuser.runtime.classify import classify
from fuser.schedule.params import Meet, PointwiseParams, ReductionParams
from fuser.schedule.reduction import ReductionTiling
from fuzz.kernels.fusions import columns, dense, moments, rows, spread
from fuzz.kernels.tile import Start, Template, strides

PITCH = 32
"""Rows of the tensors lie a multiple of so many elements apart."""
TAIL = 8
"""Elements that the last tile lacks along its rows."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A fusion that reduces, and how the compiler is to compute it."""

    fusion: Callable[[], Fusion]
    params: ReductionParams

    def template(self) -> Template:
        """Return the kernel, and its launches."""
        made = reduced(self.fusion(), self.params)

        def at(count: int) -> tuple[Start, ...]:
            if not count:
                return ()
            if self.params.splits == 1:
                pairs = [(1, count), (count, 1), (2, count), (count, 2)]
                return tuple(started(made, *pair) for pair in dict.fromkeys(pairs))
            many = self.params.splits
            totals = [(1, count * many, many), (count, 1, 1)]
            totals += [(1, (count - 1) * many + 1, many)] * (count > 1)
            return tuple(started(made, *total) for total in totals)

        return Template(made.kernel, self.params.stages, at)


def reduced(fusion: Fusion, params: ReductionParams) -> pipeline.Launch:
    """Return the one kernel of a fusion that reduces."""
    (made,) = pipeline.build(fusion, params, classify(fusion, params, dense(fusion))).launches
    return made


def started(made: pipeline.Launch, tiles: int, steps: int, many: int = 1) -> Start:
    """Return a launch over tiles of so many steps, each by `many` CTAs; or all by one CTA.

    Where no CTA takes several tiles, there is one for each.
    """
    tiling, params = made.tiling, made.params
    assert isinstance(tiling, ReductionTiling), "a kernel that reduces"
    assert isinstance(params, ReductionParams), "a schedule of reductions"
    sizes = list(tiling.tile)
    sizes[tiling.walked[-1]] *= tiles
    sizes[tiling.reduced[-1]] *= steps
    sizes[-1] -= TAIL
    given = {f"n{axis}": n for axis, n in enumerate(sizes)}
    row = -(-max(sizes) // PITCH) * PITCH
    for tensor in made.kernel.tensors:
        given |= strides(tensor, row)
    if params.splits == 1:
        one_each = any(kir.GRID in variables(fact) for fact in made.kernel.requires)
        return (tiles if one_each else 1, given)
    return tiles * many, given | {"splits": many}


# --- schedules ----------------------------------------------------------------------------------


def ring(
    tile: tuple[int, int], stages: int, prefetch: int, splits: int, meet: Meet = "vectorized"
) -> ReductionParams:
    """Return a schedule with a ring that TMA fills."""
    loads = PointwiseParams(tile, 2, 1, None, "tma", "direct", stages, prefetch)
    return ReductionParams(**asdict(loads), splits=splits, meet=meet)


def direct(
    tile: tuple[int, int], warps: int, splits: int, meet: Meet = "vectorized"
) -> ReductionParams:
    """Return a schedule with ordinary loads."""
    return ReductionParams(tile, 1, warps, None, "direct", "direct", splits=splits, meet=meet)


REDUCTIONS: dict[str, Reduced] = {
    "reduced_rows": Reduced(rows, direct((2, 64), 2, 1)),
    "reduced_ring": Reduced(rows, ring((1, 64), 2, 1, 1)),
    "shared_rows": Reduced(lambda: rows("max"), direct((4, 32), 2, 3)),
    "shared_parts": Reduced(rows, direct((2, 64), 2, 2)),
    "shared_columns": Reduced(columns, direct((2, 64), 2, 2)),
    "shared_ring": Reduced(rows, ring((1, 64), 2, 1, 2)),
    "shared_ring_of_columns": Reduced(columns, ring((2, 64), 3, 2, 2)),
    "last_rows": Reduced(lambda: rows("max"), direct((4, 32), 2, 3, "last")),
    "last_columns": Reduced(columns, ring((2, 64), 2, 1, 2, "last")),
    "last_statistics": Reduced(spread, direct((1, 64), 2, 2, "last")),
    "shared_statistics": Reduced(spread, direct((1, 64), 2, 2)),
    "added_rows": Reduced(rows, direct((2, 64), 2, 3, "tma")),
    "added_columns": Reduced(columns, direct((2, 64), 2, 3, "tma")),
    "added_ring_of_columns": Reduced(columns, ring((2, 64), 2, 1, 3, "tma")),
    "added_statistics": Reduced(moments, ring((1, 64), 2, 1, 3, "tma")),
}
"""What is reduced, by loads or through a ring, and by how many CTAs; added up by TMA, or not."""
