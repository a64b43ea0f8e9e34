"""Expressions, literals and conditions in CUDA C++."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir

REGISTER = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "float",
    DType.BF16: "float",
    DType.I32: "int",
    DType.I64: "int64",
    DType.BOOL: "bool",
    DType.I8: "int8",
    DType.F8E4M3: "e4m3",
    DType.F8E5M2: "e5m2",
}
"""In what type a register holds an element; 16-bit floats are kept in f32, 8-bit ones as bits."""

NONE: Mapping[Expr, Var] = MappingProxyType({})
"""No reciprocals."""

BUILTIN = (kir.BLOCK, kir.GRID, kir.RANK)
"""Variables that CUDA has under the same names; ours have an underscore behind."""


def spell(expr: Expr, by: Mapping[Expr, Var] = NONE) -> str:
    """Write an integer expression; `//` and `%` as of unsigned numbers, which they are.

    By what has an entry in `by` it is divided by that variable, its reciprocal.
    """
    match expr:
        case Op(Kind.FLOORDIV, a, b) if b in by:
            return f"math::quotient_by({spell(a, by)}, {by[b]})"
        case Op(Kind.MOD, a, b) if b in by:
            return f"math::modulo_by({spell(a, by)}, {spell(b)}, {by[b]})"
        case int():
            return str(expr)
        case Var(name):
            return f"{name}_" if expr in BUILTIN else name
        case Op(Kind.MIN | Kind.MAX as kind, a, b):
            return f"math::{kind.value}imum({spell(a, by)}, {spell(b, by)})"
        case Op(Kind.FLOORDIV, a, b):
            return f"math::quotient({spell(a, by)}, {spell(b, by)})"
        case Op(Kind.MOD, a, b):
            return f"math::modulo({spell(a, by)}, {spell(b, by)})"
        case Op(kind, a, b):
            return f"({spell(a, by)} {kind.value} {spell(b, by)})"


def divisors(kernel: kir.Kernel) -> dict[Expr, Var]:
    """Return the parameters with reciprocals of what a kernel divides numbers of a launch by.

    A division by a number that the compiler does not know takes 20 instructions, each of which
    waits for the one before, and the first load of a CTA waits for it; by a reciprocal three.
    """
    params, found = frozenset(kernel.params), dict[Expr, Var]()
    values = [stmt.value for stmt in kernel.walk() if isinstance(stmt, kir.Let)]
    divided = [by for value in values for by in _divisors(value)]
    divided += [
        by
        for tensor in kernel.tensors
        for cycle in tensor.cycles
        for by in (cycle.each, cycle.period)
        if by is not None
    ]
    for by in divided:
        if not isinstance(by, int) and variables(by) <= params:
            name = by.name if isinstance(by, Var) else len(found)
            found.setdefault(by, Var(f"by_{name}"))
    return found


def _divisors(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Op):
        yield from (*_divisors(expr.a), *_divisors(expr.b))
        if expr.kind in (Kind.FLOORDIV, Kind.MOD):
            yield expr.b


def divisor(expr: Expr, kernel: kir.Kernel) -> int:
    """Return what divides a number in every launch: by its factors, and as tensors are aligned."""
    match expr:
        case int():
            return expr
        case Op(Kind.MUL, a, b):
            return divisor(a, kernel) * divisor(b, kernel)
        case Op(Kind.ADD | Kind.SUB, a, b):
            return math.gcd(divisor(a, kernel), divisor(b, kernel))
        case _:
            ends = (t.aligned for t in kernel.tensors if t.extents[-1:] == (expr,) and not t.ragged)
            return max(ends, default=1)


def reciprocal(divisor: int) -> int:
    """Return by what `math::quotient_by` divides all `x` below 2^31, by 1 to 2^31 - 1.

    The lower 32 bits are `m = 2^(31 + s) // divisor + 1`, those above `s`, the smallest for which
    `2^s >= divisor`; `2 x * m >> 32 + s` is `x // divisor`: `m` is too large by at most 1, which
    adds less than `2^-s <= 1 / divisor` to `x / divisor`, too little to reach the next integer.
    Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
    """
    bits = (divisor - 1).bit_length()
    return bits << 32 | (1 << 31 + bits) // divisor + 1


def map_slot(maps: kir.TensorMaps, index: Expr) -> str:
    """Write the address of one of the tensor maps that this CTA has of its own."""
    return f"{maps.name} + {spell(kir.BLOCK * maps.slots + index)}"


def assigned(kernel: kir.Kernel) -> frozenset[Var]:
    """Return the variables that change after their `Let`."""
    return frozenset(stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Assign))


def fixed_lets(kernel: kir.Kernel) -> dict[Var, Expr]:
    """Return the values of outermost lets that stay what they are."""
    changing = assigned(kernel)
    return {
        stmt.var: stmt.value
        for stmt in kernel.body
        if isinstance(stmt, kir.Let) and not changing & {stmt.var, *variables(stmt.value)}
    }


def condition(expr: Expr, lets: dict[Var, Expr]) -> str:
    """Write a condition."""
    match expr:
        case Op(Kind.LT, a, b):
            return less(a, b, lets)
        case _:
            return spell(expr)


def less(a: Expr, b: Expr, lets: dict[Var, Expr]) -> str:
    """Write `a < b`; where b is ceil(x / y), y unknown, as `a * y < x`, which needs no division.

    An integer division costs about 40 instructions before the first load of a CTA.  The product
    is taken in 64 bits: `a` may run past the last tile by the prefetch distance.
    """
    whole = lets.get(b, b) if isinstance(b, Var) else b
    match whole:
        case Op(Kind.FLOORDIV, Op(Kind.ADD, x, Op(Kind.SUB, y, 1)), z) if y == z:
            return f"int64({spell(a)}) * {spell(y)} < {spell(x)}"
        case _:
            return f"{spell(a)} < {spell(b)}"


def literal(value: float, dtype: DType) -> str:
    """Write a number exactly: floats as hexadecimal, integers wrapped, infinities by name."""
    register = REGISTER[dtype]
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_int:
        bits = 8 * dtype.nbytes
        wrapped = (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        if wrapped == -(1 << (bits - 1)):
            return f"({register})({wrapped + 1}ll - 1)"
        return f"({register}){wrapped}ll"
    if math.isnan(value):
        return f"math::nan<{register}>()"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}math::infinity<{register}>()"
    return f"({register}){float(value).hex()}"
