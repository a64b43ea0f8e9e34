"""A Kernel as the invariants read it: who executes what, over symbolic iterations.

Of every kind of threads one representative is followed and the others are counted.  Every statement
becomes one `Step` (loops with a constant end are written out), whose slot, parity and guards are
expressions of the iteration `K` of the one symbolic loop that a thread may run and of the trip
count `N` that all such loops share.

`read_runs` says when a step runs.  Nothing speaks of an iteration by its number, so every condition
has to be linear (`Bound`), every slot has to walk through its ring one by one (`Walk`), and the
statements that a constant loop issues ahead have to be iterations -P ... -1 of statements of the
main loop.  What is not so is `UnsupportedError`.  Nothing is executed here and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op, Var, both, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import K, N, UnsupportedError, function, linear, period, replace_tree
from oracles.prover.invariants.rewriting.statements import Lines
from oracles.prover.sites import Loop, Site, controls, every, mbarrier, slots
from oracles.prover.threads import Kind as Threads
from oracles.prover.threads import kinds

UNROLL = 1024
"""Statements that written-out constant loops may make; more is not modelled."""
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
    def guard(self) -> Expr | None:
        """The condition under which it runs, if any."""
        return self.controls.get("guard")

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
    """Read a kernel.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    lines : Lines, optional
        The lines of its statements, if `kernel` is made of statements of another.

    Raises
    ------
    UnsupportedError
        If it holds something that is not modelled here.
    """
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
        turns: Iterable[Expr] = (K,)
        if isinstance(stop, int):
            turns = range(stop)
        elif K in values.values():
            raise UnsupportedError(f"loop over {loop.name} inside another of symbolic length")
        elif any(
            not isinstance(substitute(guard, values), int)
            for guard in inside[0].guards[: loop.guards]
        ):
            raise UnsupportedError(f"loop over {loop.name} inside an if")
        for turn in turns:
            yield from _written_out(inside, {**values, loop.index: turn}, depth + 1)


def _trips(found: Sequence[Found]) -> Expr | None:
    """Return the one expression of which every symbolic loop end is a simple function."""
    ends = (
        substitute(loop.stop, values)
        for site, values in found
        for loop in site.loops
        if values[loop.index] == K
    )
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
    wanted = {name: site.plain(expr) for name, expr in controls(site.stmt).items()}
    wanted = {name: wanted[name] for name in ("slot", "a", "bar", "parity") if name in wanted}
    if loop is not None:
        wanted["stop"] = loop.stop
    test: Expr = 1
    for guard in site.guards:
        test = both(test, substitute(guard, values))
    if test != 1:
        wanted["guard"] = test
    for what, whole in wanted.items():
        expr = substitute(whole, values)
        if trips is not None:
            expr = replace_tree(expr, trips, N)
        stray = variables(expr) - {K, N}
        if stray:
            names = ", ".join(sorted(str(v) for v in stray))
            raise UnsupportedError(f"line {number}: control depends on {names}")
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
        match self.along_k, self.along_n:
            case 0, 0:
                return "true" if self.plus >= 0 else "false"
            case 1, 0:
                return f"(>= {k} {number(-self.plus)})"
            case -1, 0:
                return f"(<= {k} {number(self.plus)})"
            case 0, 1:
                return f"(>= n {number(-self.plus)})"
            case 0, -1:
                return f"(<= n {number(self.plus)})"
            case 1, -1:
                return f"(>= (- {k} n) {number(-self.plus)})"
            case _:
                return f"(<= (- {k} n) {number(self.plus)})"


def number(value: int) -> str:
    """Return an integer in SMT-LIB."""
    return str(value) if value >= 0 else f"(- {-value})"


def all_of(parts: list[str]) -> str:
    """Return the conjunction of SMT-LIB texts."""
    kept = list(dict.fromkeys(part for part in parts if part != "true"))
    if "false" in kept:
        return "false"
    if len(kept) < 2:
        return kept[0] if kept else "true"
    return f"(and {' '.join(kept)})"


def any_of(parts: list[str]) -> str:
    """Return the disjunction of SMT-LIB texts."""
    kept = list(dict.fromkeys(part for part in parts if part != "false"))
    if len(kept) < 2:
        return kept[0] if kept else "false"
    return f"(or {' '.join(kept)})"


def bounds(expr: Expr) -> tuple[Bound, ...]:
    """Return a condition over `K` and `N` as a conjunction of bounds.

    Raises
    ------
    UnsupportedError
        If it is not linear, or its bounds are no differences of `k` and `n`.
    """
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
            return (
                _bound(Op(Kind.SUB, b, a), 0, expr),
                _bound(Op(Kind.SUB, a, b), 0, expr),
            )
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
    """Return how a slot number walks through a ring.

    Raises
    ------
    UnsupportedError
        If it does anything else, or leaves the ring.
    """
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
    """Return the phase that a wait is meant for: `shift` from -modulus to modulus - 1.

    Raises
    ------
    UnsupportedError
        If the parity is that of no such phase.
    """
    many = period(parity, K)
    if many is None:
        raise UnsupportedError(f"{step.where}: parity {parity} does not repeat")
    value = function(parity, checked=True)
    turns = range(lcm(many, 2 * slot.modulus))
    for shift in (slot.shift, slot.shift - slot.modulus):
        if all(value({K.name: k}) == (k + shift) // slot.modulus % 2 for k in turns):
            return Walk(slot.modulus, shift)
    raise UnsupportedError(f"{step.where}: parity {parity} is not that of a ring of phases")


@dataclass(frozen=True, slots=True)
class Run:
    """When and where a step of the loop runs.

    Parameters
    ----------
    low : int
        First iteration: 0, or -P where the kernel issues P of them before its loop.
    stop : int
        The loop ends before iteration `n + stop`.
    guard : tuple of Bound
        Its guards, on the iteration.
    bar, buf, other : Walk or None
        Its phase of an mbarrier, its slot of a shared buffer, and that of another operand.
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
            inside = last.text()
            parts.append(
                inside if not self.low else f"(or {Bound(-1, 0, -offset - 1).text()} {inside})"
            )
        return all_of([*parts, *(g.text() for g in guards)])


