"""Kernels with other loops than one, as kernels with one loop each.

`levels`: a loop over tiles with a loop over steps inside.  Threads that run the same steps of the
same tiles run one long loop over p = 0, 1, ...; what they do once a tile is another loop, over t.
Each is written as a kernel of its own.

`unrolled`: a loop whose ifs ask for `k % m`, as a loop with the bodies of m iterations.  With
trips = m * t + r, for each r in turn, iteration k = m * j + i is part i of iteration j.  The last
iteration has only its first r parts, by a guard.  A slot that depends on `k % m` is a number then
(`by_number`).

Notes
-----
*Order*.  A kernel from which statements are left out requires less of its events, so what is proved
of the rest holds in the whole kernel; and if each obligation is proved in the one or the other, no
execution has a first violation.  That needs every pair of accesses to be in one of the two kernels:
they may share no buffer, no barrier and no groups, else the answer is unsupported.  What touches
nothing shared (registers, tensors) is in neither.

*Deadlock*.  `Levels.whole` does everything at every step, as if each tile had one.  Its schedule
gives one for any number of steps a tile: move what is done before a tile's steps to its first one,
what is done after them to its last one.  Requirements along a thread stretch with it; so do those
on earlier tiles, for they come at least as many steps apart.  What would not is a wait before the
steps of a tile for what others do after them, or one for a later tile; both are refused.  With no
steps at all the same schedule serves, without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, replace_tree
from oracles.prover.invariants.rewriting.statements import Whole, alone, by_number, with_slots
from oracles.prover.sites import mbarrier, slots

FLAT = Var("steps of all tiles")
"""How many steps a CTA runs, all tiles together."""
AT = Var("step of all tiles")
"""Their number."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The two kernels, and one that stands for both in the question of deadlock.

    `slow` are the mbarriers (and other shared things) of the tiles, by name.
    """

    steps: kir.Kernel
    tiles: kir.Kernel
    whole: kir.Kernel
    slow: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Nest:
    """A loop over tiles: what it does before, in and after its loop over steps."""

    outer: kir.ForLoop
    before: tuple[kir.Stmt, ...]
    inner: kir.ForLoop | None
    after: tuple[kir.Stmt, ...]
    stops: tuple[Expr, Expr]


def levels(kernel: kir.Kernel) -> Levels | None:
    """Return the levels of a kernel; None if no loop of symbolic length stands in another.

    Raises
    ------
    UnsupportedError
        If loops stand in each other in another way than described here.
    """
    nests = list(_nests(kernel.body, {}))
    deep = [nest for nest in nests if nest.inner is not None]
    if not deep:
        return None
    stop, steps = deep[0].stops
    for nest in nests:
        if nest.stops[0] != stop or (nest.inner is not None and nest.stops[1] != steps):
            raise UnsupportedError(f"loops over {nest.outer.index} of different lengths")
    positions = _positions(kernel, deep)
    slow = _apart(nests)
    return Levels(
        _rewritten(kernel, nests, positions, steps=True, tiles=False),
        _rewritten(kernel, nests, positions, steps=False, tiles=True),
        _rewritten(kernel, nests, positions, steps=True, tiles=True),
        slow,
    )


def _nests(body: tuple[kir.Stmt, ...], known: Mapping[Var, Expr]) -> Iterator[_Nest]:
    """Yield the outermost loops of symbolic length."""
    lets = dict(known)
    for stmt in body:
        match stmt:
            case kir.Let(var, value):
                lets[var] = substitute(value, lets)
            case kir.Role(_, _, _, inner) | kir.Elect(_, inner):
                yield from _nests(inner, lets)
            case kir.ForLoop(_, stop) if not isinstance(substitute(stop, lets), int):
                yield _nest(stmt, lets)
            case _:
                if any(isinstance(s, kir.Assign) for s in kir.walk((stmt,))):
                    raise UnsupportedError("a position advances outside the loops")


def _nest(outer: kir.ForLoop, lets: Mapping[Var, Expr]) -> _Nest:
    loops = [s for s in kir.walk(outer.body) if isinstance(s, kir.ForLoop)]
    long = [s for s in loops if not isinstance(substitute(s.stop, lets), int)]
    stop = substitute(outer.stop, lets)
    if not long:
        return _Nest(outer, (), None, outer.body, (stop, 0))
    inner = long[0]
    if len(long) > 1 or not any(s is inner for s in outer.body):
        raise UnsupportedError(f"loops over {inner.index} inside one over {outer.index}")
    steps = substitute(inner.stop, lets)
    defined = {s.var for s in outer.body if isinstance(s, kir.Let)} | {outer.index}
    if variables(steps) & defined:
        raise UnsupportedError(f"the steps over {inner.index} depend on the tile")
    at = next(i for i, s in enumerate(outer.body) if s is inner)
    before, after = outer.body[:at], outer.body[at + 1 :]
    for stmt in kir.walk(before):
        if isinstance(stmt, kir.SYNCS) and not isinstance(stmt, kir.AsyncAwait | kir.WgmmaFence):
            raise UnsupportedError(f"{type(stmt).__name__} before the steps of a tile")
    return _Nest(outer, before, inner, after, (stop, steps))


def _positions(kernel: kir.Kernel, deep: list[_Nest]) -> dict[Var, int]:
    """Return the positions that advance by one a step, with their first values."""
    allowed: dict[int, Var] = {}
    for nest in deep:
        assert nest.inner is not None, "asked of loops with steps"
        tail = list(nest.inner.body)
        while tail and isinstance(tail[-1], kir.Assign):
            stmt = tail.pop()
            assert isinstance(stmt, kir.Assign), "just asked"
            if stmt.value != Op(Kind.ADD, stmt.var, 1) or stmt.var in {
                s.var for s in tail if isinstance(s, kir.Assign)
            }:
                raise UnsupportedError(f"{stmt.var} does not advance by one a step")
            allowed[id(stmt)] = stmt.var
    first: dict[Var, int] = {}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Assign) and id(stmt) not in allowed:
            raise UnsupportedError(f"{stmt.var} advances elsewhere than at the end of a step")
        if isinstance(stmt, kir.Let) and stmt.var in allowed.values():
            start = stmt.value
            if not isinstance(start, int) or first.setdefault(stmt.var, start) != start:
                raise UnsupportedError(f"{stmt.var} starts at {start}")
    if set(first) != set(allowed.values()):
        raise UnsupportedError("a position advances that no let defines")
    for nest in deep:
        lets = [s for s in kir.walk((nest.outer,)) if isinstance(s, kir.Let)]
        if any(s.var in first for s in lets):
            raise UnsupportedError("a position starts anew with each tile")
    return first


def _apart(nests: list[_Nest]) -> frozenset[str]:
    """Return what tiles use; check that steps use other buffers, barriers and groups."""
    steps: set[object] = set()
    tiles: set[object] = set()
    for nest in nests:
        for stmt in kir.walk(nest.inner.body if nest.inner is not None else ()):
            steps |= set(_used(stmt))
        for stmt in kir.walk((*nest.before, *nest.after)):
            tiles |= set(_used(stmt))
            if isinstance(stmt, kir.Wgmma) or stmt == kir.AsyncCommit(kir.AsyncKind.WGMMA):
                raise UnsupportedError("wgmma once a tile")
    both = steps & tiles
    if both:
        names = ", ".join(sorted(map(str, both)))
        raise UnsupportedError(f"steps and tiles share {names}")
    return frozenset(map(str, tiles))


def _used(stmt: kir.Stmt) -> Iterator[object]:
    """Yield what a statement uses that threads share, or that is counted."""
    yield from (slot.buffer.name for slot in slots(stmt))
    if (used := mbarrier(stmt)) is not None:
        yield used.name
    match stmt:
        case kir.BlockSync(number) | kir.NamedArrive(number):
            yield f"barrier {number}"
        case kir.AsyncCommit(kind) | kir.AsyncAwait(kind) if kind is not kir.AsyncKind.WGMMA:
            yield kind
        case kir.TmaStore() | kir.TmaReduce():
            yield kir.AsyncKind.BULK
        case kir.CpAsync():
            yield kir.AsyncKind.CP_ASYNC
        case kir.BlockSerializeWait() | kir.BlockSerializeRelease() | kir.GridSync():
            raise UnsupportedError("a semaphore in a loop over tiles")
        case _:
            pass


def _rewritten(
    kernel: kir.Kernel,
    nests: list[_Nest],
    positions: Mapping[Var, int],
    *,
    steps: bool,
    tiles: bool,
) -> kir.Kernel:
    """Return the kernel with only the statements of these levels.

    A position means nothing but in the steps: where it is used elsewhere, it stays unknown.
    """
    known = {id(nest.outer): nest for nest in nests}

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.Let) and stmt.var in positions:
            return []
        if alone(stmt):
            return []
        if id(stmt) not in known:
            return None
        nest = known[id(stmt)]
        if not steps:
            inner = kir.rewrite((*nest.before, *nest.after), rule)
            return [replace(nest.outer, body=inner)]
        body: tuple[kir.Stmt, ...] = ()
        if nest.inner is not None:
            moves = {s.var for s in nest.inner.body if isinstance(s, kir.Assign)}
            lets = (
                kir.Let(var, AT + first if var in moves else first)
                for var, first in positions.items()
            )
            inside = kir.rewrite(nest.inner.body, rule)
            kept = (s for s in inside if not isinstance(s, kir.Assign))
            body = (*lets, *kept)
        if not tiles:
            return [kir.ForLoop(AT, FLAT, body)] if body else []
        tile = kir.Let(nest.outer.index, AT)
        before, after = kir.rewrite(nest.before, rule), kir.rewrite(nest.after, rule)
        return [kir.ForLoop(AT, FLAT, (tile, *before, *body, *after))]

    return kernel.rewrite(rule)


ROUNDS = Var("rounds")
"""How many whole rounds of m iterations there are."""
ROUND = Var("round")
"""Their number."""
MOST = 4
"""Largest m; the bodies grow with it, and the kernels too."""
_UNROLLED = (
    kir.Load
    | kir.Store
    | kir.TmaStore
    | kir.CpAsync
    | kir.Wgmma
    | kir.Compute
    | kir.Slice
    | kir.Reduce
    | kir.Coordinate
    | kir.BlockSync
    | kir.NamedArrive
    | kir.WarpSync
    | kir.AsyncCommit
    | kir.AsyncAwait
    | kir.FenceAsyncProxy
    | kir.WgmmaFence
    | kir.ThreadFence
)


def unrolled(one: Whole) -> list[Whole]:
    """Return what a kernel is for each remainder of its trips; itself if no if asks for `k % m`.

    Raises
    ------
    UnsupportedError
        If its loops are of different lengths, or do what is not described here.
    """
    loops = list(_loops(one.kernel))
    asked = {m for loop in loops for m in _asked(loop)}
    if not asked:
        return [one]
    (by, *others) = sorted(asked)
    if others or by > MOST or len({loop.stop for loop in loops}) > 1:
        raise UnsupportedError(f"{one.kernel.name}: different things every {sorted(asked)} trips")
    return [_Unrolled(one, by, rest).whole() for rest in range(by)]


def _loops(kernel: kir.Kernel) -> Iterator[kir.ForLoop]:
    for stmt in kernel.walk():
        if isinstance(stmt, kir.ForLoop) and not isinstance(stmt.stop, int):
            yield stmt


def _asked(loop: kir.ForLoop) -> Iterator[int]:
    """Yield every m of which an if in a loop asks for `k % m`."""

    def remainders(expr: Expr) -> Iterator[int]:
        match expr:
            case Op(Kind.MOD, Var() as var, int() as by) if var == loop.index:
                yield by
            case Op(_, a, b):
                yield from remainders(a)
                yield from remainders(b)
            case _:
                pass

    for stmt in kir.walk(loop.body):
        if isinstance(stmt, kir.IfThenElse) and not all(map(alone, (*stmt.then, *stmt.orelse))):
            yield from remainders(stmt.condition)


class _Unrolled:
    """The kernel for one remainder of its trips."""

    def __init__(self, one: Whole, by: int, rest: int) -> None:
        self.one, self.by, self.rest = one, by, rest

    def whole(self) -> Whole:
        """Return the kernel, with the lines of its statements."""
        return by_number(Whole(self.one.kernel.rewrite(self._loop), self.one.lines))

    def _loop(self, stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kir.ForLoop) or isinstance(stmt.stop, int):
            return None
        stop: Expr = ROUNDS + 1 if self.rest else ROUNDS
        body: list[kir.Stmt] = []
        for part in range(self.by):
            inner = self._body(stmt.body, stmt, part)
            late = self.rest and part >= self.rest
            body += [kir.IfThenElse(ROUND < ROUNDS, inner)] if late else inner
        return [kir.ForLoop(ROUND, stop, tuple(body))]

    def _body(
        self, body: tuple[kir.Stmt, ...], loop: kir.ForLoop, part: int
    ) -> tuple[kir.Stmt, ...]:
        def expr(old: Expr) -> Expr:
            plain = replace_tree(old, Op(Kind.MOD, loop.index, self.by), part)
            plain = replace_tree(plain, Op(Kind.FLOORDIV, loop.index, self.by), ROUND)
            plain = replace_tree(plain, loop.stop, ROUNDS * self.by + self.rest)
            return substitute(plain, {loop.index: ROUND * self.by + part})

        def slot(old: kir.Slot) -> kir.Slot:
            return replace(old, index=expr(old.index))

        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.IfThenElse(condition, then, orelse):
                    test = expr(condition)
                    if isinstance(test, int):
                        out += self._body(then if test else orelse, loop, part)
                    else:
                        ways = self._body(then, loop, part), self._body(orelse, loop, part)
                        out.append(kir.IfThenElse(test, *ways))
                case kir.Elect(per, inner):
                    out.append(kir.Elect(per, self._body(inner, loop, part)))
                case _ if isinstance(stmt, _UNROLLED):
                    out.append(self.one.lines.kept(stmt, with_slots(stmt, slot)))
                case _:
                    what = f"{type(stmt).__name__} in a loop that asks for k % {self.by}"
                    raise UnsupportedError(what)
        return tuple(out)
