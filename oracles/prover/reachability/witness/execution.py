"""The smallest execution in which a kernel goes wrong, as a log of events.

The kernel is followed with every trip count known, and the engine appends each statement that is
executed.  The log is for telling only: which order holds in every execution is judged in `state`.
Here an event depends on the last one of its threads, and on those that let it go on: the arrivals
at the phase that it waited for, the threads that it met.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, islice, product
from typing import NamedTuple

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.kernel.text import short
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.cases import cases
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.code import Do, Enter, assemble
from oracles.prover.reachability.ctas import crews, readings, single
from oracles.prover.reachability.fixpoint import ChoiceError, ForkError
from oracles.prover.reachability.rules import Findings, iteration
from oracles.prover.reachability.state import Agent, State, Where
from oracles.prover.reachability.statements import ContestError
from oracles.prover.reachability.sync import grid_barrier
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site

RUNS = 200
"""Executions that are tried at most."""


class Point(NamedTuple):
    """What events synchronise by: a phase of a barrier, a value of a semaphore."""

    sync: tuple[Hashable, ...]
    phase: int

    @property
    def of_warp(self) -> bool:
        """Whether only threads of a warp meet there."""
        return self.sync[0] == "warp"


class Touch(NamedTuple):
    """Memory that an event uses; `ends_later` if an engine does that after the event."""

    where: Where
    writes: bool
    ends_later: bool


@dataclass(slots=True, eq=False)
class Event:
    """A statement, executed once by threads of one kind (`agent`), in iteration `when`.

    `values` are its control expressions as numbers, `previous` is the number of the last event of
    these threads.  It lets others go on by what it `arrives` at; what it `waits` for let it go on.
    `state` is that of its barrier afterwards, or what it lacks, if it waits forever.
    """

    number: int
    previous: int
    agent: int
    site: Site
    k: int
    when: str
    values: dict[str, int]
    arrives: set[Point] = field(default_factory=set)
    waits: set[Point] = field(default_factory=set)
    touches: list[Touch] = field(default_factory=list)
    state: str = ""

    @property
    def stmt(self) -> kir.Stmt:
        """The statement."""
        return self.site.stmt

    @property
    def text(self) -> str:
        """What it does, with numbers in place of expressions."""
        return " ".join(filter(None, (short(self.stmt, self.values), self.when)))

    @property
    def syncs(self) -> set[tuple[Hashable, ...]]:
        """The barriers and semaphores that it uses, those of warps aside."""
        return {point.sync for point in self.arrives | self.waits if not point.of_warp}


class FoundError(Exception):
    """The event that has just been appended is wrong: what comes after it is of no interest."""


class Log:
    """All events so far, and the `stuck` ones: those at which threads wait forever.

    `made` has the last two events by the number that the engine has for them, `state` is that in
    which the execution ends.
    """

    def __init__(self, world: World, findings: Findings, state: State) -> None:
        self.world, self.findings = world, findings
        self.state = state
        self.events: list[Event] = []
        self.stuck: list[Event] = []
        self.made: dict[int, tuple[Event, ...]] = {}
        self._when: dict[int, object] = {}
        self._phases: dict[Where, int] = {}
        self._met: dict[tuple[Hashable, ...], int] = {}

    def copy(self, state: State) -> Log:
        """Return a log that goes on in another state."""
        new = Log(self.world, self.findings, state)
        own = {name: copy(held) for name, held in vars(self).items() if type(held) in (dict, list)}
        vars(new).update(own)
        return new

    def add(self, state: State, a: Agent, do: Do, k: int) -> None:
        """Append a statement that has been executed.

        Raises
        ------
        FoundError
            If it is wrong.
        """
        event = self._event(a, do, k)
        self.events.append(event)
        self._meet(event, a)
        self._count(state, event, a)
        for fact, when in state.when.items():
            if self._when.get(fact) is not when:
                self._when[fact] = when
                self.made[fact] = (*self.made.get(fact, ()), event)[-2:]
        event.touches = [
            Touch(where, e.writes, e.engine)
            for where, entries in state.memory.items()
            for e in entries
            if self.made.get(e.event, ())[-1:] == (event,) and e.site == do.site.index
        ]
        if self.findings.failed:
            raise FoundError

    def _event(self, a: Agent, do: Do, k: int) -> Event:
        values = {name: value(a.env) for name, value in do.values.items()}
        when, agent = iteration(do.site, k), a.kind.index
        previous = next((e.number for e in reversed(self.events) if e.agent == agent), -1)
        return Event(len(self.events), previous, agent, do.site, k, when, values)

    def block(self) -> None:
        """Note at what each kind of threads waits forever, and what that lacks."""
        for a in self.state.agents:
            program = self.world.code.programs[a.kind.index]
            do = None if a.done or a.at >= len(program) else program[a.at]
            if isinstance(do, Do):
                event = self._event(a, do, a.k)
                event.state = self._lacking(event, a)
                self.stuck.append(event)

    def _lacking(self, event: Event, a: Agent) -> str:
        match event.stmt:
            case kir.MBarrierWaitParity(barrier):
                where = a.kind.cta, barrier.name, event.values["bar"]
                phase = self.state.phases.get(where)
                event.waits.add(Point(where, phase.count if phase is not None else 0))
                if phase is None:
                    return "no phase has begun"
                if phase.nbytes < 0:
                    return f"{-phase.nbytes} bytes more come than phase {phase.count} expects"
                parts = [f"{phase.pending} of {phase.arrivals} arrivals"] if phase.pending else []
                parts += [f"{phase.nbytes} bytes"] if phase.nbytes else []
                return f"{' and '.join(parts)} of phase {phase.count} are missing"
            case kir.BlockSync(number, threads):
                event.waits.add(Point(("barrier", a.kind.cta, number), 0))
                turn = self.state.barriers.get((a.kind.cta, number))
                return f"{threads - (turn.count if turn else 0)} of {threads} threads are missing"
            case kir.GridSync(semaphore):
                turn = self.state.barriers.get(grid_barrier(self.world.kernel, semaphore))
                count, threads = (turn.count, turn.threads) if turn else (0, 0)
                return f"{threads - count} of {threads} threads are missing"
            case kir.LastArriving():
                return "another CTA never arrives"
            case kir.BlockSerializeWait():
                return "nobody gives this turn"
            case _:
                return "nobody lets it go on"

    def _count(self, state: State, event: Event, a: Agent) -> None:
        """Note which phase of an mbarrier an event belongs to."""
        barrier, values = getattr(event.stmt, "barrier", None), event.values
        mask = values.get("cast", 1 << values.get("cta", a.kind.cta))
        for cta in range(self.world.ctas if isinstance(barrier, kir.MBarrier) else 0):
            where = cta, getattr(barrier, "name", ""), values.get("bar", -1)
            before, phase = self._phases.get(where, 0), state.phases.get(where)
            if phase is None or not mask >> cta & 1:
                continue
            if isinstance(event.stmt, kir.MBarrierWaitParity):
                event.waits.add(Point(where, phase.count - 1))
                event.state = f"phase {phase.count - 1} is complete"
                if phase.count == 0:
                    event.state = "passes: no phase has run yet"
                continue
            event.arrives.add(Point(where, before))
            if phase.count > before:
                event.state = f"completes phase {before} of {where[1]}[{where[2]}]"
            else:
                came = phase.arrivals - phase.pending
                event.state = f"phase {before}: {came} of {phase.arrivals} arrivals"
                event.state += f", {phase.nbytes} bytes to come" if phase.nbytes else ""
        self._phases |= {where: phase.count for where, phase in state.phases.items()}

    def _meet(self, event: Event, a: Agent) -> None:
        """Note whom an event meets at a barrier of threads, or at a semaphore."""
        cta, threads = a.kind.cta, event.site.place.warps * kir.WARP
        match event.stmt:
            case kir.BlockSync(number, threads):
                self._join(event, ("barrier", cta, number), a.kind.count, threads)
            case kir.NamedArrive(number, threads):
                self._join(event, ("barrier", cta, number), a.kind.count, threads)
                event.waits.clear()
            case kir.BlockSerializeWait(semaphore):
                self._join(event, ("wait", cta), a.kind.count, threads)
                event.waits.add(Point(("semaphore", semaphore.name), event.values["turn"]))
            case kir.BlockSerializeRelease(semaphore):
                event.arrives.add(Point(("semaphore", semaphore.name), event.values["turn"]))
            case kir.GridSync(semaphore):
                many = event.values["ctas"] * threads
                self._join(event, ("grid", semaphore.name), a.kind.count, many)
            case kir.LastArriving(semaphore):
                self._join(event, ("last", cta), a.kind.count, threads)
                side = event.waits if event.values["last"] else event.arrives
                side.add(Point(("semaphore", semaphore.name), 0))
            case kir.WarpSync() | kir.Wgmma() | kir.AsyncAwait(kir.AsyncKind.WGMMA):
                self._join(event, ("warp", a.kind.index & ~1), 1, 2)
            case kir.ClusterArrive():
                many = self.world.kernel.threads * self.world.kernel.cluster
                self._join(event, ("cluster",), a.kind.count, many)
                event.waits.clear()
            case kir.ClusterWait():
                mine = "cluster", a.kind.index
                event.waits.add(Point(("cluster",), self._met.get(mine, 0)))
                self._met[mine] = self._met.get(mine, 0) + 1
            case _:
                pass

    def _join(self, event: Event, sync: tuple[Hashable, ...], count: int, of: int) -> None:
        so_far = self._met.get(sync, 0)
        self._met[sync] = so_far + count
        point = Point(sync, so_far // max(of, 1))
        event.arrives.add(point)
        event.waits.add(point)

    def arriving(self, point: Point) -> list[int]:
        """Return the events by which others go on from a point."""
        return [event.number for event in self.events if point in event.arrives]

    def path(self, first: int, second: int) -> list[int]:
        """Return the events by which `second` depends on `first`, by the fewest handshakes.

        Between two of them stand only events of the same threads; none if it does not depend.
        """
        best: dict[int, tuple[tuple[int, int], int]] = {second: ((0, 0), -1)}
        todo = [((0, 0), second)]
        while todo:
            (met, length), at = heapq.heappop(todo)
            if at == first:
                break
            event = self.events[at]
            before = [(event.previous, met)] if event.previous >= 0 else []
            before += [(n, met + 1) for p in sorted(event.waits, key=str) for n in self.arriving(p)]
            for to, cost in before:
                price = cost, length + 1
                if to not in best or price < best[to][0]:
                    best[to] = price, at
                    heapq.heappush(todo, (price, to))
        way = [first] if first in best else []
        while way and way[-1] != second:
            way.append(best[way[-1]][1])
        agents = [self.events[n].agent for n in way]
        return [
            n for i, n in enumerate(way)
            if n in (first, second) or len({*agents[max(i - 1, 0) : i + 2]}) > 1
        ]  # fmt: skip

    def trips(self) -> tuple[tuple[str, int], ...]:
        """Return the trip counts, by the `Let` of that value, else by the loop."""
        names: dict[int, str] = {}
        code = self.world.code
        for kind, program in zip(code.kinds, code.programs, strict=True):
            for i in program:
                loop = i.site.stmt if isinstance(i, Enter) and i.atom not in names else None
                if isinstance(i, Enter) and isinstance(loop, kir.ForLoop):
                    name = loop.stop.name if isinstance(loop.stop, Var) else f"trips of {i.name}"
                    if name in names.values():
                        name += f" of CTA {kind.cta}" if kind.cta else f" ({i.name})"
                    names[i.atom] = name
        pinned = sorted(self.world.pinned.items())
        return tuple((names[atom], trips) for atom, trips in pinned if atom in names)


def refuting(kernel: kir.Kernel, *, policy: str) -> Log | None:
    """Return the execution with the smallest trip counts that goes wrong, None if none is found."""
    for some in chain([kernel], _parts(kernel)):
        try:
            violations = fixpoint.judge(some, policy=policy).violations
        except UnsupportedError:
            if not cases(kernel):
                raise
            continue
        trips = min((v.trips for v in violations), default=0)
        for one in _explorations(some, policy, trips) if violations else ():
            try:
                log = _followed(one)
            except UnsupportedError:
                # A CTA with no place among those that take turns: one at each place is followed.
                continue
            if log is not None:
                return log
    for one in _in_launch(kernel, policy) if cases(kernel) else ():
        try:
            log = _followed(one)
        except UnsupportedError:
            continue
        if log is not None:
            return log
    return None


def _parts(kernel: kir.Kernel) -> Iterator[kir.Kernel]:
    """Yield the cases of a kernel that have its lines: not those whose loops are joined."""
    lines = tuple(range(sum(1 for _ in kernel.walk())))
    yield from (case.kernel for case in cases(kernel) if case.origin == lines)


def _in_launch(kernel: kir.Kernel, policy: str) -> Iterator[fixpoint.Exploration]:
    """Yield the CTAs of a launch that shows what is wrong, every number being known."""
    launch = fixpoint.showing(kernel, 1, policy=policy)
    if launch is None:
        return
    known: dict[Expr, Expr] = {var: launch.params[var.name] for var in kernel.params}
    known[kir.GRID] = launch.grid
    for fixed in islice(crews(kernel, known, launch.grid), fixpoint.CTAS):
        world = World(assemble(kernel, fixed), policy, together=len(fixed) > kernel.cluster)
        one = fixpoint.Exploration(world, single_arrivals=True)
        one.stands()
        yield one


def _explorations(kernel: kir.Kernel, policy: str, most: int) -> Iterator[fixpoint.Exploration]:
    """Yield the kernel with all trip counts known, the smallest first, those of the proof last."""
    whole = (*readings(kernel), *single(kernel))
    every = [(r, fixpoint.opened(kernel, r, policy=policy).world.code) for r in whole]
    names = max(len(code.counts) for _, code in every)
    top = most if names < 2 else max(most, 2)
    small = (one for n in range(top + 1) for one in _with_largest(n, names))
    runs = ((counts, *one) for counts in small for one in every)
    for counts, reading, code in (*islice(runs, RUNS), *(((most,) * names, *one) for one in every)):
        pinned = dict(zip(sorted(code.counts), counts, strict=False))
        world = fixpoint.opened(kernel, reading, policy=policy, pinned=pinned).world
        if all(n >= world.least.get(atom, 0) for atom, n in pinned.items()):
            one = fixpoint.Exploration(world, single_arrivals=True)
            one.stands()
            yield one


def _with_largest(most: int, names: int) -> list[tuple[int, ...]]:
    """Return the choices of counts of which the largest is `most`, those with small sums first."""
    counts = (c for c in product(range(most + 1), repeat=names) if max(c, default=0) == most)
    return sorted(counts, key=lambda c: (sum(c), [-n for n in c]))


def _followed(one: fixpoint.Exploration) -> Log | None:
    """Follow every way through a kernel with known trip counts until one goes wrong."""
    todo = [Log(one.world, one.findings, one.start())]
    while todo:
        log = todo.pop()
        execution = one.execution(log.state)
        execution.log = log.add
        ways: list[State] = []
        try:
            while not one.findings.failed:
                execution.settle()
                if execution.over():
                    log.block()
                    break
                log.state.pass_gate()
        except FoundError:
            pass
        except (ForkError, ChoiceError) as error:
            ways = execution.ways_on(error)
        except ContestError as contest:
            ways = contest.states
        if one.findings.failed:
            return log
        todo += [log.copy(way) for way in ways]
    return None
