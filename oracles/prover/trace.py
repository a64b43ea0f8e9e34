"""The prover's reading of a Kernel: who executes what, over symbolic iterations.

Threads that do the same are one `Agent`; of every kind one representative is followed and the
others are counted.  Every statement becomes one `Step` (loops with a constant end are written
out), whose slot, parity and guards are expressions of the iteration `k` of the one symbolic loop
that an agent may run and of the trip count `n` that all such loops share.

Nothing is executed here and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fuser.expr import Expr, Kind, Op, Var, fold, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.agents import Agent, kinds
from oracles.prover.arithmetic import K, N, UnsupportedError, replace_tree

UNROLL = 1024
"""Statements that written-out constant loops may make; more is not modelled."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The symbolic loop of an agent, and its end in the kernel's words."""

    number: int
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One statement as some agents execute it.

    `where` is the line of the kernel's text, `loop` None outside the symbolic loop.  Which slots
    and phases it is about is in `Trace.controls`.
    """

    index: int
    stmt: kir.Stmt
    line: int
    loop: Loop | None
    agents: frozenset[int]
    guard: Expr | None
    role: str

    @property
    def where(self) -> str:
        """Line number and text of the statement."""
        return f"line {self.line}: {line(self.stmt)}"


@dataclass(frozen=True, slots=True)
class Program:
    """The steps of one agent: before its symbolic loop, in it, and after it."""

    before: tuple[Step, ...]
    inside: tuple[Step, ...]
    after: tuple[Step, ...]
    loop: Loop | None


@dataclass(frozen=True, slots=True)
class Control:
    """One control expression of a step, over `K` and `N`.

    `what` is "stop", "guard", "slot", "bar_slot" or "parity"; "a_slot" is the other operand's slot
    of a `Wgmma`.
    """

    step: Step
    what: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Trace:
    """A kernel as the prover reads it.

    `trips` is the expression of the kernel that the prover's `N` stands for, None without a
    symbolic loop.
    """

    kernel: kir.Kernel
    agents: tuple[Agent, ...]
    steps: tuple[Step, ...]
    programs: tuple[Program, ...]
    trips: Expr | None
    controls: tuple[Control, ...]


def read(kernel: kir.Kernel, lines: Mapping[int, int] | None = None) -> Trace:
    """Read a kernel.

    Parameters
    ----------
    kernel : Kernel
        A finished kernel.
    lines : mapping of int to int, optional
        Lines by the `id` of a statement, if `kernel` is made of statements of another.

    Raises
    ------
    UnsupportedError
        If it holds something the prover does not model.
    """
    if kernel.cluster != 1:
        raise UnsupportedError(f"{kernel.name} runs in clusters of {kernel.cluster}")
    inner = set(map(id, kernel.walk())) - set(map(id, kernel.body))
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Role) and id(stmt) in inner:
            raise UnsupportedError(f"role {stmt.name} stands inside another statement")
    agents = kinds(kernel)
    reader = _Reader(kernel, agents, lines)
    reader.body(kernel.body, _Place(frozenset(range(len(agents))), {}, (), None, ""))
    trips = reader.trips()
    steps = tuple(reader.step(i, raw, trips) for i, raw in enumerate(reader.raw))
    programs = tuple(_program(agent, steps) for agent in agents)
    controls = tuple(
        Control(steps[i], what, expr)
        for i, raw in enumerate(reader.raw)
        for what, expr in _controls(raw, trips)
    )
    return Trace(kernel, agents, steps, programs, trips, controls)


def _program(agent: Agent, steps: tuple[Step, ...]) -> Program:
    mine = [step for step in steps if agent.index in step.agents]
    inside = tuple(step for step in mine if step.loop is not None)
    loops = {step.loop.number: step.loop for step in inside if step.loop is not None}
    if len(loops) > 1:
        raise UnsupportedError(f"{agent} runs {len(loops)} loops of symbolic length")
    first = mine.index(inside[0]) if inside else len(mine)
    after = tuple(mine[first + len(inside) :])
    return Program(tuple(mine[:first]), inside, after, next(iter(loops.values()), None))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: who executes it, under which lets, guards and loop."""

    agents: frozenset[int]
    lets: Mapping[Var, Expr]
    guards: tuple[Expr, ...]
    loop: tuple[int, Expr] | None
    role: str


@dataclass(frozen=True, slots=True)
class _Raw:
    stmt: kir.Stmt
    place: _Place
    line: int


