"""A Kernel as the invariants read it: who executes what, over symbolic iterations.

Of every kind of threads one representative is followed and the others are counted.  Every statement
becomes one `Step` (loops with a constant end are written out), whose slot, parity and guards are
expressions of the iteration `K` of the one symbolic loop that a thread may run and of the trip
count `N` that all such loops share.

`read_runs` says when a step runs.  Nothing names an iteration by its number, so every condition
has to be linear (`Bound`), every slot has to walk through its ring one by one (`Walk`), and the
statements that a constant loop issues ahead have to be iterations -P ... -1 of statements of the
main loop.  What is not so is `UnsupportedError`.

Notes
-----
The rest is judged off the text, whatever the iteration: no question to z3.

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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from itertools import combinations, groupby, islice, pairwise
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var, both, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import K, N, UnsupportedError, function, linear, period, replace_tree
from oracles.prover.invariants.rewriting import Lines
from oracles.prover.sites import (
    WARPS,
    Loop,
    Site,
    Threads,
    adds,
    controls,
    every,
    fragments,
    kinds,
    mbarrier,
    reads,
    slots,
    writes,
)


class Axiom(Enum):
    """What an event requires of others; leaving one out costs proofs, never truth."""

    PROGRAM = "a thread does one thing after the other"
    BARRIER = "who passes a BlockSync or WarpSync has seen the others arrive"
    SIGNAL = "who passes a named barrier has seen those arrive who do not wait"
    ARRIVAL = "a phase ends after all its arrivals"
    BYTES = "a phase ends after all its bytes have landed"
    SEQUENCE = "a phase ends after the one before it on the same slot"
    WAIT = "a wait ends after the phase it is meant for"
    ISSUE = "what an engine does ends after its issue"
    GROUP = "an await ends after the groups it covers"
    CONVERGE = "a warp issues a wgmma when all its lanes are there"
    FINISH = "an arrival made by cp.async comes after the copies of its thread"
    TAKEN = "who takes a turn has seen what the turns before it released"


class Obligation(Enum):
    """What must not be violated; leaving one out makes false proofs."""

    SCHEDULE = "an order of all events exists: no deadlock"
    NOT_BEHIND = "a wait begins when the phase before its own has ended"
    NOT_LAPPED = "a wait ends before the phase after its own does"
    IN_PHASE = "arrivals and bytes come after the phase before theirs has ended"
    COUNTED = "arrivals and bytes of a phase are what it takes"
    WHOLE = "all arrivals and copies of a phase run or none, and no phase is skipped"
    AWAITED = "every wait has its phase"
    EXPECTED = "bytes and copies are announced before the phase can end"
    RAW = "a read comes after the write it sees"
    WAR = "a write comes after the reads before it"
    WAW = "a write comes after the writes before it"
    PROXY = "a proxy fence stands between ordinary and asynchronous access"
    NARROW = "the end of a copy publishes what it copied, nothing else"
    WRITTEN = "what is read was written"
    RETURN = "what touches a slot did so one round of the ring before"
    EXIT = "no copy is in flight at the end"
    DRAIN = "no store is in flight at the end"
    INIT = "mbarriers are initialised once, and visible where they are used"
    REGISTERS = "registers of wgmma are left alone until its group is awaited"
    FENCE = "wgmma_fence stands between other accesses of registers and wgmma"
    COLLECTIVE = "statements are executed by the threads they need"
    TURNS = "who has waited for a turn of a semaphore gives it to the next, once"
    CLEAN = "a semaphore is left at 0"
    RESIDENT = "the CTA of the turn before is sure to run"
    REMOTE = "a proxy fence stands between a turn that is taken and what engines do in it"
    APART = "CTAs of different semaphores touch different bytes"


Rule = Axiom | Obligation
Without = frozenset[Rule]
"""Rules that are left out."""


class RefusedError(Exception):
    """A rule is broken, or a claim is not proved; `trips` shows it in z3's model.

    A `narrow` one is about what can be proved here, and not about the kernel.
    """

    def __init__(
        self, kind: str, stmt: kir.Stmt | None, says: str, trips: int = 0, *, narrow: bool = False
    ) -> None:
        super().__init__(says)
        self.kind, self.stmt, self.says = kind, stmt, says
        self.trips, self.narrow = trips, narrow


UNROLL = 1024
"""Statements that written-out constant loops may make; more is not modelled."""
_COMMIT = kir.AsyncCommit(kir.AsyncKind.CP_ASYNC)
_STRUCTURE = kir.Let | kir.ForLoop | kir.IfThenElse | kir.Role | kir.Elect


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One statement as threads of some kinds execute it, in `loop` or outside of any.

    `controls` are its control expressions over `K` and `N`, with "stop" and "guard".
    """

    index: int
    site: Site
    line: int
    loop: Loop | None
    kinds: frozenset[int]
    controls: Mapping[str, Expr]

    @property
    def stmt(self) -> kir.Stmt:
        """The statement."""
        return self.site.stmt

    @property
    def guard(self) -> Expr:
        """The condition under which it runs."""
        return self.controls.get("guard", 1)

    @property
    def where(self) -> str:
        """Line number and text of the statement."""
        return f"line {self.line}: {line(self.stmt)}"


