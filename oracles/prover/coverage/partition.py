"""The boxes that all CTAs write are a partition of an output, for all extents and grids.

Notes
-----
A *place* is what tells the boxes of one statement apart: `BLOCK`, and for each loop the expression
`X = a * index + b` by which its index enters the origins.  Four facts make a partition:

1. *Places.*  z3 shows that every place of a domain (`0 <= BLOCK < GRID`, `0 <= X < n`) is stored
   by exactly one of the statements, and no other place by any.
2. *Numbers.*  Where n is `ceildiv(M - BLOCK, GRID)`, the places are one to one with the numbers
   `v = BLOCK + X * GRID` of [0, M).  `requires GRID == E` makes `BLOCK` the numbers of [0, E).
3. *Mixed radix.*  If weights W and sizes s of the digits `(v // W) % s` are chained (the first W is
   1, each next W is the last one times its s, the last product is the count of v), the digits take
   each combination once.  A digit that a condition pins to one value takes that one.  Where the
   count is 0 there is no v; elsewhere no s is 0, and no division is by 0.
4. *Tiles.*  A coordinate `sum of weight * digit`, chained in the same way, counts through [0, c).
   With `c * size >= extent`, boxes `[i * size, i * size + size)`, cut at the extent, partition
   [0, extent); those that begin past it are empty.

Where that does not go through, the origins are written in other words (`restated`) and asked of
again.  Whatever does not fit leaves the question open; `tiles` may refute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product as combinations

from fuser.expr import Expr, Kind, Op, Var, both, ceildiv, eq, fold, variables
from fuser.kernel import ir as kir
from oracles.prover import sites
from oracles.prover.arithmetic import replace_tree
from oracles.prover.coverage.index_maps import (
    DEALT,
    STRIDE,
    OpenError,
    Place,
    Store,
    link,
    parts,
    solution,
    store,
    written_out,
)
from oracles.prover.coverage.rewrites import Stores, restated
from oracles.prover.polynomial import (
    Atom,
    Digit,
    Poly,
    Product,
    digit,
    mapped,
    names,
    names_of,
    poly,
    product,
    repr_atom,
    tree,
    value,
)
from oracles.prover.preconditions import fixed_grid
from oracles.prover.sites import Site
from oracles.prover.solver import Known

NUMBER = Var("number of the tile")
"""v of fact 2."""
Groups = Mapping[tuple[int, ...], list[Store]]
"""Stores by the part of a tile that they write."""


def judge(kernel: kir.Kernel, every: tuple[Site, ...], tensor: kir.Tensor, known: Known) -> str:
    """Say why the boxes of an output may not be a partition of it, if they may not."""
    boxes = [(site, sites.writes(site.stmt)) for site in every]
    found = [(s, b) for s, b in boxes if b is not None and b.tensor.name == tensor.name]
    if not found:
        added = any(b.tensor.name == tensor.name for b in map(_added, every) if b is not None)
        how = "only added to; what it held before is not known" if added else "no store writes it"
        return f"{tensor.name}: {how}"
    if any(box.tensor != tensor for _, box in found):
        return f"{tensor.name}: written through a tensor that is not declared so"
    first = ""
    for stores in restated(Stores(kernel, found, known)):
        says = _open(stores, tensor)
        if not says:
            return ""
        first = first or says
    return first


def _open(stores: Stores, tensor: kir.Tensor) -> str:
    """Say why no proof was found, if none was."""
    copies = [copy for s, b in stores.found for copy in written_out(s, b)]
    first = ""
    for found, whole in ((stores.found, True), (copies, True), (stores.found, False)):
        if whole and first and len(copies) == len(stores.found):
            continue
        try:
            _Partition(replace(stores, found=found), tensor, whole=whole)
        except OpenError as error:
            first = first or str(error)
        else:
            return ""
    return first


def _added(site: Site) -> kir.Box | None:
    return sites.adds(site.stmt)


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
        self.places = link(self.stores, whole=whole)
        groups, self.units = parts(self.stores)
        self.counts, guards = self._domain(groups)
        used = self._radix(groups)
        for some in dict.fromkeys(map(tuple, guards)):
            self._count([*used, *self._pinned(some)])

    # --- the domain: which places are stored ---

    def _domain(self, groups: Groups) -> tuple[dict[Place, Expr], list[list[Expr]]]:
        """Return how many places there are, each stored once in every part.

        And the conditions on the stores of each part that are to pick one CTA for each place.
        """
        guards = [self._guards(group) for group in groups.values()]
        options = [self._ends(place) for place in self.places]
        none: list[list[Expr]] = [[] for _ in guards]
        for pinned in (none, guards) if any(guards) else (none,):
            for ends in combinations(*options):
                counts = dict(zip(self.places, ends, strict=True))
                both_ = zip(groups.values(), pinned, strict=True)
                if all(self._once(group, counts, some) for group, some in both_):
                    return counts, pinned
        name = self.tensor.name
        raise OpenError(f"{name}: cannot tell that its {len(self.stores)} stores take turns")

    def _guards(self, group: list[Store]) -> list[Expr]:
        """Return the conditions of all stores of a part that may tell which CTA has a place."""
        first, *others = (s.conditions for s in group)
        return [
            c
            for c in dict.fromkeys(first)
            if all(c in more for more in others)
            and (kir.BLOCK in variables(c) or not variables(c) & {*self._places()})
        ]

    def _places(self) -> list[Var]:
        return [place.var for place in self.places]

    def _ends(self, place: Place) -> list[Expr]:
        """Return what the count of a place may be: ends of loops, and values of lets."""
        own = [s.ends[place] for s in self.stores if place in s.ends]
        allowed = {kir.BLOCK, kir.GRID, *self.kernel.params}
        lets = [e for s in self.stores for e in s.site.lets.values()]
        options: dict[Poly, Expr] = {}
        for end in (*own, *lets):
            if variables(end) <= allowed and not (isinstance(end, Var | int) and end in lets):
                options.setdefault(poly(end), tree(poly(end)))
        return list(options.values())[:8]

    def _once(self, group: list[Store], counts: dict[Place, Expr], pinned: list[Expr]) -> bool:
        """Whether every place of the domain is stored by one store of the group, and no other."""
        if len(group) == 1 and group[0].plain:
            own = group[0]
            guards = [g for g in own.site.guards if g not in pinned]
            if not guards and own.ends == counts:
                return True
        domain: Expr = 1
        for place, count in counts.items():
            domain = both(domain, place.var < count)
        total: Expr = 0
        for one in group:
            term: Expr = 1
            for condition in one.conditions:
                if condition not in pinned:
                    term = both(term, condition)
            total = fold(Kind.ADD, total, _truth(term))
        return self.known.gives(eq(total, _truth(domain)))

    # --- digits ---

    def _pinned(self, guards: Iterable[Expr]) -> Iterable[Digit]:
        """Show that each condition left over picks one value of one digit; yield these digits."""
        for guard in guards:
            form = self._numbered(poly(guard))
            atoms = sorted(set(_digits(form)), key=repr_atom)
            if len(atoms) != 1:
                raise OpenError(f"{self.tensor.name}: the condition {guard} is not understood")
            read = digit(frozenset({((atoms[0],), 1)}))
            if read is None:
                raise OpenError(f"{self.tensor.name}: the condition {guard} is not understood")
            count = value(self._size(read))
            y = Var("digit of the condition")
            test = replace_tree(tree(form), tree(frozenset({((atoms[0],), 1)})), y)
            tries: list[Expr] = [0, fold(Kind.SUB, count, 1)]
            solved = solution(test, y)
            tries += [] if solved is None else [solved]
            if not any(
                self.known.gives(both(fold(Kind.LE, 0, at), fold(Kind.LT, at, count)))
                and self.known.gives(eq(_truth(test), eq(y, at)), y < count)
                for at in tries
            ):
                raise OpenError(
                    f"{self.tensor.name}: the condition {guard} may hold more than once"
                )
            yield read

    def _numbered(self, form: Poly) -> Poly:
        """Write `BLOCK + X * GRID` as one number, if tiles are dealt to CTAs in turn."""
        if DEALT not in self.places:
            return form
        place = ((DEALT.var.name,), STRIDE)
        stride = tuple(sorted(place, key=repr_atom))
        block = ((kir.BLOCK.name,),)

        def rule(inner: Poly) -> Poly:
            terms = dict(inner)
            if terms.get(stride) == 1 and terms.get(block) == 1:
                left = frozenset((m, f) for m, f in inner if m not in (stride, block))
                return left | poly(NUMBER)
            return inner

        return mapped(form, rule)

    def _range(self, name: str) -> Product:
        """Return how many values a number has: the tiles, the CTAs, or the turns of a loop."""
        count: Expr | None = None
        if name == NUMBER.name:
            count = self._dealt(self.counts[DEALT])
        elif name == kir.BLOCK.name:
            count = kir.GRID if self.grid is None else self.grid
        else:
            for place, n in self.counts.items():
                if place.var.name == name and kir.BLOCK not in variables(n):
                    count = n
        made = None if count is None else product(poly(count))
        if made is None:
            raise OpenError(f"{self.tensor.name}: how many values {name} has is not known")
        return made

    def _dealt(self, count: Expr) -> Expr:
        """Return M where the count of a place is ceildiv(M - BLOCK, GRID)."""
        if kir.BLOCK not in variables(count):
            return count * kir.GRID
        match count:
            case Op(Kind.FLOORDIV, Op() as above, by) if by == kir.GRID:
                total = tree(poly(above + kir.BLOCK - kir.GRID + 1))
                if kir.BLOCK not in variables(total):
                    return total
            case _:
                pass
        raise OpenError(f"{self.tensor.name}: the trip count {count} is no grid stride")

    def _size(self, read: Digit) -> Product:
        """Return how many values a digit has."""
        if read.size is not None:
            return read.size
        left = self._total(read.tile).over(read.weight)
        if left is None:
            raise OpenError(f"{self.tensor.name}: {tree(read.tile)} has no such digit")
        return left

    def _variables(self, form: Poly) -> frozenset[str]:
        return names(form) - {p.name for p in self.kernel.params} - {kir.GRID.name}

    def _total(self, number: Poly) -> Product:
        """Return how many values a sum of weighted numbers has."""
        chain = []
        for monomial, factor in number:
            own = [a for a in monomial if self._variables(frozenset({((a,), 1)}))]
            weight = product(frozenset({(tuple(a for a in monomial if a not in own), factor)}))
            if len(own) != 1 or len(own[0]) != 1 or weight is None:
                raise OpenError(f"{self.tensor.name}: the number {tree(number)} is not understood")
            chain.append((weight, self._range(str(own[0][0]))))
        total = chained(chain)
        if total is None:
            raise OpenError(
                f"{self.tensor.name}: the number {tree(number)} skips or repeats values"
            )
        return total

    def _radix(self, groups: Groups) -> list[Digit]:
        """Show that every axis counts through its tiles; return the digits that it takes."""
        used: list[Digit] = []
        many = 1
        axes = zip(self.units, self.sizes, self.tensor.extents, strict=True)
        for axis, (unit, size, extent) in enumerate(axes):
            offsets = {part[axis] for part in groups}
            if offsets != set(range(len(offsets))):
                raise OpenError(f"{self.tensor.name}: parts {sorted(offsets)} of axis {axis}")
            many *= len(offsets)
            chain = [(Product(), Product(len(offsets)))]
            for weight, read in self._terms(self._numbered(unit)):
                chain.append((weight, self._size(read)))
                used.append(read)
            total = chained(chain)
            if total is None:
                raise OpenError(f"{self.tensor.name}: axis {axis} skips or repeats tiles")
            count = value(self.given.whole(total))
            tiles = ceildiv(extent, size)
            if poly(count) != poly(tiles) and not self.known.at_most(extent, count * size):
                raise OpenError(
                    f"{self.tensor.name}: {count} tiles of {size} may not reach {extent}"
                )
        if many != len(groups):
            raise OpenError(
                f"{self.tensor.name}: {len(groups)} of {many} parts of a tile are written"
            )
        return used

    def _terms(self, unit: Poly) -> list[tuple[Product, Digit]]:
        """Read a coordinate as a sum of weighted digits."""
        terms = []
        for monomial, factor in unit:
            own = [a for a in monomial if self._variables(frozenset({((a,), 1)}))]
            weight = product(frozenset({(tuple(a for a in monomial if a not in own), factor)}))
            read = digit(frozenset({((own[0],), 1)})) if len(own) == 1 else None
            if read is None or weight is None:
                raise OpenError(f"{self.tensor.name}: the origin {tree(unit)} is not understood")
            terms.append((weight, read))
        return terms

    def _count(self, used: list[Digit]) -> None:
        """Show that the digits take every value of every number once."""
        digits: dict[Poly, list[tuple[Product, Product]]] = {}
        for read in used:
            digits.setdefault(read.tile, []).append((read.weight, self._size(read)))
        free = [kir.BLOCK.name, *(c.var.name for c in self.places)]
        if DEALT in self.places:
            free = [n for n in free if n not in (kir.BLOCK.name, DEALT.var.name)]
            free.append(NUMBER.name)
        single = {poly(Var(name)) for name in free}
        for number in [n for n in digits if n not in single]:
            if chained(digits[number]) != self._total(number):
                raise OpenError(f"{self.tensor.name}: {tree(number)} is not used up by its axes")
            for name in self._variables(number):
                own = digits.setdefault(poly(Var(name)), [])
                own.append((Product(), self._range(name)))
        for name in free:
            total = self._range(name)
            if chained(digits.get(poly(Var(name)), [])) != total:
                raise OpenError(f"{self.tensor.name}: its origins do not count through {name}")


def chained(parts: Iterable[tuple[Product, Product]]) -> Product | None:
    """Return the product of the sizes of digits (weight, size) that are chained, else None.

    The first weight is 1, each next one is the last times its size.
    """
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


def _truth(condition: Expr) -> Expr:
    """Return 1 where a condition is not 0."""
    if isinstance(condition, int):
        return int(condition != 0)
    if isinstance(condition, Op) and condition.kind in (Kind.LT, Kind.LE, Kind.EQ, Kind.AND):
        return condition
    return eq(eq(condition, 0), 0)
