"""A kernel by cases of its parameters, so that all its trip counts are sums of one unknown.

Reachability follows counts that no thread knows; of `n`, `n // 2` and `max(n - 2, 0)` it does not
know that they go together.  Whatever is made of a parameter n by sums, multiples, minima, maxima,
comparisons, quotients and remainders by numbers is, from a threshold T on, linear in m where
`n = T + P * m + r`, for a period P and each `r < P`.  So a kernel is judged for each n below T + P
by itself, and for each r with m in place of n: no launch is left out, and none is added.

Where n stands only in a quotient `(n + 15) // 16`, that is the parameter.  Any n is allowed beside
it then, which is more than launches can have.

Of two parameters that are compared one is `n = m + d + 1`, or the other, or both are equal; loops
to a sum are cut where others end.  What a CTA makes of its number, such as `n - BLOCK * 4`, is a
parameter of its own where CTAs have nothing to do with each other.  Few CTAs are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product, takewhile
from math import gcd, lcm, prod

from fuser.expr import Expr, Kind, Op, Var, eq, fold, maximum, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import (
    UnsupportedError,
    cycle,
    linear,
    replace_tree,
)
from oracles.prover.plain import RLIMIT, given, inlined, mapped
from oracles.prover.reachability.fixpoint import Closed
from oracles.prover.reachability.rules import Violation
from oracles.prover.rolled import Rolled, cut, plainer
from oracles.prover.sites import AMONG_CTAS, Site, controls, facts, shared_tensors
from oracles.prover.solver import Known

CASES = 64
"""Cases of a kernel that are judged at most."""
BLOCKS = 4
"""CTAs of a launch that are told apart one by one."""
LEAST = 4
"""Up to which value it is asked whether a parameter is never less."""
NEGATIVE = 9
"""How far below 0 something may be that becomes a parameter."""


@dataclass(frozen=True, slots=True)
class Case:
    """Some launches of a kernel, as a kernel; in them a parameter is `first + step * trips`."""

    kernel: kir.Kernel
    first: int
    step: int
    origin: tuple[int, ...]
    """Which statement of the kernel each of the case's is."""

    def told(self, closed: Closed, sites: Sequence[Site]) -> Closed:
        """Return what was found, in the words of the kernel whose sites are given."""

        def own(v: Violation) -> Violation:
            earlier = None if v.earlier is None else sites[self.origin[v.earlier.index]]
            trips = self.first + self.step * v.trips
            return replace(v, later=sites[self.origin[v.later.index]], earlier=earlier, trips=trips)

        violations, warnings = (tuple(map(own, of)) for of in (closed.violations, closed.warnings))
        return replace(closed, violations=violations, warnings=warnings)


@lru_cache(maxsize=8)
def cases(kernel: kir.Kernel, *, alone: bool = False) -> tuple[Case, ...]:
    """Return kernels whose launches together are those of a kernel; none if that is no help.

    Of CTAs that have nothing to do with each other each may be `alone`: what it makes of a
    parameter and its number is a parameter then, of which another CTA knows nothing.
    """
    plain = plainer(kernel)
    made = plain.kernel
    if alone:
        made = _bounded(_apart(made))
    out: list[Case] = []
    for part in _by_order(Rolled(made, plain.origin)):
        found = _split_up(part, alone=alone)
        if found is None or len(out) + len(found) > CASES:
            return ()
        out += found
    return () if [case.kernel for case in out] == [inlined(kernel)] else tuple(out)


def _split_up(given: Rolled, *, alone: bool) -> list[Case] | None:
    """Return a kernel by all that parameters may be; None if that is too much."""
    made = given.kernel
    used = _used(made)
    required = [expr for expr in made.requires if kir.GRID not in variables(expr)]
    places = _places(made)
    splits = (_split(var, used, required) for var in made.params if var not in places)
    found = [split for split in splits if split is not None]
    known = Known(facts(made), RLIMIT)
    if alone and _independent(made) and any(kir.BLOCK in variables(expr) for expr in used):
        few = known.at_most(kir.GRID, BLOCKS)
        found += [_Split(kir.BLOCK, BLOCKS, 0)] if few else []
    if not found:
        return [Case(made, 0, 1, given.origin)]
    if prod(split.threshold + 2 * split.period for split in found) > 4 * CASES:
        return None
    out: list[Case] = []
    for values in product(*(split.values() for split in found)):
        meant = {split.base: value for split, value in zip(found, values, strict=True)}
        case = _case(made, meant, given.origin)
        claims = [eq(base, value) for base, value in meant.items()]
        if 0 in case.kernel.requires or known.gives(eq(claims[0], 0), *claims[1:]):
            continue
        out.append(case)
        if len(out) > CASES:
            return None
    return out


