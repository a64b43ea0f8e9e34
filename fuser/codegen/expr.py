"""Expressions, literals and conditions in CUDA C++."""

from __future__ import annotations

import math

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

BUILTIN = (kir.BLOCK, kir.GRID, kir.RANK)
"""Variables that CUDA has under the same names; ours have an underscore behind."""


def spell(expr: Expr) -> str:
    """Write an integer expression; `//` and `%` as of unsigned numbers, which they are."""
    match expr:
        case int():
            return str(expr)
        case Var(name):
            return f"{name}_" if expr in BUILTIN else name
        case Op(Kind.MIN | Kind.MAX as kind, a, b):
            return f"math::{kind.value}imum({spell(a)}, {spell(b)})"
        case Op(Kind.FLOORDIV, a, b):
            return f"math::quotient({spell(a)}, {spell(b)})"
        case Op(Kind.MOD, a, b):
            return f"math::modulo({spell(a)}, {spell(b)})"
        case Op(kind, a, b):
            return f"({spell(a)} {kind.value} {spell(b)})"


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
