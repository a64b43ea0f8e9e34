"""A Kernel laid out in time: the exact statements each kind of thread executes in one CTA.

Trip counts, guards, slots and parities depend on launch parameters and loop indices only, so
the whole program of a thread is known before anything runs; of a `LastArriving`, how far a CTA
that is not the last jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel import ir as kir
from fuser.kernel.text import numbered

Env = dict[str, int]
Value = Callable[[Env], int]
"""An expression made into a function of its variables."""


class BadExpression(Exception):
    """An expression was evaluated outside its contract (negative dividend, divisor below 1)."""


class Unsettled(Exception):
    """A variable depends on which CTA arrives last, so that no program can be laid out ahead."""


@lru_cache(maxsize=1 << 14)
def compile_expr(expr: Expr) -> Value:
    """Return a function that evaluates `expr`; kernels of one case have many in common."""
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
            raise Unsettled(f"`{name}` depends on which CTA arrives last") from None

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


@dataclass(eq=False, slots=True)
class Event:
    """One execution of one statement (its `line`), with its expressions evaluated.

    `trip` are the loop indices, by name.  `index` and `other` are slots of shared buffers; `slot`
    and `parity` those of an mbarrier, or index and turn of a semaphore, or a number that is drawn
    or fetched; `extra` is the rank of the CTA it reaches or a mask of ranks (-1: its own), or
    whether to accumulate, or among how many CTAs a number is drawn.  `origin` and `limit` are of
    the global box (origin also of a Coordinate); `below` its positions below the limit, and `base`
    the flat one of its origin, once bounds and alignment were found right; that is the same for
    every thread.  It stands in the role `team`, and single threads execute it if `elected`.
    `body` is how many events that of a `LastArriving` is, which all other CTAs leave out.
    `map` is which tensor map of the CTA's own, -1 for none; `begin` the element at which that
    begins, or is taken to.  `told` has, of the integer that says where the box lies, the place
    along each axis and the end of that.
    """

    line: int
    stmt: kir.Stmt
    trip: tuple[tuple[str, int], ...]
    index: int
    other: int
    slot: int
    parity: int
    extra: int
    origin: tuple[int, ...]
    limit: tuple[int, ...]
    team: Team
    elected: bool
    below: tuple[int, ...] | None = None
    base: int = 0
    body: int = 0
    map: int = -1
    begin: tuple[int, ...] = ()
    told: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Team:
    """The warps of the innermost role; the whole CTA outside of roles."""

    first: int
    warps: int


@dataclass(eq=False, slots=True)
class Node:
    """A statement with its expressions compiled."""

    line: int
    stmt: kir.Stmt
    value: Value | None = None
    slot: Value | None = None
    parity: Value | None = None
    extra: Value | None = None
    index: Value | None = None
    other: Value | None = None
    origin: tuple[Value, ...] = ()
    limit: tuple[Value, ...] = ()
    map: Value | None = None
    begin: tuple[Value, ...] = ()
    told: tuple[tuple[Value, Value], ...] = ()
    body: tuple[Node, ...] = ()
    orelse: tuple[Node, ...] = ()
    plain: bool = False
    """Whether it is but one event: it decides on no variable, and has no body."""


_STRUCTURE = (
    kir.Let,
    kir.Assign,
    kir.ForLoop,
    kir.Loop,
    kir.Leave,
    kir.Fetch,
    kir.Draw,
    kir.IfThenElse,
    kir.Role,
    kir.Elect,
    kir.LastArriving,
)
"""Statements of which the way through a kernel is made."""


def compile_kernel(kernel: kir.Kernel) -> tuple[Node, ...]:
    """Compile every expression of a kernel once."""
    lines = {id(stmt): line for line, stmt in numbered(kernel)}
    return tuple(_node(stmt, lines) for stmt in kernel.body)


def _node(stmt: kir.Stmt, lines: Mapping[int, int]) -> Node:
    node = Node(lines[id(stmt)], stmt, plain=not isinstance(stmt, _STRUCTURE))
    match stmt:
        case kir.Let(_, value) | kir.Assign(_, value) | kir.ForLoop(_, value):
            node.value = compile_expr(value)
        case kir.IfThenElse(value) | kir.Leave(_, value):
            node.value = compile_expr(value)
        case kir.Draw(slot) | kir.Fetch(_, slot):
            _references(node, slot)
        case kir.MBarrierArrive(_, slot, _, cta):
            node.slot, node.extra = compile_expr(slot), compile_expr(-1 if cta is None else cta)
        case kir.MBarrierArriveExpectTx(_, slot, many) | kir.MBarrierExpectTx(_, slot, many):
            node.slot, node.extra = compile_expr(slot), compile_expr(many)
        case kir.CpAsyncMBarrierArrive(_, slot):
            node.slot = compile_expr(slot)
        case (
            kir.MBarrierWaitParity(_, slot, parity)
            | kir.BlockSerializeWait(_, slot, parity)
            | kir.BlockSerializeRelease(_, slot, parity)
            | kir.GridSync(_, slot, parity)
            | kir.LastArriving(_, slot, parity)
        ):
            node.slot, node.parity = compile_expr(slot), compile_expr(parity)
        case kir.TmaLoad(dst, src, _, slot, multicast):
            node.slot = compile_expr(slot)
            _references(node, dst, src)
            _through(node, stmt.through)
            if multicast is not None:
                node.extra = compile_expr(multicast)
            elif node.extra is not None and dst.cta is not None:
                node.extra = _bit(node.extra)
            else:
                node.extra = None
        case kir.TmaStore(dst, src, through) | kir.TmaReduce(dst, src, through):
            _references(node, dst, src)
            _through(node, through)
        case kir.TensorMapReplace(dst, limit):
            _through(node, dst)
            node.limit = tuple(map(compile_expr, limit))
        case kir.TensorMapAcquire(_, index):
            node.map = compile_expr(index)
        case kir.Copy(dst, src) | kir.CpAsync(dst, src) | kir.QueueCopy(dst, src):
            _references(node, dst, src)
        case kir.StAsync(dst, _, _, slot):
            node.slot = compile_expr(slot)
            _references(node, dst)
        case kir.Load(_, place) | kir.Store(place):
            _references(node, place)
            if isinstance(stmt, kir.Load) and stmt.limit is not None:
                node.limit = tuple(map(compile_expr, stmt.limit))
        case kir.AtomicAdd(place):
            _references(node, place)
        case kir.Wgmma(_, a, b, accumulate):
            if isinstance(a, kir.Slot):
                node.index = compile_expr(a.index)
            node.other, node.extra = compile_expr(b.index), compile_expr(accumulate)
        case kir.Coordinate(_, _, origin):
            node.origin = (compile_expr(origin),)
        case _:
            pass  # the simulator's list of actions names every node; these have no expressions
    inner = [tuple(_node(s, lines) for s in body) for body in kir.bodies(stmt)]
    node.body = inner[0] if inner else ()
    node.orelse = inner[1] if len(inner) > 1 else ()
    return node


def _bit(rank: Value) -> Value:
    return lambda env: 1 << rank(env)


def _references(node: Node, *places: kir.Slot | kir.Box) -> None:
    for place in places:
        match place:
            case kir.Slot(_, index, cta):
                node.index = compile_expr(index)
                node.extra = compile_expr(-1 if cta is None else cta)
            case kir.Box(_, origin, _, limit, index):
                node.origin = tuple(compile_expr(e) for e in origin)
                node.limit = tuple(compile_expr(e) for e in limit)
                if index is not None:
                    ends = zip(index.src.origin, index.src.limit, strict=True)
                    node.told = tuple((compile_expr(o), compile_expr(end)) for o, end in ends)


def _through(node: Node, ref: kir.MapSlot | None) -> None:
    if ref is not None:
        node.map, node.begin = compile_expr(ref.index), tuple(map(compile_expr, ref.origin))


@dataclass(frozen=True, slots=True)
class Position:
    """Which of the modelled threads: enough to know what it executes.

    Lines of the role statements whose warps hold it (`roles`), of those of which it is in the first
    warp (`heads`; 0 stands for the whole CTA), or in the first warp of a warpgroup (`groups`); and
    whether it is the first lane of its warp.
    """

    roles: frozenset[int]
    heads: frozenset[int]
    groups: frozenset[int]
    lane0: bool


WARPS_OF_GROUP = kir.WARPGROUP // kir.WARP


def role_nodes(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the roles of a kernel, nested ones too."""
    return tuple(node for node in _every(nodes) if isinstance(node.stmt, kir.Role))


