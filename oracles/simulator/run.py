"""CTAs stepped through one schedule: an action per statement, and what must hold at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fuser.kernel import ir as kir
from oracles.simulator.machine import (
    GROUPS,
    READ_DONE,
    WRITE_DONE,
    Agent,
    Flight,
    Machine,
    Step,
    Violation,
    place,
)
from oracles.simulator.memory import registers
from oracles.simulator.memory.access import Tensors
from oracles.simulator.memory.moves import Memory
from oracles.simulator.memory.ops import Array
from oracles.simulator.memory.tensor_cores import Tensorcores
from oracles.simulator.prepare import Prepared
from oracles.simulator.schedule import Choices, Following, Given, Order, Schedule
from oracles.simulator.sync.clock import fresh
from oracles.simulator.sync.joins import GRID, REGISTERS, TURN, Joins, whole_groups
from oracles.simulator.sync.mbarriers import Phases
from oracles.simulator.unroll import Event
from oracles.verdict import Finding

TRACE = 14
"""Steps that a witness shows before the one that failed."""


_BY_MATRIX = (kir.Load, kir.Store)
"""Statements that a warp may execute as a whole."""


class Run:
    """CTAs that run together (`blocks`, whole clusters, rising), under one schedule.

    It is drawn by the seed, unless there are choices.  `findings` are warnings so far; `go` adds
    the errors, with which the run ends; `broken` is what ended it early.  `checked` counts
    accesses, synchronisations and ends; `accesses` these alone.
    """

    def __init__(
        self,
        prepared: Prepared,
        tensors: Tensors,
        scalars: Mapping[str, Array],
        blocks: tuple[int, ...],
        seed: int,
        choices: Given | None,
        *,
        strict: bool,
    ) -> None:
        agents = prepared.agents(blocks)
        kernel = prepared.kernel
        self.blocks = blocks
        self.machine = machine = Machine(kernel, prepared.named, agents, self._warn)
        self.log = machine.log
        self.phases = Phases(machine)
        self.joins = Joins(machine, prepared.counts, lambda: self.schedule.sees_earlier())
        self.memory = Memory(tensors, machine, self.phases, scalars, strict=strict)
        self.cores = Tensorcores(machine, self.joins, self.memory)
        self._multiplies = prepared.multiplies
        self._moves: dict[type, Callable[[Agent, Event, Any], None]] = {
            kir.Compute: self._compute,
            kir.Load: self.memory.load,
            kir.Store: self.memory.store,
            kir.AtomicAdd: self.memory.atomic_add,
            kir.Gather: self.memory.gather,
            kir.Coordinate: registers.coordinate,
            kir.Slice: registers.slice_columns,
            kir.Unpack: registers.unpack,
        }
        clusters = len(blocks) // kernel.cluster
        drawn = kernel.residency == "ticket"
        self.schedule: Schedule | Choices | Following
        if choices is None:
            many = clusters if drawn else 1
            self.schedule = Schedule(seed, blocks[0], agents, many, prepared.together)
        elif isinstance(choices, Order):
            self.schedule = Following(choices, clusters)
        else:
            self.schedule = Choices(choices, clusters)
        self.findings: list[Finding] = []
        self.checked = 0
        self.accesses = 0
        self.broken: Violation | None = None
        self.waiting = list(range(clusters))
        self.actor: Agent | Flight | None = None
        self.event: Event | None = None
        self._ran = (-1, -1), 0
        """Clusters that have started and not ended, behind what that hangs on."""
        self._warned: set[tuple[str, int, int]] = set()

    def go(self) -> bool:
        """Move until nobody can or a rule breaks; tell whether none was broken."""
        everybody = self.machine.kernel.residency != "ticket"
        while everybody and self.waiting:
            self._admit()
        try:
            with np.errstate(all="ignore"):
                while self._move():
                    pass
        except Violation as broken:
            self.broken = broken
            self.findings.append(self._finding(broken))
        self.accesses = self.memory.checked
        self.checked += self.accesses
        return self.broken is None

    def _move(self) -> bool:
        if self.waiting and self._running() < self.schedule.slots:
            idle = not self.machine.ready and not self.machine.flights
            if idle or self.schedule.admits():
                self._admit()
        actor = self.schedule.pick(self.machine)
        if actor is None:
            return bool(self.waiting) and self._running() < self.schedule.slots
        self.actor = actor
        if isinstance(actor, Flight):
            self._advance(actor)
        else:
            self._step(actor, self.schedule.burst())
        return True

    def _admit(self) -> None:
        cluster = self.machine.kernel.cluster
        first = self.waiting.pop(0) * cluster
        for cta in range(first, first + cluster):
            self.machine.start(cta)

    def _running(self) -> int:
        """Return how many clusters have started and not ended: the same until one does."""
        key = len(self.waiting), int(np.count_nonzero(self.machine.columns.ended))
        if key != self._ran[0]:
            self._ran = key, self._started()
        return self._ran[1]

    def _started(self) -> int:
        started = len(self.blocks) // self.machine.kernel.cluster - len(self.waiting)
        live = {
            agent.cta // self.machine.kernel.cluster
            for agent in self.machine.agents
            if agent.pc < len(agent.program)
        }
        return sum(1 for cluster in live if cluster < started)

    def _advance(self, flight: Flight) -> None:
        self.event = flight.event
        last = len(flight.steps) == 1
        if last:
            self.machine.flights.remove(flight)
        flight.steps.pop()()
        if last and not flight.product:
            flight.start = fresh(0)  # nobody asks any more; of many copies it is most of the memory

    def _step(self, agent: Agent, burst: int) -> None:
        flights = len(self.machine.flights)
        for _ in range(burst):
            self.event = event = agent.program[agent.pc]
            if not self._act(agent, event):
                return
            agent.pc += 1
            if agent.pc == len(agent.program):
                self.machine.retire(agent)
                return
            if len(self.machine.flights) > flights:
                return

    def _act(self, agent: Agent, event: Event) -> bool:
        """Execute one statement; False where the agent is blocked, or was moved on by another."""
        stmt = event.stmt
        move = self._moves.get(type(stmt))  # most statements, and found sooner than by a match
        if move is not None and not (isinstance(stmt, _BY_MATRIX) and stmt.matrix):
            if self._multiplies:
                self.cores.access(agent, stmt)
            move(agent, event, stmt)
            return True
        machine, memory, phases = self.machine, self.memory, self.phases
        if isinstance(stmt, kir.OnSemaphore):
            machine.alone(agent, f"{stmt.semaphore.name}[{event.slot}]")
        match stmt:
            case kir.Load(matrix=True) | kir.Store(matrix=True):
                what = "ldmatrix" if isinstance(stmt, kir.Load) else "stmatrix"
                return self._in_step(agent, event, what, lambda p: memory.matrix(p, event, stmt))
            case kir.MBarrierWaitParity(ring, _, _, scope, retry):
                barrier = phases.barrier(ring, event.slot, agent.cta)
                if not retry:
                    phases.use(agent, barrier)  # the one try gives up
                    return self._note(agent, event, "gives up")
                passed = phases.wait(agent, barrier, event.parity, scope)
                return passed and self._note(agent, event, barrier.state)
            case kir.MBarrierArrive(ring, _, scope, cta, times, space):
                target = agent.cta if cta is None else machine.peer(agent, event.extra)
                barrier = phases.barrier(ring, event.slot, target)
                phases.arrive(agent, barrier, 0, scope, event, times, space)
                self._note(agent, event, barrier.state)
            case kir.MBarrierArriveExpectTx(ring):
                barrier = phases.barrier(ring, event.slot, agent.cta)
                phases.arrive(agent, barrier, event.extra, kir.Scope.CTA, event)
                self._note(agent, event, barrier.state)
            case kir.MBarrierExpectTx(ring):
                barrier = phases.barrier(ring, event.slot, agent.cta)
                phases.expect(agent, barrier, event.extra)
                self._note(agent, event, barrier.state)
            case kir.WarpSync():
                return self.joins.warp_sync(agent, event) and self._note(agent, event)
            case (
                kir.BlockSync() | kir.NamedArrive() | kir.BlockSerializeWait() | kir.LastArriving()
            ):
                self._note(agent, event)
                return self.joins.arrive(agent, event)
            case kir.TmaLoad():
                self.memory.tma_load(agent, event, stmt)
            case kir.TmaStore() | kir.TmaReduce():
                self.memory.tma_store(agent, event, stmt)
            case kir.TensorMapReplace(ref):
                machine.alone(agent, ref.maps.name)
                memory.maps.replace(agent, event, stmt)
                self._note(agent, event)
            case kir.TensorMapRelease():
                memory.maps.release(agent)
                self._note(agent, event)
            case kir.TensorMapAcquire(maps):
                memory.maps.acquire(agent, event, maps)
                self._note(agent, event)
            case kir.CpAsync():
                self.memory.cp_async(agent, event, stmt)
            case kir.QueueCopy():
                self.memory.queue_copy(agent, event, stmt)
            case kir.StAsync():
                if self._multiplies:
                    self.cores.access(agent, stmt)
                self.memory.store_async(agent, event, stmt)
            case kir.CpAsyncMBarrierArrive():
                self.memory.arrive_after(agent, event, stmt)
                self._note(agent, event)
            case kir.Wgmma():
                return self.cores.wgmma(agent, event, stmt)
            case kir.WgmmaFence():
                whole_groups(event, machine.kernel, "wgmma.fence", full=True)
                passed = self._in_step(agent, event, "wgmma.fence", self.cores.fence)
                return passed and self._note(agent, event)
            case kir.Reduce():
                reduce = partial(registers.reduce, event=event, stmt=stmt)
                return self._in_step(agent, event, "reduce", reduce)
            case kir.Scan():
                scan = partial(registers.scan, event=event, stmt=stmt)
                return self._in_step(agent, event, "scan", scan)
            case kir.Mma():
                if self._multiplies:
                    self.cores.access(agent, stmt)
                return self._in_step(agent, event, "mma", lambda p: self.cores.mma(p, event, stmt))
            case kir.AsyncCommit(kir.AsyncKind.WGMMA as kind):
                commit = agent.groups(kind).commit
                return self._in_step(agent, event, "wgmma.commit_group", lambda _: commit())
            case kir.AsyncCommit(kind):
                agent.groups(kind).commit()
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, keep):
                return self.cores.await_groups(agent, event, keep) and self._note(agent, event)
            case kir.AsyncAwait(kind, keep, read_only):
                passed = self._await(agent, kind, keep, read_only=read_only)
                return passed and self._note(agent, event)
            case kir.FenceAsyncProxy(space):
                agent.fence_proxy(space)
                self._note(agent, event)
            case kir.ThreadFence(scope):
                agent.fence_thread(scope)
                self._note(agent, event)
            case kir.FenceMBarrierInit():
                phases.fence_inits(agent)
            case kir.MBarrierInit(ring):
                memory.barrier_bytes(agent, event, ring, live=True)
                phases.init(agent, ring)
                self._note(agent, event)
            case kir.MBarrierInvalidate(ring):
                phases.invalidate(agent, ring)
                memory.barrier_bytes(agent, event, ring, live=False)
                self._note(agent, event)
            case kir.GridDependencyWait():
                machine.outlasts(agent)
                self._note(agent, event)
            case kir.GridDependencyLaunch():
                self._note(agent, event)
            case kir.SetMaxNReg():
                return self.joins.set_registers(agent, event, stmt) and self._note(agent, event)
            case kir.ClusterArrive(relaxed):
                self._note(agent, event)
                self.joins.cluster_arrive(agent, event, relaxed=relaxed)
            case kir.ClusterWait():
                return self.joins.cluster_wait(agent, event) and self._note(agent, event)
            case kir.BlockSerializeRelease():
                self.joins.release(agent, stmt, event)
                self._note(agent, event)
            case kir.GridSync(semaphore, barrier=number):
                self._note(agent, event)
                self.joins.grid_sync(agent, event, semaphore, number)
                return False
            case kir.Draw() | kir.Fetch():
                self.memory.number(agent, event, stmt)
            case (
                kir.Compute() | kir.Load() | kir.Store() | kir.AtomicAdd() | kir.Coordinate()
                | kir.Slice() | kir.Unpack() | kir.Gather()
            ):  # fmt: skip
                raise AssertionError("these were executed above")
            case (
                kir.Let() | kir.Assign() | kir.ForLoop() | kir.IfThenElse() | kir.Role()
                | kir.Elect() | kir.Copy() | kir.GridSum() | kir.GridShare() | kir.Loop()
                | kir.Leave()
            ):  # fmt: skip
                raise AssertionError("structure was unrolled, and copies without end refused")
        return True

    def _compute(self, agent: Agent, event: Event, stmt: kir.Compute) -> None:
        registers.compute(agent, event, stmt, self.memory.scalars)

    def _in_step(
        self, agent: Agent, event: Event, what: str, act: Callable[[tuple[Agent, Agent]], None]
    ) -> bool:
        """Act for a warp that executes a statement in step, once its second half is there."""
        other = self.joins.converge(agent, event, what)
        if other is None:
            return False
        if self._multiplies:
            self.cores.access(agent, event.stmt)
        act((agent, other))
        self.machine.wake(other, passed=True)
        return True

    def _await(self, agent: Agent, kind: kir.AsyncKind, keep: int, *, read_only: bool) -> bool:
        """Wait until all but the latest `keep` groups of this thread are read, or performed."""
        groups = agent.groups(kind)
        upto = READ_DONE if read_only else WRITE_DONE
        old = groups.older(keep, read_only=read_only)
        waits = any(f.done < upto for f in old)
        if kind is kir.AsyncKind.QUEUE:
            waits = sum(f.done < upto for f in groups.left) > keep
            assert waits or all(f.done == upto for f in old), "a queue finishes in order"
        if waits:
            self.machine.block(agent, f"{GROUPS} {old[0].name} and others")
            return False
        for flight in old:
            agent.sees(flight, upto)
        if kind is kir.AsyncKind.CP_ASYNC:
            self.memory.awaited(agent, old)
        groups.forget(keep, read_only=read_only)
        return True

    def _note(self, agent: Agent, event: Event, note: str = "") -> bool:
        """Log a synchronisation that happened; True, so that actions can end with it."""
        self.checked += 1
        self.log.append(Step(agent.name, agent.by, event, note=note))
        return True

    # --- findings -------------------------------------------------------------------------------

    def _finding(self, broken: Violation) -> Finding:
        cta, where = self._where(broken.against)
        says = f"{broken.says}{self.trace(broken.against)}\n    {where}  <- here"
        events = (broken.against.event if broken.against else None, self.event)
        lines = tuple(event.line for event in events if event is not None)
        return Finding(broken.kind, cta + where, says, lines=lines)

    def _where(self, against: Step | None) -> tuple[str, str]:
        """Return the CTA that moves, and the statement with the other party of a conflict."""
        assert self.actor is not None, "findings are about somebody"
        assert self.event is not None, "and about a statement"
        actor = self.actor.issuer if isinstance(self.actor, Flight) else self.actor
        where = place(self.actor.name, self.event)
        if against is not None:
            where += f" against {place(against.name, against.event)}"
        return f"CTA {actor.block}, ", where

    def trace(self, against: Step | None = None) -> str:
        """Return the last steps of the run, and before them the other party's."""
        shown = self.log[-TRACE:]
        first = [] if against is None or against in shown else [f"{against}", "..."]
        rows = [*first, *(str(step) for step in shown)]
        name = self.schedule.name
        return f"\n  last steps, schedule {name!r}:" + "".join(f"\n    {row}" for row in rows)

    def _warn(self, kind: str, says: str, against: Step | None = None) -> None:
        cta, where = self._where(against)
        line = self.event.line if self.event is not None else 0
        key = (kind, line, against.event.line if against else 0)
        if key not in self._warned:
            self._warned.add(key)
            self.findings.append(Finding(kind, cta + where, says, severity="warning"))


