"""One CTA stepped through one schedule: every statement of the Kernel IR has its action here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fuser import kernel_ir as kir
from fuser.kernel_text import line
from oracles import machine_ops
from oracles.machine import Machine
from oracles.machine_access import Geometry, Tensors, View, view
from oracles.machine_agent import READ_DONE, WRITE_DONE, Agent, Flight, Step, Violation, place
from oracles.machine_clock import fresh
from oracles.machine_memory import Memory
from oracles.machine_ops import Array
from oracles.machine_schedule import Schedule
from oracles.machine_tile import halves
from oracles.machine_unroll import Event, Position, compile_kernel, position, unroll
from oracles.verdict import Finding

TRACE = 14
"""Steps that a witness shows before the one that failed."""


def unsupported(kernel: kir.Kernel) -> str:
    """Name the first construct that this machine does not model; empty if it models all."""
    if kernel.cluster != 1:
        return f"clusters of {kernel.cluster} CTAs"
    for stmt in kernel.walk():
        if _beyond(stmt):
            return f"`{line(stmt)}` ({type(stmt).__name__})"
    return ""


def _beyond(stmt: kir.Stmt) -> bool:
    match stmt:
        case (
            kir.Copy()
            | kir.TmaReduce()
            | kir.CpAsync()
            | kir.AtomicAdd()
            | kir.Wgmma()
            | kir.Mma()
            | kir.Assign()
            | kir.MBarrierExpectTx()
            | kir.CpAsyncMBarrierArrive()
            | kir.WgmmaFence()
            | kir.ClusterArrive()
            | kir.ClusterWait()
            | kir.BlockSerializeWait()
            | kir.BlockSerializeRelease()
        ):
            return True
        case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
            return kind is not kir.AsyncKind.BULK
        case kir.MBarrierArrive(_, _, _, cta):
            return cta is not None
        case kir.Compute(_, op):
            return not machine_ops.known(op)
        case (
            kir.Let()
            | kir.ForLoop()
            | kir.IfThenElse()
            | kir.Role()
            | kir.Elect()
            | kir.TmaLoad()
            | kir.TmaStore()
            | kir.Load()
            | kir.Store()
            | kir.Coordinate()
            | kir.BlockSync()
            | kir.NamedArrive()
            | kir.WarpSync()
            | kir.MBarrierInit()
            | kir.MBarrierInvalidate()
            | kir.MBarrierArriveExpectTx()
            | kir.MBarrierWaitParity()
            | kir.FenceAsyncProxy()
            | kir.FenceMBarrierInit()
            | kir.ThreadFence()
            | kir.SetMaxNReg()
        ):
            return False


class Prepared:
    """A kernel laid out for one launch; any number of schedules can run on it.

    Parameters
    ----------
    env : mapping of str to int
        Values of the kernel's parameters and of `GRID`.
    """

    def __init__(self, kernel: kir.Kernel, env: Mapping[str, int]) -> None:
        self.kernel = kernel
        self.env = dict(env)
        self.views: dict[str, View] = {t.name: view(t, self.env) for t in kernel.tensors}
        self.nodes = compile_kernel(kernel)
        self.geometry = Geometry(kernel, self.views)
        self._programs: dict[tuple[int, Position], list[Event]] = {}

    def agents(self, block: int) -> list[Agent]:
        """Return the threads of a CTA at their start, two for each warp."""
        agents: list[Agent] = []
        for warp in range(self.kernel.threads // kir.WARP):
            for (lo, hi), lanes in zip(halves(warp), ("lane 0", "lanes 1-31"), strict=True):
                name = f"{self._team(warp)} {lanes}"
                program = self._program(block, warp, lane0=hi - lo == 1)
                agents.append(Agent(len(agents), name, warp, hi - lo, lo, hi, program, fresh(0)))
        return agents

    def _team(self, warp: int) -> str:
        for stmt in self.kernel.body:
            if isinstance(stmt, kir.Role) and 0 <= warp - stmt.first_warp < stmt.warps:
                return f"{stmt.name} warp {warp - stmt.first_warp}"
        return f"warp {warp}"

    def _program(self, block: int, warp: int, *, lane0: bool) -> list[Event]:
        key = (block, position(self.nodes, warp, lane0=lane0))
        if key not in self._programs:
            self._programs[key] = unroll(self.nodes, {**self.env, kir.BLOCK.name: block}, key[1])
        return self._programs[key]


class Run:
    """One CTA under one schedule.

    Parameters
    ----------
    findings : list of Finding
        Warnings so far; `go` adds the errors, with which the run ends.
    checked, accesses : int
        Accesses, synchronisations and ends that were checked; of these, accesses.
    """

    def __init__(
        self,
        prepared: Prepared,
        tensors: Tensors,
        scalars: Mapping[str, Array],
        block: int,
        seed: int,
        *,
        strict: bool,
    ) -> None:
        agents = prepared.agents(block)
        self.block = block
        self.machine = Machine(prepared.kernel, agents, self._warn)
        self.log: list[Step] = []
        self.memory = Memory(
            tensors, block, len(agents), scalars, self.log, self._warn, strict=strict
        )
        self.schedule = Schedule(seed, block, agents)
        self.findings: list[Finding] = []
        self.checked = 0
        self.accesses = 0
        self._warned: set[tuple[str, int, int]] = set()
        self._issued: list[Flight] = []
        self._actor: Agent | Flight | None = None
        self._event: Event | None = None

    def go(self) -> None:
        """Move until nobody can or a rule breaks, then judge the end."""
        try:
            with np.errstate(all="ignore"):
                while (actor := self.schedule.pick(self.machine)) is not None:
                    self._actor = actor
                    if isinstance(actor, Flight):
                        self._advance(actor)
                    else:
                        self._step(actor, self.schedule.burst())
        except Violation as broken:
            self.findings.append(self._finding(broken))
        else:
            self._end()
        self.accesses = self.memory.checked
        self.checked += self.accesses

    def _advance(self, flight: Flight) -> None:
        self._event = flight.event
        if len(flight.steps) == 1:
            self.machine.flights.remove(flight)
        flight.steps.pop()()

    def _step(self, agent: Agent, burst: int) -> None:
        flights = len(self.machine.flights)
        for _ in range(burst):
            self._event = event = agent.program[agent.pc]
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
        machine, memory, stmt = self.machine, self.memory, event.stmt
        match stmt:
            case kir.Compute():
                memory.compute(agent, event, stmt)
            case kir.Load():
                memory.load(agent, event, stmt)
            case kir.Store():
                memory.store(agent, event, stmt)
            case kir.MBarrierWaitParity(ring, _, _, _):
                barrier = machine.barrier(ring, event.slot)
                passed = machine.wait(agent, barrier, event.parity)
                return passed and self._note(agent, event, barrier.state)
            case kir.MBarrierArrive(ring):
                barrier = machine.barrier(ring, event.slot)
                machine.arrive(agent, barrier, 0)
                self._note(agent, event, barrier.state)
            case kir.MBarrierArriveExpectTx(ring, _, nbytes):
                barrier = machine.barrier(ring, event.slot)
                machine.arrive(agent, barrier, nbytes)
                self._note(agent, event, barrier.state)
            case kir.WarpSync():
                return machine.warp_sync(agent) and self._note(agent, event)
            case kir.BlockSync(number, threads):
                self._note(agent, event)
                return machine.named_arrive(agent, number, threads, wait=True)
            case kir.NamedArrive(number, threads):
                self._note(agent, event)
                return machine.named_arrive(agent, number, threads, wait=False)
            case kir.TmaLoad(_, _, ring):
                machine.use(agent, machine.barrier(ring, event.slot))
                flight = self._issue(agent, event)
                memory.begin_load(flight, stmt, self._landing(flight, stmt))
            case kir.TmaStore():
                flight = self._issue(agent, event)
                agent.open_group.append(flight)
                memory.begin_store(flight, stmt, self._finishing(flight))
            case kir.AsyncCommit():
                machine.commit(agent)
            case kir.AsyncAwait(_, keep, read_only):
                passed = machine.await_groups(agent, keep, read_only=read_only)
                return passed and self._note(agent, event)
            case kir.FenceAsyncProxy(space):
                machine.fence(agent, space)
                self._note(agent, event)
            case kir.Coordinate():
                memory.coordinate(agent, event, stmt)
            case kir.MBarrierInit(ring):
                machine.init(agent, ring)
                self._note(agent, event)
            case kir.MBarrierInvalidate(ring):
                machine.invalidate(agent, ring)
                self._note(agent, event)
            case kir.SetMaxNReg(registers):
                if registers % 8 or not 24 <= registers <= 256:
                    raise Violation("registers", f"{registers} is no multiple of 8 in 24..256")
            case kir.FenceMBarrierInit() | kir.ThreadFence():
                pass  # inside one CTA the barriers that follow give the order
            case kir.Let() | kir.ForLoop() | kir.IfThenElse() | kir.Role() | kir.Elect():
                raise AssertionError("structure was unrolled")
            case (
                kir.Copy()
                | kir.TmaReduce()
                | kir.CpAsync()
                | kir.AtomicAdd()
                | kir.Wgmma()
                | kir.Mma()
                | kir.Assign()
                | kir.MBarrierExpectTx()
                | kir.CpAsyncMBarrierArrive()
                | kir.WgmmaFence()
                | kir.ClusterArrive()
                | kir.ClusterWait()
                | kir.BlockSerializeWait()
                | kir.BlockSerializeRelease()
            ):
                raise AssertionError("`unsupported` refuses kernels with these")
        return True

    def _issue(self, agent: Agent, event: Event) -> Flight:
        flight = self.machine.issue(agent, event, self._owed(event))
        self._issued.append(flight)
        return flight

    def _owed(self, event: Event) -> int:
        """Return how much of a copy a thread must have seen before it can touch its memory."""
        match event.stmt:
            case kir.TmaStore(dst):
                read_back = dst.tensor.name in self.memory.geometry.read
                return WRITE_DONE if read_back else READ_DONE
            case _:
                return WRITE_DONE

    def _landing(self, flight: Flight, stmt: kir.TmaLoad) -> Callable[[], None]:
        def land() -> None:
            barrier = self.machine.barrier(stmt.barrier, flight.event.slot)
            self.machine.complete(flight, barrier, stmt.dst.buffer.slot_nbytes)
            self.log.append(Step(flight.name, flight.by, flight.event, note=barrier.state))

        return land

    def _finishing(self, flight: Flight) -> Callable[[int], None]:
        def finish(done: int) -> None:
            note = "source read" if done == READ_DONE else "performed"
            self.log.append(Step(flight.name, flight.by, flight.event, note=note))
            self.machine.finish(flight, done)

        return finish

    def _note(self, agent: Agent, event: Event, note: str = "") -> bool:
        """Log a synchronisation that happened; True, so that actions can end with it."""
        self.checked += 1
        self.log.append(Step(agent.name, agent.by, event, note=note))
        return True

    # --- the end --------------------------------------------------------------------------------

    def _end(self) -> None:
        stuck = [a for a in self.machine.agents if a.blocked]
        for agent in stuck:
            self._error("deadlock", self._here(agent), self._who_waits(stuck))
            break
        barriers = [b for ring in self.machine.barriers.values() for b in ring if b.phase >= 0]
        for b in barriers:
            self.checked += 1
            if b.nbytes:
                missing = "are still expected" if b.nbytes > 0 else "too many have landed"
                says = f"{abs(b.nbytes)} bytes {missing} at the end; {b.state}"
                self._error("bytes", f"mbarrier {b.name}", says)
            elif b.pending != b.count and not stuck:
                says = f"a phase is left with {b.count - b.pending} of {b.count} arrivals"
                self._error("arrivals", f"mbarrier {b.name}", says)
        if stuck:
            return
        for named in self.machine.named:
            if named.arrived:
                says = f"{named.arrived} of {named.threads} threads have arrived at the end"
                self._error("blocksync", f"barrier {named.number}", says)
        seen = self.machine.seen_by_all()
        for flight in self._issued:
            self.checked += 1
            match flight.event.stmt:
                case kir.TmaStore():
                    owed, what = READ_DONE, "has perhaps not read its shared source"
                case _:
                    owed, what = WRITE_DONE, "may still write shared memory"
            if seen[flight.by] < flight.base + owed:
                says = f"nobody has awaited this copy at the exit of the CTA: it {what}"
                self._error("exit", place(flight.issuer.name, flight.event), says)
                return
        self.checked += len(self.machine.agents)

    def _who_waits(self, stuck: list[Agent]) -> str:
        lines = [f"{self._here(a)} waits for {a.blocked}" for a in stuck]
        return "nobody can move:\n" + "\n".join(f"    {text}" for text in lines) + self._trace()

    def _here(self, agent: Agent) -> str:
        return place(agent.name, agent.program[agent.pc])

    def _error(self, kind: str, where: str, says: str) -> None:
        self.findings.append(Finding(kind, f"CTA {self.block}, {where}", says))

    # --- findings -------------------------------------------------------------------------------

    def _finding(self, broken: Violation) -> Finding:
        assert self._actor is not None, "rules are broken by somebody"
        assert self._event is not None, "and by a statement"
        where = place(self._actor.name, self._event)
        if broken.against is not None:
            where += f" against {place(broken.against.name, broken.against.event)}"
        return Finding(
            broken.kind,
            f"CTA {self.block}, {where}",
            f"{broken.says}{self._trace(broken.against)}\n    {where}  <- here",
        )

    def _trace(self, against: Step | None = None) -> str:
        """Return the last steps of the run, and before them the other party's."""
        shown = self.log[-TRACE:]
        first = [] if against is None or against in shown else [f"{against}", "..."]
        rows = [*first, *(str(step) for step in shown)]
        name = self.schedule.strategy.value
        return f"\n  last steps, schedule {name!r}:" + "".join(f"\n    {row}" for row in rows)

    def _warn(self, kind: str, says: str, against: Step | None = None) -> None:
        assert self._actor is not None, "warnings are about somebody"
        assert self._event is not None, "and about a statement"
        key = (kind, self._event.line, against.event.line if against else 0)
        if key not in self._warned:
            self._warned.add(key)
            where = place(self._actor.name, self._event)
            if against is not None:
                where += f" against {place(against.name, against.event)}"
            where = f"CTA {self.block}, {where}"
            self.findings.append(Finding(kind, where, says, severity="warning"))
