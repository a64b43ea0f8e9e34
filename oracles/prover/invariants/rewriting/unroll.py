"""A loop whose ifs ask for `k % m`, as a loop with the bodies of m iterations.

With trips = m * t + r, for each r in turn, iteration k = m * j + i is part i of iteration j.  The
last iteration has only its first r parts, by a guard.  A slot that depends on `k % m` is a number
then (`by_number`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.expr import Expr, Kind, Op, Var, substitute
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, replace_tree
from oracles.prover.invariants.rewriting.statements import Whole, alone, by_number, with_slots

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
