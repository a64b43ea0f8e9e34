"""Which schedule a fusion with reductions gets where the user names none.

A model of three facts: memory gives so many bytes in a microsecond; a CTA takes about one for a
step, whatever its tile, as it waits for what it loads, or a third where a ring brings it; and where
it shares a tile with others, about one for its turn, or little where the last-arriving one puts all
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod, sqrt

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion, Meet
from fuser.fusion.promotion import arithmetic
from fuser.schedule.domain import Domain
from fuser.schedule.norm_heuristic import default_norm_params, fits_registers
from fuser.schedule.params import (
    MAX_REDUCTION_SPLITS,
    MAX_STAGES,
    NormParams,
    PointwiseParams,
    ReductionParams,
)
from fuser.schedule.pointwise import default_params
from fuser.schedule.reduction import TMA_PARTS, not_added, reduces_rows, reduction_tiling

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
2366 us, and 188 by TMA."""
LONG_WARPS = 8
"""Warps that share a row where there are few of them."""
WORDS = 192
"""Words of the elements of a thread where results are few: of each what is read, and twice what it
is added to.  Source: the assembler's log; with twice as many it spills."""
LONG_VECTORS = 2048
"""Vectors of such a row in a tile: more of its parts than shared memory should hold are left."""
BYTES_PER_US = 4.3e6
"""What memory gives.  Measured on an H200: a copy kernel moves 1.6 GB in 378 us."""
STEP_US = 1.0
"""A CTA's step.  Measured on an H200: sums of columns by 128 CTAs of 32 x 64 take 1054 us, in 1024
steps."""
RING_STEP_US = 0.5
"""A step of 64 rows that TMA brings, all of its warps at once.  Measured on an H200: 0.35 for sums
(64 columns over 131072 rows by a CTA of 2 warps take 704 us), 0.6 for absolute maxima."""
RING_BEGIN_US = 1.0
"""What a wave of CTAs waits for the first of its steps.  Measured on an H200: sums of columns of
32768 x 8192 by 256 CTAs take 132 us, by 2112 of them 133; absolute maxima 145 and 151."""
RING_ROWS, RING_BYTES = 64, 65_536
"""Rows of a tile, and bytes of its ring: two CTAs have an SM, which is enough for its memory."""
RING_COLUMNS = 256
"""Bytes of a row of such a tile.  Measured on an H200, columns of 32768 x 8192 in bf16: sums by
64 x 128 and 256 CTAs 128 us, by 64 x 64 126, by 32 x 128 133; absolute maxima 145, 160 and 138."""
TURN_US = 1.0
"""A CTA's turn.  Measured on an H200, for tiles of sums of up to 16 KB."""
LAST_US, EACH_US = 1.5, 0.05
"""What the last-arriving CTA takes, and for each CTA of its tile.  Measured on an H200: sums of 64
columns over 2^20 rows by 256 CTAs take 40 us, of which memory takes 31."""
SHARP = 8
"""How sharply the longer of two times that overlap tells how long both take."""
THREADS = 1024
"""Threads of an SM that such kernels leave registers for."""
BUSY = 2
"""Waves of CTAs from which on rows get no more threads each.  Measured on an H200, sums of rows in
bf16: 66349 x 4312 by 1 x 8192 243 us, 42597 x 4928 by 2 x 1024 95 us; memory takes 133 and 98."""
MAX_CTAS = 32
"""CTAs of an SM.  Source: CUDA C++ Programming Guide, compute capabilities, 9.0."""
WORTH = 0.9
"""Share of the time of one CTA a tile at which another schedule is taken: the model is rough."""


