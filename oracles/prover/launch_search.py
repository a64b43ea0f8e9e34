"""The search for launches: parameters at which loops run as often as is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm

from fuser.expr import Expr, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import Values, function
from oracles.prover.preconditions import broken, copied, fixed_grid, pitch_unit, required_grid

LARGEST = 1 << 24
"""Largest value that is tried for a parameter."""
Wanted = tuple[Expr, int]
"""An expression over a launch, such as the end of a loop, and what it is to be."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch, and how often the loops of one of its CTAs run.

    Parameters
    ----------
    grid : int
        CTAs.
    params : mapping of str to int
        A value for every parameter of the kernel.
    block : int
        The CTA whose loops are counted.
    trips : mapping of str to int
        By the index of the loop; loops of constant length and those whose end the launch alone
        does not settle are left out.
    """

    grid: int
    params: Mapping[str, int]
    block: int
    trips: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Place:
    """A CTA, and of how many where that is asked for."""

    block: int
    grid: int | None


class Search:
    """Find parameters by making one at a time large enough, all others being small."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        self.stops = _stops(kernel)
        self.settled = [
            (name, stop)
            for name, stop in _stops(kernel, turn=sites.MOVING)
            if not isinstance(stop, int)
        ]
        self.ends = tuple(
            dict.fromkeys(stop for _, stop in self.stops if not isinstance(stop, int))
        )
        self.free = tuple(kernel.params)
        self.units = _units(kernel)
        self.grid = required_grid(kernel)
        self.moved = copied(kernel)

    def wanted(self, trips: Mapping[str, int]) -> list[Wanted]:
        """Return the ends of loops of these names, and what they are to be."""
        return [(stop, trips[name]) for name, stop in self.stops if name in trips]

    def launch(self, values: Values) -> Launch:
        """Return a launch with the trip counts it gives; a stop that fails has none."""
        params = {var.name: values[var.name] for var in self.kernel.params}
        trips: dict[str, int] = {}
        for name, stop in self.settled:
            count = _at(stop, values)
            if count is not None:
                trips.setdefault(name, max(0, count))
        return Launch(values[kir.GRID.name], params, values[kir.BLOCK.name], trips)

    def completed(self, params: Values, block: int = 0, grid: int | None = None) -> Values | None:
        """Add the grid and the CTA; None if that is no legal launch."""
        found = self._ctas(params, block, grid)
        if found is None or block >= found:
            return None
        values = {**self._pitched(params), kir.GRID.name: found, kir.BLOCK.name: block}
        return None if broken(self.kernel, values) else values

    def _ctas(self, params: Values, block: int, grid: int | None) -> int | None:
        """Return the CTAs: what is required, else what is asked for, else enough for a CTA."""
        if self.grid is not None:
            try:
                return self.grid(params)
            except ZeroDivisionError:
                return None
        cluster = self.kernel.cluster
        return cluster * (block // cluster + 1) if grid is None else grid

    def _pitched(self, params: Values) -> dict[str, int]:
        """Make parameters that are strides and nothing else large enough for rows not to meet."""
        out = dict(params)
        extents = {v for t in self.kernel.tensors for e in t.extents for v in variables(e)}
        for t in self.kernel.tensors:
            need, unit = 1, pitch_unit(t, by_tma=t.name in self.moved)
            for extent, stride in reversed(list(zip(t.extents, t.strides, strict=True))):
                if isinstance(stride, Var) and stride not in extents:
                    whole = -(-max(need, 1) // unit) * unit
                    out[stride.name] = max(out[stride.name], whole)
                step = _at(stride, out)
                rows = _at(extent, out)
                need = (step or 0) * max(rows or 0, 1)
        return out

    def reached(
        self, wanted: Sequence[Wanted], given: Values | None = None, grid: int | None = None
    ) -> Values | None:
        """Return values, those given among them, at which expressions are what is wanted."""
        number = fixed_grid(self.kernel)
        if grid is not None and number is not None:
            wanted = [*wanted, (number, grid)]
        kept = dict(given or {})
        free = [var for var in self.free if var.name not in kept]
        # Of CTAs that are asked for, the last is to have something to do.
        for start in self._starts():
            for block in (0, 1) if grid is None else (grid - 1, 0):
                params = {**start, **kept}
                for _, (stop, count) in product(range(2), wanted):
                    found = self._towards(params, free, _Place(block, grid), stop, count)
                    params |= found
                values = self.completed(params, block, grid)
                if values is not None and all(
                    at is not None and max(0, at) == count
                    for at, count in ((_at(stop, values), count) for stop, count in wanted)
                ):
                    return values
        return None

    def _starts(self) -> Iterator[dict[str, int]]:
        """Yield first guesses: everything 1 (or its unit), then everything 0, 2, 3."""
        for n in (1, 2, 0, 3):
            yield {var.name: -(-n // self.units[var]) * self.units[var] for var in self.free}

    def _towards(
        self, params: Values, free: Sequence[Var], place: _Place, stop: Expr, count: int
    ) -> dict[str, int]:
        """Return the one parameter that gives this trip count, if one has to change and does."""

        def at(var: Var, units: int) -> int:
            values = {**params, var.name: units * self.units[var]}
            grid = self._ctas(values, place.block, place.grid)
            found = _at(stop, {**values, kir.GRID.name: grid or 1, kir.BLOCK.name: place.block})
            return -1 if found is None else max(0, found)

        for var in free:
            if var not in variables(stop):
                continue
            if at(var, params[var.name] // self.units[var]) == count:
                return {}
            low, high = 0, LARGEST // self.units[var]
            while low < high:
                middle = (low + high) // 2
                if at(var, middle) < count:
                    low = middle + 1
                else:
                    high = middle
            if at(var, low) == count:
                return {var.name: low * self.units[var]}
        return {}


def _at(expr: Expr, values: Values) -> int | None:
    try:
        return function(expr)(values)
    except (ZeroDivisionError, KeyError):
        return None


def _stops(kernel: kir.Kernel, turn: Expr = 0) -> list[tuple[str, Expr]]:
    """Return the name and end of every loop, of those inside others as in this turn."""
    out: list[tuple[str, Expr]] = []
    moving = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}

    def body(stmts: tuple[kir.Stmt, ...], outer: Mapping[Var, Expr]) -> None:
        lets = dict(outer)
        for stmt in stmts:
            match stmt:
                case kir.Let(var, value):
                    lets[var] = sites.MOVING if var in moving else substitute(value, lets)
                case kir.ForLoop(index, stop, inner):
                    whole = substitute(stop, lets)
                    if sites.MOVING not in variables(whole):
                        out.append((index.name, whole))
                    body(inner, {**lets, index: turn})
                case _:
                    for inner in kir.bodies(stmt):
                        body(inner, lets)

    body(kernel.body, {kir.RANK: kir.BLOCK % kernel.cluster if kernel.cluster > 1 else 0})
    return out


def _units(kernel: kir.Kernel) -> dict[Var, int]:
    """Return for each parameter what a launch rounds it up to, so that rows are aligned."""
    units = dict.fromkeys(kernel.params, 1)
    moved = copied(kernel)
    for t in kernel.tensors:
        pitch = pitch_unit(t, by_tma=t.name in moved)
        whole = [(stride, pitch) for stride in t.strides] + [(t.extents[-1], t.aligned)]
        for expr, unit in whole:
            for var in variables(expr):
                units[var] = lcm(units.get(var, 1), _unit(expr, var, unit))
    return units


def _unit(extent: Expr, var: Var, aligned: int) -> int:
    """Return the steps of a parameter in which an extent stays a multiple: 1 of `16 * n` for 8."""
    at = function(extent)
    others = dict.fromkeys((v.name for v in variables(extent)), 1)
    for unit in (u for u in range(1, aligned) if aligned % u == 0):
        try:
            steps = [at({**others, var.name: unit * many}) for many in (1, 2, 3)]
        except ZeroDivisionError:
            return aligned
        if all(step % aligned == 0 for step in steps):
            return unit
    return aligned
