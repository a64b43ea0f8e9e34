"""The tiles that a schedule for products is chosen from, and how CTAs may share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

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
COLUMNS = (64, 48, 32, 16, 8)
"""Columns of the epilogue at a time."""


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
    """A kind of tile: how it is split, among how many warpgroups, and CTAs an SM has of it."""

    rows: int
    cols: int
    split: Split
    warpgroups: int
    resident: int = 1

    @property
    def manner(self) -> Manner:
        """How it is multiplied."""
        return MANNERS[self.split, self.warpgroups, self.rows // self.sharers]

    @property
    def sharers(self) -> int:
        """Warpgroups that share its rows."""
        return 1 if self.split == "ping_pong" else self.warpgroups

    def wide(self, many: int) -> int:
        """Columns of each of so many products, which share the tile."""
        return max(self.cols // many // 8 * 8, 8)

    def stages(self, wide: int, step_nbytes: int, result_nbytes: int) -> tuple[int, int]:
        """Return how many stages fit, 0 if too few, and columns of the epilogue at a time.

        `wide` are the columns of one product, `step_nbytes` those of the operands of a step, and
        `result_nbytes` of an element of all results.
        """
        if self.resident > 1:
            columns = next(c for c in COLUMNS if wide % c == 0)
            room = (SM_90A.smem_bytes + RESERVED) // self.resident - RESERVED - BARRIERS
            stages = min(MAX_STAGES, room // step_nbytes)
            fits = self._staged(wide, columns, result_nbytes) <= stages * step_nbytes
            return (stages if fits and stages >= 3 else 0), columns
        best = 0, COLUMNS[-1]
        for columns in COLUMNS:
            if wide % columns:
                continue
            room = SM_90A.smem_bytes - BARRIERS - self._staged(wide, columns, result_nbytes)
            stages = min(MAX_STAGES, room // step_nbytes)
            if best[0] == 0 or (stages > best[0] and self.rows > 128):
                best = max(stages, 0), columns
        stages, columns = best
        return (stages if stages >= 2 else 0), columns

    def _staged(self, wide: int, columns: int, result_nbytes: int) -> int:
        """Return the bytes of what an epilogue stages: a slot or two of each role that has one."""
        slots = (2 if self.split == "ping_pong" else 1) * (2 if wide // columns % 2 == 0 else 1)
        return slots * self.rows * columns * result_nbytes


MANNERS: dict[tuple[Split, int, int], Manner] = {
    ("pipelined", 1, 64): Manner(11.9, 1.43, 0.77),
    ("pipelined", 2, 64): Manner(16.2, 1.86, 0.89),
    ("cooperative", 1, 64): Manner(26.4, 2.34, 0.84),
    ("cooperative", 2, 64): Manner(24.4, 2.54, 1.08),
    ("cooperative", 2, 128): Manner(17.3, 2.99, 0.76),
    ("cooperative", 3, 64): Manner(27.0, 3.37, 1.78),
    ("ping_pong", 2, 64): Manner(57.2, 1.90, 1.09),
    ("ping_pong", 2, 128): Manner(38.1, 1.95, 1.05),
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
)  # fmt: skip
"""Tiles that a CTA of an SM computes alone."""
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


def tiles(around: int, m: int, n: int, rows: int, cols: int) -> int:
    """Return how many tiles of so many rows and columns results have."""
    return around * ceil(m / rows) * ceil(n / cols)
