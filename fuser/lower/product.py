"""What all kernels with products have: tiles in an order that suits the L2, and an epilogue.

A CTA multiplies in steps along the summed axes, then computes the rest of the fusion on its tile, a
few columns at a time.  How it multiplies is said by `hopper` and `ampere`.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod
from typing import TypeVar

from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.fusion.ir import TensorView
from fuser.fusion.ops import OPS, Rule, accumulator
from fuser.fusion.promotion import arithmetic
from fuser.fusion.zeros import is_zero_of_zeros
from fuser.kernel import ir as kir
from fuser.lower.math import COMBINE, Arithmetic, identity
from fuser.lower.split_k import split_k
from fuser.lower.tiling import SPAN, TILE, Divisor, Lowered, Lowering, Numbers
from fuser.schedule.domain import Access, Product, arguments
from fuser.schedule.matmul import PACKED, MatmulTiling, Operand, known
from fuser.schedule.params import TensorCoreParams
from fuser.schedule.products.nibbles import unpacked

M = TypeVar("M", bound=TensorCoreParams)
Pairs = list[tuple[Product, tuple[Operand, Operand]]]
"""Products with their operands."""
NTH, TILES, RASTER = Var("t"), Var("tiles"), Var("raster")
STEP = Var("k")
GROUP = Var("group")
"""Which columns of a tile the epilogue takes."""
VECTOR = 2
"""Neighbours along a row of a computed A in a register: 16-bit elements."""


class ProductLowering(Lowering[MatmulTiling, M]):
    """The lowering of one domain with products; subclasses add the loops that multiply."""

    def __post_init__(self) -> None:
        """Ask for nothing in the loop over tiles, if there is one."""
        super().__post_init__()
        self.tiles = kir.CircularBuffer(1, 0)
        self.operands: dict[Access, kir.Buffer] = {}
        self.tiles_of: dict[str, list[Operand]] = {}
        self.ahead: list[kir.Stmt] = []
        self.whole: dict[int, Expr] = {}
        self.staging: dict[Access, kir.Buffer] = {}
        self.cluster = self.params.cluster
        self.split_k = split_k(self.params, self._count(), self.buffer)
        self._column: Expr = 0

    @property
    def threads(self) -> int:
        """Threads that share a tile."""
        raise NotImplementedError

    @property
    def _ctas(self) -> int:
        return self.cluster[0] * self.cluster[1]

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        tiling, params = self.tiling, self.params
        accs = dict.fromkeys(self.sums(product)[0] for product in tiling.domain.products)
        body: tuple[kir.Stmt, ...] = (
            *self._origins(),
            *self.around(self._loops()),
            *self.split_k.reduce(list(accs)),
            *self._epilogue(),
        )
        launched = self.split_k.grid(self._ctas)
        grid: tuple[Expr, ...] = (eq(kir.GRID, launched),)
        if params.persistent:
            mine, all_ = self.split_k.tile(self._ctas), self.split_k.takers(self._ctas)
            trips = kir.Let(TILES, ceildiv(self._count() - mine, all_))
            body = (trips, kir.ForLoop(NTH, TILES, body, self.tiles))
            grid = ()
        steps = [self.tiles_along(axis) for axis in range(tiling.outer + 2, tiling.rank)]
        lines = self._down_and_across()[tiling.joined == tiling.rows]
        chosen = ((RASTER, Divisor(lines, params.raster)), *self.split_k.chosen(steps))
        made = kir.Kernel(
            name=self.name,
            params=(*self.extents, *self.strides, *self.counts, *(var for var, _ in chosen)),
            tensors=tuple(self.tensors.values()),
            scalars=tuple(self.scalars.values()),
            buffers=tuple(self.buffers),
            barriers=(),
            threads=self.threads,
            body=(*self.split_k.begin(), *body),
            outputs=tuple(access.name for access in tiling.domain.writes),
            requires=(
                *(n >= 1 for n in self.extents[tiling.outer + 2 :]),
                *self.whole.values(),
                RASTER >= 1,
                eq(lines % RASTER, 0),
                *self.split_k.requires(grid, steps),
            ),
            cluster=self._ctas,
            overlay=params.overlay and not params.persistent,
            resident=params.resident,
        )
        counts = tuple(self.counts.items())
        numbers = Numbers(self.extents, self._count(), launched, chosen, counts)
        return Lowered(self.split_k.fit(made), numbers)

    def multiply(self, copies: list[kir.Stmt], step: Var, pairs: Pairs) -> list[kir.Stmt]:
        """Append the copies of a step's operands, and return what multiplies them."""
        raise NotImplementedError

    def before(self, product: Product) -> list[kir.Stmt]:
        """Return what must be done to an accumulator before its loop."""
        return []

    def first(self, copies: list[kir.Stmt], step: Var) -> list[kir.Stmt]:
        """Return what is loaded before a loop, and change what its steps load."""
        return []

    def around(self, loops: list[kir.Stmt]) -> list[kir.Stmt]:
        """Return the loops that multiply, with copies of what the epilogue reads beside them."""
        return loops

    def copy(self, operand: Operand, dst: kir.Slot, src: kir.Box) -> kir.Copy:
        """Return the copy of a tile of an operand; refuse what cannot be copied."""
        raise NotImplementedError

    def laid(self, operand: Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an operand's slot: that of its tile, as engines copy it."""
        del operand
        return shape

    def tile_of(self, operand: Operand, dst: kir.Slot, src: kir.Box) -> list[kir.Stmt]:
        """Return what brings a tile of an operand."""
        return [self.copy(operand, dst, src)]

    def slot(self, operand: Operand, copies: list[kir.Stmt], step: Var) -> kir.Slot:
        """Return the slot of an operand; the first that asks for it adds its copy."""
        access = operand.access
        if access not in self.operands:
            shape = self.tiling.shape(access)
            held = kir.exchanged(shape) if operand.alike > PACKED else self.laid(operand, shape)
            buffer = self.buffer(f"S_{access.name}", access.tv.dtype, held)
            src = self.box(access, self.at_step(operand.summed, step), shape)
            copies += self.tile_of(operand, kir.Slot(buffer, 0), src)
            self.operands[access] = buffer
        return kir.Slot(self.operands[access], 0)

    def computed(
        self, product: Product, operand: Operand, copies: list[kir.Stmt], step: Var
    ) -> tuple[list[kir.Stmt], kir.Fragment]:
        """Return what computes a tile of A in registers, and the fragment that holds it then.

        Beyond the end of an axis that is summed over, tiles hold zeros: of the other operand, and
        of what this one is computed from.  What is computed from zeros need not be finite, and
        times 0 it need not be 0, so it is replaced by 0 there, unless it is 0 anyway or the extent
        is known to have no such end.  What is the same in all steps is loaded `ahead` of the loop.
        Bytes of which two elements are made are unpacked to these at once.
        """
        shape, at = self.tiling.shape(operand.access), self.at_step(operand.summed, step)
        layout = kir.Layout(shape, VECTOR, self.threads, kir.Deal.STRIPS)
        math = Arithmetic(layout, _nowhere, scalars=self.scalars, prefix="a")
        whole = {leaf.access: leaf for leaf in operand.leaves}
        bytes_ = replace(layout, shape=(*shape[:-1], shape[-1] // PACKED), vector=VECTOR // PACKED)
        for access in product.leaves:
            frag = math.fragment(f"a_{access.name}", access.tv.dtype)
            if access in whole and whole[access].alike == PACKED:
                frag = replace(frag, layout=bytes_)
                math.math.append(kir.Load(frag, self.slot(whole[access], copies, step), 1))
                for key, leaf in (unpacked(self.tiling.domain, product) or {}).items():
                    if leaf == access:
                        made = math.fragment(f"a_{key[0].name}", key[0].dtype)
                        math.math.append(kir.Unpack(made, frag))
                        math.done[key] = made
                continue
            if access in whole:
                matrix = access.tv.dtype.nbytes == 2 and whole[access].alike == 1
                width = VECTOR if whole[access].alike == 1 else 1
                src = self.slot(whole[access], copies, step)
                math.math.append(kir.Load(frag, src, width, matrix=matrix))
            else:
                box = self.box(access, at, self.tiling.shape(access))
                near = self.tiling.unit(access, operand.summed)
                width = min(VECTOR, self.tensors[access.name].aligned) if near else 1
                same = not self.tiling.varies(access, operand.summed)  # for all steps
                (self.ahead if same else math.math).append(kir.Load(frag, box, width))
            math.done[(access.tv, access.coords)] = frag
        made = math.value(operand.access.tv, operand.access.coords)
        last = math.math.pop()
        assert isinstance(last, kir.Compute | kir.Unpack), "an operation computes it"
        assert last.dst == made, "the last one"
        packs = kir.Compute(made, "set", (made,))
        if isinstance(last, kir.Compute) and OPS[last.op].rule is Rule.FLOAT:
            math.math.append(last)  # many instructions: beside the step before
            last = packs
        elif math.math and (rounded := _rounded(last, math.math[-1])):
            math.math[-1:], last = [], replace(rounded, dst=made)
        none = is_zero_of_zeros(operand.access.tv, {access.tv for access in whole})
        if isinstance(last, kir.Compute) and not none and not self._ends_whole(operand.summed):
            if last.op not in ("cast", "set") or arithmetic(last.args[0].dtype) is not DType.F32:
                math.math.append(last)
                last = packs
            left = at[operand.summed] - self.extents[operand.summed]
            names = ("a_left", "a_inside", f"{made.name}_within")
            (source,) = last.args
            assert isinstance(source, kir.Fragment), "a tensor"
            zero = kir.Literal(0.0, DType.F32)
            last = replace(last, args=(math.bounded(source, zero, len(shape) - 1, left, names),))
        # In registers of its own, which are all that waits for the products of the step before.
        name = f"f_{operand.access.name}"
        self.tiles_of.setdefault(name, []).append(operand)
        number = len(self.tiles_of[name])  # what is walked two ways is computed twice
        tile = math.fragment(f"{name}_{number}" if number > 1 else name, operand.access.tv.dtype)
        math.math.append(replace(last, dst=tile))
        return math.math, tile

    def _ends_whole(self, axis: int) -> bool:
        """Whether the last step along an axis is a whole one, which the kernel then relies on."""
        extent = known(self.tiling.domain, self.tiling.groups[axis])
        if extent is None or extent % self.tiling.tile[axis]:
            return False
        self.whole[axis] = eq(self.extents[axis] % self.tiling.tile[axis], 0)
        return True

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
            out += self.first(copies, step)
            out += self.ahead
            self.ahead = []
            body = (*copies, *products)
            stop = self.split_k.steps(self.tiles_along(axis))
            out.append(kir.ForLoop(step, stop, body, self.request()))
        return out

    # --- epilogue ---------------------------------------------------------------------------

    def _epilogue(self) -> list[kir.Stmt]:
        """Compute the rest of the fusion, `params.columns` at a time, and store it."""
        out: list[kir.Stmt] = []
        many, width = self.params.tile[1] // self.params.columns, self.params.columns
        if self.split_k.parted:
            mine = eq(self.split_k.split, GROUP % self.split_k.splits)
            columns = kir.IfThenElse(mine, tuple(self._columns(GROUP * width)))
            return [kir.ForLoop(GROUP, many, (columns,))]
        begun = any(access.tv.parts for access in self.tiling.domain.writes)
        if self.split_k.pooled and many > 1 and not begun:
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
            if self.split_k.pooled:
                part = kir.Fragment(f"{name}_part", whole.dtype, layout)
                group = first // width if isinstance(first, int) else GROUP
                math.math += self.split_k.added(whole, part, group + column // width)
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
            by_tma = self.written_by_tma(access)
            if not by_tma and not self.staged(access):
                self._check_transposed(access.tv)
                stores.append(kir.Store(box, frag, self._width(access, layout)))
                continue
            held = kir.exchanged(shape) if tiling.transpose else shape
            if access not in self.staging:
                slots = min(self.params.staging, self.params.tile[1] // width)
                buffer = self.buffer(f"S_{access.name}", access.tv.dtype, held, slots)
                self.staging[access] = buffer
            slot = kir.Slot(self.staging[access], 0)
            matrix = access.tv.dtype.nbytes == 2
            stores.append(kir.Store(slot, frag, 2, matrix=matrix, transposed=tiling.transpose))
            if by_tma:
                copies.append(kir.Copy(box, slot, kir.Engine.TMA))
                continue
            wide = min(2, self.tensors[access.name].aligned)
            rows = kir.Fragment(
                f"w_{access.name}", frag.dtype, kir.Layout(held, wide, self.threads)
            )
            copies += [kir.Load(rows, slot, wide), kir.Store(box, rows, wide)]
        return [*math.math, *stores, *copies]

    def _begun(self, math: Arithmetic, access: Access, first: Expr) -> list[kir.Stmt]:
        """Reduce the rows of some columns of a tile; with the last of them store what they give."""
        tiling, tv = self.tiling, access.tv
        self._check_transposed(tv)
        if self.split_k.parted:
            self.params.refuse(
                "meet",
                f"each CTA has some columns of a row, and {tv} reduces whole rows; use "
                'meet="vectorized"',
            )
        ((_, arg, walked),) = arguments(tv, access.coords)
        value = math.value(arg, walked)
        if value.dtype is not tv.dtype:
            value = math.promoted(value, tv.dtype)
        # Columns beyond the end are 0 in memory, and so not in a product with inf or NaN.
        left = self.origin(tiling.cols) + first - self.extents[tiling.cols]
        n = len(math.math)
        names = (f"left_{n}", f"inside_{n}", f"within_{n}")
        nothing = identity(tv, tv.dtype)
        value = math.bounded(value, nothing, len(value.layout.shape) - 1, left, names)
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
            limit=(*box.limit[:-1], self.tiles_along(tiling.cols)),
        )
        return [kir.Store(box, begun, 1)]

    def _check_fold(self, tv: TensorView, layout: kir.Layout) -> None:
        """Refuse columns that the lanes of a warp do not put together: four lanes share a row."""
        columns = layout.shape[-1]
        lanes = columns // layout.vector
        if layout.deal is kir.Deal.ROUND and (lanes > kir.WARP or lanes & (lanes - 1)):
            fit = min(columns & -columns, 4 * kir.WARP)
            self.params.refuse(
                "columns meet",
                f"{tv} reduces rows, of which {lanes} lanes hold {layout.vector} neighbours each, "
                f"and a warp puts a power of two of them together; use columns={fit}, or "
                'meet="vectorized"',
            )

    def _position(self, axis: int, first: Expr) -> tuple[int, Expr] | None:
        found = next((n for n, group in enumerate(self.tiling.groups) if axis in group), None)
        return None if found is None else (found, self._at(first).get(found, self.origin(found)))

    def _at(self, first: Expr) -> dict[int, Expr]:
        return {self.tiling.cols: self.origin(self.tiling.cols) + first}

    def part(self, access: Access, first: Expr) -> kir.Box:
        """Return the columns from `first` on that the epilogue takes at a time."""
        return self.box(access, self._at(first), self._shape(access))

    def _shape(self, access: Access) -> tuple[int, ...]:
        """Part of a tensor's tile that the epilogue takes at a time."""
        tile = (*self.tiling.tile[: self.tiling.cols], self.params.columns)
        axes = self.tiling.axes(access)
        return tuple(tile[a] if self.tiling.varies(access, a) else 1 for a in axes)

    def _check_transposed(self, tv: TensorView) -> None:
        """Refuse results of transposed tiles that `stmatrix` does not transpose."""
        if self.tiling.transpose:
            why = "has not 16 bits, or no neighbours along its columns"
            if tv.parts:
                why = "reduces rows, which lie along the columns of a tile"
            self.params.refuse("transpose", f"{tv} {why}; use transpose=False")

    def _dealt(self, shape: tuple[int, ...]) -> kir.Layout:
        """Return how some columns are dealt: as accumulators, or sums from memory, by 16 bytes."""
        if not self.split_k.pooled or self.tiling.transpose:
            return kir.Layout(shape, 2, self.threads, kir.Deal.STRIPS)
        return kir.Layout(shape, 8 if prod(shape) >= 8 * self.threads else 4, self.threads)

    def _width(self, access: Access, layout: kir.Layout) -> int:
        """Elements per access: as many neighbours as a thread has, where they are aligned."""
        if not self.tiling.unit(access, self.tiling.cols):
            return 1
        return min(layout.vector, self.tensors[access.name].aligned)

    def written_by_tma(self, access: Access) -> bool:
        """Whether TMA is asked to write an output, and can."""
        return self._leaves_by_shared(access) and self.suits_tma(access)

    def _leaves_by_shared(self, access: Access) -> bool:
        """Whether a result is to go through shared memory; those that threads add up they store.

        Transposed tiles go no other way, and `stmatrix` transposes 16 bits.
        """
        if self.tiling.transpose:
            return access.tv.dtype.nbytes == 2
        return self.params.store == "tma" and not self.split_k.pooled

    def staged(self, access: Access) -> bool:
        """Whether a result that TMA cannot write goes through shared memory nevertheless.

        Neighbours in registers lie in eight rows: threads would store four bytes in each.  From
        shared memory a warp stores neighbours along one row.
        """
        along = self.tiling.axes(access)[-1]
        row = self._shape(access)[-1] * access.tv.dtype.nbytes
        return self._leaves_by_shared(access) and self.tiling.unit(access, along) and row >= 32

    def suits_tma(self, access: Access) -> bool:
        """Whether TMA can move what the epilogue takes of a tensor at a time."""
        if access.name not in self.shapes.tma or access.tv.parts:
            return False
        row = self._shape(access)[-1] * access.tv.dtype.nbytes
        tile = prod(self._shape(access)) * access.tv.dtype.nbytes
        return self.tiling.tma_refusal(access) is None and row % 16 == 0 and tile % 128 == 0

    # --- tensors and tiles ------------------------------------------------------------------

    def at_step(self, axis: int, step: Var) -> dict[int, Expr]:
        """Return where a step of a loop begins along the axis that is summed over."""
        at = self.split_k.split + step * self.split_k.splits
        return {axis: at * self.tiling.tile[axis]}

    def _lines(self, axis: int) -> Expr:
        """Tiles of a whole cluster along an axis."""
        many = {self.tiling.rows: self.cluster[0], self.tiling.cols: self.cluster[1]}
        return ceildiv(self.extents[axis], self.tiling.tile[axis] * many.get(axis, 1))

    def _down_and_across(self) -> tuple[Expr, Expr]:
        """Tiles of whole clusters along rows and columns, with those around beside which share."""
        tiling = self.tiling
        around = self._lines(0) if tiling.joined is not None else 1
        down, across = (
            self._lines(axis) * around if axis == tiling.joined else self._lines(axis)
            for axis in (tiling.rows, tiling.cols)
        )
        return down, across

    def _count(self) -> Expr:
        total: Expr = 1
        for axis in self.tiling.walked:
            total = total * self._lines(axis)
        return total

    def _origins(self) -> list[kir.Stmt]:
        """Give tiles their numbers: groups of `RASTER` rows, column after column, by clusters.

        Or of columns, row after row, where rows around have the matrices of one result.
        """
        tiling = self.tiling
        number = self.split_k.tile(self._ctas)
        if self.params.persistent:
            number = number + NTH * self.split_k.takers(self._ctas)
        lets: list[kir.Stmt] = [kir.Let(TILE, number)]
        down, across = self._down_and_across()
        rest: Expr = TILE
        for axis in range(tiling.outer) if tiling.joined is None else ():
            inner: Expr = down * across
            for later in range(axis + 1, tiling.outer):
                inner = self._lines(later) * inner
            lets.append(kir.Let(self.origin(axis), rest // inner))
            rest = rest % inner
        by_columns = tiling.joined == tiling.rows
        others = down if by_columns else across
        line = rest // (RASTER * others) * RASTER + rest % RASTER
        other = rest // RASTER % others
        if tiling.joined is not None:
            each = self._lines(tiling.joined)
            lets.append(kir.Let(self.origin(0), other // each))
            other = other % each
        row, col = (other, line) if by_columns else (line, other)
        for axis, at, many in (
            (tiling.rows, row, self.cluster[0]),
            (tiling.cols, col, self.cluster[1]),
        ):
            one = at * many + kir.RANK if many > 1 else at
            if axis == tiling.cols:
                self._column = one
            lets.append(kir.Let(self.origin(axis), one * tiling.tile[axis]))
        return lets

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...], slots: int = 1) -> kir.Buffer:
        """Return a new buffer, with the widest swizzle that suits its rows."""
        swizzle = gcd(shape[-1] * dtype.nbytes, SPAN)
        if swizzle < 32:
            return super().buffer(name, dtype, shape, slots)
        # Where its swizzle repeats; alike ones lie right behind each other.
        return self.behind(kir.Buffer(name, dtype, shape, slots, 0, swizzle), 8 * swizzle)

    def sums(self, product: Product) -> tuple[kir.Fragment, int]:
        """Return the fragment that holds the sums of a product, and their first column there."""
        return self.accumulator(product), 0

    def accumulator(self, product: Product, *, many: int = 1) -> kir.Fragment:
        """Return the sums of a product, and of those whose columns follow, `many` in all."""
        n = self.tiling.domain.products.index(product)
        rows, columns = self.params.tile[:2]
        shape = (*(1,) * self.tiling.outer, rows, many * columns)
        layout = kir.Layout(shape, 2, self.threads, kir.Deal.STRIPS)
        return kir.Fragment(f"acc{n}" if n else "acc", accumulator(product.tv), layout)


def _rounded(stmt: kir.Stmt, before: kir.Stmt) -> kir.Compute | None:
    """Return the product before a statement that only rounds it, as registers of 16 bits do."""
    match stmt, before:
        case kir.Compute(dst, "cast", (arg,)), kir.Compute(made, "mul") if made == arg:
            return before if made.dtype is dst.dtype else None
        case _:
            return None


def _nowhere(tv: TensorView, axis: int) -> tuple[int, Expr] | None:
    raise AssertionError(f"{tv} asks for its place along axis {axis}; it is computed elsewhere")
