"""How to compute a fusion, as plain data: the one form of a schedule."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, NoReturn, get_args

from fuser.errors import ScheduleError
from fuser.fusion.ir import Meet as Meet

Mechanism = Literal["direct", "tma"]
"""How tiles cross between global memory and the CTA: ordinary accesses, or the TMA engine."""

Arrival = Literal["direct", "tma", "bulk", "cp_async"]
"""How inputs come to the CTA: as `Mechanism`; by bulk copies of runs of memory; or by copies of
each thread that run on while it computes."""

Prologue = Literal["memory", "registers"]
"""Where an operand that is computed from other tensors comes from."""

COUNTED: tuple[Meet, ...] = ("scatter", "last")
"""Ways to put sums together for which a kernel of a product is made for a number of CTAs."""
Residency = Literal["ticket", "co-resident"]
"""Why CTAs may wait for each other: those of a tile draw numbers one after the other as they start;
or the launch runs all CTAs at once, or none."""
Partial = Literal["f32", "f16", "bf16"]
"""Type of sums on their way from one CTA to another."""
MECHANISM: tuple[Mechanism, ...] = get_args(Mechanism)
ARRIVAL: tuple[Arrival, ...] = get_args(Arrival)
PROLOGUE: tuple[Prologue, ...] = get_args(Prologue)
MEET: tuple[Meet, ...] = get_args(Meet)
RESIDENCY: tuple[Residency, ...] = get_args(Residency)
PARTIAL: tuple[Partial, ...] = get_args(Partial)
"""All values of each."""

MAX_STAGES = 8
MAX_WARPS = 16
"""Warps of a CTA that computes tiles; those with whole rows have twice as many."""
MAX_SPLITS = 64
"""CTAs that share a tile of a result, at most."""
MAX_REDUCTION_SPLITS = 1024
"""The same for reductions, whose tiles of results are small, and few where all of a tensor is
reduced."""
MAX_BOX = 256
"""Elements of a TMA box along one axis.  Source: CUDA driver API, cuTensorMapEncodeTiled."""


MAX_HELD = 128
"""Elements of a row that a thread holds, at most: 16-bit ones are packed, 64 registers."""


class Checked:
    """Params that refuse a value out of its range, or two that contradict each other."""

    __slots__ = ()

    tile: tuple[int, ...]
    stages: int

    def refuse(self, names: str, why: str) -> NoReturn:
        """Raise a ScheduleError that shows some fields as the user wrote them."""
        values = ((name, getattr(self, name)) for name in names.split())
        given = (f'{n}="{v}"' if isinstance(v, str) else f"{n}={v!r}" for n, v in values)
        raise ScheduleError(f"{type(self).__name__}({', '.join(given)}): {why}")

    def check_ints(self, names: str, use: int) -> None:
        """Refuse fields that are no ints."""
        for name in names.split():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                self.refuse(name, f"{name} must be an int; use {use}")

    def check_word(self, name: str, words: tuple[str, ...], what: str = "unknown") -> None:
        """Refuse a field that is none of some words."""
        if getattr(self, name) not in words:
            *most, last = (f'"{word}"' for word in words)
            self.refuse(name, f"{what}; use {', '.join(most)} or {last}")

    def check_tile(self, axes: str, use: tuple[int, ...]) -> None:
        """Refuse a tile that has not a positive int for each of its axes."""
        tile = self.tile
        whole = isinstance(tile, tuple) and len(tile) == len(use)
        if not whole or not all(isinstance(n, int) and n >= 1 for n in tile):
            many = {2: "two", 3: "three"}[len(use)]
            self.refuse("tile", f"need {many} positive ints, {axes}; use tile={use}")

    def check_stages(self) -> None:
        """Refuse a ring of no slots, or of too many."""
        near = min(max(self.stages, 1), MAX_STAGES)
        if near != self.stages:
            self.refuse("stages", f"a ring has 1..{MAX_STAGES} stages; use stages={near}")


@dataclass(frozen=True, slots=True)
class PointwiseParams(Checked):
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
    load : {"direct", "tma", "bulk", "cp_async"}
        Mechanism of the inputs: those that TMA can take, or bulk copies of one axis in whole tiles,
        or cp.async, 4 to 16 bytes at a time; the rest, and what is left of the axis, are loaded
        directly.
    store : {"direct", "tma"}
        Mechanism of the outputs.
    stages : int
        Slots of every input ring, 1..8; shared memory grows by that factor.
    prefetch : int
        Tiles loaded ahead of the one computed, 0..stages-1; without warp specialisation only.
    warp_specialized : bool
        A load role of one warp (of two, by cp.async) beside the computing warps, which it runs
        ahead of by `stages`.
    flat : bool
        Walk all axes as one, row ends or not; tensors without some of them are loaded by index.
    transpose : bool
        Rows of a tile lie along the axis that is fastest in tensors whose neighbours in memory are
        not those of its columns; these tensors go through shared memory, where their tiles are
        transposed.  Kernels without reductions only.
    overlay : bool
        Buffers whose lives are apart share bytes: what a tile needs behind its ring lies in that.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    tile: tuple[int, int]
    vector: int
    warps: int
    ctas_per_sm: int | None
    load: Arrival
    store: Mechanism
    stages: int = 1
    prefetch: int = 0
    warp_specialized: bool = False
    flat: bool = False
    transpose: bool = False
    overlay: bool = False

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        self.check_ints("vector warps stages prefetch", use=4)
        self.check_tile("rows and columns", use=(1, 2048))
        rows, cols = self.tile
        if self.vector not in (1, 2, 4, 8, 16):
            self.refuse("vector", "need 1, 2, 4, 8 or 16 elements; use 8")
        if cols % self.vector:
            near = cols + -cols % self.vector
            why = f"{self.vector} does not divide {cols} columns; use {near} columns"
            self.refuse("tile vector", why)
        if rows * cols > 1 << 16:
            why = f"{rows * cols} elements, a tile has at most 65536; use fewer rows"
            self.refuse("tile", why)
        if not 1 <= self.warps <= MAX_WARPS:
            self.refuse("warps", f"need 1..{MAX_WARPS} warps; use 8")
        if self.transpose and rows % self.vector:
            near = rows + -rows % self.vector
            why = f"tiles are transposed, and {self.vector} does not divide {rows} rows; use {near}"
            self.refuse("tile vector transpose", f"{why} rows")
        per_thread = rows * cols // (32 * self.warps)
        if per_thread > 64:
            self.refuse(
                "tile warps",
                f"{per_thread} elements per thread, at most 64 fit its registers; use more warps "
                "or a smaller tile",
            )
        self.check_ctas()
        self.check_word("load", ARRIVAL, "unknown mechanism")
        self.check_word("store", MECHANISM, "unknown mechanism")
        if "tma" in (self.load, self.store) and max(rows, cols) > MAX_BOX:
            fits = (min(rows, MAX_BOX), min(cols, MAX_BOX))
            why = f"a TMA box has at most {MAX_BOX} elements per axis; use tile={fits}"
            self.refuse("tile", why)
        self.check_stages()
        most = self.stages - 1
        if not 0 <= self.prefetch <= most:
            self.refuse("stages prefetch", f"prefetch must be 0..{most}; use prefetch={most}")
        if self.load == "direct" and (self.stages, self.warp_specialized) != (1, False):
            self.refuse(
                "load stages warp_specialized",
                'direct loads have no ring; use stages=1, warp_specialized=False, or load="tma"',
            )
        if self.load == "bulk" and rows > 1:
            why = f'bulk copies take runs of one axis; use tile=(1, {cols}), or load="tma"'
            self.refuse("load tile", why)
        if self.flat and rows > 1:
            why = f"one axis has no rows of tiles; use tile=(1, {cols})"
            self.refuse("tile flat", why)
        if self.warp_specialized and self.prefetch:
            why = "the load role runs ahead by its stages; use prefetch=0"
            self.refuse("warp_specialized prefetch", why)

    def check_ctas(self) -> None:
        """Refuse a number of CTAs that no SM runs at once."""
        many = self.ctas_per_sm
        if many is not None and not (isinstance(many, int) and 1 <= many <= 32):
            self.refuse("ctas_per_sm", "need 1..32 or None; use 4")

    @property
    def family(self) -> str:
        """Name of the schedule family, such as `tma-specialized/tma`; rows of reports."""
        if self.load == "direct":
            return f"direct/{self.store}"
        kind = "specialized" if self.warp_specialized else "pipelined"
        return f"{self.load}-{kind}/{self.store}"


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
        the last-arriving one puts all of them together, in their order.

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
        check_splits(self, self.splits, self.meet, MAX_REDUCTION_SPLITS)
        if self.meet not in ("vectorized", "tma", "last"):
            self.refuse(
                "meet",
                "results of reductions are kilobytes, which nobody shares out; use "
                'meet="vectorized", "tma" or "last"',
            )
        if self.splits > 1 and self.ctas_per_sm is not None:
            why = "CTAs with one tile each share it; use ctas_per_sm=None, or splits=1"
            self.refuse("splits ctas_per_sm", why)
        if self.splits > 1 and self.warp_specialized:
            self.refuse(
                "splits warp_specialized",
                "CTAs put results together with all their warps; use warp_specialized=False, or "
                "splits=1",
            )

    @classmethod
    def sharing(cls, plain: PointwiseParams, splits: int, meet: Meet) -> ReductionParams:
        """Return params by which so many CTAs share a tile, one tile each."""
        given = {field.name: getattr(plain, field.name) for field in fields(PointwiseParams)}
        return cls(**given | {"ctas_per_sm": None}, splits=splits, meet=meet)

    def pointwise(self) -> PointwiseParams:
        """Return what a kernel without reductions takes of it."""
        names = (field.name for field in fields(PointwiseParams))
        return PointwiseParams(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True, slots=True)
class NormParams(PointwiseParams):
    """Schedule of a fusion that reduces rows and broadcasts the results back: a softmax, a norm.

    One kernel reads every input once and has whole rows in registers; kernels of another kind take
    the default.

    Parameters
    ----------
    tile : tuple of int
        Rows of a CTA at a time, and its columns: at least as many as a row has elements.
    lanes : int
        Threads that share a row: 1, 2, 4, 8, 16 or whole warps; those of a CTA are a multiple.
    recompute : bool
        Compute from the inputs again what was computed before a reduction, rather than keep it in
        registers.
    reload : bool
        And load them again from the slots of their rings, which hold them until the results are
        there; no direct loads, and ``recompute=True``.
    hold : bool
        Load columns, such as weights, before all rows and hold them in registers, rather than load
        them for each tile once its rows are reduced.
    resident : int
        CTAs, 1..32, that an SM is to have registers for at once.
    cluster : {1, 2, 4, 8}
        CTAs that share rows, each with as many columns as the tile has.
    slide : bool
        Read rows that begin anywhere by whole vectors of 16 bytes, wherever these begin in a row:
        sums of one tensor, nothing else of its rows.  Direct loads, no cluster.
    tiles_per_cta : int
        Beyond 1, kernels begin reductions of all their rows, such as gradients of weights: a CTA
        has up to so many tiles, whatever `ctas_per_sm`, and leaves a part, which another kernel
        ends.
    load : {"direct", "cp_async", "bulk"}
        Mechanism of the inputs that have whole rows; by cp.async, or by bulk copies of one row a
        tile, those of the next `prefetch` tiles are on their way while one is computed, in rings of
        `stages` slots.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    lanes: int = 32
    recompute: bool = False
    resident: int = 1
    reload: bool = False
    hold: bool = True
    cluster: int = 1
    slide: bool = False
    tiles_per_cta: int = 1

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        self.check_ints("vector warps stages prefetch lanes resident tiles_per_cta", use=4)
        self.check_tile("rows and columns", use=(1, 2048))
        rows, cols = self.tile
        if self.vector not in (1, 2, 4, 8, 16):
            self.refuse("vector", "need 1, 2, 4, 8 or 16 elements; use 8")
        if not 1 <= self.warps <= 32:
            self.refuse("warps", "need 1..32 warps; use 8")
        threads = check_lanes(self, self.lanes, self.warps)
        groups, step = threads // self.lanes, self.lanes * self.vector
        if rows % groups:
            self.refuse(
                "tile lanes warps",
                f"{threads} threads are {groups} times {self.lanes}, which take rows in turn; use "
                f"{rows + -rows % groups} rows",
            )
        if cols % step:
            self.refuse(
                "tile vector lanes",
                f"{self.lanes} threads take {self.vector} elements of a row at a time; use "
                f"{cols + -cols % step} columns",
            )
        if rows * cols // threads > MAX_HELD:
            self.refuse(
                "tile warps",
                f"{rows * cols // threads} elements per thread, at most {MAX_HELD} fit its "
                "registers; use more warps or a smaller tile",
            )
        self.check_ctas()
        if self.tiles_per_cta < 1:
            self.refuse("tiles_per_cta", "a CTA has a tile, or several; use tiles_per_cta=1")
        if self.reload and (self.load == "direct" or not self.recompute):
            why = "only slots of rings are loaded again, for what is computed again; use load="
            self.refuse("reload load recompute", f'{why}"cp_async" and recompute=True')
        if self.load == "bulk" and rows > 1:
            why = f"bulk copies take one row; use tile=(1, {cols}) and lanes={threads}"
            self.refuse("tile load", f'{why}, or load="cp_async"')
        if self.cluster not in (1, 2, 4, 8):
            self.refuse("cluster", "1, 2, 4 or 8 CTAs share rows; use cluster=4")
        if self.slide and (self.cluster > 1 or self.load != "direct" or self.vector < 2):
            self.refuse(
                "slide vector cluster load",
                "vectors of rows that begin anywhere are loaded by threads, of one CTA; use "
                'vector=8, cluster=1, load="direct"',
            )
        most = min(32, 2048 // threads)
        if not 1 <= self.resident <= most:
            self.refuse("resident warps", f"an SM has 1..{most} CTAs of {threads} threads; use 1")
        self.check_word("load", ("direct", "cp_async", "bulk"), "unknown mechanism")
        self.check_word("store", ("direct",), "unknown mechanism")
        self.check_stages()
        most = self.stages - 1
        if not 0 <= self.prefetch <= most:
            self.refuse("stages prefetch", f"prefetch must be 0..{most}; use prefetch={most}")
        if self.warp_specialized:
            self.refuse("warp_specialized", "all warps have rows; use warp_specialized=False")
        if self.load == "direct" and self.stages != 1:
            why = 'direct loads have no ring; use stages=1, or load="cp_async"'
            self.refuse("load stages", why)

    @property
    def columns(self) -> int:
        """Elements of the longest row."""
        return self.tile[1] * self.cluster - (self.vector - 1 if self.slide else 0)

    @property
    def family(self) -> str:
        """Name of the schedule family; rows of reports."""
        how = "cluster" if self.cluster > 1 else self.load
        return f"norm-{how}/direct"


@dataclass(frozen=True, slots=True)
class ScanParams(PointwiseParams):
    """Schedule of a fusion with scans: a CTA walks along its rows (or columns), tile by tile.

    Kernels of another kind take the default.

    Parameters
    ----------
    tile : tuple of int
        Rows and columns of the tile that a CTA scans at a time.  Where scans run down columns, as
        many elements in other rows: each thread has `vector` columns of its own.
    lanes : int
        Threads that share a row, each of which has `vector` neighbours of it: 1, 2, 4, 8, 16 or
        whole warps; those of a CTA are a multiple.
    load : {"direct", "tma", "cp_async"}
        Mechanism of the inputs; with a ring the next tiles of a row are on their way while one is
        scanned.
    store : {"direct"}
        Mechanism of the outputs.

    Raises
    ------
    ScheduleError
        If a value is out of its range, or two contradict each other.
    """

    lanes: int = 32

    def __post_init__(self) -> None:
        """Check every range and every contradiction."""
        PointwiseParams.__post_init__(self)  # super() finds no class in one made anew for slots
        self.check_ints("lanes", use=32)
        threads = check_lanes(self, self.lanes, self.warps)
        (rows, cols), groups = self.tile, threads // self.lanes
        if cols != self.lanes * self.vector:
            self.refuse(
                "tile vector lanes",
                f"{self.lanes} threads have {self.vector} neighbours each; use "
                f"{self.lanes * self.vector} columns",
            )
        if rows % groups:
            self.refuse(
                "tile lanes warps",
                f"{threads} threads are {groups} times {self.lanes}, which take rows in turn; use "
                f"{rows + -rows % groups} rows",
            )
        self.check_word("load", ("direct", "tma", "cp_async"), "unknown mechanism")
        self.check_word("store", ("direct",), "unknown mechanism")
        if self.flat or self.transpose:
            self.refuse("flat transpose", "scans run along rows; use False for both")

    @property
    def family(self) -> str:
        """Name of the schedule family; rows of reports."""
        if self.load == "direct":
            return "scan-direct/direct"
        kind = "specialized" if self.warp_specialized else "pipelined"
        return f"scan-{self.load}-{kind}/direct"

    @property
    def down(self) -> ScanParams:
        """What a kernel takes of it whose scans run down columns.

        ScheduleError if TMA is asked for, and there are more threads than a box has columns.
        """
        threads, vector = 32 * self.warps, self.vector
        if self.load == "tma":
            while threads * vector > MAX_BOX and vector > 1:
                vector //= 2
            if threads > MAX_BOX:
                why = f"{threads} threads scan a column each, a TMA box has {MAX_BOX}; use warps=8"
                self.refuse("warps load", why)
        cols, (rows, have) = threads * vector, self.tile
        return replace(self, tile=(rows * have // cols, cols), vector=vector, lanes=threads)


def largest_divisor(number: int, most: int) -> int:
    """Return the largest number of 1..`most` that divides `number`; of 0 that is `most`."""
    return next(n for n in range(most, 0, -1) if number % n == 0)


def check_lanes(params: Checked, lanes: int, warps: int) -> int:
    """Refuse threads of a row that those of a CTA are no multiple of; return the latter."""
    threads = 32 * warps
    whole = lanes in (1, 2, 4, 8, 16) or (lanes > 0 and lanes % 32 == 0)
    if not whole or threads % lanes:
        params.refuse(
            "lanes warps",
            "threads of a row are 1, 2, 4, 8, 16 or whole warps, and those of a CTA a multiple "
            f"of them; use lanes={min(32, threads)}",
        )
    return threads


def check_splits(params: Checked, splits: object, meet: str, most: int) -> None:
    """Refuse a number of CTAs that share a tile, or an unknown way to put their sums together."""
    if not isinstance(splits, int) or isinstance(splits, bool) or not 1 <= splits <= most:
        params.refuse("splits", f"1..{most} CTAs share a tile; use splits=4")
    params.check_word("meet", MEET)


class TensorCoreParams(Checked):
    """What schedules of fusions with matrix products have in common, for Hopper and for Ampere."""

    __slots__ = ()

    tile: tuple[int, int, int]
    prefetch: int
    persistent: bool
    raster: int
    columns: int
    prologue: Prologue
    splits: int
    meet: Meet
    residency: Residency
    partial: Partial

    @property
    def transpose(self) -> bool:
        """Whether rows of a tile lie along the columns of the result."""
        return False

    @property
    def covers(self) -> tuple[int, int, int]:
        """Rows and columns of a result that a tile has, and its depth."""
        rows, columns, depth = self.tile
        return (columns, rows, depth) if self.transpose else self.tile

    @property
    def store(self) -> Mechanism:
        """Mechanism of the outputs."""
        return "direct"

    @property
    def staging(self) -> int:
        """Slots, at most, in which columns of a result wait for TMA to store them."""
        return 1

    @property
    def cluster(self) -> tuple[int, int]:
        """CTAs of a cluster along rows and columns of tiles."""
        return (1, 1)

    @property
    def overlay(self) -> bool:
        """Whether buffers whose lives are apart share bytes."""
        return False

    @property
    def resident(self) -> int:
        """CTAs that an SM is to have registers for at once."""
        return 1

    def check_rows(self, names: str, each: str, share: int, least: int) -> None:
        """Refuse rows that cannot be dealt to so many, each taking multiples of `least`."""
        m, step = self.tile[0], least * share
        if m % step or m > 256:
            near = min(max(m // step, 1) * step, 256 // step * step)
            self.refuse(
                names,
                f"{m} rows; each {each} takes multiples of {least}, up to 256 in all: use "
                f"{near} rows",
            )

    def check_columns(self, who: str) -> None:
        """Refuse columns of a tile, or of the epilogue, that no product has."""
        n = self.tile[1]
        if n % 8 or n > 256:
            near = min(-(-n // 8) * 8, 256)
            self.refuse("tile", f"{n} columns; {who} 8..256 in steps of 8: use {near} columns")
        if self.columns < 8 or n % self.columns or self.columns % 8:
            self.refuse(
                "tile columns",
                f"the epilogue's columns are a multiple of 8 that divides {n}; use columns={n}",
            )

    def check_shared(self) -> None:
        """Refuse what neither kind of schedule has."""
        self.check_word("prologue", PROLOGUE)
        self.check_stages()
        if self.raster < 1:
            self.refuse("raster", "need 1 or more; use 8")
        check_splits(self, self.splits, self.meet, MAX_SPLITS)
        if self.splits > 1 and self.persistent and self.meet in ("cluster", "last"):
            self.refuse(
                "splits meet persistent",
                'CTAs with one tile each share it; use meet="scatter", or persistent=False',
            )
        self.check_word("residency", RESIDENCY)
        self.check_word("partial", PARTIAL)
        if self.partial != "f32" and self.splits == 1:
            why = 'one CTA hands no sums on; use splits=2, or partial="f32"'
            self.refuse("partial splits", why)
