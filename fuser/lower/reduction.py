"""Kernels that reduce: tiles are put together element by element, then within the CTA.

A CTA walks the reduced axes of its rows (or columns) tile by tile into one tile of partial results.
Threads then put together what they hold of a row, warps what their lanes hold, and the parts of
several warps are put together in shared memory.  Where CTAs share a tile, each walks a part of
these axes, and their results are put together in global memory.  Nothing here waits; the passes see
who reads what.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq, minimum
from fuser.fusion.ops import operand_dtypes
from fuser.fusion.zeros import unchanged_by_zeros
from fuser.kernel import ir as kir
from fuser.lower.math import COMBINE, Arithmetic, identity
from fuser.lower.split_k import SPLIT, SPLITS, workspace
from fuser.lower.tiling import TILE, TRIP, TRIPS, Lowered, Numbers, PointwiseLowering
from fuser.schedule.domain import Reduction
from fuser.schedule.params import ReductionParams
from fuser.schedule.reduction import (
    ReductionTiling,
    crowd,
    groups,
    how_split,
    lanes_together,
    results_at_once,
    suited,
)

STEP = Var("r")


class ReductionLowering(PointwiseLowering[ReductionTiling]):
    """The lowering of one domain with reductions; results are stored by threads.

    ScheduleError if a warp does not suit the tile, or TMA is asked for and no tensor can use it.
    """

    def __post_init__(self) -> None:
        """Choose params by which threads can put their parts of a tile together."""
        self.params = suited(self.tiling, self.params)
        super().__post_init__()
        self.meet = how_split(self.params)
        self.workspaces: list[kir.Tensor] = []

    def _keeps(self) -> bool:
        """Whether what is read once is to leave the L2 last: it gains nothing."""
        return False

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        domain = self.tiling.domain
        if self.params.load == "bulk":
            self.params.refuse("load", 'reductions take no bulk copies; use load="tma"')
        self._load_all(domain.leaves)
        sums = [self._partial(reduction) for reduction in domain.reductions]
        puts = [self._put(r, acc) for r, acc in zip(domain.reductions, sums, strict=True)]
        steps = self._steps()
        loop = kir.ForLoop(
            STEP,
            # CTAs of a tile take steps in turn, so that none has nothing to do.
            ceildiv(steps - SPLIT, SPLITS) if self.meet else steps,
            (*self._reduced_origins(), *self.copies, *self.math.math, *puts),
            self._request(),
        )
        starts = [
            kir.Compute(acc, "promote", (identity(reduction.tv, acc.dtype),))
            for reduction, acc in zip(domain.reductions, sums, strict=True)
        ]
        tile = (*self._kept_origins(), *starts, loop, *self._results(sums))
        some = tuple(self.extents[axis] >= 1 for axis in self.tiling.reduced)
        if self.alone or self.meet:
            made = self._kernel(tile)
        else:
            made = self._walks((kir.ForLoop(TRIP, TRIPS, tile),), self._tiles())
        made = replace(made, requires=(*some, *made.requires))
        counts = tuple(self.counts.items())
        if not self.meet:
            return Lowered(made, Numbers(self.extents, self._tiles(), self._grid(), (), counts))
        assert isinstance(self.params, ReductionParams), "only these share tiles"
        chosen = ((SPLITS, minimum(self.params.splits, steps)),)
        grid = self._tiles() * SPLITS
        numbers = Numbers(self.extents, self._tiles(), grid, chosen, counts)
        return Lowered(self._shared(made), numbers)

    @property
    def alone(self) -> bool:
        """Whether each tile has one CTA of its own."""
        return super().alone and not self.meet

    def _shared(self, made: kir.Kernel) -> kir.Kernel:
        """Return the kernel in which several CTAs have each tile, and no CTA several."""
        return replace(
            made,
            params=(*made.params, SPLITS),
            tensors=(*made.tensors, *self.workspaces),
            body=(kir.Let(SPLIT, kir.BLOCK % SPLITS), *made.body),
            requires=(
                *made.requires,
                SPLITS >= 1,
                eq(kir.GRID, self._tiles() * SPLITS),
                self._steps() >= SPLITS,
            ),
            workspaces=tuple(tensor.name for tensor in self.workspaces),
            semaphores=(self._turns(),),
            residency="any" if self.meet == "last" else "ticket",
        )

    # --- where tiles lie --------------------------------------------------------------------

    def _steps(self) -> Expr:
        return self._tiles(self.tiling.reduced)

    def _kept_origins(self) -> list[kir.Stmt]:
        if self.meet:
            return self._numbered(TILE, kir.BLOCK // SPLITS, self.tiling.walked)
        return self._origins()

    def _reduced_origins(self) -> list[kir.Stmt]:
        step: Expr = SPLIT + STEP * SPLITS if self.meet else STEP
        if len(self.tiling.reduced) == 1:
            (axis,) = self.tiling.reduced
            return [kir.Let(self.origin(axis), step * self.tiling.tile[axis])]
        return self._numbered(Var("step"), step, self.tiling.reduced)

    # --- a tile of partial results ----------------------------------------------------------

    def _partial(self, reduction: Reduction) -> kir.Fragment:
        """Return the tile of partial results: of columns one row for each group of threads.

        So a thread has registers for more rows on their way, not for a result of each.
        """
        name, dtype = f"sum_{self.tiling.domain.name(reduction)}", operand_dtypes(reduction.tv)[0]
        layout = self.math.layout
        if not self.tiling.along:
            *outer, _, cols = layout.shape
            layout = replace(layout, shape=(*outer, groups(self.params), cols))
        return self.math.fragment(name, dtype, layout)

    def _put(self, reduction: Reduction, acc: kir.Fragment) -> kir.Stmt:
        """Put the next tile to those before it."""
        value = self.math.value(reduction.source, reduction.walked)
        value = self.math.converted(value, acc.dtype)
        axis = self.tiling.reduced[-1]
        zeros = {leaf.tv for leaf in reduction.leaves if self.tiling.varies(leaf, axis)}
        if not unchanged_by_zeros(reduction.tv, reduction.source, zeros):
            left = self.origin(axis) - self.extents[axis]
            names = ("left", "inside", f"within_{self.tiling.domain.name(reduction)}")
            nothing = identity(reduction.tv, value.dtype)
            value = self.math.bounded(value, nothing, axis, left, names)
        op = COMBINE[reduction.tv.op]
        if value.layout != acc.layout:
            if value.dtype is not acc.dtype:
                value = self.math.promoted(value, acc.dtype)
            name = f"rows_{self.tiling.domain.name(reduction)}"
            rows = self.math.fragment(name, acc.dtype, acc.layout)
            self.math.math.append(kir.Reduce(rows, value, op))
            value = rows
        return kir.Compute(acc, op, (acc, value))

    # --- results ----------------------------------------------------------------------------

    def _results(self, sums: list[kir.Fragment]) -> list[kir.Stmt]:
        """Put the tile of each reduction together, compute the rest of the fusion, and store it."""
        domain = self.tiling.domain
        out: list[kir.Stmt] = []
        if self.meet == "tma":
            made = self._added_by_tma(out, sums)
        else:
            made = [
                self._together(out, reduction, self._within_warps(out, reduction, acc))
                for reduction, acc in zip(domain.reductions, sums, strict=True)
            ]
        if self.meet == "last":
            made = self._pooled(out, made)
        elif self.meet == "vectorized":
            out += [
                self._meeting(reduction, whole)
                for reduction, whole in zip(domain.reductions, made, strict=True)
            ]
        math = Arithmetic(
            made[0].layout, self._position, self._gathered, scalars=self.scalars, prefix="o"
        )
        for access in domain.inputs:
            frag = math.fragment(f"o_{access.name}", access.tv.dtype)
            width = 1 if self.tiling.along else min(self._width(access), made[0].layout.vector)
            math.math.append(kir.Load(frag, self._box(access), width))
            math.done[access.tv, access.coords] = frag
        for reduction, whole in zip(domain.reductions, made, strict=True):
            key = reduction.tv, reduction.coords
            math.done[key] = (
                self._mean(math, reduction, whole) if reduction.tv.op == "mean" else whole
            )
        for access in domain.writes:
            result = math.value(access.tv, access.coords)
            width = 1 if self.tiling.along else min(self._width(access), made[0].layout.vector)
            math.math.append(kir.Store(self._box(access), result, width))
        return [*out, *math.math]

    def _within_warps(
        self, out: list[kir.Stmt], reduction: Reduction, acc: kir.Fragment
    ) -> kir.Fragment:
        """Append what puts together what threads hold of a column, or warps of a row."""
        op, name = COMBINE[reduction.tv.op], self.tiling.domain.name(reduction)
        *outer, rows, cols = acc.layout.shape
        vector = acc.layout.vector
        if not self.tiling.along:
            left = groups(self.params)
            if rows == left:
                return acc
            layout = replace(acc.layout, shape=(*outer, left, cols))
            made = kir.Fragment(f"{'all' if left == 1 else 'part'}_{name}", acc.dtype, layout)
            out.append(kir.Reduce(made, acc, op))
            return made
        folded = vector * lanes_together(cols // vector, self.params)
        if folded == 1:
            return acc
        return self._folded(out, acc, folded, op, f"part_{name}")

    @staticmethod
    def _folded(
        out: list[kir.Stmt], acc: kir.Fragment, folded: int, op: str, name: str
    ) -> kir.Fragment:
        """Append what puts so many neighbours of a row together, by the lanes that hold them."""
        *outer, cols = acc.layout.shape
        layout = replace(acc.layout, shape=(*outer, cols // folded), folded=folded)
        made = kir.Fragment(name, acc.dtype, layout)
        out.append(kir.Reduce(made, acc, op))
        return made

    def _together(
        self, out: list[kir.Stmt], reduction: Reduction, part: kir.Fragment
    ) -> kir.Fragment:
        """Append what puts the parts of rows together; return the fragment with the results."""
        op, name = COMBINE[reduction.tv.op], self.tiling.domain.name(reduction)
        *_, rows, parts = part.layout.shape
        columns = not self.tiling.along
        if (columns and rows == 1) or (parts == 1 and part.layout.folded > 1):
            return part
        slot = kir.Slot(self.buffer(f"S_{name}", part.dtype, part.layout.shape), 0)
        if columns:
            return self._of_groups(out, slot, part, op)
        row = kir.Layout(part.layout.shape, parts, part.layout.threads)
        every = kir.Fragment(f"parts_{name}", part.dtype, row)
        out += [
            kir.Store(slot, part, 1),
            kir.Load(every, slot, gcd(parts, 16 // part.dtype.nbytes)),
        ]
        return every if parts == 1 else self._folded(out, every, parts, op, f"all_{name}")

    @staticmethod
    def _of_groups(
        out: list[kir.Stmt], slot: kir.Slot, part: kir.Fragment, op: str
    ) -> kir.Fragment:
        """Append what puts columns together of which groups of threads have parts."""
        name = part.name.removeprefix("part_")
        *_, cols = part.layout.shape
        threads = part.layout.threads
        layout = replace(
            part.layout, vector=1, deal=kir.Deal.ROWS, across=threads, alike=max(threads // cols, 1)
        )
        every = kir.Fragment(f"parts_{name}", part.dtype, layout)
        one_row = (*(1 for _ in layout.shape[:-1]), cols)
        made = kir.Fragment(f"all_{name}", part.dtype, replace(layout, shape=one_row))
        out += [
            kir.Store(slot, part, gcd(part.layout.vector, 16 // part.dtype.nbytes)),
            kir.Load(every, slot, 1),
            kir.Reduce(made, every, op),
        ]
        return made

    def _turns(self) -> kir.Semaphore:
        return kir.Semaphore("turns", self._tiles())

    def _meeting(self, reduction: Reduction, whole: kir.Fragment) -> kir.GridSum:
        """Put the results of the CTAs that share a tile together, in turns."""
        box, op = self._workspace(reduction, whole, 1, TILE), COMBINE[reduction.tv.op]
        return kir.GridSum(whole, box, self._turns(), TILE, SPLIT, SPLITS, op=op)

    def _added_by_tma(self, out: list[kir.Stmt], sums: list[kir.Fragment]) -> list[kir.Fragment]:
        """Let TMA add up what CTAs have of a tile: columns, or parts of rows, whole chunks of them.

        The last CTA alone puts the parts of a row together.
        """
        reductions = self.tiling.domain.reductions
        parts = [self._within_warps(out, *pair) for pair in zip(reductions, sums, strict=True)]
        for reduction, part in zip(reductions, parts, strict=True):
            name = f"{self.tiling.domain.name(reduction)}_staged"
            slot = kir.Slot(self.buffer(f"S_{name}", part.dtype, part.layout.shape), 0)
            out.append(replace(self._meeting(reduction, part), staged=slot))
        return [self._together(out, *pair) for pair in zip(reductions, parts, strict=True)]

    def _pooled(self, out: list[kir.Stmt], made: list[kir.Fragment]) -> list[kir.Fragment]:
        """Append what stores the results of each CTA, and puts all of them together in the last."""
        pairs = list(zip(self.tiling.domain.reductions, made, strict=True))
        for reduction, mine in pairs:
            place = self._of_ctas(reduction, mine, SPLIT, 1)
            out.append(kir.Store(place, mine, min(mine.layout.vector, place.tensor.aligned)))
        for tensor in self.workspaces:
            out.append(kir.GridShare(tensor.name, self._turns(), TILE, SPLITS, alone=True))
        return [self._pool(out, *pair, _share(n)) for n, pair in enumerate(pairs)]

    def _pool(
        self, out: list[kir.Stmt], reduction: Reduction, mine: kir.Fragment, other: Var
    ) -> kir.Fragment:
        """Append what puts results of all CTAs together: groups of threads, some CTAs each."""
        *outer, rows, cols = mine.layout.shape
        threads, op, name = mine.layout.threads, COMBINE[reduction.tv.op], mine.name
        along = self.tiling.along
        many = crowd(self.params, along=along)
        shape = (*outer, rows, many) if along else (*outer, many, cols)
        layout = kir.Layout(shape, 1 if along else max(many * cols // threads, 1), threads)
        math = Arithmetic(layout, self._position, scalars=self.scalars, prefix="m")
        box = self._of_ctas(reduction, mine, other * many, many)
        whole, more = (math.fragment(f"{name}_{word}", mine.dtype) for word in ("of_all", "more"))
        nothing = identity(reduction.tv, mine.dtype)
        out.append(kir.Compute(whole, "promote", (nothing,)))
        math.math.append(kir.Load(more, box, min(layout.vector, box.tensor.aligned)))
        value = more
        if op != "add":
            names = ("other", "others", f"within_{name}")
            axis, left = len(outer) + (1 if along else 0), other * many - SPLITS
            value = math.bounded(more, nothing, axis, left, names)
        math.math.append(kir.Compute(whole, op, (whole, value)))
        assert isinstance(self.params, ReductionParams), "only these share tiles"
        # Beyond the last CTA nothing is read, and nothing changes a result.
        most = results_at_once(self.params, mine.dtype.nbytes, along=along)
        at_once = -(-min(most, self.params.splits) // many)
        add, trips = tuple(math.math), ceildiv(SPLITS, many)
        out.append(kir.ForLoop(other, trips, add, unroll=at_once, beyond=True))
        if not along:
            slot = kir.Slot(self.buffer(f"S_{whole.name}", mine.dtype, whole.layout.shape), 0)
            return self._of_groups(out, slot, whole, op)
        return whole if many == 1 else self._folded(out, whole, many, op, f"{name}_by_lanes")

    def _of_ctas(self, reduction: Reduction, mine: kir.Fragment, first: Expr, many: int) -> kir.Box:
        """Return a place for the results that so many CTAs have of a tile, from the first on.

        Those of a row lie beside each other, those of columns below.
        """
        *outer, rows, cols = mine.layout.shape
        ones, zeros = (*(1 for _ in outer),), (*(0 for _ in outer),)
        if self.tiling.along:
            extents = (*ones, self._tiles() * rows, SPLITS)
            origin, tile, aligned = (*zeros, TILE * rows, first), (*outer, rows, many), 1
        else:
            extents = (*ones, SPLITS, self._tiles() * cols)
            origin, tile = (*zeros, first, TILE * cols), (*outer, many, cols)
            aligned = gcd(16 // mine.dtype.nbytes, cols)
        name = f"W_{self.tiling.domain.name(reduction)}"
        tensor = kir.Tensor(name, mine.dtype, extents, (*zeros, extents[-1], 1), aligned)
        if tensor not in self.workspaces:
            self.workspaces.append(tensor)
        return kir.Box(tensor, origin, tile, extents)

    def _workspace(
        self, reduction: Reduction, whole: kir.Fragment, parts: Expr, part: Expr
    ) -> kir.Box:
        """Return a place for results: one part of so many that each tile has."""
        name = f"W_{self.tiling.domain.name(reduction)}"
        every = self._tiles() * parts
        box = workspace(name, whole.dtype, whole.layout.shape, every, part)
        if box.tensor not in self.workspaces:
            self.workspaces.append(box.tensor)
        return box

    def _mean(self, math: Arithmetic, reduction: Reduction, total: kir.Fragment) -> kir.Fragment:
        """Divide by how many elements were added up."""
        count: kir.Fragment | None = None
        extents: list[Expr] = [self.extents[axis] for axis in self.tiling.reduced]
        if reduction.tv.count:  # of parts: what they were parts of
            own = {Var(f"{reduction.tv.name}_n{n}"): e for n, e in enumerate(reduction.tv.count)}
            self.counts |= own
            extents = [*own]
        for axis, many in enumerate(extents):
            one = math.fragment(f"count{axis}", DType.I64)
            math.math.append(kir.Coordinate(one, self.tiling.reduced[-1], many))
            if count is not None:
                both = math.fragment(f"counts{axis}", DType.I64)
                math.math.append(kir.Compute(both, "mul", (count, one)))
                one = both
            count = one
        assert count is not None, "a reduction reduces some axis"
        divisor = math.converted(math.corrected(reduction.tv, count), total.dtype)
        out = math.fragment(f"mean_{total.name}", total.dtype)
        math.math.append(kir.Compute(out, "div", (total, divisor)))
        return out


def _share(number: int) -> Var:
    """Return the index of the loop over the shares of a result; none has that of another's.

    Loops of one name count as one that a thread comes back to, whose rounds never repeat.
    """
    return Var(f"s{number or ''}")
