"""The stores of an output in other words: by clusters and groups of CTAs, and exact divisions.

Notes
-----
Neither moves a box; only how its origin is written changes.

*Clusters.*  `BLOCK = C * cluster + rank` with `0 <= rank < cluster`, and `GRID` is a multiple of
`cluster`.  So a cluster may be taken for a CTA, with a loop over its ranks around every statement;
`BLOCK` and `GRID` then count clusters.

*Groups.*  Where `GRID` is `groups * many`, CTAs are one to one with pairs of a group and a place in
it: `BLOCK // many` and `BLOCK % many`, or `BLOCK % groups` and `BLOCK // groups`.  So a group may
be taken for a CTA, with a loop over its places around every statement; `BLOCK` then counts groups,
and `GRID` is how many there are.

*Exact divisions.*  Where `requires` says `a % b == 0` with `b >= 1`, `a` is `b * (a // b)`.
Written so, a number of tiles shows the factors that an order of tiles takes it apart by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, Op, Var, eq, fold, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import replace_tree
from oracles.prover.polynomial import (
    Poly,
    Product,
    divided,
    mapped,
    operands,
    poly,
    product,
    single,
    tree,
    value,
)
from oracles.prover.sites import Loop, Site
from oracles.prover.solver import Known

RANK = Var("rank in the cluster")
"""Index of the loop over the CTAs of a cluster."""
PLACE = Var("place in the group")
"""Index of the loop over the CTAs of a group."""
Rule = Callable[[Expr], Expr]
Found = list[tuple[Site, kir.Box]]


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores to one output, with the kernel and the facts that their expressions speak of.

    `divisions` are the numbers that are multiples, each with what it is a multiple of.
    """

    kernel: kir.Kernel
    found: Found
    known: Known
    divisions: tuple[tuple[Expr, Expr], ...] = ()

    def whole(self, number: Product) -> Product:
        """Return a product with `b * (a // b)` written as `a` again."""
        for multiple, divisor in reversed(self.divisions):
            apart = product(poly(_apart(multiple, divisor)))
            left = None if apart is None else number.over(apart)
            once = product(poly(multiple))
            if left is not None and once is not None:
                number = left.times(once)
        return number


def rewrites(plain: Stores) -> Iterator[Stores]:
    """Yield stores as they stand, then in every other way that applies."""
    for stores in (plain, *_by_clusters(plain), *_by_groups(plain)):
        yield stores
        yield from _exact(stores)


def _rewritten(found: Found, rule: Rule) -> Found:
    out = []
    for site, box in found:
        origin, limit = ([rule(site.plain(e)) for e in es] for es in (box.origin, box.limit))
        loops = tuple(replace(turn, stop=rule(turn.stop)) for turn in site.loops)
        guards = tuple(rule(guard) for guard in site.guards)
        lets = {var: rule(e) for var, e in site.lets.items()}
        copy = replace(site, loops=loops, guards=guards, lets=lets)
        out.append((copy, replace(box, origin=tuple(origin), limit=tuple(limit))))
    return out


# --- clusters -----------------------------------------------------------------------------------


def _by_clusters(plain: Stores) -> Iterator[Stores]:
    many = plain.kernel.cluster
    if many == 1:
        return

    def rule(expr: Expr) -> Expr:
        return _by_cluster(expr, many)

    ranks = Loop(RANK, "rank", many)
    found = [(replace(s, loops=(ranks, *s.loops)), b) for s, b in _rewritten(plain.found, rule)]
    requires = tuple(_lowest(rule(condition)) for condition in plain.kernel.requires)
    kernel = replace(plain.kernel, cluster=1, requires=requires)
    yield Stores(kernel, found, Known(sites.facts(kernel), plain.known.rlimit))


def _by_cluster(expr: Expr, many: int) -> Expr:
    match expr:
        case Op(Kind.MOD, kir.BLOCK, by) if by == many:
            return RANK
        case Op(Kind.FLOORDIV, number, by) if by == many and number in (kir.BLOCK, kir.GRID):
            return number
        case kir.BLOCK:
            return kir.BLOCK * many + RANK
        case kir.GRID:
            return kir.GRID * many
        case Op(kind, a, b):
            return fold(kind, _by_cluster(a, many), _by_cluster(b, many))
        case _:
            return expr


def _lowest(condition: Expr) -> Expr:
    """Write `n * GRID == n * e` as `GRID == e`."""
    match condition:
        case Op(Kind.EQ, a, b):
            terms = dict(poly(fold(Kind.SUB, a, b)))
            times = terms.pop(((kir.GRID.name,),), 0)
            rest = divided(frozenset(terms.items()), -times) if times else None
            return condition if rest is None else eq(kir.GRID, tree(rest))
        case _:
            return condition


