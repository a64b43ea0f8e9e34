"""Products of operands that TMA cannot read: read where they lie, or copied first.

TMA asks that rows begin at multiples of 16 bytes.  A kernel before that copies an operand to such
rows reads it, writes it, and has to end; cp.async and threads read it once, wherever rows begin,
and sm_80's instructions multiply at a third of the rate.  So products that are small, or have few
rows, read it where it is.

Constants are fitted to 620 timings of 20 shapes (H100 SXM, bf16, K no multiple of 8), those of
cp.async to 12 others (H200, K even, 5 to 100 rows), those of loads by threads to 115 (H200).  Of
these 115 the schedule that is predicted to be the fastest takes 6.5 % more than the fastest one
(geometric mean; predictions are off by 17 %, the median); of it and the product behind copies the
choice takes 2.9 % more than the faster, of 82 shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.ops import accumulator
from fuser.schedule.ampere_params import AmpereParams, Observe
from fuser.schedule.domain import Domain
from fuser.schedule.matmul import sided, sizes
from fuser.schedule.params import MAX_SPLITS
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
START_US = 1.59
"""From launch to the first product, and behind the last."""
COPY_US, LOAD_US = 2.8e-3, 2.3e-3
"""What an SM takes for an instruction of a warp that copies, or loads, elements of a tile."""
MULTIPLY_US = 1.0e-6
"""What it takes for each product and sum: 2 TFLOP/s."""
LATENCY_US, LOADED_US = 0.32, 0.8
"""From a request to its arrival: by cp.async, shared by the steps that are ahead; by threads."""
WARP_US = 9.9e-3
"""What a lone warp takes for an instruction of a copy, or for 2,048 products."""
BYTES_PER_US = 2.16e6
"""Between memory and the SMs."""
LAST_US, STORED = 0.36, 19.9e3
"""A count of arrivals, and bytes of sums that a CTA stores before in a microsecond."""
STORE_US = 0.335
"""What an epilogue takes for 16 elements of a thread."""
LAUNCH_US, MOVED = 1.2, 4.1e6
"""What a dependent launch of a copy takes, and bytes that it reads and writes in a microsecond.
Measured alone on an H200: 7595 x 655 6.2 us, 15495 x 2709 42.3, 25130 x 21607 552."""


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
    """A schedule that reads operands where they lie, and the microseconds predicted."""

    us: float
    params: AmpereParams

    def __str__(self) -> str:
        """Say it in a line."""
        high, wide, _ = self.params.tile
        by = "threads" if self.params.observe == "threads" else "cp.async"
        shared = f", {self.params.splits} CTAs a tile" if self.params.splits > 1 else ""
        how = f"{high} x {wide}, operands read where they lie by {by}{shared}"
        return f"{how}: {self.us:.1f} us predicted"


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
    found = (
        ReadDirectly(predicted(extents, depth, vectors, params, sms), params)
        for params in _candidates(extents, depth, vectors, sms)
    )
    return sorted(found, key=lambda one: one.us)


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
    products = high * wide * deep
    by_threads = params.observe == "threads"
    busy = (LOAD_US if by_threads else COPY_US) * moves + MULTIPLY_US * products
    late = LOADED_US if by_threads else LATENCY_US / params.prefetch
    alone = late + WARP_US * (moves + products / 2048) / params.warps
    loop = max(on_sm * steps * busy, waves * steps * alone)
    memory = 2 * around * (m * depth + n * depth + m * n) / BYTES_PER_US
    sums = 0.0
    if params.splits > 1:
        stored = 4 * high * wide / STORED * (1 + 0.2 * params.splits)
        sums = LAST_US + stored * waves / max(params.warps / 4, 1)
    epilogue = STORE_US * high * wide / (32 * params.warps) / 16 * waves
    return float(START_US + (loop**3 + memory**3) ** (1 / 3) + sums + epilogue)


def _resident(params: AmpereParams) -> int:
    """Return how many CTAs run on an SM at once."""
    high, wide, deep = params.tile
    threads = 32 * params.warps
    fragments = (high // params.warps * 16 + wide * 16) / 64
    registers = min(70 + high * wide / threads + fragments, 255)
    by_memory = SM_90A.smem_bytes // (params.stages * (high + wide) * deep * 2 + 2048)
    return max(1, min(by_memory, 2048 // threads, 32, int(65536 // (registers * threads))))