def judge_end(run: Run) -> None:
    """Add findings about threads that are stuck, barriers left over, and copies in flight."""
    machine = run.machine
    stuck = [a for a in machine.agents if a.blocked]
    known = len(run.findings)
    _barriers(run, stuck=bool(stuck))
    if stuck:
        # bytes that nobody copies are a cause, those of copies that were not issued are not
        at = len(run.findings) if run.phases.starved() else known
        _error(run, stuck[0].block, *_stuck(run, stuck))
        run.findings.insert(at, run.findings.pop())
        return
    for cta, numbers in enumerate(run.joins.named):
        for named in numbers.values():
            if named.arrived:
                says = f"{named.arrived} of {named.threads} threads have arrived at the end"
                _error(run, run.blocks[cta], "collective", f"barrier {named.number}", says)
    for agent in machine.agents:
        if agent.generation is not None:
            says = "it has arrived at the cluster's barrier and never waits"
            _error(run, agent.block, "collective", agent.name, says)
            break
    _in_flight(run)
    for flight, slot in run.memory.unread():
        where = f"CTA {run.blocks[flight.cta]}, {place(flight.name, flight.event)}"
        says = f"nothing reads {slot} in this launch"
        run.findings.append(Finding("unread", where, says, severity="warning"))
    for (name, index), counter in sorted(run.joins.counters.items()):
        run.checked += 1
        if counter.last.value:
            says = f"it is {counter.last.value} at the end; the next launch expects 0"
            _error(run, run.blocks[0], "semaphore", f"{name}[{index}]", says)
    for (name, index), here in sorted(run.joins.rounds.items()):
        run.checked += 1
        if here.asked is not None:
            says = f"{len(here.came)} of {here.asked.ctas} CTAs have arrived at the end, and none "
            says += "is the last; the next launch expects 0"
            _error(run, run.blocks[here.came[0]], "semaphore", f"{name}[{index}]", says)
    run.checked += len(machine.agents)


