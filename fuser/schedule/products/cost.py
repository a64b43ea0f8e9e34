"""How long a kernel with products takes under a schedule, predicted.

The loop of a CTA takes, for every step, what the tensor cores take for its tile, beside it a time
for each row and column that is brought, and one for those that the L2 is asked for: CTAs of
neighbouring numbers share a GPC, and what they read at the same time is read once for all of them.
So the order in which tiles are walked is a part of it (`raster`).  The SM with most CTAs is the
last.  A ring that is too short for the way from memory takes longer.  What a launch moves between
memory and the L2 hides behind that, in part.  Epilogues are added: of the last tile, or of each
where nobody multiplies meanwhile; and what CTAs that share a tile exchange, behind all.

Constants are fitted to 19,289 timings on an H200, bf16, some 14 schedules of each of 1,346 shapes
(M, N and K drawn on a log scale, a third no multiples of 64, and rows of the benchmark, of which
the large ones run under the power limit and count several times): the logarithm's least squares,
and what the schedule that is predicted to be the fastest takes more than the fastest one.  That is
2.3 % (geometric mean; within 3 % for 73 % of the shapes).  Those of what epilogues read are from
earlier timings, those of what is computed from later ones (`choose.COMPUTED_US`).  They are those
of a whole: what a step takes is split between its products and its bytes in one way of several that
fit.  A prediction is off by 5 % (median); what of that timings of kernels like it know, `residual`
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd
from typing import Literal, NamedTuple, TypeVar

from fuser.arch import SM_90A
from fuser.schedule.matmul import Side, other_side
from fuser.schedule.matmul_params import WARPGROUP_ROWS, Split
from fuser.schedule.params import largest_divisor
from fuser.schedule.products.tiles import (
    BROAD,
    LINE,
    RESIDENT,
    SPAN,
    TRANSPOSED,
    WHOLE,
    Ends,
    TileKind,
    fitting,
    tiles,
)

LATENCY_US = 1.03
"""From a request of a step's operands to their arrival."""
ROW_US, COL_US = 0.35e-3, 0.514e-3
"""Of a step, for every row of A and of B that a CTA brings."""
BOX_NBYTES = 2
"""Bytes of an element of an operand that may lie along M or N.  The rows of its boxes are parts of
rows of its tile, as long as a swizzle, at most: of 144 columns 32 bytes, which takes four times as
long as lines.  Measured on an H200, in times of what was predicted without, two sweeps: 25
schedules by rows of 32 bytes 1.63 and 11 1.25, 34 of 64 bytes 1.11 and 6 1.07, 81 of whole lines
1.04 and 20 1.01."""
NEAR_US, NEIGHBOURS = 0.838e-3, 12
"""Of a step, for every row that the L2 is asked for, where all SMs ask, in part where some do: of
so many CTAs of neighbouring numbers, which read the same rows at the same time, one asks.  An H200
has the first 8 CTAs of a launch on the SMs by which some GPCs are larger, then about 16 in each
(measured, `%smid`; with 12 the groups of 249 schedules are chosen best, of 4 to 24)."""
FAR, MOST_ROWS = 4.0, 256
"""What the rows of all CTAs that run at once count for a group of tiles, in times those of
neighbours, and the most rows of tiles of a group."""
STEP_US = 0.987e-3
"""Of a step, whatever it has: barriers and issue.  CTAs that share an SM hide each other's."""
COMPUTED_STEP_US, COMPUTED_ALONE = 0.0372, 1.17
"""Of a step where threads compute an operand, load it, compute, multiply and wait for that, more
than in others; and times as long as by all warps of an SM it takes by one of each scheduler."""
WAIT_US, FEW_COLUMNS = 0.07, 32
"""Of such a step, that it waits for its own products; and columns of tiles, at most, of which it is
so in rings of any length (`choose._waits_in_step`)."""
BESIDE, BROAD_COLS = 0.8, 64
"""Part of what is computed that one warpgroup alone, with more columns, does beside the products of
the step before.  These are fitted to 1,577 timings of 100 products (H200): the fastest one as
predicted takes 3.8 % more than the fastest, 5.1 without them."""
CROWDED, CROWDED_COLS, CROWDED_US = 1.2, 144, 0.2
"""What two warpgroups that share a tile take more to compute, if it has so many columns, and what
is computed for 64 rows takes so long (a silu): their sums leave it few registers."""
OFF_SECTOR, OFF_LINE = 0.175, 0.296
"""What rows of operands cost a CTA more that lie at odd multiples of 16 bytes, across the sectors
of the L2; and that lie across its lines.  Without these terms, and what the L2 takes for such rows,
the schedule that is predicted to be the fastest took 5.5 % more than the fastest one, with them
3.5, of 224 shapes whose rows lie so (H100)."""
IN_TURN_US = 0.127
"""What starting and ending take more where CTAs take tiles in turn (`TileKind.persistent`)."""
SECTOR = 32
"""Bytes of a sector of the L2."""
CROSSING_US = 2.22e-3
"""What the L2 takes in all for each row of a step that begins within a sector, in times one of all
SMs: 4096 x 4096 x 4104 by 128 x 256 takes 269 us, of 4096 172; in clusters of two, of which each
brings 256 rows in place of 384, 185 (H100)."""
CLUSTER_US = 0.582
"""From a request to its arrival, more where the slot is handed back by another CTA."""
CLUSTERED_US = 0.916
"""What starting and ending take more in clusters, which wait for each other then."""
BYTES_PER_US, PARTED = 5.09e6, 1.08
"""Between memory and the L2; and times as long where CTAs share a tile, so that parts of each row
are read at once: 39 x 11440 x 31336 by one 278 us, by two 360 (H100)."""
L2_BYTES, AGAIN = 22.9e6, 1.09
"""Operands of so many bytes are read again half as often as they are asked for, and what of that
comes from memory."""
MOST_COLUMNS = 64
"""Columns that an epilogue takes at a time, beyond which fewer parts are no faster."""
PART_US = 0.0692
"""What an epilogue takes for each part of its columns, hidden behind nothing: 31 parts of 8 columns
made four waves of 128 x 248 half as slow again, 23 of them 8192 x 8192 x 8192 by 128 x 184 in
ping-pong 5 % slower than three of 64 by 128 x 192 (H200)."""
CROSSED = 34
"""Columns of a result that take as long to write as the two ends of a box in a row that begins
within a sector.  Measured on an H200, 8074 x 30824 x 176: 32 columns at a time 389 us, 64 268, 248
248."""
BOX = 64
"""Columns of a box, at most, that a swizzle has, and that transposed tiles are written in."""
BY_THREADS, OFF_RESULT = 2.55, 1.04
"""Times as long an epilogue takes that stores a result by threads, or by TMA across lines."""
COSTLY_US, READ_US, READ_TURNED, VECTOR_US = 2.0, 2.5, 2.0, 0.5
"""What an epilogue takes for every 128 results of a thread and every costly operation, tensor that
it reads, in times that where tiles are transposed, and vector.  Fitted to 1,680 timings on an H200
of 120 products, of bf16 with epilogues and of 8 bits times numbers of rows and columns: what is
predicted to be the fastest takes 2.2 and 2.8 % more than the fastest one (4.2 and 4.0 by a gelu and
tensors alone, and without what timings of plain products say)."""
EXCHANGE_US, PEER_US, EXCHANGED = 1.98, 0.00601, 29.5e3
"""A grid barrier, and more for every CTA of a tile; and bytes of sums that a CTA stores and loads
behind it in a microsecond."""
LAST_US, STORED, EACH = 0.391, 14.4e3, 0.227
"""A count of arrivals, bytes of sums that a CTA stores before in a microsecond, and the share of
that which the last-arriving one takes for those of each."""
EMPTY_HANDED = 0.77
"""Share of its rate that a ping-pong tile keeps where threads store results, as parts of reductions
and rows that begin anywhere: no products stay in flight then.  Measured on an H200, us: row
statistics of 4096 x 14336 x 4096 814, in the other order 689; 8192 x 10001 x 8192 by 128 x 160
2051, by 128 x 224 in the other order 1701."""
LONE = 1.17
"""What a step of ping-pong takes where each CTA has one tile, so that only one of its warpgroups
multiplies."""
TURNED = 1.07
"""What a step of ping-pong takes where the other tile is transposed and its epilogue is costly.
Measured on an H200: 8192 x 14336 x 4096, bias and silu, by 128 x 192 1486 us, not transposed
1393."""
SUSTAINED: dict[Split, float] = {"cooperative": 6.95, "pipelined": 6.95, "ping_pong": 7.63}
"""Operations of an SM in a microsecond (in millions), at most, whatever a step consists of.
Measured on an H200 at its power limit: 8192 x 8192 x 8192 by 128 x 192 in ping-pong 1521 us, by 128
x 224 cooperative 1571."""
TOGETHER = 0.97
"""What a step of ping-pong takes where one wgmma has the columns of several products, in times one
of as many columns.  Measured on an H200, gated layers: 1 to 3 % less."""
OVERLAP, HIDDEN, AT_MOST = 2.18, 2.81, 8
"""Of what takes a and b, part of one hides behind the other, (a^p + b^p)^(1/p): of memory and
loops, of what a loop multiplies and what it waits for, and of both and the sustained rate."""

