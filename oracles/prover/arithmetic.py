"""The prover's own reading of integer expressions: functions, sums, cycles, polynomials, digits.

Along a variable a value repeats from a threshold on, with a period (`cycle`).  States of different
iterations can be the same only up to this.  `learn` collects it for all variables of a program from
the expressions that use them.  What an assignment makes of a value is a use of it too: two values
that nothing else tells apart may become two that are (`carry`).

Normal forms are polynomials over atoms (`poly`).  `digit` reads `(t // W) % n` out of nested
divisions and remainders.  The rules used hold for all integers t >= 0 and W, a, b >= 1:

    (t // a) // b = t // (a * b)
    (t % (a * b)) // b = (t // b) % a
    (t % (a * b)) % b = t % b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, inf, lcm

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables

K = Var("k of the prover")
"""Iteration of the one symbolic loop that a thread runs."""
N = Var("n of the prover")
"""The symbolic trip count that all loops of a kernel share."""
Values = Mapping[str, int]
"""Values of variables by name."""
Function = Callable[[Values], int]


class UnsupportedError(Exception):
    """The kernel holds something this judge does not model; the message names it."""


_PYTHON = {
    Kind.ADD: "({} + {})",
    Kind.SUB: "({} - {})",
    Kind.MUL: "({} * {})",
    Kind.FLOORDIV: "({} // {})",
    Kind.MOD: "({} % {})",
    Kind.MIN: "min({}, {})",
    Kind.MAX: "max({}, {})",
    Kind.LT: "int({} < {})",
    Kind.LE: "int({} <= {})",
    Kind.EQ: "int({} == {})",
    Kind.AND: "int(bool({}) and bool({}))",
}


@lru_cache(maxsize=1 << 14)
def function(expr: Expr) -> Function:
    """Return an expression as a function of its variables."""
    if isinstance(expr, int):
        constant = expr
        return lambda v: constant
    made: Function = eval(f"lambda v: {_python(expr)}", {"min": min, "max": max})
    return made


def _python(expr: Expr) -> str:
    match expr:
        case int():
            return f"({expr})"
        case Var(name):
            return f"v[{name!r}]"
        case Op(kind, a, b):
            return _PYTHON[kind].format(_python(a), _python(b))


def linear(expr: Expr, env: Mapping[str, int] | None = None) -> tuple[int, dict[Expr, int]]:
    """Return an expression as a constant and a sum of multiples of what is not known."""
    if env is None and isinstance(expr, Op):
        constant, parts = _linear(expr)
        return constant, dict(parts)
    return _sum_of(expr, env)


@lru_cache(maxsize=1 << 14)
def _linear(expr: Op) -> tuple[int, dict[Expr, int]]:
    return _sum_of(expr, None)


def _sum_of(expr: Expr, env: Mapping[str, int] | None) -> tuple[int, dict[Expr, int]]:
    match expr:
        case int():
            return expr, {}
        case Var(name):
            if env is not None and name in env:
                return env[name], {}
            return 0, {expr: 1}
        case Op(Kind.ADD | Kind.SUB as kind, a, b):
            sign = 1 if kind is Kind.ADD else -1
            left, right = linear(a, env), linear(b, env)
            sums = dict(left[1])
            for atom, times in right[1].items():
                sums[atom] = sums.get(atom, 0) + sign * times
            return left[0] + sign * right[0], {x: n for x, n in sums.items() if n}
        case Op(kind, a, b):
            left, right = linear(a, env), linear(b, env)
            if not left[1] and not right[1]:
                value = fold(kind, left[0], right[0])
                return (value, {}) if isinstance(value, int) else (0, {value: 1})
            if kind is Kind.MUL and not left[1]:
                return left[0] * right[0], {x: n * left[0] for x, n in right[1].items()}
            if kind is Kind.MUL and not right[1]:
                return left[0] * right[0], {x: n * right[0] for x, n in left[1].items()}
            return 0, {expr: 1}


def replace_tree(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Put `new` in place of every subtree equal to `old`."""
    if expr == old:
        return new
    match expr:
        case Op(kind, a, b):
            return Op(kind, replace_tree(a, old, new), replace_tree(b, old, new))
        case _:
            return expr


def reworded(expr: Expr, words: Mapping[Expr, Expr]) -> Expr:
    """Put words in place of the largest parts of an expression that have some."""
    if isinstance(expr, int) or not words:
        return expr
    if expr in words:
        return words[expr]
    if isinstance(expr, Op):
        return fold(expr.kind, reworded(expr.a, words), reworded(expr.b, words))
    return expr