def _by_order(found: Rolled) -> list[Rolled]:
    """Return a kernel by which one of two parameters is less, if any two are compared."""
    kernel = found.kernel
    inside = {s.index for s in kernel.walk() if isinstance(s, kir.ForLoop)} | _places(kernel)
    params = [var for var in kernel.params if var not in inside]
    pair = next((p for expr in _used(kernel) for p in _compared(expr, params)), None)
    if pair is None:
        return [found]
    (x, y), known = pair, Known(facts(kernel), RLIMIT)
    more = Var(f"{x} beyond {y}"), Var(f"{y} beyond {x}")
    out = []
    ways: tuple[tuple[Expr, dict[Expr, Expr]], ...] = (
        (eq(x, y), {x: y}), (y < x, {x: y + more[0] + 1}), (x < y, {y: x + more[1] + 1}),
    )  # fmt: skip
    for claim, meant in ways:
        if not known.gives(eq(claim, 0)):
            lengths = frozenset().union(*map(variables, meant.values()))
            made = given(kernel, meant)
            out.append(
                cut(made, found.origin, lengths) if len(lengths) > 1 else Rolled(made, found.origin)
            )
    return out


def _compared(expr: Expr, params: Sequence[Var]) -> Iterator[tuple[Var, Var]]:
    """Yield two parameters whose difference an expression compares with a number."""
    if not isinstance(expr, Op):
        return
    if expr.kind in (Kind.MIN, Kind.MAX, Kind.LT, Kind.LE, Kind.EQ):
        match list(linear(expr.a - expr.b)[1].items()):
            case [(Var() as x, 1 | -1 as n), (Var() as y, 1 | -1 as other)] if n == -other:
                if x in params and y in params:
                    yield x, y
            case _:
                pass
    yield from _compared(expr.a, params)
    yield from _compared(expr.b, params)


def _bounded(kernel: kir.Kernel) -> kir.Kernel:
    """Require what follows of the least values of parameters, such as from `GRID == min(n, 2)`."""
    known = Known(facts(kernel), RLIMIT)
    more = []
    for var in kernel.params:
        lows = takewhile(known.gives, (fold(Kind.LE, low, var) for low in range(1, LEAST + 1)))
        more += list(lows)[-1:]
    new = tuple(fact for fact in more if fact not in kernel.requires)
    return replace(kernel, requires=(*kernel.requires, *new)) if new else kernel


def _independent(kernel: kir.Kernel) -> bool:
    """Whether no CTA has to do with another one."""
    among = any(isinstance(stmt, AMONG_CTAS) for stmt in kernel.walk())
    return kernel.cluster == 1 and not among and not shared_tensors(kernel)


def _apart(kernel: kir.Kernel) -> kir.Kernel:
    """Put a parameter in place of what a CTA makes of others and its number: `n - BLOCK * 4`."""
    if not _independent(kernel):
        return kernel
    own = frozenset({*kernel.params, kir.BLOCK, kir.GRID})
    sums = dict.fromkeys(form for expr in _used(kernel) for form in _sums(expr, own))
    known = Known(facts(kernel), RLIMIT)
    new: dict[Sum, Expr] = {}
    for form in sums:
        whole = sum((n * part for part, n in form), start=0)
        least = (n for n in range(NEGATIVE) if known.gives(fold(Kind.LE, 0, whole + n)))
        if (below := next(least, None)) is not None:
            new[form] = Var(f"{whole + below}") - below
    made = replace(kernel, body=mapped(kernel.body, lambda expr: _summed(expr, own, new)))
    params = tuple(v for value in new.values() for v in variables(value))
    meant = (eq(value, sum((n * part for part, n in form), start=0)) for form, value in new.items())
    requires = (*kernel.requires, *meant)
    return replace(made, params=(*kernel.params, *params), requires=requires) if new else kernel


Sum = tuple[tuple[Expr, int], ...]
"""Variables with what each is multiplied with, by name; the first with no less than 1."""


