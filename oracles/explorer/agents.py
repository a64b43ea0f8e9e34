"""Who runs: the agents of a CTA, and integer expressions with numbers for their variables.

An agent is a warp, or, where something elects one of its lanes, that lane and the 31 others: two
lanes that execute the same statements differ in no phase, count or order, for whatever a lane
could be late for, its warp could be late for.  Which *elements* each of them touches is kept apart
(`explore_state.Access.threads`).  No two warps are merged.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel import ir as kir
from oracles.explorer.rules import Defect, NotModelled, Rule
from oracles.explorer.state import Agent

Values = dict[Var, int]


def value(expr: Expr, values: Mapping[Var, int]) -> int:
    """Compute an expression."""
    if isinstance(expr, int):
        return int(expr)
    if isinstance(expr, Var):
        if expr not in values:
            raise NotModelled(f"the variable {expr.name} has no value here")
        return values[expr]
    return _apply(expr, value(expr.a, values), value(expr.b, values))


def _apply(expr: Op, a: int, b: int) -> int:
    match expr.kind:
        case Kind.ADD:
            return a + b
        case Kind.SUB:
            return a - b
        case Kind.MUL:
            return a * b
        case Kind.FLOORDIV | Kind.MOD:
            if b <= 0 or a < 0:
                sign = f"{a} {expr.kind.value} {b} in {expr}"
                raise Defect(Rule.BOUNDS, "bounds", str(expr), f"{sign} leaves the integers >= 0")
            return a // b if expr.kind is Kind.FLOORDIV else a % b
        case Kind.MIN:
            return min(a, b)
        case Kind.MAX:
            return max(a, b)
        case Kind.LT:
            return int(a < b)
        case Kind.LE:
            return int(a <= b)
        case Kind.EQ:
            return int(a == b)
        case Kind.AND:
            return int(bool(a) and bool(b))


def elected(per: kir.Per, warp: int, first: int) -> bool:
    """Tell whether the first lane of `warp` is chosen in a role that begins at warp `first`."""
    match per:
        case kir.Per.ROLE:
            return warp == first
        case kir.Per.WARP:
            return True
        case kir.Per.WARPGROUP:
            return (warp - first) % 4 == 0


def agents(kernel: kir.Kernel, ctas: tuple[int, ...]) -> list[Agent]:
    """Return the agents of some CTAs, without steps yet."""
    out: list[Agent] = []
    for cta, block in enumerate(ctas):
        for warp in range(kernel.threads // 32):
            split = _splits(kernel.body, warp, 0, range(kernel.threads // 32))
            parts = ((0, 1), (1, 31)) if split else ((0, 32),)
            mates = tuple(range(len(out), len(out) + len(parts)))
            for lane, lanes in parts:
                name = f"cta {block} " * (len(ctas) > 1) + f"warp {warp}"
                name += "" if lanes == 32 else " lane 0" if lane == 0 else " other lanes"
                out.append(Agent(len(out), cta, warp, lane, lanes, name, [], mates))
    return out


def _splits(body: tuple[kir.Stmt, ...], warp: int, first: int, warps: range) -> bool:
    for stmt in body:
        match stmt:
            case kir.Elect(per, inner):
                if inner and elected(per, warp, first):
                    return True
            case kir.MBarrierArrive() | kir.CpAsyncMBarrierArrive():
                return True
            case kir.Role(_, start, count, inner):
                if start <= warp < start + count and _splits(inner, warp, start, warps):
                    return True
            case _:
                if any(_splits(inner, warp, first, warps) for inner in kir.bodies(stmt)):
                    return True
    return False
