"""Products of operands that TMA cannot read: read where they lie, or copied first.

TMA asks that rows begin at multiples of 16 bytes, and wgmma that elements of 32 bits lie along what
is summed over.  A kernel before that copies an operand to such rows reads it, writes it, and has to
end; cp.async and threads read it once, wherever rows begin, and sm_80's instructions multiply at a
third of the rate.  So products that are small, or have few rows, read it where it is.

Constants are fitted to 3,673 timings of 463 shapes (H200, bf16, K no multiple of 8), those of
copies to 797 of these shapes' timings.  Of what was timed of a shape, the schedule that is
predicted to be the fastest takes 2.0 % more than the fastest one (geometric mean; within 3 % for 84
%); by what kernels like it took (`residual`), of shapes left out, 0.8 % (91 %).  Those of 16-bit
operands across are fitted to timings of 30 shapes: what is chosen takes 3 % more than the
fastest; those of f32 to 357 of 37, off by 15 %, by which it takes 5 % more.
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
WIDER = (
    (32, 64, 32, 1),
    (64, 32, 32, 1),
    (64, 64, 32, 2),
    (128, 64, 16, 2),
    (128, 64, 32, 4),
)
"""Tiles of which a warp has 32 or 64 rows, of a B across: each warp loads it, word by word."""
STAGES = 4
"""Slots of a ring of cp.async."""
CTAS_PER_SM = (1, 2, 4, 8)
"""How many CTAs an SM is to have, by how many share a tile."""
START_US = 0.38
"""From launch to the first product, and behind the last."""
BYTES_PER_US = {2: 2.45e6, 4: 5.42e6}
"""Between memory and the SMs, by the bytes of an element, whose rows begin anywhere if it has two.
What is multiplied meanwhile is told apart from it by `OVERLAP`, so it may be more than memory's."""
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
    that are ahead), and a lone warp for an instruction of a copy; an epilogue, for 16 elements of a
    thread; and an SM, and a lone warp, for an instruction that brings single elements across
    (`turned`): by cp.async these are loaded as a fragment needs them, by threads stored in a tile.
    """

    moved: float
    multiplied: float
    late: float
    warp: float
    stored: float
    turned: float


WORD = 4
"""Bytes of an element of f32."""
READING: dict[tuple[Observe, int], Reading] = {
    ("groups", 2): Reading(2.07e-3, 1.03e-6, 0.79, 5.5e-3, 0.96, 0.59e-3),
    ("threads", 2): Reading(0.89e-3, 1.69e-6, 0.49, 7.0e-3, 0.79, 2.6e-3),
    ("groups", WORD): Reading(3.49e-3, 0.80e-6, 0.79, 5.5e-3, 0.96, 0.59e-3),
}
"""By how operands are read, and the bytes of an element."""
ALONE = 2.0
"""What storing 16-bit elements one by one takes, in times of that by pairs; where kernels were
timed along K, without others around, their timings say it."""
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
    """How the operands of a product lie, A and B, of elements of so many bytes.

    Rows of each begin with vectors of so many elements, along K, or where it lies `across` along
    rows or columns of the result.
    """

    vectors: tuple[int, int]
    across: tuple[bool, bool] = (False, False)
    nbytes: int = 2

    @classmethod
    def of(cls, domain: Domain, shapes: ShapeClass) -> Lying:
        """Return how the operands lie of a kernel with one product."""
        ((a, b),) = sided(domain)
        each = shapes.elements(a.access.name), shapes.elements(b.access.name)
        return cls(each, (a.transposed, b.transposed), a.access.tv.dtype.nbytes)

    @property
    def words(self) -> bool:
        """Whether elements are words, which tf32 multiplies."""
        return self.nbytes == WORD

    @property
    def as_timed(self) -> bool:
        """Whether `residual` knows kernels like those of such operands."""
        return self.nbytes == 2 and not any(self.across)


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
        warps = f"{self.params.warps} warp" + "s" * (self.params.warps > 1)
        by = "threads" if self.params.observe == "threads" else "cp.async"
        how = f"{' x '.join(map(str, self.params.tile))}, {warps}"
        how += f", operands read where they lie by {by}"
        how += f", {self.params.splits} CTAs a tile" if self.params.splits > 1 else ""
        timed = f" ({took(self.timed)})" if self.timed != 1 else ""
        return f"{how}: {self.us:.1f} us predicted{timed}"


def where_they_lie(
    domain: Domain,
    loops: Sequence[int],
    lying: Lying,
    moved: Sequence[int],
    us: float,
    sms: int = SM_90A.sms,
) -> AmpereParams | None:
    """Return params by which operands are read where they lie; None if they had better be copied.

    `moved` are the bytes of each operand that would be copied first; `us` are predicted of the
    product alone, once they are.
    """
    copied = us + sum(map(_copy_us, moved))
    first = next(iter(ranked(domain, loops, lying, sms)), None)
    return first.params if first is not None and first.us < copied else None


def _copy_us(nbytes: int) -> float:
    return LAUNCH_US + 2 * nbytes / MOVED


def ranked(
    domain: Domain, loops: Sequence[int], lying: Lying, sms: int = SM_90A.sms
) -> list[ReadDirectly]:
    """Return schedules of a plain product that read operands where they lie, the fastest first."""
    extents, (depth, *_) = sizes(domain, loops)
    found = [
        ReadDirectly(predicted(extents, depth, lying, params, sms), params)
        for params in _candidates(extents, depth, lying, sms)
    ]
    known = lying.as_timed and extents[0] == 1 and sms == SM_90A.sms
    if known and depth * extents[1] * extents[2] > 0:
        told = [features(extents, depth, lying.vectors, one.params) for one in found]
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
    """Return what a kernel is told by that was timed, of 16-bit operands along K.

    Rows of each begin with vectors of so many elements; the others are those of `predicted`.
    """
    (_, m, n), (high, wide, deep) = extents, params.tile
    lines, across, at_once = ceil(m / high), ceil(n / wide), _resident(params, 2)
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
    """Whether it is one product of matrices of 16 bits, or of f32 by tf32, added up in f32."""
    if len(domain.products) != 1 or any(access.tv.parts for access in domain.writes):
        return False
    (product,) = domain.products
    if product.leaves or product.tv.meet is not None:
        return False
    types = {one.tv.dtype for one in (product.a, product.b)}
    return types <= {DType.BF16, DType.F16, DType.F32} and accumulator(product.tv) is DType.F32


def _candidates(
    extents: tuple[int, int, int], depth: int, lying: Lying, sms: int
) -> Iterator[AmpereParams]:
    around, m, n = extents
    # cp.async copies at least 4 bytes, and what lies across is loaded from them in words.
    copied = lying.words or (min(lying.vectors) > 1 and not any(lying.across))
    observe: Observe = "groups" if copied else "threads"
    stages, ahead = (STAGES, STAGES - 1) if copied else (1, 0)
    fits = -(-n // 8) * 8 or 8
    tiles = (*TILES, *WIDER) if lying.words and lying.across[1] else TILES
    divided = (1, 2) if lying.words else (1,)
    every = ((h, min(w, fits), d // by, of) for h, w, d, of in tiles for by in divided)
    for high, wide, deep, warps in dict.fromkeys(every):
        if high >= 2 * max(m, 16) or (high < 64 and m > 8 * high):
            continue
        ctas = max(around * ceil(m / high) * ceil(n / wide), 1)
        steps = ceil(depth / deep)
        counts = {min(many * sms // ctas, steps // 2, MAX_SPLITS) for many in CTAS_PER_SM}
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
    lying: Lying,
    params: AmpereParams,
    sms: int = SM_90A.sms,
) -> float:
    """Return the microseconds of a product whose operands lie so."""
    (around, m, n), (high, wide, deep) = extents, params.tile
    tiles = around * ceil(m / high) * ceil(n / wide)
    steps = ceil(ceil(depth / deep) / params.splits)
    on_sm = ceil(tiles * params.splits / sms)
    at_once = _resident(params, lying.nbytes)
    waves = ceil(on_sm / at_once)
    sides = [*zip((high, wide), lying.vectors, lying.across, strict=True)]
    moves = sum(rows * deep / each for rows, each, _ in sides) / 32
    reading = READING[params.observe, lying.nbytes]
    # Every warp loads B for itself, and what threads bring is stored once.
    again = (1, params.warps if params.observe == "groups" else 1)
    turns = sum(rows * deep * many for (rows, _, so), many in zip(sides, again, strict=True) if so)
    turned = reading.turned * turns / 32
    busy = reading.moved * moves + turned + reading.multiplied * high * wide * deep
    late = reading.late / max(params.prefetch, 1)
    alone = late + (reading.warp * moves + turned) / params.warps
    loop = ((on_sm * steps * busy) ** OVERLAP + (waves * steps * alone) ** OVERLAP) ** (1 / OVERLAP)
    elements = around * (m * depth + n * depth + m * n)
    memory = lying.nbytes * elements / BYTES_PER_US[lying.nbytes]
    sums = 0.0
    if params.splits > 1:
        parts = 4 * high * wide / STORED * (1 + EACH * params.splits)
        sums = LAST_US + parts * waves / max(params.warps / 4, 1)
    pairs = n % 2 == 0 or lying.words or (lying.as_timed and around == 1)
    stored = reading.stored * (1 if pairs else ALONE)
    epilogue = stored * high * wide / (32 * params.warps) / 16 * waves
    return float(START_US + (loop**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP) + sums + epilogue)


def _resident(params: AmpereParams, nbytes: int) -> int:
    """Return how many CTAs run on an SM at once, of operands whose elements have so many bytes."""
    high, wide, deep = params.tile
    threads = 32 * params.warps
    fragments = (high // params.warps * 16 + wide * 16) / 128 * nbytes
    registers = min(70 + high * wide / threads + fragments, 255)
    by_memory = SM_90A.smem_bytes // (params.stages * (high + wide) * deep * nbytes + 2048)
    return max(1, min(by_memory, 2048 // threads, 32, int(65536 // (registers * threads))))
