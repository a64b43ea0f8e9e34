"""From statements to the steps of each agent, with numbers for every expression.

Control depends on parameters, loop indices and CTA numbers only, so an agent has one sequence of
steps whatever the others do; loops are unrolled.  The exception is the body of a `LastArriving`,
which is left out where the CTA is not the last; what follows has to be the same with it and
without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered, short
from oracles.explorer.groups import Groups, Registers, fragments
from oracles.explorer.plan import Election, Plan, Values, elected, value
from oracles.explorer.rules import Defect, NotModelled, Rule
from oracles.explorer.state import Access, Agent, MapUse, Op, Step
from oracles.explorer.tiles import (
    Shape,
    band_mask,
    box_mask,
    box_masks,
    corner_mask,
    slot_masks,
    swizzled_mask,
    union,
)

JOIN_MEMORY, JOIN_TIME, JOIN_AWAIT, JOIN_ACCESS = 0, 1, 2, 3
"""What a meeting of the lanes of a warp does: join what they know, nothing more, an await, or an
access of which each lane may do any part."""


MATRIX_ROW, TMA_SHARED, ATOM = 16, 128, 8
"""Bytes of which slots begin at a multiple for `ldmatrix`, and for TMA engines, rows of a swizzle
for both of TMA and wgmma.

