"""Small launches of a kernel: parameters, a grid, and the trip counts that they give its loops.

They feed refutations (`tiles`), replays of a witness and the command line.  All are legal: what
the kernel requires holds, and the last extents are multiples of what tensors are aligned to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import lcm

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from oracles import sites
from oracles.arithmetic import spell

LAUNCHES = 400
"""Launches that are tried at most; a few milliseconds."""
SOME = 12
"""Launches of all kinds that are tried beside those with a trip count that is asked for."""
MOST = 9
"""Trip counts of all loops that are tried beside the one that is asked for."""
LARGEST = 1 << 24
"""Largest value that is tried for a parameter."""
Values = Mapping[str, int]
Function = Callable[[Values], int]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: CTAs, parameters by name, a CTA, and the trip counts of that CTA's loops."""

    grid: int
    params: Mapping[str, int]
    block: int
    trips: Mapping[str, int]


def function(expr: Expr) -> Function:
    """Return an expression over any variables as a function of their values by name."""
    if isinstance(expr, int):
        constant = expr
        return lambda v: constant
    spelt = {var: f"v[{var.name!r}]" for var in variables(expr)}
    made: Function = eval(
        f"lambda v: {spell(expr, spelt, checked=False)}", {"min": min, "max": max}
    )
    return made


def example(kernel: kir.Kernel, trips: Mapping[str, int]) -> Launch | None:
    """Return a small launch with a CTA whose loops of these names have these trip counts.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    trips : mapping of str to int
        Trip counts by the name of a loop's index; loops inside another count its first turn.

    Returns
    -------
    Launch or None
        None if none was found; there may be one all the same.
    """
    search = _Search(kernel)
    stops = [stop for name, stop in search.stops if name in trips]
    wanted = [trips[name] for name, _ in search.stops if name in trips]
    values = search.reached(stops, wanted)
    return None if values is None else search.launch(values)


def reaching(kernel: kir.Kernel, trips: int) -> Iterator[Launch]:
    """Yield launches in which one loop after another has a trip count, then small ones.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    trips : int
        The trip count; other loops have whatever follows from it.
    """
    search = _Search(kernel)
    stops: list[Expr] = [stop for _, stop in search.stops if not isinstance(stop, int)]
    for wanted in (stops, *([stop] for stop in stops)):
        values = search.reached(wanted, [trips] * len(wanted))
        if values is not None:
            yield search.launch(values)
    yield from small(kernel, most=MOST)
    for values in islice(some_launches(kernel), SOME):
        yield search.launch(values)


def small(kernel: kir.Kernel, *, most: int = 3) -> list[Launch]:
    """Return a handful of small launches: trip counts 0 ... `most` for every loop that has a say.

    All loops get the same count, then one at a time differs from the others; then parameters that
    are no extent, such as the number of CTAs that share a tile, are 2 and 3.
    """
    search = _Search(kernel)
    free = {name for name, stop in search.stops if not isinstance(stop, int)}
    wanted: list[dict[str, int]] = [dict.fromkeys(free, n) for n in range(most + 1)]
    if len(free) > 1:
        wanted += [{**dict.fromkeys(free, 1), name: n} for name in sorted(free) for n in (2, 0)]
    tries: list[tuple[dict[str, int], Values]] = [(trips, {}) for trips in wanted or [{}]]
    shaping = {v for t in kernel.tensors for e in (*t.extents, *t.strides) for v in variables(e)}
    others = [var.name for var in kernel.params if var not in shaping]
    for name, n in ((name, n) for name in others for n in (2, 3)):
        tries += [(dict.fromkeys(free, trips), {name: n}) for trips in (1, 2)]
    found: dict[tuple[object, ...], Launch] = {}
    for trips, given in tries:
        stops = [stop for name, stop in search.stops if name in trips]
        counts = [trips[name] for name, _ in search.stops if name in trips]
        values = search.reached(stops, counts, given)
        if values is not None:
            made = search.launch(values)
            found.setdefault((made.grid, made.block, *sorted(made.params.items())), made)
    if not found:
        some = next(some_launches(kernel, (1, 2)), None)
        if some is not None:
            made = search.launch({**some, kir.BLOCK.name: 0})
            return [made]
    return list(found.values())