def _barriers(run: Run, *, stuck: bool) -> None:
    for cta, rings in enumerate(run.phases.rings):
        for b in [b for ring in rings.values() for b in ring if b.phase >= 0]:
            run.checked += 1
            if b.nbytes:
                missing = "are still expected" if b.nbytes > 0 else "too many have landed"
                says = f"{abs(b.nbytes)} bytes {missing} at the end; {b.state}"
                _error(run, run.blocks[cta], "bytes", f"mbarrier {b.name}", says)
            elif b.pending != b.count and not stuck:
                # a phase that nobody waits for any more confuses nobody
                says = f"a phase is left with {b.count - b.pending} of {b.count} arrivals"
                where = f"CTA {run.blocks[cta]}, mbarrier {b.name}"
                run.findings.append(Finding("arrivals", where, says, severity="warning"))


def _in_flight(run: Run) -> None:
    """Look for what may still use the shared memory of a CTA that has ended."""
    machine = run.machine
    size = len(machine.agents) // machine.ctas
    seen = [machine.columns.newest(cta * size, (cta + 1) * size) for cta in range(machine.ctas)]
    for flight in machine.issued:
        run.checked += 1
        match flight.event.stmt:
            case kir.TmaStore() | kir.TmaReduce():
                owed, what = READ_DONE, "has perhaps not read its shared source"
            case kir.Wgmma():
                owed, what = READ_DONE, "may still read shared memory"
            case _:
                owed, what = WRITE_DONE, "may still write shared memory"
        if seen[flight.cta][flight.by] < flight.base + owed:
            lost = any(flight in flight.issuer.groups(kind).open for kind in kir.AsyncKind)
            why = "it was never committed" if lost else "nobody has awaited this copy"
            says = f"{why} at the exit of the CTA: it {what}"
            where = place(flight.issuer.name, flight.event)
            _error(run, run.blocks[flight.cta], "group" if lost else "exit", where, says)
            return
    for cta, by, count, event in machine.remote:
        run.checked += 1
        if seen[cta][machine.away.start + by] < count:
            says = f"CTA {run.blocks[cta]} may have ended when this reaches its shared memory"
            _error(run, run.blocks[cta], "exit", place(machine.agents[by].name, event), says)
            return