def default_reduction_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int], *, by_tma: bool = False
) -> PointwiseParams:
    """Choose params for a kernel with reductions: about 16 elements a thread, columns by TMA.

    Several CTAs share a tile where too few would run, or where that is asked of a result and there
    are two steps or more; they reduce as is asked, else the last-arriving one puts all together.

    `loops` are the extents of its loop axes; with `by_tma` TMA can move all that is reduced, should
    it be asked to.

    Raises
    ------
    ScheduleError
        If TMA is asked to add up what is reduced beside something that it cannot.
    """
    plain = _alone(fusion, domain, loops)
    alone = _work(domain, loops, plain).time_us(1, "last")
    asked = {tv.meet for tv in (one.tv for one in domain.reductions) if tv.meet is not None}
    meet: Meet = "tma" if asked == {"tma"} else "vectorized" if asked else "last"
    found = [(alone * WORTH, plain, 0)]  # another schedule is taken only if it is faster than that
    others = tuple(_rings(domain, loops, plain)) if by_tma else ()
    first = _work(domain, loops, plain)
    if not others and (asked or not reduces_rows(domain) or first.tiles < BUSY * first.resident):
        others = tuple(_others(fusion, domain, loops, plain))
    for other in others:
        params = _chunked(other) if meet == "tma" and reduces_rows(domain) else other
        work = _work(domain, loops, params)
        # Columns are spread over the GPU already; rows may still have more threads each.
        ready = reduces_rows(domain) or params.load == "tma"
        fewest = 1 if ready and not asked else 2
        for splits in range(fewest, min(work.steps, MAX_REDUCTION_SPLITS) + 1):
            found.append((work.time_us(splits, meet), params, splits))
    _, params, splits = min(found[1:] if asked and found[1:] else found, key=lambda one: one[0])
    why = not_added(domain)
    if splits and meet == "tma" and why is not None:
        names = ", ".join(one.tv.name for one in domain.reductions if one.tv.meet is not None)
        raise ScheduleError(
            f'{names}.request_serial_grid_reduction(method="tma"): {why}, which is reduced in the '
            'same kernel; use method="vectorized"'
        )
    return ReductionParams.sharing(params, splits, meet) if splits else params


def default_row_params(
    domain: Domain, loops: Sequence[int], *, aligned: int = 16
) -> NormParams | None:
    """Choose params for whole rows at a time; None where parts of rows are to be reduced.

    `loops` are the extents of the loop axes of a domain with rows, `aligned` the bytes of which all
    rows are multiples.
    """
    if not fits_registers(domain, prod(loops[axis] for axis in domain.rows)):
        return None
    return default_norm_params(domain, loops, aligned=aligned, ring=False)