class _Search:
    """Find parameters by making one at a time large enough, all others being small."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        self.stops = _stops(kernel)
        self.free = tuple(kernel.params)
        self.units = _units(kernel)
        self.grid = _grid(kernel)
        self.requires = [function(expr) for expr in kernel.requires]

    def launch(self, values: Values) -> Launch:
        """Return a launch with the trip counts it gives; a stop that fails has none."""
        params = {var.name: values[var.name] for var in self.kernel.params}
        trips: dict[str, int] = {}
        for name, stop in self.stops:
            count = _at(stop, values)
            if count is not None:
                trips.setdefault(name, max(0, count))
        return Launch(values[kir.GRID.name], params, values[kir.BLOCK.name], trips)

    def completed(self, params: Values, block: int = 0, grid: int | None = None) -> Values | None:
        """Add the grid and the CTA; None if that is no legal launch."""
        if self.grid is not None:
            try:
                grid = self.grid(params)
            except ZeroDivisionError:
                return None
        elif grid is None:
            grid = self.kernel.cluster * (block // self.kernel.cluster + 1)
        values = {**self._pitched(params), kir.GRID.name: grid, kir.BLOCK.name: block}
        return values if block < grid and legal(self.kernel, self.requires, values) else None

    def _pitched(self, params: Values) -> dict[str, int]:
        """Make parameters that are strides and nothing else large enough for rows not to meet."""
        out = dict(params)
        extents = {v for t in self.kernel.tensors for e in t.extents for v in variables(e)}
        for t in self.kernel.tensors:
            need = 1
            for extent, stride in reversed(list(zip(t.extents, t.strides, strict=True))):
                if isinstance(stride, Var) and stride not in extents:
                    whole = -(-max(need, 1) // t.aligned) * t.aligned
                    out[stride.name] = max(out[stride.name], whole)
                step = _at(stride, out)
                rows = _at(extent, out)
                need = (step or 0) * max(rows or 0, 1)
        return out

    def reached(
        self, stops: list[Expr], wanted: list[int], given: Values | None = None
    ) -> Values | None:
        """Return values, those given among them, at which the stops are what is wanted."""
        for start in self._starts():
            for block in (0, 1):
                found = self._from({**start, **(given or {})}, block, stops, wanted)
                if found is not None:
                    return found
        return None

    def _starts(self) -> Iterator[dict[str, int]]:
        """Yield first guesses: everything 1 (or its unit), then everything 0, 2, 3."""
        for n in (1, 2, 0, 3):
            yield {var.name: -(-n // self.units[var]) * self.units[var] for var in self.free}

    def _from(
        self, start: dict[str, int], block: int, stops: list[Expr], wanted: list[int]
    ) -> Values | None:
        params = dict(start)
        for _ in range(2):
            for stop, count in zip(stops, wanted, strict=True):
                self._towards(params, block, stop, count)
        values = self.completed(params, block)
        if values is None:
            return None
        good = all(
            at is not None and max(0, at) == count
            for at, count in ((_at(s, values), n) for s, n in zip(stops, wanted, strict=True))
        )
        return values if good else None

    def _towards(self, params: dict[str, int], block: int, stop: Expr, count: int) -> None:
        """Set the one parameter that gives this trip count, if one does."""

        def at(var: Var, units: int) -> int:
            values = {**params, var.name: units * self.units[var]}
            grid = block + 1
            if self.grid is not None:
                try:
                    grid = self.grid(values)
                except ZeroDivisionError:
                    grid = 1
            found = _at(stop, {**values, kir.GRID.name: grid, kir.BLOCK.name: block})
            return -1 if found is None else max(0, found)

        for var in self.free:
            if var not in variables(stop):
                continue
            if at(var, params[var.name] // self.units[var]) == count:
                return
            low, high = 0, LARGEST // self.units[var]
            while low < high:
                middle = (low + high) // 2
                if at(var, middle) < count:
                    low = middle + 1
                else:
                    high = middle
            if at(var, low) == count:
                params[var.name] = low * self.units[var]
                return


def _at(expr: Expr, values: Values) -> int | None:
    try:
        return function(expr)(values)
    except (ZeroDivisionError, KeyError):
        return None


def _stops(kernel: kir.Kernel) -> list[tuple[str, Expr]]:
    """Return the name and end of every loop, of those inside others as in the first turn."""
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
                    body(inner, {**lets, index: 0})
                case _:
                    for inner in kir.bodies(stmt):
                        body(inner, lets)

    body(kernel.body, {kir.RANK: kir.BLOCK % kernel.cluster if kernel.cluster > 1 else 0})
    return out


def _units(kernel: kir.Kernel) -> dict[Var, int]:
    """Return for each parameter what a launch rounds it up to: the alignment of last extents."""
    units = dict.fromkeys(kernel.params, 1)
    for t in kernel.tensors:
        for var in variables(t.extents[-1]):
            units[var] = lcm(units.get(var, 1), _unit(t.extents[-1], var, t.aligned))
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


def _grid(kernel: kir.Kernel) -> Function | None:
    """Return the number of CTAs as a function of parameters, where it is required to be one."""
    number = fixed_grid(kernel)
    return None if number is None else function(number)


def fixed_grid(kernel: kir.Kernel) -> Expr | None:
    """Return what `Kernel.requires` says the number of CTAs is, if it says so."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, a, b) if kir.GRID in (a, b):
                number = b if a == kir.GRID else a
                if kir.GRID not in variables(number):
                    return number
            case _:
                pass
    return None


