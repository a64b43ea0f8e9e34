"""One execution, step by step, and how its steps depend on each other.

Only for telling: the order of events is judged in `state`, by sets of events.  Here a step
depends on the last one of its threads, and on those that let it go on: the arrivals of the phase
it waited for, the threads it met.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

from fuser.kernel import ir as kir
from oracles.prover.reachability.program.code import Do, Site
from oracles.prover.reachability.state import Agent, State, Where
from oracles.prover.reachability.world import World

Token = tuple[Hashable, ...]
"""What steps meet by: a phase of a barrier, a turn of a named barrier."""


class FoundError(Exception):
    """The step that has just been executed is wrong: what comes after it is of no interest."""


@dataclass(slots=True)
class Step:
    """A statement, executed once by threads of one kind.

    Parameters
    ----------
    number : int
        Place in the execution.
    agent : int
        Kind of threads.
    k : int
        Iteration of the innermost loop, -1 outside of loops.
    values : dict of name to int
        The statement's control expressions, as numbers.
    gives, takes : set of Token
        What it lets others go on by, and what let it go on.
    touches : list of (place, whether it writes, whether it ends later)
        Memory that it uses.
    phase : str
        State of its barrier afterwards.
    """

    number: int
    agent: int
    site: Site
    k: int
    values: dict[str, int]
    gives: set[Token] = field(default_factory=set)
    takes: set[Token] = field(default_factory=set)
    touches: list[tuple[Where, bool, bool]] = field(default_factory=list)
    phase: str = ""

    @property
    def stmt(self) -> kir.Stmt:
        """The statement."""
        return self.site.stmt


class Trail:
    """All steps so far.

    `born` says which step an event is of, `earlier` which one its number was of before; `last` is
    the state in which the execution ends, `stuck` if nobody could go on.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps: list[Step] = []
        self.born: dict[int, int] = {}
        self.earlier: dict[int, int] = {}
        self.stuck = False
        self.last: State | None = None
        self._seen: dict[int, tuple[int, int]] = {}
        self._phases: dict[Where, int] = {}
        self._met: dict[Token, int] = {}

    def copy(self) -> Trail:
        """Return a trail that goes its own way."""
        new = Trail(self.world)
        new.steps, new.born, new.earlier = list(self.steps), dict(self.born), dict(self.earlier)
        new._seen, new._phases = dict(self._seen), dict(self._phases)
        new._met = dict(self._met)
        return new

    def add(self, state: State, a: Agent, do: Do, k: int) -> None:
        """Take note of a statement, which has been executed.

        Raises
        ------
        FoundError
            If it is wrong.
        """
        values = {name: value(a.env) for name, value in do.values.items()}
        step = Step(len(self.steps), a.kind.index, do.site, k, values)
        self._meet(step, a)
        self._count(state, step, a)
        for event, when in state.when.items():
            if self._seen.get(event) is not when:
                self._seen[event] = when
                if event in self.born:
                    self.earlier[event] = self.born[event]
                self.born[event] = step.number
        for where, entries in state.memory.items():
            for e in entries:
                if self.born.get(e.event) == step.number and e.site == do.site.index:
                    step.touches.append((where, e.writes, e.engine))
        self.steps.append(step)
        if self.world.failed:
            raise FoundError

    def _count(self, state: State, step: Step, a: Agent) -> None:
        """Note which phase of a barrier the step belongs to."""
        barrier = getattr(step.stmt, "barrier", None)
        if isinstance(barrier, kir.MBarrier) and "bar" in step.values:
            for cta in _ctas(step, a, self.world.ctas):
                where = cta, barrier.name, step.values["bar"]
                before = self._phases.get(where, 0)
                phase = state.phases.get(where)
                if phase is None:
                    continue
                name = f"{barrier.name}[{where[2]}]"
                if isinstance(step.stmt, kir.MBarrierWaitParity):
                    step.takes.add(("phase", where, phase.count - 1))
                    step.phase = f"phase {phase.count - 1} is complete"
                    if phase.count == 0:
                        step.phase = "passes: no phase has run yet"
                    continue
                step.gives.add(("phase", where, before))
                if phase.count > before:
                    step.phase = f"completes phase {before} of {name}"
                else:
                    came = phase.arrivals - phase.pending
                    step.phase = f"phase {before}: {came} of {phase.arrivals} arrivals"
                    if phase.nbytes:
                        step.phase += f", {phase.nbytes} bytes to come"
        for where, phase in state.phases.items():
            self._phases[where] = phase.count

    def _meet(self, step: Step, a: Agent) -> None:
        """Note whom the step meets at a barrier of threads."""
        cta, index = a.kind.cta, a.kind.index
        kernel = self.world.kernel
        threads = step.site.place.warps * kir.WARP
        match step.stmt:
            case kir.BlockSync(number, threads):
                self._join(step, ("barrier", cta, number), a.kind.count, threads)
            case kir.NamedArrive(number, threads):
                self._join(step, ("barrier", cta, number), a.kind.count, threads)
                step.takes.clear()
            case kir.BlockSerializeWait(semaphore):
                self._join(step, ("turn", cta), a.kind.count, threads)
                step.takes.add(("semaphore", semaphore.name, step.values["turn"]))
            case kir.GridSync(semaphore):
                many = step.values["ctas"] * threads
                self._join(step, ("grid", semaphore.name), a.kind.count, many)
            case kir.LastArriving(semaphore):
                self._join(step, ("last", cta), a.kind.count, threads)
                if step.values["last"]:
                    step.takes.add(("semaphore", semaphore.name, 0))
                else:
                    step.gives.add(("semaphore", semaphore.name, 0))
            case kir.BlockSerializeRelease(semaphore):
                step.gives.add(("semaphore", semaphore.name, step.values["turn"]))
            case kir.WarpSync() | kir.Wgmma() | kir.AsyncAwait(kir.AsyncKind.WGMMA):
                self._join(step, ("warp", index & ~1), 1, 2)
            case kir.ClusterArrive():
                self._join(step, ("cluster",), a.kind.count, kernel.threads * kernel.cluster)
                step.takes.clear()
            case kir.ClusterWait():
                mine = "waits", index
                turn = self._met.get(mine, 0)
                self._met[mine] = turn + 1
                step.takes.add(("cluster", turn))
            case _:
                pass

    def _join(self, step: Step, key: Token, count: int, of: int) -> None:
        so_far = self._met.get(key, 0)
        self._met[key] = so_far + count
        token = (*key, so_far // max(of, 1))
        step.gives.add(token)
        step.takes.add(token)

    def path(self, first: int, second: int) -> list[int] | None:
        """Return the steps by which `second` depends on `first`, by the fewest handshakes.

        Between two of them stand only steps of the same threads; None if it does not depend.
        """
        gives: dict[Token, list[int]] = {}
        last: dict[int, int] = {}
        before: list[int] = []
        for step in self.steps:
            before.append(last.get(step.agent, -1))
            last[step.agent] = step.number
            for token in step.gives:
                gives.setdefault(token, []).append(step.number)
        best: dict[int, tuple[float, int, bool]] = {second: (0.0, -1, False)}
        todo = [(0.0, second)]
        while todo:
            cost, at = heapq.heappop(todo)
            if at == first:
                break
            if cost > best[at][0]:
                continue
            ways = [(before[at], 0.001, False)] if before[at] >= 0 else []
            ways += [
                (giver, 1.0, True)
                for token in self.steps[at].takes
                for giver in gives.get(token, ())
            ]
            for to, price, met in ways:
                if to not in best or cost + price < best[to][0]:
                    best[to] = cost + price, at, met
                    heapq.heappush(todo, (cost + price, to))
        if first not in best:
            return None
        out, at = [first], first
        while at != second:
            _, to, met = best[at]
            if met:
                out += [at, to]
            at = to
        return list(dict.fromkeys([*out, second]))

    def of(self, token: Token) -> list[int]:
        """Return the steps that others go on by, for one phase or turn."""
        return [step.number for step in self.steps if token in step.gives]


def _ctas(step: Step, a: Agent, many: int) -> list[int]:
    """Return the CTAs whose barrier a step uses."""
    if "cast" in step.values:
        return [cta for cta in range(many) if step.values["cast"] >> cta & 1]
    if isinstance(step.stmt, kir.MBarrierArrive) and "cta" in step.values:
        return [step.values["cta"]]
    return [a.kind.cta]
