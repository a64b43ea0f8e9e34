"""Hypothesis strategies for schedules, extents and memory layouts, valid by construction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hypothesis import strategies as st

from fuser.arch import SM_90A
from fuser.binding import classify
from fuser.domain import Access, domains
from fuser.fusion_ir import Fusion
from fuser.params import MAX_BOX, MAX_STAGES, PointwiseParams
from fuser.scheduler import Tiling, tiling
from fuzz.case import Case, specs, symbols

FAMILIES = (
    "direct/direct",
    "direct/tma",
    "tma-pipelined/direct",
    "tma-pipelined/tma",
    "tma-specialized/direct",
    "tma-specialized/tma",
)
"""Every schedule family; the name of `PointwiseParams.family`."""

MAX_ELEMENTS = 1 << 14
"""Elements of the loops of a case, so that its simulation stays short."""
MAX_TILES = 192
"""Tiles of a case, for the same reason."""
PER_THREAD = 64
"""Elements of a tile per thread, at most.  Source: `fuser.params`."""
STAGING = 2
"""Slots, at most, of a buffer that a TMA store empties."""
BARRIER_BYTES = 1024
"""More than the barriers of a kernel take."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes per element of everything a kernel may keep in shared memory, of its worst domain."""

    reads: int
    writes: int

    def smem_bytes(self, tile: tuple[int, int], *, load: bool, store: bool, stages: int) -> int:
        """Bound the shared memory of a schedule."""
        elements = tile[0] * tile[1]
        ring = self.reads * elements * stages if load else 0
        return ring + (self.writes * elements * STAGING if store else 0) + BARRIER_BYTES


def sizes(fusion: Fusion) -> Sizes:
    """Return the bytes per element that the kernels of a fusion read and write."""
    found = domains(fusion)
    return Sizes(
        max(sum(access.tv.dtype.nbytes for access in domain.reads) for domain in found),
        max(sum(access.tv.dtype.nbytes for access in domain.writes) for domain in found),
    )


@st.composite
def params(
    draw: st.DrawFn, fusion: Fusion | None = None, *, families: tuple[str, ...] = FAMILIES
) -> PointwiseParams:
    """Schedules of these families that fit shared memory, for a fusion of two tensors if not given.

    Shrinks towards the first family (direct/direct), a tile of 1 x 16, one warp, no vectors,
    one CTA per tile, one stage.
    """
    family = draw(st.sampled_from(families))
    loads, stores = family.split("/")
    load, store = loads != "direct", stores == "tma"
    columns = [16, 32, 64, 128, 256] if load or store else [16, 1, 24, 64, 256, 1024, 2048]
    cols = draw(st.sampled_from(columns))
    stages = draw(st.integers(1, MAX_STAGES)) if load else 1
    need = sizes(fusion) if fusion is not None else Sizes(4, 4)
    tiles = [
        (rows, cols)
        for rows in (1, 2, 4, 8, 3, 16, 32)
        if need.smem_bytes((rows, cols), load=load, store=store, stages=stages)
        <= SM_90A.smem_bytes
        and rows * cols <= PER_THREAD * 32 * 16
    ]
    while not tiles:  # very wide fusions: fewer stages always fit
        stages -= 1
        if need.smem_bytes((1, cols), load=load, store=store, stages=stages) <= SM_90A.smem_bytes:
            tiles = [(1, cols)]
    tile = draw(st.sampled_from(tiles))
    least = -(-tile[0] * tile[1] // (32 * PER_THREAD))
    specialized = loads == "tma-specialized"
    return PointwiseParams(
        tile=tile,
        vector=draw(st.sampled_from([n for n in (1, 2, 4, 8, 16) if cols % n == 0])),
        warps=draw(st.sampled_from([n for n in (1, 2, 4, 8, 3, 16) if n >= least])),
        ctas_per_sm=draw(st.sampled_from([None, 1, 2, 3, 4])),
        load="tma" if load else "direct",
        store="tma" if store else "direct",
        stages=stages,
        prefetch=0 if specialized or not load else draw(st.integers(0, stages - 1)),
        warp_specialized=specialized,
    )


@st.composite
def extents(
    draw: st.DrawFn, fusion: Fusion, params: PointwiseParams, *, max_elements: int = MAX_ELEMENTS
) -> dict[str, int]:
    """Values of every symbol of a fusion: 0, 1, tails, one past a tile, several turns of a ring.

    Shrinks towards 1 for every symbol.
    """
    rows, cols = params.tile
    turns = [rows * params.stages, rows * (2 * params.stages + 1)]
    edges = [1, 2, 3, cols - 1, cols, cols + 1, rows + 1, 2 * cols + 3, 3 * cols, *turns, 0]
    even = draw(st.booleans())
    left = min(max_elements, MAX_TILES * rows * cols) // _pinned(fusion)
    found = {}
    for position, name in enumerate(symbols(fusion)):
        choices = [16, 64, 48, 256, cols, 2 * cols] if even and position else edges
        limit = max(int(left ** (1 / max(_uses(fusion, name), 1))), 1)
        fitting = list(dict.fromkeys([1, *(n for n in choices if 0 <= n <= limit)]))
        found[name] = draw(st.sampled_from(fitting) | st.integers(1, min(limit, 300)))
        left //= max(found[name] ** _uses(fusion, name), 1)
    return found


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int]:
    """Gaps and offsets of the inputs in memory, in elements.

    Shrinks towards no gap and no offset.
    """
    return draw(st.sampled_from([0, 16, 1, 3, 8, 64])), draw(st.sampled_from([0, 0, 16, 1, 2, 8]))


def possible(case: Case) -> Case:
    """Return the case with direct loads or stores where TMA can move no tensor of a kernel."""
    schedule = case.params
    shapes = classify(case.fusion, schedule, specs(case))
    load, store = schedule.load, schedule.store
    for domain in domains(case.fusion):
        tiles = tiling(domain, schedule)

        def able(accesses: tuple[Access, ...], tiles: Tiling = tiles) -> bool:
            return not accesses or any(
                tiles.tma_refusal(access) is None and access.name in shapes.tma
                for access in accesses
            )

        load = load if able(domain.reads) else "direct"
        store = store if able(domain.writes) else "direct"
    schedule = replace(schedule, store=store)
    if load != schedule.load:
        schedule = replace(schedule, load=load, stages=1, prefetch=0, warp_specialized=False)
    return replace(case, params=schedule)


def _pinned(fusion: Fusion) -> int:
    """Return the largest product of the extents of a tensor that are numbers."""
    return max(prod(n for n in tv.shape if isinstance(n, int) and n) for tv in fusion.tensors)


def _uses(fusion: Fusion, symbol: str) -> int:
    """Count the axes of one tensor that have an extent."""
    return max(sum(str(axis) == symbol for axis in tv.logical) for tv in fusion.tensors)
