"""Kernels that have whole rows at a time: read once, reduced in registers, and written once.

Neighbouring threads share a row.  A reduction first puts together what each of them holds, then
what the lanes of a warp have; warps leave their parts in shared memory, where each thread finds
all of its row.  What is computed from the results stays with the threads that hold the elements.
Nothing here waits; the passes see who reads what.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.fusion.ir import TensorView
from fuser.fusion.ops import operand_dtypes
from fuser.fusion.zeros import unchanged_by_zeros
from fuser.kernel import ir as kir
from fuser.lower.math import COMBINE, Arithmetic, identity
from fuser.lower.tiling import TILE, TRIP, TRIPS, Lowered, Numbers, PointwiseLowering
from fuser.schedule.domain import Access, Coords, Reduction
from fuser.schedule.norm import copied, slide_refusal
from fuser.schedule.params import NormParams
from fuser.schedule.reduction import ReductionTiling

Body = tuple[kir.Stmt, ...]


class NormLowering(PointwiseLowering[ReductionTiling]):
    """The lowering of one domain of whole rows; its tiles are read and written by threads."""

    params: NormParams

    def __post_init__(self) -> None:
        """Deal rows to neighbouring threads."""
        super().__post_init__()
        self.whole = self._layout(rows=True, cols=True)
        self.rows = self.tiling.domain.rows
        self.holds = self.params.hold and self.params.ctas_per_sm is not None
        self.slots: dict[Access, kir.Slot] = {}
        why = slide_refusal(self.tiling.domain, self.params.vector) if self.params.slide else None
        if why is not None:
            self.params.refuse("slide vector", f"{why}; use slide=False")
        self.math = Arithmetic(
            self.whole, self._position, scalars=self.scalars, layouts=self._walked
        )

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        domain, math = self.tiling.domain, self.math
        late = self._late()
        rings = self._copied()
        for access in domain.reads:
            if access in rings:
                self._copy(access, rings[access])
            elif access not in late:
                self._load_once(access)
        for level in self._levels():
            self._reduce(level)
            if self.params.recompute:
                self._forget()
        for access in late:
            self._load_once(access)
        for access in domain.writes:
            box = self._row(access)
            result = self._spread(math.value(access.tv, access.coords), self._boxed(box))
            store = kir.Store(box, result, self._width_of(access))
            whole = self.tiling.varies(access, self.tiling.rank - 1)
            # What there is one of for a row all CTAs of a cluster have.
            alone = self.params.cluster > 1 and not whole
            math.math.append(kir.IfThenElse(eq(kir.RANK, 0), (store,)) if alone else store)
        if self.params.cluster > 1:
            return self._shared(tuple(math.math))
        origins = self._numbered(TILE, kir.BLOCK + TRIP * kir.GRID, self.tiling.walked)
        once, again = self._hoisted(tuple(math.math))
        request = kir.CircularBuffer(self.params.stages, self.params.prefetch)
        ring = request if self.copies else None
        body = (*once, kir.ForLoop(TRIP, TRIPS, (*origins, *self.copies, *again), ring))
        made = self._kernel(body, self._tiles())
        along = self.extents[-1]
        fits = (along >= 1, self._fits(along))
        return Lowered(
            replace(made, requires=fits, resident=self.params.resident),
            Numbers(self.extents, self._tiles(), self._grid()),
        )

    def _shared(self, tile: Body) -> Lowered:
        """Return the kernel in which each tile has the CTAs of a cluster, and no CTA several."""
        ctas = self.params.cluster
        origins = self._numbered(TILE, kir.BLOCK // ctas, self.tiling.walked)
        grid, along = self._tiles() * ctas, self.extents[-1]
        made = replace(
            self._kernel((), self._tiles()),
            body=(*origins, *tile),
            cluster=ctas,
            requires=(along >= 1, self._fits(along), eq(kir.GRID, grid)),
            resident=self.params.resident,
        )
        return Lowered(made, Numbers(self.extents, self._tiles(), grid))

    def _first(self) -> Expr:
        """Return the first column of a CTA."""
        return kir.RANK * self.params.tile[1] if self.params.cluster > 1 else 0

    def _fits(self, along: Expr) -> Expr:
        columns = self.params.columns
        return eq(along, columns) if self.shapes.whole else along <= columns

    # --- who holds what ---------------------------------------------------------------------

    def _layout(self, *, rows: bool, cols: bool) -> kir.Layout:
        """Return how threads hold a tile, or what does not vary along its rows or its columns."""
        params = self.params
        *outer, down, across = self.tiling.tile
        shape = (*outer, down if rows else 1, across if cols else 1)
        vector, alike = (params.vector, 1) if cols else (1, params.lanes)
        threads = kir.WARP * params.warps
        slides = params.slide and cols
        return kir.Layout(shape, vector, threads, kir.Deal.ROWS, 1, params.lanes, alike, slides)

    def _walked(self, coords: Coords) -> kir.Layout:
        """Return how threads hold what is walked so."""
        down, across = ({*axes} for axes in self.tiling.axes_of[-2:])
        return self._layout(rows=not down.isdisjoint(coords), cols=not across.isdisjoint(coords))

    def _boxed(self, box: kir.Box) -> kir.Layout:
        """Return how threads hold a box, all of whose elements are stored."""
        *_, rows, cols = box.shape
        *_, down, across = self.tiling.tile
        return self._layout(rows=rows == down, cols=cols == across)

    def _row(self, access: Access) -> kir.Box:
        """Return a tile of whole rows."""
        origins = {self.tiling.rank - 1: self._first()}
        return self.box(access, origins, self.tiling.tma_shape(access))

    def _width_of(self, access: Access) -> int:
        return self._width(access) if self.tiling.varies(access, self.tiling.rank - 1) else 1

    def _spread(self, frag: kir.Fragment, layout: kir.Layout) -> kir.Fragment:
        """Return a fragment in a wider layout."""
        if frag.layout == layout:
            return frag
        wide = self.math.fragment(f"{frag.name}_spread", frag.dtype, layout)
        self.math.math.append(kir.Compute(wide, "promote", (frag,)))
        return wide

    # --- rows -------------------------------------------------------------------------------

    def _load_once(self, access: Access) -> None:
        frag = self.math.fragment(f"r_{access.name}", access.tv.dtype, self._walked(access.coords))
        box = self._row(access)
        width = 1 if frag.layout.slides else self._width_of(access)
        self.math.math.append(kir.Load(frag, box, width))
        self.math.done[access.tv, access.coords] = frag

    def _copied(self) -> dict[Access, int]:
        """Return the inputs that cp.async brings; ScheduleError if there are none."""
        if self.params.load != "cp_async":
            return {}
        found = copied(self.tiling, self.params, self.shapes)
        if not found:
            self.params.refuse(
                "load vector",
                f"cp.async copies 4, 8 or 16 bytes, and no input of {self.name} has rows of its "
                'own of multiples of that, or a vector of it; use load="direct"',
            )
        return found

    def _copy(self, access: Access, width: int) -> None:
        """Copy rows into a ring; every thread what it will have of them."""
        dtype = access.tv.dtype
        slot = kir.Slot(self.buffer(f"S_{access.name}", dtype, self.whole.shape), 0)
        engine = kir.Engine.CP_ASYNC
        self.copies.append(kir.Copy(slot, self._row(access), engine, self.whole, width))
        self.slots[access] = slot
        self._fetch(access)

    def _fetch(self, access: Access) -> None:
        """Load rows from their slot."""
        dtype = access.tv.dtype
        frag = self.math.fragment(f"r_{access.name}", dtype, self.whole)
        most = min(self.params.vector, 16 // dtype.nbytes)
        self.math.math.append(kir.Load(frag, self.slots[access], most))
        self.math.done[access.tv, access.coords] = frag

    def _late(self) -> list[Access]:
        """Return the columns that only results need: no registers are held for them until then.

        A persistent CTA loads them once, before all rows.
        """
        if self.holds:
            return []
        domain = self.tiling.domain
        needed = {key for one in domain.reductions for key in domain.needs(one)}
        return [
            access
            for access in domain.reads
            if (access.tv, access.coords) not in needed
            and {axis for axis in access.coords if axis is not None} <= {*self.rows}
        ]

    def _hoisted(self, body: Body) -> tuple[Body, Body]:
        """Part what is the same for every tile from the rest: loads of columns, and their math."""
        once: list[kir.Stmt] = []
        again: list[kir.Stmt] = []
        fixed = set[kir.Fragment]()
        moving = {self.origin(axis) for axis in self.tiling.walked}
        for stmt in body:
            match stmt:
                case kir.Load(dst, kir.Box() as box) if moving.isdisjoint(box.origin):
                    same = self.holds
                case kir.Compute(dst, _, args) if dst.dtype is not DType.BOOL:
                    parts = [arg for arg in args if isinstance(arg, kir.Fragment)]
                    same = bool(parts) and fixed.issuperset(parts)
                case _:
                    same = False
            if same:
                fixed.add(dst)
            (once if same else again).append(stmt)
        return tuple(once), tuple(again)

    def _forget(self) -> None:
        """Compute anew, from what was loaded or reduced, what is needed of whole tiles."""
        loaded = {stmt.dst for stmt in self.math.math if isinstance(stmt, kir.Load)}
        reduced = {(one.tv, one.coords) for one in self.tiling.domain.reductions}
        self.math.done = {
            key: frag
            for key, frag in self.math.done.items()
            if frag in loaded or key in reduced or frag.layout != self.whole
        }
        if self.params.reload:
            for access in self.slots:
                self._fetch(access)

    # --- reductions -------------------------------------------------------------------------

    def _levels(self) -> list[list[Reduction]]:
        """Return the reductions in order, those together that do not depend on each other."""
        domain = self.tiling.domain
        level: dict[tuple[TensorView, Coords], int] = {}
        out: list[list[Reduction]] = []
        for one in domain.reductions:
            below = [level[key] for key in domain.under(one) if key in level]
            mine = max(below, default=-1) + 1
            level[one.tv, one.coords] = mine
            out += [[]] * (mine == len(out))
            out[mine] = [*out[mine], one]
        return out

    def _reduce(self, level: list[Reduction]) -> None:
        """Append what reduces rows, and those results that other statements use."""
        math = self.math
        parts = [self._part(reduction) for reduction in level]
        if self.params.lanes > kir.WARP or self.params.cluster > 1:
            parts = self._of_warps(parts)
        for reduction, total in zip(level, parts, strict=True):
            key = reduction.tv, reduction.coords
            math.done[key] = self._mean(reduction.tv, total) if reduction.tv.op == "mean" else total

    def _part(self, reduction: Reduction) -> kir.Fragment:
        """Append what puts together what a warp has of its rows."""
        math, tv = self.math, reduction.tv
        (dtype,) = operand_dtypes(tv)
        value = math.value(reduction.source, reduction.walked)
        if value.dtype is not dtype:
            value = math.promoted(value, dtype)
        value = self._spread(value, self._along(reduction))
        op, name = COMBINE[tv.op], self.tiling.domain.name(reduction)
        value = self._bounded(reduction, value, name)
        lanes = min(self.params.lanes, kir.WARP)
        *outer, rows, _ = value.layout.shape
        shape = (*outer, rows, self.params.lanes // lanes)
        layout = replace(value.layout, shape=shape, vector=1, alike=lanes, slides=False)
        several = shape[-1] > 1 or self.params.cluster > 1
        part = math.fragment(f"{'part' if several else 'all'}_{name}", dtype, layout)
        math.math.append(kir.Reduce(part, value, op))
        return part

    def _along(self, reduction: Reduction) -> kir.Layout:
        """Return how threads hold what is reduced: one row, where all rows are the same."""
        down = {*self.tiling.axes_of[-2]}
        return self._layout(rows=not down.isdisjoint(reduction.walked), cols=True)

    def _position(self, tv: TensorView, axis: int) -> tuple[int, Expr] | None:
        """Return the kernel's axis and first coordinate of a loop axis: rows are not in tiles."""
        found = super()._position(tv, axis)
        along = found is not None and found[0] == self.tiling.rank - 1
        return (self.tiling.rank - 1, self._first()) if along else found

    def _bounded(self, reduction: Reduction, value: kir.Fragment, name: str) -> kir.Fragment:
        """Replace what lies behind the end of a row by what changes nothing, unless it is that."""
        if self.shapes.whole:
            return value
        axis = self.tiling.rank - 1
        zeros = {leaf.tv for leaf in reduction.leaves if self.tiling.varies(leaf, axis)}
        if unchanged_by_zeros(reduction.tv, reduction.source, zeros):
            return value
        inside = self._inside()
        math = self.math
        out = math.fragment(f"within_{name}", value.dtype, value.layout)
        nothing = identity(reduction.tv, value.dtype)
        math.math.append(kir.Compute(out, "where", (inside, value, nothing)))
        return out

    def _inside(self) -> kir.Fragment:
        """Return which columns are elements of a row, by whole vectors where those make it up."""
        math, axis = self.math, self.tiling.rank - 1
        columns, one = (self._layout(rows=False, cols=cols) for cols in (True, False))
        inside = math.fragment("inside", DType.BOOL, columns)
        if any(isinstance(stmt, kir.Compute) and stmt.dst == inside for stmt in math.math):
            return inside
        along = (access for access in self.tiling.domain.reads if self.tiling.unit(access, axis))
        even = gcd(
            self.params.vector,
            max((self.tensors[access.name].aligned for access in along), default=1),
        )
        at, end = (
            math.fragment(*pair)
            for pair in (("column", DType.I64, columns), ("end", DType.I64, one))
        )
        math.math.append(kir.Coordinate(at, axis, self._first()))
        math.math.append(kir.Coordinate(end, axis, self.extents[axis] // even))
        if even > 1:
            vectors = math.fragment("cell", DType.I64, columns)
            many = kir.Literal(even, DType.I64)
            math.math.append(kir.Compute(vectors, "floor_div", (at, many)))
            at = vectors
        math.math.append(kir.Compute(inside, "lt", (at, end)))
        return inside

    def _of_warps(self, parts: list[kir.Fragment]) -> list[kir.Fragment]:
        """Append what puts the parts of rows together that warps have, all through one barrier.

        Those of all CTAs of a cluster, which read each other's, in one order.
        """
        math, out = self.math, []
        slots = []
        ranks: list[int | None] = (
            [*range(self.params.cluster)] if self.params.cluster > 1 else [None]
        )
        for part in parts:
            name = part.name.removeprefix("part_")
            slots.append(kir.Slot(self.buffer(f"S_{name}", part.dtype, part.layout.shape), 0))
            math.math.append(kir.Store(slots[-1], part, 1))
        for part, slot in zip(parts, slots, strict=True):
            name, count = part.name.removeprefix("part_"), part.layout.shape[-1]
            layout = replace(part.layout, vector=count, alike=self.params.lanes)
            row = replace(layout, shape=(*layout.shape[:-1], 1), vector=1)
            op = next(s.op for s in math.math if isinstance(s, kir.Reduce) and s.dst == part)
            ends = ["" if rank is None else f"_of{rank}" for rank in ranks]
            every = [math.fragment(f"parts_{name}{end}", part.dtype, layout) for end in ends]
            for frag, rank in zip(every, ranks, strict=True):
                width = gcd(count, 16 // part.dtype.nbytes)
                math.math.append(kir.Load(frag, replace(slot, cta=rank), width))
            totals = [math.fragment(f"all_{name}{end}", part.dtype, row) for end in ends]
            for total, frag in zip(totals, every, strict=True):
                math.math.append(kir.Reduce(total, frag, op))
            whole = totals[0]
            for rank, total in enumerate(totals[1:]):
                last = "" if rank + 2 == len(totals) else f"_to{rank + 1}"
                both = math.fragment(f"all_{name}{last}", part.dtype, row)
                math.math.append(kir.Compute(both, op, (whole, total)))
                whole = both
            out.append(whole)
        return out

    def _mean(self, tv: TensorView, total: kir.Fragment) -> kir.Fragment:
        """Divide by how many elements a row has."""
        math, axis = self.math, self.tiling.rank - 1
        count = math.fragment("count", DType.I64, total.layout)
        if not any(isinstance(stmt, kir.Coordinate) and stmt.dst == count for stmt in math.math):
            math.math.append(kir.Coordinate(count, axis, self.extents[axis]))
        less = math.corrected(tv, count)
        many = math.fragment(f"{less.name}_as_{total.dtype.name}", total.dtype, total.layout)
        math.math.append(kir.Compute(many, "promote", (less,)))
        out = math.fragment(f"mean_{total.name}", total.dtype, total.layout)
        math.math.append(kir.Compute(out, "div", (total, many)))
        return out
