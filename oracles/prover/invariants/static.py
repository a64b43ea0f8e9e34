"""What is judged off the text, whatever the iteration: no question to z3.

*Collective*: who executes a statement, and where it stands.  *Set-up*: each mbarrier is initialised
once, and visible where it is used.

*Registers* of wgmma are untouched while a group is in flight, and fenced after any other access.
Every thread has its own registers, so one thread at a time is enough: the text of its role is
followed with what *may* be the case at each place.  Both branches of an `if` are taken, unless its
test is settled in the first iteration; a loop is followed once with its first index and then until
nothing new may be the case, zero times included.  So the answer is one for every trip count.  What
is refused here may be right for reasons not seen here, such as two ifs that always agree.

Source: PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from fuser.expr import Expr, Var, substitute
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.rules import Obligation, RefusedError, Without
from oracles.prover.invariants.trace import Program, Step, Trace
from oracles.prover.sites import adds, mbarrier, reads, writes
from oracles.prover.threads import WARPS


def joins(trace: Trace) -> None:
    """Check that a named barrier is always reached by the same threads, and by all it takes.

    Raises
    ------
    RefusedError
        If some are missing, or too many.
    UnsupportedError
        If different threads meet at one barrier at different times.
    """
    users: dict[int, Step] = {}
    counted: list[tuple[Step, int]] = []
    signalled = {s.stmt.barrier for s in trace.steps if isinstance(s.stmt, kir.NamedArrive)}
    for step in trace.steps:
        match step.stmt:
            case kir.BlockSync(barrier, threads):
                if users.setdefault(barrier, step).kinds != step.kinds:
                    raise UnsupportedError(f"{step.where}: a barrier of two sets of threads")
                counted.append((step, threads))
            case kir.WarpSync():
                if not _whole(trace, step):
                    raise RefusedError("deadlock", step.stmt, "not all lanes arrive")
            case kir.Wgmma() | kir.WgmmaFence():
                _warpgroups(trace, step)
            case kir.AsyncCommit(kir.AsyncKind.WGMMA) | kir.AsyncAwait(kir.AsyncKind.WGMMA):
                if not _whole(trace, step):
                    says = "not all lanes of a warp execute it"
                    raise RefusedError("collective", step.stmt, says)
            case _:
                pass
    for step, threads in counted:
        count = trace.count(step)
        if count != threads and _number(step) not in signalled:
            raise RefusedError("collective", step.stmt, f"{count} threads arrive")


def signals(trace: Trace, ahead: Collection[int]) -> list[tuple[Step, Step]]:
    """Return each named barrier that some reach without waiting: who arrives, and who waits.

    Parameters
    ----------
    ahead : collection of int
        Steps before the loops that stand for iterations of one in them.

    Raises
    ------
    RefusedError
        If both are not as many threads as it takes.
    UnsupportedError
        If not one statement of a loop arrives and another one waits.
    """
    found = []
    steps = [step for step in trace.steps if step.index not in ahead]
    arrivals = [step for step in steps if isinstance(step.stmt, kir.NamedArrive)]
    for arrive in arrivals:
        assert isinstance(arrive.stmt, kir.NamedArrive), "just asked"
        number, threads = arrive.stmt.barrier, arrive.stmt.threads
        waits = [s for s in steps if s.stmt == kir.BlockSync(number, threads)]
        same = [s for s in steps if _number(s) == number]
        if len(waits) != 1 or len(same) != 2 or any(s.loop is None for s in same):
            raise UnsupportedError(f"{arrive.where}: not one arrives and one waits, in loops")
        if arrive.kinds & waits[0].kinds:
            raise UnsupportedError(f"{arrive.where}: by threads that also wait")
        count = trace.count(arrive) + trace.count(waits[0])
        if count != threads:
            raise RefusedError("collective", arrive.stmt, f"{count} threads arrive or wait")
        found.append((arrive, waits[0]))
    return found


def _number(step: Step) -> int | None:
    match step.stmt:
        case kir.BlockSync(number) | kir.NamedArrive(number):
            return number
        case _:
            return None


def _whole(trace: Trace, step: Step) -> bool:
    """Whether whole warps execute a step."""
    mine = {trace.kinds[i].warps for i in step.kinds}
    return all(kind.index in step.kinds for kind in trace.kinds if kind.warps in mine)


def _warpgroups(trace: Trace, step: Step) -> None:
    """Check that whole warpgroups execute a step."""
    warps = {warp for i in step.kinds for warp in trace.kinds[i].warps}
    groups = {warp // WARPS for warp in warps}
    if len(warps) < len(groups) * WARPS or not _whole(trace, step):
        raise RefusedError("collective", step.stmt, "is not executed by whole warpgroups")
    roles = [role for role in trace.kernel.body if isinstance(role, kir.Role)]
    parts = [(r.first_warp, r.warps) for r in roles if r.first_warp % WARPS or r.warps % WARPS]
    if any(warps & set(range(first, first + many)) for first, many in parts):
        raise UnsupportedError(f"{step.where}: by a warpgroup of several roles")


def outside(programs: Iterable[Program], ahead: Collection[int]) -> None:
    """Check that nothing but set-up precedes the loops and nothing but awaits follows them.

    `ahead` are steps that stand for iterations of one in a loop.

    Raises
    ------
    UnsupportedError
        If something else does.
    """
    meets = kir.BlockSync | kir.WarpSync | kir.FenceAsyncProxy
    for program in programs:
        for step in program.before:
            if step.index not in ahead and not isinstance(step.stmt, meets | kir.MBarrierInit):
                raise UnsupportedError(f"{step.where}: before the loop")
        for step in program.after:
            if not isinstance(step.stmt, meets | kir.AsyncAwait | kir.AsyncCommit):
                raise UnsupportedError(f"{step.where}: after the loop")


def one_way(kernel: kir.Kernel) -> None:
    """Check that no tensor is both read and written: the order of global accesses is not followed.

    Raises
    ------
    UnsupportedError
        If one is.
    """
    read = {box.tensor.name for s in kernel.walk() if (box := reads(s)) is not None}
    written = {box.tensor.name for s in kernel.walk() if (box := writes(s) or adds(s)) is not None}
    if read & written:
        names = ", ".join(sorted(read & written))
        raise UnsupportedError(f"{kernel.name} reads and writes {names}")


def disjoint(kernel: kir.Kernel, *, single: bool = False) -> None:
    """Check that no two buffers, nor a buffer and an mbarrier, share bytes.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    single : bool
        Whether buffers of one slot may share bytes.

    Raises
    ------
    UnsupportedError
        If some do.
    """
    spans = [
        (b.start(slot), b.start(slot) + b.slot_nbytes, b.name, b.slots == 1 and single)
        for b in kernel.buffers
        for slot in range(b.slots)
    ]
    for barrier in kernel.barriers:
        start = kernel.barrier_at(barrier)
        spans.append((start, start + 8 * barrier.slots, barrier.name, False))
    for a, b in combinations(sorted(spans), 2):
        if b[0] < a[1] and not (a[3] and b[3]):
            raise UnsupportedError(f"{a[2]} and {b[2]} share bytes")


def initialised(trace: Trace) -> int:
    """Check that each mbarrier is initialised once, and visible where it is used.

    Returns
    -------
    int
        How many uses were checked, by kinds of threads.

    Raises
    ------
    RefusedError
        For the first that is not.
    UnsupportedError
        If one is invalidated, for then it may be initialised again.
    """
    checked = 0
    for barrier in trace.kernel.barriers:
        makers = [
            (s, a)
            for s in trace.steps
            if isinstance(s.stmt, kir.MBarrierInit) and s.stmt.barrier == barrier
            for a in s.kinds
        ]
        users = [
            s
            for s in trace.steps
            if mbarrier(s.stmt) == barrier
            and not isinstance(s.stmt, kir.MBarrierInit | kir.MBarrierInvalidate)
        ]
        if not users:
            continue
        if any(s.stmt == kir.MBarrierInvalidate(barrier) for s in trace.steps):
            raise UnsupportedError(f"{barrier.name} has several lives")
        if len(makers) != 1:
            says = f"{barrier.name} is initialised by {len(makers)} kinds of threads"
            raise RefusedError("init", users[0].stmt, says)
        made, maker = makers[0]
        if made.loop is not None or made.guard is not None or trace.kinds[maker].count > 1:
            raise RefusedError("init", made.stmt, f"{barrier.name} is initialised more than once")
        for user in users:
            for agent in user.kinds:
                checked += 1
                _visible(trace, made, maker, user, agent)
    return checked


def _visible(trace: Trace, made: Step, maker: int, user: Step, agent: int) -> None:
    """Check that who uses an mbarrier has met its maker since.

    Where both meet in every iteration before the use, they have met in the first one.
    """
    mine, whole = (
        [*program.before, *program.inside, *program.after]
        for program in (trace.programs[agent], trace.programs[maker])
    )
    at = mine.index(user)
    if agent == maker:
        if mine.index(made) < at:
            return
    else:
        for step in mine[:at]:
            lanes = isinstance(step.stmt, kir.WarpSync) and _one_warp(trace, maker, agent)
            joined = isinstance(step.stmt, kir.BlockSync) or lanes
            if (
                joined
                and step.guard is None
                and (step.loop is None or user.loop is not None)
                and step in whole
                and whole.index(made) < whole.index(step)
            ):
                return
    raise RefusedError("init", user.stmt, f"nothing makes `{line(made.stmt)}` visible here")


def _one_warp(trace: Trace, one: int, two: int) -> bool:
    """Whether two kinds of threads are lanes of one warp."""
    warps = trace.kinds[one].warps
    return len(warps) == 1 and warps == trace.kinds[two].warps


DONE = 1 << 30
"""Groups committed since an access whose group is no longer in flight."""
Shape = tuple[int, ...]


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
    RefusedError
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
            raise RefusedError("fence", stmt, says)
        if acc.read < DONE and Obligation.REGISTERS not in self.without:
            says = f"{stmt.acc.name} may still be read by an earlier wgmma"
            raise RefusedError("WAR", stmt, says)
        made = {**state, stmt.acc.name: replace(acc, written=0, shape=shape)}
        if isinstance(stmt.a, kir.Fragment):
            held = made[stmt.a.name]
            if held.dirty and Obligation.FENCE not in self.without:
                says = f"no wgmma_fence stands after another access of {stmt.a.name}"
                raise RefusedError("fence", stmt, says)
            if held.written < DONE and Obligation.REGISTERS not in self.without:
                raise RefusedError("RAW", stmt, f"{stmt.a.name} may still be written by wgmma")
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
                raise RefusedError(kind, stmt, says)
            if writes and held.read < DONE:
                says = f"no await covers the wgmma that may still read {fragment.name}"
                raise RefusedError("WAR", stmt, says)
        return {**state, fragment.name: replace(held, dirty=True)}

    def ended(self, state: State, last: kir.Stmt) -> None:
        """Check that nothing is in flight at the end."""
        for name, held in state.items():
            if min(held.written, held.read) < DONE and Obligation.EXIT not in self.without:
                raise RefusedError("exit", last, f"a wgmma on {name} may still be in flight")


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