@dataclass(frozen=True, slots=True)
class Program:
    """The steps of one kind of threads: before its symbolic loop, in it, and after it."""

    before: tuple[Step, ...]
    inside: tuple[Step, ...]
    after: tuple[Step, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them."""
        return (*self.before, *self.inside, *self.after)

    def without(self, steps: Collection[int]) -> Program:
        """Leave out some steps."""
        parts = (self.before, self.inside, self.after)
        return Program(*(tuple(s for s in part if s.index not in steps) for part in parts))


@dataclass(frozen=True, slots=True)
class Trace:
    """A kernel as steps, and as a program for each kind of threads."""

    kernel: kir.Kernel
    kinds: tuple[Threads, ...]
    steps: tuple[Step, ...]
    programs: tuple[Program, ...]

    def count(self, step: Step) -> int:
        """Return how many threads execute a step."""
        return sum(self.kinds[i].count for i in step.kinds)


def read(kernel: kir.Kernel, lines: Lines | None = None) -> Trace:
    """Read a finished kernel; `lines` are those of its statements, if it is made of another's."""
    if kernel.cluster != 1:
        raise UnsupportedError(f"{kernel.name} runs in clusters of {kernel.cluster}")
    _apart(kernel)
    sites = [s for s in every(kernel) if not isinstance(s.stmt, _STRUCTURE) and 0 not in s.guards]
    found = list(islice(_written_out(sites, {}), UNROLL + 1))
    if len(found) > UNROLL:
        raise UnsupportedError(f"more than {UNROLL} statements, written out")
    trips = _trips(found)
    who = kinds(kernel)
    steps = []
    for index, (site, values) in enumerate(found):
        loop = next((o for o in site.loops if values[o.index] == K), None)
        mine = frozenset(kind.index for kind in who if site.place.has(kind))
        number = site.line if lines is None else lines[site.stmt]
        plain = dict(_plain(site, number, loop, values, trips))
        steps.append(Step(index, site, number, loop, mine, plain))
    programs = tuple(_program(kind, steps) for kind in who)
    return Trace(kernel, who, tuple(steps), programs)


def _apart(kernel: kir.Kernel) -> None:
    """Check that roles stand in the body of the kernel, and take the same warps or others."""
    inner = set(map(id, kernel.walk())) - set(map(id, kernel.body))
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Role) and id(stmt) in inner:
            raise UnsupportedError(f"role {stmt.name} stands inside another statement")
    spans = {(s.first_warp, s.warps) for s in kernel.body if isinstance(s, kir.Role)}
    taken = [warp for first, warps in spans for warp in range(first, first + warps)]
    if len(taken) != len(set(taken)):
        raise UnsupportedError("roles share some of their warps")


Found = tuple[Site, Mapping[Var, Expr]]
"""A site, and the values of the indices around it."""