NARROW, NARROW_COLS = 1.1, 96
"""What loops take of tiles with so few columns, where results around share matrices: many waves of
short steps.  With it what is chosen takes 4.9, 4.1 and 2.3 % more than the fastest of 12 schedules,
of three times 40 shapes (H200), without 5.6, 6.0 and 2.7."""

DEEP_OF_MANY = 1.4
"""What loops take of several products by longer steps, which gain next to nothing there.  Measured
on an H200, us, by steps of one span and of two: 29 x 512 x 1984 by 64 x 16 each 6.6 and 6.1, 15 x
2136 x 7418 63.7 and 63.1, 34 x 2368 x 28672 by 64 x 24 99 by two, predicted 72."""

T = TypeVar("T")
Sharing = Literal["", "scatter", "last"]
"""How CTAs that share a tile put their sums together; "" where none do."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel computes: results `around` M x N, of products of so many `steps` of 128 bytes.

    `many` products share the columns of a tile; an epilogue has so many `costly` operations and
    reads so many tensors (`read`), and `vectors` of numbers of rows or columns.  Rows of A and of B
    have `pitches` of so many bytes, those of the results `result_pitch`; `parts` of reductions are
    stored by threads.  An A that is computed in registers takes `computed_us` of a step for every
    64 rows, from so many bytes of each row (`brought`).
    `bare`: the one result is of 16 bits and one product, and its epilogue reads nothing.  Results
    around may share so many `matrices`, by which rows or columns are multiplied (`shared_by`).
    A may lie along M, and B along N (`turned`).
    """

    around: int
    m: int
    n: int
    steps: int
    many: int
    costly: int
    read: int
    pitches: tuple[int, int]
    result_pitch: int
    parts: bool
    computed_us: float = 0.0
    brought: int = SPAN
    bare: bool = False
    shared: Side = ""
    matrices: int = 0
    turned: tuple[bool, bool] = (False, False)
    vectors: int = 0

    @property
    def ends(self) -> Ends:
        """What an epilogue holds of a tile beside sums and results."""
        return "tiles" if self.read else "values" if self.costly or self.vectors else "bare"

    @property
    def within_sectors(self) -> bool:
        """Whether rows of results begin within sectors of the L2, and TMA stores them."""
        return self.result_pitch % SECTOR == SECTOR // 2

    def stored(self) -> Work:
        """Return it with an A that a kernel before stores."""
        return replace(self, computed_us=0.0, brought=SPAN)

    def step_nbytes(self, rows: float, columns: float) -> float:
        """Return the bytes of so many rows of A and columns of all products, of a step."""
        return rows * self.brought + columns * SPAN

    def wide(self, kind: TileKind) -> int:
        """Columns of one product in a tile."""
        return kind.wide(self.many)

    def seen_by(self, kind: TileKind) -> Work:
        """Return it with the rows and columns that tiles of a kind have."""
        return _turned(self) if kind.transpose else self


