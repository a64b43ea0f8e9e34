"""The places of the stores to one output: what tells the boxes of a statement apart.

A loop index that enters the origins of a store as `a * index + b`, times a cofactor such as `GRID`,
is replaced by a place of its own: a variable for `a * index + b`, the same one in every store whose
index has this cofactor, with the condition that the place is one that the loop reaches.  The stores
of one output can then be compared, however their loops are cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product as combinations

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, substitute
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.polynomial import (
    Atom,
    Poly,
    divided,
    mapped,
    names,
    names_of,
    poly,
    repr_atom,
    tree,
)
from oracles.prover.sites import Loop, Site
from oracles.prover.solver import Known

UNROLL = 64
"""Copies that loops of a constant length may make when they are written out."""
STRIDE: Atom = (kir.GRID.name,)
"""The cofactor of such a loop."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a loop index is multiplied with, and which of several such loops it is."""

    cofactor: tuple[Atom, ...]
    number: int = 0

    @property
    def var(self) -> Var:
        """The variable that stands for it."""
        return Var(f"place {self.number} {' '.join(repr_atom(a) for a in self.cofactor)}")


DEALT = Place((STRIDE,))
"""The place of a loop over every GRID-th tile."""


class OpenError(Exception):
    """No proof; the message says what does not fit."""


@dataclass(slots=True)
class Store:
    """One writing statement while its places are found: origins in units of the box."""

    site: Site
    box: kir.Box
    units: list[Poly]
    loops: tuple[Loop, ...]
    conditions: list[Expr]
    places: dict[Place, Var] = field(default_factory=dict)
    ends: dict[Place, Expr] = field(default_factory=dict)
    plain: bool = True


def written_out(site: Site, box: kir.Box) -> list[tuple[Site, kir.Box]]:
    """Write out the loops of constant length around a store."""
    fixed = [turn for turn in site.loops if isinstance(turn.stop, int)]
    total = 1
    for turn in fixed:
        total *= max(1, turn.stop) if isinstance(turn.stop, int) else 1
    if not fixed or total > UNROLL:
        return [(site, box)]
    rest = tuple(turn for turn in site.loops if turn not in fixed)
    out = []
    for at in combinations(*(range(t.stop) for t in fixed if isinstance(t.stop, int))):
        values: dict[Var, Expr] = {t.index: i for t, i in zip(fixed, at, strict=True)}
        lets = {var: substitute(e, values) for var, e in site.lets.items()}
        loops = tuple(Loop(t.index, t.name, substitute(t.stop, values)) for t in rest)
        guards = tuple(substitute(g, values) for g in site.guards)
        copy = replace(site, loops=loops, guards=guards, lets=lets)
        out.append((copy, box))
    return out


def store(site: Site, box: kir.Box, known: Known) -> Store:
    """Return a store with its origins in units of its box.

    Raises
    ------
    OpenError
        If its box is cut elsewhere than at the extents, or its origin is no multiple of its shape.
    """
    conditions: list[Expr] = list(site.guards)
    units = []
    exprs = [site.plain(e) for e in (*box.origin, *box.limit)]
    exprs += [*conditions, *(turn.stop for turn in site.loops)]
    if sites.unknown(tuple(exprs)):
        raise OpenError(f"{site.where}: depends on a value that an assignment changes")
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for origin, size, limit, extent in axes:
        if not known.same(site.plain(limit), extent):
            raise OpenError(f"{site.where}: limit {limit} may fall short of the extent {extent}")
        unit = divided(poly(site.plain(origin)), size)
        if unit is None:
            raise OpenError(f"{site.where}: origin {origin} is no multiple of {size}")
        units.append(unit)
    return Store(site, box, units, site.loops, conditions)


def link(stores: list[Store], *, whole: bool = True) -> list[Place]:
    """Put a place for every loop index in the origins, the same one in every store.

    Parameters
    ----------
    whole : bool
        Whether a place is what an index becomes in the origins, `a * index + b`, so that several
        stores may share it; otherwise it is the index alone.

    Returns
    -------
    list of Place
        The places, by what they are multiplied with.

    Raises
    ------
    OpenError
        If an index enters the origins in another way, or in no way and nothing pins it.
    """
    places: list[Place] = []
    for store in stores:
        for turn in store.loops:
            place = _linked(store, turn) if whole else _alone(store, turn)
            if place is not None and place not in places:
                places.append(place)
    if places == [DEALT]:
        for store in stores:
            if not store.places:
                _peeled(store)
    for store in stores:
        if set(store.places) != set(places):
            raise OpenError(f"{store.site.where}: its tiles are counted otherwise than others")
    return places


