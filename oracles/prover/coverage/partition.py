"""The boxes that all CTAs write are a partition of an output, for all extents and grids.

Notes
-----
*Index maps* tell the boxes of one statement apart: beside `BLOCK`, each loop has the expression
`X = a * index + b` (times a cofactor such as `GRID`) by which its index enters the origins.  It is
replaced by a variable, the same one in every store whose index has this cofactor, under the
condition that the loop reaches it.  Then stores can be compared however their loops are cut.
Four facts make a partition:

1. *Domain.*  z3 shows that every point (`0 <= BLOCK < GRID`, `0 <= X < n`) is stored by exactly one
   of the statements, and no other point by any.
2. *Numbers.*  Where n is `ceildiv(M - BLOCK, GRID)`, the points are one to one with the numbers
   `v = BLOCK + X * GRID` of [0, M).  `requires GRID == E` makes `BLOCK` the numbers of [0, E).
3. *Mixed radix.*  If weights W and sizes s of the digits `(v // W) % s` are chained (the first W is
   1, each next W is the last one times its s, the last product is the count of v), the digits take
   each combination once.  A digit that a condition pins to one value takes that one.  Where the
   count is 0 there is no v; elsewhere no s is 0, and no division is by 0.
4. *Tiles.*  A coordinate `sum of weight * digit`, chained in the same way, counts through [0, c).
   With `c * size >= extent`, boxes `[i * size, i * size + size)`, cut at the extent, partition
   [0, extent); those that begin past it are empty.

Where that does not go through, the origins are rewritten and asked of again
(`rewrites`).  No box moves by that.  Whatever does not fit leaves the question open; a launch that
`outputs` counts may refute it.

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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, reduce
from itertools import permutations
from itertools import product as combinations
from math import prod

from fuser.expr import Expr, Kind, Op, Var, both, ceildiv, eq, fold, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import (
    Atom,
    Digit,
    Poly,
    Product,
    digit,
    divided,
    linear,
    mapped,
    names,
    names_of,
    natural,
    operands,
    poly,
    product,
    replace_tree,
    repr_atom,
    reworded,
    single,
    solution,
    tree,
    value,
)
from oracles.prover.coverage.pointwise import partitioned
from oracles.prover.sites import Loop, Site, fixed_grid
from oracles.prover.solver import Known

UNROLL = 64
"""Copies that loops of a constant length may make when they are written out."""
STRIDE: Atom = (kir.GRID.name,)
"""The cofactor of such a loop."""


@dataclass(frozen=True, slots=True)
class IndexMap:
    """What a loop index is multiplied with, and which of several such loops it is."""

    cofactor: tuple[Atom, ...]
    number: int = 0

    @property
    def var(self) -> Var:
        """The variable that stands for it."""
        return Var(f"place {self.number} {' '.join(repr_atom(a) for a in self.cofactor)}")


STRIDED = IndexMap((STRIDE,))
"""The index map of a loop over every GRID-th tile."""


class OpenError(Exception):
    """No proof; the message says what does not fit."""


@dataclass(slots=True)
class Store:
    """One writing statement while its maps are found: origins in units of the box."""

    site: Site
    box: kir.Box
    units: list[Poly]
    conditions: list[Expr]
    maps: set[IndexMap] = field(default_factory=set)
    ends: dict[IndexMap, Expr] = field(default_factory=dict)


def written_out(site: Site, box: kir.Box) -> list[tuple[Site, kir.Box]]:
    """Write out the loops of constant length around a store."""
    fixed = {loop.index: loop.stop for loop in site.loops if isinstance(loop.stop, int)}
    if not fixed or prod(max(1, stop) for stop in fixed.values()) > UNROLL:
        return [(site, box)]
    out = []
    for at in combinations(*map(range, fixed.values())):
        values: dict[Var, Expr] = dict(zip(fixed, at, strict=True))
        lets = {var: substitute(e, values) for var, e in site.lets.items()}
        rest = (loop for loop in site.loops if loop.index not in fixed)
        loops = tuple(replace(loop, stop=substitute(loop.stop, values)) for loop in rest)
        guards = tuple(substitute(g, values) for g in site.guards)
        out.append((replace(site, loops=loops, guards=guards, lets=lets), box))
    return out


def store(site: Site, box: kir.Box, known: Known) -> Store:
    """Return a store with its origins in units of its box.

    OpenError if its box is cut elsewhere than at the extents, or its origin is no multiple of its
    shape.
    """
    units = []
    if sites.unknown((*site.span(box), *site.conditions)):
        raise OpenError(f"{site.where}: depends on a value that an assignment changes")
    axes = zip(box.origin, box.shape, box.limit, box.tensor.extents, strict=True)
    for origin, size, limit, extent in axes:
        bound = site.plain(limit)
        # through a map of the kernel's own, a box that is not cut there is not cut elsewhere either
        uncut = sites.says(site.stmt) is not None and known.at_most(
            site.plain(origin) + size,
            bound,
            *(loop.index < loop.stop for loop in site.loops),
            *site.guards,
        )
        if not uncut and not known.same(bound, extent):
            raise OpenError(f"{site.where}: limit {limit} may fall short of the extent {extent}")
        unit = divided(poly(site.plain(origin)), size)
        if unit is None:
            raise OpenError(f"{site.where}: origin {origin} is no multiple of {size}")
        units.append(unit)
    return Store(site, box, units, list(site.guards))


def link(stores: list[Store], *, whole: bool = True) -> list[IndexMap]:
    """Put a mapping for every loop index in the origins, the same one in every store; return them.

    If `whole`, a mapping is what an index becomes in the origins, `a * index + b`, so that several
    stores may share it; otherwise it is the index alone.  OpenError if an index enters the origins
    in another way, or in no way and nothing pins it.
    """
    maps: list[IndexMap] = []
    for store in stores:
        for loop in store.site.loops:
            if not any(loop.index.name in names(unit) for unit in store.units):
                _solved(store, loop)
                continue
            mapping = _linked(store, loop) if whole else _alone(store, loop)
            store.maps.add(mapping)
            if mapping not in maps:
                maps.append(mapping)
    if maps == [STRIDED]:
        for store in stores:
            if not store.maps:
                _peeled(store)
    for store in stores:
        if store.maps != set(maps):
            raise OpenError(f"{store.site.where}: its tiles are counted otherwise than others")
    return maps


def _linked(store: Store, loop: Loop) -> IndexMap:
    """Replace `a * index + b` by a mapping."""
    uses = {
        (factor, tuple(a for a in monomial if a != (loop.index.name,)), offset)
        for unit in store.units
        for factor, monomial, offset in _uses(unit, loop.index.name)
    }
    if len(uses) != 1:
        raise OpenError(f"{store.site.where}: {loop.name} enters its origin in several ways")
    ((a, cofactor, b),) = uses
    if a < 1 or b < 0 or loop.index.name in {n for at in cofactor for n in names_of(at)}:
        raise OpenError(f"{store.site.where}: {loop.name} enters its origin by {a}, from {b}")
    mapping = IndexMap(cofactor, sum(known.cofactor == cofactor for known in store.maps))
    var = mapping.var
    rests = {_beside(unit, loop.index.name, cofactor) for unit in store.units} - {frozenset()}
    if len(rests) > 1 or (rests and a > 1):
        raise OpenError(f"{store.site.where}: {loop.name} goes on in several ways")
    rest: Poly = next(iter(rests), frozenset())
    store.units = [_placed(unit, loop.index.name, mapping, rest) for unit in store.units]
    first = fold(Kind.ADD, tree(rest), b)
    index = fold(Kind.FLOORDIV, var - first, a)
    store.conditions = [substitute(c, {loop.index: index}) for c in store.conditions]
    end = a * loop.stop + first
    store.ends[mapping] = tree(poly(end))
    inside = both(fold(Kind.LE, first, var), var < (store.ends[mapping] if rest else end))
    whole = eq((var - b) % a, 0) if a > 1 else 1
    store.conditions += [both(inside, whole)]
    return mapping


def _beside(unit: Poly, index: str, cofactor: tuple[Atom, ...]) -> Poly:
    """Return what, times the cofactor of an index, is added to it: where another loop has ended."""
    out: dict[tuple[Atom, ...], int] = {}
    for form in within(unit):
        if not cofactor or not any((index,) in monomial for monomial, _ in form):
            continue
        for monomial, factor in form:
            left = [*monomial]
            if (index,) in left or len(left) <= len(cofactor):
                continue
            if all(atom in left for atom in cofactor):
                for atom in cofactor:
                    left.remove(atom)
                out[tuple(left)] = factor
    return frozenset(out.items())


@lru_cache(maxsize=1 << 10)
def _placed(unit: Poly, index: str, mapping: IndexMap, rest: Poly) -> Poly:
    """Put a mapping where an index is multiplied with its cofactor; offsets go with it."""
    gone, cofactor = (index,), mapping.cofactor
    there = poly(fold(Kind.MUL, mapping.var, tree(frozenset({(cofactor, 1)}))))
    offsets = poly(fold(Kind.MUL, tree(rest), tree(frozenset({(cofactor, 1)}))))
    left_out = {cofactor, *(monomial for monomial, _ in offsets)}

    def rule(form: Poly) -> Poly:
        if not any(gone in monomial for monomial, _ in form):
            return form
        return frozenset((m, f) for m, f in form if gone not in m and m not in left_out) | there

    return mapped(unit, rule)


def _alone(store: Store, loop: Loop) -> IndexMap:
    """Take an index as a mapping, whatever it is multiplied with."""
    mapping = IndexMap((), len(store.maps))
    var = mapping.var
    store.units = [poly(substitute(tree(unit), {loop.index: var})) for unit in store.units]
    store.conditions = [substitute(c, {loop.index: var}) for c in store.conditions]
    store.conditions.append(both(fold(Kind.LE, 0, var), var < loop.stop))
    store.ends[mapping] = tree(poly(loop.stop))
    return mapping


def _peeled(store: Store) -> None:
    """Read the tile `BLOCK + b * GRID` of a store outside the loop over tiles."""
    offsets = {
        dict(form).get((STRIDE,), 0)
        for unit in store.units
        for form in within(unit)
        if ((kir.BLOCK.name,),) in dict(form)
    }
    if len(offsets) != 1:
        return
    (b,) = offsets

    def rule(form: Poly) -> Poly:
        if ((kir.BLOCK.name,),) not in dict(form):
            return form
        left = frozenset((m, f) for m, f in form if m != (STRIDE,))
        return left | poly(fold(Kind.MUL, STRIDED.var, kir.GRID))

    store.units = [mapped(unit, rule) for unit in store.units]
    store.conditions.append(eq(STRIDED.var, b))
    store.maps.add(STRIDED)


def _solved(store: Store, loop: Loop) -> None:
    """Take the one iteration in which a store is executed whose origins do not use the index."""
    solved = (solution(c, loop.index) for c in store.conditions)
    at = 0 if loop.stop == 1 else next((e for e in solved if e is not None), None)
    if at is None:
        raise OpenError(f"{store.site.where}: written again in every loop of {loop.name}")
    store.conditions = [substitute(c, {loop.index: at}) for c in store.conditions]
    store.conditions.append(both(fold(Kind.LE, 0, at), at < loop.stop))


def parts(stores: list[Store]) -> tuple[dict[tuple[int, ...], list[Store]], list[Poly]]:
    """Group stores whose origins differ by constants: the parts of a tile.

    Return stores by the offsets of their parts, and the origins without the offsets.  OpenError if
    origins differ by more than a constant.
    """
    found: dict[tuple[int, ...], list[Store]] = {}
    shared: list[list[Poly]] = []
    for store in stores:
        offsets = tuple(dict(unit).get((), 0) for unit in store.units)
        shared.append([frozenset((m, f) for m, f in unit if m) for unit in store.units])
        if shared[-1] != shared[0]:
            raise OpenError(f"{store.site.where}: its origin counts otherwise than others")
        found.setdefault(offsets, []).append(store)
    return found, shared[0]


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


NUMBER = Var("number of the tile")
"""v of fact 2."""
Claim = tuple[str, list[list[tuple[Expr, ...]]]]
"""What is wrong if in none of some ways all follows: each what is claimed, behind it what holds."""


def judge(
    kernel: kir.Kernel, every: tuple[Site, ...], tensors: Iterable[kir.Tensor], known: Known
) -> list[str]:
    """Say of each output why its boxes may not be a partition of it, if they may not."""
    boxes = ((site, sites.writes(site.stmt)) for site in every)
    written = [(site, box) for site, box in boxes if box is not None]
    sums = {box.tensor.name for site in every if (box := sites.adds(site.stmt)) is not None}
    says: dict[str, str] = {}
    left: dict[str, kir.Tensor] = {}
    for tensor in tensors:
        name, own = tensor.name, {b.tensor for _, b in written if b.tensor.name == tensor.name}
        says[name] = ""
        if not own:
            how = "only added to; what it held before is not known"
            says[name] = f"{name}: {how if name in sums else 'no store writes it'}"
        elif own != {tensor}:
            says[name] = f"{name}: written through a tensor that is not declared so"
        else:
            left[name] = tensor
    found = [(_turned(_guarded(s), box), box) for s, box in written if box.tensor.name in left]
    for stores in rewrites(Stores(kernel, found, known)) if left else ():
        for name, tensor in [*left.items()]:
            own_stores = [(s, box) for s, box in stores.found if box.tensor.name == name]
            reason = _open_in(replace(stores, found=own_stores), tensor)
            says[name] = reason and (says[name] or reason)
            if not reason:
                del left[name]
        if not left:
            break
    for name, tensor in left.items():
        if partitioned([(s, b) for s, b in written if b.tensor.name == name], tensor, known):
            says[name] = ""
    return [*says.values()]


def _open_in(stores: Stores, tensor: kir.Tensor) -> str:
    """Say why stores, written so, are not shown to be a partition; empty if they are."""
    reason = ""
    for found, whole in _ways(stores.found):
        try:
            _Partition(replace(stores, found=found), tensor, whole=whole)
        except OpenError as error:
            reason = reason or str(error)
        else:
            return ""
    return reason


def _ways(found: Found) -> Iterator[tuple[Found, bool]]:
    """Yield stores as they are, written out, and with index maps that are the indices alone."""
    yield found, True
    copies = [copy for site, box in found for copy in written_out(site, box)]
    if copies and len(copies) != len(found):
        yield copies, True
    yield found, False


def _guarded(site: Site) -> Site:
    """Take the lesser of two ends of a loop for the one, and a guard that asks for the other."""
    loops, guards = [], list(site.guards)
    for loop in site.loops:
        stop = loop.stop
        while isinstance(stop, Op) and stop.kind in (Kind.MIN, Kind.MAX):
            a, b = stop.a, stop.b
            if stop.kind is Kind.MAX:
                if 0 not in (a, b):
                    break
                stop = b if a == 0 else a
                continue
            stop, other = (b, a) if kir.BLOCK in variables(a) else (a, b)
            guards.append(_ordered(loop.index, other))
        loops.append(replace(loop, stop=stop))
    return replace(site, loops=tuple(loops), guards=tuple(guards))


def _ordered(low: Expr, high: Expr) -> Expr:
    """Return `low < high` with nothing subtracted on either side."""
    constant, parts = linear(high - low)
    sides = [
        sum((sign * n * part for part, n in parts.items() if sign * n > 0), start=0)
        for sign in (-1, 1)
    ]
    return fold(Kind.LT, sides[0] + max(-constant, 0), sides[1] + max(constant, 0))


def _turned(site: Site, box: kir.Box) -> Site:
    """Count loops backwards whose tiles come from the end: the same iterations, all of them."""
    for loop in site.loops:
        ways = [linear(site.plain(e))[1].get(loop.index, 0) for e in box.origin]
        if min(ways, default=0) < 0 and max(ways) <= 0:
            other = {loop.index: loop.stop - 1 - loop.index}
            site = replace(
                site,
                loops=tuple(replace(one, stop=substitute(one.stop, other)) for one in site.loops),
                guards=tuple(substitute(guard, other) for guard in site.guards),
                lets={var: substitute(e, other) for var, e in site.lets.items()},
            )
    return site


class _Partition:
    """The proof for one output; raises `OpenError` where it does not go through."""

    def __init__(self, given: Stores, tensor: kir.Tensor, *, whole: bool) -> None:
        self.given, self.tensor = given, tensor
        self.kernel, self.known = given.kernel, given.known
        self.grid = fixed_grid(self.kernel)
        self.stores = [store(site, box, self.known) for site, box in given.found]
        self.sizes = self.stores[0].box.shape
        if any(s.box.shape != self.sizes for s in self.stores):
            raise OpenError(f"{tensor.name}: boxes of different shapes")
        self.maps = link(self.stores, whole=whole)
        self.groups, self.units = parts(self.stores)
        self.counts: dict[IndexMap, Expr] = {}
        self.claims: list[Claim] = []
        first = ""  # an error that is kept keeps all that its callers have, until it is collected
        for counts, pinned in self._domains():
            self.counts = counts
            try:
                self._shown(pinned)
            except OpenError as error:
                first = first or str(error)
            else:
                return
        raise (
            OpenError(first) if first else self._open("how many tiles its loops count is not known")
        )

    def _open(self, says: str) -> OpenError:
        return OpenError(f"{self.tensor.name}: {says}")

    def _shown(self, pinned: list[list[Expr]]) -> None:
        """Ask for all that makes a partition: z3 last, and only if the digits fit."""
        self.claims = []
        used = self._radix()
        for guards in dict.fromkeys(map(tuple, pinned)):
            self._count([*used, *self._pinned(guards)])
        says = f"cannot tell that its {len(self.stores)} stores exclude each other"
        once = dict.fromkeys(map(self._once, self.groups.values(), pinned))
        ordered = self._ordered_ends()
        stored: list[Claim] = [
            (says, [[(claim,)], [(claim, *where)], *([[(claim, *ordered)]] if ordered else [])])
            for claim, where in once
        ]
        for reason, ways in (*stored, *self.claims):
            if not any(all(self.known.gives(*one) for one in way) for way in ways):
                raise self._open(reason)

    def _ordered_ends(self) -> tuple[Expr, ...]:
        """Return which of several ends are before others: counts of every GRID-th of more tiles."""
        ends = dict.fromkeys(end for s in self.stores for end in s.ends.values())
        counts = [
            (end, end.a)
            for end in ends
            if isinstance(end, Op) and end.kind is Kind.FLOORDIV and end.b == kir.GRID
        ]
        return tuple(
            fold(Kind.LE, one, other)
            for (one, few), (other, many) in permutations(counts, 2)
            if self.known.at_most(few, many)
        )

    # --- the domain: which points are stored ---

    def _domains(self) -> Iterator[tuple[dict[IndexMap, Expr], list[list[Expr]]]]:
        """Yield how many values each index map may have, where each point is stored once.

        And the conditions on the stores of each part that are to pick one CTA for each point.
        """
        guards = [self._guards(group) for group in self.groups.values()]
        options = [[e for e in self._ends(m) if self._many(m, e)] for m in self.maps]
        none: list[list[Expr]] = [[] for _ in guards]
        for pinned in (none, guards) if any(guards) else (none,):
            for ends in combinations(*options):
                yield dict(zip(self.maps, ends, strict=True)), pinned

    def _guards(self, group: list[Store]) -> list[Expr]:
        """Return the conditions of all stores of a part that may tell which CTA has a point."""
        first, *others = (s.conditions for s in group)
        indices = {mapping.var for mapping in self.maps}
        return [
            c
            for c in dict.fromkeys(first)
            if all(c in more for more in others)
            and (kir.BLOCK in variables(c) or not variables(c) & indices)
        ]

    def _ends(self, mapping: IndexMap) -> list[Expr]:
        """Return what the count of a mapping may be: ends of loops, and values of lets."""
        own = [s.ends[mapping] for s in self.stores if mapping in s.ends]
        allowed = {kir.BLOCK, kir.GRID, *self.kernel.params}
        lets = [e for s in self.stores for e in s.site.lets.values()]
        options: dict[Poly, Expr] = {}
        for end in (*own, *lets):
            if variables(end) <= allowed and not (isinstance(end, Var | int) and end in lets):
                options.setdefault(poly(end), tree(poly(end)))
        return list(options.values())[:8]

    def _once(self, group: list[Store], pinned: list[Expr]) -> tuple[Expr, tuple[Expr, ...]]:
        """Claim that every point of the domain is stored by one store of the group, no other.

        And where: where they all ask for the domain anyway, only there.
        """
        domain = tuple(mapping.var < count for mapping, count in self.counts.items())
        inside = {*map(poly, domain)}
        own = [
            [e for c in one.conditions if c not in pinned for e in _conjuncts(c)] for one in group
        ]
        apart = all(inside <= {*map(poly, some)} for some in own)
        total: Expr = 0
        for some in own:
            told = (e for e in some if not (_natural(e) or (apart and poly(e) in inside)))
            total = fold(Kind.ADD, total, _all(told))
        return (eq(total, 1), domain) if apart else (eq(total, _all(domain)), ())

    # --- digits ---

    def _pinned(self, guards: Iterable[Expr]) -> Iterable[Digit]:
        """Claim that each condition left over picks one value of one digit; yield these digits."""
        for guard in guards:
            form = self._numbered(poly(guard))
            atoms = set(_digits(form))
            read = digit(single(next(iter(atoms)))) if len(atoms) == 1 else None
            if read is None:
                raise self._open(f"the condition {guard} is not understood")
            count = value(self._size(read))
            y = Var("digit of the condition")
            test = replace_tree(tree(form), tree(single(next(iter(atoms)))), y)
            tries = (0, fold(Kind.SUB, count, 1), solution(test, y))
            ways = [
                [
                    (both(fold(Kind.LE, 0, at), fold(Kind.LT, at, count)),),
                    (eq(_truth(test), eq(y, at)), y < count),
                ]
                for at in tries
                if at is not None
            ]
            self.claims.append((f"the condition {guard} may hold more than once", ways))
            yield read

    def _numbered(self, form: Poly) -> Poly:
        """Write `BLOCK + X * GRID` as one number, if tiles are dealt to CTAs in loop."""
        return _as_number(form) if STRIDED in self.maps else form

    def _range(self, name: str) -> Product:
        """Return how many values a number has: the tiles, the CTAs, or the iterations of a loop."""
        many = None
        if name == kir.BLOCK.name:
            many = product(poly(kir.GRID if self.grid is None else self.grid))
        for mapping, count in self.counts.items():
            if name == (NUMBER if mapping == STRIDED else mapping.var).name:
                many = self._many(mapping, count)
        if many is None:
            raise self._open(f"how many values {name} has is not known")
        return many

    def _many(self, mapping: IndexMap, count: Expr) -> Product | None:
        """Return how many values the number has that a mapping of this count stands for.

        M where tiles are dealt to CTAs in a loop and the count is ceildiv(M - BLOCK, GRID).
        """
        if mapping == STRIDED and kir.BLOCK not in variables(count):
            count = count * kir.GRID
        elif mapping == STRIDED:
            match count:
                case Op(Kind.FLOORDIV, Op() as above, by) if by == kir.GRID:
                    count = tree(poly(above + kir.BLOCK - kir.GRID + 1))
                case _:
                    pass
        return None if kir.BLOCK in variables(count) else product(poly(count))

    def _size(self, read: Digit) -> Product:
        if read.size is not None:
            return read.size
        left = self._total(read.tile).over(read.weight)
        if left is None:
            raise self._open(f"{tree(read.tile)} has no such digit")
        return left

    def _variables(self, form: Poly) -> frozenset[str]:
        return names(form) - {p.name for p in self.kernel.params} - {kir.GRID.name}

    def _weighted(self, form: Poly) -> Iterator[tuple[Product | None, Atom | None]]:
        """Yield the terms of a sum: what is fixed in a launch, and the one atom that is not."""
        for monomial, factor in form:
            own = [a for a in monomial if self._variables(single(a))]
            weight = product(frozenset({(tuple(a for a in monomial if a not in own), factor)}))
            yield weight, own[0] if len(own) == 1 else None

    def _total(self, number: Poly) -> Product:
        chain = []
        for weight, own in self._weighted(number):
            if own is None or len(own) != 1 or weight is None:
                raise self._open(f"the number {tree(number)} is not understood")
            chain.append((weight, self._range(str(own[0]))))
        total = chained(chain)
        if total is None:
            raise self._open(f"the number {tree(number)} skips or repeats values")
        return total

    def _radix(self) -> list[Digit]:
        """Show that every axis counts through its tiles; return the digits that it takes."""
        used: list[Digit] = []
        many = 1
        axes = zip(self.units, self.sizes, self.tensor.extents, strict=True)
        for axis, (unit, size, extent) in enumerate(axes):
            offsets = {part[axis] for part in self.groups}
            if offsets != set(range(len(offsets))):
                raise self._open(f"parts {sorted(offsets)} of axis {axis}")
            many *= len(offsets)
            chain = [(Product(), Product(len(offsets)))]
            for weight, read in self._terms(self._numbered(unit)):
                chain.append((weight, self._size(read)))
                used.append(read)
            total = chained(chain)
            if total is None:
                raise self._open(f"axis {axis} skips or repeats tiles")
            count = value(self.given.whole(total))
            tiles = ceildiv(extent, size)
            if poly(count) != poly(tiles):
                reach = fold(Kind.LE, extent, count * size)
                says = f"{count} tiles of {size} may not reach {extent}"
                self.claims.append((says, [[(reach,)]]))
        if many != len(self.groups):
            raise self._open(f"{len(self.groups)} of {many} parts of a tile are written")
        return used

    def _terms(self, unit: Poly) -> list[tuple[Product, Digit]]:
        terms = []
        for weight, own in self._weighted(unit):
            read = None if own is None else digit(single(own))
            if read is None or weight is None:
                raise self._open(f"the origin {tree(unit)} is not understood")
            terms.append((weight, read))
        return terms

    def _count(self, used: list[Digit]) -> None:
        """Show that the digits take every value of every number once."""
        digits: dict[Poly, list[tuple[Product, Product]]] = {}
        for read in used:
            digits.setdefault(read.tile, []).append((read.weight, self._size(read)))
        free = [kir.BLOCK.name, *(c.var.name for c in self.maps)]
        if STRIDED in self.maps:
            free = [n for n in free if n not in (kir.BLOCK.name, STRIDED.var.name)]
            free.append(NUMBER.name)
        single = {poly(Var(name)) for name in free}
        for number in [n for n in digits if n not in single]:
            if chained(digits[number]) != self._total(number):
                raise self._open(f"{tree(number)} is not used up by its axes")
            for name in self._variables(number):
                own = digits.setdefault(poly(Var(name)), [])
                own.append((Product(), self._range(name)))
        for name in free:
            total = self._range(name)
            if chained(digits.get(poly(Var(name)), [])) != total:
                raise self._open(f"its origins do not count through {name}")


@lru_cache(maxsize=1 << 10)
def _as_number(form: Poly) -> Poly:
    stride = tuple(sorted(((STRIDED.var.name,), STRIDE), key=repr_atom))
    block = ((kir.BLOCK.name,),)

    def rule(inner: Poly) -> Poly:
        terms = dict(inner)
        if terms.get(stride) == 1 and terms.get(block) == 1:
            left = frozenset((m, f) for m, f in inner if m not in (stride, block))
            return left | poly(NUMBER)
        return inner

    return mapped(form, rule)


def chained(parts: Iterable[tuple[Product, Product]]) -> Product | None:
    """Return the product of sizes of digits (weight, size): each weight the last times its size."""
    left = [entry for entry in parts if entry[1] != Product()]
    weight = Product()
    while left:
        for entry in left:
            if entry[0] == weight:
                weight = weight.times(entry[1])
                left.remove(entry)
                break
        else:
            return None
    return weight


def _digits(form: Poly) -> Iterable[Atom]:
    """Yield the largest divisions, remainders and variables that hold a number."""
    numbers = {kir.BLOCK.name, NUMBER.name}
    for monomial, _ in form:
        for atom in monomial:
            if not names_of(atom) & numbers:
                continue
            if len(atom) == 1 or atom[0] in (Kind.FLOORDIV.value, Kind.MOD.value):
                yield atom
            else:
                for part in atom:
                    if isinstance(part, frozenset):
                        yield from _digits(part)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    match condition:
        case Op(Kind.AND, a, b):
            yield from _conjuncts(a)
            yield from _conjuncts(b)
        case _:
            yield condition


def _natural(condition: Expr) -> bool:
    """Whether a condition only says that something is not negative that never is."""
    match condition:
        case Op(Kind.LE, 0, number):
            return natural(poly(number))
        case _:
            return condition == 1


def _all(conditions: Iterable[Expr]) -> Expr:
    true: Expr = 1
    return _truth(reduce(both, conditions, true))


def _truth(condition: Expr) -> Expr:
    """Return 1 where a condition is not 0."""
    if isinstance(condition, int):
        return int(condition != 0)
    if isinstance(condition, Op) and condition.kind in (Kind.LT, Kind.LE, Kind.EQ, Kind.AND):
        return condition
    return eq(eq(condition, 0), 0)


RANK = Var("rank in the cluster")
"""Index of the loop over the CTAs of a cluster."""
PLACE = Var("place in the group")
"""Index of the loop over the CTAs of a group."""
Words = dict[Expr, Expr]
"""Expressions, and what stands in their place."""
Found = list[tuple[Site, kir.Box]]


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores to one output, with the kernel and the facts about what their expressions name.

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


def _rewritten(found: Found, rule: Callable[[Expr], Expr]) -> Found:
    out = []
    for site, box in found:
        origin, limit = ([rule(site.plain(e)) for e in es] for es in (box.origin, box.limit))
        loops = tuple(replace(loop, stop=rule(loop.stop)) for loop in site.loops)
        guards = tuple(rule(guard) for guard in site.guards)
        lets = {var: rule(e) for var, e in site.lets.items()}
        copy = replace(site, loops=loops, guards=guards, lets=lets)
        out.append((copy, replace(box, origin=tuple(origin), limit=tuple(limit))))
    return out


# --- clusters and groups ------------------------------------------------------------------------


def _by_clusters(plain: Stores) -> Iterator[Stores]:
    many = plain.kernel.cluster
    if many > 1:
        words: Words = {
            kir.BLOCK % many: RANK,
            kir.BLOCK // many: kir.BLOCK,
            kir.GRID // many: kir.GRID,
            kir.BLOCK: kir.BLOCK * many + RANK,
            kir.GRID: kir.GRID * many,
        }
        kernel = replace(plain.kernel, cluster=1)
        yield _looped(plain, kernel, words, Loop(RANK, "rank", many))


def _by_groups(plain: Stores) -> Iterator[Stores]:
    """Yield the stores by groups, in either numbering that tells a group's number."""
    exprs = [s.plain(e) for s, box in plain.found for e in box.origin]
    for condition, groups, many in _products(plain.kernel):
        others = tuple(one for one in plain.kernel.requires if one != condition)
        kernel = replace(plain.kernel, requires=others)
        for number, place, block in (
            (kir.BLOCK // many, kir.BLOCK % many, kir.BLOCK * many + PLACE),
            (kir.BLOCK % groups, kir.BLOCK // groups, PLACE * kir.GRID + kir.BLOCK),
        ):
            if any(replace_tree(expr, number, 0) != expr for expr in exprs):
                words: Words = {number: kir.BLOCK, place: PLACE, kir.BLOCK: block}
                words |= {kir.GRID: kir.GRID * many, groups: kir.GRID}
                yield _looped(plain, kernel, words, Loop(PLACE, "place", many))


def _products(kernel: kir.Kernel) -> Iterator[tuple[Expr, Var, Expr]]:
    """Yield conditions `GRID == groups * many`, and both."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)):
                for groups, many in ((a, b), (b, a)):
                    beside = variables(many) & {groups, kir.BLOCK, kir.GRID}
                    if isinstance(groups, Var) and groups in kernel.params and not beside:
                        yield condition, groups, many
            case _:
                pass


def _looped(plain: Stores, kernel: kir.Kernel, words: Words, loop: Loop) -> Stores:
    """Return the stores of a kernel in other words, with a loop around every statement."""

    @cache
    def rule(expr: Expr) -> Expr:
        return reworded(expr, words)

    found = [(replace(s, loops=(loop, *s.loops)), b) for s, b in _rewritten(plain.found, rule)]
    requires = tuple(_lowest(rule(condition)) for condition in kernel.requires)
    kernel = replace(kernel, requires=requires)
    return Stores(kernel, found, Known(sites.facts(kernel), plain.known.rlimit))


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


# --- exact divisions ----------------------------------------------------------------------------


def _exact(plain: Stores) -> Iterator[Stores]:
    facts = sorted(_divisions(plain), key=lambda fact: len(str(fact[0])))
    if not facts:
        return
    divisors = {poly(divisor) for _, divisor in facts}

    @cache
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
            case Op(Kind.EQ, Op(Kind.MOD, Op() as number, divisor), 0) | Op(
                Kind.EQ, 0, Op(Kind.MOD, Op() as number, divisor)
            ):
                form, by = poly(number), product(poly(divisor))
                single = len(form) == 1 and all(len(m) == 1 and f == 1 for m, f in form)
                if single and by is not None and stores.known.gives(fold(Kind.LE, 1, divisor)):
                    yield tree(form), value(by)
            case _:
                pass


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
