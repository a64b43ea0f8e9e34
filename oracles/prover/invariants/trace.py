"""A Kernel as the invariants read it: who executes what, over symbolic iterations.

Of every kind of threads one representative is followed and the others are counted.  Every statement
becomes one `Step` (loops with a constant end are written out), whose slot, parity and guards are
expressions of the iteration `K` of the one symbolic loop that a thread may run and of the trip
count `N` that all such loops share.

Nothing is executed here and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from fuser.expr import Expr, Kind, Op, Var, both, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.arithmetic import K, N, UnsupportedError, replace_tree
from oracles.prover.invariants.rewriting.statements import Lines
from oracles.prover.sites import Loop, Site, controls, every
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