def _written_out(
    sites: Sequence[Site], values: Mapping[Var, Expr], depth: int = 0
) -> Iterator[Found]:
    """Yield sites with the values of their loops; those in constant loops once an iteration."""
    for loop, group in groupby(sites, lambda s: s.loops[depth] if len(s.loops) > depth else None):
        inside = list(group)
        if loop is None:
            for site in inside:
                if 0 not in (substitute(guard, values) for guard in site.guards):
                    yield site, values
            continue
        stop = substitute(loop.stop, values)
        around = (substitute(guard, values) for guard in inside[0].guards[: loop.guards])
        iterations: Iterable[Expr] = (K,)
        if isinstance(stop, int):
            iterations = range(stop)
        elif K in values.values():
            raise UnsupportedError(f"loop over {loop.name} inside another of symbolic length")
        elif not all(isinstance(guard, int) for guard in around):
            raise UnsupportedError(f"loop over {loop.name} inside an if")
        for at in iterations:
            yield from _written_out(inside, {**values, loop.index: at}, depth + 1)


def _trips(found: Sequence[Found]) -> Expr | None:
    """Return the one expression of which every symbolic loop end is a simple function."""
    around = ((loop, values) for site, values in found for loop in site.loops)
    ends = (substitute(loop.stop, values) for loop, values in around if values[loop.index] == K)
    bases = list(dict.fromkeys(map(_base, ends)))
    if len(bases) > 1:
        raise UnsupportedError(f"loops of different lengths: {bases[0]} and {bases[1]}")
    return bases[0] if bases else None


def _base(stop: Expr) -> Expr:
    match stop:
        case Op(Kind.ADD | Kind.SUB | Kind.MIN | Kind.MAX, a, int()):
            return _base(a)
        case Op(Kind.ADD | Kind.MIN | Kind.MAX, int(), b):
            return _base(b)
        case _:
            return stop


def _plain(
    site: Site, number: int, loop: Loop | None, values: Mapping[Var, Expr], trips: Expr | None
) -> Iterator[tuple[str, Expr]]:
    """Yield the control expressions of a statement, over `K` and `N` alone."""
    own = controls(site.stmt)
    names = ("slot", "a", "bar", "parity")
    wanted: dict[str, Expr] = {name: site.plain(own[name]) for name in names if name in own}
    if loop is not None:
        wanted["stop"] = loop.stop
    start: Expr = 1
    test = reduce(both, (substitute(guard, values) for guard in site.guards), start)
    if test != 1:
        wanted["guard"] = test
    for what, whole in wanted.items():
        expr = substitute(whole, values)
        if trips is not None:
            expr = replace_tree(expr, trips, N)
        stray = variables(expr) - {K, N}
        if stray:
            on = ", ".join(sorted(str(v) for v in stray))
            raise UnsupportedError(f"line {number}: control depends on {on}")
        yield what, expr


