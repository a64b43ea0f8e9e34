"""How to compute a fusion with matrix products by sm_80 instructions, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fuser.schedule.params import Meet, Partial, Prologue, Residency, TensorCoreParams

Observe = Literal["groups", "mbarriers", "threads"]
"""How the end of copies is seen: each thread awaits its own groups and all join; or a load role's
copies arrive on mbarriers; or there are none, as threads load what they store in tiles."""

STRIP = 16
"""Rows of an accumulator that one warp takes.  Source: PTX ISA, "mma.m16n8k16"."""


@dataclass(frozen=True, slots=True)
class AmpereParams(TensorCoreParams):
    """Schedule of a fusion with matrix products by cp.async, ldmatrix and mma.sync.

    Parameters
    ----------
    tile : tuple of int
        Rows (M), columns (N) and depth (K) of a CTA's tile: rows a multiple of 16 for each warp, up
        to 256; columns 8..256 in steps of 8; depth 16, 32 or 64.
    warps : int
        Computing warps, 1..8; strips of 16 rows are dealt to them.
    observe : {"groups", "mbarriers", "threads"}
        How the end of copies is seen.  With "threads" operands go through registers, so that their
        rows may begin anywhere; stages are 1.
    stages : int
        Slots of the operand rings, 1..8.
    prefetch : int
        K tiles that are loaded ahead of the one multiplied, 0..stages-1; 0 with mbarriers, whose
        load role runs ahead by the stages; with threads 0, or 1 in registers.
    persistent : bool
        One CTA per SM takes tiles in turn; else one CTA a tile, or `splits` in both cases.
    raster, columns, prologue
        As in `MatmulParams`.
    splits, residency, partial
        The same.
    meet : {"vectorized", "scatter", "last"}
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
        self.check_ints("warps stages prefetch raster columns", use=1)
        self.check_tile("M, N and K", use=(128, 64, 32))
        if not 1 <= self.warps <= 8:
            self.refuse("warps", "need 1..8 warps; use 4")
        m, n, k = self.tile
        self.check_rows("tile warps", "warp", self.warps, STRIP)
        self.check_columns("use")
        if k not in (16, 32, 64):
            self.refuse("tile", f"K steps of {k}; use 16, 32 or 64")
        registers = (m * n + m * k // 2) // (32 * self.warps) + n * k // 64
        if registers > 192:
            self.refuse(
                "tile warps",
                f"{registers} registers per thread for accumulators and operands, at most 192 "
                "leave room for the rest; use a smaller tile or more warps",
            )
        self.check_word("observe", get_args(Observe))
        self.check_shared()
        if self.meet in ("tma", "cluster"):
            self.refuse(
                "meet",
                "sm_80 has no such engine, and no clusters; use "
                'meet="scatter", "last" or "vectorized"',
            )
        if self.observe == "threads" and self.stages > 1:
            self.refuse("stages observe", "threads load a tile when they need it; use stages=1")
        most = {"groups": self.stages - 1, "mbarriers": 0, "threads": 1}[self.observe]
        if not 0 <= self.prefetch <= most:
            why = f"prefetch must be 0..{most}; use prefetch={most}"
            self.refuse("stages prefetch observe", why)

    @property
    def load(self) -> str:
        """Mechanism of the operands."""
        return "direct" if self.observe == "threads" else "cp_async"

    @property
    def family(self) -> str:
        """Name of the schedule family, such as `ampere-groups`; rows of reports."""
        return f"ampere-{self.observe}"
