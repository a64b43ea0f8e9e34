"""From a tiling to a Kernel without a single sync.

The kernel says what is loaded, computed and stored, tile by tile, and which engine copies what.
Nothing here waits, fences or signals: the passes derive all of that from the statements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd, prod
from operator import mul
from typing import Generic, NamedTuple, TypeVar

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, ceildiv, eq, minimum, quotient
from fuser.fusion.ir import Extent, TensorView, indexed_axis
from fuser.kernel import ir as kir
from fuser.kernel.validate.declarations import TMA_SHARED
from fuser.lower.math import Arithmetic
from fuser.schedule.domain import INDEXED, Access, Coords, unit_stride
from fuser.schedule.matmul import MatmulTiling
from fuser.schedule.params import PointwiseParams, TensorCoreParams
from fuser.schedule.pointwise import Tiling, copied
from fuser.schedule.shape_class import ShapeClass

TRIP, TRIPS, TILE = Var("k"), Var("trips"), Var("tile")
SPAN, MIN_SPAN = 128, 32
"""Bytes of the widest swizzle, and of the narrowest.  Source: PTX ISA, "tensor swizzling modes"."""
RESIDENT, HELD = 1024, 48
"""Threads of an SM that may have 64 registers each; and registers of theirs for inputs, at most."""
LOAD_WARPS = 2
"""Warps of a load role that copies by all its threads."""
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
        for access, index in self.tiling.domain.indices:
            self.tensors[index.name] = self._tensor(index)
            self.tensors[access.name] = self._told(access)

    def _tensor(self, access: Access) -> kir.Tensor:
        """Return a tensor as a kernel sees it: what is not known to be 1 or 0 is a parameter."""
        tiling = self.tiling
        own: list[Expr] = []
        strides: list[Expr] = []
        for axis in tiling.axes(access):
            varies = tiling.varies(access, axis)
            own.append(self.extents[axis] // tiling.alike(access, axis) if varies else 1)
            if varies and not tiling.unit(access, axis):
                strides.append(Var(f"{access.name}_s{axis}"))
            else:
                strides.append(int(varies))
        if access.tv.parts == "tiles":
            own[-1] = self.tiles_along(tiling.walked[-1])
        aligned = self.shapes.elements(access.name)
        ragged = access.name in self.shapes.ragged
        cycles = self.cycles(access)
        read = access in tiling.domain.reads and not self.cycles(access)
        once = all(tiling.varies(access, axis) for axis in range(tiling.rank))
        kept = read and once and strides[-1] == 1 and self._keeps()
        shape = tuple(own), tuple(strides)
        near = access.name not in self.shapes.far
        return kir.Tensor(access.name, access.tv.dtype, *shape, aligned, ragged, cycles, kept, near)

    def _keeps(self) -> bool:
        """Whether what is read once is to leave the L2 last."""
        return False

    def cycles(self, access: Access) -> tuple[kir.Cycle, ...]:
        """Return how a tensor repeats along the one axis of the kernel: not at all."""
        del access
        return ()

    def _indexed(self, access: Access) -> kir.Tensor:
        """Return a tensor to take elements of: the indexed axis, and those it varies along."""
        own = access.axis_of(INDEXED)
        near = own is not None and unit_stride(access.tv, own)
        step = 1 if near else Var(f"{access.name}_s")
        many = self._counted(access, 1 if own is None else access.tv.logical[own].extent)
        plain = self._tensor(access)
        kept = [n for n, a in enumerate(self.tiling.axes(access)) if self.tiling.varies(access, a)]
        extents = tuple(plain.extents[n] for n in kept)
        strides = tuple(plain.strides[n] for n in kept)
        return replace(plain, extents=(many, *extents), strides=(step, *strides))

    def _told(self, access: Access) -> kir.Tensor:
        """Return a tensor of which an index tells where it is walked along an axis."""
        plain, at = self._tensor(access), self._told_along(access)
        many = self._counted(access, *access.tv.count)
        return replace(plain, extents=(*plain.extents[:at], many, *plain.extents[at + 1 :]))

    def _counted(self, access: Access, extent: Extent) -> Var:
        """Return the parameter for how many places an index may name of a tensor."""
        many = Var(f"{access.name}_n")
        self.counts[many] = extent
        return many

    def _told_along(self, access: Access) -> int:
        """Return the axis of a tensor, as its kernel sees it, whose places an index names."""
        axis = indexed_axis(access.tv)
        assert axis is not None, "an index has been found"
        walked = access.coords[axis]
        (at,) = (
            n for n, a in enumerate(self.tiling.axes(access)) if self.tiling.groups[a] == (walked,)
        )
        return at

    @property
    def strides(self) -> list[Var]:
        """Strides that are parameters of the kernel."""
        every = (
            stride
            for tensor in self.tensors.values()
            for stride in (*tensor.strides, *(cycle.stride for cycle in tensor.cycles))
        )
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
        tiling = self.tiling
        origin: list[Expr] = []
        limit: list[Expr] = []
        for axis in tiling.axes(access):
            varies, many = tiling.varies(access, axis), tiling.alike(access, axis)
            at = origins.get(axis, self.origin(axis))
            origin.append(quotient(at, many) if varies else 0)
            limit.append(self.extents[axis] // many if varies else 1)
        made = kir.Box(self.tensors[access.name], tuple(origin), shape, tuple(limit))
        told = tiling.domain.index_of(access)
        if told is None:
            return made
        at = self._told_along(access)
        src = self.box(told, {}, (1,) * len(tiling.axes(told)))
        origin[at], limit[at] = 0, made.tensor.extents[at]
        return replace(made, origin=tuple(origin), limit=tuple(limit), index=kir.Index(at, src))

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
        self.sizes: dict[Var, range] = {}
        super().__post_init__()
        layout = kir.Layout(self.tiling.tile, self.params.vector, kir.WARP * self.params.warps)
        self.math = Arithmetic(layout, self._position, self._gathered, scalars=self.scalars)
        self.copies: list[kir.Stmt] = []
        self.turns: list[kir.Stmt] = []

    def _keeps(self) -> bool:
        """Whether what is read once is to leave the L2 last: where as much is written.

        In microseconds on an H200: copy of 2^28 bf16 251, 262 without the hint; rms norm of 32768 x
        4096 127.3 and 131.8, with a residual of 16384 x 8192 249 and 259; x + y 365.9 and 369.5;
        but sums of all columns, which write little, 34.0 and 33.4.
        """
        return True

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        tiling = self.tiling
        engine = self._load_all(tiling.domain.reads)
        self.math.math += self.turns
        results = [self.math.value(a.tv, a.coords) for a in tiling.domain.writes]
        stores = self._stores(results)
        body = (*self._origins(), *self.copies, *self.math.math, *stores)
        if self.alone:
            made = self._kernel(body)
        else:
            loop = kir.ForLoop(TRIP, TRIPS, body, self._request())
            if self.copies and engine is kir.Engine.BULK:
                made = self._walks((loop, *self._rest()), self.extents[0] // tiling.tile[0])
            else:
                made = self._walks((loop,), self._tiles())
        loops = [Var(f"l{axis}") for axis in range(len(tiling.domain.extents))]
        counts = tuple(zip(loops, tiling.domain.extents, strict=True)) if self.sizes else ()
        counts += tuple(self.counts.items())
        sizes = (
            (var, reduce(mul, loops[axes.start : axes.stop])) for var, axes in self.sizes.items()
        )
        numbers = Numbers(self.extents, self._tiles(), self._grid(), tuple(sizes), counts)
        return Lowered(replace(made, resident=self._resident()), numbers)

    def _resident(self) -> int:
        """CTAs that an SM is to have registers for: 1024 threads, if those hold their inputs.

        The compiler takes more for addresses and loses what is on its way.  Seen on an H200:
        silu(x + bias) + r of 74922 x 5741 in 605 us with 64 registers, in 664 with its 79.
        """
        threads = kir.WARP * self.params.warps
        domain = self.tiling.domain
        words = sum(
            -(-prod(self.tiling.tma_shape(access)) // threads) * -(-access.tv.dtype.nbytes // 4)
            for access in (*domain.reads, *(access for _, access in domain.gathers))
        )
        return RESIDENT // threads if words <= HELD and not self.params.warp_specialized else 1

    def cycles(self, access: Access) -> tuple[kir.Cycle, ...]:
        """Return how a tensor repeats along the one axis of the kernel."""
        rank = len(self.tiling.domain.extents)
        out = []
        for axes in self.tiling.cycles(access):
            each = self._size(range(axes.stop, rank)) if axes.stop < rank else 1
            period = self._size(axes) if axes.start else None
            walked = access.axis_of(axes[-1])
            assert walked is not None, "a run is walked"
            near = unit_stride(access.tv, walked)
            stride = 1 if near else Var(f"{access.name}_s{walked}")
            out.append(kir.Cycle(each, period, stride))
        return tuple(out)

    def _size(self, axes: range) -> Var:
        """Return the parameter for the elements of some loop axes together."""
        var = Var(f"m{axes.start}_{axes.stop}")
        self.sizes[var] = axes
        return var

    def _rest(self) -> tuple[kir.Stmt, ...]:
        """Return what is done of the last tile by threads, where it is not whole."""
        self.math = Arithmetic(self.math.layout, self._position, scalars=self.scalars, prefix="t")
        for access in self.tiling.domain.reads:
            self._load(access, None)
        writes = self.tiling.domain.writes
        results = [self.math.value(a.tv, a.coords) for a in writes]
        stores = [
            kir.Store(self._box(access), frag, self._width(access))
            for access, frag in zip(writes, results, strict=True)
        ]
        every, left = Var("every"), Var("t")
        number = kir.BLOCK + (TRIPS + left) * kir.GRID
        origins = self._numbered(TILE, number, self.tiling.walked)
        return (
            kir.Let(every, ceildiv(self._tiles() - kir.BLOCK, kir.GRID)),
            kir.ForLoop(left, every - TRIPS, (*origins, *self.math.math, *stores)),
        )

    def _request(self) -> kir.CircularBuffer | None:
        if self.params.load == "direct":
            return None
        warps = LOAD_WARPS if self.params.load == "cp_async" else 1
        roles = kir.WarpSpecialized(warps) if self.params.warp_specialized else None
        return kir.CircularBuffer(self.params.stages, self.params.prefetch, roles)

    def _grid(self) -> Expr:
        """CTAs of a launch: one a tile, or as many as run at once."""
        many = self.params.ctas_per_sm
        return self._tiles() if many is None else minimum(self._tiles(), SMS * many)

    @property
    def alone(self) -> bool:
        """Whether each tile has a CTA of its own, which then needs no loop over tiles.

        In microseconds on an H100, with and without one: softmax of 120322 x 391 82.7 and 74.0,
        silu(x + bias) + r of 106 x 14685 5.19 and 4.57, of 666 x 416 1.91 and 1.85.
        """
        return self.params.ctas_per_sm is None and not self.copies

    def _origins(self) -> list[kir.Stmt]:
        """Return the numbers of a CTA's tile."""
        number = kir.BLOCK if self.alone else kir.BLOCK + TRIP * kir.GRID
        return self._numbered(TILE, number, self.tiling.walked)

    def _walks(self, body: tuple[kir.Stmt, ...], tiles: Expr) -> kir.Kernel:
        """Return a kernel whose CTAs walk so many tiles, one after the other."""
        trips = kir.Let(TRIPS, ceildiv(tiles - kir.BLOCK, kir.GRID))
        return self._kernel((trips, *body))

    def _kernel(self, body: tuple[kir.Stmt, ...]) -> kir.Kernel:
        """Return the kernel with this body; one that is `alone` is launched once for each tile."""
        tiling = self.tiling
        grid = (eq(kir.GRID, self._tiles()),) if self.alone else ()
        return kir.Kernel(
            name=self.name,
            params=(*self.extents, *self.strides, *self.sizes, *self.counts),
            tensors=tuple(self.tensors.values()),
            scalars=tuple(self.scalars.values()),
            buffers=tuple(self.buffers),
            barriers=(),
            threads=kir.WARP * self.params.warps,
            body=body,
            outputs=tuple(access.name for access in tiling.domain.writes),
            requires=(*(size >= 1 for size in self.sizes), *grid),
            overlay=self.params.overlay,
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
        if not self.tiling.unit(access, self.tiling.axes(access)[-1]):
            return 1
        return min(self._widest(access), self.tensors[access.name].aligned)

    def _widest(self, access: Access) -> int:
        """Elements per access of a slot."""
        return min(self.params.vector, 16 // access.tv.dtype.nbytes)

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
        full = {a.name for a in accesses if self.tiling.covers(a)}
        return able & full if able & full else able

    def _moved_by_bulk(self, accesses: tuple[Access, ...]) -> frozenset[str]:
        """Return the inputs whose whole tiles are runs of memory at multiples of 16 bytes."""
        if self.params.load != "bulk" or not accesses:
            return frozenset()
        why: dict[str, str] = {}
        for access in accesses:
            tensor = self.tensors[access.name]
            nbytes = tensor.dtype.nbytes
            if self.tiling.rank > 1 or self.tiling.split:
                why[access.name] = f"{access.tv} has rows; walk them with flat=True"
            elif tensor.cycles or not self.tiling.unit(access, 0):
                why[access.name] = f"{access.tv} is no run of memory"
            elif tensor.aligned * nbytes % 16 or self.tiling.tile[0] * nbytes % 128:
                why[access.name] = f"address of {access.tv}, or a tile, is no multiple of 16 bytes"
        able = frozenset(access.name for access in accesses) - why.keys()
        if not able:
            raise ScheduleError(
                f'PointwiseParams(load="bulk"): no tensor of {self.name} can be copied in bulk: '
                f'{"; ".join(why.values())}; use load="direct"'
            )
        return able

    def _moved_by_cp_async(self, accesses: tuple[Access, ...]) -> frozenset[str]:
        if self.params.load != "cp_async" or not accesses:
            return frozenset()
        able = frozenset(access.name for access in copied(self.tiling, self.params, self.shapes))
        able &= {access.name for access in accesses}
        if not able:
            self.params.refuse(
                "load vector",
                f"cp.async copies 4, 8 or 16 bytes, and no input of {self.name} has an element "
                "for each of a tile, with neighbours of so many that are aligned; use "
                'load="direct"',
            )
        return able

    def _staging(self, access: Access) -> kir.Slot:
        shape, name, dtype = self.tiling.tma_shape(access), f"S_{access.name}", access.tv.dtype
        if self.tiling.turned(access):
            # By columns and by rows: both without conflicts of banks.
            swizzle = gcd(shape[-1] * dtype.nbytes, SPAN)
            if swizzle >= MIN_SPAN:
                buffer = kir.Buffer(name, dtype, shape, 1, 0, swizzle)
                return kir.Slot(self.behind(buffer, 8 * swizzle), 0)
        return kir.Slot(self.buffer(name, dtype, shape), 0)

    def _turned(self, access: Access) -> kir.Fragment:
        """Return a tile of a tensor as it lies in memory, on its way to or from a slot."""
        shape, vector = self.tiling.tma_shape(access), self._width(access)
        layout = kir.Layout(shape, vector, kir.WARP * self.params.warps)
        return kir.Fragment(f"t_{access.name}", access.tv.dtype, layout)

    def _load_all(self, accesses: tuple[Access, ...]) -> kir.Engine | None:
        """Load inputs, those by an engine that it can move; return which."""
        engine = None if self.params.load == "direct" else kir.Engine(self.params.load)
        moved = self._moved_by_tma(accesses, self.params.load, "load")
        moved |= self._moved_by_bulk(accesses) | self._moved_by_cp_async(accesses)
        # What repeats divides before it knows where it is: others do not wait for that.
        for access in sorted(accesses, key=lambda one: bool(self.tensors[one.name].cycles)):
            self._load(access, engine if access.name in moved else None)
        return engine

    def _load(self, access: Access, engine: kir.Engine | None) -> None:
        frag = self.math.fragment(f"{self.math.prefix}_{access.name}", access.tv.dtype)
        self.math.done[(access.tv, access.coords)] = frag
        turned = self.tiling.turned(access)
        if engine is None and not turned:
            self.math.math.append(kir.Load(frag, self._box(access), self._width(access)))
            return
        slot, box = self._staging(access), self._box(access)
        read = kir.Slot(slot.buffer, 0)
        if engine is kir.Engine.BULK:  # of whole tiles
            ends = zip(box.origin, box.shape, strict=True)
            box = replace(box, limit=tuple(origin + n for origin, n in ends))
        if engine is kir.Engine.CP_ASYNC:
            warps = LOAD_WARPS if self.params.warp_specialized else self.params.warps
            dealt = kir.Layout(slot.buffer.shape, self.params.vector, kir.WARP * warps)
            self.copies.append(kir.Copy(slot, box, engine, dealt, self._width(access)))
        elif engine is not None:
            self.copies.append(kir.Copy(slot, box, engine))
        else:  # all tiles are on their way before the first is put into its slot
            tile = self._turned(access)
            self.math.math.append(kir.Load(tile, box, tile.layout.vector))
            self.turns.append(kir.Store(slot, tile, tile.layout.vector))
        if turned:
            self.turns.append(kir.Load(frag, read, 1, transposed=True))
        else:
            self.math.math.append(kir.Load(frag, read, self._widest(access)))

    def _stores(self, results: list[kir.Fragment]) -> list[kir.Stmt]:
        writes = self.tiling.domain.writes
        by_tma = self._moved_by_tma(writes, self.params.store, "store")
        stores: list[kir.Stmt] = []
        copies: list[kir.Stmt] = []
        for access, frag in zip(writes, results, strict=True):
            tma, turned = access.name in by_tma, self.tiling.turned(access)
            if not tma and not turned:
                stores.append(kir.Store(self._box(access), frag, self._width(access)))
                continue
            slot = self._staging(access)
            if turned:
                stores.append(kir.Store(slot, frag, 1, transposed=True))
            else:
                stores.append(kir.Store(slot, frag, self._widest(access)))
            if tma:
                copies.append(kir.Copy(self._box(access), slot, kir.Engine.TMA))
            else:
                tile, read = self._turned(access), kir.Slot(slot.buffer, 0)
                copies.append(kir.Load(tile, read, tile.layout.vector))
                copies.append(kir.Store(self._box(access), tile, tile.layout.vector))
        return stores + copies
