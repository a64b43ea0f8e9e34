"""The tiles that a schedule for products is chosen from, and how CTAs may share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Literal, NamedTuple

from fuser.arch import SM_90A
from fuser.schedule.matmul_params import Split
from fuser.schedule.params import MAX_SPLITS, MAX_STAGES

BARRIERS = 1024
"""Bytes of shared memory that barriers and alignment take, at most."""
RESERVED = 1024
"""Bytes of shared memory that the system takes of an SM for each CTA.  Source: CUDA programming
guide, "compute capabilities"."""
SPAN = 128
"""Bytes along K of a step, of which a swizzle is."""
LINE = 128
"""Bytes of a line of the L2."""
COLUMNS = (64, 48, 32, 16, 8)
"""Columns of the epilogue at a time."""
LEAST_COLUMNS, RING = 32, 4
"""Of these, at least as many are taken for a stage more, by tall tiles, or for a ring of four.
Measured on an H200, us: 256 x 160 with 32 columns and three stages, with 16 and four: 16000 x 2560
x 320 47.0 and 51.3, 6000 x 3200 x 2048 109 and 112, 8192 x 2560 x 8192 425 and 427; in ping-pong
by transposed 128 x 192, 96 columns and three stages took 6 % longer than was predicted."""
NO_SWIZZLE = 48
"""Of these those whose rows of 16 bits no swizzle has.  Measured on an H100, a loop of at most 16
steps: tiles that store them so take 6 % longer than others by what is predicted of both, and 21 %
where rows of the result begin within lines: 4590 x 17688 x 696 257 us, 212 with 32 of 160."""
ENDED = 224
"""Registers of a thread that sums may take with the columns that an epilogue computes at a time.
Measured (NVRTC 13.0, H200): 128 x 192 in ping-pong spills 196 to 432 bytes of a residual, a bias
and silu, or numbers of rows and columns with 64 columns, 28 to 92 with 32; us, 11321 x 23232 x 320
with a residual 742 and 615, with bias and silu 603 and 510, but 8192 x 14336 x 4096 1421 and
1453."""
HELD, HELD_OF_THREE = 208, 136
"""Registers that sums and columns on their way may take of a thread, where threads store results;
and of one of three warpgroups, single elements.  Measured (NVRTC 13.0): 128 x 192 in ping-pong with
64 columns spills 1,724 bytes, and takes twice as long; with 8 of 184 columns, transposed, nothing.
Of 192 x 192, in microseconds with 64 columns and 32: 15633 x 5443 x 700 292 and 257, 8192 x 1001 x
1024 35.9 and 33.0; but 16000 x 2050 x 256, by pairs, 49.3 and 54.2."""
STAGED = 36_864
"""Bytes that an epilogue of transposed tiles stages at a time, at most."""
SLOTS, MORE_SLOTS = 2, 3
"""Slots that parts of an epilogue take in turn; and where nobody multiplies meanwhile, if there is
room.  Measured on an H200, us, with one slot, two and three: 8192 x 16384 x 128 by 128 x 192
cooperative 122, 96 and 90, 6144 x 6144 x 2048 242, 237 and 235; in ping-pong by 128 x 160 96 and
92."""


Ends = Literal["bare", "values", "tiles"]
"""What an epilogue holds of a tile beside the sums and results: nothing, values that it computes or
reads of rows and columns, or tiles that it reads."""


class Fit(NamedTuple):
    """How many stages fit, 0 if too few, columns of the epilogue at a time, and slots for these."""

    stages: int
    columns: int
    staging: int


NO_FIT = Fit(0, COLUMNS[-1], SLOTS)
"""No stages."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a kind of tile is multiplied, and what that takes.

    Fitted as a whole (`cost`): `rate` are FLOP a microsecond and SM (in millions) beside what a
    step takes for its rows and columns; `start_us` from launch to the first product and behind the
    last; `stored_us` what an epilogue takes for every 128 elements of a thread.
    """

    rate: float
    start_us: float
    stored_us: float


@dataclass(frozen=True, slots=True)
class TileKind:
    """A kind of tile: how it is split, among how many warpgroups, and CTAs an SM has of it.

    Where `transpose`, its rows lie along the columns of the result.  CTAs of a `cluster`, along
    rows or columns of tiles, bring what they share once.  The epilogue of a `broad` one takes all
    columns at a time.  A step is so many spans `deep`.
    """

    rows: int
    cols: int
    split: Split
    warpgroups: int
    resident: int = 1
    transpose: bool = False
    cluster: tuple[int, int] = (1, 1)
    broad: bool = False
    deep: int = 1

    @property
    def manner(self) -> Manner:
        """How it is multiplied."""
        return MANNERS[self.split, self.warpgroups, self.rows // self.sharers]

    @property
    def sharers(self) -> int:
        """Warpgroups that share its rows."""
        return 1 if self.split == "ping_pong" else self.warpgroups

    def persistent(self, tiles: int, sms: int) -> bool:
        """Whether CTAs take several of so many tiles in turn.

        One tile each needs no loop over them, and its epilogue lies in the rings.  Measured on an
        H200, 275 schedules of 2 to 200 us whose tiles run at once: 0.25 us less, 6 % of those below
        4 us and 1 % of those of 20 to 50; at worst 3 % more.
        """
        if self.split == "cooperative":
            return tiles > sms
        return self.resident == 1

    def wide(self, many: int) -> int:
        """Columns of each of so many products, which share the tile."""
        return max(self.cols // many // 8 * 8, 8)

    def holds(self, many: int) -> bool:
        """Whether threads have registers for as many columns of each of so many products."""
        return self.wide(many) * many <= max(self.cols, NARROW)

    def stages(
        self,
        wide: int,
        step_nbytes: int,
        result_nbytes: int,
        pitch: int = 0,
        ends: Ends = "bare",
        many: int = 1,
    ) -> Fit:
        """Return how many stages fit, and what the epilogue takes at a time.

        `wide` are the columns of one product, `step_nbytes` those of the operands of a span, and
        `result_nbytes` of an element of all results, whose rows are so many bytes apart (`pitch`):
        across lines of the L2, or such that threads store them, from registers that hold some
        columns beside the sums.  So they do of `many` products whose epilogue holds more (`ends`).
        """
        step_nbytes *= self.deep
        every = [*self._divisors(wide)]
        if pitch % LINE and not self.transpose:
            every = [columns for columns in every if columns != NO_SWIZZLE]
        if pitch % 16:
            most = HELD_OF_THREE if self.warpgroups == 3 and pitch % 4 else HELD
            every = [columns for columns in every if self._holds(wide * many, columns, most)]
        if ends != "bare":
            across = ends == "tiles" and self.transpose  # elements come one by one
            twice, most = (2, HELD) if across else (1, ENDED)
            every = [n for n in every if self._taken(wide + twice * n) * many <= most]
        if not every:
            return NO_FIT
        if self.resident > 1:
            columns = every[0]
            room = (SM_90A.smem_bytes + RESERVED) // self.resident - RESERVED - BARRIERS
            stages = min(MAX_STAGES, room // step_nbytes)
            fits = self._staged(wide, columns, result_nbytes, SLOTS) <= stages * step_nbytes
            return Fit(stages, columns, SLOTS) if fits and stages >= 3 else NO_FIT
        best = NO_FIT
        for columns in every:
            stages = self._beside(wide, columns, step_nbytes, result_nbytes, SLOTS)
            fewer = columns >= LEAST_COLUMNS and (self.rows > 128 or best.stages < RING)
            if best.stages == 0 or (stages > best.stages and fewer):
                best = Fit(max(stages, 0), columns, SLOTS)
        if best.stages < 2:
            return NO_FIT
        if self.split == "cooperative" and wide // best.columns >= MORE_SLOTS:
            more = self._beside(wide, best.columns, step_nbytes, result_nbytes, MORE_SLOTS)
            if more >= best.stages:
                return best._replace(staging=MORE_SLOTS)
        return best

    def _beside(
        self, wide: int, columns: int, step_nbytes: int, result_nbytes: int, slots: int
    ) -> int:
        """Return how many stages fit beside so many slots for columns of the epilogue."""
        room = SM_90A.smem_bytes - BARRIERS - self._staged(wide, columns, result_nbytes, slots)
        return min(MAX_STAGES, room // step_nbytes)

    def _divisors(self, wide: int) -> Iterator[int]:
        """Yield columns that the epilogue may take at a time, most first."""
        if self.broad:
            yield wide
            return
        if not self.transpose:
            yield from (columns for columns in COLUMNS if wide % columns == 0)
            return
        for columns in range(wide, 0, -8):  # rows of a slot, of which no swizzle asks anything
            if wide % columns == 0 and 2 * columns * self.rows <= STAGED:
                yield columns

    def _holds(self, wide: int, columns: int, most: int) -> bool:
        """Whether a thread has registers, `most`, for some columns, twice, beside its sums.

        Rows of two sectors at least, where they lie along the columns.
        """
        fits = self._taken(wide + 2 * columns) <= most
        return fits and (self.transpose or columns >= 16)

    def _taken(self, columns: int) -> float:
        """Return how many registers of a thread so many columns take."""
        return columns * self.rows / (128 * self.sharers)

    def _staged(self, wide: int, columns: int, result_nbytes: int, slots: int) -> int:
        """Return the bytes of what an epilogue stages: in some slots of each role that has one."""
        roles = 2 if self.split == "ping_pong" else 1
        return roles * min(slots, wide // columns) * self.rows * columns * result_nbytes


MANNERS: dict[tuple[Split, int, int], Manner] = {
    ("pipelined", 1, 64): Manner(7.01, 1.17, 1.08),
    ("pipelined", 2, 64): Manner(6.12, 1.09, 1.73),
    ("cooperative", 1, 64): Manner(23.4, 1.48, 0.969),
    ("cooperative", 2, 64): Manner(33.1, 1.68, 1.01),
    ("cooperative", 2, 128): Manner(16.7, 2, 1.17),
    ("cooperative", 3, 64): Manner(17.9, 2.07, 1.54),
    ("ping_pong", 2, 64): Manner(23.8, 1.56, 0.529),
    ("ping_pong", 2, 128): Manner(20.2, 1.62, 0.711),
}
"""By how tiles are split, warpgroups, and rows of each."""


def _kinds(
    split: Split, warpgroups: int, rows: int, widths: tuple[int, ...]
) -> tuple[TileKind, ...]:
    return tuple(TileKind(rows, cols, split, warpgroups) for cols in widths)


WHOLE = (
    *_kinds("cooperative", 2, 128, (256, 224, 192, 160, 128)),
    *_kinds("cooperative", 2, 256, (160, 144, 128, 96)),
    *_kinds("cooperative", 3, 192, (192, 160, 128)),
    *_kinds("ping_pong", 2, 128, (192, 160, 128, 96, 64)),
    *_kinds("ping_pong", 2, 64, (256, 192, 128)),
    *_kinds(
        "cooperative", 1, 64,
        (256, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16),
    ),
    *(replace(kind, deep=2) for kind in _kinds("cooperative", 1, 64, (64, 48, 32, 16))),
)  # fmt: skip
"""Tiles that a CTA of an SM computes alone.  Measured on an H200, us, by steps of one span and of
two: 16 x 4096 x 4096 by 64 x 16 11.6 and 10.4, 16 x 4096 x 14336 34.9 and 29.7."""
BROAD = tuple(
    replace(kind, broad=True)
    for kind in (
        *_kinds("cooperative", 2, 128, (248, 184)),
        *_kinds("cooperative", 3, 192, (184,)),
        *_kinds("ping_pong", 2, 128, (184,)),
        *_kinds("ping_pong", 2, 64, (248, 184)),
    )
)
"""The same for results whose rows begin within sectors of the L2, where a box of 64 columns writes
two parts of sectors beside three whole ones, and one of all columns also two.  Rows of 368 bytes in
shared memory need no swizzle, as 8 of them lie in different banks."""
RESIDENT = (
    TileKind(128, 128, "pipelined", 2, 2),
    TileKind(128, 64, "pipelined", 2, 2),
    TileKind(64, 128, "pipelined", 1, 2),
    TileKind(64, 64, "pipelined", 1, 3),
    TileKind(64, 32, "pipelined", 1, 4),
)
"""Tiles of which an SM has several CTAs, whose epilogues lie in their rings: one multiplies while
others bring their first operands or store their results."""
PARTED = (
    *_kinds("cooperative", 2, 256, (128,)),
    *_kinds("cooperative", 2, 128, (256, 192, 128, 64)),
    *_kinds("cooperative", 1, 64, (256, 128, 64, 32, 16)),
)
"""Tiles that CTAs share."""
TRANSPOSED = (
    TileKind(128, 256, "cooperative", 2),
    TileKind(256, 160, "cooperative", 2),
    TileKind(192, 192, "cooperative", 3),
    TileKind(128, 192, "ping_pong", 2),
    TileKind(64, 256, "ping_pong", 2),
    TileKind(64, 256, "cooperative", 1),
    TileKind(64, 64, "cooperative", 1, deep=2),
    TileKind(128, 128, "pipelined", 2, 2),
    TileKind(64, 128, "pipelined", 1, 2),
    TileKind(64, 64, "pipelined", 1, 3),
)
"""The widest transposed tiles that a CTA computes alone; for fewer rows of a result there are
narrower ones (`fitting`)."""
TRANSPOSED_PARTED = (
    TileKind(256, 128, "cooperative", 2),
    TileKind(128, 256, "cooperative", 2),
    TileKind(64, 256, "cooperative", 1),
)
"""The same of those that CTAs share."""
COMPUTED_PARTED = TileKind(64, 128, "cooperative", 1, 2)
"""Of either where threads compute an operand: one CTA does while another waits for its products."""
DEPTHS, LEAST_DEEP = (2, 4), 4
"""Spans of a step, more than one, where threads compute an operand, and stages that fit of it at
least; of four spans 64 rows for each warpgroup.  A step waits for all that it does, one behind the
other: H200, us, i8 by steps of one, two and four spans, 8 x 8192 x 8192 by 64 x 8 31.9, 25.4 and
22.5, 64 x 4096 x 14336 by 64 x 32 52.3, 44.6 and 38.7; with three stages of two spans 400 x 2304 x
9472 by 128 x 136 44.8 and 51.0."""
NARROW, FITS = 64, 3
"""Columns that tiles of several warpgroups have at least, unless that is more than the rows of a
result; and how many widths are tried, each the least for so many tiles along these rows."""
COUNTS = (2, 3, 4, 5, 6, 8, 11, 16, 22, 32, 44, 64)
"""How many CTAs share one, beside as many as fill the device once."""
MOST_AT_ONCE, WAVES = 32, 4
"""How many do where all wait for each other; and the waves of CTAs that share tiles, at most."""


def counts(tiles: int, steps: int, sms: int) -> Iterator[int]:
    """Yield how many CTAs may share each of so many tiles of so many steps."""
    full = sms // max(tiles, 1)
    for count in sorted({*COUNTS, full}):
        if 1 < count <= min(steps, MAX_SPLITS) and tiles * count <= WAVES * sms:
            yield count


def tiles(
    around: int, m: int, n: int, rows: int, cols: int, cluster: tuple[int, int] = (1, 1)
) -> int:
    """Return how many tiles of so many rows and columns results have, in whole clusters."""
    down, along = cluster
    return around * ceil(m / (rows * down)) * down * ceil(n / (cols * along)) * along


@lru_cache(maxsize=1 << 10)
def clustered(kind: TileKind) -> tuple[TileKind, ...]:
    """Return a kind of tile in clusters of two, if a role of its own loads."""
    if kind.split == "pipelined" or kind.resident > 1:
        return ()
    return tuple(replace(kind, cluster=cluster) for cluster in ((2, 1), (1, 2)))


def parted(rows: int, unit: int, *, computed: bool) -> Iterator[TileKind]:
    """Yield the kinds of tiles that CTAs share; transposed ones of so many rows and a unit, if any.

    Some are for operands that threads compute.
    """
    more = (COMPUTED_PARTED,) if computed else ()
    yield from (*PARTED, *more)
    if unit:
        yield from fitting(rows, (*TRANSPOSED_PARTED, *more), unit)


@lru_cache(maxsize=1 << 10)
def deeper(kind: TileKind) -> tuple[TileKind, ...]:
    """Return a kind of tile by longer steps, for operands that threads compute."""
    if kind.deep > 1:
        return ()
    most = DEPTHS[-1] if kind.rows == 64 else DEPTHS[0]
    return tuple(replace(kind, deep=deep) for deep in DEPTHS if deep <= most)


def fitting(rows: int, widest: tuple[TileKind, ...], unit: int) -> Iterator[TileKind]:
    """Yield transposed tiles that so many rows of a result fill, as nearly as columns in units."""
    rows = max(rows, 1)  # of no results there are no tiles, but a schedule
    units = ceil(rows / unit) * unit
    for kind in widest:
        few = ceil(rows / kind.cols)
        widths = {ceil(rows / (unit * many)) * unit for many in range(few, few + FITS)}
        least = min(NARROW, units) if kind.warpgroups > 1 else unit
        for wide in sorted(widths, reverse=True):
            if least <= wide <= kind.cols:
                yield _turned(kind, wide)


@lru_cache(maxsize=1 << 10)
def _turned(kind: TileKind, columns: int) -> TileKind:
    return replace(kind, cols=columns, transpose=True)