def _linked(store: Store, turn: Loop) -> Place | None:
    """Replace `a * index + b` by a place; pin an index that the origins do not use."""
    uses = {
        (factor, tuple(a for a in monomial if a != (turn.index.name,)), offset)
        for unit in store.units
        for factor, monomial, offset in _uses(unit, turn.index.name)
    }
    if not uses:
        _solved(store, turn)
        return None
    if len(uses) > 1:
        raise OpenError(f"{store.site.where}: {turn.name} enters its origin in several ways")
    ((a, cofactor, b),) = uses
    if a < 1 or b < 0 or turn.index.name in {n for at in cofactor for n in names_of(at)}:
        raise OpenError(f"{store.site.where}: {turn.name} enters its origin by {a}, from {b}")
    place = Place(cofactor, sum(known.cofactor == cofactor for known in store.places))
    var = place.var
    gone = (turn.index.name,)

    def rule(form: Poly) -> Poly:
        if not any(gone in monomial for monomial, _ in form):
            return form
        left = {m: f for m, f in form if gone not in m and m != cofactor}
        return frozenset(left.items()) | poly(fold(Kind.MUL, var, tree(frozenset({(cofactor, 1)}))))

    store.units = [mapped(unit, rule) for unit in store.units]
    index = fold(Kind.FLOORDIV, var - b, a)
    store.conditions = [substitute(c, {turn.index: index}) for c in store.conditions]
    inside = both(fold(Kind.LE, b, var), var < a * turn.stop + b)
    whole = eq((var - b) % a, 0) if a > 1 else 1
    store.conditions += [both(inside, whole)]
    store.places[place] = var
    store.ends[place] = tree(poly(a * turn.stop + b))
    store.plain &= (a, b) == (1, 0)
    return place


def _alone(store: Store, turn: Loop) -> Place | None:
    """Take an index as a place, whatever it is multiplied with; pin one that is not used."""
    if not any(turn.index.name in names(unit) for unit in store.units):
        _solved(store, turn)
        return None
    place = Place((), len(store.places))
    var = place.var
    store.units = [poly(substitute(tree(unit), {turn.index: var})) for unit in store.units]
    store.conditions = [substitute(c, {turn.index: var}) for c in store.conditions]
    store.conditions.append(both(fold(Kind.LE, 0, var), var < turn.stop))
    store.places[place] = var
    store.ends[place] = tree(poly(turn.stop))
    return place


def _peeled(store: Store) -> None:
    """Read the tile `BLOCK + b * GRID` of a store outside the loop over tiles."""
    places = {
        dict(form).get((STRIDE,), 0)
        for unit in store.units
        for form in within(unit)
        if ((kir.BLOCK.name,),) in dict(form)
    }
    if len(places) != 1:
        return
    (b,) = places

    def rule(form: Poly) -> Poly:
        if ((kir.BLOCK.name,),) not in dict(form):
            return form
        left = frozenset((m, f) for m, f in form if m != (STRIDE,))
        return left | poly(fold(Kind.MUL, DEALT.var, kir.GRID))

    store.units = [mapped(unit, rule) for unit in store.units]
    store.conditions.append(eq(DEALT.var, b))
    store.places[DEALT] = DEALT.var
    store.plain = False


def _solved(store: Store, turn: Loop) -> None:
    """Take the one turn in which a store outside all loop indices is executed."""
    if turn.stop == 1:
        at: Expr = 0
    else:
        solved = [solution(c, turn.index) for c in store.conditions]
        found = [e for e in solved if e is not None]
        if not found:
            raise OpenError(f"{store.site.where}: written again in every turn of {turn.name}")
        at = found[0]
    store.conditions = [substitute(c, {turn.index: at}) for c in store.conditions]
    store.conditions.append(both(fold(Kind.LE, 0, at), at < turn.stop))
    store.plain = False


def parts(stores: list[Store]) -> tuple[dict[tuple[int, ...], list[Store]], list[Poly]]:
    """Group stores whose origins differ by constants: the parts of a tile.

    Returns
    -------
    tuple
        Stores by the offsets of their parts, and the origins without the offsets.

    Raises
    ------
    OpenError
        If origins differ by more than a constant.
    """
    found: dict[tuple[int, ...], list[Store]] = {}
    shared: list[Poly] | None = None
    for store in stores:
        offsets = tuple(dict(unit).get((), 0) for unit in store.units)
        rest = [frozenset((m, f) for m, f in unit if m) for unit in store.units]
        if shared is not None and rest != shared:
            raise OpenError(f"{store.site.where}: its origin counts otherwise than others")
        shared = rest
        found.setdefault(offsets, []).append(store)
    assert shared is not None, "an output without stores is refused before"
    return found, shared


def within(form: Poly) -> Iterable[Poly]:
    """Yield every polynomial in one, itself too."""
    yield form
    for monomial, _ in form:
        for atom in monomial:
            for part in atom:
                if isinstance(part, frozenset):
                    yield from within(part)


def _uses(form: Poly, name: str) -> Iterable[tuple[int, tuple[Atom, ...], int]]:
    """Yield how a variable enters: its factor, its monomial, and the constant beside it."""
    for inner in within(form):
        terms = dict(inner)
        for monomial, factor in inner:
            if (name,) in monomial:
                if monomial.count((name,)) > 1:
                    raise OpenError(f"an origin holds a power of {name}")
                cofactor = tuple(a for a in monomial if a != (name,))
                yield factor, monomial, terms.get(cofactor, 0)


def solution(condition: Expr, var: Var) -> Expr | None:
    """Return e where a condition is `var == e`, or has that among others."""
    match condition:
        case Op(Kind.EQ, a, b):
            form = poly(fold(Kind.SUB, a, b))
            terms = dict(form)
            factor = terms.pop(((var.name,),), 0)
            rest = frozenset(terms.items())
            if factor in (1, -1) and var.name not in names(rest):
                return fold(Kind.MUL, -factor, tree(rest))
            return None
        case Op(Kind.AND, a, b):
            return solution(a, var) or solution(b, var)
        case _:
            return None