def position(roles_of: tuple[Node, ...], warp: int, *, lane0: bool) -> Position:
    """Return what decides the program of a lane of this warp, among these roles."""
    first_of_four = warp % WARPS_OF_GROUP == 0
    roles, heads, groups = set(), {0} if warp == 0 else set(), {0} if first_of_four else set()
    for node in roles_of:
        match node.stmt:
            case kir.Role(_, first, warps):
                if first <= warp < first + warps:
                    roles.add(node.line)
                if first == warp:
                    heads.add(node.line)
                if first == warp or first_of_four:
                    groups.add(node.line)
            case _:
                pass
    return Position(frozenset(roles), frozenset(heads), frozenset(groups), lane0)


def _every(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _every(node.body)
        yield from _every(node.orelse)


Programs = Mapping[Position, list[Event]]
"""All that threads execute, by their position."""


def unroll(
    nodes: tuple[Node, ...], env: Mapping[str, int], positions: Iterable[Position], warps: int
) -> Programs:
    """Return all that the threads at some positions of a CTA execute, in program order.

    What several of them execute is one event of all.
    """
    out: Programs = {position: [] for position in positions}
    for together in [out.keys()] if _alike(nodes) else [{position} for position in out]:
        here = tuple((position, out[position]) for position in together)
        _Walk(dict(env)).body(nodes, (), Team(0, warps), 0, here, elected=False)
    return out


def _alike(nodes: tuple[Node, ...]) -> bool:
    """Tell whether variables are the same for all threads of a CTA, whichever they execute.

    Not those to which only some of them assign, nor the numbers that only some draw or fetch.
    """
    some = (node for node in _every(nodes) if isinstance(node.stmt, kir.Role | kir.Elect))
    moves = kir.Assign | kir.Draw | kir.Fetch | kir.Loop
    return not any(isinstance(below.stmt, moves) for node in some for below in _every(node.body))


Here = tuple[tuple[Position, list[Event]], ...]
"""Positions of threads that go on together, with what they execute so far."""


@dataclass(slots=True)
class _Walk:
    """The way of some threads through the kernel; `env` is changed on the way."""

    env: Env
    drawn: int = 0
    fetched: int = 0

    def body(
        self,
        nodes: tuple[Node, ...],
        trip: tuple[tuple[str, int], ...],
        team: Team,
        role: int,
        here: Here,
        *,
        elected: bool,
    ) -> bool:
        """Execute a body; tell whether the loop around it was left."""
        env, outer, left = self.env, dict[str, int | None](), False
        for node in nodes:
            if node.plain:
                event = _event(node, env, trip, team, elected=elected)
                for _, out in here:
                    out.append(event)
                continue
            match node.stmt:
                case kir.Let(var):
                    outer.setdefault(var.name, env.get(var.name))
                    env[var.name] = _of(node.value, env)
                case kir.Assign(var):
                    env[var.name] = _of(node.value, env)
                case kir.ForLoop(index):
                    shadowed = env.get(index.name)
                    for i in range(_of(node.value, env)):
                        env[index.name] = i
                        now = (*trip, (index.name, i))
                        self.body(node.body, now, team, role, here, elected=elected)
                    _restore(env, index.name, shadowed)
                case kir.Loop(index):
                    shadowed, i = env.get(index.name), 0
                    if not any(isinstance(below.stmt, kir.Leave) for below in node.body):
                        raise BadExpression(f"line {node.line}: nothing ends this loop")
                    env[index.name] = 0
                    while not self.body(
                        node.body, (*trip, (index.name, i)), team, role, here, elected=elected
                    ):
                        i += 1
                        env[index.name] = i
                    _restore(env, index.name, shadowed)
                case kir.Leave(var):
                    if env[var.name] >= _of(node.value, env):
                        left = True
                        break
                case kir.Fetch(var):
                    outer.setdefault(var.name, env.get(var.name))
                    env[var.name] = number = drawn_number(env, self.fetched)
                    self.fetched += 1
                    self._numbered(node, number, trip, team, here, elected=elected)
                case kir.Draw():
                    number = drawn_number(env, self.drawn)
                    self.drawn += 1
                    self._numbered(node, number, trip, team, here, elected=elected)
                case kir.IfThenElse():
                    branch = node.body if _of(node.value, env) else node.orelse
                    self.body(branch, trip, team, role, here, elected=elected)
                case kir.Role(_, first, warps):
                    own = tuple(one for one in here if node.line in one[0].roles)
                    if own:
                        inside = Team(first, warps)
                        self.body(node.body, trip, inside, node.line, own, elected=elected)
                case kir.Elect(per):
                    own = tuple(one for one in here if _elected(one[0], per, role))
                    if own:
                        self.body(node.body, trip, team, role, own, elected=True)
                case kir.LastArriving():
                    # one for each: its body may have another number of events
                    events = [_event(node, env, trip, team, elected=elected) for _ in here]
                    for (_, out), event in zip(here, events, strict=True):
                        out.append(event)
                        event.body = -len(out)
                    self.body(node.body, trip, team, role, here, elected=elected)
                    for (_, out), event in zip(here, events, strict=True):
                        event.body += len(out)
                    for name in _carried_out(node) if events[0].parity != 1 else ():
                        env.pop(name, None)  # one CTA alone is always the last
                case _:
                    raise AssertionError("what is no structure is plain")
        for name, value in outer.items():
            _restore(env, name, value)
        return left

    def _numbered(
        self, node: Node, number: int, trip: tuple[tuple[str, int], ...], team: Team, here: Here,
        *, elected: bool,
    ) -> None:  # fmt: skip
        event = _event(node, self.env, trip, team, elected=elected)
        event.parity, event.extra = number, self.env[kir.GRID.name]
        for _, out in here:
            out.append(event)


def _elected(where: Position, per: kir.Per, role: int) -> bool:
    if not where.lane0:
        return False
    match per:
        case kir.Per.ROLE:
            return role in where.heads
        case kir.Per.WARPGROUP:
            return role in where.groups
        case kir.Per.WARP:
            return True


def drawn_number(env: Mapping[str, int], n: int) -> int:
    """Return the n-th number that a CTA draws.

    The last CTA is taken to be twice as fast as each other one: any way to deal numbers out is an
    execution in which each is drawn once and those of a CTA rise.
    """
    block, grid = env[kir.BLOCK.name], env[kir.GRID.name]
    if block < grid - 1:
        return n * (grid + 1) + block
    return n // 2 * (grid + 1) + block + n % 2


def _carried_out(node: Node) -> set[str]:
    """Return the variables of bodies around it to which the body of a statement assigns."""
    inside = [below.stmt for below in _every(node.body)]
    own = {stmt.var.name for stmt in inside if isinstance(stmt, kir.Let)}
    return {stmt.var.name for stmt in inside if isinstance(stmt, kir.Assign)} - own


def _restore(env: Env, name: str, value: int | None) -> None:
    if value is None:
        env.pop(name, None)
    else:
        env[name] = value


def _of(value: Value | None, env: Env) -> int:
    return 0 if value is None else value(env)


def _event(
    node: Node, env: Env, trip: tuple[tuple[str, int], ...], team: Team, *, elected: bool
) -> Event:
    # spelled out: half of the statements have no expression, and there are thousands of events
    index, other, slot, parity = node.index, node.other, node.slot, node.parity
    extra, mapped = node.extra, node.map
    return Event(
        node.line,
        node.stmt,
        trip,
        0 if index is None else index(env),
        0 if other is None else other(env),
        0 if slot is None else slot(env),
        0 if parity is None else parity(env),
        -1 if extra is None else extra(env),
        tuple([value(env) for value in node.origin]) if node.origin else (),
        tuple([value(env) for value in node.limit]) if node.limit else (),
        team,
        elected,
        map=-1 if mapped is None else mapped(env),
        begin=tuple([value(env) for value in node.begin]) if node.begin else (),
        told=tuple([(at(env), end(env)) for at, end in node.told]) if node.told else (),
    )