Source: PTX ISA, "ldmatrix", "cp.async.bulk.tensor", "tensor swizzling modes"."""
TMA_BOX = 256
"""Elements of a box per axis at most."""
STEPS = 50_000
"""Steps of one agent beyond which a launch is too long to be explored."""


def unroll(plan: Plan) -> None:
    """Give every agent of a plan its steps.

    Defect if a statement is wrong wherever and whenever it runs; NotModelled if a construct is not
    read, or a launch is too long.
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
class _Unroller:
    plan: Plan
    agent: Agent
    places: dict[int, str]
    values: Values
    registers: Registers
    first: int = 0
    warps: int = -1
    elected: bool = False
    where: str = ""
    index: Var | None = None
    """Index of the innermost loop."""
    copies: int = 0
    """cp.async of this agent so far."""
    products: list[tuple[int, list[int]]] = field(default_factory=list)
    """Its wgmmas not awaited yet: event, and those of all warps of the warpgroup."""
    joins: int = 0
    wgmmas: int = 0
    held: int = -1
    """Registers per thread now."""
    changed: int = 0
    """How often they were changed."""
    drawn: int = 0
    fetched: int = 0
    """Numbers that it has drawn, and fetched."""
    arrivals_at: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """How often it has arrive at an integer of a semaphore, in the role that begins at a warp."""
    groups: dict[kir.AsyncKind, Groups] = field(
        default_factory=lambda: {kind: Groups() for kind in kir.AsyncKind}
    )

    def __post_init__(self) -> None:
        self.warps = self.plan.kernel.threads // 32
        self.held = self.plan.kernel.registers

    def event(self, access: Access, issue: int = 0) -> int:
        """Return the event of the end of an access; that of its `issue` too, if it has no other."""
        event = self.plan.event()
        access.bit, access.issue = event, issue or event
        if access.shared:
            self.plan.in_shared(event, access.space)
        else:
            self.plan.global_bits |= event
        return event

    def step(
        self, op: Op, stmt: kir.Stmt, event: int = 0, accesses: tuple[Access, ...] = ()
    ) -> Step:
        step = Step(op, stmt, self.where, event, accesses)
        if self.plan.telling:
            step.told = self._told(stmt)
        self.agent.steps.append(step)
        return step

    def _told(self, stmt: kir.Stmt) -> str:
        """Say what a statement does, with numbers, and in which iteration."""
        numbers: dict[str, int] = {}
        asked = {
            "bar": getattr(stmt, "slot", None) if hasattr(stmt, "barrier") else None,
            "cast": getattr(stmt, "multicast", None),
            **{name: getattr(stmt, name, None) for name in ("parity", "turn", "ctas", "cta")},
        }
        for name in ("dst", "src", "b", "a"):
            ref = getattr(stmt, name, None)
            if isinstance(ref, kir.Slot):
                asked["a" if name == "a" else "slot"] = ref.index
        for name, expr in asked.items():
            if expr is not None:
                numbers[name] = value(expr, self.values)
        if self.index is None:
            return short(stmt, numbers)
        return f"{short(stmt, numbers)} {self.index.name}={self.values[self.index]}"

    def collective(self, *, warpgroup: bool = False) -> None:
        if self.elected:
            self._collective("executed by one lane, made for whole warps")
        if warpgroup and (self.warps % 4 or self.first % 4):
            self._collective(f"executed by {self.warps} warps from warp {self.first} on")

    def alone(self) -> None:
        if self.agent.lanes > 1:
            self._collective(f"executed by {self.agent.lanes} threads of a warp, made for one")

    def _collective(self, says: str) -> None:
        self.plan.refuse(Rule.COLLECTIVE, "collective", self.where, says)

    def join(
        self, stmt: kir.Stmt, accesses: tuple[Access, ...] = (), flag: int = JOIN_TIME
    ) -> Step:
        step = self.step(Op.JOIN, stmt, 0, accesses)
        step.flag, step.number = flag, self.joins
        self.joins += 1
        return step

    def sync(self, stmt: kir.Sync) -> None:
        match stmt:
            case kir.BlockSync(barrier, threads):
                self.block(stmt, barrier, threads, Op.BLOCK_SYNC)
            case kir.NamedArrive(barrier, threads):
                self.block(stmt, barrier, threads, Op.NAMED_ARRIVE)
            case kir.WarpSync():
                self.collective()
                self.join(stmt, flag=JOIN_MEMORY)
            case kir.MBarrierInit() | kir.MBarrierInvalidate():
                self.life(stmt)
            case (
                kir.MBarrierArrive()
                | kir.MBarrierArriveExpectTx()
                | kir.MBarrierExpectTx()
                | kir.MBarrierWaitParity()
                | kir.CpAsyncMBarrierArrive()
            ):
                self.mbarrier(stmt)
            case kir.AsyncCommit(kind):
                if kind is kir.AsyncKind.WGMMA:
                    self.collective()
                self.groups[kind].commit()
            case kir.AsyncAwait():
                self.await_(stmt)
            case kir.FenceAsyncProxy(space):
                shared, of_global = space is not kir.Space.GLOBAL, space is not kir.Space.SHARED
                self.step(Op.FENCE, stmt).flag = shared + 2 * of_global
            case kir.TensorMapRelease():
                use = MapUse((-1, "", -1), "")
                self.step(Op.MAP, stmt, self.plan.event()).map = use
            case kir.TensorMapAcquire(maps, index):
                use = self.on_map(kir.MapSlot(maps, index, ()), ())
                self.step(Op.MAP, stmt, self.plan.event()).map = use
            case kir.FenceMBarrierInit():
                self.step(Op.INIT_FENCE, stmt)
            case kir.ThreadFence(scope):
                self.step(Op.THREAD_FENCE, stmt).reach = scope
            case kir.WgmmaFence():
                self.collective(warpgroup=True)
                self.registers.fence()
            case kir.ClusterArrive(relaxed):
                self.step(Op.CLUSTER_ARRIVE, stmt, self.plan.event()).flag = int(relaxed)
            case kir.ClusterWait():
                self.step(Op.CLUSTER_WAIT, stmt)
            case kir.BlockSerializeWait() | kir.BlockSerializeRelease():
                self.turn(stmt)
            case kir.GridSync():
                self.grid(stmt)
            case kir.GridDependencyWait():
                if Rule.GRID_DEPENDENCY not in self.plan.without:
                    self.step(Op.AWAIT, stmt).grants = self.plan.ended
            case kir.GridDependencyLaunch():
                pass
            case kir.SetMaxNReg():
                self.pool(stmt)

    def block(self, stmt: kir.Stmt, barrier: int, threads: int, op: Op) -> None:
        self.collective()
        if not 0 <= barrier < 16:
            raise Defect(Rule.BOUNDS, "bounds", self.where, f"barrier {barrier} of 16")
        if threads % 32 or not 0 < threads <= self.plan.kernel.threads:
            says = f"{threads} threads of {self.plan.kernel.threads}, in whole warps"
            raise Defect(Rule.COLLECTIVE, "collective", self.where, says)
        at = self.agent.cta, barrier
        roles = self.plan.joins.setdefault(at, set())
        roles.add((self.first, self.warps))
        if not isinstance(stmt, kir.BlockSync | kir.NamedArrive):
            self.plan.owned.add(at)
        if at in self.plan.owned and len(roles) > 1:
            says = f"a role waits for CTAs by barrier {barrier}, where others come, too: "
            self._collective(says + f"warps {sorted(roles)} (first, how many)")
        step = self.step(op, stmt, self.plan.event())
        step.slot, step.number = barrier, threads

    def life(self, stmt: kir.MBarrierInit | kir.MBarrierInvalidate) -> None:
        agent, plan = self.agent, self.plan
        self.alone()
        use = self.on_barrier(stmt.barrier, agent.cta)
        event, use.adds = self.event(use), 0
        if isinstance(stmt, kir.MBarrierInit):
            plan.publications[event] = plan.event()
        op = Op.INIT if isinstance(stmt, kir.MBarrierInit) else Op.INVALIDATE
        step = self.step(op, stmt, event, (use,))
        step.slot = plan.slot(stmt.barrier, 0, agent.cta, self.where)
        step.number = stmt.barrier.slots

    def mbarrier(self, stmt: kir.OnPhase) -> None:
        plan, agent = self.plan, self.agent
        cta = agent.cta
        if isinstance(stmt, kir.MBarrierArrive) and stmt.cta is not None:
            cta = plan.peer(cta, value(stmt.cta, self.values), self.where)
        slot = plan.slot(stmt.barrier, value(stmt.slot, self.values), cta, self.where)
        event = plan.event()
        accesses: tuple[Access, ...] = ()
        if plan.tracked:
            use = self.on_barrier(stmt.barrier, cta)
            use.bit = use.issue = event
            plan.in_shared(event, cta)
            accesses = (use,)
        if cta != agent.cta:
            plan.remote_bits |= event
            plan.at_cta(event, cta)
            plan.leaving.append((cta, event, f"its barrier used by {self.where}"))
        match stmt:
            case kir.MBarrierArrive():
                step = self.step(Op.ARRIVE, stmt, event, accesses)
                step.reach = stmt.scope
            case kir.MBarrierArriveExpectTx() | kir.MBarrierExpectTx():
                op = Op.EXPECT if isinstance(stmt, kir.MBarrierExpectTx) else Op.ARRIVE
                step = self.step(op, stmt, event, accesses)
                step.flag = value(stmt.nbytes, self.values)
            case kir.CpAsyncMBarrierArrive():
                step = self.step(Op.CP_ARRIVE, stmt, event, accesses)
                step.flag, step.grants = int(stmt.noinc), self.copies
            case kir.MBarrierWaitParity():
                parity = value(stmt.parity, self.values)  # worked out for the one try, too
                if not stmt.retry:
                    return
                step = self.step(Op.WAIT, stmt, event, accesses)
                step.flag, step.reach = parity, stmt.scope
                if step.flag not in (0, 1):
                    says = f"parity {step.flag}, neither 0 nor 1"
                    raise Defect(Rule.BOUNDS, "bounds", self.where, says)
        each = stmt.count if isinstance(stmt, kir.MBarrierArrive) else 1
        step.slot, step.number = slot, each * agent.lanes

    def await_(self, stmt: kir.AsyncAwait) -> None:
        kind, groups = stmt.kind, self.groups[stmt.kind]
        reads = stmt.read_only and kind is kir.AsyncKind.BULK
        events = groups.done(stmt.keep, reads=reads)
        match kind:
            case kir.AsyncKind.BULK:
                rule = Rule.AWAIT_BULK_READ if reads else Rule.AWAIT_BULK
            case kir.AsyncKind.CP_ASYNC:
                rule = Rule.AWAIT_CP_ASYNC
            case kir.AsyncKind.WGMMA:
                rule = Rule.AWAIT_WGMMA
            case kir.AsyncKind.QUEUE:
                rule = Rule.AWAIT_QUEUE
        over, events = events, 0 if rule in self.plan.without else events
        if kind is kir.AsyncKind.WGMMA:
            self.collective()
            self.registers.finish(events)
            step = self.join(stmt, flag=JOIN_AWAIT)
            step.grants = events
            if Rule.WARPGROUP not in self.plan.without:
                step.mates = tuple(mates for event, mates in self.products if event & over)
            self.products = [p for p in self.products if not p[0] & over]
        elif events:
            self.step(Op.AWAIT, stmt).grants = events

    def integer(self, stmt: kir.OnSemaphore) -> int:
        """Return the index of an integer; one that elects CTAs does nothing else."""
        name, values = stmt.semaphore.name, self.values
        index, count = value(stmt.index, values), value(stmt.semaphore.count, values)
        if not 0 <= index < count:
            says = f"{name}[{index}] of {count}"
            raise Defect(Rule.BOUNDS, "bounds", self.where, says)
        elects = isinstance(stmt, kir.LastArriving)
        if self.plan.integers.setdefault((name, index), elects) is not elects:
            says = f"{name}[{index}] elects the last-arriving CTA, and serves others too"
            raise Defect(Rule.TURNS, "semaphore", self.where, says)
        role = self.first, self.warps
        gathers = isinstance(stmt, kir.GridSync | kir.LastArriving)
        if gathers and (other := self.plan.meets.setdefault((name, index), role)) != role:
            says = f"warps {role} come to {name}[{index}], and warps {other} (first, how many)"
            self._collective(says)
        return index

    def turn(self, stmt: kir.BlockSerializeWait | kir.BlockSerializeRelease) -> None:
        plan, values, index = self.plan, self.values, self.integer(stmt)
        event = plan.event()
        if isinstance(stmt, kir.BlockSerializeWait):
            self.collective()
            step = self.step(Op.TURN_WAIT, stmt, event)
        else:
            if self.agent.lanes > 1:
                says = f"executed by {self.agent.lanes} threads, made for one"
                raise Defect(Rule.COLLECTIVE, "collective", self.where, says)
            step = self.step(Op.TURN_RELEASE, stmt, event)
            step.flag = int(stmt.relaxed)
        step.slot, step.number, step.reach = index, value(stmt.turn, values), stmt.scope
        if isinstance(stmt, kir.BlockSerializeWait):
            self.block(stmt, stmt.barrier, 32 * self.warps, Op.BLOCK_SYNC)

    def grid(self, stmt: kir.GridSync) -> None:
        """Append a meeting of CTAs: of the threads of each, then of all."""
        plan, values, index = self.plan, self.values, self.integer(stmt)
        self.block(stmt, stmt.barrier, 32 * self.warps, Op.BLOCK_SYNC)
        step = self.step(Op.GRID_SYNC, stmt, plan.event())
        ctas = value(stmt.ctas, values)
        step.slot, step.number = index, ctas * 32 * self.warps
        step.flag = int(value(plan.kernel.together, values) >= ctas)

    def count_in(self, stmt: kir.LastArriving) -> Step:
        """Append a coming as the hardware has it, joins included; return what skips the body."""
        plan, index = self.plan, self.integer(stmt)
        ctas = value(stmt.ctas, self.values)
        if ctas < 1:
            says = f"{ctas} CTAs arrive at {stmt.semaphore.name}[{index}]; none of them is the last"
            raise Defect(Rule.TURNS, "semaphore", self.where, says)
        names = [one.name for one in plan.kernel.semaphores]
        at = (names.index(stmt.semaphore.name), index)
        self.block(stmt, stmt.barrier, 32 * self.warps, Op.BLOCK_SYNC)
        role, n = (self.first, self.warps), self.arrivals_at.get((*at, self.first), 0)
        self.arrivals_at[*at, self.first] = n + 1
        number = plan.election(Election(self.agent.cta, role, at, ctas), n)
        if self.agent.warp == self.first and not self.agent.lane:
            step = self.step(Op.COUNT_IN, stmt, plan.event())
            step.slot, step.number, step.flag = index, ctas, number
        self.block(stmt, stmt.barrier, 32 * self.warps, Op.BLOCK_SYNC)
        skip = self.step(Op.SKIP, stmt)
        skip.flag = number
        return skip

    def pool(self, stmt: kir.SetMaxNReg) -> None:
        self.collective(warpgroup=True)
        n, held = stmt.registers, self.held
        if Rule.REGISTER_POOL not in self.plan.without and (
            not 24 <= n <= 256 or n % 8 or not held or (n < held if stmt.increase else n > held)
        ):
            says = f"from {held} to {n} registers: 24 to 256, in eights, and the other way round"
            raise Defect(Rule.REGISTER_POOL, "registers", self.where, says)
        self.join(stmt)
        if self.agent.index == self.agent.mates[0]:
            event, changes = self.plan.event(), self.plan.changes
            group = (self.agent.cta, self.agent.warp // 4)
            step = self.step(Op.POOL, stmt, event)
            step.number = (n - held) * 32
            step.mates = (changes.setdefault((*group, self.changed - 1), []),)
            changes.setdefault((*group, self.changed), []).append(event)
            self.changed += 1
        self.join(stmt)
        self.held = n

    def end(self) -> None:
        for kind, groups in self.groups.items():
            if kind is kir.AsyncKind.CP_ASYNC and self.copies:
                continue
            if groups.open:
                says = f"{len(groups.open)} {kind.value} operations are never committed"
                self.plan.refuse(Rule.GROUP, "group", self.agent.name, says)

    def body(self, body: tuple[kir.Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: kir.Stmt) -> None:
        self.where = self.places[id(stmt)]
        match stmt:
            case kir.Let(var, expr) | kir.Assign(var, expr):
                self.values[var] = value(expr, self.values)
            case kir.ForLoop(index, stop, body):
                around, self.index = self.index, index
                for i in range(value(stop, self.values)):
                    self.values[index] = i
                    self.body(body)
                    if len(self.agent.steps) > STEPS:
                        raise NotModelled(f"an agent of more than {STEPS} steps")
                self.index = around
            case kir.Loop():
                self.loop(stmt)
            case kir.Fetch():
                self.fetch(stmt)
            case kir.Leave():
                raise NotModelled(f"{self.where}: it stands in no loop that it ends")
            case kir.Draw():
                self.draw(stmt)
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
            case kir.TensorMapReplace(ref, limit):
                self.alone()
                self.step(Op.MAP, stmt, self.plan.event()).map = self.on_map(ref, limit)
            case kir.CpAsync():
                self.cp_async(stmt)
            case kir.QueueCopy():
                self.queue_copy(stmt)
            case kir.StAsync():
                self.st_async(stmt)
            case kir.Wgmma():
                self.wgmma(stmt)
            case kir.Load(matrix=True) | kir.Store(matrix=True):
                self.matrix(stmt)
            case kir.Load() | kir.Store() | kir.AtomicAdd():
                self.move(stmt)
            case kir.Gather(_, src):
                self.gather(src)
                self.registers.touch(*fragments(stmt), self.where)
            case (
                kir.Mma() | kir.Compute() | kir.Slice() | kir.Reduce() | kir.Scan()
                | kir.Unpack() | kir.Coordinate()
            ):  # fmt: skip
                self.registers.touch(*fragments(stmt), self.where)
            case _:
                self.sync(stmt)

    def last(self, stmt: kir.LastArriving) -> None:
        """Append a body that may be skipped, and go on as after both."""
        plan, skip = self.plan, self.count_in(stmt)
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

    def loop(self, stmt: kir.Loop) -> None:
        """Append the iterations of a loop, up to the number by which it is left."""
        ends = [n for n, inner in enumerate(stmt.body) if isinstance(inner, kir.Leave)]
        if len(ends) != 1:
            raise NotModelled(f"{self.where}: it is left in {len(ends)} places")
        leave, turn = stmt.body[ends[0]], 0
        assert isinstance(leave, kir.Leave), "found above"
        while True:
            self.values[stmt.index] = turn
            self.body(stmt.body[: ends[0]])
            if value(leave.var, self.values) >= value(leave.stop, self.values):
                return
            self.body(stmt.body[ends[0] + 1 :])
            turn += 1
            if len(self.agent.steps) > STEPS:
                raise NotModelled(f"an agent of more than {STEPS} steps")

    def number(self, n: int) -> int:
        """Return the n-th number that the CTA draws: the first CTA draws twice as often as others.

        Whoever draws when, each number is drawn once, and a CTA draws larger ones later.
        """
        plan, cta = self.plan, self.plan.ctas[self.agent.cta]
        many = plan.values[kir.GRID] + 1
        return n // 2 * many + n % 2 if cta == 0 else n * many + cta + 1

    def draw(self, stmt: kir.Draw) -> None:
        self.alone()
        plan, draws = self.plan, [s for s in self.plan.kernel.walk() if isinstance(s, kir.Draw)]
        if len(draws) > 1 or plan.kernel.cluster > 1 or plan.kernel.semaphores:
            raise NotModelled(f"{self.where}: numbers are drawn in one place, by CTAs on their own")
        if plan.drawing.setdefault(self.agent.cta, self.agent.index) != self.agent.index:
            self._collective("executed by several threads, of which one draws for a CTA")
        if not stmt.atomic and plan.values[kir.GRID] > 1:
            says = "another CTA may draw the same number: it is loaded and stored, not added to"
            plan.refuse(Rule.LAUNCH, "WAW", self.where, says)
        self._number_at(stmt, stmt.dst, self.drawn, write=True)
        self.drawn += 1

    def fetch(self, stmt: kir.Fetch) -> None:
        self._number_at(stmt, stmt.src, self.fetched, write=False)
        self.values[stmt.var] = self.number(self.fetched)
        self.fetched += 1

    def _number_at(
        self, stmt: kir.Draw | kir.Fetch, slot: kir.Slot, n: int, *, write: bool
    ) -> None:
        if slot.cta is not None or slot.buffer.slot_nbytes != 4:
            says = f"a number has 4 bytes of the own CTA, not {slot.buffer.slot_nbytes}"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)
        access = self.in_slot(slot, None)
        event = self.event(access)
        access.write, access.number = write, n
        self.step(Op.ACCESS, stmt, event, (access,))

    def placed(self, stmt: kir.TmaLoad, index: kir.Index) -> None:
        """Read the integer that says where a box lies, by an ordinary load of its thread."""
        axis, src = index.axis, index.src
        single = {*src.shape} == {1} and (stmt.src.shape[axis], stmt.src.origin[axis]) == (1, 0)
        if not single or src.tensor.dtype not in (DType.I32, DType.I64) or stmt.bulk:
            says = f"an index of {src.shape} along axis {axis} of {stmt.src.shape}"
            raise Defect(Rule.BOUNDS, "bounds", self.where, says)
        self.once(src)
        kernel = self.plan.kernel
        if stmt.src.tensor.name in (*kernel.outputs, *kernel.workspaces):
            raise NotModelled(f"{stmt.src.tensor.name}, which may be written, read by an index")
        at, limit = (tuple(value(e, self.values) for e in of) for of in (src.origin, src.limit))
        extents = self.plan.extents[src.tensor.name]
        self._inside(at, src.shape, limit, extents, src.tensor.name)
        access = self.in_box(src, None)
        if access is not None:
            self.step(Op.ACCESS, stmt, self.event(access), (access,))

    def gather(self, tensor: kir.Tensor) -> None:
        """Allow reads by index of what nobody writes while the kernel runs, and nothing else."""
        kernel = self.plan.kernel
        if tensor.name in (*kernel.outputs, *kernel.workspaces):
            raise NotModelled(f"a gather from {tensor.name}, which may be written")
        if kernel.dependent and tensor.name not in kernel.early:
            raise NotModelled(f"a gather from {tensor.name}, which launches before may write")

    def move(self, stmt: kir.Load | kir.Store | kir.AtomicAdd) -> None:
        self.registers.touch(*fragments(stmt), self.where)
        fragment = stmt.dst if isinstance(stmt, kir.Load) else stmt.src
        place = stmt.src if isinstance(stmt, kir.Load) else stmt.dst
        self.vectors(place, 1 if isinstance(stmt, kir.AtomicAdd) else stmt.width)
        stores = not isinstance(stmt, kir.Load)
        if isinstance(place, kir.Box) and stores:
            self.once(place)
        exchanged = not isinstance(stmt, kir.AtomicAdd) and stmt.transposed
        if exchanged:
            self.exchanged(place, fragment.layout.shape)
            self.whole(stmt)
        access = self.access(place, fragment.layout, stores=stores, exchanged=exchanged)
        if access is None:
            return
        if isinstance(stmt, kir.Load) and stmt.limit is not None:
            assert isinstance(place, kir.Slot), "boxes have limits of their own"
            ends = tuple(value(e, self.values) for e in stmt.limit)
            size = place.buffer.dtype.nbytes // self.plan.granule
            inside = corner_mask(place.buffer.shape, ends, size)
            access.mask &= inside << access.base
            access.threads = tuple(mask & inside for mask in access.threads)
            if not access.mask:
                return
        event = self.event(access)
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
        self.whole(stmt)
        self.starts(place, MATRIX_ROW)
        if stmt.transposed:
            self.exchanged(place, fragment.layout.shape)
            self.turned(stmt, place.buffer, fragment)
        access = self.in_slot(place, fragment.layout, any_lane=True, exchanged=stmt.transposed)
        event = self.event(access)
        access.write = isinstance(stmt, kir.Store)
        self.join(stmt, (access,), JOIN_ACCESS).bit = event

    def vectors(
        self, place: kir.Box | kir.Slot, width: int, sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    ) -> None:
        """Demand that an instruction moves `width` neighbours, and that they are, at a multiple.

        Source: PTX ISA, "ld", "st": vectors of 2 and 4, aligned to their size.
        """
        shape = place.shape if isinstance(place, kir.Box) else place.buffer.shape
        dtype = place.tensor.dtype if isinstance(place, kir.Box) else place.buffer.dtype
        nbytes, one = width * dtype.nbytes, shape[-1:] == (1,)
        says = ""
        if nbytes not in sizes and not (one and 1 in sizes):
            says = f"an access of {nbytes} bytes; there are those of {sizes}"
        elif one or width == 1:
            pass
        elif isinstance(place, kir.Slot):
            start = place.buffer.start(value(place.index, self.values))
            if start % nbytes or shape[-1] % width:
                says = f"rows of {shape[-1]} from byte {start} on, by {nbytes} bytes at a time"
        else:
            first = value(place.origin[-1], self.values)
            end = min(first + shape[-1], value(place.limit[-1], self.values))
            cut = end % width and not (place.tensor.ragged and sizes[0] == 1)
            if end > first and (first % width or cut):
                says = f"elements {first} to {end - 1} of a row, by {width} at a time"
            elif place.tensor.aligned % width or place.tensor.strides[-1] != 1:
                says = f"rows are aligned to {place.tensor.aligned} elements, neighbours are "
                says += f"{place.tensor.strides[-1]} apart; {width} are accessed at a time"
        if says:
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)

    def once(self, box: kir.Box) -> None:
        """Demand a tensor that does not repeat."""
        if box.tensor.cycles:
            says = f"{box.tensor.name} repeats, and only loads know how"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)

    def exchanged(self, place: kir.Box | kir.Slot, tile: Shape) -> None:
        shape = place.shape if isinstance(place, kir.Box) else place.buffer.shape
        turned = (*shape[:-2], *reversed(shape[-2:]))
        if isinstance(place, kir.Box) or len(shape) < 2 or turned != tile:
            says = f"a tile of {tile} is not one of {shape} with its last two axes exchanged"
            raise Defect(Rule.BOUNDS, "bounds", self.where, says)

    def whole(self, stmt: kir.Load | kir.Store | kir.AtomicAdd) -> None:
        """Demand that a tile that is not moved row by row has no limit."""
        if isinstance(stmt, kir.Load) and stmt.limit is not None:
            says = "a limit is of rows as they lie, and this load goes otherwise"
            raise Defect(Rule.BOUNDS, "bounds", self.where, says)

    def turned(
        self, stmt: kir.Load | kir.Store, buffer: kir.Buffer, fragment: kir.Fragment
    ) -> None:
        """Demand what `.trans` moves: 8 x 8 elements of 16 bits, two of a row in each register.

        Source: PTX ISA, "ldmatrix", "stmatrix" (`.m8n8` with `.trans`, `.b16`).
        """
        layout = fragment.layout
        converts = isinstance(stmt, kir.Load) and fragment.dtype is not buffer.dtype
        pairs = layout.vector == stmt.width == 2 and layout.folded == 1
        says = ""
        if buffer.dtype.nbytes != 2 or converts:
            says = f"{buffer.dtype} in {buffer.name}, {fragment.dtype} in {fragment.name}; "
            says += "what is transposed on the way has 16 bits and stays as it is"
        elif layout.deal is not kir.Deal.STRIPS or not pairs:
            says = f"{fragment.name} is not dealt as tensor cores deal pairs of sums"
        elif buffer.shape[-1] % ATOM or buffer.shape[-2] % ATOM:
            says = f"a tile of {buffer.shape} has no whole matrices of 8 x 8"
        if says:
            raise Defect(Rule.BOUNDS, "bounds", self.where, says)

    def starts(self, slot: kir.Slot, unit: int) -> None:
        start = slot.buffer.start(value(slot.index, self.values))
        if start % unit:
            says = f"a slot at byte {start}, made for multiples of {unit}"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)

    def boxed(self, slot: kir.Slot, box: kir.Box) -> None:
        """Demand what a tensor copy needs of its ends, whatever the tensor map says.

        Source: PTX ISA, "cp.async.bulk.tensor"; CUDA driver API, cuTensorMapEncodeTiled.
        """
        self.once(box)
        self.starts(slot, max(TMA_SHARED, ATOM * slot.buffer.swizzle))
        row = box.shape[-1] * box.tensor.dtype.nbytes
        if max(box.shape) > TMA_BOX or row % 16:
            says = f"a box of {box.shape}, rows of {row} bytes; an axis has {TMA_BOX} at most, and "
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, f"{says}rows are multiples of 16")
        if row // box.shape[-1] * prod(box.shape) != slot.buffer.slot_nbytes:
            says = f"a box of {box.shape}, a slot of {slot.buffer.slot_nbytes} bytes"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)

    def run(self, slot: kir.Slot, box: kir.Box) -> int:
        """Demand what a bulk copy without a map needs of its ends; return its bytes.

        Source: PTX ISA, "cp.async.bulk".
        """
        self.once(box)
        self.starts(slot, 16)
        at, limit, strides = (
            tuple(value(e, self.values) for e in of)
            for of in (box.origin, box.limit, box.tensor.strides)
        )
        extents, size = self.plan.extents[box.tensor.name], box.tensor.dtype.nbytes
        self._inside(at, box.shape, limit, extents, box.tensor.name)
        many = [max(0, min(n, e - o)) for o, n, e in zip(at, box.shape, limit, strict=True)]
        first = next((axis for axis, n in enumerate(box.shape) if n > 1), len(at) - 1)
        wrong = slot.buffer.shape != box.shape or slot.buffer.dtype is not box.tensor.dtype
        for axis in range(first, len(at)):
            behind = prod(many[axis + 1 :])
            wrong |= many[axis] > 1 and strides[axis] != behind
            wrong |= axis > first and many[axis] != box.shape[axis] and 0 not in many
        start = sum(o * step for o, step in zip(at, strides, strict=True)) * size
        nbytes = prod(many) * size
        if wrong:
            says = f"a box of {box.shape}, with strides {strides}, is no run of memory and no slot"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)
        if nbytes and (start % 16 or nbytes % 16 or box.tensor.aligned * size % 16):
            says = f"{nbytes} bytes from byte {start} of {box.tensor.name} on, aligned to "
            says += f"{box.tensor.aligned} elements; a bulk copy takes multiples of 16"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)
        return nbytes

    def access(
        self,
        place: kir.Box | kir.Slot,
        layout: kir.Layout | None,
        *,
        stores: bool = False,
        exchanged: bool = False,
    ) -> Access | None:
        """Return the access to a place, None if it is of no consequence."""
        if isinstance(place, kir.Box):
            return self.in_box(place, layout, stores=stores)
        found = self.in_slot(place, layout, stores=stores, exchanged=exchanged)
        return found if found.mask else None

    def in_slot(
        self,
        slot: kir.Slot,
        layout: kir.Layout | None,
        *,
        lines: int = 0,
        columns: bool = False,
        any_lane: bool = False,
        stores: bool = False,
        exchanged: bool = False,
    ) -> Access:
        """Return the access to a slot; of an engine if there is no layout.

        `lines` limits it to some rows (a mask), or to some `columns`, for an operand of which a
        warpgroup reads its own.  With `any_lane` each lane may touch what any lane of the warp has;
        with `exchanged` the layout is of the slot with its last two axes exchanged.
        """
        agent, buffer, index = self.agent, slot.buffer, value(slot.index, self.values)
        what = f"{buffer.name}[{index}]"
        if not 0 <= index < buffer.slots:
            raise Defect(Rule.BOUNDS, "bounds", self.where, f"{what} of {buffer.slots} slots")
        cta = agent.cta
        if slot.cta is not None:
            cta = self.plan.peer(cta, value(slot.cta, self.values), self.where)
        size = buffer.dtype.nbytes // self.plan.granule
        base = buffer.start(index) // self.plan.granule
        length = buffer.slot_nbytes // self.plan.granule
        threads: Shape = ()
        mask = (1 << length) - 1
        if layout is not None:
            warp = (agent.warp - self.first) * 32
            start, lanes = (warp, 32) if any_lane else (warp + agent.lane, agent.lanes)
            threads = slot_masks(
                layout, buffer.shape, start, lanes, size, stores=stores, exchanged=exchanged
            )
            threads = tuple(self.lying(buffer, mine) for mine in threads)
            mask = union(threads)
            threads = (mask,) * agent.lanes if any_lane else threads
        elif lines:
            mask = self.lying(buffer, band_mask(buffer.shape, lines, size, columns=columns))
        return Access(
            cta, True, mask << base, base, base + length, agent.index, agent.cta, what, self.where,
            threads=threads, base=base, any_lane=any_lane,
        )  # fmt: skip

    def lying(self, buffer: kir.Buffer, mask: int) -> int:
        """Return where granules of a slot lie."""
        if buffer.name not in self.plan.moved:
            return mask
        return swizzled_mask(mask, buffer, self.plan.granule)

    def in_box(
        self, box: kir.Box, layout: kir.Layout | None, *, stores: bool = False
    ) -> Access | None:
        """Return the access to a box; None if nobody writes the tensor, nor did just before."""
        plan, agent, name = self.plan, self.agent, box.tensor.name
        at = tuple(value(e, self.values) for e in box.origin)
        what = f"{name}[{', '.join(map(str, at))}]"
        extents = plan.extents[name]
        limit = tuple(value(e, self.values) for e in box.limit)
        if layout is not None:
            self._inside(at, box.shape, limit, extents, what)
        held = name in plan.written or plan.spaces[name] in plan.blank
        if not held and not plan.ended:
            return None
        key = (at, box.shape, tuple(map(min, limit, extents)), extents)
        threads: Shape = ()
        if layout is None:
            mask = box_mask(*key)
        else:
            lane = (agent.warp - self.first) * 32 + agent.lane
            threads = box_masks(layout, key, lane, agent.lanes, stores=stores)
            mask = union(threads)
        if not mask:
            return None
        return Access(
            plan.spaces[name], False, mask, 0, mask.bit_length(), agent.index, agent.cta, what,
            self.where, threads=threads,
        )  # fmt: skip

    def _inside(self, at: Shape, shape: Shape, limit: Shape, extents: Shape, what: str) -> None:
        """Demand that threads stay inside a tensor; TMA engines do by themselves."""
        ends = [min(o + n, stop) for o, n, stop in zip(at, shape, limit, strict=True)]
        if any(end <= o for o, end in zip(at, ends, strict=True)):
            return
        for start, end, extent in zip(at, ends, extents, strict=True):
            if start < 0 or end > extent:
                says = f"{what} reaches element {start if start < 0 else end - 1} of {extent}"
                self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)

    def on_barrier(self, barrier: kir.MBarrier, cta: int) -> Access:
        """Return the use of the bytes of an mbarrier, all slots of it."""
        base = self.plan.places[barrier.name] // self.plan.granule
        length = 8 * barrier.slots // self.plan.granule
        return Access(
            cta, True, (1 << length) - 1 << base, base, base + length, self.agent.index,
            self.agent.cta, barrier.name, self.where, write=True, adds=3, base=base, barrier=True,
        )  # fmt: skip

    def on_map(self, ref: kir.MapSlot, limit: tuple[Expr, ...], read: int = 0) -> MapUse:
        """Return the use of a map of this CTA."""
        index = value(ref.index, self.values)
        what = f"{ref.maps.name}[{index}]"
        if not 0 <= index < ref.maps.slots:
            raise Defect(Rule.BOUNDS, "bounds", self.where, f"{what} of {ref.maps.slots} maps")
        first, end = (tuple(value(e, self.values) for e in of) for of in (ref.origin, limit))
        return MapUse((self.agent.cta, ref.maps.name, index), what, (first, end), read)

    def through(self, ref: kir.MapSlot, box: kir.Box, read: int) -> MapUse:
        """Return the use of a map by a copy, of which it can go by.

        Source: CUDA driver API, cuTensorMapEncodeTiled: extents of 1 or more, 16-byte addresses.
        """
        use = self.on_map(ref, box.limit, read)
        extents = self.plan.extents[box.tensor.name]
        for first, end, extent in zip(*use.says, extents, strict=True):
            if not 0 <= first < end <= extent:
                says = f"{use.what} is of elements {first} to {end - 1} of {extent}"
                self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)
        steps = (value(e, self.values) for e in box.tensor.strides)
        at = sum(first * step for first, step in zip(use.says[0], steps, strict=True))
        if at * box.tensor.dtype.nbytes % 16:
            says = f"{use.what} begins at element {at}, at no multiple of 16 bytes"
            self.plan.refuse(Rule.BOUNDS, "bounds", self.where, says)
        origin = (value(e, self.values) for e in box.origin)
        if any(o < first for o, first in zip(origin, use.says[0], strict=True)):
            self.plan.refuse(Rule.MAP, "map", self.where, f"the box begins before {use.what}")
        return use

    def tma_load(self, stmt: kir.TmaLoad) -> None:
        self.alone()
        if stmt.bulk:
            nbytes = self.run(stmt.dst, stmt.src)
        else:
            self.boxed(stmt.dst, stmt.src)
            nbytes = prod(stmt.src.shape) * stmt.src.tensor.dtype.nbytes
        if stmt.src.index is not None:
            self.placed(stmt, stmt.src.index)
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
        accesses, lands, done = [], [], 0
        for rank in targets:
            dst = stmt.dst if rank is None else replace(stmt.dst, cta=rank)
            write = self.access(dst, None)
            assert write is not None, "a slot has bytes"
            event = self.event(write, issue)
            write.write = write.engine = True
            if stmt.bulk:
                held = nbytes // plan.granule
                write.void = write.mask & ~((1 << held) - 1 << write.base)
            accesses.append(write)
            cta = agent.cta if rank is None else plan.peer(agent.cta, rank, self.where)
            lands.append((plan.slot(stmt.barrier, index, cta, self.where), nbytes, event))
            if plan.tracked:
                use = self.on_barrier(stmt.barrier, cta)
                use.bit, use.issue = event, issue
                accesses.append(use)
            done |= event
            plan.leaving.append((cta, event, f"{write.what} being filled by {self.where}"))
        read = self.access(stmt.src, None)
        if read is not None:
            read.engine, read.bit, read.issue = True, accesses[0].bit, issue
            plan.global_bits |= read.bit
            accesses.append(read)
        step = self.step(Op.TMA_LOAD, stmt, issue, tuple(accesses))
        step.lands = tuple(lands)
        if stmt.through is not None:
            step.map = self.through(stmt.through, stmt.src, done)

    def tma_store(self, stmt: kir.TmaStore | kir.TmaReduce) -> None:
        self.alone()
        bulk = isinstance(stmt, kir.TmaStore) and stmt.bulk
        nbytes = self.run(stmt.src, stmt.dst) if bulk else stmt.src.buffer.slot_nbytes
        if not bulk:
            self.boxed(stmt.src, stmt.dst)
        plan, issue = self.plan, self.plan.event()
        source, target = self.access(stmt.src, None), self.access(stmt.dst, None)
        assert source is not None, "a slot has bytes"
        read, whole = self.event(source, issue), self.plan.event()
        source.engine = True
        source.mask &= (1 << nbytes // plan.granule) - 1 << source.base
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
        step = self.step(Op.ACCESS, stmt, issue, tuple(accesses))
        if stmt.through is not None:
            step.map = self.through(stmt.through, stmt.dst, read)

    def queue_copy(self, stmt: kir.QueueCopy) -> None:
        """Append a copy that its thread knows of by how many it has issued since."""
        self.alone()
        self.boxed(stmt.dst, stmt.src)
        issue, queue = self.plan.event(), self.groups[kir.AsyncKind.QUEUE]
        write, read = self.access(stmt.dst, None), self.access(stmt.src, None)
        assert write is not None, "a slot has bytes"
        done = self.event(write, issue)
        write.write = write.engine = True
        accesses = [write]
        if read is not None:
            read.engine, read.bit, read.issue = True, done, issue
            self.plan.global_bits |= done
            accesses.append(read)
        self.plan.leaving.append((write.space, done, f"{write.what} being filled by {self.where}"))
        queue.open.append((done, done))
        queue.commit()
        self.step(Op.ACCESS, stmt, issue, tuple(accesses))

    def cp_async(self, stmt: kir.CpAsync) -> None:
        for place in (stmt.dst, stmt.src):
            self.vectors(place, stmt.width, (4, 8, 16))
        self.once(stmt.src)
        write = self.access(stmt.dst, stmt.layout)
        if write is None:
            return
        issue = self.plan.event()
        done, write.write = self.event(write, issue), True
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

    def st_async(self, stmt: kir.StAsync) -> None:
        plan, threads = self.plan, stmt.src.layout.threads
        if plan.kernel.cluster == 1:
            self._collective("reaches into a cluster of one CTA")
        if threads != (1 if self.elected else 32 * self.warps):
            self._collective(f"executed by others than the {threads} threads that have the tile")
        self.registers.touch(*fragments(stmt), self.where)
        self.vectors(stmt.dst, stmt.width, (4, 8, 16))
        write = self.access(stmt.dst, stmt.src.layout, stores=True)
        if write is None:
            return
        issue = plan.event()
        done, write.write = self.event(write, issue), True
        accesses = [write]
        slot = plan.slot(stmt.barrier, value(stmt.slot, self.values), write.space, self.where)
        if plan.tracked:
            use = self.on_barrier(stmt.barrier, write.space)
            use.bit, use.issue = done, issue
            accesses.append(use)
        if write.space != self.agent.cta:
            plan.far_bits |= done
        plan.leaving.append((write.space, done, f"{write.what} being filled by {self.where}"))
        step = self.step(Op.TMA_LOAD, stmt, issue, tuple(accesses))
        step.lands = ((slot, write.mask.bit_count() * plan.granule, done),)

    def wgmma(self, stmt: kir.Wgmma) -> None:
        self.collective(warpgroup=True)
        agent, plan = self.agent, self.plan
        threads, dealt = 32 * self.warps, stmt.acc.layout.threads
        if dealt != threads:
            self._collective(f"executed by {threads} threads, its result dealt to {dealt}")
        key = (agent.cta, agent.warp, self.wgmmas)
        self.wgmmas += 1
        event = plan.wgmma_events.setdefault(key, 0) or plan.event()
        plan.wgmma_events[key] = event
        group = (agent.cta, agent.warp // 4, key[2])
        mates = plan.wgmma_mates.setdefault(group, [])
        if event not in mates:
            mates.append(event)
        whole = plan.whole.setdefault(group, 0) or plan.event()
        plan.whole[group] = plan.awaited.setdefault(key[:2], {})[event] = whole
        adds = bool(value(stmt.accumulate, self.values))
        self.registers.wgmma(stmt, event, self.where, adds=adds)
        accesses = []
        columns = [(slot, 0) for slot in stmt.columns]
        for operand, lines in ((stmt.a, self.lines(stmt.acc.layout)), *columns):
            if isinstance(operand, kir.Slot):
                self.starts(operand, max(MATRIX_ROW, ATOM * operand.buffer.swizzle))
                access = self.in_slot(operand, None, lines=lines, columns=stmt.a_transposed)
                access.engine, access.bit, access.issue = True, event, event
                access.whole = whole
                plan.in_shared(event, access.space)
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
