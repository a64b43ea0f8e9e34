"""From a tiling to a Kernel without a single sync.

The kernel says what is loaded, computed and stored, tile by tile, and which engine copies what.
Nothing here waits, fences or signals: the passes derive all of that from the statements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, ceildiv, minimum
from fuser.fusion.ir import Extent, TensorView
from fuser.kernel import ir as kir
from fuser.kernel.validate.declarations import TMA_SHARED
from fuser.lower.math import Arithmetic
from fuser.schedule.domain import INDEXED, Access, Coords
from fuser.schedule.matmul import MatmulTiling
from fuser.schedule.params import PointwiseParams, TensorCoreParams
from fuser.schedule.pointwise import Tiling
from fuser.schedule.shape_class import ShapeClass

TRIP, TRIPS, TILE = Var("k"), Var("trips"), Var("tile")
SMS = Var("sms")
"""Streaming multiprocessors of the device, in what a launch chooses."""


@dataclass(frozen=True, slots=True)
class Divisor:
    """The largest divisor of a number that is at most `most`."""

    of: Expr
    most: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """Where the numbers of a launch come from, but for the strides of its tensors.

    `extents` has the parameter for the extent of each of its axes, `counts` those that are extents
    of the fusion; `tiles` of the result and CTAs (`grid`) are of parameters and `SMS`, as are those
    `chosen` further, of those before them.
    """

    extents: tuple[Var, ...]
    tiles: Expr
    grid: Expr
    chosen: tuple[tuple[Var, Expr | Divisor], ...] = ()
    counts: tuple[tuple[Var, Extent], ...] = ()


class Lowered(NamedTuple):
    """A kernel without any sync, and where the numbers of its launches come from."""

    kernel: kir.Kernel
    numbers: Numbers


Axes = TypeVar("Axes", bound=Tiling | MatmulTiling)
P = TypeVar("P", bound=PointwiseParams | TensorCoreParams)


@dataclass
class Lowering(Generic[Axes, P]):
    """The lowering of one domain; a tensor outside `shapes.tma` is not moved by TMA."""

    name: str
    tiling: Axes
    params: P
    shapes: ShapeClass
    tensors: dict[str, kir.Tensor] = field(default_factory=dict)
    scalars: dict[str, kir.ScalarParam] = field(default_factory=dict)
    buffers: list[kir.Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Name the extents of the axes, and declare the tensors."""
        self.extents = tuple(Var(f"n{axis}") for axis in range(self.tiling.rank))
        self.counts: dict[Var, Extent] = {}
        for access in (*self.tiling.domain.reads, *self.tiling.domain.writes):
            self.tensors[access.name] = self._tensor(access)
        for _, access in self.tiling.domain.gathers:
            self.tensors[access.name] = self._indexed(access)

    def _tensor(self, access: Access) -> kir.Tensor:
        """Return a tensor as a kernel sees it: what is not known to be 1 or 0 is a parameter."""
        tiling = self.tiling
        own: list[Expr] = []
        strides: list[Expr] = []
        for axis in tiling.axes(access):
            varies = tiling.varies(access, axis)
            own.append(self.extents[axis] if varies else 1)
            if varies and not tiling.unit(access, axis):
                strides.append(Var(f"{access.name}_s{axis}"))
            else:
                strides.append(int(varies))
        if access.tv.parts:
            own[-1] = self.tiles_along(tiling.walked[-1])
        aligned = self.shapes.elements(access.name)
        return kir.Tensor(access.name, access.tv.dtype, tuple(own), tuple(strides), aligned)

    def _indexed(self, access: Access) -> kir.Tensor:
        """Return a tensor to take elements of: the indexed axis, and those it varies along."""
        many, step = Var(f"{access.name}_n"), Var(f"{access.name}_s")
        own = access.axis_of(INDEXED)
        self.counts[many] = 1 if own is None else access.tv.logical[own].extent
        plain = self._tensor(access)
        kept = [n for n, a in enumerate(self.tiling.axes(access)) if self.tiling.varies(access, a)]
        extents = tuple(plain.extents[n] for n in kept)
        strides = tuple(plain.strides[n] for n in kept)
        return replace(plain, extents=(many, *extents), strides=(step, *strides))

    @property
    def strides(self) -> list[Var]:
        """Strides that are parameters of the kernel."""
        every = (stride for tensor in self.tensors.values() for stride in tensor.strides)
        return [stride for stride in every if isinstance(stride, Var)]

    def tiles_along(self, axis: int) -> Expr:
        """Tiles along an axis."""
        return ceildiv(self.extents[axis], self.tiling.tile[axis])

    @staticmethod
    def origin(axis: int) -> Var:
        """Where the tile of a CTA begins along an axis."""
        return Var(f"c{axis}")

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        raise NotImplementedError

    def box(self, access: Access, origins: dict[int, Expr], shape: tuple[int, ...]) -> kir.Box:
        """Return a part of a tensor: at the tile's origin, but for some axes of the kernel."""
        axes = self.tiling.axes(access)
        varies = [self.tiling.varies(access, axis) for axis in axes]
        pairs = list(zip(axes, varies, strict=True))
        origin = tuple(origins.get(axis, self.origin(axis)) if v else 0 for axis, v in pairs)
        limit = tuple(self.extents[axis] if v else 1 for axis, v in pairs)
        return kir.Box(self.tensors[access.name], origin, shape, limit)

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...], slots: int = 1) -> kir.Buffer:
        """Return a new buffer behind the others, as ordinary accesses and TMA take it."""
        return self.behind(kir.Buffer(name, dtype, shape, slots, 0), TMA_SHARED)

    def behind(self, buffer: kir.Buffer, step: int) -> kir.Buffer:
        """Lay a new buffer behind the others, at a multiple of `step` bytes."""
        offset = -(-max((b.end for b in self.buffers), default=0) // step) * step
        self.buffers.append(replace(buffer, offset=offset))
        return self.buffers[-1]


A = TypeVar("A", bound=Tiling)


class PointwiseLowering(Lowering[A, PointwiseParams]):
    """The lowering of one domain without products; that of reductions adds a loop of its own.

    ScheduleError if TMA is asked for and no tensor can use it.
    """

    def __post_init__(self) -> None:
        """Deal every tile alike."""
        super().__post_init__()
        layout = kir.Layout(self.tiling.tile, self.params.vector, kir.WARP * self.params.warps)
        self.math = Arithmetic(layout, self._position, self._gathered, scalars=self.scalars)
        self.copies: list[kir.Stmt] = []

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        tiling = self.tiling
        by_tma = self._moved_by_tma(tiling.domain.reads, self.params.load, "load")
        for access in tiling.domain.reads:
            self._load(access, tma=access.name in by_tma)
        results = [self.math.value(a.tv, a.coords) for a in tiling.domain.writes]
        stores = self._stores(results)
        origins = self._numbered(TILE, kir.BLOCK + TRIP * kir.GRID, tiling.walked)
        body = (*origins, *self.copies, *self.math.math, *stores)
        made = self._kernel((kir.ForLoop(TRIP, TRIPS, body, self._request()),))
        counts = tuple(self.counts.items())
        return Lowered(made, Numbers(self.extents, self._tiles(), self._grid(), (), counts))

    def _request(self) -> kir.CircularBuffer | None:
        if self.params.load != "tma":
            return None
        roles = kir.WarpSpecialized() if self.params.warp_specialized else None
        return kir.CircularBuffer(self.params.stages, self.params.prefetch, roles)

    def _grid(self) -> Expr:
        """CTAs of a launch: one a tile, or as many as run at once."""
        many = self.params.ctas_per_sm
        return self._tiles() if many is None else minimum(self._tiles(), SMS * many)

    def _kernel(self, body: tuple[kir.Stmt, ...]) -> kir.Kernel:
        tiling = self.tiling
        return kir.Kernel(
            name=self.name,
            params=(*self.extents, *self.strides, *self.counts),
            tensors=tuple(self.tensors.values()),
            scalars=tuple(self.scalars.values()),
            buffers=tuple(self.buffers),
            barriers=(),
            threads=kir.WARP * self.params.warps,
            body=(kir.Let(TRIPS, ceildiv(self._tiles() - kir.BLOCK, kir.GRID)), *body),
            outputs=tuple(access.name for access in tiling.domain.writes),
        )

    # --- tensors and tiles ------------------------------------------------------------------

    def _tiles(self, axes: tuple[int, ...] | None = None) -> Expr:
        """Tiles along some axes; left out, of the result."""
        total: Expr = 1
        for axis in self.tiling.walked if axes is None else axes:
            total = total * self.tiles_along(axis)
        return total

    def _numbered(self, number: Var, value: Expr, axes: tuple[int, ...]) -> list[kir.Stmt]:
        """Give tiles along some axes their numbers: the last axis changes fastest."""
        lets: list[kir.Stmt] = [kir.Let(number, value)]
        rest: Expr = number
        for axis in reversed(axes):
            count = self.tiles_along(axis)
            along = rest if axis == axes[0] else rest % count
            lets.append(kir.Let(self.origin(axis), along * self.tiling.tile[axis]))
            if axis != axes[0]:
                rest = rest // count
        return lets

    def _box(self, access: Access) -> kir.Box:
        return self.box(access, {}, self.tiling.tma_shape(access))

    def _position(self, tv: TensorView, axis: int) -> tuple[int, Expr] | None:
        """Return the kernel's axis and first coordinate of a loop axis, for `iota`."""
        found = next((n for n, g in enumerate(self.tiling.groups) if axis in g), None)
        if found is not None and self.tiling.split:
            raise ScheduleError(
                f"PointwiseParams(tile={self.params.tile}): {tv} = iota needs its axis unsplit; "
                f"use tile=(1, {self.params.tile[1]})"
            )
        return None if found is None else (found, self.origin(found))

    def _gathered(
        self, math: Arithmetic, tv: TensorView, coords: Coords, index: kir.Fragment
    ) -> kir.Fragment:
        """Take elements by an index, and by where they stand along the other axes."""
        access = dict(self.tiling.domain.gathers)[tv, coords]
        tensor, count = self.tensors[access.name], sum(isinstance(s, kir.Gather) for s in math.math)
        places = [index]
        for n, axis in enumerate(self.tiling.axes(access)):
            if self.tiling.varies(access, axis):
                where = math.fragment(f"{math.prefix}_{access.name}_{count}_c{n}", DType.I64)
                math.math.append(kir.Coordinate(where, axis, self.origin(axis)))
                places.append(where)
        out = math.fragment(f"{math.prefix}_{tv.name}_{count}", access.tv.dtype)
        math.math.append(kir.Gather(out, tensor, tuple(places)))
        return out

    def _width(self, access: Access) -> int:
        """Elements per access: neighbours in memory, aligned, 16 bytes at most."""
        if not self.tiling.unit(access, self.tiling.rank - 1):
            return 1
        aligned = self.tensors[access.name].aligned
        return min(self.params.vector, aligned, 16 // access.tv.dtype.nbytes)

    def _moved_by_tma(
        self, accesses: tuple[Access, ...], mechanism: str, option: str
    ) -> frozenset[str]:
        if mechanism != "tma" or not accesses:
            return frozenset()
        why: dict[str, str] = {}
        for access in accesses:
            reason = self.tiling.tma_refusal(access)
            if reason is None and access.name not in self.shapes.tma:
                rows = "address or strides" if option == "load" else "address, strides or rows"
                reason = f"{rows} of {access.tv} are not multiples of 16 bytes"
            if reason is not None:
                why[access.name] = reason
        able = frozenset(access.name for access in accesses) - why.keys()
        if not able:
            raise ScheduleError(
                f'PointwiseParams({option}="tma"): TMA can move no tensor of {self.name}: '
                f'{"; ".join(why.values())}; use {option}="direct"'
            )
        full = {a.name for a in accesses if self.tiling.tma_shape(a) == self.tiling.tile}
        return able & full if able & full else able

    def _staging(self, access: Access) -> kir.Slot:
        shape = self.tiling.tma_shape(access)
        return kir.Slot(self.buffer(f"S_{access.name}", access.tv.dtype, shape), 0)

    def _load(self, access: Access, *, tma: bool) -> None:
        frag = self.math.fragment(f"r_{access.name}", access.tv.dtype)
        width = self._width(access)
        if tma:
            slot = self._staging(access)
            self.copies.append(kir.Copy(slot, self._box(access), kir.Engine.TMA))
            width = min(self.params.vector, 16 // access.tv.dtype.nbytes)
            self.math.math.append(kir.Load(frag, kir.Slot(slot.buffer, 0), width))
        else:
            self.math.math.append(kir.Load(frag, self._box(access), width))
        self.math.done[(access.tv, access.coords)] = frag

    def _stores(self, results: list[kir.Fragment]) -> list[kir.Stmt]:
        writes = self.tiling.domain.writes
        by_tma = self._moved_by_tma(writes, self.params.store, "store")
        stores: list[kir.Stmt] = []
        copies: list[kir.Stmt] = []
        for access, frag in zip(writes, results, strict=True):
            if access.name not in by_tma:
                stores.append(kir.Store(self._box(access), frag, self._width(access)))
                continue
            slot = self._staging(access)
            width = min(self.params.vector, 16 // access.tv.dtype.nbytes)
            stores.append(kir.Store(slot, frag, width))
            copies.append(kir.Copy(self._box(access), slot, kir.Engine.TMA))
        return stores + copies