def _stuck(run: Run, stuck: list[Agent]) -> tuple[str, str, str, int]:
    """Return the kind of a standstill, where it is, who waits for what, and the line."""
    kind, first = "deadlock", blamed(run, stuck)
    for agent in stuck:
        if agent.blocked.startswith(REGISTERS):
            kind, first = "registers", agent
        elif _helped_later(run, agent):
            kind, first = "residency", agent
    rows = [
        f"{_here(a)} waits for {a.blocked}" for a in sorted(stuck, key=lambda a: a is not first)
    ]
    if run.waiting:
        rows.append(f"{len(run.waiting)} clusters or CTAs wait for room to start")
    says = f"nobody can move: {rows[0]}" + "".join(f"\n    {row}" for row in rows[1:]) + run.trace()
    return kind, _here(first), says, first.program[first.pc].line


def blamed(run: Run, stuck: list[Agent]) -> Agent:
    """Return of threads that wait forever the one on which the others wait.

    That is one whose phase has got a part of what it waits for, for others wait for what comes
    behind its wait; else one that waits for room in a slot that nobody has used: it is a phase
    ahead.  Without either it is the first thread.
    """
    ahead: list[Agent] = []
    for agent in stuck:
        event = agent.program[agent.pc]
        if isinstance(event.stmt, kir.MBarrierWaitParity):
            barrier = run.phases.barrier(event.stmt.barrier, event.slot, agent.cta)
            if 0 < barrier.pending < barrier.count or not barrier.pending:
                return agent
            ahead += [agent] if not barrier.phase and _fills_unused(run, agent) else []
    return (ahead or stuck)[0]


