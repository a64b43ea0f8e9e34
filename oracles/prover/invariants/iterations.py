"""Statements of a loop as functions of the iteration: which slot, under which linear conditions.

The invariants speak of iteration `k` of `n` without knowing either.  So every condition has to be
linear (`Bound`), every slot has to walk through its ring one by one (`Walk`), and the statements
that a constant loop issues ahead have to be iterations -P ... -1 of statements of the main loop.
What is not so is `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd, lcm

from fuser.expr import Expr, Kind, Op
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import K, N, UnsupportedError, function, linear
from oracles.prover.invariants.trace import Program, Step, Trace
from oracles.prover.periods import period
from oracles.prover.sites import mbarrier, slots


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


def both(parts: list[str]) -> str:
    """Return the conjunction of SMT-LIB texts."""
    kept = list(dict.fromkeys(part for part in parts if part != "true"))
    if "false" in kept:
        return "false"
    if len(kept) < 2:
        return kept[0] if kept else "true"
    return f"(and {' '.join(kept)})"


def either(parts: list[str]) -> str:
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
        return both([*parts, *(g.text() for g in guards)])


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
