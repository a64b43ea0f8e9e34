"""How CTAs that share a tile of a product, each a part of its sums, put these together.

One class for each way; statements come without a single sync.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import gcd, prod

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams

TILE = Var("tile")
SPLIT, SPLITS = Var("split"), Var("splits")
GROUPS = Var("groups")
"""Groups of CTAs that share tiles, where each takes one tile after the other."""
STAGED = 65_536
"""Bytes of shared memory for sums on their way to other CTAs, at most, unless one slot is more."""


NewBuffer = Callable[[str, DType, tuple[int, ...], int], kir.Buffer]


@dataclass
class Meeting:
    """Nobody to meet: a tile has one CTA.  Subclasses are the ways to share it.

    Parameters
    ----------
    params : MatmulParams or AmpereParams
        How many CTAs share a tile, and columns of the epilogue.
    tiles : Expr
        Tiles of the launch.
    buffer : callable
        Returns a new buffer of shared memory, by name, type, shape and slots.
    workspaces : list of Tensor
        What the CTAs of a tile share in global memory.
    """

    params: MatmulParams | AmpereParams
    tiles: Expr
    buffer: NewBuffer
    workspaces: list[kir.Tensor] = field(default_factory=list)

    @property
    def split(self) -> Expr:
        """Number of a CTA among those of its tile: which steps of K it takes."""
        return 0

    @property
    def splits(self) -> Expr:
        """CTAs of a tile."""
        return 1

    @property
    def variables(self) -> tuple[Var, ...]:
        """Parameters of the kernel that say how many they are."""
        return ()

    @property
    def pooled(self) -> bool:
        """Whether CTAs store all their sums, so that these come from memory."""
        return self.parted

    @property
    def parted(self) -> bool:
        """Whether each of them then adds up some columns of all."""
        return False

    def tile(self, ctas: int) -> Expr:
        """Return the number of a CTA's tile, or of that of its cluster of so many tiles."""
        return kir.BLOCK // (ctas * self.splits)

    def takers(self, ctas: int) -> Expr:
        """Return among how many CTAs, or clusters, or groups of CTAs, all tiles are dealt."""
        return kir.GRID // ctas

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

    def meet(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        """Return what CTAs do with their sums, behind the loops that multiply."""
        del sums
        return []

    def added(self, whole: kir.Fragment, part: kir.Fragment, group: Expr) -> list[kir.Stmt]:
        """Add up a group of columns of all CTAs of a tile, where these are in memory."""
        raise AssertionError(f"{whole.name}: the sums of {part.name}[{group}] lie in registers")

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        """Return a kernel with the facts about its launch that the meeting needs."""
        return kernel

    def partial(self, acc: kir.Fragment) -> DType:
        """Return the type in which sums go from one CTA to another.

        Raises
        ------
        ScheduleError
            If it does not hold them.
        """
        asked = DType.of(self.params.partial)
        if asked is DType.F32:
            return acc.dtype
        if acc.dtype is not DType.F32:
            raise ScheduleError(
                f'{type(self.params).__name__}(partial="{asked}"): {acc.name} adds up in '
                f"{acc.dtype}, only sums of f32 are rounded on their way; leave partial out"
            )
        return asked


@dataclass
class Turns(Meeting):
    """One CTA after the other adds its sums to a workspace; the last one goes on."""

    @property
    def split(self) -> Expr:
        """Number of a CTA among those of its tile: a variable of the kernel."""
        return SPLIT

    @property
    def splits(self) -> Expr:
        """CTAs of a tile: a parameter of the kernel."""
        return SPLITS

    @property
    def variables(self) -> tuple[Var, ...]:
        """Parameters of the kernel that say how many they are."""
        return (SPLITS, *self.walking)

    @property
    def walking(self) -> tuple[Var, ...]:
        """How many groups of CTAs there are: a parameter where each takes several tiles."""
        return (GROUPS,) if self.params.persistent else ()

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
        """Return how many groups of CTAs take tiles in turn."""
        del ctas
        return self._groups

    def begin(self) -> tuple[kir.Stmt, ...]:
        """Tell each CTA which part of K is its own."""
        number = kir.BLOCK // self._groups if self.neighbours else kir.BLOCK % self.splits
        return (kir.Let(SPLIT, number),)

    def requires(self, grid: tuple[Expr, ...], steps: list[Expr]) -> tuple[Expr, ...]:
        """Return the conditions on the grid: no part of K is empty."""
        if self.params.persistent:
            grid = (eq(kir.GRID, self._groups * self.splits),)
        return (*(n >= 1 for n in self.variables), *grid, *(many >= self.splits for many in steps))

    def meet(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        """Request that sums are added up in turns."""
        out: list[kir.Stmt] = []
        for acc in sums:
            check_sums(self.params, acc)
            box = self.workspace(acc, 1, TILE, acc.layout.shape[-1])
            staged = self._staged(acc)
            out.append(kir.GridSum(acc, box, self.semaphore(), TILE, SPLIT, SPLITS, staged))
        return out

    def fit(self, kernel: kir.Kernel) -> kir.Kernel:
        """Return a kernel with workspaces, a semaphore, and why CTAs may wait."""
        return replace(
            kernel,
            tensors=(*kernel.tensors, *self.workspaces),
            workspaces=tuple(tensor.name for tensor in self.workspaces),
            semaphores=(self.semaphore(),),
            residency="co-resident" if self.neighbours else "ticket",
        )

    def semaphore(self) -> kir.Semaphore:
        """Return the semaphore, with an integer for every tile."""
        return kir.Semaphore("turns", self.tiles)

    def workspace(self, acc: kir.Fragment, parts: Expr, part: Expr, cols: int) -> kir.Box:
        """Return a place for some columns of sums: one part of so many that each tile has."""
        *outer, rows, _ = acc.layout.shape
        extents: tuple[Expr, ...] = (*outer, self.tiles * parts * rows, cols)
        strides = (*(0 for _ in outer), cols, 1)
        dtype = self.partial(acc)
        aligned = gcd(16 // dtype.nbytes, cols)
        made = kir.Tensor(f"W_{acc.name}", dtype, extents, strides, aligned)
        if made not in self.workspaces:
            self.workspaces.append(made)
        origin: tuple[Expr, ...] = (*(0 for _ in outer), part * rows, 0)
        return kir.Box(made, origin, (*outer, rows, cols), extents)

    def _staged(self, acc: kir.Fragment) -> kir.Slot | None:
        """Return where TMA takes sums from, if it does: columns of the epilogue, at best all."""
        if not isinstance(self.params, MatmulParams) or self.params.meet != "tma":
            return None
        shape = (*acc.layout.shape[:-1], self.params.columns)
        many = acc.layout.shape[-1] // shape[-1]
        dtype = self.partial(acc)
        fits = many * prod(shape) * dtype.nbytes <= STAGED
        slots = many if fits else 2 - many % 2
        return kir.Slot(self.buffer(f"S_{acc.name}", dtype, shape, slots), 0)


def check_sums(params: MatmulParams | AmpereParams, acc: kir.Fragment) -> None:
    """Refuse sums that are rounded wherever they are put together.

    Raises
    ------
    ScheduleError
        If they are of f16.
    """
    if acc.dtype is DType.F16:
        raise ScheduleError(
            f"{type(params).__name__}(splits={params.splits}): sums of f16 would "
            "be rounded in every turn; leave accumulate out, or use splits=1"
        )


def loaded(dst: kir.Fragment, src: kir.Box | kir.Slot, width: int | None = None) -> list[kir.Stmt]:
    """Load sums that a CTA has stored, and promote them if they are stored in 16 bits.

    Parameters
    ----------
    dst : Fragment
        Where to; of the type in which sums are added up.
    src : Box or Slot
        Where from.
    width : int or None
        Elements per access; None takes as many as a thread has, up to 16 bytes.
    """
    dtype = src.tensor.dtype if isinstance(src, kir.Box) else src.buffer.dtype
    width = width or min(dst.layout.vector, 16 // dtype.nbytes)
    if dtype is dst.dtype:
        return [kir.Load(dst, src, width)]
    narrow = kir.Fragment(f"{dst.name}_{dtype}", dtype, dst.layout)
    return [kir.Load(narrow, src, width), kir.Compute(dst, "promote", (narrow,))]
