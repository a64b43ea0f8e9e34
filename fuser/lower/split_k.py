"""How CTAs that share a tile of a product, each a part of its sums, put these together.

One class for each way; statements come without a single sync.  CTAs add to a workspace one after
the other; or they store all their sums, in a workspace, or in shared memory where they are a
cluster, and then each of them adds up some columns of all, or the last-arriving one all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import gcd, prod
from typing import ClassVar

from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq, maximum, minimum
from fuser.kernel import ir as kir
from fuser.lower.tiling import SMS, TILE
from fuser.schedule.params import MAX_SPLITS, Meet, TensorCoreParams

SPLIT, SPLITS = Var("split"), Var("splits")
GROUPS = Var("groups")
"""Groups of CTAs that share tiles, where each takes one tile after the other."""
STAGED = 65_536
"""Bytes of shared memory for sums on their way to other CTAs, at most, unless one slot is more."""
BATCH = 64
"""Registers for sums of other CTAs that a thread loads at a time."""


NewBuffer = Callable[[str, DType, tuple[int, ...], int], kir.Buffer]


@dataclass
class SplitK:
    """No split: a tile has one CTA.  Subclasses are the ways to share it.

    `tiles` are those of the launch; `buffer` returns a new buffer of shared memory, by name, type,
    shape and slots; `workspaces` is what the CTAs of a tile share in global memory.
    """

    params: TensorCoreParams
    tiles: Expr
    buffer: NewBuffer
    workspaces: list[kir.Tensor] = field(default_factory=list)

    split: ClassVar[Expr] = 0
    """Number of a CTA among those of its tile: which steps of K it takes."""
    pooled: ClassVar[bool] = False
    """Whether CTAs store all their sums, so that these come from memory."""
    parted: ClassVar[bool] = False
    """Whether each of them then adds up some columns of all."""

    @property
    def splits(self) -> Expr:
        """CTAs of a tile."""
        return self.params.splits

    def tile(self, ctas: int) -> Expr:
        """Return the number of a CTA's tile, or of that of its cluster of so many tiles."""
        return kir.BLOCK // (ctas * self.splits)

    def takers(self, ctas: int) -> Expr:
        """Return among how many CTAs, or clusters, or groups of CTAs, all tiles are dealt."""
        return kir.GRID // ctas

    def grid(self, ctas: int) -> Expr:
        """Return how many CTAs are launched, in clusters of so many."""
        return self._dealt(ctas) * ctas * self.splits

    def _dealt(self, ctas: int = 1) -> Expr:
        """Return among how many the launch deals the tiles: all at once, or as many as run."""
        if not self.params.persistent:
            return self.tiles
        return minimum(self.tiles, maximum(SMS // (ctas * self.splits), 1))

    def chosen(self, steps: list[Expr]) -> tuple[tuple[Var, Expr], ...]:
        """Return parameters of the kernel that the launch chooses, given steps of every loop."""
        del steps
        return ()

    def begin(self) -> tuple[kir.Stmt, ...]:
        """Return what a CTA does first."""
        return ()

    def requires(self, grid: tuple[Expr, ...], steps: list[Expr]) -> tuple[Expr, ...]:
        """Return the conditions on the grid, given steps of every loop that multiplies."""
        del steps
        return grid

    def steps(self, every: Expr) -> Expr:
        """Return how many steps of a loop a CTA takes: in turn, so that none has nothing to do."""
        return ceildiv(every - self.split, self.splits)

    def reduce(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        """Return what CTAs do with their sums, behind the loops that multiply."""
        del sums
        return []

    def added(self, whole: kir.Fragment, part: kir.Fragment, group: Expr) -> list[kir.Stmt]:
        """Add up a group of columns of all CTAs of a tile, where these are in memory."""
        raise AssertionError(f"{whole.name}: the sums of {part.name}[{group}] lie in registers")

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        """Return a kernel with the facts about its launch that the reduction needs."""
        return kernel

    def partial(self, acc: kir.Fragment) -> DType:
        """Return the type in which sums go from one CTA to another.

        ScheduleError if it does not hold them, or they are rounded wherever they are put together.
        """
        if acc.dtype is DType.F16:
            self.params.refuse(
                "splits",
                "sums of f16 would be rounded in every turn; leave accumulate out, or use splits=1",
            )
        asked = DType.of(self.params.partial)
        if asked is DType.F32:
            return acc.dtype
        if acc.dtype is not DType.F32:
            self.params.refuse(
                "partial",
                f"{acc.name} adds up in {acc.dtype}, only sums of f32 are rounded on their way; "
                "leave partial out",
            )
        return asked


@dataclass
class _InTurns(SplitK):
    """One CTA after the other adds its sums to a workspace; the last one goes on."""

    split: ClassVar[Expr] = SPLIT

    @property
    def splits(self) -> Expr:
        return SPLITS

    @property
    def _groups(self) -> Expr:
        return GROUPS if self.params.persistent else self.tiles

    @property
    def neighbours(self) -> bool:
        """Whether CTAs of one part of K follow one another, rather than those of one tile."""
        return self.params.residency == "co-resident"

    def tile(self, ctas: int) -> Expr:
        """Return the number of the tile that a CTA begins with."""
        return kir.BLOCK % self._groups if self.neighbours else super().tile(ctas)

    def takers(self, ctas: int) -> Expr:
        del ctas
        return self._groups

    def chosen(self, steps: list[Expr]) -> tuple[tuple[Var, Expr], ...]:
        groups = ((GROUPS, self._dealt()),) if self.params.persistent else ()
        if self.splits != SPLITS:
            return groups
        most: Expr = MAX_SPLITS
        if self.neighbours:
            tiles = 1 if self.params.persistent else maximum(self.tiles, 1)
            most = maximum(SMS // tiles, 1)
        splits = minimum(self.params.splits, most)
        for many in steps:
            splits = minimum(splits, many)
        return ((SPLITS, splits), *groups)

    def begin(self) -> tuple[kir.Stmt, ...]:
        number = kir.BLOCK // self._groups if self.neighbours else kir.BLOCK % self.splits
        return (kir.Let(SPLIT, number),)

    def requires(self, grid: tuple[Expr, ...], steps: list[Expr]) -> tuple[Expr, ...]:
        """Return the conditions on the grid: no part of K is empty."""
        if self.params.persistent:
            grid = (eq(kir.GRID, self._groups * self.splits),)
        some = (var >= 1 for var, _ in self.chosen(steps))
        return (*some, *grid, *(many >= self.splits for many in steps))

    def reduce(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        out: list[kir.Stmt] = []
        for acc in sums:
            box = self.workspace(acc, 1, TILE, acc.layout.shape[-1])
            staged = self._staged(acc)
            out.append(kir.GridSum(acc, box, self.semaphore(), TILE, SPLIT, SPLITS, staged))
        return out

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        return replace(
            kernel,
            tensors=(*kernel.tensors, *self.workspaces),
            workspaces=tuple(tensor.name for tensor in self.workspaces),
            semaphores=(self.semaphore(),),
            residency="co-resident" if self.neighbours else "ticket",
        )

    def semaphore(self) -> kir.Semaphore:
        return kir.Semaphore("turns", self.tiles)

    def workspace(self, acc: kir.Fragment, parts: Expr, part: Expr, cols: int) -> kir.Box:
        """Return a place for some columns of sums: one part of so many that each tile has."""
        shape = (*acc.layout.shape[:-1], cols)
        box = workspace(f"W_{acc.name}", self.partial(acc), shape, self.tiles * parts, part)
        if box.tensor not in self.workspaces:
            self.workspaces.append(box.tensor)
        return box

    def _staged(self, acc: kir.Fragment) -> kir.Slot | None:
        """Return where TMA takes sums from, if it does: columns of the epilogue, at best all."""
        if self.params.meet != "tma":
            return None
        shape = (*acc.layout.shape[:-1], self.params.columns)
        many = acc.layout.shape[-1] // shape[-1]
        dtype = self.partial(acc)
        fits = many * prod(shape) * dtype.nbytes <= STAGED
        slots = many if fits else min(self.params.staging, many)
        return kir.Slot(self.buffer(f"S_{acc.name}", dtype, shape, slots), 0)


@dataclass
class _Scatter(_InTurns):
    """Each CTA stores its sums in a workspace, all wait, and each adds up some columns of all.

    How many they are is a number of the kernel, so that nobody asks for it on the way.
    """

    pooled: ClassVar[bool] = True
    parted: ClassVar[bool] = True
    alone: ClassVar[bool] = False

    @property
    def splits(self) -> Expr:
        return self.params.splits

    def reduce(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        out: list[kir.Stmt] = []
        for acc in sums:
            out += stored(acc, self.params.columns, partial(self._of, acc, SPLIT))
            where = self.semaphore(), TILE, self.splits
            out.append(kir.GridShare(f"W_{acc.name}", *where, self.alone))
        return out

    def _of(self, acc: kir.Fragment, split: Expr, group: Expr) -> kir.Box:
        """Return a group of columns of the sums that a CTA of this tile has stored."""
        groups = acc.layout.shape[-1] // self.params.columns
        part = (TILE * self.splits + split) * groups + group
        return self.workspace(acc, self.params.splits * groups, part, self.params.columns)

    def added(self, whole: kir.Fragment, part: kir.Fragment, group: Expr) -> list[kir.Stmt]:
        others, many = self.params.splits - 1, batched(self.params.splits, part)

        def batch(first: Expr, count: int) -> list[kir.Stmt]:
            places = [self._of(whole, first + turn, group) for turn in range(count)]
            return added(part, places)

        out = loaded(part, self._of(whole, 0, group))
        full, left = divmod(others, many)
        if full == 1:
            out += batch(1, many)
        else:
            some = Var("s")
            out.append(kir.ForLoop(some, full, tuple(batch(some * many + 1, many))))
        return [*out, *batch(others - left + 1, left)]

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        made = super().fit(kernel)
        return made if self.neighbours else replace(made, together=self.splits)


@dataclass
class _LastArriving(_Scatter):
    """Each CTA stores its sums in a workspace; the last-arriving one adds up all; nobody waits."""

    parted: ClassVar[bool] = False
    alone: ClassVar[bool] = True

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        made = super().fit(kernel)
        return made if self.neighbours else replace(made, residency="any", together=1)


@dataclass
class _InCluster(SplitK):
    """The CTAs of a tile are a cluster: each adds up some columns of all, from their slots."""

    slots: dict[kir.Fragment, kir.Buffer] = field(default_factory=dict)
    split: ClassVar[Expr] = kir.RANK
    pooled: ClassVar[bool] = True
    parted: ClassVar[bool] = True

    def steps(self, every: Expr) -> Expr:
        """Return as many for all: none waits longer, beyond K are zeros, and all have sums."""
        return ceildiv(every, self.splits)

    def reduce(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        out: list[kir.Stmt] = []
        width = self.params.columns
        for acc in sums:
            *outer, columns = acc.layout.shape
            shape = (*outer, width)
            buffer = self.buffer(f"W_{acc.name}", self.partial(acc), shape, columns // width)
            self.slots[acc] = buffer
            out += stored(acc, width, partial(kir.Slot, buffer))
        return out

    def added(self, whole: kir.Fragment, part: kir.Fragment, group: Expr) -> list[kir.Stmt]:
        buffer, many = self.slots[whole], batched(self.params.splits, part)
        out = loaded(part, kir.Slot(buffer, group, 0))
        for first in range(1, self.params.splits, many):
            ranks = range(first, min(first + many, self.params.splits))
            out += added(part, [kir.Slot(buffer, group, rank) for rank in ranks])
        return out

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        return replace(kernel, cluster=self.params.splits)


def split_k(params: TensorCoreParams, tiles: Expr, buffer: NewBuffer) -> SplitK:
    """Return how the CTAs of a tile put their sums together; parameters are those of `SplitK`."""
    if params.splits == 1:
        return SplitK(params, tiles, buffer)
    ways: dict[Meet, type[SplitK]] = {
        "vectorized": _InTurns,
        "tma": _InTurns,
        "scatter": _Scatter,
        "cluster": _InCluster,
        "last": _LastArriving,
    }
    return ways[params.meet](params, tiles, buffer)


def workspace(name: str, dtype: DType, shape: tuple[int, ...], parts: Expr, part: Expr) -> kir.Box:
    """Return a place for a tile of partial sums: one part of so many in a workspace."""
    *outer, rows, cols = shape
    extents: tuple[Expr, ...] = (*outer, parts * rows, cols)
    strides = (*(0 for _ in outer), cols, int(cols > 1))
    made = kir.Tensor(name, dtype, extents, strides, gcd(16 // dtype.nbytes, cols))
    return kir.Box(made, (*(0 for _ in outer), part * rows, 0), shape, extents)


def stored(
    acc: kir.Fragment, width: int, place: Callable[[int], kir.Box | kir.Slot]
) -> list[kir.Stmt]:
    """Store sums: columns that are added up together lie together, where `place` says."""
    layout = replace(acc.layout, shape=(*acc.layout.shape[:-1], width))
    part = kir.Fragment(f"{acc.name}_mine", acc.dtype, layout)
    out: list[kir.Stmt] = []
    for group in range(acc.layout.shape[-1] // width):
        out.append(kir.Slice(part, acc, group * width))
        out.append(kir.Store(place(group), part, 2))
    return out


def batched(splits: int, part: kir.Fragment) -> int:
    """Return of how many other CTAs the sums are loaded at once: that takes no longer than one."""
    each = max(prod(part.layout.shape) // part.layout.threads, 1)
    return min(splits - 1, max(BATCH // each, 1))


def added(part: kir.Fragment, places: Sequence[kir.Box | kir.Slot]) -> list[kir.Stmt]:
    """Load sums from several places at once, then add them in this order."""
    loads: list[kir.Stmt] = []
    sums: list[kir.Stmt] = []
    for n, place in enumerate(places):
        more = replace(part, name=f"{part.name}_{n}")
        load, *promote = loaded(more, place)
        loads.append(load)
        sums += [*promote, kir.Compute(part, "add", (part, more))]
    return [*loads, *sums]


def loaded(dst: kir.Fragment, src: kir.Box | kir.Slot, width: int | None = None) -> list[kir.Stmt]:
    """Load sums that a CTA has stored, and promote them to the type of `dst` if they have 16 bits.

    Without a `width` an access takes as many elements as a thread has, up to 16 bytes.
    """
    dtype = src.tensor.dtype if isinstance(src, kir.Box) else src.buffer.dtype
    width = width or min(dst.layout.vector, 16 // dtype.nbytes)
    if dtype is dst.dtype:
        return [kir.Load(dst, src, width)]
    narrow = kir.Fragment(f"{dst.name}_{dtype}", dtype, dst.layout)
    return [kir.Load(narrow, src, width), kir.Compute(dst, "promote", (narrow,))]