def shift(run: Run) -> int:
    """Return which phase of its mbarrier a step is about: that number, plus the iteration."""
    assert run.bar is not None, "asked of steps on barriers"
    return run.bar.shift


@dataclass(slots=True)
class Runs:
    """The runs of all steps of the loops, and which steps before the loops they stand for."""

    of: dict[int, Run]
    ahead: set[int]


def read_runs(trace: Trace, silent: Collection[int] = ()) -> Runs:
    """Read where every step of the loops runs.

    Parameters
    ----------
    trace : Trace
        The kernel.
    silent : collection of int
        Steps that the order of events does not depend on; they may run when they like.

    Raises
    ------
    UnsupportedError
        If something is neither linear nor a walk, or stands where only a loop's statement may.
    """
    found = Runs({}, set())
    for step in trace.steps:
        if step.loop is None or step.index in silent:
            continue
        k, n, stop = affine(step.controls["stop"])
        if (k, n) != (0, 1):
            raise UnsupportedError(f"a loop of {step.loop.stop} iterations")
        guard = bounds(step.guard) if step.guard is not None else ()
        run = Run(0, stop, guard, *_walks(step))
        found.of[step.index] = _counted(step, run)
    for program in trace.programs:
        _match(program, found)
    return found


def _counted(step: Step, run: Run) -> Run:
    """Count the phases of arrivals from the first that runs: it is one of the first turn."""
    if run.bar is None or isinstance(step.stmt, kir.MBarrierWaitParity):
        return run
    turns = (run.first + run.bar.shift) // run.bar.modulus
    return replace(run, bar=Walk(run.bar.modulus, run.bar.shift - turns * run.bar.modulus))


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
        case kir.AsyncCommit(kir.AsyncKind.CP_ASYNC) | kir.NamedArrive():
            return step.stmt, step.kinds
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
    _alike(program, found)


def _alike(program: Program, found: Runs) -> None:
    """Check that groups of cp.async ahead are made as those of the loop are."""

    def grouped(step: Step) -> bool:
        return isinstance(step.stmt, kir.CpAsync) or (
            step.stmt == kir.AsyncCommit(kir.AsyncKind.CP_ASYNC)
        )

    early = [_key(step) for step in program.before if grouped(step)]
    again = [step for step in program.inside if grouped(step)]
    if not early:
        return
    times = -found.of[again[0].index].low
    if early != [_key(step) for step in again] * times:
        raise UnsupportedError(f"{again[0].where}: its groups ahead are not as those of the loop")


def _same(step: Step, run: Run, k: int) -> bool:
    """Whether a step before the loop is iteration `k` of the one with this run."""
    guard = bounds(step.guard) if step.guard is not None else ()
    if set(guard) != {g.fixed(k) for g in run.guard}:
        return False
    return all(
        how is None or step.controls[what] == (k + how.shift) % how.modulus
        for what, how in (("bar", run.bar), ("slot", run.buf))
    )
