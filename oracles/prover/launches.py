"""Small launches of a kernel: parameters, a grid, and the trip counts that they give its loops.

They feed refutations (`tiles`), replays of a witness and the command line.  All are legal: they
keep the `preconditions` of their kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import Values
from oracles.prover.launch_search import Launch, Search, Wanted
from oracles.prover.preconditions import required_grid

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

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    trips : mapping of str to int
        Trip counts by the name of a loop's index; loops inside another count its first turn.
    given : mapping of str to int, optional
        Values of some parameters.

    Returns
    -------
    Launch or None
        None if none was found; there may be one all the same.
    """
    search = Search(kernel)
    values = search.reached(search.wanted(trips), given)
    return None if values is None else search.launch(values)


def reaching(kernel: kir.Kernel, trips: int) -> Iterator[Launch]:
    """Yield launches in which one loop after another has a trip count, then small ones.

    Then one loop has that count or a few more, while all others have one small count; where the
    count is large these come first, for all loops together would go round very often.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    trips : int
        The trip count; other loops have whatever follows from it.
    """
    search = Search(kernel)
    ends = [(end, trips) for end in search.ends]
    if trips > MOST:
        yield from _one_long(search, trips)
    for wanted in (ends, *([end] for end in ends)):
        values = search.reached(wanted)
        if values is not None:
            yield search.launch(values)
    yield from small(kernel, most=MOST)
    if trips <= MOST:
        yield from _one_long(search, trips)
    for values in islice(some_launches(kernel), SOME):
        yield search.launch(values)


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
    free = {name for name, stop in search.stops if not isinstance(stop, int)}
    found: dict[tuple[object, ...], Launch] = {}

    def reach(wanted: list[Wanted], given: Values | None = None, grid: int | None = None) -> bool:
        values = search.reached(wanted, given, grid)
        if values is not None:
            made = search.launch(values)
            found.setdefault((made.grid, made.block, *sorted(made.params.items())), made)
        return values is not None

    def take(
        trips: Mapping[str, int], given: Values | None = None, grid: int | None = None
    ) -> bool:
        return reach(search.wanted(trips), given, grid)

    for count in range(most + 1) if free else [0]:
        if not take(dict.fromkeys(free, count)):
            for end in search.ends:
                reach([(end, count)])
    if len(free) > 1:
        for name, count in product(sorted(free), (2, 0)):
            take({**dict.fromkeys(free, 1), name: count})
    shaping = {v for t in kernel.tensors for e in (*t.extents, *t.strides) for v in variables(e)}
    others = [var.name for var in kernel.params if var not in shaping]
    for name, value, count in product(others, (2, 3), (1, 2) if free else [0]):
        take(dict.fromkeys(free, count), {name: value})
    for many in range(2, clusters + 1):
        take(dict.fromkeys(free, 1), grid=many * kernel.cluster)
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
            exprs = (*box.origin, *box.limit)
            places = (*map(site.plain, exprs), *site.guards, *(turn.stop for turn in site.loops))
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


def _cuts(expr: Expr, var: Var) -> Iterator[int]:
    """Yield what a parameter is divided by: the size of a tile that several boxes make up."""
    if isinstance(expr, Op):
        match expr:
            case Op(Kind.FLOORDIV, a, int(by)) if variables(a) == {var}:
                yield by
            case _:
                yield from _cuts(expr.a, var)
                yield from _cuts(expr.b, var)