class _Reader:
    """Flatten the bodies of a kernel, inlining lets and writing constant loops out."""

    def __init__(
        self, kernel: kir.Kernel, agents: tuple[Agent, ...], lines: Mapping[int, int] | None
    ) -> None:
        self.kernel = kernel
        self.agents = agents
        self.raw: list[_Raw] = []
        self.loops = 0
        own = {id(stmt): number for number, stmt in numbered(kernel)}
        self.lines = own if lines is None else lines
        self.ends: dict[int, Loop] = {}

    def body(self, body: tuple[kir.Stmt, ...], place: _Place) -> None:
        lets = dict(place.lets)
        for stmt in body:
            here = _Place(
                place.agents,
                dict(lets),
                place.guards,
                place.loop,
                place.role,
            )
            match stmt:
                case kir.Let(var, value):
                    lets[var] = substitute(value, lets)
                case kir.ForLoop(index, stop, inner):
                    self._loop(index, substitute(stop, lets), inner, here)
                case kir.IfThenElse(condition, then, orelse):
                    test = substitute(condition, lets)
                    self.body(then, _guarded(here, test))
                    self.body(orelse, _guarded(here, fold(Kind.EQ, test, 0)))
                case kir.Role(name, first, warps, inner):
                    self.body(inner, self._role(here, name, first, warps))
                case kir.Elect(per, inner):
                    self.body(inner, self._elect(here, per))
                case _:
                    if here.agents:
                        self.raw.append(_Raw(stmt, here, self.lines[id(stmt)]))
                    if len(self.raw) > UNROLL:
                        raise UnsupportedError(f"more than {UNROLL} statements, written out")

    def _loop(self, index: Var, stop: Expr, inner: tuple[kir.Stmt, ...], here: _Place) -> None:
        if isinstance(stop, int):
            for j in range(stop):
                self.body(
                    inner,
                    _Place(
                        here.agents,
                        {**here.lets, index: j},
                        here.guards,
                        here.loop,
                        here.role,
                    ),
                )
            return
        if here.loop is not None:
            raise UnsupportedError(f"loop over {index} inside another of symbolic length")
        if here.guards:
            raise UnsupportedError(f"loop over {index} inside an if")
        number, self.loops = self.loops, self.loops + 1
        lets = {**here.lets, index: K}
        self.body(
            inner,
            _Place(here.agents, lets, here.guards, (number, stop), here.role),
        )

    def _role(self, here: _Place, name: str, first: int, warps: int) -> _Place:
        mine = frozenset(
            a.index
            for a in self.agents
            if a.index in here.agents and first <= a.base < first + warps
        )
        return _Place(mine, here.lets, here.guards, here.loop, name)

    def _elect(self, here: _Place, per: kir.Per) -> _Place:
        mine = set()
        for i in here.agents:
            agent = self.agents[i]
            leads = agent.first_lane and agent.first_warp
            if per is kir.Per.ROLE and not (leads and (here.role or agent.base == 0)):
                continue
            if per is kir.Per.WARPGROUP:
                if agent.threads > kir.WARPGROUP:
                    raise UnsupportedError("one thread of each of several warpgroups is elected")
                if not leads:
                    continue
            if per is kir.Per.WARP and not agent.first_lane:
                continue
            mine.add(i)
        return _Place(frozenset(mine), here.lets, here.guards, here.loop, here.role)

    def trips(self) -> Expr | None:
        """Return the one expression of which every symbolic loop end is a simple function."""
        bases = []
        for raw in self.raw:
            if raw.place.loop is not None:
                base = _base(raw.place.loop[1])
                if base not in bases:
                    bases.append(base)
        if len(bases) > 1:
            raise UnsupportedError(f"loops of different lengths: {bases[0]} and {bases[1]}")
        return bases[0] if bases else None

    def step(self, index: int, raw: _Raw, trips: Expr | None) -> Step:
        """Return the step of one statement."""
        controls = dict(_controls(raw, trips))
        loop = None
        if raw.place.loop is not None:
            number, stop = raw.place.loop
            if number not in self.ends:
                self.ends[number] = Loop(number, str(stop))
            loop = self.ends[number]
        guard = controls.get("guard")
        return Step(index, raw.stmt, raw.line, loop, raw.place.agents, guard, raw.place.role)


def _guarded(here: _Place, test: Expr) -> _Place:
    if isinstance(test, int):
        if test:
            return here
        return _Place(frozenset(), here.lets, here.guards, here.loop, here.role)
    return _Place(here.agents, here.lets, (*here.guards, test), here.loop, here.role)


def _base(stop: Expr) -> Expr:
    match stop:
        case Op(Kind.ADD | Kind.SUB | Kind.MIN | Kind.MAX, a, int()):
            return _base(a)
        case Op(Kind.ADD | Kind.MIN | Kind.MAX, int(), b):
            return _base(b)
        case _:
            return stop


def _controls(raw: _Raw, trips: Expr | None) -> Iterator[tuple[str, Expr]]:
    """Yield the control expressions of a statement, over `K` and `N` alone."""

    def plain(expr: Expr) -> Expr:
        inlined = substitute(expr, raw.place.lets)
        return inlined if trips is None else replace_tree(inlined, trips, N)

    def own() -> Iterator[tuple[str, Expr]]:
        stmt = raw.stmt
        if raw.place.loop is not None:
            yield "stop", plain(raw.place.loop[1])
        if raw.place.guards:
            test: Expr = 1
            for guard in raw.place.guards:
                test = fold(Kind.AND, test, plain(guard))
            yield "guard", test
        match stmt:
            case kir.TmaLoad(dst, _, _, slot):
                yield "slot", plain(dst.index)
                yield "bar_slot", plain(slot)
            case kir.TmaStore(_, src):
                yield "slot", plain(src.index)
            case kir.Load(_, kir.Slot(_, index)) | kir.Store(kir.Slot(_, index)):
                yield "slot", plain(index)
            case kir.CpAsync(kir.Slot(_, index)):
                yield "slot", plain(index)
            case kir.Wgmma(_, a, b):
                yield "slot", plain(b.index)
                if isinstance(a, kir.Slot):
                    yield "a_slot", plain(a.index)
            case (
                kir.MBarrierArrive(_, slot)
                | kir.MBarrierArriveExpectTx(_, slot)
                | kir.MBarrierExpectTx(_, slot)
                | kir.CpAsyncMBarrierArrive(_, slot)
            ):
                yield "bar_slot", plain(slot)
            case kir.MBarrierWaitParity(_, slot, parity):
                yield "bar_slot", plain(slot)
                yield "parity", plain(parity)
            case _:
                pass

    for what, expr in own():
        stray = variables(expr) - {K, N}
        if stray:
            names = ", ".join(sorted(str(v) for v in stray))
            raise UnsupportedError(f"line {raw.line}: control depends on {names}")
        yield what, expr
