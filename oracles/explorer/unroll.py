"""From statements to the steps of each agent, with numbers for every expression.

Control depends on parameters, loop indices and CTA numbers only, so an agent has one sequence of
steps whatever the others do; loops are unrolled.  The exception is the body of a `LastArriving`,
which is left out where the CTA is not the last; what follows has to be the same with it and
without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.explorer.agents import elected, value
from oracles.explorer.groups import Registers, fragments
from oracles.explorer.plan import Plan
from oracles.explorer.rules import Defect, NotModelled, Rule
from oracles.explorer.state import Access, Op
from oracles.explorer.unroll_sync import JOIN_ACCESS, SyncUnroller

STEPS = 50_000
"""Steps of one agent beyond which a launch is too long to be explored."""


def unroll(plan: Plan) -> None:
    """Give every agent of a plan its steps.

    Raises
    ------
    Defect
        If a statement is wrong wherever and whenever it runs.
    NotModelled
        If a construct is not read, or a launch is too long.
    """
    places = {id(stmt): f"line {n}: {line(stmt)}" for n, stmt in numbered(plan.kernel)}
    for agent in plan.agents:
        block = plan.ctas[agent.cta]
        values = dict(plan.values)
        values[kir.BLOCK], values[kir.RANK] = block, block % plan.kernel.cluster
        reader = _Unroller(plan, agent, places, values, Registers(plan.without))
        reader.body(plan.kernel.body)
        reader.end()


@dataclass(slots=True)
class _Unroller(SyncUnroller):
    wgmmas: int = field(default=0)

    def body(self, body: tuple[kir.Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: kir.Stmt) -> None:
        self.where = self.places[id(stmt)]
        match stmt:
            case kir.Let(var, expr) | kir.Assign(var, expr):
                self.values[var] = value(expr, self.values)
            case kir.ForLoop(index, stop, body):
                for i in range(value(stop, self.values)):
                    self.values[index] = i
                    self.body(body)
                    if len(self.agent.steps) > STEPS:
                        raise NotModelled(f"an agent of more than {STEPS} steps")
            case kir.IfThenElse(condition, then, orelse):
                self.body(then if value(condition, self.values) else orelse)
            case kir.Role(_, first, warps, body):
                if first <= self.agent.warp < first + warps:
                    outer = self.first, self.warps
                    self.first, self.warps = first, warps
                    self.body(body)
                    self.first, self.warps = outer
            case kir.Elect(per, body):
                if self.agent.lane == 0 and elected(per, self.agent.warp, self.first):
                    outer_elected, self.elected = self.elected, True
                    if self.agent.lanes == 1:
                        self.body(body)
                    self.elected = outer_elected
            case kir.LastArriving():
                self.last(stmt)
            case kir.Copy() | kir.GridSum() | kir.GridShare():
                raise NotModelled(f"{self.where}: only before the sync passes")
            case kir.TmaLoad():
                self.tma_load(stmt)
            case kir.TmaStore() | kir.TmaReduce():
                self.tma_store(stmt)
            case kir.CpAsync():
                self.cp_async(stmt)
            case kir.Wgmma():
                self.wgmma(stmt)
            case kir.Load(matrix=True) | kir.Store(matrix=True):
                self.matrix(stmt)
            case kir.Load() | kir.Store() | kir.AtomicAdd():
                self.move(stmt)
            case kir.Mma() | kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate():
                self.registers.touch(*fragments(stmt), self.where)
            case _:
                self.sync(stmt)

    def last(self, stmt: kir.LastArriving) -> None:
        """Append a body that may be skipped, and go on as after both."""
        plan, skip = self.plan, self.come(stmt)
        groups = {kind: self.groups[kind].copy() for kind in kir.AsyncKind}
        registers, changed, before = self.registers.copy(), self.changed, plan.events
        self.body(stmt.body)
        skip.number = len(self.agent.steps)
        if plan.elections[skip.flag].ctas == 1:
            return  # one CTA alone is always the last
        plan.elections[skip.flag].body |= (2 << plan.events) - (2 << before)
        self.registers.either(registers)
        if self.groups[kir.AsyncKind.WGMMA] != groups[kir.AsyncKind.WGMMA]:
            raise NotModelled(f"{skip.where}: its body leaves other wgmmas in flight than it finds")
        if self.changed != changed:
            raise NotModelled(f"{skip.where}: its body changes how many registers there are")
        for kind, left in groups.items():
            self.groups[kind].either(left)
        for var in _carried_out(stmt.body):
            self.values.pop(var, None)

    def move(self, stmt: kir.Load | kir.Store | kir.AtomicAdd) -> None:
        self.registers.touch(*fragments(stmt), self.where)
        fragment = stmt.dst if isinstance(stmt, kir.Load) else stmt.src
        place = stmt.src if isinstance(stmt, kir.Load) else stmt.dst
        access = self.access(place, fragment.layout)
        if access is None:
            return
        event = self.event(access)
        access.bit = access.issue = event
        access.write = not isinstance(stmt, kir.Load)
        access.adds = int(isinstance(stmt, kir.AtomicAdd))
        access.exact = isinstance(place, kir.Box) and not place.tensor.dtype.is_float
        if access.shared and access.space != self.agent.cta:
            self.plan.remote_bits |= event
            what = f"{access.what} {'written' if access.write else 'read'} by {self.where}"
            self.plan.leaving.append((access.space, event, what))
        self.step(Op.ACCESS, stmt, event, (access,))

    def matrix(self, stmt: kir.Load | kir.Store) -> None:
        self.collective()
        self.registers.touch(*fragments(stmt), self.where)
        fragment = stmt.dst if isinstance(stmt, kir.Load) else stmt.src
        place = stmt.src if isinstance(stmt, kir.Load) else stmt.dst
        if isinstance(place, kir.Box) or place.cta is not None:
            says = "ldmatrix and stmatrix reach the shared memory of their own CTA only"
            raise Defect(Rule.BOUNDS, "bounds", self.where, says)
        access = self.plan.in_slot(
            self.agent, place, self.values, self.where,
            layout=fragment.layout, first=self.first, any_lane=True,
        )  # fmt: skip
        event = self.event(access)
        access.bit = access.issue = event
        access.write = isinstance(stmt, kir.Store)
        self.join(stmt, (access,), JOIN_ACCESS).bit = event

    def access(self, place: kir.Box | kir.Slot, layout: kir.Layout | None) -> Access | None:
        """Return the access to a place, None if it is of no consequence."""
        if isinstance(place, kir.Box):
            return self.plan.in_box(
                self.agent, place, self.values, self.where, layout=layout, first=self.first
            )
        found = self.plan.in_slot(
            self.agent, place, self.values, self.where, layout=layout, first=self.first
        )
        return found if found.mask else None

    def alone(self) -> None:
        """Demand that one thread executes the statement."""
        if self.agent.lanes > 1 and Rule.COLLECTIVE not in self.plan.without:
            says = f"executed by {self.agent.lanes} threads of a warp, made for one"
            raise Defect(Rule.COLLECTIVE, "collective", self.where, says)

    def tma_load(self, stmt: kir.TmaLoad) -> None:
        self.alone()
        plan, agent = self.plan, self.agent
        issue = plan.event()
        ranks = None if stmt.multicast is None else value(stmt.multicast, self.values)
        if ranks is None:
            targets: list[int | None] = [None]
        else:
            if ranks <= 0 or ranks >> plan.kernel.cluster:
                says = f"multicast={ranks} in a cluster of {plan.kernel.cluster}"
                raise Defect(Rule.BOUNDS, "bounds", self.where, says)
            targets = [r for r in range(plan.kernel.cluster) if ranks >> r & 1]
        index = value(stmt.slot, self.values)
        nbytes = prod(stmt.src.shape) * stmt.src.tensor.dtype.nbytes
        accesses, lands, done = [], [], 0
        for rank in targets:
            dst = stmt.dst if rank is None else replace(stmt.dst, cta=rank)
            write = self.access(dst, None)
            assert write is not None, "a slot has bytes"
            event = self.event(write)
            write.write = write.engine = True
            write.bit, write.issue = event, issue
            accesses.append(write)
            cta = agent.cta if rank is None else plan.peer(agent.cta, rank, self.where)
            lands.append((plan.slot(stmt.barrier, index, cta, self.where), nbytes, event))
            if plan.tracked:
                use = plan.on_barrier(agent, stmt.barrier, cta, self.where)
                use.bit, use.issue = event, issue
                accesses.append(use)
            done |= event
            plan.leaving.append((cta, event, f"{write.what} being filled by {self.where}"))
        read = self.access(stmt.src, None)
        if read is not None:
            read.engine, read.bit, read.issue = True, accesses[0].bit, issue
            plan.global_bits |= read.bit
            accesses.append(read)
        self.step(Op.TMA_LOAD, stmt, issue, tuple(accesses)).lands = tuple(lands)

    def tma_store(self, stmt: kir.TmaStore | kir.TmaReduce) -> None:
        self.alone()
        plan, issue = self.plan, self.plan.event()
        source, target = self.access(stmt.src, None), self.access(stmt.dst, None)
        assert source is not None, "a slot has bytes"
        read, whole = self.event(source), self.plan.event()
        source.bit, source.issue, source.engine = read, issue, True
        accesses = [source]
        if target is not None:
            plan.global_bits |= whole
            target.bit, target.issue = whole, issue
            target.engine = target.write = True
            target.adds = 2 if isinstance(stmt, kir.TmaReduce) else 0
            target.exact = not stmt.dst.tensor.dtype.is_float
            accesses.append(target)
        plan.leaving.append((source.space, read, f"{source.what} being read by {self.where}"))
        self.groups[kir.AsyncKind.BULK].open.append((whole, read))
        self.step(Op.ACCESS, stmt, issue, tuple(accesses))

    def cp_async(self, stmt: kir.CpAsync) -> None:
        write = self.access(stmt.dst, stmt.layout)
        if write is None:
            return
        issue, done = self.plan.event(), self.event(write)
        write.bit, write.issue, write.write = done, issue, True
        accesses = [write]
        read = self.access(stmt.src, stmt.layout)
        if read is not None:
            read.bit, read.issue = done, issue
            self.plan.global_bits |= done
            accesses.append(read)
        self.plan.leaving.append((write.space, done, f"{write.what} being filled by {self.where}"))
        self.groups[kir.AsyncKind.CP_ASYNC].open.append((done, done))
        self.copies |= done
        self.step(Op.ACCESS, stmt, issue, tuple(accesses))

    def wgmma(self, stmt: kir.Wgmma) -> None:
        self.collective(warpgroup=True)
        agent, plan = self.agent, self.plan
        threads, dealt = 32 * self.warps, stmt.acc.layout.threads
        if dealt != threads and Rule.COLLECTIVE not in plan.without:
            self._collective(f"executed by {threads} threads, its result dealt to {dealt}")
        key = (agent.cta, agent.warp, self.wgmmas)
        self.wgmmas += 1
        event = plan.wgmma_events.setdefault(key, 0) or plan.event()
        plan.wgmma_events[key] = event
        group = (agent.cta, agent.warp // 4, key[2])
        mates = plan.wgmma_mates.setdefault(group, [])
        if event not in mates:
            mates.append(event)
        spoken = plan.spoken.setdefault(group, 0) or plan.event()
        plan.spoken[group] = plan.awaited.setdefault(key[:2], {})[event] = spoken
        self.registers.wgmma(stmt, event, self.where)
        accesses = []
        columns = [(slot, 0) for slot in stmt.columns]
        for operand, lines in ((stmt.a, self.lines(stmt.acc.layout)), *columns):
            if isinstance(operand, kir.Slot):
                access = plan.in_slot(
                    agent, operand, self.values, self.where,
                    layout=None, first=self.first, lines=lines, columns=stmt.a_transposed,
                )  # fmt: skip
                access.engine, access.bit, access.issue = True, event, event
                access.spoken = spoken
                plan.shared_bits |= event
                accesses.append(access)
                what = f"{access.what} being read by {self.where}"
                plan.leaving.append((access.space, event, what))
        self.groups[kir.AsyncKind.WGMMA].open.append((event, event))
        self.products.append((event, mates))
        self.join(stmt, tuple(accesses)).grants = event

    def lines(self, layout: kir.Layout) -> int:
        """Return the rows of A (a mask), or its columns if transposed, that a warpgroup reads."""
        group = (self.agent.warp - self.first) // 4
        warps = layout.threads // 32
        rows = range(layout.shape[-2])
        return sum(1 << r for r in rows if r // 16 % warps // 4 == group)


def _carried_out(body: tuple[kir.Stmt, ...]) -> set[Var]:
    """Return the variables of bodies around it to which a body assigns."""
    inside = list(kir.walk(body))
    own = {stmt.var for stmt in inside if isinstance(stmt, kir.Let)}
    return {stmt.var for stmt in inside if isinstance(stmt, kir.Assign)} - own
