"""The launches of a kernel: what they have to keep, and small ones with given trip counts.

A launch keeps what its kernel requires, whole clusters, and aligned rows.  Small launches feed
refutations, replays of a witness and the command line.  The search makes one parameter at a time
large enough, all others being small.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from math import lcm

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.launches.choose import choose, smallest
from oracles.prover import sites
from oracles.prover.arithmetic import Function, Values, function
from oracles.prover.sites import fixed_grid

TMA_BYTES = 16
"""Strides of tensors that TMA copies are multiples of it.  Source: PTX ISA, "tensor-map"."""


def broken(kernel: kir.Kernel, values: Values) -> str:
    """Say which precondition of a kernel a launch breaks, by parameters and `GRID`; or none."""
    for var in kernel.params:
        if values[var.name] < 0:
            return f"{var.name} is {values[var.name]}, less than 0"
    for condition in kernel.requires:
        try:
            holds = function(condition)(values)
        except ZeroDivisionError:
            return f"it requires {condition}, which divides by 0"
        if not holds:
            return f"it requires {condition}"
    grid = values[kir.GRID.name]
    if grid < 1:
        return f"{grid} CTAs are no launch"
    if grid % kernel.cluster:
        return f"the grid must be a multiple of the cluster of {kernel.cluster}"
    moved = copied(kernel)
    for tensor in kernel.tensors:
        says = _bent(tensor, values, by_tma=tensor.name in moved)
        if says:
            return says
    return ""


def copied(kernel: kir.Kernel) -> frozenset[str]:
    """Return the names of the tensors that engines move by boxes."""
    engines = kir.TmaLoad | kir.TmaStore | kir.TmaReduce | kir.QueueCopy
    moves = (s for s in kernel.walk() if isinstance(s, engines))
    maps = (s for s in moves if not getattr(s, "bulk", False))
    return frozenset(box.tensor.name for s in maps if (box := sites.touches(s)) is not None)


def _bent(tensor: kir.Tensor, values: Values, *, by_tma: bool) -> str:
    """Say which extent or stride of a tensor is no multiple of what it must be."""
    extents = [function(e)(values) for e in tensor.extents]
    strides = [function(s)(values) for s in tensor.strides]
    whole = tensor.extents and tensor.extents[-1] != 1 and not tensor.ragged
    last = whole and extents[-1] % tensor.aligned
    apart = [s for e, s in zip(tensor.strides, strides, strict=True) if e != 1]
    if last or any(s % tensor.aligned for s in apart):
        says = f"extents {tuple(extents)}, strides {tuple(strides)}"
        return f"{tensor.name} is aligned to {tensor.aligned} elements, not so with {says}"
    rows = zip(extents[:-1], strides[:-1], strict=True)
    if by_tma and any(n > 1 and s * tensor.dtype.nbytes % TMA_BYTES for n, s in rows):
        return f"{tensor.name} is copied by TMA: strides must be multiples of {TMA_BYTES} bytes"
    return ""


def required_grid(kernel: kir.Kernel) -> Function | None:
    """Return the number of CTAs as a function of parameters, where it is required to be one."""
    number = fixed_grid(kernel)
    return None if number is None else function(number)


LARGEST = 1 << 24
"""Largest value that is tried for a parameter."""
SMALL = 24
"""Values of a parameter that are tried one by one, since what is wanted need not grow with it."""
Wanted = tuple[Expr, int]
"""An expression over a launch, such as the end of a loop, and what it is to be."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of `grid` CTAs, and how often the loops of one of its CTAs, `block`, run.

    `trips` are by the index of the loop; loops of constant length and those whose end the launch
    alone does not settle are left out.
    """

    grid: int
    params: Mapping[str, int]
    block: int
    trips: Mapping[str, int]


class Search:
    """Find parameters by making one at a time large enough, all others being small."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self.kernel = kernel
        self.stops, self.settled = _stops(kernel)
        self.free = {name: stop for name, stop in self.stops if not isinstance(stop, int)}
        self.ends = tuple(
            dict.fromkeys(stop for _, stop in self.stops if not isinstance(stop, int))
        )
        self.pitches = _pitches(kernel)
        self.units = _units(kernel, self.pitches)
        self.grid = required_grid(kernel)

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
        """Make parameters that are strides and nothing else so large that rows are apart."""
        out = dict(params)
        extents = {v for t in self.kernel.tensors for e in t.extents for v in variables(e)}
        for t in self.kernel.tensors:
            need, unit = 1, self.pitches[t.name]
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
        free = [var for var in self.kernel.params if var.name not in kept]
        # Of CTAs that are asked for, the last is to have something to do.
        for start in self._starts():
            for block in (0, 1) if grid is None else (grid - 1, 0):
                params = {**start, **kept}
                for _, (stop, count) in product(range(2), wanted):

                    def at(changed: Values, stop: Expr = stop, block: int = block) -> int:
                        ctas = self._ctas(changed, block, grid) or 1
                        here = {**changed, kir.GRID.name: ctas, kir.BLOCK.name: block}
                        found = _at(stop, here)
                        return -1 if found is None else max(0, found)

                    own = [var for var in free if var in variables(stop)]
                    params |= self._towards(params, own, at, count)
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
            yield {v.name: -(-n // self.units[v]) * self.units[v] for v in self.kernel.params}

    def _towards(
        self, params: Values, free: Sequence[Var], at: Function, count: int
    ) -> dict[str, int]:
        """Return the one parameter that gives this trip count, if one has to change and does."""
        for var in free:
            unit = self.units[var]
            if at({**params, var.name: params[var.name] // unit * unit}) == count:
                return {}
            most = range(LARGEST // unit)
            small = (n for n in range(SMALL) if at({**params, var.name: n * unit}) == count)
            if (least := next(small, None)) is not None:
                return {var.name: least * unit}
            low = bisect_left(most, count, key=lambda n: at({**params, var.name: n * unit}))
            if at({**params, var.name: low * unit}) == count:
                return {var.name: low * unit}
        return {}


def _at(expr: Expr, values: Values) -> int | None:
    try:
        return function(expr)(values)
    except (ZeroDivisionError, KeyError):
        return None


def _stops(kernel: kir.Kernel) -> tuple[list[tuple[str, Expr]], list[tuple[str, Expr]]]:
    """Return name and end of every loop: in the first iteration of those around it, and in any."""
    first: list[tuple[str, Expr]] = []
    settled: list[tuple[str, Expr]] = []
    for site in sites.every(kernel):
        if isinstance(site.stmt, kir.ForLoop):
            name, stop = site.stmt.index.name, site.plain(site.stmt.stop)
            around: dict[Var, Expr] = {loop.index: 0 for loop in site.loops}
            if sites.MOVING in variables(stop):
                continue
            first.append((name, substitute(stop, around)))
            if variables(stop) and not variables(stop) & around.keys():
                settled.append((name, stop))
    return first, settled


def _pitches(kernel: kir.Kernel) -> dict[str, int]:
    """Return by tensor what the distance of two rows is a multiple of, in elements."""
    moved = copied(kernel)
    return {
        t.name: lcm(t.aligned, TMA_BYTES // t.dtype.nbytes if t.name in moved else 1)
        for t in kernel.tensors
    }


def _units(kernel: kir.Kernel, pitches: Mapping[str, int]) -> dict[Var, int]:
    """Return for each parameter what a launch rounds it up to, so that rows are aligned."""
    units = dict.fromkeys(kernel.params, 1)
    for t in kernel.tensors:
        whole = [(e, pitches[t.name]) for e in t.strides]
        if not t.ragged:
            whole.append((t.extents[-1], t.aligned))
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


LAUNCHES = 400
"""Launches that are tried at most; a few milliseconds."""
SOME = 12
"""Launches of all kinds that are tried beside those with a trip count that is asked for."""
MOST = 9
"""Trip counts of all loops that are tried beside the one that is asked for."""
OTHERS = (1, 0, 2)
"""Trip counts of all other loops beside one that has the count that is asked for, or more."""
MORE = 3
"""Trip counts, from the one that is asked for, of that loop."""
GRIDS = 16
"""CTAs that are tried for parameters that are given."""


def example(
    kernel: kir.Kernel, trips: Mapping[str, int], given: Values | None = None
) -> Launch | None:
    """Return a small launch with a CTA whose loops of these names have these trip counts.

    Loops inside another count its first iteration; some parameters may be `given`.  If none was
    found there may be one all the same.
    """
    search = Search(kernel)
    values = search.reached(search.wanted(trips), given)
    return None if values is None else search.launch(values)


def reaching(kernel: kir.Kernel, trips: int) -> Iterator[Launch]:
    """Yield launches in which one loop after another has a trip count, then small and chosen ones.

    Other loops have whatever follows from it.  Then one loop has that count or a few more, while
    all others have one small count; where the count is large these come first, for all loops
    together would run very often.
    """
    search = Search(kernel)
    ends = [(end, trips) for end in search.ends]
    if trips > MOST:
        yield from _one_long(search, trips)
    for wanted in (ends, *([end] for end in ends)):
        values = search.reached(wanted)
        if values is not None:
            yield search.launch(values)
    yield from _all_large(search, trips)
    yield from small(kernel, most=MOST)
    yield from chosen(kernel)
    if trips <= MOST:
        yield from _one_long(search, trips)
    for values in islice(some_launches(kernel), SOME):
        yield search.launch(values)


def _all_large(search: Search, trips: int) -> Iterator[Launch]:
    """Yield launches in which all parameters have a count or one more, loops or not."""
    for count in (trips, trips + 1):
        values = search.completed({v.name: count * unit for v, unit in search.units.items()})
        if values is not None:
            yield search.launch(values)


def chosen(kernel: kir.Kernel) -> Iterator[Launch]:
    """Yield the launches that are chosen from the kernel's own expressions."""
    return (counted(kernel, one.grid, one.params) for one in choose(kernel).launches)


def _one_long(search: Search, trips: int) -> Iterator[Launch]:
    """Yield launches in which one loop has a count or a few more, all others one small count."""
    ends = search.ends
    for other, more, one in product(OTHERS, range(MORE), ends if len(ends) > 1 else ()):
        values = search.reached([(end, trips + more if end == one else other) for end in ends])
        if values is not None:
            yield search.launch(values)


def small(kernel: kir.Kernel, *, most: int = 3, clusters: int = 1) -> list[Launch]:
    """Return a handful of small launches: trip counts 0 ... `most` for every loop that has a say.

    All loops get the same count, or one after another where they cannot have it at once; then one
    at a time differs from the others; then parameters that are no extent, such as the number of
    CTAs that share a tile, are 2 and 3; then there are 2 ... `clusters` clusters.
    """
    search = Search(kernel)
    free = search.free
    found: dict[tuple[object, ...], Launch] = {}

    def take(wanted: list[Wanted], given: Values | None = None, grid: int | None = None) -> bool:
        values = search.reached(wanted, given, grid)
        if values is not None:
            made = search.launch(values)
            found.setdefault((made.grid, made.block, *sorted(made.params.items())), made)
        return values is not None

    def all_at(count: int, **others: int) -> list[Wanted]:
        return search.wanted({**dict.fromkeys(free, count), **others})

    for count in range(most + 1) if free else [0]:
        if not take(all_at(count)):
            for end in search.ends:
                take([(end, count)])
    if len(free) > 1:
        for name, count in product(sorted(free), (2, 0)):
            take(all_at(1, **{name: count}))
    shaping = {v for t in kernel.tensors for e in (*t.extents, *t.strides) for v in variables(e)}
    others = [var.name for var in kernel.params if var not in shaping]
    for name, value, count in product(others, (2, 3), (1, 2) if free else [0]):
        take(all_at(count), {name: value})
    for many in range(2, clusters + 1):
        take(all_at(1), grid=many * kernel.cluster)
    if not found:
        some = next(some_launches(kernel, (1, 2)), None)
        if some is not None:
            return [search.launch({**some, kir.BLOCK.name: 0})]
    return list(found.values())


def grids(kernel: kir.Kernel, params: Values) -> list[int]:
    """Return the grids that come into question for given parameters, smallest first."""
    grid = required_grid(kernel)
    if grid is None:
        return list(range(kernel.cluster, GRIDS + 1, kernel.cluster))
    try:
        return [grid(params)]
    except ZeroDivisionError:
        return []


def counted(kernel: kir.Kernel, grid: int, params: Values) -> Launch:
    """Return a launch that is given, with the trip counts of its first CTA."""
    return Search(kernel).launch({**params, kir.GRID.name: grid, kir.BLOCK.name: 0})


def some_launches(kernel: kir.Kernel, grids: tuple[int, ...] = (1, 2, 3)) -> Iterator[Values]:
    """Yield legal launches: extents around multiples of tiles, few CTAs; smallest first."""
    search = Search(kernel)
    used = {v for e in kernel.requires for v in variables(e)}
    sizes: dict[Var, int] = {}
    for site in sites.read(kernel):
        box = sites.touches(site.stmt)
        if box is not None:
            places = (*site.span(box), *site.conditions)
            used |= {v for e in places for v in variables(e)}
            for extent, size in zip(box.tensor.extents, box.shape, strict=True):
                for var in variables(extent):
                    cuts = (size, *(by for e in places for by in _cuts(e, var)))
                    sizes[var] = max(sizes.get(var, 1), *cuts)
    choices = []
    for var in kernel.params:
        unit = search.units[var]
        if var in sizes:
            t = sizes[var]
            tries = [0, 1, t, t + 1, 2 * t + 1, 3 * t]
        else:
            tries = [1, 2, 3, 0] if var in used else [1]
        choices.append(list(dict.fromkeys(-(-x // unit) * unit for x in tries)))
    most = sum(len(c) - 1 for c in choices)
    ranked = chain.from_iterable(_ranks(total, choices) for total in range(most + 1))
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


def _ranks(total: int, choices: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield places in some lists that add up to a total, in order."""
    if not choices:
        yield ()
        return
    (first, *rest) = choices
    least = total - sum(len(c) - 1 for c in rest)
    for place in range(max(0, least), min(total, len(first) - 1) + 1):
        for others in _ranks(total - place, rest):
            yield place, *others


def tried(kernel: kir.Kernel) -> Iterator[Values]:
    """Yield the launches that are gone through element by element: small ones, then chosen ones."""
    yield from some_launches(kernel)
    for one in choose(kernel).launches:
        yield {**one.params, kir.GRID.name: one.grid, kir.BLOCK.name: 0}


def named(values: Values) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return a launch as a finding has it, and in words."""
    launch = tuple(sorted((k, v) for k, v in values.items() if k != kir.BLOCK.name))
    return launch, ", ".join(f"{name}={value}" for name, value in launch)


def exist(kernel: kir.Kernel) -> bool:
    """Whether a launch is found that keeps what a kernel requires."""
    if next(tried(kernel), None) is not None:
        return True
    near = smallest(kernel)
    return near is not None and bool(Search(kernel).completed(near.params, grid=near.grid))


def _cuts(expr: Expr, var: Var) -> Iterator[int]:
    """Yield what a parameter is divided by: the size of a tile that several boxes make up."""
    match expr:
        case Op(Kind.FLOORDIV, a, int(by)) if variables(a) == {var}:
            yield by
        case Op(_, a, b) if var in variables(expr):
            yield from _cuts(a, var)
            yield from _cuts(b, var)
        case _:
            pass
