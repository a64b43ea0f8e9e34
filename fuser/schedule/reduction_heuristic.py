"""Which schedule a fusion with reductions gets where the user names none.

A model of a few facts.  An SM takes so many bytes in a microsecond, fewer where rows begin between
sectors, and so many accesses of its warps.  A CTA takes some time however little it does, and more
for each access that its threads have one behind the other; where more CTAs are to run than an SM
has registers for, they take turns.  Where CTAs share a tile, the last-arriving one puts together
what all of them have, or each waits for its turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, floor, gcd, log2, prod

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion, Meet
from fuser.fusion.promotion import arithmetic
from fuser.schedule.domain import Domain, Reduction, by_rows
from fuser.schedule.norm import WIDEST, row_refusal, slide_refusal
from fuser.schedule.params import (
    MAX_REDUCTION_SPLITS,
    NormParams,
    PointwiseParams,
    ReductionParams,
)
from fuser.schedule.pointwise import VECTOR_BYTES, default_params
from fuser.schedule.reduction import (
    PARTS,
    TMA_PARTS,
    ReductionTiling,
    groups,
    lanes_together,
    not_added,
    reduces_rows,
    reduction_tiling,
    results_at_once,
)

WARP = 32
"""Lanes of a warp."""
BYTES_PER_US = 4.4e6
"""What memory gives.  Measured on an H200: sums of rows of 537 MB take 119 us."""


@dataclass(frozen=True, slots=True)
class _Rates:
    """What a kernel takes, in microseconds and bytes.

    An SM takes so many `nbytes` in a microsecond, `narrow` times fewer in rows of a tile of NARROW
    bytes or less, which where they begin anywhere cost `sector` bytes beside their own: parts of
    sectors.  An `access` of a warp costs its SM some time, and each `cta`.  A CTA takes `begin`,
    more for each `step`, and for each access of a thread in it (`own`).  Putting together the parts
    of warps takes `put` for twice as many of them.  The last-arriving CTA takes `last`, `others`
    each time that it waits for results of other CTAs, and `arrive` for each of these.  `sharp` is
    how sharply the longer of two times that overlap tells how long both take.  Where an SM
    has `flight` bytes on their way, memory takes a quarter longer than where it has many.
    """

    nbytes: int
    narrow: float
    sector: float
    access: float
    cta: float
    begin: float
    step: float
    own: float
    put: float
    last: float
    others: float
    arrive: float
    sharp: float
    flight: int = 0


ROWS = _Rates(36_000, 1, 10, 0.0015, 0, 1.44, 0.18, 0.015, 0.05, 1.0, 0.2, 0.002, 1.7, 14_000)
LONG_COLUMNS = _Rates(37_000, 1.75, 9.2, 0.0015, 0, 1.33, 0.31, 0.0073, 0.05, 0.68, 0.013, 0, 1.33)
"""ROWS are fitted to 1700 measured times of sums of 160 matrices of bf16 on an H200: of some dozen
schedules of each, those that they choose took 1.02 times as long as the fastest, geometric mean.
Of rows, of which a tile has neighbours, those of 64 bytes and less are no slower: of 43 others, 16
x 42096 to 182032 x 48, 1.04 times as long, 1.12 while they were.  What memory takes, and CTAs that
share a tile, is fitted to 680 times of 51 matrices of few rows, or of which all is added up: 1.03
times as long, 1.12 as it was.  LONG_COLUMNS are fitted to 490 times of 12 matrices of 80 MB to 3.8
GB there: 1.05 times as long, 1.15 with ROWS, by which a step of 512 elements costs too little; of
24 matrices not fitted to 1.04."""
COLUMNS = _Rates(
    24_900, 1.12, 9.9, 0.0021, 0.246, 0.955, 0.328, 0.0094, 0.084, 0.61, 0.223, 0.0025, 2.3
)
"""Fitted to 1400 times of sums of columns of 19 matrices of bf16, from 22 x 1001 to 485 x 34392,
measured on an H100 when the last-arriving CTA waited for some steps one after the other, less 0.22
us for each that it no longer waits for and 0.08 us for a division: of those schedules, those that
they choose are 1.03 times as long as the fastest, at most 1.1."""
LARGE = 1 << 25
"""Bytes from which on memory sets the pace of columns, as those on the H200 had it.  What these
rates choose is, on an H100, within 4 % of the fastest: sums of 2104 x 37096 56.0 us, 55.3; of 5771
x 16336 68.4, 65.9."""
NARROW = 64
"""Bytes of rows of a tile that are few."""
IN_STEP = 4
"""Times that CTAs take turns, from which on those of an SM no longer begin and end together."""
SHIFTED = 2
"""Vectors that a thread puts together of words at once, at most, where rows begin anywhere.  Sums
of 50 x 1500002 on an H200 by two 40.1 us, by four 47.1; one row alone is aligned."""
SHUFFLE_US = 0.0008
"""What a shuffle with the addition behind it costs the SM of a warp."""
EDGES, SLIDE_US = 2, 0.3
"""How much more accesses of rows that slide take, and all of them: those of their ends are of
single elements.  Measured on an H200: sums of 17 x 523 1.8 us, element by element 1.5."""
ALIKE, ALIKE_HELD = 0.3, 0.25
"""What a tensor that all tiles read alike takes of the accesses and registers of one of which each
reads its own; nobody waits for it."""
RESULT_US, SHIFT_US = 0.0013, 0.0015
"""What an SM takes for an element of a warp that is added up for another result, and for one that
is put together of two words beside those of the tensor that is read once.  These four are fitted to
1050 times of products of 1 to 4 rows of 170 matrices as sums, H100: the schedules that they choose
take 1.04 times as long as the fastest, 1.11 without them."""
WHOLE = 1.04
"""How much longer whole rows may take by the model, which does not see that loads of a next step
wait for this one.  Measured on an H200: sums of rows of 15312 x 26080 176 us, by parts 182."""
TURN_US = 1.0
"""A CTA's turn.  Measured on an H200, for tiles of sums of up to 16 KB."""
BASE, MORE, LONE, AT = 26, 5, 1.2, 0.5
"""Registers that a thread takes beside those of its elements, more for each that several reductions
of whole rows have, those for an element that is loaded alone, and for the address of an access of
columns.  Source: the assembler's log."""
MOST = 200
"""Registers of a thread, at most, where the estimate is rough: beyond 255 it would spill."""
FILE, THREADS, MAX_CTAS = 65_536, 2048, 32
"""Registers, threads and CTAs of an SM.  Source: CUDA C++ Programming Guide, compute capabilities,
9.0."""
LANES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Threads that share a row."""
SIDE = (2, 4, 8, 16, 32, 64)
"""Threads that have neighbouring columns."""
MOST_ROWS = 32
"""Rows of a tile of columns that a thread has, at most: more have not been measured."""
WIDE, LONG = 256, 4096
"""Bytes of a row of a tile of columns, at most, and half as many at least where there are so many
columns.  Sums of 485 x 34392 on an H100, the fastest with tiles of 128, 256, 512 and 1024 bytes:
13.4, 13.7, 15.1 and 16.2 us; of 2104 x 37096 55.3, 55.6, 56.6 and 58.5."""
HELD, ALONE = 64, 40
"""Elements of a row that a thread has, at most, and where it loads each alone."""
LEAST = 24
"""Those that it has, at least, where CTAs of a cluster share a row."""
BESIDE, TOGETHER = 2, 2
"""Rows of bytes, beside which all tiles read the same wider elements, as i8 weights beside rows of
bf16: accesses of all of the latter for one of bytes, at most, as long as vectors of bytes may be
shorter for it; and rows that a thread has at a time, for which it loads the latter once.  It has as
many bytes on their way as of elements of two bytes then, in accesses as wide.  Measured on an H200,
(rows, columns) by vectors, the fastest of 330 schedules and what was chosen before: 1 x 8192 x 8192
(2, 8192) by 16 21.8 us, 24.6; 1 x 4096 x 14336 (1, 14336) by 16 21.1, 25.6; 2 x 8192 x 8192
(2, 8192) by 8 28.9, 34.2.  The compiler chose their registers: asked for room for 4 CTAs it takes
128 for the last one, and spills, else 89."""


def default_reduction_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int]
) -> PointwiseParams:
    """Choose params for a kernel with reductions: the fastest by the model of some dozens.

    Several CTAs share a tile where that is faster, or where it is asked of a result and there are
    two steps or more; they reduce as is asked, else the last-arriving one puts all together.
    `loops` are the extents of its loop axes.

    Raises
    ------
    ScheduleError
        If TMA is asked to add up what is reduced beside something that it cannot.
    """
    params, splits, _ = _fastest(fusion, domain, loops)
    why = not_added(domain)
    asked = [one.tv for one in domain.reductions if one.tv.meet is not None]
    if splits > 1 and _meet(domain) == "tma" and why is not None:
        names = ", ".join(tv.name for tv in asked)
        raise ScheduleError(
            f'{names}.request_serial_grid_reduction(method="tma"): {why}, which is reduced in the '
            'same kernel; use method="vectorized"'
        )
    return ReductionParams.sharing(params, splits, _meet(domain)) if splits > 1 else params


def default_row_params(
    fusion: Fusion, domain: Domain, loops: Sequence[int], *, aligned: int = 16
) -> NormParams | None:
    """Choose params for whole rows at a time; None where parts of rows are faster, by the model.

    `loops` are the extents of the loop axes of a domain with rows, `aligned` the bytes of which all
    rows are multiples.
    """
    *_, found = _fastest(fusion, domain, loops)
    best: NormParams | None = None
    for params, time in _whole_rows(domain, loops, aligned):
        if time < found * WHOLE:
            found, best = time / WHOLE, params
    return best


def reduction_candidates(
    fusion: Fusion, domain: Domain, loops: Sequence[int], *, aligned: int = 16
) -> Iterator[PointwiseParams]:
    """Yield what a kernel with reductions is scheduled from, the fastest by the model first.

    Of schedules that differ in how many CTAs share a tile only the fastest; whole rows at a time
    where nothing is asked of how CTAs put results together.  `aligned` as `default_row_params` has
    it.
    """
    meet, added = _meet(domain), not_added(domain) is None
    best: dict[PointwiseParams, tuple[bool, float, PointwiseParams]] = {}
    for alone, time, _, params, splits in sorted(_parts(fusion, domain, loops), key=_by_time):
        if splits > 1 and meet == "tma" and not added:
            continue
        shares = ReductionParams.sharing(params, splits, meet) if splits > 1 else params
        best.setdefault(params, (alone, time, shares))
    found = [*best.values()]
    rows = by_rows(domain)
    if rows is not None and row_refusal(rows) is None and meet == "last":
        every = _whole_rows(rows, loops, aligned)
        found += [(False, time / WHOLE, params) for params, time in every]
    yield from (params for *_, params in sorted(found, key=lambda one: one[:2]))


def _whole_rows(
    domain: Domain, loops: Sequence[int], aligned: int
) -> Iterator[tuple[NormParams, float]]:
    """Yield params for whole rows, and how long they take by the model.

    Also by vectors of memory, wherever rows begin between them.
    """
    columns = max(prod(loops[axis] for axis in domain.rows), 1)
    tiles = prod(loops[axis] for axis in range(len(loops)) if axis not in domain.rows)
    shares = _shares(domain, loops, domain.rows)
    bytewise = bool(_beside_bytes(domain, shares))
    size = 1 if bytewise else max(_sizes(domain), default=4)
    every = product(_ways(domain, shares, aligned), (1, 2, 4, 8), LANES)
    for (slide, vector, deep), cluster, lanes in every:
        own = [deep if share == 1 else 1 for share in shares]
        words = [
            many * _loaded(leaf.tv.dtype, vector)
            for many, leaf in zip(own, domain.leaves, strict=True)
        ]
        width = ceil(columns / cluster) + (vector - 1 if slide else 0)
        held = ceil(width / (lanes * vector)) * vector
        threads = max(lanes, 128)
        fixed = BASE + MORE * (_added(domain) - 1)
        registers = fixed + held * sum(words)
        most = (HELD if vector * size >= 4 else ALONE) * (2 if bytewise else 1)
        if held * deep > most or registers * threads > FILE or registers > MOST:
            continue
        side = min(lanes, WARP) * vector * size
        if lanes * vector >= 2 * columns or (side < NARROW and lanes * vector < columns):
            continue
        if cluster > 1 and (slide or held < LEAST or lanes < threads):
            continue
        rows = threads // lanes * deep
        accesses = held / vector * (EDGES if slide else 1)
        each = [
            many * max(vector * n // WIDEST, 1) for many, n in zip(own, _sizes(domain), strict=True)
        ]
        work = _Work(
            nbytes=_nbytes(domain, loops),
            tiles=max(ceil(tiles / rows), 1) * cluster,
            steps=1,
            threads=threads,
            accesses=accesses * sum(n * share for n, share in zip(each, shares, strict=True)),
            waits=accesses * deep * shares.count(1),
            registers=registers,
            fewer=fixed + held * _held(words, shares),
            more_us=RESULT_US * held * (_added(domain) - 1) * deep,
            side=min(columns, lanes * held) * size,
            odd=vector * size < 4,
            parts=max(lanes / WARP, 1) * cluster,
            shuffles=log2(min(lanes, WARP)) * deep,
            rates=ROWS,
        )
        params = NormParams(
            (rows, lanes * held), vector, threads // WARP, None, "direct", "direct",
            lanes=lanes, resident=1 if bytewise else work.resident, cluster=cluster, slide=slide,
        )  # fmt: skip
        yield params, work.time_us(1, "last") + (SLIDE_US if slide else 0)


def _ways(domain: Domain, shares: Sequence[float], aligned: int) -> Iterator[tuple[bool, int, int]]:
    """Yield whether rows slide, by what vectors they are read, and how many a thread has at a time.

    `shares` are those of the tensors, `aligned` as `default_row_params` has it.
    """
    widest = max(max(_sizes(domain), default=4), 2)
    vector = max(1, aligned // widest)
    beside = _beside_bytes(domain, shares)
    if beside:
        fits = 1 << max(BESIDE * WIDEST // beside, 1).bit_length() - 1
        vector = max(vector, min(aligned, fits))
        yield False, vector, TOGETHER
    yield False, vector, 1
    if aligned < WIDEST and slide_refusal(domain, WIDEST // widest) is None:
        yield True, WIDEST // widest, 1


def _beside_bytes(domain: Domain, shares: Sequence[float]) -> int:
    """Return the bytes of wider elements, alike for all tiles, that go with a byte of each tile's.

    0 where tiles have other elements of their own than bytes, or nothing wider goes with them.
    """
    pairs = [*zip(_sizes(domain), shares, strict=True)]
    own = {n for n, share in pairs if share == 1}
    alike = [n for n, share in pairs if share < 1]
    return sum(alike) if own == {1} and min(alike, default=1) > 1 else 0


def _meet(domain: Domain) -> Meet:
    """Return how CTAs put results together: as is asked, all alike."""
    asked = {tv.meet for tv in (one.tv for one in domain.reductions) if tv.meet is not None}
    return "tma" if asked == {"tma"} else "vectorized" if asked else "last"


def _fastest(
    fusion: Fusion, domain: Domain, loops: Sequence[int]
) -> tuple[PointwiseParams, int, float]:
    """Return the params that are fastest, how many CTAs share a tile, and how long it takes."""
    _, time, _, params, splits = min(_parts(fusion, domain, loops), key=_by_time)
    return params, splits, time


_Parts = tuple[bool, float, int, PointwiseParams, int]
"""Params for parts of what is reduced, and how many CTAs share a tile; before these whether it is
one though more were asked for, the time, and a number of their own."""


def _by_time(one: _Parts) -> tuple[bool, float, int]:
    return one[:3]


def _parts(fusion: Fusion, domain: Domain, loops: Sequence[int]) -> list[_Parts]:
    plain, along, meet = default_params(fusion), reduces_rows(domain), _meet(domain)
    given = _rows(domain, loops, plain) if along else _columns(domain, loops, plain, meet)
    found: list[_Parts] = []
    for params in given:
        chunked = _chunked(params) if meet == "tma" and along else params
        work = _work(domain, loops, chunked)
        for splits in work.counts(1 if meet == "last" else 2):
            alone = splits == 1 and meet != "last"
            found.append((alone, work.time_us(splits, meet), len(found), chunked, splits))
    return found


def _chunked(params: PointwiseParams) -> PointwiseParams:
    """Return params with rows of as many vectors as TMA adds up parts, and as many elements."""
    rows, cols = params.tile
    wide = max(cols, TMA_PARTS * params.vector)
    return replace(params, tile=(max(rows * cols // wide, 1), wide))


@dataclass(frozen=True, slots=True)
class _Work:
    """What a kernel has to do: bytes to read, tiles of results, steps of each; and by what CTAs.

    They have so many `threads`, each with so many `accesses` in a step, of which it `waits` for so
    many, and `registers` at most, `fewer` as a rule; beside accesses a step takes `more_us` of a
    warp; `side` are the bytes that lie side by side, `odd` if they begin anywhere; a warp takes so
    many `shuffles` in the end, and puts together so many `parts` of a result; of `at_once` CTAs the
    last-arriving one loads results at once.
    """

    nbytes: int
    tiles: int
    steps: int
    threads: int
    accesses: float
    waits: float
    registers: float
    fewer: float
    more_us: float
    side: int
    odd: bool
    parts: float
    shuffles: float
    rates: _Rates
    at_once: int = 1

    @property
    def resident(self) -> int:
        """CTAs that an SM has registers for."""
        return self._resident(self.registers)

    def _resident(self, registers: float) -> int:
        taken = ceil(registers / 8) * 8 * self.threads
        return max(1, min(int(FILE / taken), THREADS // self.threads, MAX_CTAS))

    def counts(self, fewest: int) -> list[int]:
        """Return how many CTAs may share a tile: so that all SMs have one or two, or all they can.

        Source: measured; SMs with a CTA more than others are late.
        """
        most = min(self.steps, MAX_REDUCTION_SPLITS)
        wanted = (1, 2, self.resident / 2, self.resident, 2 * self.resident)
        exact = (many * SM_90A.sms / self.tiles for many in wanted)
        found = {fewest, *(whole(many) for many in exact for whole in (floor, ceil))}
        return sorted({min(max(many, fewest), most) for many in found})

    def time_us(self, splits: int, meet: Meet) -> float:
        """Return about how long it takes where so many CTAs share a tile."""
        rates = self.rates
        rate = rates.nbytes / (rates.narrow if self.side <= NARROW else 1)
        rate *= self.side / (self.side + rates.sector) if self.odd else 1
        each = ceil(self.tiles * splits / SM_90A.sms)
        steps = ceil(self.steps / splits)
        one = steps * (rates.step + self.waits * rates.own) + rates.begin
        bytes_us = self.nbytes / (self.tiles * self.steps) / rate
        warps = self.threads / WARP
        busy = warps * (self.accesses * rates.access + self.more_us)
        flow = each * (steps * max(bytes_us, busy) + rates.cta)
        flow += each * warps * self.shuffles * SHUFFLE_US
        turns = ceil(each / self._resident(self.fewer)) * one
        time = float((flow**rates.sharp + turns**rates.sharp) ** (1 / rates.sharp))
        time = max(time, self._memory_us(splits)) + rates.put * log2(self.parts)
        if splits == 1:
            return time
        if meet == "last":
            meeting = ceil(splits / self.at_once) * rates.others + splits * rates.arrive
            return time + rates.last + meeting
        return time + (splits - 1) * TURN_US

    def _memory_us(self, splits: int) -> float:
        """Return how long memory takes, longer where few bytes are on their way, or by many loads.

        Source: measured on an H200.  Sums of all of 32768 x 16384 with 16, 24, 32, 48 and 64 kB on
        their way on each SM: 359, 314, 282, 273 and 271 us; of 271 x 1991842, which only 4 bytes
        lie together in, 48 kB: 355, in words of 8 bytes 292.
        """
        least = self.nbytes / BYTES_PER_US
        if self.nbytes < LARGE:
            return least
        step = self.nbytes / (self.tiles * self.steps)
        wide = step / (self.threads * max(self.waits, 1))
        own = step * (wide / VECTOR_BYTES) ** 0.5
        each, resident = self.tiles * splits / SM_90A.sms, self._resident(self.fewer)
        waves, rest = divmod(each, resident) if each < IN_STEP * resident else (each / resident, 0)

        def slower(ctas: float) -> float:
            return float((1 + (self.rates.flight / (ctas * own)) ** 3) ** (1 / 3))

        busy = waves * resident * slower(resident) + (rest * slower(rest) if rest else 0)
        return least * busy / each


def _work(domain: Domain, loops: Sequence[int], params: PointwiseParams) -> _Work:
    leaves = domain.leaves
    tiles = reduction_tiling(domain, params)
    extents = [prod(loops[axis] for axis in group) for group in tiles.groups]
    counts = [max(ceil(n / tile), 1) for n, tile in zip(extents, tiles.tile, strict=True)]
    (rows, cols), threads = params.tile, WARP * params.warps
    held = rows * cols / threads
    sizes = _sizes(domain)
    reduced = tuple(axis for group in tiles.reduced for axis in tiles.groups[group])
    shares = _shares(domain, loops, reduced) if tiles.along else [1.0] * len(leaves)
    width = [_width(params, tiles, _aligned(extents[-1], n), n) for n in sizes]
    loaded = [_loaded(leaf.tv.dtype, many) for leaf, many in zip(leaves, width, strict=True)]
    widest, narrowest = max(sizes, default=1), min(width, default=params.vector)
    pooled = results_at_once(params, 4 * max(map(_words, domain.reductions)), along=tiles.along)
    nbytes = _nbytes(domain, loops)
    rates = ROWS if tiles.along else LONG_COLUMNS
    shifted = [tiles.along and _shifts(params, tiles, _aligned(extents[-1], n), n) for n in sizes]
    loaded = [words * (1 + two) for words, two in zip(loaded, shifted, strict=True)]
    registers = BASE + held * (_added(domain) + sum(loaded))
    fewer, more_us = BASE + held * (_added(domain) + _held(loaded, shares)), 0.0
    if tiles.along:
        more_us = held * (RESULT_US * (_added(domain) - 1) + SHIFT_US * max(sum(shifted) - 1, 0))
        side = min(cols, max(extents[-1], 1)) * widest
        parts = float(min(max(cols // (params.vector * WARP), 1), PARTS))
        shuffles = held / params.vector * log2(lanes_together(cols // params.vector, params))
    else:
        shuffles = 0.0
        side = min(cols, max(extents[-1], 1)) * widest
        parts = float(groups(params))
        if nbytes < LARGE:
            rates = COLUMNS
            loaded = [_loaded(leaf.tv.dtype, params.vector) for leaf in leaves]
            ends = params.vector * _added(domain) + held / params.vector * len(leaves) * AT
            registers = BASE + MORE + held * sum(loaded) + ends
    return _Work(
        nbytes=nbytes,
        tiles=prod(counts[axis] for axis in tiles.walked),
        steps=prod(counts[axis] for axis in tiles.reduced),
        threads=threads,
        accesses=sum(held / many * share for many, share in zip(width, shares, strict=True)),
        waits=sum(held / many for many, share in zip(width, shares, strict=True) if share == 1),
        registers=registers,
        fewer=fewer if tiles.along else registers,
        more_us=more_us,
        side=side,
        odd=narrowest * widest < 4,
        parts=parts,
        shuffles=shuffles,
        rates=rates,
        at_once=1 if rates is LONG_COLUMNS else pooled,
    )


def _width(params: PointwiseParams, tiles: ReductionTiling, even: int, size: int) -> int:
    """Return how many elements of a size a thread accesses at a time, where so many lie evenly."""
    if _shifts(params, tiles, even, size):
        return max(params.vector // 2, 1)
    return min(params.vector, even)


def _shifts(params: PointwiseParams, tiles: ReductionTiling, even: int, size: int) -> bool:
    """Whether a vector of one row, which begins anywhere, comes in two words of memory.

    `tile::load_shifted` puts it together.
    """
    joined = tiles.along and params.tile[0] == 1 and params.load == "direct" and size in (2, 4)
    return joined and even < params.vector <= WIDEST // size


def _shares(domain: Domain, loops: Sequence[int], reduced: Sequence[int]) -> list[float]:
    """Return what each tensor takes of the accesses of one that has elements for each tile: 1."""
    alike = [
        all(axis is None or axis in reduced or loops[axis] == 1 for axis in leaf.coords)
        for leaf in domain.leaves
    ]
    return [1.0 if all(alike) or not one else ALIKE for one in alike]


def _held(words: Sequence[float], shares: Sequence[float]) -> float:
    """Return a thread's registers for an element of all tensors, of so many `words` each."""
    return sum(
        n * (1 if share == 1 else ALIKE_HELD) for n, share in zip(words, shares, strict=True)
    )