# --- groups -------------------------------------------------------------------------------------


def _by_groups(plain: Stores) -> Iterator[Stores]:
    for condition in plain.kernel.requires:
        match condition:
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)):
                for groups, many in ((a, b), (b, a)):
                    beside = variables(many) & {groups, kir.BLOCK, kir.GRID}
                    if groups in plain.kernel.params and not beside:
                        assert isinstance(groups, Var), "parameters are variables"
                        yield from _grouped(plain, condition, groups, many)
            case _:
                pass


def _grouped(plain: Stores, condition: Expr, groups: Var, many: Expr) -> Iterator[Stores]:
    """Yield the stores by groups, in either numbering that tells a group's number."""
    after: dict[Expr, Expr] = {kir.BLOCK // many: kir.BLOCK, kir.BLOCK % many: PLACE}
    across: dict[Expr, Expr] = {kir.BLOCK % groups: kir.BLOCK, kir.BLOCK // groups: PLACE}
    numbers = {id(after): kir.BLOCK * many + PLACE, id(across): PLACE * kir.GRID + kir.BLOCK}
    exprs = [s.plain(e) for s, box in plain.found for e in box.origin]
    for known in (after, across):
        first = next(iter(known))
        if all(replace_tree(expr, first, 0) == expr for expr in exprs):
            continue
        words = {**known, kir.BLOCK: numbers[id(known)], kir.GRID: kir.GRID * many}

        def rule(expr: Expr, words: dict[Expr, Expr] = words) -> Expr:
            return _reworded(expr, {**words, groups: kir.GRID})

        places = Loop(PLACE, "place", many)
        found = [
            (replace(s, loops=(places, *s.loops)), b) for s, b in _rewritten(plain.found, rule)
        ]
        others = (rule(one) for one in plain.kernel.requires if one != condition)
        kernel = replace(plain.kernel, requires=tuple(others))
        yield Stores(kernel, found, Known(sites.facts(kernel), plain.known.rlimit))


def _reworded(expr: Expr, words: dict[Expr, Expr]) -> Expr:
    """Put words in place of the largest parts of an expression that have some."""
    if expr in words:
        return words[expr]
    match expr:
        case Op(kind, a, b):
            return fold(kind, _reworded(a, words), _reworded(b, words))
        case _:
            return expr


# --- exact divisions ----------------------------------------------------------------------------


def _exact(plain: Stores) -> Iterator[Stores]:
    facts = sorted(_divisions(plain), key=lambda fact: len(str(fact[0])))
    if not facts:
        return
    divisors = {poly(divisor) for _, divisor in facts}

    def rule(expr: Expr) -> Expr:
        whole = tree(poly(expr))
        for number, divisor in facts:
            whole = replace_tree(whole, number, _apart(number, divisor))
        return tree(mapped(poly(whole), lambda form: _quotients(form, divisors)))

    requires = tuple(_lowest(rule(condition)) for condition in plain.kernel.requires)
    kernel = replace(plain.kernel, requires=requires)
    yield Stores(kernel, _rewritten(plain.found, rule), plain.known, tuple(facts))


def _divisions(stores: Stores) -> Iterator[tuple[Expr, Expr]]:
    """Yield the divisions that leave no rest in any launch: number and divisor."""
    for condition in stores.kernel.requires:
        match condition:
            case Op(Kind.EQ, Op(Kind.MOD, Op() as number, divisor), 0):
                pass
            case Op(Kind.EQ, 0, Op(Kind.MOD, Op() as number, divisor)):
                pass
            case _:
                continue
        form, by = poly(number), product(poly(divisor))
        single = len(form) == 1 and all(len(m) == 1 and f == 1 for m, f in form)
        if single and by is not None and stores.known.gives(fold(Kind.LE, 1, divisor)):
            yield tree(form), value(by)


def _apart(number: Expr, divisor: Expr) -> Expr:
    return fold(Kind.MUL, divisor, fold(Kind.FLOORDIV, number, divisor))


def _quotients(form: Poly, divisors: set[Poly]) -> Poly:
    """Divide by numbers, and by such divisors, where that leaves no rest."""
    known: dict[Expr, Expr] = {}
    for monomial, _ in form:
        for atom in monomial:
            if len(atom) == 3 and atom[0] in (Kind.FLOORDIV.value, Kind.MOD.value):
                kind, a, b = operands(atom)
                top, bottom = product(a), product(b)
                if bottom is None or not (b in divisors or not bottom.factors):
                    continue
                left = None if top is None else top.over(bottom)
                if left is not None:
                    known[tree(single(atom))] = value(left) if kind == Kind.FLOORDIV.value else 0
    whole = tree(form)
    for old, new in known.items():
        whole = replace_tree(whole, old, new)
    return poly(whole) if known else form
