"""Products of operands that TMA cannot read: read where they lie, or copied first.

TMA asks that rows begin at multiples of 16 bytes.  A kernel before that copies an operand to such
rows reads it, writes it, and has to end; cp.async and threads read it once, wherever rows begin,
and sm_80's instructions multiply at a third of the rate.  So products that are small, or have few
rows, read it where it is.

Constants are fitted to 3,673 timings of 463 shapes (H200, bf16, K no multiple of 8), those of
copies to 797 of these shapes' timings.  Of what was timed of a shape, the schedule that is
predicted to be the fastest takes 2.0 % more than the fastest one (geometric mean; within 3 % for 84
%); by what kernels like it took (`residual`), of shapes left out, 0.8 % (91 %).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd, log, log2

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.ops import accumulator
from fuser.schedule.ampere_params import AmpereParams, Observe
from fuser.schedule.domain import Domain
from fuser.schedule.matmul import sided, sizes
from fuser.schedule.params import MAX_SPLITS
from fuser.schedule.products.cost import took
from fuser.schedule.products.residual import residuals
from fuser.schedule.shape_class import ShapeClass

TILES = (
    (16, 16, 64, 1),
    (16, 32, 64, 1),
    (16, 64, 64, 1),
    (32, 32, 64, 2),
    (32, 64, 64, 2),
    (64, 32, 64, 4),
    (64, 64, 64, 4),
    (64, 128, 32, 4),
    (128, 32, 64, 8),
    (128, 64, 32, 8),
    (128, 128, 32, 8),
)
"""Rows, columns, depth and warps of tiles; of fewer columns where results have fewer."""
STAGES = 4
"""Slots of a ring of cp.async."""
CTAS_PER_SM = (1, 2, 4, 8)
"""How many CTAs an SM is to have, by how many share a tile."""
START_US = 0.38
"""From launch to the first product, and behind the last."""
BYTES_PER_US = 2.45e6
"""Between memory and the SMs."""
LAST_US, STORED, EACH = 1.073, 42.2e3, 0.62
"""A count of arrivals, bytes of sums that a CTA stores before in a microsecond, and the share of
that which the last-arriving one takes for those of each."""
OVERLAP = 2
"""Of what takes a and b, part of one hides behind the other, (a^p + b^p)^(1/p): of what all warps
of an SM issue and what each waits for, and of both and memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one way to read operands takes, in microseconds.

    An SM, for an instruction of a warp that brings elements of a tile (`moved`), and for each
    product and sum; a CTA, from a request to its arrival (by cp.async it is shared by the steps
    that are ahead), and a lone warp for an instruction of a copy; and an epilogue, for 16 elements
    of a thread.
    """

    moved: float
    multiplied: float
    late: float
    warp: float
    stored: float


READING: dict[Observe, Reading] = {
    "groups": Reading(2.07e-3, 1.03e-6, 0.79, 5.5e-3, 0.96),
    "threads": Reading(0.89e-3, 1.69e-6, 0.49, 7.0e-3, 0.79),
}
LAUNCH_US, MOVED = 0.84, 3.98e6
"""What a dependent launch of a copy takes, and bytes that it reads and writes in a microsecond."""
FEATURES = (
    *("log m", "log n", "log steps", "log2 rows", "log2 columns", "log2 depth"),
    *("log2 ctas a tile", "log2 elements of a vector", "log2 elements of a result's"),
    *("log2 ctas an sm", "log2 ctas in turn", "log2 waves", "last wave"),
    *("rows filled", "columns filled"),
)
"""What a kernel is told by, in the order of `features`."""


@dataclass(frozen=True, slots=True)
class Lying:
    """How the operands of a product lie: of A and B the elements of a vector, bytes to be copied.

    Rows of each begin with vectors of so many elements; `moved` are the bytes of each operand that
    would be copied first.
    """

    vectors: tuple[int, int]
    moved: tuple[int, ...]


def vectors(domain: Domain, shapes: ShapeClass) -> tuple[int, int]:
    """Return how many elements a vector of A and of B has, in a kernel with one product."""
    ((a, b),) = sided(domain)
    return shapes.elements(a.access.name), shapes.elements(b.access.name)


@dataclass(frozen=True, slots=True)
class ReadDirectly:
    """A schedule that reads operands where they lie, and what it takes in microseconds.

    Kernels like it took `timed` times what the model says (`residual`).
    """

    modelled_us: float
    params: AmpereParams
    timed: float = 1.0

    @property
    def us(self) -> float:
        """The microseconds predicted, as kernels like it took."""
        return self.modelled_us * self.timed

    def __str__(self) -> str:
        """Say it in a line."""
        high, wide, _ = self.params.tile
        by = "threads" if self.params.observe == "threads" else "cp.async"
        shared = f", {self.params.splits} CTAs a tile" if self.params.splits > 1 else ""
        how = f"{high} x {wide}, operands read where they lie by {by}{shared}"
        timed = f" ({took(self.timed)})" if self.timed != 1 else ""
        return f"{how}: {self.us:.1f} us predicted{timed}"


def where_they_lie(
    domain: Domain, loops: Sequence[int], lying: Lying, us: float, sms: int = SM_90A.sms
) -> AmpereParams | None:
    """Return params by which operands are read where they lie; None if they had better be copied.

    `us` are predicted of the product alone, once its operands are copied.
    """
    copied = us + sum(map(_copy_us, lying.moved))
    first = next(iter(ranked(domain, loops, lying.vectors, sms)), None)
    if first is None:
        return None
    return first.params if first.us < copied else None


def _copy_us(nbytes: int) -> float:
    return LAUNCH_US + 2 * nbytes / MOVED


def ranked(
    domain: Domain, loops: Sequence[int], vectors: tuple[int, int], sms: int = SM_90A.sms
) -> list[ReadDirectly]:
    """Return schedules of a plain product that read operands where they lie, the fastest first."""
    extents, (depth, *_) = sizes(domain, loops)
    found = [
        ReadDirectly(predicted(extents, depth, vectors, params, sms), params)
        for params in _candidates(extents, depth, vectors, sms)
    ]
    if extents[0] == 1 and sms == SM_90A.sms and depth * extents[1] * extents[2] > 0:
        told = [features(extents, depth, vectors, one.params) for one in found]
        factors = residuals().factors([way(one.params) for one in found], told)
        found = [replace(o, timed=by) for o, by in zip(found, factors, strict=True)]
    return sorted(found, key=lambda one: one.us)


def way(params: AmpereParams) -> str:
    """Name what kernels have in common of which one process knows."""
    return f"where they lie, {params.observe}"


def features(
    extents: tuple[int, int, int],
    depth: int,
    vectors: tuple[int, int],
    params: AmpereParams,
    sms: int = SM_90A.sms,
) -> tuple[float, ...]:
    """Return what a kernel is told by that was timed: the arguments are those of `predicted`."""
    (_, m, n), (high, wide, deep) = extents, params.tile
    lines, across, at_once = ceil(m / high), ceil(n / wide), _resident(params)
    ctas = lines * across * params.splits
    waves = ceil(ctas / (sms * at_once))
    return (
        *(log(m), log(n), log(ceil(ceil(depth / deep) / params.splits))),
        *(log2(high), log2(wide), log2(deep)),
        *(log2(params.splits), log2(min(vectors)), log2(gcd(n, 8))),
        *(log2(at_once), log2(ceil(ctas / sms)), log2(waves), ctas / (sms * at_once) - (waves - 1)),
        *(m / (lines * high), n / (across * wide)),
    )


def is_plain(domain: Domain) -> bool:
    """Whether it is one product of 16-bit matrices, both by rows along what is summed over."""
    if len(domain.products) != 1 or any(access.tv.parts for access in domain.writes):
        return False
    (product,) = domain.products
    types = {one.tv.dtype for one in (product.a, product.b)}
    if product.leaves or product.tv.meet is not None or not types <= {DType.BF16, DType.F16}:
        return False
    rows = not any(operand.transposed for pair in sided(domain) for operand in pair)
    return rows and accumulator(product.tv) is DType.F32


def _candidates(
    extents: tuple[int, int, int], depth: int, vectors: tuple[int, int], sms: int
) -> Iterator[AmpereParams]:
    around, m, n = extents
    observe: Observe = "groups" if min(vectors) > 1 else "threads"
    stages, ahead = (1, 0) if observe == "threads" else (STAGES, STAGES - 1)
    fits = -(-n // 8) * 8 or 8
    for high, wide, deep, warps in dict.fromkeys((h, min(w, fits), *of) for h, w, *of in TILES):
        if high >= 2 * max(m, 16) or (high < 64 and m > 8 * high):
            continue
        tiles = max(around * ceil(m / high) * ceil(n / wide), 1)
        steps = ceil(depth / deep)
        counts = {min(many * sms // tiles, steps // 2, MAX_SPLITS) for many in CTAS_PER_SM}
        columns = next(columns for columns in (64, 48, 32, 16, 8) if wide % columns == 0)
        for splits in sorted({max(count, 1) for count in counts}):
            try:
                yield AmpereParams(
                    (high, wide, deep), warps, observe, stages, ahead, persistent=False,
                    columns=columns, splits=splits, meet="last",
                )  # fmt: skip
            except ScheduleError:  # too many registers
                continue


def predicted(
    extents: tuple[int, int, int],
    depth: int,
    vectors: tuple[int, int],
    params: AmpereParams,
    sms: int = SM_90A.sms,
) -> float:
    """Return the microseconds of a product of 16-bit operands, so many elements a copy of each."""
    (around, m, n), (high, wide, deep) = extents, params.tile
    tiles = around * ceil(m / high) * ceil(n / wide)
    steps = ceil(ceil(depth / deep) / params.splits)
    on_sm = ceil(tiles * params.splits / sms)
    at_once = _resident(params)
    waves = ceil(on_sm / at_once)
    moves = sum(rows * deep / each for rows, each in zip((high, wide), vectors, strict=True)) / 32
    reading = READING[params.observe]
    busy = reading.moved * moves + reading.multiplied * high * wide * deep
    late = reading.late / max(params.prefetch, 1)
    alone = late + reading.warp * moves / params.warps
    loop = ((on_sm * steps * busy) ** OVERLAP + (waves * steps * alone) ** OVERLAP) ** (1 / OVERLAP)
    memory = 2 * around * (m * depth + n * depth + m * n) / BYTES_PER_US
    sums = 0.0
    if params.splits > 1:
        stored = 4 * high * wide / STORED * (1 + EACH * params.splits)
        sums = LAST_US + stored * waves / max(params.warps / 4, 1)
    epilogue = reading.stored * high * wide / (32 * params.warps) / 16 * waves
    return float(START_US + (loop**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP) + sums + epilogue)


def _resident(params: AmpereParams) -> int:
    """Return how many CTAs run on an SM at once."""
    high, wide, deep = params.tile
    threads = 32 * params.warps
    fragments = (high // params.warps * 16 + wide * 16) / 64
    registers = min(70 + high * wide / threads + fragments, 255)
    by_memory = SM_90A.smem_bytes // (params.stages * (high + wide) * deep * 2 + 2048)
    return max(1, min(by_memory, 2048 // threads, 32, int(65536 // (registers * threads))))
