"""What all kernels with products have: tiles in an order that suits the L2, and an epilogue.

A CTA multiplies in steps along the summed axes, then computes the rest of the fusion on its tile, a
few columns at a time.  How it multiplies is said by `lower_hopper` and `lower_ampere`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fuser import kernel_ir as kir
from fuser.domain import Access, Product, arguments
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.lower import unknown_strides
from fuser.lower_math import COMBINE, Arithmetic, identity
from fuser.lower_tiles import RASTER, STEP, TILES, TURN, Pairs, TileLowering
from fuser.tensor_view import TensorView

GROUP = Var("group")
"""Which columns of a tile the epilogue takes."""


class ProductLowering(TileLowering):
    """The lowering of one domain with products; subclasses add the loops that multiply."""

    def kernel(self) -> kir.Kernel:
        """Return the kernel, without any sync."""
        tiling, params = self.tiling, self.params
        for access in (*tiling.domain.reads, *tiling.domain.writes):
            self.tensors[access.name] = self._tensor(access)
        accs = dict.fromkeys(self.sums(product)[0] for product in tiling.domain.products)
        body: tuple[kir.Stmt, ...] = (
            *self._origins(),
            *self.around(self._loops()),
            *self.meeting.meet(list(accs)),
            *self._epilogue(),
        )
        grid: tuple[Expr, ...] = ()
        if params.persistent:
            mine, all_ = self.meeting.tile(self._ctas), self.meeting.takers(self._ctas)
            trips = kir.Let(TILES, ceildiv(self._count() - mine, all_))
            body = (trips, kir.ForLoop(TURN, TILES, body, self.tiles))
        else:
            grid = (eq(kir.GRID, self._count() * self._ctas * self.meeting.splits),)
        steps = [self._tiles_along(axis) for axis in range(tiling.outer + 2, tiling.rank)]
        strides = unknown_strides(self.tensors.values(), self.extents)
        sums = self.extents[tiling.outer + 2 :]
        made = kir.Kernel(
            name=self.name,
            params=(*self.extents, *strides, RASTER, *self.meeting.variables),
            tensors=tuple(self.tensors.values()),
            scalars=tuple(self.scalars.values()),
            buffers=tuple(self.buffers.values()),
            barriers=(),
            threads=self.threads,
            body=(*self.meeting.begin(), *body),
            outputs=tuple(access.name for access in tiling.domain.writes),
            requires=(
                *(n >= 1 for n in sums),
                RASTER >= 1,
                eq(self._lines(tiling.rows) % RASTER, 0),
                *self.meeting.requires(grid, steps),
            ),
            cluster=self._ctas,
        )
        return self.meeting.fit(made)

    def multiply(self, copies: list[kir.Stmt], step: Var, pairs: Pairs) -> list[kir.Stmt]:
        """Append the copies of a step's operands, and return what multiplies them."""
        raise NotImplementedError

    def before(self, product: Product) -> list[kir.Stmt]:
        """Return what must be done to an accumulator before its loop."""
        raise NotImplementedError

    def around(self, loops: list[kir.Stmt]) -> list[kir.Stmt]:
        """Return the loops that multiply, with copies of what the epilogue reads beside them."""
        return loops

    def copied(self, access: Access, first: Expr) -> kir.Slot | None:
        """Return the slot of columns from `first` on of what the epilogue reads, if it has one."""
        return None

    def request(self) -> kir.CircularBuffer:
        """Return what is asked of the passes for every loop that multiplies."""
        raise NotImplementedError

    def _loops(self) -> list[kir.Stmt]:
        """Multiply: one loop for all products that sum over the same axis."""
        tiling = self.tiling
        pairs = list(zip(tiling.domain.products, tiling.operands, strict=True))
        out: list[kir.Stmt] = []
        for axis in range(tiling.outer + 2, tiling.rank):
            mine = [(product, pair) for product, pair in pairs if pair[0].summed == axis]
            step = STEP if axis == tiling.outer + 2 else Var(f"{STEP.name}{axis}")
            copies: list[kir.Stmt] = []
            products = self.multiply(copies, step, mine)
            out += [stmt for product, _ in mine for stmt in self.before(product)]
            body = (*copies, *products)
            stop = self.meeting.steps(self._tiles_along(axis))
            out.append(kir.ForLoop(step, stop, body, self.request()))
        return out

    # --- epilogue ---------------------------------------------------------------------------

    def _epilogue(self) -> list[kir.Stmt]:
        """Compute the rest of the fusion, `params.columns` at a time, and store it."""
        out: list[kir.Stmt] = []
        many, width = self.params.tile[1] // self.params.columns, self.params.columns
        if self.meeting.parted:
            mine = eq(self.meeting.split, GROUP % self.meeting.splits)
            columns = kir.IfThenElse(mine, tuple(self._columns(GROUP * width)))
            return [kir.ForLoop(GROUP, many, (columns,))]
        begun = any(access.tv.parts for access in self.tiling.domain.writes)
        if self.meeting.pooled and many > 1 and not begun:
            return [kir.ForLoop(GROUP, many, tuple(self._columns(GROUP * width)))]
        for first in range(0, many * width, width):
            out += self._columns(first)
        return out

    def _columns(self, first: Expr) -> list[kir.Stmt]:
        tiling, width = self.tiling, self.params.columns
        shape = (*(1,) * tiling.outer, self.params.tile[0], width)
        layout = self._dealt(shape)
        math = Arithmetic(
            layout, lambda tv, axis: self._position(axis, first), scalars=self.scalars
        )
        # Inputs first: they are on their way while the last products are still awaited.
        for access in tiling.domain.inputs:
            frag = math.fragment(f"r_{access.name}", access.tv.dtype)
            slot = self.copied(access, first)
            if slot is not None:
                matrix = access.tv.dtype.nbytes == 2
                math.math.append(kir.Load(frag, slot, 2, matrix=matrix))
            else:
                wide = self._width(access, layout)
                math.math.append(kir.Load(frag, self.part(access, first), wide))
            math.done[(access.tv, access.coords)] = frag
        for product in tiling.domain.products:
            whole, column = self.sums(product)
            part, name = whole, self.accumulator(product).name
            if self.meeting.pooled:
                part = kir.Fragment(f"{name}_part", whole.dtype, layout)
                group = first // width if isinstance(first, int) else GROUP
                math.math += self.meeting.added(whole, part, group + column // width)
            elif whole.layout.shape[-1] != width:
                assert isinstance(first, int), "registers have numbers"
                part = kir.Fragment(f"{name}_part", whole.dtype, layout)
                math.math.append(kir.Slice(part, whole, column + first))
            if part.dtype is DType.F16:
                narrow, part = part, kir.Fragment(f"{name}_wide", DType.F32, layout)
                math.math.append(kir.Compute(part, "promote", (narrow,)))
            math.done[(product.tv, product.coords)] = part
        stores: list[kir.Stmt] = []
        copies: list[kir.Stmt] = []
        for access in tiling.domain.writes:
            if access.tv.parts:
                stores += self._begun(math, access, first)
                continue
            frag = math.value(access.tv, access.coords)
            box = self.part(access, first)
            if not self.written_by_tma(access):
                stores.append(kir.Store(box, frag, self._width(access, layout)))
                continue
            name = f"S_{access.name}"
            buffer = self.buffers.get(name) or self.buffer(name, access.tv.dtype, shape)
            matrix = access.tv.dtype.nbytes == 2
            stores.append(kir.Store(kir.Slot(buffer, 0), frag, 2, matrix=matrix))
            copies.append(kir.Copy(box, kir.Slot(buffer, 0), kir.Engine.TMA))
        return [*math.math, *stores, *copies]

    def _begun(self, math: Arithmetic, access: Access, first: Expr) -> list[kir.Stmt]:
        """Reduce the rows of some columns of a tile; with the last of them store what they give."""
        tiling, tv = self.tiling, access.tv
        if self.meeting.parted:
            raise ScheduleError(
                f'{type(self.params).__name__}(meet="{self.params.meet}"): each CTA has some '
                f'columns of a row, and {tv} reduces whole rows; use meet="vectorized"'
            )
        ((_, arg, walked),) = arguments(tv, access.coords)
        value = math.value(arg, walked)
        if value.dtype is not tv.dtype:
            value = math.promoted(value, tv.dtype)
        # Columns beyond the end are 0 in memory, and so not in a product with inf or NaN.
        value = self._inside(math, value, identity(tv, tv.dtype), first)
        self._check_fold(tv, value.layout)
        shape = (*value.layout.shape[:-1], 1)
        layout = replace(value.layout, shape=shape, folded=value.layout.shape[-1])
        begun = kir.Fragment(f"begun_{access.name}", tv.dtype, layout)
        if first == 0:
            math.math.append(kir.Reduce(begun, value, COMBINE[tv.op]))
        else:
            more = kir.Fragment(f"more_{access.name}", tv.dtype, layout)
            math.math += [
                kir.Reduce(more, value, COMBINE[tv.op]),
                kir.Compute(begun, COMBINE[tv.op], (begun, more)),
            ]
        if first + self.params.columns < self.params.tile[1]:
            return []
        box = self.part(access, 0)
        box = replace(
            box,
            origin=(*box.origin[:-1], self._column),
            shape=(*box.shape[:-1], 1),
            limit=(*box.limit[:-1], self._tiles_along(tiling.cols)),
        )
        return [kir.Store(box, begun, 1)]

    def _check_fold(self, tv: TensorView, layout: kir.Layout) -> None:
        """Refuse columns that the lanes of a warp do not put together.

        Source: `fuser.validate_reduce`; as accumulators lie, four lanes share any row.
        """
        columns = layout.shape[-1]
        lanes = columns // layout.vector
        if layout.deal is kir.Deal.ROUND and (lanes > kir.WARP or lanes & (lanes - 1)):
            fit = min(columns & -columns, 4 * kir.WARP)
            raise ScheduleError(
                f'{type(self.params).__name__}(columns={columns}, meet="{self.params.meet}"): '
                f"{tv} reduces rows, of which {lanes} lanes hold {layout.vector} neighbours each, "
                f"and a warp puts a power of two of them together; use columns={fit}, or "
                'meet="vectorized"'
            )

    def _inside(
        self, math: Arithmetic, value: kir.Fragment, nothing: kir.Literal, first: Expr
    ) -> kir.Fragment:
        """Replace columns beyond the end of the result by what changes nothing."""
        cols = self.tiling.cols
        number = len(math.math)
        index = math.fragment(f"left_{number}", DType.I64)
        inside = math.fragment(f"inside_{number}", DType.BOOL)
        out = math.fragment(f"within_{number}", value.dtype)
        left = self._origin(cols) + first - self.extents[cols]
        math.math += [
            kir.Coordinate(index, len(value.layout.shape) - 1, left),
            kir.Compute(inside, "lt", (index, kir.Literal(0, DType.I64))),
            kir.Compute(out, "where", (inside, value, nothing)),
        ]
        return out

    def _position(self, axis: int, first: Expr) -> tuple[int, Expr] | None:
        found = next((n for n, group in enumerate(self.tiling.groups) if axis in group), None)
        return None if found is None else (found, self._at(first).get(found, self._origin(found)))

    def _at(self, first: Expr) -> dict[int, Expr]:
        return {self.tiling.cols: self._origin(self.tiling.cols) + first}

    def part(self, access: Access, first: Expr) -> kir.Box:
        """Return the columns from `first` on that the epilogue takes at a time."""
        return self.box(access, self._at(first), self._shape(access))

    def _shape(self, access: Access) -> tuple[int, ...]:
        """Part of a tensor's tile that the epilogue takes at a time."""
        tile = (*self.tiling.tile[: self.tiling.cols], self.params.columns)
        axes = self.tiling.axes(access)
        return tuple(tile[a] if self.tiling.varies(access, a) else 1 for a in axes)

    def _dealt(self, shape: tuple[int, ...]) -> kir.Layout:
        """Return how some columns are dealt to threads.

        As accumulators are; but sums that come from memory, in neighbours of 16 bytes.
        """
        if not self.meeting.pooled:
            return kir.Layout(shape, 2, self.threads, kir.Deal.STRIPS)
        return kir.Layout(shape, 8 if prod(shape) >= 8 * self.threads else 4, self.threads)

    def _width(self, access: Access, layout: kir.Layout) -> int:
        """Elements per access: as many neighbours as a thread has, where they are aligned."""
        if not self.tiling.unit(access, self.tiling.cols):
            return 1
        return min(layout.vector, self.tensors[access.name].aligned)

    def written_by_tma(self, access: Access) -> bool:
        """Whether TMA is asked to write an output, and can."""
        return self.by_tma and not self.meeting.pooled and self.suits_tma(access)

    def suits_tma(self, access: Access) -> bool:
        """Whether TMA can move what the epilogue takes of a tensor at a time."""
        if access.name not in self.shapes.tma or access.tv.parts:
            return False
        row = self.params.columns * access.tv.dtype.nbytes
        tile = prod(self._shape(access)) * access.tv.dtype.nbytes
        return self.tiling.tma_refusal(access) is None and row % 16 == 0 and tile % 128 == 0