def _fills_unused(run: Run, agent: Agent) -> bool:
    """Tell whether a thread next loads into a slot that nobody has used."""
    for event in agent.program[agent.pc + 1 :]:
        match event.stmt:
            case kir.TmaLoad(dst):
                atoms = run.memory.whole(dst, event.index, agent.cta)
                return not run.memory.shadow.write_at[atoms].any()
            case kir.MBarrierWaitParity() | kir.Load():
                return False
            case _:
                pass
    return False


def _helped_later(run: Run, agent: Agent) -> bool:
    """Whether a CTA that has not started would release, or join, what this thread waits for."""
    here = agent.program[agent.pc]
    cluster = run.machine.kernel.cluster
    late = [a for a in run.machine.agents if a.cta // cluster in run.waiting]
    for event in (event for other in late for event in other.program if event.slot == here.slot):
        match event.stmt, here.stmt:
            case kir.BlockSerializeRelease(given), kir.BlockSerializeWait(wanted):
                turn = agent.blocked.startswith(TURN) and event.parity == here.parity
                if turn and given == wanted:
                    return True
            case _:
                if agent.blocked.startswith(GRID) and event.stmt is here.stmt:
                    return True
    return False


def _here(agent: Agent) -> str:
    return place(agent.name, agent.program[agent.pc])


def _error(run: Run, block: int, kind: str, where: str, says: str, line: int = 0) -> None:
    lines = (line,) if line else ()
    run.findings.append(Finding(kind, f"CTA {block}, {where}", says, lines=lines))
