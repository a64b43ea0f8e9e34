"""Kernels that have whole rows at a time: read once, reduced in registers, and written once.

Neighbouring threads share a row.  A reduction first puts together what each of them holds, then
what the lanes of a warp have; warps leave their parts in shared memory, where each thread finds
all of its row.  What is computed from the results stays with the threads that hold the elements.
Nothing here waits; the passes see who reads what.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from fuser.arch import launch_registers
from fuser.dtype import DType
from fuser.expr import Expr, ceildiv, eq, maximum, minimum
from fuser.fusion.ir import TensorView
from fuser.fusion.ops import operand_dtypes
from fuser.fusion.zeros import least_is_nothing, unchanged_by_zeros
from fuser.kernel import ir as kir
from fuser.lower.math import COMBINE, Arithmetic, identity
from fuser.lower.tiling import SMS, TILE, TRIP, TRIPS, Lowered, Numbers, PointwiseLowering
from fuser.schedule.domain import Access, Coords, Reduction, arguments
from fuser.schedule.norm import copied, runs, slide_refusal
from fuser.schedule.params import NormParams
from fuser.schedule.reduction import ReductionTiling

Body = tuple[kir.Stmt, ...]
KEPT = 96
"""Registers of a thread, at least, where weights are held early and rows are to stay in the L2."""
BY_LANES = 16
"""Parts of a row that are put together by lanes, one each, and not by every thread, at least."""
SENT = 4
"""Bytes that a thread stores into another CTA, at least.  Source: PTX ISA, "st.async"."""


class NormLowering(PointwiseLowering[ReductionTiling]):
    """The lowering of one domain of whole rows; its tiles are read and written by threads."""

    params: NormParams

    def __post_init__(self) -> None:
        """Deal rows to neighbouring threads."""
        super().__post_init__()
        self.whole = self._layout(rows=True, cols=True)
        self.rows = self.tiling.domain.rows
        self.slots: dict[Access, kir.Slot] = {}
        self.low = self._low()
        why = slide_refusal(self.tiling.domain, self.params.vector) if self.params.slide else None
        if why is not None:
            self.params.refuse("slide vector", f"{why}; use slide=False")
        self.math = Arithmetic(
            self.whole, self._position, scalars=self.scalars, layouts=self._walked
        )

    def _keeps(self) -> bool:
        """Whether rows are to leave the L2 last: unless weights held early leave few registers.

        Layer norm of 16384 x 4096 by 80 registers a thread spills by it: 69.6 us, without 67.3.
        Nor where rings of bulk copies begin sums of all rows: its backward 107.0, without 105.4.
        """
        if self.params.load == "bulk" and self.tiling.domain.begun:
            return False
        threads = kir.WARP * self.params.warps * self.params.resident
        return not self.params.hold or launch_registers(threads) >= KEPT

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
        begun = [self._begun(access) for access in domain.begun]
        for access in domain.writes:
            if access.tv.parts:
                continue
            box = self._row(access)
            result = self._spread(math.value(access.tv, access.coords), self._boxed(box))
            store = kir.Store(box, result, self._width_of(access))
            whole = self.tiling.varies(access, self.tiling.rank - 1)
            # What there is one of for a row all CTAs of a cluster have.
            alone = self.params.cluster > 1 and not whole
            math.math.append(kir.IfThenElse(eq(kir.RANK, 0), (store,)) if alone else store)
        ctas = self.params.cluster
        mine, all_ = kir.BLOCK // ctas, kir.GRID // ctas
        fits: tuple[Expr, ...] = (self.extents[-1] >= 1, self._fits(self.extents[-1]))
        if self.shapes.close:
            others = self.params.columns - self.params.lanes * self.params.vector
            fits = (*fits, self.extents[-1] > others)
        if self.alone or begun:
            fits = (*fits, eq(kir.GRID, self._grid()))
        if self.alone:
            origins = self._numbered(TILE, mine, self.tiling.walked)
            made = self._kernel((*origins, *math.math))
        else:
            origins = self._numbered(TILE, mine + TRIP * all_, self.tiling.walked)
            once, again = self._hoisted(tuple(math.math))
            request = kir.CircularBuffer(self.params.stages, self.params.prefetch)
            ring = request if self.copies else None
            loop = kir.ForLoop(TRIP, TRIPS, (*origins, *self.copies, *again), ring)
            trips = kir.Let(TRIPS, ceildiv(self._tiles() - mine, all_))
            starts = [kir.Compute(acc, "promote", (nothing,)) for acc, nothing, _ in begun]
            ends = [
                kir.Store(box, acc, min(self.params.vector, box.tensor.aligned))
                for acc, _, box in begun
            ]
            made = self._kernel((trips, *starts, *once, loop, *ends))
        return Lowered(
            replace(made, cluster=ctas, requires=fits, resident=self.params.resident),
            Numbers(self.extents, self._tiles(), self._grid()),
        )

    @property
    def alone(self) -> bool:
        """Whether each tile has a CTA of its own, which begins nothing."""
        return super().alone and not self.tiling.domain.begun

    def _tensor(self, access: Access) -> kir.Tensor:
        """Return a tensor as a kernel sees it; parts of reductions as rows of all its tiles."""
        made = super()._tensor(access)
        if not access.tv.parts:
            return made
        around = self.tiling.rank - 2
        extents = (*(1,) * around, self._parts() * self.params.tile[0], self.extents[-1])
        return replace(made, extents=extents, strides=(*(0,) * around, *made.strides[-2:]))

    def _parts(self) -> Expr:
        """CTAs, or clusters, that leave parts of reductions."""
        return ceildiv(self._tiles(), self.params.tiles_per_cta)

    def _begun(self, access: Access) -> tuple[kir.Fragment, kir.Literal, kir.Box]:
        """Put what a tile has of a reduction of all rows to what those before it had.

        Return the sums so far, what they are at first, and where they are stored behind all tiles.
        """
        math, tv = self.math, access.tv
        ((_, source, walked),) = arguments(tv, access.coords)
        value = math.value(source, walked)
        if value.dtype is not tv.dtype:
            value = math.promoted(value, tv.dtype)
        value = self._spread(value, self.whole)
        nothing, down = identity(tv, tv.dtype), self.tiling.rank - 2
        zeros = {a.tv for a in self.tiling.domain.reads if self.tiling.varies(a, down)}
        if self.params.tile[0] > 1 and not unchanged_by_zeros(tv, source, zeros):
            left = self.origin(down) - self.extents[down]
            names = ("row_left", "row_inside", f"within_{tv.name}")
            value = math.bounded(value, nothing, down, left, names)
        acc = math.fragment(f"sum_{tv.name}", tv.dtype, self.whole)
        math.math.append(kir.Compute(acc, COMBINE[tv.op], (acc, value)))
        tensor, rows = self.tensors[access.name], self.params.tile[0]
        mine = kir.BLOCK // self.params.cluster
        origin = (*(0,) * down, mine * rows, self._first())
        return acc, nothing, kir.Box(tensor, origin, self.whole.shape, tensor.extents)

    def _grid(self) -> Expr:
        """CTAs of a launch: whole clusters, one a tile, or as many as run at once."""
        ctas, many = self.params.cluster, self.params.ctas_per_sm
        if self.tiling.domain.begun:
            return self._parts() * ctas
        if ctas == 1:
            return super()._grid()
        if many is None:
            return self._tiles() * ctas
        return minimum(self._tiles(), maximum(SMS * many // ctas, 1)) * ctas

    def _first(self, run: int = 1) -> Expr:
        """Return the first column of a CTA, or the first run of so many."""
        return kir.RANK * (self.params.tile[1] // run) if self.params.cluster > 1 else 0

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
        box, fill = self._row(access), float("-inf") if access in self.low else 0
        width = 1 if frag.layout.slides else self._width_of(access)
        self.math.math.append(kir.Load(frag, box, width, fill))
        self.math.done[access.tv, access.coords] = frag

    def _copied(self) -> dict[Access, int]:
        """Return the inputs that an engine brings; ScheduleError if there are none."""
        match self.params.load:
            case "cp_async":
                found = copied(self.tiling, self.params, self.shapes)
                rows = "cp.async copies 4, 8 or 16 bytes, and no input of {} has rows of its own of"
                way_out = 'load="direct"'
            case "bulk":
                found = runs(self.tiling, self.params, self.shapes)
                rows = "a bulk copy takes 16 bytes and multiples, and no input of {} has rows of"
                way_out = 'load="cp_async"'
            case _:
                return {}
        if not found:
            why = f"{rows.format(self.name)} multiples of that, or a vector of it; use {way_out}"
            self.params.refuse("load vector", why)
        return found

    def _copy(self, access: Access, width: int) -> None:
        """Copy rows into a ring; by cp.async every thread what it will have of them."""
        dtype, box = access.tv.dtype, self._row(access)
        slot = kir.Slot(self.buffer(f"S_{access.name}", dtype, self.whole.shape), 0)
        engine = kir.Engine(self.params.load)
        if engine.of_threads:
            self.copies.append(kir.Copy(slot, box, engine, self.whole, width))
        else:  # of a row that there is: every tile has one
            ends = (*(origin + 1 for origin in box.origin[:-1]), box.limit[-1])
            self.copies.append(kir.Copy(slot, replace(box, limit=ends), engine))
        self.slots[access] = slot
        self._fetch(access)

    def _fetch(self, access: Access) -> None:
        """Load rows from their slot; what lies behind a bulk copy there was not written."""
        dtype = access.tv.dtype
        frag = self.math.fragment(f"r_{access.name}", dtype, self.whole)
        most = min(self.params.vector, 16 // dtype.nbytes)
        fill, limit = float("-inf") if access in self.low else 0, None
        if self.params.load == "bulk" and not self.shapes.whole:
            limit = (*(1 for _ in self.whole.shape[1:]), self.extents[-1] - self._first())
        self.math.math.append(kir.Load(frag, self.slots[access], most, fill, limit=limit))
        self.math.done[access.tv, access.coords] = frag

    def _late(self) -> list[Access]:
        """Return the columns that only results need, unless they are held from the start."""
        if self.params.hold:
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
                    same = self.params.hold
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
        ops = [self._op(part) for part in parts]
        if self.params.lanes > kir.WARP:
            parts = self._of_warps(parts)
        if self.params.cluster > 1:
            parts = self._of_ctas(parts, ops)
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
        if reduction.leaves and {*reduction.leaves} <= self.low:
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

    def _low(self) -> frozenset[Access]:
        """Return the input that may be minus infinity behind the ends of rows, if it alone is."""
        domain, across = self.tiling.domain, self.tiling.rank - 1
        along = [one for one in domain.leaves if self.tiling.varies(one, across)]
        found = {least_is_nothing(one.tv, one.source) for one in domain.reductions}
        same = len(along) == 1 and found == {along[0].tv}
        # Sums of all rows have zeros of those behind the last.
        zeros = self.params.slide or self.shapes.whole or bool(domain.begun)
        loaded = self.params.load != "cp_async" and not zeros
        return frozenset(along if same and loaded else ())

    def _inside(self) -> kir.Fragment:
        """Return which columns are elements of a row, by whole vectors where those make it up."""
        math, axis = self.math, self.tiling.rank - 1
        columns, one = (self._layout(rows=False, cols=cols) for cols in (True, False))
        reads = (
            self.tensors[a.name] for a in self.tiling.domain.reads if self.tiling.unit(a, axis)
        )
        even = gcd(self.params.vector, max((t.aligned for t in reads if not t.ragged), default=1))
        *outer, wide = columns.shape
        runs = replace(columns, shape=(*outer, wide // even), vector=columns.vector // even)
        inside = math.fragment("inside", DType.BOOL, runs)
        if any(isinstance(stmt, kir.Compute) and stmt.dst == inside for stmt in math.math):
            return inside
        at, end = (
            math.fragment(*pair) for pair in (("run", DType.I32, runs), ("end", DType.I32, one))
        )
        math.math.append(kir.Coordinate(at, axis, self._first(even)))
        math.math.append(kir.Coordinate(end, axis, self.extents[axis] // even))
        math.math.append(kir.Compute(inside, "lt", (at, end)))
        return inside

    def _of_warps(self, parts: list[kir.Fragment]) -> list[kir.Fragment]:
        """Append what puts the parts of rows together that warps have, all through one barrier."""
        slots = self._shown(parts)
        totals = []
        for part, slot in zip(parts, slots, strict=True):
            name, count = part.name.removeprefix("part_"), part.layout.shape[-1]
            row = replace(part.layout, shape=(*part.layout.shape[:-1], 1), alike=self.params.lanes)
            if prod(row.shape) == 1 and row.alike == row.threads and BY_LANES <= count <= kir.WARP:
                layout = replace(part.layout, across=count, alike=1)  # every warp, a lane each
            else:
                layout = replace(part.layout, vector=count, alike=row.alike)
            every = self.math.fragment(f"parts_{name}", part.dtype, layout)
            wide = gcd(layout.vector, 16 // part.dtype.nbytes)
            self.math.math.append(kir.Load(every, slot, wide))
            several = self.params.cluster > 1
            total = self.math.fragment(f"{'cta' if several else 'all'}_{name}", part.dtype, row)
            self.math.math.append(kir.Reduce(total, every, self._op(part)))
            totals.append(total)
        return totals

    def _of_ctas(self, parts: list[kir.Fragment], ops: list[str]) -> list[kir.Fragment]:
        """Append what puts the parts of rows together that the CTAs of a cluster have.

        Each stores its own where every CTA finds it, and all put them together in one order.
        """
        math, ctas, out = self.math, self.params.cluster, []
        own = [part.dtype for part in parts]
        parts = [self._sendable(part) for part in parts]
        places = [
            self.buffer(f"S_{part.name}", part.dtype, part.layout.shape, ctas) for part in parts
        ]
        for part, place in zip(parts, places, strict=True):
            for rank in range(ctas):
                math.math.append(kir.Store(kir.Slot(place, kir.RANK, rank), part, 1))
        for part, op, place, dtype in zip(parts, ops, places, own, strict=True):
            name = part.name.removeprefix("part_").removeprefix("cta_")
            every = [
                math.fragment(f"cta{rank}_{name}", part.dtype, part.layout) for rank in range(ctas)
            ]
            for rank, frag in enumerate(every):
                math.math.append(kir.Load(frag, kir.Slot(place, rank), 1))
            whole, *rest = every
            for rank, frag in enumerate(rest, 1):
                last = "" if frag is rest[-1] else f"_to{rank}"
                both = math.fragment(f"all_{name}{last}", part.dtype, part.layout)
                math.math.append(kir.Compute(both, op, (whole, frag)))
                whole = both
            if dtype is not part.dtype:
                narrow = math.fragment(f"all_{name}_as_{dtype.name}", dtype, part.layout)
                math.math.append(kir.Compute(narrow, "cast", (whole,)))
                whole = narrow
            out.append(whole)
        return out

    def _sendable(self, part: kir.Fragment) -> kir.Fragment:
        """Return the same numbers in a type of 4 or 8 bytes, which `st.async` stores."""
        if part.dtype.nbytes >= SENT:
            return part
        return self.math.promoted(part, DType.F32 if part.dtype.is_float else DType.I32)

    def _shown(self, parts: list[kir.Fragment]) -> list[kir.Slot]:
        """Append stores of parts of rows where other threads find them."""
        slots = []
        for part in parts:
            name = part.name.removeprefix("part_")
            slots.append(kir.Slot(self.buffer(f"S_{name}", part.dtype, part.layout.shape), 0))
            self.math.math.append(kir.Store(slots[-1], part, 1))
        return slots

    def _op(self, part: kir.Fragment) -> str:
        """Return how a part was put together."""
        made = (s for s in self.math.math if isinstance(s, kir.Reduce) and s.dst == part)
        return next(made).op

    def _mean(self, tv: TensorView, total: kir.Fragment) -> kir.Fragment:
        """Divide by how many elements a row has."""
        math, axis = self.math, self.tiling.rank - 1
        count = math.fragment("count", DType.I64, self._layout(rows=False, cols=False))
        made = {s.dst for s in math.math if isinstance(s, kir.Coordinate | kir.Compute)}
        if count not in made:
            math.math.append(kir.Coordinate(count, axis, self.extents[axis]))
        less = math.corrected(tv, count)
        many = math.fragment(f"{less.name}_as_{total.dtype.name}", total.dtype, count.layout)
        if many not in made:
            math.math.append(kir.Compute(many, "promote", (less,)))
        out = math.fragment(f"mean_{total.name}", total.dtype, total.layout)
        math.math.append(kir.Compute(out, "div", (total, many)))
        return out