@lru_cache(maxsize=16)
def _turned(work: Work) -> Work:
    pitches, lie = (work.pitches[1], work.pitches[0]), (work.turned[1], work.turned[0])
    shared = other_side(work.shared)
    return replace(work, m=work.n, n=work.m, pitches=pitches, shared=shared, turned=lie)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a kernel takes, in microseconds, and of what that consists.

    To start and end; the loop of the SM with most CTAs; the epilogues behind it; what CTAs that
    share tiles store and load of sums; and memory, beside loop and epilogues.  CTAs run in so many
    `waves`; `filled` is the share of tiles that results fill.  Kernels like it took `timed` times
    what that comes to (`residual`).
    """

    start_us: float
    loop_us: float = 0.0
    behind_us: float = 0.0
    sums_us: float = 0.0
    memory_us: float = 0.0
    waves: int = 0
    filled: float = 1.0
    timed: float = 1.0

    @property
    def us(self) -> float:
        """All of it, as kernels like it took."""
        return self.modelled_us * self.timed

    @property
    def modelled_us(self) -> float:
        """All of it, as the model says."""
        busy = self.loop_us + self.behind_us
        beside = (busy**OVERLAP + self.memory_us**OVERLAP) ** (1 / OVERLAP)
        return float(self.start_us + beside + self.sums_us)

    def corrected(self, timed: float) -> Prediction:
        """Return it with what kernels like it took, in times that it comes to."""
        loop, behind, sums = self.loop_us, self.behind_us, self.sums_us
        memory, waves, filled = self.memory_us, self.waves, self.filled
        return Prediction(self.start_us, loop, behind, sums, memory, waves, filled, timed)

    def __str__(self) -> str:
        """Say what it consists of."""
        waves = "1 wave" if self.waves == 1 else f"{self.waves} waves"
        timed = f"; {took(self.timed)}" if self.timed != 1 else ""
        return (
            f"{self.us:.1f} us predicted ({waves}, tiles {self.filled:.0%} full; loop "
            f"{self.loop_us:.1f}, behind it {self.behind_us + self.sums_us:.1f}, memory "
            f"{self.memory_us:.1f}, start {self.start_us:.1f}{timed})"
        )


def took(timed: float) -> str:
    """Say that kernels like one took so many times what is predicted of it."""
    return f"kernels like it took {100 * timed - 100:+.0f} %"


@lru_cache(maxsize=1 << 12)
def raster(rows: int, across: int, high: float, wide: float, sms: int = SM_90A.sms) -> int:
    """Return in groups of how many of `rows` of `across` tiles they are walked.

    It is the divisor of `rows` by which neighbouring CTAs, and in part all that run at once, read
    the fewest rows.  Measured on an H200: 768 x 1216 x 4800 by 64 x 128, 12 rows of 10 tiles, in
    groups of 1, 2, 3, 4, 6 and 12 22.3, 19.8, 18.3, 15.0, 17.0 and 22.2 us.  Of 585 schedules that
    were timed in several groups, the chosen ones take 0.6 % more than the best, 1.3 in groups of 8
    at most where all tiles run at once, and else of 32.
    """
    if rows * across == 0:
        return 1

    def lines(group: int) -> float:  # rounded, so that the least of equal groups is taken
        near, far = (read_by(ctas, group, rows, across) for ctas in (NEIGHBOURS, sms))
        return round((near[0] + FAR * far[0]) * high + (near[1] + FAR * far[1]) * wide, 6)

    groups = (one for one in range(1, min(rows, MOST_ROWS) + 1) if rows % one == 0)
    return min(groups, key=lines)


class Walk(NamedTuple):
    """Tiles are walked in groups of so many `lines`, which so many `others` cross.

    Lines are rows of tiles, or columns (`by_columns`), in whole clusters.
    """

    group: int
    lines: int
    others: int
    by_columns: bool

    def rows_first(self, pair: tuple[T, T]) -> tuple[T, T]:
        """Return what is of lines and of others as what is of rows and of columns."""
        return pair[::-1] if self.by_columns else pair


def walked(
    side: Side, around: int, m: int, n: int, kind: TileKind, wide: int, sms: int = SM_90A.sms
) -> Walk:
    """Return how tiles of a kind are walked, of `around` results of M x N, `wide` columns each.

    Results follow each other along a `side` of tiles, by which they share matrices, or along none:
    they count as columns then.
    """
    (rows, columns), (down, along) = _joined(side, around), kind.cluster
    rows, columns = rows * ceil(m / (kind.rows * down)), columns * ceil(n / (wide * along))
    high, broad = kind.rows * down, wide * along
    if side == "rows":
        return Walk(raster(columns, rows, broad, high, sms), columns, rows, by_columns=True)
    return Walk(raster(rows, columns, high, broad, sms), rows, columns, by_columns=False)


def _joined(side: Side, around: int) -> tuple[int, int]:
    """Return how many results lie along rows, and along columns."""
    return (around, 1) if side == "rows" else (1, around)


def at_most(group: int, rows: int) -> int:
    """Return the `raster` of params by which so many rows of tiles are walked in such groups.

    A power of two, if the group is the largest divisor of the rows below one: shapes share more
    programs so.
    """
    power = 1 << (group - 1).bit_length()
    return power if largest_divisor(rows, power) == group else group


def read_by(ctas: int, group: int, rows: int, across: int) -> tuple[float, float]:
    """Return how many rows and columns of tiles so many neighbouring CTAs read, for each of them.

    There are `rows` of `across` tiles, which are walked in groups of so many rows, column by
    column.
    """
    ctas = min(ctas, rows * across)
    if group * across >= ctas:
        down, along = min(group, ctas), min(1 + (ctas - 1) / group, across)
    else:
        down, along = min(group * ceil(ctas / (group * across)), rows), across
    return down / ctas, along / ctas


def predicted(
    work: Work,
    kind: TileKind,
    stages: int,
    columns: int,
    count: int = 1,
    sharing: Sharing = "",
    sms: int = SM_90A.sms,
) -> Prediction:
    """Return what a kernel takes whose tiles are each computed by `count` CTAs.

    An epilogue takes so many of their `columns` at a time.
    """
    written = float(work.around * work.m * work.result_pitch)
    if work.within_sectors:
        written *= 1 + CROSSED / (min(columns, BOX) if kind.transpose else columns)
    work = work.seen_by(kind)
    manner, wide = kind.manner, work.wide(kind)
    cols = wide * work.many
    many = tiles(work.around, work.m, work.n, kind.rows, wide, kind.cluster)
    ctas = many * count
    if ctas == 0:
        return Prediction(manner.start_us)
    steps = ceil(ceil(work.steps / count) / kind.deep) * kind.deep
    on_sm, waves = ceil(ctas / sms), ceil(ctas / (sms * kind.resident))
    # --- the loop
    down, along = kind.cluster
    order = walked(work.shared, work.around, work.m, work.n, kind, wide, sms)
    row, column = (_off(pitch) for pitch in work.pitches)
    row *= work.brought / SPAN
    sides = kind.rows / along, cols / down
    lines = [
        SPAN / gcd(width * BOX_NBYTES, SPAN) if lies else 1.0
        for width, lies in zip((kind.rows, wide), work.turned, strict=True)
    ]
    bring = sides[0] * ROW_US * row * lines[0] + sides[1] * COL_US * column * lines[1]
    per_row, per_column = _asked(work, kind, order)
    multiplied = 128e-6 * kind.rows * cols / manner.rate
    step = multiplied + bring
    step += (per_row * row + per_column * column) * NEAR_US * min(ctas / sms, 1.0)
    at_once = min(kind.resident, on_sm)
    step += STEP_US / (at_once * kind.deep)
    if work.computed_us:
        computed = _computed(work.computed_us, kind, at_once)
        step += computed
        if kind.sharers == 1 and at_once == 1 and kind.split == "cooperative" and cols > BROAD_COLS:
            step -= BESIDE * min(computed, multiplied)
        if cols <= FEW_COLUMNS:
            step += WAIT_US / (at_once * kind.deep)
    if kind.split == "ping_pong":
        by_threads = work.parts or work.result_pitch % 16 != 0
        step *= (TOGETHER if work.many > 1 else 1.0) / (EMPTY_HANDED if by_threads else 1.0)
        step *= LONE if many <= sms else 1.0
        step *= TURNED if kind.transpose and work.costly else 1.0
    clustered = kind.cluster != (1, 1)
    late = waves * steps * (LATENCY_US + CLUSTER_US * clustered) / (stages * kind.deep)
    crossing = sum(one for one, pitch in zip(sides, work.pitches, strict=True) if pitch % SECTOR)
    all_of_them = ctas * steps * crossing * CROSSING_US / sms
    times = (on_sm * steps * step, late, all_of_them)
    least = on_sm * steps * 128e-6 * kind.rows * cols / SUSTAINED[kind.split]
    loop = sum(one**HIDDEN for one in times) ** (1 / HIDDEN)
    loop = (loop**AT_MOST + least**AT_MOST) ** (1 / AT_MOST)
    if work.shared and wide <= NARROW_COLS:
        loop *= NARROW
    if work.many > 1 and kind.deep > 1 and not work.computed_us:
        loop *= DEEP_OF_MANY
    # --- behind the loop
    each = kind.rows * cols / (128 * kind.sharers) / 128
    stored = manner.stored_us * _as_stored(work.result_pitch)
    read = READ_US * work.read * (READ_TURNED if kind.transpose else 1)
    held = COSTLY_US * work.costly + read + VECTOR_US * work.vectors
    epilogue = each * (stored + held / work.many)
    behind = epilogue * waves
    if kind.split == "ping_pong":  # the other tile's loop hides an epilogue that is no longer
        behind = epilogue + max(epilogue - loop / waves, 0.0) / 2 * (waves - 1)
    if not sharing:
        behind += wide / min(columns, MOST_COLUMNS) * PART_US * waves
    sums = _sums(4 * kind.rows * cols, count, sharing, waves)
    filled = work.around * work.m * work.n / (many * kind.rows * wide)
    memory = (_read(work, kind, many, order, sms) + written) / BYTES_PER_US
    memory *= PARTED if count > 1 else 1.0
    start = manner.start_us
    if kind.split == "cooperative" and not (sharing or kind.persistent(many, sms)):
        start -= IN_TURN_US
    start += CLUSTERED_US * clustered
    return Prediction(start, loop, behind, sums, memory, waves, filled)


def _computed(each_us: float, kind: TileKind, at_once: int) -> float:
    """Return what computing an operand takes of a span, so many CTAs of an SM `at_once`.

    Each warpgroup waits for itself, and all for the SM's schedulers.
    """
    strips = kind.rows / WARPGROUP_ROWS
    alone = COMPUTED_STEP_US / kind.deep + COMPUTED_ALONE * each_us * strips / kind.sharers
    alone /= at_once * (kind.warpgroups if kind.split == "ping_pong" else 1)
    taken = float((alone**HIDDEN + (each_us * strips) ** HIDDEN) ** (1 / HIDDEN))
    crowded = kind.sharers == 2 and kind.cols >= CROWDED_COLS and each_us > CROWDED_US
    return CROWDED * taken if crowded else taken


def _read(work: Work, kind: TileKind, many: int, order: Walk, sms: int) -> float:
    """Return the bytes of operands that come from memory, as so many tiles see them."""
    wide, ctas, (high, along) = work.wide(kind), sms * kind.resident, kind.cluster
    rows = work.m * (work.matrices if work.shared == "cols" else work.around)
    columns = work.n * (work.matrices if work.shared == "rows" else work.around)
    once = work.steps * work.step_nbytes(rows, columns * work.many)
    group, lines, others, _ = order
    at_once = ceil(min(ctas, many) / (high * along))
    read = min(group * ceil(at_once / (group * others)), lines), min(ceil(at_once / group), others)
    rows, columns = order.rows_first(read)
    rows, columns = rows * high * kind.rows, columns * along * wide * work.many
    again = max(work.steps * work.step_nbytes(rows, columns) * ceil(many / ctas) - once, 0)
    return once + again * AGAIN / (1 + (L2_BYTES / max(once, 1)) ** 2)


def _asked(work: Work, kind: TileKind, order: Walk) -> tuple[float, float]:
    """Return of how many rows and columns neighbouring CTAs ask the L2, for each of them.

    Of those beyond the end of an operand they do not.
    """
    group, lines, others, _ = order
    (high, wide), (down, along) = _joined(work.shared, work.around), kind.cluster
    asking = order.rows_first(read_by(NEIGHBOURS // (down * along), group, lines, others))
    rows, columns = order.rows_first((lines, others))
    per_row = high * work.m / (rows * down)
    per_column = wide * work.n * work.many / (columns * along)
    return asking[0] * per_row / along, asking[1] * per_column / down


def _off(pitch: int) -> float:
    """Return what rows of operands cost, so many bytes apart, in times those in whole lines."""
    if pitch % SECTOR:
        return 1 + OFF_SECTOR
    return 1 + (OFF_LINE if pitch % LINE else 0.0)


def _as_stored(pitch: int) -> float:
    """Return the same of the rows of a result."""
    if pitch % 16:
        return BY_THREADS
    return OFF_RESULT if pitch % LINE else 1.0


def _sums(nbytes: int, count: int, sharing: Sharing, waves: int) -> float:
    if sharing == "scatter":
        return EXCHANGE_US + PEER_US * count + 2 * nbytes * (count - 1) / count / EXCHANGED
    if sharing == "last":
        return LAST_US + nbytes / STORED * (1 + EACH * count) * waves
    return 0.0


def whole(work: Work, transposed: int) -> Iterator[TileKind]:
    """Yield the kinds of tiles that one CTA computes alone; several of an SM if that is plain.

    Columns of transposed ones are multiples of a number; 0: there are none.
    """
    yield from WHOLE
    if work.bare and work.within_sectors:
        yield from BROAD
    if work.many == 1 and not work.parts:
        yield from RESIDENT
    if transposed:
        yield from fitting(work.m, TRANSPOSED, transposed)
