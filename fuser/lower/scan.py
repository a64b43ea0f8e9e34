"""Kernels that scan: a CTA walks along what is scanned, and carries on what it has put together.

Along rows each thread puts together what it holds of a tile, then the lanes of a warp; warps leave
their parts in shared memory, where each thread finds what stands before its own.  Down columns each
thread has whole ones.  What is computed before and after a scan stays in registers.  Nothing here
waits; the passes see who reads what.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from fuser.expr import Var
from fuser.fusion.ir import TensorView
from fuser.fusion.ops import operand_dtypes
from fuser.kernel import ir as kir
from fuser.lower.math import COMBINE, Arithmetic, identity
from fuser.lower.tiling import TRIP, TRIPS, Lowered, Numbers, PointwiseLowering
from fuser.schedule.params import ScanParams
from fuser.schedule.reduction import ReductionTiling

STEP = Var("r")


class ScanLowering(PointwiseLowering[ReductionTiling]):
    """The lowering of one domain with scans; results are stored by threads.

    ScheduleError if TMA or cp.async is asked for and no tensor can use it.
    """

    params: ScanParams

    def __post_init__(self) -> None:
        """Deal rows to neighbouring threads, or all of each to those of a CTA."""
        if not self.tiling.along:
            self.params = self.params.down
        super().__post_init__()
        threads, lanes = kir.WARP * self.params.warps, self.params.lanes
        self.layout = kir.Layout(
            self.tiling.tile, self.params.vector, threads, kir.Deal.ROWS, across=lanes
        )
        self.math = Arithmetic(
            self.layout,
            self._position,
            self._gathered,
            scalars=self.scalars,
            scanned=self._scan if self.tiling.along else self._scan_down,
        )
        self.starts: list[kir.Stmt] = []
        self.names: list[str] = []

    def lowered(self) -> Lowered:
        """Return the kernel, without any sync, and where its numbers come from."""
        domain = self.tiling.domain
        self._load_all(domain.reads)
        results = [self.math.value(access.tv, access.coords) for access in domain.writes]
        stores = self._stores(results)
        (axis,) = self.tiling.reduced
        origin = kir.Let(self.origin(axis), STEP * self.tiling.tile[axis])
        body = (origin, *self.copies, *self.math.math, *stores)
        loop = kir.ForLoop(STEP, self.tiles_along(axis), body, self._request())
        tile = (*self._origins(), *self.starts, loop)
        if self.alone:
            made = self._kernel(tile)
        else:
            made = self._walks((kir.ForLoop(TRIP, TRIPS, tile),), self._tiles())
        made = replace(made, resident=self._resident())
        counts = tuple(self.counts.items())
        return Lowered(made, Numbers(self.extents, self._tiles(), self._grid(), (), counts))

    def _scan_down(self, math: Arithmetic, tv: TensorView, value: kir.Fragment) -> kir.Fragment:
        """Append a scan of columns, each by one thread."""
        *outer, rows, cols = self.layout.shape
        row = replace(self.layout, shape=(*(1 for _ in outer), 1, cols))
        value, carry, name = self._begin(math, tv, value, row)
        op, total = COMBINE[tv.op], value
        out = math.fragment(f"scan_{name}", carry.dtype)
        math.math.append(kir.Scan(out, value, op, carry))
        if rows > 1:
            total = math.fragment(f"all_{name}", carry.dtype, row)
            math.math.append(kir.Reduce(total, value, op))
        math.math.append(kir.Compute(carry, op, (carry, total)))
        return out

    def _scan(self, math: Arithmetic, tv: TensorView, value: kir.Fragment) -> kir.Fragment:
        """Append a scan of rows; what stands before a warp's part lies in shared memory."""
        *outer, rows, _ = self.layout.shape
        lanes = self.params.lanes
        row = replace(self.layout, shape=(*outer, rows, 1), vector=1, alike=lanes)
        value, carry, name = self._begin(math, tv, value, row)
        op, start, parts = COMBINE[tv.op], carry, value
        if lanes > kir.WARP:
            warps = lanes // kir.WARP
            own = replace(row, shape=(*outer, rows, warps), alike=kir.WARP)
            part, start = (
                math.fragment(f"{word}_{name}", carry.dtype, own) for word in ("part", "before")
            )
            slot = kir.Slot(self.buffer(f"S_{name}", carry.dtype, own.shape), 0)
            whole = replace(own, vector=warps, alike=lanes)
            parts = math.fragment(f"parts_{name}", carry.dtype, whole)
            math.math += [
                kir.Reduce(part, value, op),
                kir.Store(slot, part, 1),
                kir.Load(parts, slot, gcd(warps, 16 // carry.dtype.nbytes)),
                kir.Scan(start, parts, op, carry, exclusive=True),
            ]
        out, total = (
            math.fragment(f"{word}_{name}", carry.dtype, layout)
            for word, layout in (("scan", None), ("all", row))
        )
        math.math += [
            kir.Scan(out, value, op, start),
            kir.Reduce(total, parts, op),
            kir.Compute(carry, op, (carry, total)),
        ]
        return out

    def _begin(
        self, math: Arithmetic, tv: TensorView, value: kir.Fragment, layout: kir.Layout
    ) -> tuple[kir.Fragment, kir.Fragment, str]:
        """Return what is scanned in the type of the results, what stands before a tile, and a name.

        Before the first tile stands nothing.
        """
        (dtype,) = operand_dtypes(tv)
        if value.dtype is not dtype:
            value = math.promoted(value, dtype)
        number = self.names.count(tv.name)
        self.names.append(tv.name)
        name = f"{tv.name}_{number}" if number else tv.name
        carry = math.fragment(f"carry_{name}", dtype, layout)
        self.starts.append(kir.Compute(carry, "promote", (identity(tv, dtype),)))
        return value, carry, name