def spread(expr: Expr, counts: frozenset[Var]) -> Expr:
    """Take multiples of counts out of quotients and remainders by numbers, and put sums together.

    What is plain to see is settled; `counts` are variables that are never negative.
    """
    if not isinstance(expr, Op):
        return expr
    kind, a, b = expr.kind, spread(expr.a, counts), spread(expr.b, counts)
    match kind:
        case Kind.FLOORDIV | Kind.MOD if isinstance(b, int) and b > 0:
            constant, parts = linear(a)
            counted = {part: times for part, times in parts.items() if part in counts}
            if any(times % b for times in counted.values()):
                return fold(kind, a, b)
            others = {part: times for part, times in parts.items() if part not in counted}
            inside = fold(kind, _total(constant % b, others), b)
            if kind is Kind.MOD:
                return inside
            return _total(constant // b, {part: n // b for part, n in counted.items()}) + inside
        case Kind.MIN | Kind.MAX | Kind.LT | Kind.LE | Kind.EQ:
            return _settled(kind, a, b, counts)
        case Kind.AND if 0 in (a, b):
            return 0
        case Kind.ADD | Kind.SUB | Kind.MUL:
            return _total(*linear(fold(kind, a, b)))
        case _:
            return fold(kind, a, b)


def _total(constant: int, parts: Mapping[Expr, int]) -> Expr:
    return sum((fold(Kind.MUL, times, part) for part, times in parts.items()), start=0) + constant


def _settled(kind: Kind, a: Expr, b: Expr, counts: frozenset[Var]) -> Expr:
    """Compare two sums, at once where one is never the larger."""
    least, parts = linear(b - a)
    counted = all(part in counts for part in parts)
    rises = counted and all(times > 0 for times in parts.values())
    falls = counted and all(times < 0 for times in parts.values())
    match kind:
        case Kind.MIN | Kind.MAX if (rises and least >= 0) or (falls and least <= 0):
            return a if (rises and least >= 0) == (kind is Kind.MIN) else b
        case Kind.LE if (rises and least >= 0) or (falls and least < 0):
            return int(rises and least >= 0)
        case Kind.LT if (rises and least > 0) or (falls and least <= 0):
            return int(rises and least > 0)
        case Kind.EQ if not parts or (rises and least > 0) or (falls and least < 0):
            return int(not parts and least == 0)
        case _:
            return fold(kind, a, b)


Cycles = dict[str, tuple[int, int]]
"""Threshold and period by variable."""
ROUNDS = 8
"""Assignments in a row through which a use is followed back."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """`f(x + period) = f(x) + rise` for every x >= start; `alone` is whether f is one of x only."""

    start: int = 0
    rise: int = 0
    period: int = 1
    alone: bool = True


def cycle(expr: Expr, var: Var, moving: frozenset[str] = frozenset()) -> Cycle:
    """Return how an expression repeats along a variable, none but those `moving` changing too."""
    match expr:
        case int():
            return Cycle()
        case Var():
            return Cycle(rise=1) if expr == var else Cycle(alone=False)
        case Op(_, left, right):
            return _combined(expr, var, cycle(left, var, moving), cycle(right, var, moving), moving)


def _combined(expr: Op, var: Var, a: Cycle, b: Cycle, moving: frozenset[str]) -> Cycle:
    period = lcm(a.period, b.period)
    up, down = a.rise * (period // a.period), b.rise * (period // b.period)
    start, alone = max(a.start, b.start), a.alone and b.alone
    match expr.kind:
        case Kind.ADD:
            return Cycle(start, up + down, period, alone)
        case Kind.SUB:
            return Cycle(start, up - down, period, alone)
        case Kind.MUL if isinstance(expr.b, int):
            return Cycle(start, up * expr.b, period, alone)
        case Kind.MUL if isinstance(expr.a, int):
            return Cycle(start, down * expr.a, period, alone)
        case Kind.FLOORDIV | Kind.MOD if isinstance(expr.b, int) and expr.b > 0:
            times = expr.b // gcd(expr.b, up)
            rise = up * times // expr.b if expr.kind is Kind.FLOORDIV else 0
            return Cycle(start, rise, period * times, alone)
        case Kind.LT | Kind.LE | Kind.EQ | Kind.MIN | Kind.MAX as kind:
            least = kind in (Kind.MIN, Kind.MAX)
            if up == down:
                return Cycle(start, up if least else 0, period, alone)
            if alone:
                after = _settles(expr, var, up - down, period, start)
                wins = max(up, down) if kind is Kind.MAX else min(up, down)
                return Cycle(after, wins if least else 0, period)
            beside = {v.name for v in variables(expr)} - {var.name}
            if beside and beside <= moving:
                raise UnsupportedError(f"`{expr}` need not repeat along {var}")
            return Cycle(start, 0, period, alone=False)
        case _ if up == 0 and down == 0:
            return Cycle(start, 0, period, alone)
        case _:
            raise UnsupportedError(f"`{expr}` does not repeat along {var}")


def _settles(expr: Op, var: Var, rise: int, period: int, start: int) -> int:
    """Return from which value on the sides of a comparison with numbers keep their order."""
    worst = max(
        abs(linear(expr.a, {var.name: v})[0] - linear(expr.b, {var.name: v})[0])
        for v in range(start, start + period)
    )
    return start + period * (2 + worst // abs(rise))


def period(expr: Expr, var: Var) -> int | None:
    """Return the period of an expression of one variable; None if it does not repeat from 0 on."""
    try:
        how = cycle(expr, var)
    except UnsupportedError:
        return None
    return how.period if how.alone and not (how.start or how.rise) else None


def learn(
    cycles: Cycles, moving: frozenset[str], expr: Expr, ends: Mapping[str, int] | None = None
) -> None:
    """Widen the cycles of the variables that an expression uses.

    Those of loops that end by themselves are distinguished up to there where nothing repeats.
    """
    for var in variables(expr):
        if var.name not in moving:
            continue
        try:
            how = cycle(expr, var, moving)
        except UnsupportedError:
            if ends is None or var.name not in ends:
                raise
            how = Cycle(ends[var.name])
        threshold, period = cycles.get(var.name, (0, 1))
        cycles[var.name] = max(threshold, how.start), lcm(period, how.period)


def carry(cycles: Cycles, moving: frozenset[str], sets: list[tuple[str, Expr]]) -> None:
    """Widen the cycles of variables by what all assignments make of them.

    UnsupportedError if values that are the same to all uses become values that are not.
    """
    for _ in range(ROUNDS):
        before = dict(cycles)
        for name, expr in sets:
            if cycles.get(name, (0, 1)) != (0, 1):
                _carry(cycles, moving, name, expr)
        if cycles == before:
            return
    names = ", ".join(sorted({name for name, _ in sets}))
    raise UnsupportedError(f"what {names} are used for does not settle in {ROUNDS} assignments")


def _carry(cycles: Cycles, moving: frozenset[str], name: str, expr: Expr) -> None:
    threshold, period = cycles[name]
    constant, parts = linear(expr)
    times = parts.pop(Var(name), 0)
    if any(v.name == name for part in parts for v in variables(part)):
        how = cycle(expr, Var(name), moving)
        if how.rise:
            raise UnsupportedError(f"`{name} = {expr}` does not repeat along {name}")
        cycles[name] = max(threshold, how.start), lcm(period, how.period)
    elif threshold and times:
        grows = times > 0 and constant >= 0 and all(n > 0 for n in parts.values())
        if not grows:
            raise UnsupportedError(f"`{name} = {expr}` may fall below what {name} is compared with")
    others = moving - {name}
    learn(cycles, others, Op(Kind.MOD, expr, period))
    if threshold:
        added = substitute(expr, {Var(name): 0}) if times else expr
        learn(cycles, others, Op(Kind.MIN, added, threshold))


Atom = tuple[object, ...]
"""A variable, or an operation that is no polynomial, with its operands in normal form."""
Poly = frozenset[tuple[tuple[Atom, ...], int]]
"""Monomials (sorted atoms) with their coefficients, none of them 0."""


@lru_cache(maxsize=1 << 16)
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
    left, right = constant(a), constant(b)
    if kind in (Kind.FLOORDIV, Kind.MOD) and right is not None and right > 0:
        if right == 1:
            return a if kind is Kind.FLOORDIV else frozenset()
        if left is not None:
            return poly(left // right if kind is Kind.FLOORDIV else left % right)
    return frozenset({(((kind.value, a, b),), 1)})


def _sum(a: Poly, b: Poly, sign: int) -> Poly:
    total = dict(a)
    for monomial, factor in b:
        total[monomial] = total.get(monomial, 0) + sign * factor
    return frozenset([term for term in total.items() if term[1]])


def _product(a: Poly, b: Poly) -> Poly:
    total: dict[tuple[Atom, ...], int] = {}
    for left, f in a:
        for right, g in b:
            both = tuple(sorted(left + right, key=repr_atom)) if left and right else left or right
            total[both] = total.get(both, 0) + f * g
    return frozenset([term for term in total.items() if term[1]])


@lru_cache(maxsize=1 << 14)
def repr_atom(atom: Atom) -> str:
    """Return a text to sort atoms by, the same in every process."""
    return "(" + " ".join(map(_text, atom)) + ")"


def _text(part: object) -> str:
    if isinstance(part, frozenset):
        terms = [f"{f}*" + "*".join(map(repr_atom, m)) for m, f in part]
        return "[" + " ".join(sorted(terms)) + "]"
    return str(part)


def multiples(expr: Expr, names: Collection[str]) -> dict[tuple[Atom, ...], dict[str, int]]:
    """Return a sum as multiples of some variables, and of 1 (by the name "").

    They are by what else each is multiplied with.  UnsupportedError if a variable comes otherwise.
    """
    out: dict[tuple[Atom, ...], dict[str, int]] = {}
    for atoms, n in poly(expr):
        mine = [atom for atom in atoms if atom[0] in names and len(atom) == 1]
        rest = tuple(atom for atom in atoms if atom not in mine)
        if len(mine) > 1 or any(_named(atom) & {*names} for atom in rest):
            raise UnsupportedError(f"`{expr}` is no sum of multiples of {sorted(names)}")
        out.setdefault(rest, {})[str(mine[0][0]) if mine else ""] = n
    return out


def _named(atom: Atom) -> frozenset[str]:
    """Return the variables in an atom."""
    if len(atom) == 1:
        return frozenset(map(str, atom))
    _, *sides = operands(atom)
    return frozenset(n for side in sides for atoms, _ in side for a in atoms for n in _named(a))


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
    terms = dict(form)
    return terms.get((), 0) if terms.keys() <= {()} else None


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
            rest = None if inner.size is None else inner.size.over(by)
            if inner.size is not None and rest is None:
                return None
            if kind == "%":
                return Digit(inner.tile, inner.weight, by)
            return Digit(inner.tile, inner.weight.times(by), rest)
    return Digit(form, Product(), None)


def divided(form: Poly, by: int) -> Poly | None:
    """Divide every coefficient, if `by` divides all of them."""
    if any(factor % by for _, factor in form):
        return None
    return frozenset((monomial, factor // by) for monomial, factor in form)


def natural(form: Poly) -> bool:
    """Whether all coefficients are >= 0, so that the value is for atoms >= 0."""
    inner = (part for m, _ in form for atom in m for part in atom if isinstance(part, frozenset))
    return all(factor >= 0 for _, factor in form) and all(map(natural, inner))


@lru_cache(maxsize=1 << 14)
def tree(form: Poly) -> Expr:
    """Return an expression with this normal form; the same one for equal forms."""
    total: Expr = 0
    for monomial, factor in sorted(form, key=lambda m: [*map(repr_atom, m[0])]):
        term: Expr = 1
        for atom in monomial:
            if len(atom) == 1:
                spelled: Expr = Var(str(atom[0]))
            else:
                kind, a, b = operands(atom)
                spelled = fold(Kind(kind), tree(a), tree(b))
            term = fold(Kind.MUL, spelled, term)
        total = fold(Kind.ADD, total, fold(Kind.MUL, term, factor))
    return total


def mapped(form: Poly, rule: Callable[[Poly], Poly]) -> Poly:
    """Replace every polynomial in it by `rule`, operands before what they are operands of."""
    total: Poly = frozenset()
    for monomial, factor in form:
        term: Poly = frozenset({((), factor)})
        for atom in monomial:
            inner = single(atom)
            if len(atom) > 1:
                kind, a, b = operands(atom)
                inner = _operation(Kind(kind), mapped(a, rule), mapped(b, rule))
            term = _product(term, inner)
        total = _sum(total, term, 1)
    return rule(total)


@lru_cache(maxsize=1 << 14)
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


class Least:
    """How small expressions can be where some conditions hold, every variable being >= 0.

    Sums and products of numbers that are not negative grow with both, a quotient by a number with
    its dividend; a quotient or remainder is at least 0 where its dividend is and its divisor is at
    least 1; what is subtracted is below what it is known to be below.  Of nothing else is anything
    said.
    """

    def __init__(self, conditions: Iterable[Expr]) -> None:
        self._known: dict[Expr, float] = {}
        self._below: dict[Expr, Expr] = {}
        self._conditions: set[Expr] = set()
        for condition in conditions:
            self._learn(condition)

    def _learn(self, condition: Expr) -> None:
        self._conditions.add(condition)
        match condition:
            case Op(Kind.AND, a, b):
                self._learn(a)
                self._learn(b)
            case Op(Kind.LT | Kind.LE as kind, a, b):
                high = fold(Kind.ADD, b, int(kind is Kind.LE))
                self._below.setdefault(a, high)
                self._note(b, self.of(a) + (kind is Kind.LT))
            case Op(Kind.EQ, a, b):
                self._note(a, self.of(b))
                self._note(b, self.of(a))
                self._dealt(a, b)
                self._dealt(b, a)
            case _:
                pass

    def _dealt(self, whole: Expr, other: Expr) -> None:
        """Learn of `a * b` that what is below it is, divided by one, below the other."""
        match whole, other:
            case Op(Kind.MOD, number, by), 0 if self.of(number) >= 1 and self.of(by) >= 1:
                ways = [(by, fold(Kind.FLOORDIV, number, by))]
                self._note(ways[0][1], 1)
            case _, Op(Kind.MUL, a, b) if self.of(a) >= 1 and self.of(b) >= 1:
                number, ways = whole, [(a, b), (b, a)]
            case _:
                return
        for low in [e for e, high in self._below.items() if high == number and self.of(e) >= 0]:
            self._below |= {fold(Kind.FLOORDIV, low, by): many for by, many in ways}

    def _note(self, expr: Expr, least: float) -> None:
        if isinstance(expr, int) or least <= self.of(expr):
            return
        self._known[expr] = least
        match expr:
            case Op(Kind.MUL, a, b) if least >= 1 and self.of(a) >= 0 and self.of(b) >= 0:
                self._note(a, 1)
                self._note(b, 1)
            case Op(Kind.FLOORDIV, a, b) if least >= 1 and self.of(b) >= 1:
                self._note(fold(Kind.SUB, a, b), 0)
            case Op(Kind.ADD | Kind.SUB):
                constant, parts = linear(expr)
                one, *more = [part for part, n in parts.items() if n > 0] or [0]
                rest = least - constant - sum(n * self.of(e) for e, n in parts.items() if n < 0)
                if not more and one != 0 and rest > -inf:
                    self._note(one, -(-rest // parts[one]))
            case _:
                pass

    def of(self, expr: Expr) -> float:
        """Return a number that an expression is not below."""
        match expr:
            case int():
                return expr
            case Var():
                return self._known.get(expr, 0)
            case Op(kind, a, b):
                return max(self._known.get(expr, -inf), self._operation(expr, kind, a, b))

    def _operation(self, expr: Expr, kind: Kind, a: Expr, b: Expr) -> float:
        match kind:
            case Kind.ADD | Kind.SUB:
                return self._sum(*linear(expr))
            case Kind.MUL:
                left, right = self.of(a), self.of(b)
                return left * right if left >= 0 and right >= 0 else -inf
            case Kind.FLOORDIV | Kind.MOD:
                left = self.of(a)
                if left < 0 or self.of(b) < 1:
                    return -inf
                if kind is Kind.MOD:
                    return 0
                return left // b if isinstance(b, int) else int(self.of(fold(Kind.SUB, a, b)) >= 0)
            case Kind.MIN:
                return min(self.of(a), self.of(b))
            case Kind.MAX:
                return max(self.of(a), self.of(b))
            case _:
                return 0

    def _sum(self, total: int, parts: dict[Expr, int]) -> float:
        kept, asked = self._below, [*parts]
        for part in asked:
            if parts.get(part, 0) >= 0:
                continue
            high = self._below.get(part)
            if isinstance(part, Op) and part.kind is Kind.MOD and high is None:
                high = part.b if self._operation(part, part.kind, part.a, part.b) >= 0 else None
            if high is not None:
                # not asked of again on the way, so that this ends
                self._below = {e: h for e, h in self._below.items() if e != part}
                times, (constant, more) = parts.pop(part), linear(high)
                total += times * (constant - 1)
                asked += more
                for one, n in more.items():
                    parts[one] = parts.get(one, 0) + times * n
        least = total + sum(n * self.of(e) if n > 0 else -inf for e, n in parts.items() if n)
        self._below = kept
        return least

    def holds(self, condition: Expr) -> bool:
        """Whether it is seen that a condition holds."""
        match condition:
            case int():
                return condition != 0
            case Op(Kind.AND, a, b):
                return self.holds(a) and self.holds(b)
            case Op(Kind.LE | Kind.LT as kind, a, b) if condition not in self._conditions:
                return self.of(fold(Kind.SUB, b, a)) >= (kind is Kind.LT)
            case _:
                return condition in self._conditions


def parts_of(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all within it."""
    yield expr
    if isinstance(expr, Op):
        yield from parts_of(expr.a)
        yield from parts_of(expr.b)
