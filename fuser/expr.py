"""Integer expressions: what indices, slots, parities, trip counts and guards are made of.

An `Expr` is a Python `int`, a `Var`, or an `Op` of two expressions.  All values are integers; a
comparison is 0 or 1.  `//` and `%` are used on non-negative operands with a positive divisor only,
where Python, C++ and z3 agree.

There is one object for each expression in use, so that `==` and `hash` are those of objects; a
copy, or what comes from another process, is that object again.

Nothing here evaluates an expression with values for its variables: codegen prints it, the
simulator evaluates it and the prover hands it to z3, each with an evaluator of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import gcd
from operator import index
from threading import Lock
from typing import cast
from weakref import WeakValueDictionary


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
        return fold(Kind.ADD, cast("Expr", self), other)

    def __radd__(self, other: int) -> Expr:
        return fold(Kind.ADD, other, cast("Expr", self))

    def __sub__(self, other: Expr) -> Expr:
        return fold(Kind.SUB, cast("Expr", self), other)

    def __rsub__(self, other: int) -> Expr:
        return fold(Kind.SUB, other, cast("Expr", self))

    def __mul__(self, other: Expr) -> Expr:
        return fold(Kind.MUL, cast("Expr", self), other)

    def __rmul__(self, other: int) -> Expr:
        return fold(Kind.MUL, other, cast("Expr", self))

    def __floordiv__(self, other: Expr) -> Expr:
        return fold(Kind.FLOORDIV, cast("Expr", self), other)

    def __rfloordiv__(self, other: int) -> Expr:
        return fold(Kind.FLOORDIV, other, cast("Expr", self))

    def __mod__(self, other: Expr) -> Expr:
        return fold(Kind.MOD, cast("Expr", self), other)

    def __rmod__(self, other: int) -> Expr:
        return fold(Kind.MOD, other, cast("Expr", self))

    def __lt__(self, other: Expr) -> Expr:
        return fold(Kind.LT, cast("Expr", self), other)

    def __le__(self, other: Expr) -> Expr:
        return fold(Kind.LE, cast("Expr", self), other)

    def __gt__(self, other: Expr) -> Expr:
        return fold(Kind.LT, other, cast("Expr", self))

    def __ge__(self, other: Expr) -> Expr:
        return fold(Kind.LE, other, cast("Expr", self))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False)
class Var(_Arithmetic):
    """A named integer: a loop index, a kernel parameter, or a `Let`."""

    name: str

    def __new__(cls, name: str) -> Var:
        """Return the variable of this name."""
        found = _VARS.get(name)
        if found is None:
            with _MAKING:
                found = _VARS.get(name)
                if found is None:
                    found = _VARS[name] = object.__new__(cls)
                    object.__setattr__(found, "name", name)
        return found

    def __reduce__(self) -> tuple[type[Var], tuple[str]]:
        """Take a copy, or one from another process, for the variable of this name."""
        return Var, (self.name,)

    def __str__(self) -> str:
        return self.name


class _Known(_Arithmetic):
    """A place for the variables of a tree, which are worked out once."""

    __slots__ = ("_variables",)
    _variables: frozenset[Var]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False)
class Op(_Known):
    """`kind` applied to two expressions."""

    kind: Kind
    a: Expr
    b: Expr

    def __new__(cls, kind: Kind, a: Expr, b: Expr) -> Op:
        """Return the node with these parts."""
        found = _OPS.get((kind, a, b))
        if found is None:
            # 1 and True are one key: the node has the int
            a, b = (x if isinstance(x, Var | Op) else index(x) for x in (a, b))
            with _MAKING:
                found = _OPS.get((kind, a, b))
                if found is None:
                    found = object.__new__(cls)
                    object.__setattr__(found, "kind", kind)
                    object.__setattr__(found, "a", a)
                    object.__setattr__(found, "b", b)
                    object.__setattr__(found, "_variables", _united(a, b))
                    _OPS[kind, a, b] = found
        return found

    def __reduce__(self) -> tuple[type[Op], tuple[Kind, Expr, Expr]]:
        """Take a copy, or one from another process, for the node with these parts."""
        return Op, (self.kind, self.a, self.b)

    def __str__(self) -> str:
        if self.kind in (Kind.MIN, Kind.MAX):
            return f"{self.kind.value}({self.a}, {self.b})"
        return f"({self.a} {self.kind.value} {self.b})"


Expr = int | Var | Op


_MAKING = Lock()
_VARS: WeakValueDictionary[str, Var] = WeakValueDictionary()
_OPS: WeakValueDictionary[tuple[Kind, Expr, Expr], Op] = WeakValueDictionary()
"""What is in use; nothing is made but under the lock, so that there is one of each."""


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
    if isinstance(b, int):
        if isinstance(a, int):
            if b or kind not in (Kind.FLOORDIV, Kind.MOD):
                return _FOLD[kind](a, b)
        elif _RIGHT_UNIT.get(kind) == b or (kind is Kind.AND and b == 1 and _is_condition(a)):
            return a
        elif (kind is Kind.MUL and b == 0) or (kind is Kind.MOD and b == 1):
            return 0
    elif isinstance(a, int):
        if _LEFT_UNIT.get(kind) == a or (kind is Kind.AND and a == 1 and _is_condition(b)):
            return b
        if kind is Kind.MUL and a == 0:
            return 0
    return _op(kind, a, b)


_op = lru_cache(maxsize=1 << 15)(Op)
"""Keeps what is built again and again, and finds it faster."""


def _is_condition(expr: Expr) -> bool:
    """Tell whether a value is 0 or 1, so that `1 && x` is `x`."""
    return isinstance(expr, Op) and expr.kind in (Kind.LT, Kind.LE, Kind.EQ, Kind.AND)


def ceildiv(a: Expr, b: Expr) -> Expr:
    """Smallest integer not below `a / b`."""
    return fold(Kind.FLOORDIV, fold(Kind.ADD, a, fold(Kind.SUB, b, 1)), b)


def quotient(a: Expr, b: int) -> Expr:
    """Return `a // b`, where a is a multiple of a number in lowest terms."""
    if isinstance(a, Op) and a.kind is Kind.MUL and isinstance(a.b, int):
        common = gcd(a.b, b)
        return a.a * (a.b // common) // (b // common)
    return a // b


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
    """Replace variables by expressions, folding where something changes."""
    match expr:
        case int():
            return expr
        case Var():
            return values.get(expr, expr)
        case Op(kind, a, b):
            if values.keys().isdisjoint(expr._variables):
                return expr
            return fold(kind, substitute(a, values), substitute(b, values))


def variables(expr: Expr) -> frozenset[Var]:
    """All variables that `expr` mentions."""
    match expr:
        case int():
            return frozenset()
        case Var():
            return frozenset({expr})
        case Op():
            return expr._variables


def _united(a: Expr, b: Expr) -> frozenset[Var]:
    """Return the variables of two expressions, as the set that one of them has if it has all."""
    mine, other = variables(a), variables(b)
    return mine if other <= mine else other if mine < other else mine | other
