"""Registers of wgmma: untouched while a group is in flight, fenced after any other access.

Every thread has its own registers, so one thread at a time is enough: the text of its role is
followed with what *may* be the case at each place.  Both branches of an `if` are taken, unless its
test is settled in the first iteration; a loop is followed once with its first index and then until
nothing new may be the case, zero times included.  So the answer is one for every trip count.  What
is refused here may be right for reasons not seen here, such as two ifs that always agree.

Source: PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from oracles.prover.invariants.rules import Obligation, Without

DONE = 1 << 30
"""Groups committed since an access whose group is no longer in flight."""
Shape = tuple[int, ...]


class RegisterError(Exception):
    """A register is used while wgmma may use it too, or without a fence."""

    def __init__(self, kind: str, stmt: kir.Stmt, says: str) -> None:
        super().__init__(says)
        self.kind, self.stmt, self.says = kind, stmt, says


@dataclass(frozen=True, slots=True)
class Held:
    """What may be so of the registers of one fragment.

    `written` and `read` count the groups committed since the latest wgmma that accumulates into
    them or reads them, `DONE` if none is in flight; 0 is the open group.  `dirty` is whether no
    fence stands since another access, `shape` that of the wgmma in flight.
    """

    written: int = DONE
    read: int = DONE
    dirty: bool = True
    shape: Shape = ()


State = Mapping[str, Held]
"""By name of the fragment, of those that any wgmma uses."""


def check(kernel: kir.Kernel, without: Without = frozenset()) -> int:
    """Check every role of a kernel; return how many accesses were checked.

    Raises
    ------
    RegisterError
        For the first access that may go wrong, or if a group may be in flight at the end.
    """
    if not any(isinstance(stmt, kir.Wgmma) for stmt in kernel.walk()):
        return 0
    spans = {(s.first_warp, s.warps): None for s in kernel.body if isinstance(s, kir.Role)} or {
        (0, kernel.threads // kir.WARP): None
    }
    operands = [s for s in kernel.walk() if isinstance(s, kir.Wgmma)]
    names = {s.acc.name for s in operands}
    names |= {s.a.name for s in operands if isinstance(s.a, kir.Fragment)}
    checked = 0
    for span in spans:
        reader = _Reader(span, without)
        end = reader.body(kernel.body, dict.fromkeys(sorted(names), Held()))
        reader.ended(end, kernel.body[-1])
        checked += reader.checked
    return checked


class _Reader:
    """Follow the text of one role."""

    def __init__(self, span: tuple[int, int], without: Without) -> None:
        self.span, self.without = span, without
        self.known: Mapping[Var, Expr] = {}
        self.checked = 0

    def body(self, body: tuple[kir.Stmt, ...], state: State) -> State:
        for stmt in body:
            state = self._statement(stmt, state)
        return state

    def _statement(self, stmt: kir.Stmt, state: State) -> State:
        match stmt:
            case kir.Role(_, first, warps, inner):
                return self.body(inner, state) if (first, warps) == self.span else state
            case kir.Elect(_, inner):
                return self._joined(state, self.body(inner, state))
            case kir.IfThenElse(test, then, orelse):
                held = substitute(test, self.known)
                if isinstance(held, int):
                    return self.body(then if held else orelse, state)
                return self._joined(self.body(then, state), self.body(orelse, state))
            case kir.ForLoop(index, _, inner):
                outside = self.known
                self.known = {**outside, index: 0}
                known = self.body(inner, state)
                self.known = {var: value for var, value in outside.items() if var != index}
                while (more := self._joined(known, self.body(inner, known))) != known:
                    known = more
                self.known = outside
                return self._joined(state, known)
            case kir.WgmmaFence():
                return {name: replace(held, dirty=False) for name, held in state.items()}
            case kir.Wgmma():
                return self._wgmma(stmt, state)
            case kir.AsyncCommit(kir.AsyncKind.WGMMA):
                return {name: _aged(held) for name, held in state.items()}
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, keep):
                return {name: _finished(held, keep) for name, held in state.items()}
            case _:
                for fragment, writes in touched(stmt):
                    state = self._touched(stmt, fragment, state, writes=writes)
                return state

    def _joined(self, a: State, b: State) -> State:
        return {name: _either(a[name], b[name]) for name in a}

    def _wgmma(self, stmt: kir.Wgmma, state: State) -> State:
        b = stmt.b.buffer.shape
        more = (n for buffer in stmt.beside for n in buffer.shape)
        shape = (*stmt.acc.layout.shape, *b, *more, int(stmt.b_transposed))
        acc = state[stmt.acc.name]
        self.checked += 1
        other = acc.written < DONE and acc.shape != shape
        if (acc.dirty or other) and Obligation.FENCE not in self.without:
            says = f"no wgmma_fence stands after another access of {stmt.acc.name}"
            raise RegisterError("fence", stmt, says)
        if acc.read < DONE and Obligation.REGISTERS not in self.without:
            says = f"{stmt.acc.name} may still be read by an earlier wgmma"
            raise RegisterError("WAR", stmt, says)
        made = {**state, stmt.acc.name: replace(acc, written=0, shape=shape)}
        if isinstance(stmt.a, kir.Fragment):
            held = made[stmt.a.name]
            if held.dirty and Obligation.FENCE not in self.without:
                says = f"no wgmma_fence stands after another access of {stmt.a.name}"
                raise RegisterError("fence", stmt, says)
            if held.written < DONE and Obligation.REGISTERS not in self.without:
                raise RegisterError("RAW", stmt, f"{stmt.a.name} may still be written by wgmma")
            made[stmt.a.name] = replace(held, read=0)
        return made

    def _touched(
        self, stmt: kir.Stmt, fragment: kir.Fragment, state: State, *, writes: bool
    ) -> State:
        if fragment.name not in state:
            return state
        held = state[fragment.name]
        self.checked += 1
        if Obligation.REGISTERS not in self.without:
            if held.written < DONE:
                kind = "WAW" if writes else "RAW"
                says = f"no await covers the wgmma that may still write {fragment.name}"
                raise RegisterError(kind, stmt, says)
            if writes and held.read < DONE:
                says = f"no await covers the wgmma that may still read {fragment.name}"
                raise RegisterError("WAR", stmt, says)
        return {**state, fragment.name: replace(held, dirty=True)}

    def ended(self, state: State, last: kir.Stmt) -> None:
        """Check that nothing is in flight at the end."""
        for name, held in state.items():
            if min(held.written, held.read) < DONE and Obligation.EXIT not in self.without:
                raise RegisterError("exit", last, f"a wgmma on {name} may still be in flight")


def _aged(held: Held) -> Held:
    return replace(
        held,
        written=held.written + 1 if held.written < DONE else DONE,
        read=held.read + 1 if held.read < DONE else DONE,
    )


def _finished(held: Held, keep: int) -> Held:
    written = DONE if held.written > keep else held.written
    read = DONE if held.read > keep else held.read
    return replace(held, written=written, read=read, shape=held.shape if written < DONE else ())


def _either(a: Held, b: Held) -> Held:
    flying = [held for held in (a, b) if held.written < DONE]
    shapes = {held.shape for held in flying}
    return Held(
        min(a.written, b.written),
        min(a.read, b.read),
        a.dirty or b.dirty,
        (next(iter(shapes)) if len(shapes) == 1 else (-1,)) if flying else (),
    )


def touched(stmt: kir.Stmt) -> Iterator[tuple[kir.Fragment, bool]]:
    """Yield the fragments an ordinary statement accesses, with whether it writes them."""
    match stmt:
        case kir.Load(dst):
            yield dst, True
        case kir.Store(_, src) | kir.AtomicAdd(_, src):
            yield src, False
        case kir.Coordinate(dst):
            yield dst, True
        case kir.Slice(dst, src) | kir.Reduce(dst, src):
            yield src, False
            yield dst, True
        case kir.Compute(dst, _, args):
            for arg in args:
                if isinstance(arg, kir.Fragment):
                    yield arg, False
            yield dst, True
        case kir.Mma(acc, a, b):
            yield a, False
            yield b, False
            yield acc, True
        case _:
            pass