def _nbytes(domain: Domain, loops: Sequence[int]) -> int:
    """Return the bytes of what is reduced."""
    sizes = [
        prod(loops[axis] for axis in leaf.coords if axis is not None) for leaf in domain.leaves
    ]
    return sum(n * leaf.tv.dtype.nbytes for n, leaf in zip(sizes, domain.leaves, strict=True))


def _rows(
    domain: Domain, loops: Sequence[int], plain: PointwiseParams
) -> Iterator[PointwiseParams]:
    """Yield params for rows, or parts of them: 16 elements a thread, more for longer parts.

    Fewer where a thread has no registers for 16 of all tensors and results.
    """
    tiles = reduction_tiling(domain, plain)
    longest = max(prod(loops[axis] for axis in tiles.groups[-1]), 1)
    even = min((_aligned(longest, n) for n in _sizes(domain)), default=plain.vector)
    wide = max(1 << (longest - 1).bit_length(), plain.vector)
    whole = by_rows(domain)  # that slide are at least as fast
    slides = whole is not None and slide_refusal(whole, plain.vector) is None
    slides &= longest < LANES[-1] * HELD
    least = next((held for held in (16, 8, 4, 2) if _fits(domain, held)), 1)
    alone = all(loops[axis] == 1 for group in tiles.walked for axis in tiles.groups[group])
    longer = ((4, 16), (4, 32), (8, 16), (8, 32), (8, 64))
    for nth, (warps, held) in enumerate(((2, least), *longer)):
        elements = WARP * warps * held
        cols = min(wide, elements)
        vector = min(even, plain.vector, held)
        while cols > vector * WARP * PARTS:
            vector *= 2
        fits = _fits(domain, held, cols // (vector * WARP))
        if not nth or (vector <= plain.vector and fits and cols * 2 > elements):
            tile = max(elements // cols, 1), cols
            yield replace(plain, tile=tile, warps=warps, vector=min(vector, cols))
            shifts = tile[0] == 1 and vector < plain.vector <= held and not slides
            if shifts and (alone or held <= SHIFTED * plain.vector):
                yield replace(plain, tile=tile, warps=warps, vector=plain.vector)


def _columns(
    domain: Domain, loops: Sequence[int], plain: PointwiseParams, meet: Meet
) -> Iterator[PointwiseParams]:
    """Yield params for columns: lanes side by side, and as many rows as threads have registers for.

    Where results are put together in turns, each thread has columns of its own.
    """
    tiles = reduction_tiling(domain, plain)
    extents = [max(prod(loops[axis] for axis in group), 1) for group in tiles.groups]
    many, kept = extents[tiles.reduced[-1]], extents[-1]
    even = min((_aligned(kept, n) for n in _sizes(domain)), default=plain.vector)
    widest = max(_sizes(domain), default=4)
    vectors = [one for one in (1, 2, 4, 8) if one <= min(max(even, 2), plain.vector)]
    threads = [(1, WARP)] if meet != "last" else [(w, n) for w in (4, 8) for n in SIDE]
    reach = max(vectors) * max(lanes for _, lanes in threads) * widest
    narrowest = min(WIDE // 2, reach) if kept >= LONG else 0
    first = True
    for vector in vectors:
        for warps, lanes in threads:
            for held in (4, 8, 16, 32, 64):
                cols, at_once = lanes * vector, WARP * warps // lanes
                rows = at_once * held // vector
                idle = cols >= 2 * max(kept, 16) or (rows >= 2 * many and held > vector)
                if held < vector or cols < 16 or at_once * vector > PARTS:
                    continue
                if held // vector > MOST_ROWS:
                    continue
                if not narrowest <= cols * widest <= WIDE:
                    continue
                if not first and (idle or not _fits(domain, held)):
                    continue
                first = False
                yield replace(plain, tile=(rows, cols), vector=vector, warps=warps)


def _sizes(domain: Domain) -> list[int]:
    """Return the bytes of an element of each tensor that is reduced."""
    return [leaf.tv.dtype.nbytes for leaf in domain.leaves]


def _fits(domain: Domain, held: int, parts: int = 0) -> bool:
    """Whether a thread has registers for so many elements; then for parts of one result's rows."""
    words = sum(_loaded(leaf.tv.dtype, 1) for leaf in domain.leaves)
    added, widest = _added(domain), max(map(_words, domain.reductions))
    most = max(held * (words + added), parts * widest + held * (added - widest))
    return BASE + most <= MOST


def _aligned(extent: int, nbytes: int) -> int:
    """Return how many elements lie at a multiple of their size where rows are so long."""
    return max(gcd(16, extent * nbytes) // nbytes, 1)


def _loaded(dtype: DType, width: int) -> float:
    """Return a thread's registers for an element that it loads with others."""
    return dtype.nbytes / 4 if width * dtype.nbytes >= 4 else LONE


def _added(domain: Domain) -> int:
    """Return a thread's registers for an element of each result."""
    return sum(map(_words, domain.reductions))


def _words(reduction: Reduction) -> int:
    """Return a thread's registers for an element of a result."""
    return max(arithmetic(reduction.tv.dtype).nbytes // 4, 1)
