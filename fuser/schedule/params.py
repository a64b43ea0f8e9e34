"""How to compute a fusion, as plain data: the one form of a schedule."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from fuser.errors import ScheduleError
from fuser.fusion.ir import Meet as Meet

Mechanism = Literal["direct", "tma"]
"""How tiles cross between global memory and the CTA: ordinary accesses, or the TMA engine."""

Prologue = Literal["memory", "registers"]
"""Where an operand that is computed from other tensors comes from."""

MEET: tuple[Meet, ...] = ("vectorized", "tma", "scatter", "cluster", "last")
"""The ways in which CTAs meet."""
COUNTED: tuple[Meet, ...] = ("scatter", "last")
"""Those for which a kernel of a product is made for a number of CTAs."""
Residency = Literal["ticket", "co-resident"]
"""Why CTAs may wait for each other: those of a tile draw numbers one after the other as they start;
or the launch runs all CTAs at once, or none."""
RESIDENCY: tuple[Residency, ...] = ("ticket", "co-resident")
"""Both of them."""
Partial = Literal["f32", "f16", "bf16"]
"""Type of sums on their way from one CTA to another."""
PARTIAL: tuple[Partial, ...] = ("f32", "f16", "bf16")
"""All of them."""

MAX_STAGES = 8
MAX_SPLITS = 64
"""CTAs that share a tile of a result, at most."""
MAX_REDUCTION_SPLITS = 256
"""The same for reductions, whose tiles of results are small, and few where all of a tensor is
reduced."""
MAX_BOX = 256
"""Elements of a TMA box along one axis.  Source: CUDA driver API, cuTensorMapEncodeTiled."""


@dataclass(frozen=True, slots=True)
class PointwiseParams:
    """Schedule of a pointwise fusion.

    Parameters
    ----------
    tile : tuple of int
        Rows and columns of the tile that one CTA computes at a time.
    vector : int
        Elements that a thread holds next to each other: 1, 2, 4, 8 or 16.
    warps : int
        Computing warps per CTA, 1..16.
    ctas_per_sm : int or None
        CTAs launched per SM, each taking tiles in turn (persistent); None launches one CTA a tile.
    load, store : {"direct", "tma"}
        Mechanism of the inputs (those that TMA can take; the rest are loaded directly) and outputs.
    stages : int
        Slots of every input ring, 1..8; shared memory grows by that factor.
    prefetch : int
        Tiles loaded ahead of the one computed, 0..stages-1; without warp specialisation only.
    warp_specialized : bool
        A load role of one warp beside the computing warps, which it runs ahead of by `stages`.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    tile: tuple[int, int]
    vector: int
    warps: int
    ctas_per_sm: int | None
    load: Mechanism
    store: Mechanism
    stages: int = 1
    prefetch: int = 0
    warp_specialized: bool = False

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        for name in ("vector", "warps", "stages", "prefetch"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ScheduleError(f"{self._name}({name}={value!r}): {name} must be an int; use 4")
        if (
            not isinstance(self.tile, tuple)
            or len(self.tile) != 2
            or not all(isinstance(n, int) and n >= 1 for n in self.tile)
        ):
            raise ScheduleError(
                f"{self._name}(tile={self.tile!r}): need two positive ints, rows and columns; "
                "use tile=(1, 2048)"
            )
        rows, cols = self.tile
        if self.vector not in (1, 2, 4, 8, 16):
            raise ScheduleError(
                f"{self._name}(vector={self.vector}): need 1, 2, 4, 8 or 16 elements; use 8"
            )
        if cols % self.vector:
            raise ScheduleError(
                f"{self._name}(tile={self.tile}, vector={self.vector}): {self.vector} does not "
                f"divide {cols} columns; use {cols + -cols % self.vector} columns"
            )
        if rows * cols > 1 << 16:
            raise ScheduleError(
                f"{self._name}(tile={self.tile}): {rows * cols} elements, a tile has at most "
                "65536; use fewer rows"
            )
        if not 1 <= self.warps <= 16:
            raise ScheduleError(f"{self._name}(warps={self.warps}): need 1..16 warps; use 8")
        per_thread = rows * cols // (32 * self.warps)
        if per_thread > 64:
            raise ScheduleError(
                f"{self._name}(tile={self.tile}, warps={self.warps}): {per_thread} elements per "
                f"thread, at most 64 fit its registers; use more warps or a smaller tile"
            )
        if self.ctas_per_sm is not None and not (
            isinstance(self.ctas_per_sm, int) and 1 <= self.ctas_per_sm <= 32
        ):
            raise ScheduleError(
                f"{self._name}(ctas_per_sm={self.ctas_per_sm!r}): need 1..32 or None; use 4"
            )
        for name in ("load", "store"):
            if getattr(self, name) not in ("direct", "tma"):
                raise ScheduleError(
                    f"{self._name}({name}={getattr(self, name)!r}): unknown mechanism; "
                    'use "direct" or "tma"'
                )
        self._check_ring()

    def _check_ring(self) -> None:
        rows, cols = self.tile
        if "tma" in (self.load, self.store) and max(rows, cols) > MAX_BOX:
            raise ScheduleError(
                f"{self._name}(tile={self.tile}): a TMA box has at most {MAX_BOX} elements per "
                f"axis; use tile=({min(rows, MAX_BOX)}, {min(cols, MAX_BOX)})"
            )
        if not 1 <= self.stages <= MAX_STAGES:
            raise ScheduleError(
                f"{self._name}(stages={self.stages}): a ring has 1..{MAX_STAGES} stages; "
                f"use stages={min(max(self.stages, 1), MAX_STAGES)}"
            )
        if not 0 <= self.prefetch < self.stages:
            raise ScheduleError(
                f"{self._name}(stages={self.stages}, prefetch={self.prefetch}): prefetch must "
                f"be 0..{self.stages - 1}; use prefetch={self.stages - 1}"
            )
        if self.load == "direct" and (self.stages, self.warp_specialized) != (1, False):
            raise ScheduleError(
                f'{self._name}(load="direct", stages={self.stages}, warp_specialized='
                f"{self.warp_specialized}): direct loads have no ring; use stages=1, "
                'warp_specialized=False, or load="tma"'
            )
        if self.warp_specialized and self.prefetch:
            raise ScheduleError(
                f"{self._name}(warp_specialized=True, prefetch={self.prefetch}): the load role "
                "runs ahead by its stages; use prefetch=0"
            )

    @property
    def _name(self) -> str:
        """Name of the class, for error messages."""
        return type(self).__name__

    @property
    def family(self) -> str:
        """Name of the schedule family, such as `tma-specialized/tma`; rows of reports."""
        if self.load == "direct":
            return f"direct/{self.store}"
        kind = "specialized" if self.warp_specialized else "pipelined"
        return f"tma-{kind}/{self.store}"


@dataclass(frozen=True, slots=True)
class ReductionParams(PointwiseParams):
    """Schedule of a fusion with reductions; its pointwise kernels take what both have.

    Parameters
    ----------
    splits : int
        CTAs that share a tile of results, 1..256: each reduces a part; fewer where the reduced axis
        has not so many steps.  ``ctas_per_sm=None`` and no warp specialisation.
    meet : {"vectorized", "tma", "last"}
        How they do: in turns, all threads load, put together and store the results so far; or the
        TMA engine adds to them, sums and means in f32 and i64 only; or each CTA stores its own, and
        the last one to come puts all of them together, in their order.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    splits: int = 1
    meet: Meet = "vectorized"

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        PointwiseParams.__post_init__(self)  # super() finds no class in one made anew for slots
        check_splits("ReductionParams", self.splits, self.meet, most=MAX_REDUCTION_SPLITS)
        if self.meet not in ("vectorized", "tma", "last"):
            raise ScheduleError(
                f'ReductionParams(meet="{self.meet}"): results of reductions are kilobytes, which '
                'nobody shares out; use meet="vectorized", "tma" or "last"'
            )
        if self.splits > 1 and self.ctas_per_sm is not None:
            raise ScheduleError(
                f"ReductionParams(splits={self.splits}, ctas_per_sm={self.ctas_per_sm}): CTAs with "
                "one tile each share it; use ctas_per_sm=None, or splits=1"
            )
        if self.splits > 1 and self.warp_specialized:
            raise ScheduleError(
                f"ReductionParams(splits={self.splits}, warp_specialized=True): CTAs meet with all "
                "their warps; use warp_specialized=False, or splits=1"
            )

    def pointwise(self) -> PointwiseParams:
        """Return what a kernel without reductions takes of it."""
        names = (field.name for field in fields(PointwiseParams))
        return PointwiseParams(**{name: getattr(self, name) for name in names})


def check_prologue(params: str, prologue: str) -> None:
    """Refuse an unknown place of computed operands.

    Raises
    ------
    ScheduleError
        Naming the params.
    """
    if prologue not in ("memory", "registers"):
        raise ScheduleError(
            f'{params}(prologue={prologue!r}): unknown; use "memory" or "registers"'
        )


def check_splits(
    params: str,
    splits: int,
    meet: str,
    residency: str = "ticket",
    *,
    persistent: bool = False,
    most: int = MAX_SPLITS,
) -> None:
    """Refuse a number of CTAs that share a tile, a way for them to meet, or why they may.

    Raises
    ------
    ScheduleError
        Naming the params.
    """
    if not isinstance(splits, int) or isinstance(splits, bool) or not 1 <= splits <= most:
        raise ScheduleError(
            f"{params}(splits={splits!r}): 1..{most} CTAs share a tile; use splits=4"
        )
    if meet not in MEET:
        words = ", ".join(f'"{one}"' for one in MEET)
        raise ScheduleError(f"{params}(meet={meet!r}): unknown; use one of {words}")
    if splits > 1 and persistent and meet in ("cluster", "last"):
        raise ScheduleError(
            f'{params}(splits={splits}, meet="{meet}", persistent=True): CTAs with one tile each '
            'share it; use meet="scatter", or persistent=False'
        )
    if residency not in RESIDENCY:
        words = ", ".join(f'"{one}"' for one in RESIDENCY)
        raise ScheduleError(f"{params}(residency={residency!r}): unknown; use one of {words}")


def check_partial(params: str, partial: str, splits: int) -> None:
    """Refuse an unknown type of partial sums, and one where there are none.

    Raises
    ------
    ScheduleError
        Naming the params.
    """
    if partial not in PARTIAL:
        words = ", ".join(f'"{one}"' for one in PARTIAL)
        raise ScheduleError(f"{params}(partial={partial!r}): unknown; use one of {words}")
    if partial != "f32" and splits == 1:
        raise ScheduleError(
            f'{params}(partial="{partial}", splits=1): one CTA hands no sums on; use splits=2, '
            'or partial="f32"'
        )
