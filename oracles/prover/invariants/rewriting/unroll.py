"""A loop whose ifs ask for `k % m`, as a loop with the bodies of m iterations.

With trips = m * t + r, for each r in turn, iteration k = m * j + i is part i of iteration j.  The
last iteration has only its first r parts, by a guard.  A slot that depends on `k % m` is a number
then, and a buffer that is only used by such numbers is as many buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuser.expr import Expr, Kind, Op, Var, substitute
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, replace_tree
from oracles.prover.invariants.rewriting.clusters import Whole

ROUNDS = Var("rounds")
"""How many whole rounds of m iterations there are."""
ROUND = Var("round")
"""Their number."""
MOST = 4
"""Largest m; the bodies grow with it, and the kernels too."""


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
        if isinstance(stmt, kir.IfThenElse) and not _alone((*stmt.then, *stmt.orelse)):
            yield from remainders(stmt.condition)


def _alone(body: tuple[kir.Stmt, ...]) -> bool:
    """Whether statements touch nothing that threads of a CTA share, so that any may be skipped."""
    return all(
        isinstance(s, kir.Compute | kir.Slice | kir.Reduce | kir.Coordinate)
        or (isinstance(s, kir.Load) and isinstance(s.src, kir.Box))
        or (isinstance(s, kir.Store) and isinstance(s.dst, kir.Box))
        for s in body
    )


class _Unrolled:
    """The kernel for one remainder of its trips."""

    def __init__(self, one: Whole, by: int, rest: int) -> None:
        self.one, self.by, self.rest = one, by, rest
        self.lines = dict(one.lines)
        self.made: list[kir.Stmt] = []

    def whole(self) -> Whole:
        """Return the kernel, with the lines of its statements."""
        kernel = self.one.kernel
        body = kir.rewrite(kernel.body, self._loop)
        slots: dict[kir.Buffer, set[Expr]] = {}
        for stmt in kir.walk(body):
            for slot in _slots(stmt):
                slots.setdefault(slot.buffer, set()).add(slot.index)
        numbered = {b for b, seen in slots.items() if all(isinstance(i, int) for i in seen)}
        parted = {b for b in numbered if not slots[b] <= {0}}

        def apart(stmt: kir.Stmt) -> list[kir.Stmt] | None:
            if not any(slot.buffer in parted for slot in _slots(stmt)):
                return None
            return [self._kept(stmt, _moved(stmt, own))]

        def own(slot: kir.Slot) -> kir.Slot:
            return _own(slot) if slot.buffer in parted else slot

        buffers: list[kir.Buffer] = []
        for buffer in kernel.buffers:
            parts = [_part(buffer, at) for at in range(buffer.slots)]
            buffers += parts if buffer in parted else [buffer]
        return Whole(
            replace(kernel, buffers=tuple(buffers), body=kir.rewrite(body, apart)), self.lines
        )

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
                case (
                    kir.Load()
                    | kir.Store()
                    | kir.TmaStore()
                    | kir.CpAsync()
                    | kir.Wgmma()
                    | kir.Compute()
                    | kir.Slice()
                    | kir.Reduce()
                    | kir.Coordinate()
                    | kir.BlockSync()
                    | kir.NamedArrive()
                    | kir.WarpSync()
                    | kir.AsyncCommit()
                    | kir.AsyncAwait()
                    | kir.FenceAsyncProxy()
                    | kir.WgmmaFence()
                    | kir.ThreadFence()
                ):
                    out.append(self._kept(stmt, _moved(stmt, slot)))
                case _:
                    what = f"{type(stmt).__name__} in a loop that asks for k % {self.by}"
                    raise UnsupportedError(what)
        return tuple(out)

    def _kept(self, old: kir.Stmt, new: kir.Stmt) -> kir.Stmt:
        """Give a new statement the line of the old one."""
        self.lines[id(new)] = self.lines[id(old)]
        self.made.append(new)  # else its id might be given to another
        return new


def _slots(stmt: kir.Stmt) -> Iterator[kir.Slot]:
    """Yield the slots of shared buffers that a statement uses."""
    match stmt:
        case (
            kir.Load(_, kir.Slot() as slot)
            | kir.Store(kir.Slot() as slot)
            | kir.TmaLoad(slot)
            | kir.TmaStore(_, slot)
            | kir.TmaReduce(_, slot)
            | kir.CpAsync(slot)
        ):
            yield slot
        case kir.Wgmma(_, a):
            yield from stmt.columns
            if isinstance(a, kir.Slot):
                yield a
        case _:
            pass


def _moved(stmt: kir.Stmt, to: Callable[[kir.Slot], kir.Slot]) -> kir.Stmt:
    """Return a statement of its own, with other slots."""
    match stmt:
        case kir.Load(_, kir.Slot() as slot) | kir.TmaStore(_, slot) | kir.TmaReduce(_, slot):
            return replace(stmt, src=to(slot))
        case kir.Store(kir.Slot() as slot) | kir.TmaLoad(slot) | kir.CpAsync(slot):
            return replace(stmt, dst=to(slot))
        case kir.Wgmma(_, a, b):
            first = to(a) if isinstance(a, kir.Slot) else a
            more = tuple(to(slot).buffer for slot in stmt.columns[1:])
            return replace(stmt, a=first, b=to(b), beside=more)
        case _:
            return replace(stmt)


def _part(buffer: kir.Buffer, at: int) -> kir.Buffer:
    """Return one slot of a buffer as a buffer."""
    return replace(buffer, name=f"{buffer.name}[{at}]", slots=1, offset=buffer.start(at))


def _own(slot: kir.Slot) -> kir.Slot:
    if not isinstance(slot.index, int) or slot.index >= slot.buffer.slots:
        has = f"{slot.buffer.name}, which has {slot.buffer.slots}"
        raise UnsupportedError(f"slot {slot.index} of {has}")
    return kir.Slot(_part(slot.buffer, slot.index), 0)