def _sum_of(parts: Mapping[Expr, int], own: frozenset[Var]) -> tuple[Sum, int]:
    """Return the sum of a CTA's number and parameters that some parts are a multiple of."""
    mine = sorted(((part, n) for part, n in parts.items() if part in own), key=str)
    by = gcd(*(n for _, n in mine))
    if kir.BLOCK not in parts or len(mine) < 2:
        return (), 0
    by = by if next(n for part, n in mine if part != kir.BLOCK) > 0 else -by
    return tuple((part, n // by) for part, n in mine), by


def _sums(expr: Expr, own: frozenset[Var]) -> Iterator[Sum]:
    """Yield the sums of a CTA's number and parameters in an expression."""
    _, parts = linear(expr)
    form, _ = _sum_of(parts, own)
    if form:
        yield form
    for part in parts:
        if isinstance(part, Op):
            yield from _sums(part.a, own)
            yield from _sums(part.b, own)


def _summed(expr: Expr, own: frozenset[Var], new: Mapping[Sum, Expr]) -> Expr:
    """Put other expressions in place of sums."""
    constant, parts = linear(expr)
    form, by = _sum_of(parts, own)
    total: Expr = constant
    if form in new:
        total = total + by * new[form]
    for part, n in parts.items():
        if form not in new or part not in own:
            if isinstance(part, Op):
                part = fold(part.kind, _summed(part.a, own, new), _summed(part.b, own, new))
            total = total + n * part
    return total


def _case(kernel: kir.Kernel, meant: Mapping[Expr, Expr], origin: tuple[int, ...]) -> Case:
    """Return the launches in which parameters are certain numbers, or sums with an unknown."""
    sums = [linear(value) for value in meant.values()]
    step = max((n for _, parts in sums for n in parts.values()), default=0)
    return Case(given(kernel, meant), max(constant for constant, _ in sums), step, origin)


# --- which parameters, and how they repeat --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Split:
    """A parameter, or what stands for it, from where on it goes by periods; 0 if it ends there."""

    base: Expr
    threshold: int
    period: int

    def values(self) -> Iterator[Expr]:
        """Yield its values: numbers, then sums with an unknown."""
        yield from range(self.threshold)
        more = Var(f"{self.base} by {self.period}")
        for rest in range(self.period):
            yield fold(Kind.MUL, self.period, more) + (self.threshold + rest)


def _used(kernel: kir.Kernel) -> list[Expr]:
    """Return what decides where threads go and which slots they use, over parameters and indices.

    Of a slot it is the position that counts: which slot that is, and which phase, is found by it.
    """
    found: list[Expr] = []
    for stmt in kernel.walk():
        match stmt:
            case kir.ForLoop(_, stop):
                found.append(maximum(stop, 0))
            case kir.IfThenElse(test):
                found.append(test)
            case kir.Let(_, value) | kir.Assign(_, value):
                found.append(value)
            case _:
                found += map(_position, controls(stmt).values())
    return list(dict.fromkeys(found))


def _places(kernel: kir.Kernel) -> frozenset[Var]:
    """Return what tells which CTAs share a semaphore: of these a few sizes stand for all."""
    found: set[Var] = set()
    if kernel.semaphores:
        grids = [e for e in kernel.requires if kir.GRID in variables(e)]
        found.update(*map(variables, grids))
    for stmt in kernel.walk():
        if isinstance(stmt, AMONG_CTAS):
            found.update(variables(stmt.index), *map(variables, controls(stmt).values()))
    return frozenset(found)


def _position(expr: Expr) -> Expr:
    """Return what a slot or a parity is taken of."""
    match expr:
        case Op(Kind.MOD | Kind.FLOORDIV, inner, int()):
            return _position(inner)
        case Op(Kind.ADD, inner, int()):
            return _position(inner)
        case _:
            return expr


def _split(var: Var, used: Sequence[Expr], required: Sequence[Expr]) -> _Split | None:
    """Return how a parameter is split, None if only one thing is made of it, or not by periods."""
    mine = [expr for expr in used if var in variables(expr)]
    base: Expr = var
    while True:
        around = {whole for expr in mine for whole in _around(expr, base)}
        if len(around) != 1 or around == {base}:
            break
        (base,) = around
    stand_in = Var(f"{base}")
    mine += [expr for expr in required if var in variables(expr)]
    mine = [replace_tree(expr, base, stand_in) for expr in mine]
    mine = [expr for expr in mine if stand_in in variables(expr)]
    alone = {part for expr in mine for part in _alone(expr, stand_in)}
    threshold, period = 0, 1
    try:
        for part in alone:
            how = cycle(part, stand_in)
            threshold, period = max(threshold, how.start), lcm(period, how.period)
        for expr in mine:
            period = lcm(period, cycle(expr, stand_in).period)
    except UnsupportedError:
        return None
    if period == 1 and alone <= {stand_in, maximum(stand_in, 0)}:
        return None
    return _Split(base, threshold, period)


def _around(expr: Expr, base: Expr) -> Iterator[Expr]:
    """Yield the quotients of sums of a base and numbers in which it stands, or the base itself."""
    if expr == base:
        yield base
        return
    match expr:
        case Op(Kind.FLOORDIV, a, int()) if _counts_on(a, base):
            yield expr
        case Op(_, a, b):
            yield from _around(a, base)
            yield from _around(b, base)
        case _:
            pass


def _counts_on(expr: Expr, base: Expr) -> bool:
    """Whether something is a multiple of a base and a number, and so a count."""
    constant, parts = linear(expr)
    return constant >= 0 and [*parts] == [base] and parts[base] > 0


def _alone(expr: Expr, var: Var) -> Iterator[Expr]:
    """Yield the largest parts of an expression that have no other variable."""
    if variables(expr) == {var}:
        yield expr
    elif isinstance(expr, Op):
        yield from _alone(expr.a, var)
        yield from _alone(expr.b, var)
