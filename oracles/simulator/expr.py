"""Integer expressions of a kernel as functions of its variables: the simulator's own evaluator."""

from __future__ import annotations

from collections.abc import Callable

from fuser.expr import Expr, Kind, Op, Var

Env = dict[str, int]
Value = Callable[[Env], int]
"""An expression made into a function of its variables."""


class BadExpression(Exception):
    """An expression was evaluated outside its contract (negative dividend, divisor below 1)."""


class Unsettled(Exception):
    """A variable depends on which CTA comes last, so that no program can be laid out ahead."""


def compile_expr(expr: Expr) -> Value:
    """Return a function that evaluates `expr`."""
    match expr:
        case int():
            return lambda env: expr
        case Var(name):
            return _variable(name)
        case Op(kind, a, b):
            return _binary(kind, compile_expr(a), compile_expr(b), expr)


def _variable(name: str) -> Value:
    def look(env: Env) -> int:
        try:
            return env[name]
        except KeyError:
            raise Unsettled(f"`{name}` depends on which CTA comes last") from None

    return look


def _binary(kind: Kind, f: Value, g: Value, expr: Op) -> Value:
    match kind:
        case Kind.ADD:
            return lambda env: f(env) + g(env)
        case Kind.SUB:
            return lambda env: f(env) - g(env)
        case Kind.MUL:
            return lambda env: f(env) * g(env)
        case Kind.FLOORDIV | Kind.MOD:
            return _division(kind, f, g, expr)
        case Kind.MIN:
            return lambda env: min(f(env), g(env))
        case Kind.MAX:
            return lambda env: max(f(env), g(env))
        case Kind.LT:
            return lambda env: int(f(env) < g(env))
        case Kind.LE:
            return lambda env: int(f(env) <= g(env))
        case Kind.EQ:
            return lambda env: int(f(env) == g(env))
        case Kind.AND:
            return lambda env: int(f(env) != 0 and g(env) != 0)


def _division(kind: Kind, f: Value, g: Value, expr: Op) -> Value:
    def divide(env: Env) -> int:
        a, b = f(env), g(env)
        if a < 0 or b < 1:
            raise BadExpression(f"`{expr}` is {a} {kind.value} {b}; C++ and Python differ there")
        return a // b if kind is Kind.FLOORDIV else a % b

    return divide
