"""A Kernel laid out in time: the exact statements each kind of thread executes in one CTA.

Trip counts, guards, slots and parities depend on launch parameters and loop indices only, so
the whole program of a thread is known before anything runs.  The simulator's own evaluator of
expressions is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel_text import numbered

Env = dict[str, int]
Value = Callable[[Env], int]
"""An expression made into a function of its variables."""


class BadExpression(Exception):
    """An expression was evaluated outside its contract (negative dividend, divisor below 1)."""


def compile_expr(expr: Expr) -> Value:
    """Return a function that evaluates `expr`."""
    match expr:
        case int():
            return lambda env: expr
        case Var(name):
            return lambda env: env[name]
        case Op(kind, a, b):
            return _binary(kind, compile_expr(a), compile_expr(b), expr)


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


@dataclass(eq=False, slots=True)
class Event:
    """One execution of one statement, with its expressions evaluated.

    Parameters
    ----------
    line : int
        Line of the statement in the kernel's text.
    trip : tuple of (name, value)
        The loop indices at the time.
    index : int
        Slot of the shared buffer.
    slot, parity : int
        Slot of the mbarrier and the parity waited for.
    origin, limit : tuple of int
        Of the global box (origin also of a Coordinate).
    first_warp : int
        First warp of the role the statement stands in; its layouts count threads from there.
    below : tuple of int or None
        Positions of the box below the limit, once bounds and alignment were found right; that
        is the same for every thread.
    base : int
        Flat position of the box's origin, set with `below`.
    """

    line: int
    stmt: kir.Stmt
    trip: tuple[tuple[str, int], ...]
    index: int
    slot: int
    parity: int
    origin: tuple[int, ...]
    limit: tuple[int, ...]
    first_warp: int
    below: tuple[int, ...] | None = None
    base: int = 0


@dataclass(eq=False, slots=True)
class Node:
    """A statement with its expressions compiled."""

    line: int
    stmt: kir.Stmt
    value: Value | None = None
    slot: Value | None = None
    parity: Value | None = None
    index: Value | None = None
    origin: tuple[Value, ...] = ()
    limit: tuple[Value, ...] = ()
    body: tuple[Node, ...] = ()
    orelse: tuple[Node, ...] = ()


def compile_kernel(kernel: kir.Kernel) -> tuple[Node, ...]:
    """Compile every expression of a kernel once."""
    lines = {id(stmt): line for line, stmt in numbered(kernel)}
    return tuple(_node(stmt, lines) for stmt in kernel.body)


def _node(stmt: kir.Stmt, lines: Mapping[int, int]) -> Node:
    node = Node(lines[id(stmt)], stmt)
    match stmt:
        case kir.Let(_, value) | kir.ForLoop(_, value) | kir.IfThenElse(value):
            node.value = compile_expr(value)
        case (
            kir.MBarrierArrive(_, slot)
            | kir.MBarrierArriveExpectTx(_, slot)
            | kir.CpAsyncMBarrierArrive(_, slot)
        ):
            node.slot = compile_expr(slot)
        case kir.MBarrierWaitParity(_, slot, parity):
            node.slot, node.parity = compile_expr(slot), compile_expr(parity)
        case kir.TmaLoad(dst, src, _, slot):
            node.slot = compile_expr(slot)
            _references(node, dst, src)
        case kir.TmaStore(dst, src) | kir.Copy(dst, src):
            _references(node, dst, src)
        case kir.Load(_, place) | kir.Store(place):
            _references(node, place)
        case kir.Coordinate(_, _, origin):
            node.origin = (compile_expr(origin),)
        case _:
            pass  # the simulator's list of actions names every node; these have no expressions
    inner = [tuple(_node(s, lines) for s in body) for body in kir.bodies(stmt)]
    node.body = inner[0] if inner else ()
    node.orelse = inner[1] if len(inner) > 1 else ()
    return node


def _references(node: Node, *places: kir.Slot | kir.Box) -> None:
    for place in places:
        match place:
            case kir.Slot(_, index):
                node.index = compile_expr(index)
            case kir.Box(_, origin, _, limit):
                node.origin = tuple(compile_expr(e) for e in origin)
                node.limit = tuple(compile_expr(e) for e in limit)


@dataclass(frozen=True, slots=True)
class Position:
    """Which of the modelled threads: enough to know what it executes.

    Parameters
    ----------
    roles : frozenset of int
        Lines of the role statements whose warps hold it.
    heads : frozenset of int
        Lines of those of which it is in the first warp; 0 stands for the whole CTA.
    lane0 : bool
        Whether it is the first lane of its warp.
    """

    roles: frozenset[int]
    heads: frozenset[int]
    lane0: bool


def position(nodes: tuple[Node, ...], warp: int, *, lane0: bool) -> Position:
    """Return what decides the program of a lane of this warp."""
    roles, heads = set(), {0} if warp == 0 else set()
    for node in nodes:
        match node.stmt:
            case kir.Role(_, first, warps):
                if first <= warp < first + warps:
                    roles.add(node.line)
                if first == warp:
                    heads.add(node.line)
            case _:
                pass
    return Position(frozenset(roles), frozenset(heads), lane0)


def unroll(nodes: tuple[Node, ...], env: Mapping[str, int], where: Position) -> list[Event]:
    """Return all that a thread at this position executes, in program order."""
    out: list[Event] = []
    _unroll(nodes, dict(env), (), where, 0, 0 in where.heads, out)
    return out


def _unroll(
    nodes: tuple[Node, ...],
    env: Env,
    trip: tuple[tuple[str, int], ...],
    where: Position,
    first_warp: int,
    elected: bool,
    out: list[Event],
) -> None:
    env = dict(env)
    for node in nodes:
        match node.stmt:
            case kir.Let(var):
                env[var.name] = _of(node.value, env)
            case kir.ForLoop(index):
                for i in range(_of(node.value, env)):
                    env[index.name] = i
                    here = (*trip, (index.name, i))
                    _unroll(node.body, env, here, where, first_warp, elected, out)
                env.pop(index.name, None)
            case kir.IfThenElse():
                branch = node.body if _of(node.value, env) else node.orelse
                _unroll(branch, env, trip, where, first_warp, elected, out)
            case kir.Role(_, role_warp):
                if node.line in where.roles:
                    head = node.line in where.heads
                    _unroll(node.body, env, trip, where, role_warp, head, out)
            case kir.Elect(per):
                if where.lane0 and (elected or per is kir.Per.WARP):
                    _unroll(node.body, env, trip, where, first_warp, elected, out)
            case _:
                out.append(_event(node, env, trip, first_warp))


def _of(value: Value | None, env: Env) -> int:
    return 0 if value is None else value(env)


def _event(node: Node, env: Env, trip: tuple[tuple[str, int], ...], first_warp: int) -> Event:
    return Event(
        node.line,
        node.stmt,
        trip,
        _of(node.index, env),
        _of(node.slot, env),
        _of(node.parity, env),
        tuple([value(env) for value in node.origin]),
        tuple([value(env) for value in node.limit]),
        first_warp,
    )
