"""Integer expressions: what indices, slots, parities, trip counts and guards are made of.

An `Expr` is a Python `int`, a `Var`, or an `Op` of two expressions.  All values are integers; a
comparison is 0 or 1.  `//` and `%` are used on non-negative operands with a positive divisor only,
where Python, C++ and z3 agree.

Nothing here evaluates an expression with values for its variables: codegen prints it, the
simulator evaluates it and the prover hands it to z3, each with an evaluator of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class Kind(Enum):
    """Operators, spelled as in C++ (`//` is spelled `/` there)."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    FLOORDIV = "//"
    MOD = "%"
    MIN = "min"
    MAX = "max"
    LT = "<"
    LE = "<="
    EQ = "=="
    AND = "&&"

    __hash__ = object.__hash__
    """Of the member, as `==` is: much faster than of its name."""


class _Arithmetic:
    """Python's operators on expressions; `==` stays equality of trees (use `eq`)."""

    __slots__ = ()

    def __add__(self, other: Expr) -> Expr:
        return fold(Kind.ADD, _expr(self), other)

    def __radd__(self, other: int) -> Expr:
        return fold(Kind.ADD, other, _expr(self))

    def __sub__(self, other: Expr) -> Expr:
        return fold(Kind.SUB, _expr(self), other)

    def __rsub__(self, other: int) -> Expr:
        return fold(Kind.SUB, other, _expr(self))

    def __mul__(self, other: Expr) -> Expr:
        return fold(Kind.MUL, _expr(self), other)

    def __rmul__(self, other: int) -> Expr:
        return fold(Kind.MUL, other, _expr(self))

    def __floordiv__(self, other: Expr) -> Expr:
        return fold(Kind.FLOORDIV, _expr(self), other)

    def __rfloordiv__(self, other: int) -> Expr:
        return fold(Kind.FLOORDIV, other, _expr(self))

    def __mod__(self, other: Expr) -> Expr:
        return fold(Kind.MOD, _expr(self), other)

    def __rmod__(self, other: int) -> Expr:
        return fold(Kind.MOD, other, _expr(self))

    def __lt__(self, other: Expr) -> Expr:
        return fold(Kind.LT, _expr(self), other)

    def __le__(self, other: Expr) -> Expr:
        return fold(Kind.LE, _expr(self), other)

    def __gt__(self, other: Expr) -> Expr:
        return fold(Kind.LT, other, _expr(self))

    def __ge__(self, other: Expr) -> Expr:
        return fold(Kind.LE, other, _expr(self))


@dataclass(frozen=True, slots=True)
class Var(_Arithmetic):
    """A named integer: a loop index, a kernel parameter, or a `Let`."""

    name: str

    def __str__(self) -> str:
        return self.name


class _Hashed(_Arithmetic):
    """A place for the hash of a tree and its variables, which are worked out once."""

    __slots__ = ("_hash", "_variables")
    _hash: int
    _variables: frozenset[Var]


@dataclass(frozen=True, slots=True)
class Op(_Hashed):
    """`kind` applied to two expressions."""

    kind: Kind
    a: Expr
    b: Expr

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            made = hash((self.kind, self.a, self.b))
            object.__setattr__(self, "_hash", made)
            return made

    def __str__(self) -> str:
        if self.kind in (Kind.MIN, Kind.MAX):
            return f"{self.kind.value}({self.a}, {self.b})"
        return f"({self.a} {self.kind.value} {self.b})"


Expr = int | Var | Op


def _expr(value: _Arithmetic) -> Expr:
    assert isinstance(value, Var | Op), "only Var and Op do arithmetic"
    return value


_FOLD: dict[Kind, Callable[[int, int], int]] = {
    Kind.ADD: lambda a, b: a + b,
    Kind.SUB: lambda a, b: a - b,
    Kind.MUL: lambda a, b: a * b,
    Kind.FLOORDIV: lambda a, b: a // b,
    Kind.MOD: lambda a, b: a % b,
    Kind.MIN: min,
    Kind.MAX: max,
    Kind.LT: lambda a, b: int(a < b),
    Kind.LE: lambda a, b: int(a <= b),
    Kind.EQ: lambda a, b: int(a == b),
    Kind.AND: lambda a, b: int(bool(a) and bool(b)),
}

_RIGHT_UNIT = {Kind.ADD: 0, Kind.SUB: 0, Kind.MUL: 1, Kind.FLOORDIV: 1}
_LEFT_UNIT = {Kind.ADD: 0, Kind.MUL: 1}


def fold(kind: Kind, a: Expr, b: Expr) -> Expr:
    """Build `a kind b`, computed at once where both are numbers or one is neutral.

    What divides by 0 has no value, and stays as it is.
    """
    divides = kind in (Kind.FLOORDIV, Kind.MOD)
    if isinstance(a, int) and isinstance(b, int) and not (divides and b == 0):
        return _FOLD[kind](a, b)
    if isinstance(b, int) and _RIGHT_UNIT.get(kind) == b:
        return a
    if isinstance(a, int) and _LEFT_UNIT.get(kind) == a:
        return b
    if kind is Kind.AND and a == 1 and _is_condition(b):
        return b
    if kind is Kind.AND and b == 1 and _is_condition(a):
        return a
    if kind is Kind.MUL and (a == 0 or b == 0):
        return 0
    if kind is Kind.MOD and b == 1:
        return 0
    return _op(kind, a, b)


_op = lru_cache(maxsize=1 << 15, typed=True)(Op)
"""Makes one object of what is built again and again, so that it is compared as such."""


def _is_condition(expr: Expr) -> bool:
    """Tell whether a value is 0 or 1, so that `1 && x` is `x`."""
    return isinstance(expr, Op) and expr.kind in (Kind.LT, Kind.LE, Kind.EQ, Kind.AND)


def ceildiv(a: Expr, b: Expr) -> Expr:
    """Smallest integer not below `a / b`."""
    return fold(Kind.FLOORDIV, fold(Kind.ADD, a, fold(Kind.SUB, b, 1)), b)


def minimum(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two expressions."""
    return fold(Kind.MIN, a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    """Return the larger of two expressions."""
    return fold(Kind.MAX, a, b)


def eq(a: Expr, b: Expr) -> Expr:
    """1 where both are equal, else 0."""
    return fold(Kind.EQ, a, b)


def both(a: Expr, b: Expr) -> Expr:
    """1 where both conditions hold, else 0."""
    return fold(Kind.AND, a, b)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Replace variables by expressions, folding on the way."""
    match expr:
        case int():
            return expr
        case Var():
            return values.get(expr, expr)
        case Op(kind, a, b):
            return fold(kind, substitute(a, values), substitute(b, values))


def variables(expr: Expr) -> frozenset[Var]:
    """All variables that `expr` mentions."""
    match expr:
        case int():
            return frozenset()
        case Var():
            return frozenset({expr})
        case Op(_, a, b):
            try:
                return expr._variables
            except AttributeError:
                made = variables(a) | variables(b)
                object.__setattr__(expr, "_variables", made)
                return made
