"""Every element of an output is stored once, asked of z3 for one element that stands for all.

A store in a loop, or by each CTA, stores an element where one value of its index (or of `BLOCK`)
gives the tile that the element lies in.  Where the tile's number is linear in the index, that value
is a quotient, so that "some iteration stores it" needs no quantifier: the remainder is 0, the value
is one that the loop reaches, and the guards hold for it.  Different values are different tiles.
So z3 is asked whether there are extents, and an element, that not exactly one of the stores has.

Of an index in quotients and remainders by numbers, each remainder by their common multiple is a
store of its own, in which they are linear.  So is each value of an index that has few values, where
a store has several indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from math import lcm

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, minimum, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import linear, solution, spread
from oracles.prover.sites import Site
from oracles.prover.solver import Known

MOST = 24
"""Stores that are asked of together."""
FEW = 1, 2, 3, 4, 8
"""How many values of an index are written out."""


def partitioned(found: Iterable[tuple[Site, kir.Box]], tensor: kir.Tensor, known: Known) -> bool:
    """Whether each element of a tensor is in one box of one of these stores, in every launch."""
    point = [Var(f"element along axis {axis}") for axis in range(len(tensor.extents))]
    claims: list[Expr] = []

    @cache
    def most(end: Expr) -> int:
        """Return how many values an index has at most; 0 if these are not few."""
        few = known.at_most(end, FEW[-1])
        return next(n for n in FEW if known.at_most(end, n)) if few else 0

    for site, box in found:
        for values in _few(site, most):
            some = _stored(site, box, point, values)
            if some is None or len(claims) + len(some) > MOST:
                return False
            claims += some
    total: Expr = 0
    for claim in claims:
        total = total + claim
    inside = (x < extent for x, extent in zip(point, tensor.extents, strict=True))
    return known.gives(eq(total, 1), *inside)


def _indices(site: Site) -> dict[Var, Expr]:
    """Return what tells the executions of a store apart, with the ends."""
    return {kir.BLOCK: kir.GRID} | {loop.index: loop.stop for loop in site.loops}


def _few(site: Site, most: Callable[[Expr], int]) -> Iterator[Mapping[Var, Expr]]:
    """Yield the values of the indices that have few, leaving one that has more than one."""
    few: dict[Var, list[Expr]] = {}
    for index, end in _indices(site).items():
        pinned = (solution(guard, index) for guard in site.guards)
        at = next((e for e in pinned if isinstance(e, int)), None)
        many = most(end)
        if at is not None or many:
            few[index] = list(range(many)) if at is None else [at] * (at >= 0)
    if len(few) == len(_indices(site)):
        longest = max(few, key=lambda index: len(few[index]))
        few = {x: some for x, some in few.items() if x != longest or len(some) == 1}
    for values in product(*few.values()):
        yield dict(zip(few, values, strict=True))


def _stored(
    site: Site, box: kir.Box, point: list[Var], values: Mapping[Var, Expr]
) -> list[Expr] | None:
    """Return when an element is stored, for all parts of a store; None if that is not known."""
    within = (index < end for index, end in _indices(site).items())
    inside = [substitute(e, values) for e in (*site.guards, *within)]
    span = [substitute(e, values) for e in site.span(box)]
    start, limit = span[: len(point)], span[len(point) :]
    left = _indices(site).keys() - values.keys()
    if len(left) > 1:
        return None
    if not left:
        return [_within(inside, start, limit, box, point)]
    (index,) = left
    period = lcm(*(by for e in (*inside, *start, *limit) for by in _divisors(e, index)))
    turn = Var(f"{index} by {period}")
    out: list[Expr] = []
    for rest in range(period):
        here: dict[Var, Expr] = {index: fold(Kind.MUL, period, turn) + rest}
        parts = [
            [spread(substitute(e, here), frozenset({turn})) for e in some]
            for some in (inside, start, limit)
        ]
        found = _solved(parts[1], box, point, turn)
        if found is None:
            return None
        number, by = found
        value = {turn: fold(Kind.FLOORDIV, number, by)}
        is_one = both(fold(Kind.LE, 0, number), eq(fold(Kind.MOD, number, by), 0))
        now = [[substitute(e, value) for e in some] for some in parts]
        out.append(both(is_one, _within(now[0], now[1], now[2], box, point)))
    return out


def _within(
    conditions: Iterable[Expr],
    start: Iterable[Expr],
    limit: Iterable[Expr],
    box: kir.Box,
    point: Iterable[Expr],
) -> Expr:
    """Return when an element is in a box that is stored."""
    out: Expr = 1
    for condition in conditions:
        out = both(out, condition)
    for low, size, end, x in zip(start, box.shape, limit, point, strict=True):
        out = both(out, both(fold(Kind.LE, low, x), x < minimum(low + size, end)))
    return out


def _solved(
    start: list[Expr], box: kir.Box, point: list[Var], turn: Var
) -> tuple[Expr, int] | None:
    """Return by which quotient an element tells the value of an index; None if none does."""
    for low, size, x in zip(start, box.shape, point, strict=True):
        constant, parts = linear(low)
        times = parts.pop(turn, 0)
        aligned = not any(n % size for n in (constant, times, *parts.values()))
        if times and aligned and not any(turn in variables(part) for part in parts):
            rest = sum((n // size * part for part, n in parts.items()), start=constant // size)
            number = fold(Kind.FLOORDIV, x, size) - rest
            return (number, times // size) if times > 0 else (-1 * number, -times // size)
    return None


def _divisors(expr: Expr, index: Var) -> Iterator[int]:
    if isinstance(expr, Op):
        match expr:
            case Op(Kind.FLOORDIV | Kind.MOD, inner, int() as by) if index in variables(inner):
                yield by
            case _:
                pass
        yield from _divisors(expr.a, index)
        yield from _divisors(expr.b, index)