def _program(kind: Threads, steps: Sequence[Step]) -> Program:
    mine = [step for step in steps if kind.index in step.kinds]
    inside = tuple(step for step in mine if step.loop is not None)
    loops = len({step.loop for step in inside})
    if loops > 1:
        raise UnsupportedError(f"{kind} runs {loops} loops of symbolic length")
    first = mine.index(inside[0]) if inside else len(mine)
    return Program(tuple(mine[:first]), inside, tuple(mine[first + len(inside) :]))


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition `along_k * k + along_n * n + plus >= 0`."""

    along_k: int
    along_n: int
    plus: int

    def at(self, offset: int) -> Bound:
        """Return the condition on iteration `k + offset`, as one on `k`."""
        return Bound(self.along_k, self.along_n, self.plus + self.along_k * offset)

    def fixed(self, k: int) -> Bound:
        """Return the condition on one given iteration, as one on `n`."""
        return Bound(0, self.along_n, self.plus + self.along_k * k)

    def text(self, k: str = "k") -> str:
        """Return the condition in SMT-LIB, a difference constraint on the unknown named `k`."""
        if (self.along_k, self.along_n) == (0, 0):
            return "true" if self.plus >= 0 else "false"
        term = f"(- {k} n)" if self.along_k and self.along_n else k if self.along_k else "n"
        if (self.along_k or self.along_n) > 0:
            return f"(>= {term} {number(-self.plus)})"
        return f"(<= {term} {number(self.plus)})"


def number(value: int) -> str:
    """Return an integer in SMT-LIB."""
    return str(value) if value >= 0 else f"(- {-value})"


def all_of(parts: Iterable[str]) -> str:
    """Return the conjunction of SMT-LIB texts."""
    return _joined("and", "true", parts)


def any_of(parts: Iterable[str]) -> str:
    """Return the disjunction of SMT-LIB texts."""
    return _joined("or", "false", parts)


def _joined(word: str, neutral: str, parts: Iterable[str]) -> str:
    kept = list(dict.fromkeys(part for part in parts if part != neutral))
    if word == "and" and "false" in kept:
        return "false"
    return f"({word} {' '.join(kept)})" if len(kept) > 1 else kept[0] if kept else neutral


def bounds(expr: Expr) -> tuple[Bound, ...]:
    """Return a condition as a conjunction of bounds, which are differences of `K` and `N`."""
    match expr:
        case int():
            return () if expr else (Bound(0, 0, -1),)
        case Op(Kind.AND, a, b):
            return (*bounds(a), *bounds(b))
        case Op(Kind.LT, a, b):
            return (_bound(Op(Kind.SUB, b, a), -1, expr),)
        case Op(Kind.LE, a, b):
            return (_bound(Op(Kind.SUB, b, a), 0, expr),)
        case Op(Kind.EQ, Op(Kind.LT | Kind.LE) as test, 0):
            (held,) = bounds(test)
            return (Bound(-held.along_k, -held.along_n, -held.plus - 1),)
        case Op(Kind.EQ, a, b):
            return tuple(_bound(Op(Kind.SUB, *sides), 0, expr) for sides in ((b, a), (a, b)))
        case _:
            raise UnsupportedError(f"`{expr}` is no linear condition")


def _bound(difference: Expr, plus: int, of: Expr) -> Bound:
    k, n, c = affine(difference)
    c += plus
    if (common := gcd(k, n)) > 1:
        # Of integers, so that what is left over may be dropped.
        k, n, c = k // common, n // common, c // common
    if (k, n) not in {(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)}:
        raise UnsupportedError(f"`{of}` is no difference of k and n")
    return Bound(k, n, c)


def affine(expr: Expr) -> tuple[int, int, int]:
    """Return the factors of `K` and `N` and the constant of a linear expression."""
    constant, parts = linear(expr)
    if not parts.keys() <= {K, N}:
        raise UnsupportedError(f"`{expr}` is not linear in k and n")
    return parts.get(K, 0), parts.get(N, 0), constant


@dataclass(frozen=True, slots=True)
class Walk:
    """A slot number `(k + shift) % modulus`; on an mbarrier, `k + shift` tells its phases apart."""

    modulus: int
    shift: int


def walk(step: Step, expr: Expr, most: int) -> Walk:
    """Return how a slot number walks through a ring."""
    if isinstance(expr, int):
        if expr != 0:
            raise UnsupportedError(f"{step.where}: always slot {expr}")
        return Walk(1, 0)
    many = period(expr, K)
    if many is None:
        raise UnsupportedError(f"{step.where}: slot {expr} does not repeat")
    value = function(expr, checked=True)
    seen = [value({K.name: k}) for k in range(2 * many + 1)]
    modulus = max(seen) + 1
    if min(seen) < 0 or modulus > most or any(b != (a + 1) % modulus for a, b in pairwise(seen)):
        raise UnsupportedError(f"{step.where}: slot {expr} does not walk through {most} slots")
    return Walk(modulus, seen[0])


def awaited(step: Step, parity: Expr, slot: Walk) -> Walk:
    """Return the phase that a wait is meant for: `shift` from -modulus to modulus - 1."""
    many = period(parity, K)
    if many is None:
        raise UnsupportedError(f"{step.where}: parity {parity} does not repeat")
    value = function(parity, checked=True)
    iterations = range(lcm(many, 2 * slot.modulus))
    for shift in (slot.shift, slot.shift - slot.modulus):
        if all(value({K.name: k}) == (k + shift) // slot.modulus % 2 for k in iterations):
            return Walk(slot.modulus, shift)
    raise UnsupportedError(f"{step.where}: parity {parity} is not that of a ring of phases")


@dataclass(frozen=True, slots=True)
class Run:
    """When and where a step of the loop runs.

    The first iteration is `low`: 0, or -P where the kernel issues P of them before its loop, which
    ends before iteration `n + stop`.  `bar`, `buf` and `other` are its phase of an mbarrier, its
    slot of a shared buffer, and that of another operand.
    """

    low: int
    stop: int
    guard: tuple[Bound, ...]
    bar: Walk | None
    buf: Walk | None
    other: Walk | None = None

    @property
    def first(self) -> int:
        """The first iteration that can run."""
        least = (-g.plus for g in self.guard if (g.along_k, g.along_n) == (1, 0))
        return max((self.low, *least))

    def happens(self, offset: int) -> str:
        """Return, in SMT-LIB, whether iteration `k + offset` of it runs."""
        parts = [Bound(1, 0, offset - self.low).text()]
        last = Bound(-1, 1, self.stop - 1).at(offset)
        guards = [g.at(offset) for g in self.guard]
        if not any((g.along_k, g.along_n) == (-1, 1) and g.plus <= last.plus for g in guards):
            ahead = f"(or {Bound(-1, 0, -offset - 1).text()} {last.text()})"
            parts.append(ahead if self.low else last.text())
        return all_of([*parts, *(g.text() for g in guards)])

    @property
    def phase(self) -> int:
        """Which phase of its mbarrier a step is about: this number, plus the iteration."""
        assert self.bar is not None, "asked of steps on barriers"
        return self.bar.shift


@dataclass(slots=True)
class Runs:
    """The runs of all steps of the loops, and which steps before the loops they stand for."""

    of: dict[int, Run] = field(default_factory=dict)
    ahead: set[int] = field(default_factory=set)


def read_runs(trace: Trace, silent: Collection[int] = ()) -> Runs:
    """Read where every step of the loops runs.

    The order of events does not depend on the `silent` ones; they may run when they like.
    UnsupportedError if something is neither linear nor a walk, or stands where only a loop's
    statement may.
    """
    found = Runs()
    for step in trace.steps:
        if step.loop is None or step.index in silent:
            continue
        k, n, stop = affine(step.controls["stop"])
        if (k, n) != (0, 1):
            raise UnsupportedError(f"a loop of {step.loop.stop} iterations")
        run = Run(0, stop, bounds(step.guard), *_walks(step))
        if run.bar is not None and not isinstance(step.stmt, kir.MBarrierWaitParity):
            # The phases of arrivals are counted from the first that runs: one of the first round.
            rounds = (run.first + run.bar.shift) // run.bar.modulus
            bar = Walk(run.bar.modulus, run.bar.shift - rounds * run.bar.modulus)
            run = replace(run, bar=bar)
        found.of[step.index] = run
    for program in trace.programs:
        _match(program, found)
    return found


def _walks(step: Step) -> tuple[Walk | None, Walk | None, Walk | None]:
    bar = buf = other = None
    if (barrier := mbarrier(step.stmt)) is not None and "bar" in step.controls:
        bar = walk(step, step.controls["bar"], barrier.slots)
        if isinstance(step.stmt, kir.MBarrierWaitParity):
            bar = awaited(step, step.controls["parity"], bar)
    used = slots(step.stmt)
    if used:
        buf = walk(step, step.controls["slot"], used[0].buffer.slots)
    if "a" in step.controls:
        other = walk(step, step.controls["a"], used[-1].buffer.slots)
    return bar, buf, other


def _key(step: Step) -> object:
    """Return what statements issued ahead have in common with that of the loop, if any may be."""
    match step.stmt:
        case kir.TmaLoad(dst, src) | kir.CpAsync(dst, src) as copy:
            same = replace(copy, dst=replace(dst, index=0), src=replace(src, origin=(), limit=()))
            return replace(same, slot=0) if isinstance(same, kir.TmaLoad) else same, step.kinds
        case (
            kir.MBarrierArrive()
            | kir.MBarrierArriveExpectTx()
            | kir.MBarrierExpectTx()
            | kir.CpAsyncMBarrierArrive()
        ):
            return replace(step.stmt, slot=0), step.kinds
        case kir.NamedArrive() as same:
            return same, step.kinds
        case same if same == _COMMIT:
            return same, step.kinds
        case _:
            return None


def _match(program: Program, found: Runs) -> None:
    """Take what is issued before a loop for iterations -P ... -1 of its statements."""
    early: dict[object, list[Step]] = {}
    for step in program.before:
        key = _key(step)
        if key is not None and step.index not in found.ahead:
            early.setdefault(key, []).append(step)
    for key, steps in early.items():
        twins = [s for s in program.inside if _key(s) == key and s.index in found.of]
        if len(twins) != 1:
            raise UnsupportedError(f"{steps[0].where}: issued before the loop, but not once in it")
        run, many = found.of[twins[0].index], len(steps)
        bar = run.bar and Walk(run.bar.modulus, many)
        made = replace(run, low=-many, bar=bar)
        if bar and run.bar and (bar.shift - run.bar.shift) % bar.modulus:
            raise UnsupportedError(f"{twins[0].where}: does not go on where {many} ahead end")
        for j, step in enumerate(steps):
            if not _same(step, made, j - many):
                raise UnsupportedError(f"{step.where}: not as iteration {j - many} of the loop")
            found.ahead.add(step.index)
        found.of[twins[0].index] = made
    # Groups of cp.async ahead are made as those of the loop are.
    first, again = (
        [s for s in part if isinstance(s.stmt, kir.CpAsync) or s.stmt == _COMMIT]
        for part in (program.before, program.inside)
    )
    times = -found.of[again[0].index].low if first else 0
    if first and list(map(_key, first)) != list(map(_key, again)) * times:
        raise UnsupportedError(f"{again[0].where}: its groups ahead are not as those of the loop")


def _same(step: Step, run: Run, k: int) -> bool:
    """Whether a step before the loop is iteration `k` of the one with this run."""
    if set(bounds(step.guard)) != {g.fixed(k) for g in run.guard}:
        return False
    return all(
        how is None or step.controls[what] == (k + how.shift) % how.modulus
        for what, how in (("bar", run.bar), ("slot", run.buf))
    )


def joins(trace: Trace) -> None:
    """Check that a named barrier is always reached by the same threads, and by all it takes.

    RefusedError if some are missing, or too many; UnsupportedError if different threads use one
    barrier at different times.
    """
    users: dict[int, Step] = {}
    signalled = {s.stmt.barrier for s in trace.steps if isinstance(s.stmt, kir.NamedArrive)}
    for step in trace.steps:
        match step.stmt:
            case kir.BlockSync(barrier):
                if users.setdefault(barrier, step).kinds != step.kinds:
                    raise UnsupportedError(f"{step.where}: a barrier of two sets of threads")
            case kir.WarpSync() if not _whole(trace, step):
                raise RefusedError("deadlock", step.stmt, "not all lanes arrive")
            case kir.Wgmma() | kir.WgmmaFence():
                _warpgroups(trace, step)
            case kir.AsyncCommit(kind) | kir.AsyncAwait(kind) if kind is kir.AsyncKind.WGMMA:
                if not _whole(trace, step):
                    says = "not all lanes of a warp execute it"
                    raise RefusedError("collective", step.stmt, says)
            case _:
                pass
    for step in trace.steps:
        match step.stmt:
            case kir.BlockSync(barrier, threads) if barrier not in signalled:
                if (count := trace.count(step)) != threads:
                    raise RefusedError("collective", step.stmt, f"{count} threads arrive")
            case _:
                pass


def signals(trace: Trace, ahead: Collection[int]) -> list[tuple[Step, Step]]:
    """Return each named barrier that some reach without waiting: who arrives, and who waits.

    Steps `ahead` of the loops stand for iterations of one in them.  RefusedError if both are not as
    many threads as it takes; UnsupportedError if not one statement of a loop arrives and another
    one waits.
    """
    found = []
    steps = [step for step in trace.steps if step.index not in ahead]
    arrivals = [step for step in steps if isinstance(step.stmt, kir.NamedArrive)]
    for arrive in arrivals:
        assert isinstance(arrive.stmt, kir.NamedArrive), "just asked"
        number, threads = arrive.stmt.barrier, arrive.stmt.threads
        waits = [s for s in steps if s.stmt == kir.BlockSync(number, threads)]
        named = [s for s in steps if isinstance(s.stmt, kir.BlockSync | kir.NamedArrive)]
        same = [s for s in named if getattr(s.stmt, "barrier", None) == number]
        if len(waits) != 1 or len(same) != 2 or any(s.loop is None for s in same):
            raise UnsupportedError(f"{arrive.where}: not one arrives and one waits, in loops")
        if arrive.kinds & waits[0].kinds:
            raise UnsupportedError(f"{arrive.where}: by threads that also wait")
        count = trace.count(arrive) + trace.count(waits[0])
        if count != threads:
            raise RefusedError("collective", arrive.stmt, f"{count} threads arrive or wait")
        found.append((arrive, waits[0]))
    return found


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
    """Check that nothing but set-up precedes the loops and nothing but awaits follows them."""
    joins = kir.BlockSync | kir.WarpSync | kir.FenceAsyncProxy
    for program in programs:
        for step in program.before:
            if step.index not in ahead and not isinstance(step.stmt, joins | kir.MBarrierInit):
                raise UnsupportedError(f"{step.where}: before the loop")
        for step in program.after:
            if not isinstance(step.stmt, joins | kir.AsyncAwait | kir.AsyncCommit):
                raise UnsupportedError(f"{step.where}: after the loop")


def one_way(kernel: kir.Kernel) -> None:
    """Check that no tensor is both read and written: global accesses are not ordered here."""
    read = {box.tensor.name for s in kernel.walk() if (box := reads(s)) is not None}
    written = {box.tensor.name for s in kernel.walk() if (box := writes(s) or adds(s)) is not None}
    if read & written:
        names = ", ".join(sorted(read & written))
        raise UnsupportedError(f"{kernel.name} reads and writes {names}")


def disjoint(kernel: kir.Kernel, *, single: bool = False) -> None:
    """Check that no two buffers, nor a buffer and an mbarrier, share bytes.

    If `single`, buffers of one slot may.
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

    Return how many uses were checked, by kinds of threads.  RefusedError for the first that is not;
    UnsupportedError if one is invalidated, for then it may be initialised again.
    """
    checked = 0
    for barrier in trace.kernel.barriers:
        steps = [s for s in trace.steps if mbarrier(s.stmt) == barrier]
        inits = [s for s in steps if isinstance(s.stmt, kir.MBarrierInit)]
        ends = [s for s in steps if isinstance(s.stmt, kir.MBarrierInvalidate)]
        users = [s for s in steps if s not in inits and s not in ends]
        if not users:
            continue
        if ends:
            raise UnsupportedError(f"{barrier.name} has several lives")
        makers = [(step, kind) for step in inits for kind in step.kinds]
        if len(makers) != 1:
            says = f"{barrier.name} is initialised by {len(makers)} kinds of threads"
            raise RefusedError("init", users[0].stmt, says)
        made, maker = makers[0]
        if made.loop is not None or made.guard != 1 or trace.kinds[maker].count > 1:
            raise RefusedError("init", made.stmt, f"{barrier.name} is initialised more than once")
        for user, kind in [(step, kind) for step in users for kind in step.kinds]:
            checked += 1
            if not _visible(trace, made, maker, user, kind):
                says = f"nothing makes `{line(made.stmt)}` visible here"
                raise RefusedError("init", user.stmt, says)
    return checked


def _visible(trace: Trace, made: Step, maker: int, user: Step, kind: int) -> bool:
    """Whether a kind of threads that uses an mbarrier has joined with its maker since.

    Where both join in every iteration before the use, they have done so in the first one.
    """
    mine, whole = (trace.programs[one].steps for one in (kind, maker))
    before, since = mine[: mine.index(user)], whole[whole.index(made) :]
    if kind == maker:
        return made in before
    warps = trace.kinds[kind].warps
    one_warp = len(warps) == 1 and warps == trace.kinds[maker].warps
    joins = (kir.BlockSync, kir.WarpSync) if one_warp else (kir.BlockSync,)
    return any(
        isinstance(step.stmt, joins)
        and step.guard == 1
        and (step.loop is None or user.loop is not None)
        and step in since
        for step in before
    )


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

    def aged(self) -> Held:
        """Return it after a commit."""
        written, read = (n + 1 if n < DONE else DONE for n in (self.written, self.read))
        return replace(self, written=written, read=read)

    def awaited(self, keep: int) -> Held:
        """Return it after an await of all but so many groups."""
        written, read = (DONE if n > keep else n for n in (self.written, self.read))
        return Held(written, read, self.dirty, self.shape if written < DONE else ())

    def either(self, other: Held) -> Held:
        """Return what may be so if this or another may be."""
        shapes = {held.shape for held in (self, other) if held.written < DONE} or {()}
        written, read = min(self.written, other.written), min(self.read, other.read)
        shape = (-1,) if len(shapes) > 1 else shapes.pop()
        return Held(written, read, self.dirty or other.dirty, shape)


State = Mapping[str, Held]
"""By name of the fragment, of those that any wgmma uses."""


def check(kernel: kir.Kernel, without: Without = frozenset()) -> int:
    """Check every role of a kernel; return how many accesses were checked.

    RefusedError for the first access that may go wrong, or if a group may be in flight at the end.
    """
    products = [s for s in kernel.walk() if isinstance(s, kir.Wgmma)]
    if not products:
        return 0
    spans = [(s.first_warp, s.warps) for s in kernel.body if isinstance(s, kir.Role)]
    names = {fragment.name for s in products for part in fragments(s) for fragment in part}
    checked = 0
    for span in dict.fromkeys(spans or [(0, kernel.threads // kir.WARP)]):
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
                return {name: held.aged() for name, held in state.items()}
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, keep):
                return {name: held.awaited(keep) for name, held in state.items()}
            case _:
                for writes, touched in enumerate(fragments(stmt)):
                    for fragment in touched:
                        state = self._touched(stmt, fragment.name, state, writes=bool(writes))
                return state

    def _joined(self, a: State, b: State) -> State:
        return {name: a[name].either(b[name]) for name in a}

    def _wgmma(self, stmt: kir.Wgmma, state: State) -> State:
        b = stmt.b.buffer.shape
        more = (n for buffer in stmt.beside for n in buffer.shape)
        shape = (*stmt.acc.layout.shape, *b, *more, int(stmt.b_transposed))
        name, acc = stmt.acc.name, state[stmt.acc.name]
        self.checked += 1
        dirty = acc.dirty or (acc.written < DONE and acc.shape != shape)
        fence = "no wgmma_fence stands after another access of"
        self._claim(Obligation.FENCE, not dirty, "fence", stmt, f"{fence} {name}")
        says = f"{name} may still be read by an earlier wgmma"
        self._claim(Obligation.REGISTERS, acc.read == DONE, "WAR", stmt, says)
        made = {**state, name: replace(acc, written=0, shape=shape)}
        if isinstance(stmt.a, kir.Fragment):
            name, held = stmt.a.name, made[stmt.a.name]
            self._claim(Obligation.FENCE, not held.dirty, "fence", stmt, f"{fence} {name}")
            says = f"{name} may still be written by wgmma"
            self._claim(Obligation.REGISTERS, held.written == DONE, "RAW", stmt, says)
            made[name] = replace(held, read=0)
        return made

    def _touched(self, stmt: kir.Stmt, name: str, state: State, *, writes: bool) -> State:
        if name not in state:
            return state
        held = state[name]
        self.checked += 1
        kind, covered = "WAW" if writes else "RAW", "no await covers the wgmma that may still"
        rule, done = Obligation.REGISTERS, held.read == DONE or not writes
        self._claim(rule, held.written == DONE, kind, stmt, f"{covered} write {name}")
        self._claim(rule, done, "WAR", stmt, f"{covered} read {name}")
        return {**state, name: replace(held, dirty=True)}

    def _claim(self, rule: Obligation, holds: bool, kind: str, stmt: kir.Stmt, says: str) -> None:
        if not holds and rule not in self.without:
            raise RefusedError(kind, stmt, says)

    def ended(self, state: State, last: kir.Stmt) -> None:
        """Check that nothing is in flight at the end."""
        for name, held in state.items():
            done, says = min(held.written, held.read), f"a wgmma on {name} may still be in flight"
            self._claim(Obligation.EXIT, done == DONE, "exit", last, says)