def _chunked(params: PointwiseParams) -> PointwiseParams:
    """Return params with rows of as many vectors as TMA adds up parts, and as many elements."""
    rows, cols = params.tile
    wide = max(cols, TMA_PARTS * params.vector)
    return replace(params, tile=(max(rows * cols // wide, 1), wide))


@dataclass(frozen=True, slots=True)
class _Work:
    """What a kernel has to do: bytes to read, tiles of results, steps of each, CTAs at a time."""

    nbytes: int
    tiles: int
    steps: int
    resident: int
    step_us: float
    begin_us: float

    def time_us(self, splits: int, meet: Meet) -> float:
        """Return about how long it takes where so many CTAs share a tile."""
        waves = ceil(self.tiles * splits / self.resident)
        walked = waves * ceil(self.steps / splits) * self.step_us
        moved = self.nbytes / BYTES_PER_US
        begun = waves * self.begin_us
        both = float((walked**SHARP + moved**SHARP) ** (1 / SHARP))
        # SMs with a CTA more than others are late.  Measured on an H200: columns of 32768 x 8192 by
        # 192 CTAs take 138 us, by 128 or 256 of them 128 and 132; absolute maxima 191, 160 and 145.
        ctas = self.tiles * splits
        if ctas > SM_90A.sms:
            both *= sqrt(ceil(ctas / SM_90A.sms) * SM_90A.sms / ctas)
        if meet == "last":
            return begun + both + (LAST_US + splits * EACH_US if splits > 1 else 0)
        return begun + both + (splits - 1) * TURN_US


def _work(domain: Domain, loops: Sequence[int], params: PointwiseParams) -> _Work:
    leaves = domain.leaves
    sizes = [prod(loops[axis] for axis in leaf.coords if axis is not None) for leaf in leaves]
    nbytes = sum(n * leaf.tv.dtype.nbytes for n, leaf in zip(sizes, leaves, strict=True))
    tiles = reduction_tiling(domain, params)
    extents = [prod(loops[axis] for axis in group) for group in tiles.groups]
    counts = [ceil(n / tile) for n, tile in zip(extents, tiles.tile, strict=True)]
    each = min(MAX_CTAS, max(THREADS // (WARP * params.warps), 1))
    step_us, begin_us = STEP_US, 0.0
    if params.load == "tma":
        begin_us = RING_BEGIN_US
        row = sum(leaf.tv.dtype.nbytes for leaf in leaves)
        each = min(each, SM_90A.smem_bytes // (prod(params.tile) * row * params.stages))
        step_us = RING_STEP_US * params.tile[0] / RING_ROWS
    return _Work(
        nbytes,
        prod(counts[axis] for axis in tiles.walked),
        prod(counts[axis] for axis in tiles.reduced),
        max(each, 1) * SM_90A.sms,
        step_us,
        begin_us,
    )


def _alone(fusion: Fusion, domain: Domain, loops: Sequence[int]) -> PointwiseParams:
    """Choose params with which every tile has one CTA."""
    plain = default_params(fusion)
    tiles = reduction_tiling(domain, plain)
    extents = [prod(loops[axis] for axis in group) for group in tiles.groups]
    vector = plain.vector
    crowd = max(_words(domain) // FEW, 1)
    if tiles.along:
        reduced = max(extents[-1], 1)
        cols = min(max(1 << (reduced - 1).bit_length(), vector), WIDEST)
        return replace(plain, tile=(max(TILE // crowd // cols, 1), cols))
    # One warp for each few columns, and as many rows on their way as its registers hold.
    kept, around = extents[-1], prod(extents[axis] for axis in tiles.walked[:-1])
    while vector > 2 and around * kept // (WARP * vector) < 2 * SM_90A.sms:
        vector //= 2
    return _columns(plain, vector, ROWS // crowd)


def _others(
    fusion: Fusion, domain: Domain, loops: Sequence[int], alone: PointwiseParams
) -> Iterator[PointwiseParams]:
    """Yield params for results so few that one CTA a tile leaves SMs without work."""
    plain = default_params(fusion)
    tiles = reduction_tiling(domain, plain)
    many = 1 << (WORDS // _words(domain)).bit_length() - 1
    if not tiles.along:
        vector = plain.vector
        yield _columns(plain, vector, many)
        while vector > 2:
            vector //= 2
            yield _columns(plain, vector, many)
        return
    yield alone
    longest = max(prod(loops[axis] for axis in tiles.groups[-1]), 1)
    most = min(LONG_WARPS * WARP * many, LONG_VECTORS * plain.vector)
    cols = min(1 << (longest - 1).bit_length(), most)
    if cols > WIDEST:
        yield replace(plain, tile=(1, cols), warps=LONG_WARPS)


def _rings(
    domain: Domain, loops: Sequence[int], plain: PointwiseParams
) -> Iterator[PointwiseParams]:
    """Yield params for columns that TMA brings: one for each thread, its rows all at once."""
    tiles = reduction_tiling(domain, plain)
    kept = prod(loops[axis] for axis in tiles.groups[-1])
    if tiles.along or kept < WARP:
        return
    leaves = domain.leaves
    widest = max(leaf.tv.dtype.nbytes for leaf in leaves)
    cols = max(WARP, min(RING_COLUMNS // widest, 1 << (kept - 1).bit_length()))
    rows = min(RING_ROWS, 1 << (WORDS // _words(domain)).bit_length() - 1)
    slot = rows * cols * sum(leaf.tv.dtype.nbytes for leaf in leaves)
    stages = max(2, min(MAX_STAGES, RING_BYTES // slot))
    if stages * slot <= SM_90A.smem_bytes // 2:
        yield replace(
            plain, tile=(rows, cols), vector=1, warps=cols // WARP, load="tma", stages=stages,
            prefetch=stages - 1,
        )  # fmt: skip


def _columns(plain: PointwiseParams, vector: int, many: int) -> PointwiseParams:
    """Return params for columns, with so many elements a thread."""
    rows = max(many // vector, 1)
    return replace(plain, tile=(rows, WARP * vector), vector=vector, warps=1)


def _words(domain: Domain) -> int:
    """Return a thread's registers for an element: what is read, twice what it is added to."""
    leaves = domain.leaves
    words = [_registers(leaf.tv.dtype) for leaf in leaves]
    words += [2 * _registers(arithmetic(one.tv.dtype)) for one in domain.reductions]
    return sum(words)


def _registers(dtype: DType) -> int:
    return max(dtype.nbytes // 4, 1)
