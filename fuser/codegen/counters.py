"""Variables that count the turns of a ring, whose slot is kept beside them instead of divided for.

`math::Counter<S>` is such an `int`: its quotient and remainder by `S` are what it keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel import ir as kir


def declared(var: Var, value: str, slots: int) -> str:
    """Write the declaration of a variable that changes; `slots` are those of `ring_of`."""
    return f"math::Counter<{slots}> {var}({value})" if slots else f"int {var} = {value}"


def ring_of(var: Var, body: Iterable[kir.Stmt]) -> int:
    """Return the slots of the ring that a variable goes round in a body; 0 if it is none.

    Nor is it one whose slots are a power of two, for these are a part of the number's bits.
    """
    rings = Counter(
        slots
        for stmt in kir.walk((*body,))
        for expr in kir.expressions(stmt)
        for slots in _remainders(expr, var)
        if slots & (slots - 1)
    )
    return max(rings, key=rings.__getitem__, default=0)


def _remainders(expr: Expr, var: Var) -> Iterator[int]:
    """Yield by what the remainders of a variable are taken, or of one a little larger."""
    match expr:
        case Op(Kind.MOD, Var() as of, int() as slots) if of == var:
            yield slots
        case Op(Kind.MOD, Op(Kind.ADD, Var() as of, int()), int() as slots) if of == var:
            yield slots
        case Op(_, a, b):
            yield from (*_remainders(a, var), *_remainders(b, var))
        case _:
            pass
