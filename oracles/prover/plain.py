"""A kernel in fewer words: values in their place, and what comes out one way in every launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, TypeVar, cast

from fuser.expr import Expr, Kind, Op, Var, ceildiv, eq, fold, minimum, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import function, linear, poly, replace_tree, spread, tree
from oracles.prover.sites import facts
from oracles.prover.solver import Known

RLIMIT = 200_000
"""Work of z3 to find that something holds in every launch."""
TRIED = 11
"""Values of variables for which two expressions are compared before z3 is asked."""


Node = TypeVar("Node")


def mapped(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """Change all expressions in a part of a kernel."""
    match node:
        case Var() | Op():
            return cast(Node, change(node))
        case tuple():
            made = tuple(mapped(one, change) for one in node)
            same = all(new is old for new, old in zip(made, node, strict=True))
            return node if same else cast(Node, made)
        case _:
            kind: type = type(node)
            new = {}
            for name in _names(kind):
                part = getattr(node, name)
                if (other := mapped(part, change)) is not part:
                    new[name] = other
            return cast(Node, replace(cast(Any, node), **new)) if new else node


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the fields of a part of a kernel; a number has none."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()


@lru_cache(maxsize=8)
def inlined(kernel: kir.Kernel) -> kir.Kernel:
    """Put the values of lets in place, but for what assignments change."""
    moved = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign)}

    def made(body: tuple[kir.Stmt, ...], outer: Mapping[Var, Expr]) -> tuple[kir.Stmt, ...]:
        lets, out = dict(outer), []
        for stmt in body:
            here, inner = dict(lets), dict(lets)
            new: kir.Stmt
            match stmt:
                case kir.Let(var, value):
                    value = substitute(value, here)
                    lets.pop(var, None)
                    if not variables(value) & moved and var not in moved:
                        lets[var] = value
                    new = replace(stmt, value=value)
                case kir.ForLoop(index, stop):
                    inner.pop(index, None)
                    new = replace(stmt, stop=substitute(stop, here))
                case kir.IfThenElse(test):
                    new = replace(stmt, condition=substitute(test, here))
                case kir.Role() | kir.Elect():
                    new = stmt
                case _:
                    new = mapped(stmt, partial(_put, here))
            out.append(kir.inside(new, partial(made, outer=inner)))
        return tuple(out)

    return replace(kernel, body=made(kernel.body, {}))


def _put(lets: Mapping[Var, Expr], expr: Expr) -> Expr:
    return substitute(expr, lets)


def given(kernel: kir.Kernel, meant: Mapping[Expr, Expr]) -> kir.Kernel:
    """Put numbers, or sums with new parameters, in place of some expressions of a kernel."""
    new = dict.fromkeys(v for e in meant.values() for v in sorted(variables(e), key=str))
    counts = frozenset({*kernel.params, *new} - {kir.BLOCK, kir.GRID})

    def changed(expr: Expr) -> Expr:
        for old, new in meant.items():
            expr = replace_tree(expr, old, new)
        return spread(expr, counts)

    gone = {base for base in meant if isinstance(base, Var)}
    params = dict.fromkeys((*(var for var in kernel.params if var not in gone), *new))
    made = mapped(replace(kernel, params=()), changed)
    asked = tuple(e for e in made.requires if not isinstance(e, int) or not e)
    own = tuple(var for var in params if var not in (kir.BLOCK, kir.GRID))
    return replace(made, params=own, requires=asked)


def equated(kernel: kir.Kernel) -> kir.Kernel:
    """Put sums of other parameters in place of those that are required to be equal to them.

    That is of use where both are used.
    """
    used: set[Expr] = set()

    def note(expr: Expr) -> Expr:
        used.update(variables(expr))
        return expr

    mapped(kernel.body, note)
    for condition in kernel.requires:
        if not isinstance(condition, Op) or condition.kind is not Kind.EQ:
            continue
        constant, parts = linear(condition.a - condition.b)
        for var, times in parts.items():
            rest = {other: -times * n for other, n in parts.items() if other != var}
            counts = all(n >= 0 for n in (-times * constant, *rest.values()))
            own = parts.keys() <= set(kernel.params) and (not rest or used & rest.keys())
            if abs(times) == 1 and counts and own:
                value = sum((n * other for other, n in rest.items()), start=-times * constant)
                return equated(given(kernel, {var: value}))
    return kernel


def ended(kernel: kir.Kernel) -> kir.Kernel:
    """End loops where their bodies do nothing any more: `if BLOCK + t * GRID < n` is all of one.

    The guard is left where it is and always holds then, so that statements keep their numbers.
    """
    known = Known(facts(kernel), RLIMIT)

    def made(body: tuple[kir.Stmt, ...]) -> tuple[kir.Stmt, ...]:
        return tuple(one(kir.inside(stmt, made)) for stmt in body)

    def one(stmt: kir.Stmt) -> kir.Stmt:
        match stmt:
            case kir.ForLoop(t, stop, (*lets, kir.IfThenElse(test, _, ()) as guard)):
                own = {s.var for s in kir.walk(stmt.body) if isinstance(s, kir.Let | kir.Assign)}
                if all(isinstance(s, kir.Let) for s in lets) and not variables(test) & own:
                    end = _end(test, t, known)
                    if end is not None:
                        body = (*lets, replace(guard, condition=1))
                        return replace(stmt, stop=_sooner(end, stop, known), body=body)
            case _:
                pass
        return stmt

    new = made(kernel.body)
    return kernel if new == kernel.body else replace(kernel, body=new)


def _end(test: Expr, index: Var, known: Known) -> tuple[Expr, Expr] | None:
    """Return a and b of a condition that holds while `index < ceildiv(a, b)`, for b >= 1."""
    match test:
        case Op(Kind.LT, a, b):
            left = b - a
        case Op(Kind.LE, a, b):
            left = b - a + 1
        case _:
            return None
    first, second = (substitute(left, {index: n}) for n in (0, 1))
    step = tree(poly(first - second))
    if poly(left) != poly(first - index * step) or not known.gives(fold(Kind.LE, 1, step)):
        return None
    return tree(poly(first)), step


def _sooner(end: tuple[Expr, Expr], stop: Expr, known: Known) -> Expr:
    """Return the smaller one of `ceildiv(*end)` and the end of a loop."""
    left, step = end
    match stop:
        case Op(Kind.FLOORDIV, a, by) if poly(by) == poly(step):
            if known.at_most(left + step - 1, a):
                return ceildiv(left, step)
        case _:
            if known.at_most(left, stop):  # a quotient is no more, and both are counts
                return ceildiv(left, step)
    return minimum(ceildiv(left, step), stop)


def decided(kernel: kir.Kernel) -> kir.Kernel:
    """Settle comparisons of sizes, and of a CTA's number, that come out one way in every launch.

    A sum that is equal to a part of it, such as `n // 2 + (n + 1) // 2`, is that part.
    """
    inside = {s.index for s in kernel.walk() if isinstance(s, kir.ForLoop)}
    inside |= {s.var for s in kernel.walk() if isinstance(s, kir.Let | kir.Assign)}
    own = {*kernel.params, kir.BLOCK, kir.GRID} - inside
    known = Known(facts(kernel), RLIMIT)
    ours = kir.BLOCK in own and known.gives(eq(kir.GRID, 1))
    alone: Mapping[Expr, Expr] = {kir.BLOCK: 0, kir.GRID: 1} if ours else {}

    @cache
    def settled(expr: Expr) -> Expr:
        if not isinstance(expr, Op):
            return alone.get(expr, expr)
        a, b = settled(expr.a), settled(expr.b)
        if (a, b) != (expr.a, expr.b):
            expr = fold(expr.kind, a, b)
        if not isinstance(expr, Op) or not variables(expr) <= own:
            return expr
        a, b = expr.a, expr.b  # of a sum with 0 the other part is left, which may be a minimum
        match expr.kind:
            case Kind.MIN | Kind.MAX as kind if known.at_most(a, b):
                return a if kind is Kind.MIN else b
            case Kind.MIN | Kind.MAX as kind if known.at_most(b, a):
                return b if kind is Kind.MIN else a
            case Kind.ADD | Kind.SUB:
                parts = (part for part in _parts(a, b) if _alike(expr, part))
                return next((part for part in parts if known.same(expr, part)), expr)
            case Kind.LT | Kind.LE | Kind.EQ if known.gives(expr):
                return 1
            case Kind.LT | Kind.LE | Kind.EQ if known.gives(eq(expr, 0)):
                return 0
            case _:
                return expr

    body = mapped(kernel.body, settled)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _parts(*exprs: Expr) -> Iterator[Expr]:
    """Yield expressions and what they are made of, but for numbers."""
    for expr in exprs:
        if isinstance(expr, Op):
            yield from _parts(expr.a, expr.b)
        if not isinstance(expr, int):
            yield expr


def _alike(a: Expr, b: Expr) -> bool:
    """Whether two expressions are equal for some numbers: z3 need not be asked where not."""
    names = sorted(v.name for v in variables(a))
    left, right = function(a), function(b)
    try:
        return all(
            left(at) == right(at)
            for seed in range(TRIED)
            for at in [{name: (seed * 7 + 5 * i) % (TRIED + i) for i, name in enumerate(names)}]
        )
    except ZeroDivisionError:
        return False
