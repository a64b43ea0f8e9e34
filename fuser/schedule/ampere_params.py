"""How to compute a fusion with matrix products by sm_80 instructions, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fuser.errors import ScheduleError
from fuser.schedule.params import (
    MAX_STAGES,
    Meet,
    Partial,
    Prologue,
    Residency,
    check_partial,
    check_prologue,
    check_splits,
)

Observe = Literal["groups", "mbarriers"]
"""How the end of copies is seen: each thread awaits its own groups and all join; or a load role's
copies arrive on mbarriers."""

STRIP = 16
"""Rows of an accumulator that one warp takes.  Source: PTX ISA, "mma.m16n8k16"."""


@dataclass(frozen=True, slots=True)
class AmpereParams:
    """Schedule of a fusion with matrix products by cp.async, ldmatrix and mma.sync.

    Parameters
    ----------
    tile : tuple of int
        Rows (M), columns (N) and depth (K) of a CTA's tile: rows a multiple of 16 for each warp, up
        to 256; columns 8..256 in steps of 8; depth 16, 32 or 64.
    warps : int
        Computing warps, 1..8; strips of 16 rows are dealt to them.
    observe : {"groups", "mbarriers"}
        How the end of copies is seen.
    stages : int
        Slots of the operand rings, 1..8.
    prefetch : int
        K tiles that are loaded ahead of the one multiplied, 0..stages-1; 0 with mbarriers, whose
        load role runs ahead by the stages.
    persistent : bool
        One CTA per SM takes tiles in turn; else one CTA a tile, or `splits` in both cases.
    raster, columns, prologue
        As in `MatmulParams`.
    splits : int
        The same.
    meet : {"vectorized", "scatter", "last"}
        The same.
    residency : {"ticket", "co-resident"}
        The same.
    partial : {"f32", "f16", "bf16"}
        The same.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    tile: tuple[int, int, int]
    warps: int
    observe: Observe
    stages: int
    prefetch: int
    persistent: bool
    raster: int = 8
    columns: int = 64
    prologue: Prologue = "memory"
    splits: int = 1
    meet: Meet = "vectorized"
    residency: Residency = "ticket"
    partial: Partial = "f32"

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        for name in ("warps", "stages", "prefetch", "raster", "columns"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ScheduleError(f"AmpereParams({name}={value!r}): {name} must be an int; use 1")
        if (
            not isinstance(self.tile, tuple)
            or len(self.tile) != 3
            or not all(isinstance(n, int) and n >= 1 for n in self.tile)
        ):
            raise ScheduleError(
                f"AmpereParams(tile={self.tile!r}): need three positive ints, M, N and K; "
                "use tile=(128, 64, 32)"
            )
        if not 1 <= self.warps <= 8:
            raise ScheduleError(f"AmpereParams(warps={self.warps}): need 1..8 warps; use 4")
        self._check_tile()
        if self.observe not in ("groups", "mbarriers"):
            raise ScheduleError(
                f'AmpereParams(observe={self.observe!r}): unknown; use "groups" or "mbarriers"'
            )
        check_prologue("AmpereParams", self.prologue)
        persistent = self.persistent
        check_splits("AmpereParams", self.splits, self.meet, self.residency, persistent=persistent)
        check_partial("AmpereParams", self.partial, self.splits)
        if self.meet in ("tma", "cluster"):
            raise ScheduleError(
                f'AmpereParams(meet="{self.meet}"): sm_80 has no such engine, and no clusters; use '
                'meet="scatter", "last" or "vectorized"'
            )
        if not 1 <= self.stages <= MAX_STAGES:
            raise ScheduleError(
                f"AmpereParams(stages={self.stages}): a ring has 1..{MAX_STAGES} stages; "
                f"use stages={min(max(self.stages, 1), MAX_STAGES)}"
            )
        most = self.stages - 1 if self.observe == "groups" else 0
        if not 0 <= self.prefetch <= most:
            raise ScheduleError(
                f"AmpereParams(stages={self.stages}, prefetch={self.prefetch}, observe="
                f'"{self.observe}"): prefetch must be 0..{most}; use prefetch={most}'
            )
        if self.raster < 1:
            raise ScheduleError(f"AmpereParams(raster={self.raster}): need 1 or more; use 8")

    def _check_tile(self) -> None:
        m, n, k = self.tile
        step = STRIP * self.warps
        if m % step or m > 256:
            near = min(max(m // step, 1) * step, 256 // step * step)
            raise ScheduleError(
                f"AmpereParams(tile={self.tile}, warps={self.warps}): {m} rows; each warp takes "
                f"multiples of {STRIP}, up to 256 in all: use {near} rows"
            )
        if n % 8 or n > 256:
            raise ScheduleError(
                f"AmpereParams(tile={self.tile}): {n} columns; use 8..256 in steps of 8: "
                f"{min(-(-n // 8) * 8, 256)} columns"
            )
        if k not in (16, 32, 64):
            raise ScheduleError(f"AmpereParams(tile={self.tile}): K steps of {k}; use 16, 32 or 64")
        if self.columns < 8 or n % self.columns or self.columns % 8:
            raise ScheduleError(
                f"AmpereParams(tile={self.tile}, columns={self.columns}): the epilogue's columns "
                f"are a multiple of 8 that divides {n}; use columns={n}"
            )
        registers = (m * n + m * k // 2) // (32 * self.warps) + n * k // 64
        if registers > 192:
            raise ScheduleError(
                f"AmpereParams(tile={self.tile}, warps={self.warps}): {registers} registers per "
                "thread for accumulators and operands, at most 192 leave room for the rest; use a "
                "smaller tile or more warps"
            )

    @property
    def load(self) -> str:
        """Mechanism of the operands."""
        return "cp_async"

    @property
    def store(self) -> str:
        """Mechanism of the outputs."""
        return "direct"

    @property
    def family(self) -> str:
        """Name of the schedule family, such as `ampere-groups`; rows of reports."""
        return f"ampere-{self.observe}"