def legal(kernel: kir.Kernel, requires: Iterable[Function], values: Values) -> bool:
    """Whether a launch may be: what is required holds, and rows end where they are aligned."""
    grid = values[kir.GRID.name]
    if grid < 1 or grid % kernel.cluster or any(values[var.name] < 0 for var in kernel.params):
        return False
    try:
        if not all(holds(values) for holds in requires):
            return False
    except ZeroDivisionError:
        return False
    return all(function(t.extents[-1])(values) % t.aligned == 0 for t in kernel.tensors)


def some_launches(kernel: kir.Kernel, grids: tuple[int, ...] = (1, 2, 3)) -> Iterator[Values]:
    """Yield legal launches: extents around multiples of tiles, few CTAs; smallest first."""
    search = _Search(kernel)
    used = {v for e in kernel.requires for v in variables(e)}
    sizes: dict[Var, int] = {}
    for site in sites.read(kernel):
        box = sites.touches(site.stmt)
        if box is not None:
            exprs = (*box.origin, *box.limit)
            places = (*map(site.plain, exprs), *site.guards, *(turn.stop for turn in site.loops))
            used |= {v for e in places for v in variables(e)}
            for extent, size in zip(box.tensor.extents, box.shape, strict=True):
                for var in variables(extent):
                    sizes[var] = max(sizes.get(var, 1), size)
    choices = []
    for var in kernel.params:
        unit = search.units[var]
        if var in sizes:
            t = sizes[var]
            tries = [0, 1, t, t + 1, 2 * t + 1, 3 * t]
        else:
            tries = [1, 2, 3, 0] if var in used else [1]
        choices.append(list(dict.fromkeys(-(-x // unit) * unit for x in tries)))
    ranked = sorted(product(*(range(len(c)) for c in choices)), key=lambda r: (sum(r), r))
    counts: tuple[int | None, ...] = (None,) if search.grid is not None else grids
    tried = 0
    for picked in ranked:
        params = {
            var.name: choice[i]
            for var, choice, i in zip(kernel.params, choices, picked, strict=True)
        }
        for grid in counts:
            tried += 1
            if tried > LAUNCHES:
                return
            whole = None if grid is None else grid * kernel.cluster
            values = search.completed(params, 0, whole)
            if values is not None:
                yield values
