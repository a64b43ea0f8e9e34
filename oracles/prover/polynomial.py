"""Normal forms of index expressions: polynomials over atoms, products, digits of a tile number.

`digit` reads `(t // W) % n` out of nested divisions and remainders.  The rules used hold for all
integers t >= 0 and W, a, b >= 1:

    (t // a) // b = t // (a * b)
    (t % (a * b)) // b = (t // b) % a
    (t % (a * b)) % b = t % b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, Var, fold

Atom = tuple[object, ...]
"""A variable, or an operation that is no polynomial, with its operands in normal form."""
Poly = frozenset[tuple[tuple[Atom, ...], int]]
"""Monomials (sorted atoms) with their coefficients, none of them 0."""


def poly(expr: Expr) -> Poly:
    """Return the normal form of an expression."""
    match expr:
        case int():
            return frozenset({((), expr)} if expr else ())
        case Var(name):
            return frozenset({(((name,),), 1)})
        case Op(Kind.ADD, a, b):
            return _sum(poly(a), poly(b), 1)
        case Op(Kind.SUB, a, b):
            return _sum(poly(a), poly(b), -1)
        case Op(Kind.MUL, a, b):
            return _product(poly(a), poly(b))
        case Op(kind, a, b):
            return _operation(kind, poly(a), poly(b))


def _operation(kind: Kind, a: Poly, b: Poly) -> Poly:
    if kind is Kind.FLOORDIV and b == poly(1):
        return a
    if kind is Kind.MOD and b == poly(1):
        return frozenset()
    left, right = constant(a), constant(b)
    if left is not None and right is not None and right > 0:
        if kind is Kind.FLOORDIV:
            return poly(left // right)
        if kind is Kind.MOD:
            return poly(left % right)
    return frozenset({(((kind.value, a, b),), 1)})


def _sum(a: Poly, b: Poly, sign: int) -> Poly:
    total: Counter[tuple[Atom, ...]] = Counter()
    for monomial, factor in a:
        total[monomial] += factor
    for monomial, factor in b:
        total[monomial] += sign * factor
    return frozenset((m, f) for m, f in total.items() if f)


def _product(a: Poly, b: Poly) -> Poly:
    total: Counter[tuple[Atom, ...]] = Counter()
    for left, f in a:
        for right, g in b:
            total[tuple(sorted(left + right, key=repr_atom))] += f * g
    return frozenset((m, f) for m, f in total.items() if f)


def repr_atom(atom: Atom) -> str:
    """Return a text to sort atoms by, the same in every process."""
    return "(" + " ".join(_text(part) for part in atom) + ")"


def _text(part: object) -> str:
    if isinstance(part, frozenset):
        terms = (f"{f}*" + "*".join(repr_atom(a) for a in m) for m, f in part)
        return "[" + " ".join(sorted(terms)) + "]"
    return str(part)


def single(atom: Atom) -> Poly:
    """Return the polynomial that is one atom."""
    return frozenset({((atom,), 1)})


def operands(atom: Atom) -> tuple[str, Poly, Poly]:
    """Return the kind of an operation, and its operands."""
    kind, a, b = atom
    assert isinstance(a, frozenset), "operands are polynomials"
    assert isinstance(b, frozenset), "operands are polynomials"
    return str(kind), a, b


def constant(form: Poly) -> int | None:
    """Return the value of a polynomial without atoms."""
    if not form:
        return 0
    if len(form) == 1:
        ((monomial, factor),) = form
        if not monomial:
            return factor
    return None


@dataclass(frozen=True, slots=True)
class Product:
    """A positive number times factors, each a polynomial of more than a number."""

    number: int = 1
    factors: tuple[tuple[str, Poly], ...] = ()

    def times(self, other: Product) -> Product:
        """Multiply."""
        factors = sorted(self.factors + other.factors, key=lambda f: f[0])
        return Product(self.number * other.number, tuple(factors))

    def over(self, other: Product) -> Product | None:
        """Divide, if it divides whatever the factors are."""
        left = Counter(self.factors)
        left.subtract(Counter(other.factors))
        if self.number % other.number or any(n < 0 for n in left.values()):
            return None
        factors = sorted(left.elements(), key=lambda f: f[0])
        return Product(self.number // other.number, tuple(factors))


def product(form: Poly) -> Product | None:
    """Return a polynomial as a product; None if its number is not positive."""
    if len(form) == 1:
        ((monomial, factor),) = form
        if factor <= 0:
            return None
        atoms = [single(atom) for atom in monomial]
        return Product(factor, tuple(sorted(((_text(a), a) for a in atoms), key=lambda f: f[0])))
    if not form:
        return None
    return Product(1, ((_text(form), form),))


@dataclass(frozen=True, slots=True)
class Digit:
    """`(tile // weight) % size`, without the remainder where `size` is None."""

    tile: Poly
    weight: Product
    size: Product | None


def digit(form: Poly) -> Digit | None:
    """Read a coordinate as a digit of a tile number; None if it is none."""
    if len(form) == 1:
        ((monomial, factor),) = form
        if factor == 1 and len(monomial) == 1 and monomial[0][0] in ("//", "%"):
            kind, a, b = operands(monomial[0])
            inner, by = digit(a), product(b)
            if inner is None or by is None:
                return None
            return _divided(inner, by) if kind == "//" else _remainder(inner, by)
    return Digit(form, Product(), None)


def _divided(inner: Digit, by: Product) -> Digit | None:
    weight = inner.weight.times(by)
    if inner.size is None:
        return Digit(inner.tile, weight, None)
    size = inner.size.over(by)
    return None if size is None else Digit(inner.tile, weight, size)


def _remainder(inner: Digit, by: Product) -> Digit | None:
    if inner.size is None or inner.size.over(by) is not None:
        return Digit(inner.tile, inner.weight, by)
    return None


def divided(form: Poly, by: int) -> Poly | None:
    """Divide every coefficient, if `by` divides all of them."""
    if any(factor % by for _, factor in form):
        return None
    return frozenset((monomial, factor // by) for monomial, factor in form)


def natural(form: Poly) -> bool:
    """Whether all coefficients are >= 0, so that the value is for atoms >= 0."""
    return all(factor >= 0 and all(_natural(atom) for atom in m) for m, factor in form)


def _natural(atom: Atom) -> bool:
    return all(natural(part) for part in atom if isinstance(part, frozenset))


def tree(form: Poly) -> Expr:
    """Return an expression with this normal form; the same one for equal forms."""
    total: Expr = 0
    for monomial, factor in sorted(form, key=lambda m: [repr_atom(a) for a in m[0]]):
        term: Expr = factor
        for atom in monomial:
            term = fold(Kind.MUL, _spelt(atom), term)
        total = fold(Kind.ADD, total, term)
    return total


def _spelt(atom: Atom) -> Expr:
    if len(atom) == 1:
        return Var(str(atom[0]))
    kind, a, b = operands(atom)
    return fold(Kind(kind), tree(a), tree(b))


def mapped(form: Poly, rule: Callable[[Poly], Poly]) -> Poly:
    """Replace every polynomial in it by `rule`, operands before what they are operands of."""
    total: Poly = frozenset()
    for monomial, factor in form:
        term: Poly = frozenset({((), factor)})
        for atom in monomial:
            term = _product(term, _inside(atom, rule))
        total = _sum(total, term, 1)
    return rule(total)


def _inside(atom: Atom, rule: Callable[[Poly], Poly]) -> Poly:
    if len(atom) == 1:
        return single(atom)
    kind, a, b = operands(atom)
    return _operation(Kind(kind), mapped(a, rule), mapped(b, rule))


def names(form: Poly) -> frozenset[str]:
    """Return the names of all variables, those inside operations too."""
    return frozenset(name for monomial, _ in form for atom in monomial for name in names_of(atom))


def names_of(atom: Atom) -> frozenset[str]:
    """Return the names of all variables of an atom."""
    if len(atom) == 1:
        return frozenset({str(atom[0])})
    return frozenset().union(*(names(part) for part in atom if isinstance(part, frozenset)))


def value(number: Product) -> Expr:
    """Return a product as an expression."""
    total: Expr = number.number
    for _, factor in number.factors:
        total = fold(Kind.MUL, tree(factor), total)
    return total
