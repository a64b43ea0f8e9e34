"""What each statement does: which of the prover's rules it uses.

A warp's registers are its own, so what happens to them follows from its program alone; slots are
memory like any other, read through the async proxy until the group is awaited.

A product runs when all four warps have started their part, so whoever has seen the end of it knows
that the others have returned from their waits before it.  That says nothing of memory: each warp
reads its rows of `a`, and `b`, for itself.  That one warp has seen the end of its part is noted all
the same, at the fact `OWN` of the others' reads, for its arrivals to release, cumulatively: one
arrival for four warps is worth a warning.  For what it does itself it has to wait like any other.

Which of two warpgroups that ask for more registers comes first is open.  So none of several is
given any until there is enough for all that will still ask; then the order does not matter.  If
nobody can go on without, each of those for whom there is enough comes first in a state of its own:
by then all others are as far as they come, and what a warpgroup takes early it might as well take
late.

Source: PTX ISA, "wgmma.mma_async", "wgmma.wait_group", "setmaxnreg".
"""

from __future__ import annotations

from math import prod

from fuser.expr import Expr, Var, substitute, variables
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError, poly
from oracles.prover.reachability.code import Do
from oracles.prover.reachability.path import Kept, Said
from oracles.prover.reachability.rules import Rule, said
from oracles.prover.reachability.state import (
    GLOBAL,
    ONES,
    OWN,
    RELEASED,
    SHARED,
    Agent,
    Place,
    Product,
    State,
    Told,
    Where,
    bit,
    bits,
)
from oracles.prover.reachability.step import Access, Scene, Step
from oracles.prover.reachability.sync import (
    Visit,
    block_sync,
    cluster_arrive,
    cluster_wait,
    elect_last,
    grid_sync,
    initialise,
    invalidate,
    mbarrier_wait,
    release,
    wait_for_turn,
    warp_sync,
)
from oracles.prover.reachability.world import World
from oracles.prover.sites import AMONG_CTAS, adds, touches, writes

AGES = 4
"""Products of a warpgroup that are followed, from the latest; older ones are not."""


# --- groups and products --------------------------------------------------------------------------


def await_groups(step: Step, kind: kir.AsyncKind, keep: int, *, read_only: bool) -> None:
    """Wait for all but the latest `keep` groups of these threads."""
    ends = step.a.awaits(kind, keep, read_only=read_only)
    if not step.holds(Rule.AWAIT_ORDERS):
        return
    if kind is kir.AsyncKind.WGMMA:
        # All lanes of a warp know that its group is done.
        for one in (step.a, step.state.mate(step.a)):
            one.learns_with_warp(bits(ends))
    else:
        for end in ends:
            step.a.owns(end)


def wgmma(step: Step, stmt: kir.Wgmma) -> None:
    """Start a product: its operands are read, and its registers used, until it is awaited."""
    a, place = step.a, step.site.place
    step.findings.ask()
    if place.first % 4 or place.warps % 4 or step.site.elected:
        step.wrong(Rule.COLLECTIVE, "wgmma is executed by whole warpgroups only")
    used = step.world.registers[step.site.index]
    if used.needs & ~a.clean:
        both = [stmt.acc] + ([stmt.a] if isinstance(stmt.a, kir.Fragment) else [])
        numbers = step.world.fragments.index
        name = next(f.name for f in both if not a.clean >> numbers(f) & 1)
        after = f"the last other use of {name} and {said(step.site, step.k)}"
        step.wrong(Rule.WGMMA_FENCE, f"no wgmma_fence stands between {after}")
    a.clean &= ~used.spoils
    slots: list[tuple[kir.Slot, int]] = []
    if a.kind.leads:
        step.state.mate(a).restricts_fences_of(a)
        slots += [(slot, step.value("slot")) for slot in stmt.columns]
        slots += [(stmt.a, step.value("a"))] if isinstance(stmt.a, kir.Slot) else []
    ends = (_launched(step, slot, index, step.cta, writes=False) for slot, index in slots)
    source = stmt.a.name if isinstance(stmt.a, kir.Fragment) else ""
    a.starts(kir.AsyncKind.WGMMA, tuple(e for e in ends if e >= 0), stmt.acc.name, source)


def registers(step: Step) -> None:
    """Judge ordinary accesses of registers; note what a wgmma would need a fence after."""
    a, stmt = step.a, step.site.stmt
    if isinstance(stmt, kir.WgmmaFence):
        place = step.site.place
        if step.site.elected or place.warps % 4 or place.first % 4:
            step.wrong(Rule.COLLECTIVE, "wgmma_fence is executed by whole warpgroups only")
        a.clean = (1 << len(step.world.fragments)) - 1
        return
    if not step.world.fragments:
        return
    read, written, _, spoils = step.world.registers[step.site.index]
    a.clean &= ~spoils
    for group in a.groups(kir.AsyncKind.WGMMA):
        for _, result, source in group:
            step.findings.ask()
            kind, used = "", result
            if result in read:
                kind = "RAW"
            elif result in written:
                kind = "WAW"
            elif source and source in written:
                kind, used = "WAR", source
            if kind:
                after = said(step.site, step.k)
                says = f"nothing awaits the wgmma that uses {used} before {after}"
                step.wrong(Rule.REGISTERS_BUSY, says, kind=kind)
                return


# --- a warpgroup ----------------------------------------------------------------------------------


def warpgroup(step: Step) -> tuple[Agent, ...]:
    """Return the threads that execute a statement as one warpgroup, if they are one."""
    members = step.world.warpgroups.get((step.site.index, step.cta), ())
    return tuple(step.state.agents[index] for index in members)


def group_of_warps(a: Agent) -> tuple[int, int]:
    """Return the CTA and the number of the warpgroup of threads."""
    return a.kind.cta, a.kind.warps[0] // 4


def note_product(step: Step, group: tuple[Agent, ...]) -> None:
    """Put down what has preceded the product that a warpgroup starts, if that can matter."""
    if not step.world.cumulative:
        return
    facts = 0
    for a in group:
        facts |= a.mine & ~step.events.accesses
        for end in a.groups(kir.AsyncKind.WGMMA)[-1][-1][0]:
            facts |= bit(end, OWN)
    products, which = step.state.products, group_of_warps(group[0])
    for age in range(AGES - 1, 0, -1):
        if (which, age - 1) in products:
            products[which, age] = Product(products[which, age - 1].before)
    products[which, 0] = Product(facts)
    if (which, 1) in products:
        products[which, 0].before |= products[which, 1].before


def learn_of_product(step: Step) -> None:
    """Let threads that have awaited products know what preceded these in their warpgroup.

    What all of them know by then is forgotten, so that it tells no states apart.
    """
    a, state = step.a, step.state
    age = sum(map(len, a.groups(kir.AsyncKind.WGMMA)))
    group = group_of_warps(a)
    record = state.products.get((group, age))
    if record is None or not step.holds(Rule.AWAIT_ORDERS):
        return
    others = record.before & ONES << OWN
    a.learns(record.before & ~others)
    a.cumulative |= others
    known = -1
    for b in state.agents:
        if group_of_warps(b) == group:
            known &= b.all | b.cumulative
    for older in range(age, AGES):
        if (group, older) in state.products:
            state.products[group, older].before &= ~known


# --- the register file of a CTA -------------------------------------------------------------------


class ContestError(Exception):
    """Several warpgroups wait for registers that suffice for some: `states` are the ways on."""

    def __init__(self, states: list[State]) -> None:
        super().__init__(f"{len(states)} warpgroups could be given registers first")
        self.states = states


def granted(step: Step, stmt: kir.SetMaxNReg) -> bool:
    """Whether these threads get their registers now; other kinds are asked for themselves."""
    if not stmt.increase or step.a.first or not step.holds(Rule.BUDGET):
        return True
    most = step.world.most_registers
    takers = [b for b in step.state.agents if b.kind.cta == step.cta and most[b.kind.index]]
    alone = len({warp // 4 for b in takers for warp in b.kind.warps}) == 1
    wanted = sum(
        max(0, (stmt.registers if alone else most[b.kind.index]) - _held(step.world, b))
        * b.kind.count
        for b in takers
    )
    return wanted <= _free(step, step.cta)


def take_registers(step: Step, stmt: kir.SetMaxNReg) -> None:
    """Give these threads their new number of registers."""
    step.findings.ask()
    if step.a.unmet:
        says = "the warps of its warpgroup have not met at a block_sync since the last one"
        step.wrong(Rule.COLLECTIVE, says, kind="registers")
    step.a.takes_registers(stmt.registers)


def contended(scene: Scene) -> None:
    """Ask who comes first, if nobody can go on and some of those who wait could have registers.

    Raises
    ------
    ContestError
        With the states in which one of them does.
    """
    groups: set[tuple[int, int]] = set()
    for a in scene.state.agents:
        i = None if a.done else scene.world.code.programs[a.kind.index][a.at]
        if isinstance(i, Do) and isinstance(i.site.stmt, kir.SetMaxNReg):
            need = (i.site.stmt.registers - _held(scene.world, a)) * kir.WARPGROUP
            if i.site.stmt.increase and need <= _free(scene, a.kind.cta):
                groups |= {(a.kind.cta, warp // 4) for warp in a.kind.warps}
    if groups:
        raise ContestError([scene.state.serving(group) for group in sorted(groups)])


def _held(world: World, a: Agent) -> int:
    return a.registers or world.kernel.registers


def _free(scene: Scene, cta: int) -> int:
    """Return the registers of a CTA that nobody holds."""
    world = scene.world
    held = sum(_held(world, a) * a.kind.count for a in scene.state.agents if a.kind.cta == cta)
    return world.kernel.registers * world.kernel.threads - held


def budget(scene: Scene) -> None:
    """Check that the registers that are asked for are there, whatever the order."""
    kernel, findings = scene.world.kernel, scene.findings
    changes = [s for s in scene.world.code.sites if isinstance(s.stmt, kir.SetMaxNReg)]
    if not changes:
        return
    held = dict.fromkeys(range(-(-kernel.threads // kir.WARPGROUP)), kernel.registers)
    for site in changes:
        stmt, place = site.stmt, site.place
        assert isinstance(stmt, kir.SetMaxNReg), "these only"
        findings.ask()
        says, rule = "", Rule.BUDGET
        if site.elected or place.first % 4 or place.warps % 4:
            says, rule = "setmaxnreg is executed by whole warpgroups only", Rule.COLLECTIVE
        elif not 24 <= stmt.registers <= 256 or stmt.registers % 8:
            says = f"{stmt.registers} registers: pick a multiple of 8 from 24 to 256"
        elif kernel.registers == 0:
            says = "the kernel does not say how many registers its threads have at launch"
        for group in range(place.first // 4, (place.first + place.warps) // 4):
            now = held[group]
            if not says and (stmt.registers < now if stmt.increase else stmt.registers > now):
                says = f"goes from {now} to {stmt.registers} registers, the other way"
            held[group] = stmt.registers
        if says:
            findings.record(scene.violation(rule, site, says))
    room = max(kernel.registers, 0) * kernel.threads
    used = sum(held.values()) * kir.WARPGROUP
    findings.ask()
    if used > room:
        says = f"waits forever: {used} registers are asked for, the CTA has {room}"
        grows = next((s for s in changes if getattr(s.stmt, "increase", False)), changes[0])
        findings.record(scene.violation(Rule.BUDGET, grows, says))


# --- launches before this one ---------------------------------------------------------------------


def wait_for_launches(step: Step) -> None:
    """Know that the launches before this one have ended.

    There is one such event, whoever waits for it; it may be told by a relaxed arrival, too.
    """
    step.state.ended = step.events.number(Place("ended"))
    if step.holds(Rule.WAIT_ENDS):
        step.a.learns(step.state.past)


def _depends(step: Step) -> None:
    """Check that what launches before this one may use is used after their end."""
    kernel, site = step.world.kernel, step.site
    if isinstance(site.stmt, kir.Gather) and site.stmt.src.name in kernel.early:
        return
    box = touches(site.stmt)
    others = AMONG_CTAS | kir.TensorMapReplace | kir.Gather
    if box is None and not isinstance(site.stmt, others):
        return
    if box is not None:
        read = {box.tensor.name} | ({box.index.src.tensor.name} if box.index else set())
        if read <= {*kernel.early} and not (writes(site.stmt) or adds(site.stmt)):
            return
        told = box.index is not None or step.world.accesses.spreads[site.index] is None
        if not (told or step.world.accesses.touch(site, step.agent)):
            return
    step.findings.ask()
    if not step.a.mine & step.state.past:
        says = f"nothing orders the end of the launches before this one before {said(site, step.k)}"
        step.wrong(Rule.DEPENDENCY, f"{says} by {step.a.kind}")


def execute(step: Step) -> bool:
    """Execute a statement; False if the threads have to wait (they may have moved on since)."""
    a = step.a
    if step.world.kernel.dependent:
        _depends(step)
    match step.site.stmt:  # what is executed most often stands first
        case kir.MBarrierWaitParity(barrier) as stmt:
            if not mbarrier_wait(step, stmt, _at(step, barrier)):
                return False
        case kir.AsyncAwait(kir.AsyncKind.WGMMA) | kir.Wgmma() | kir.SetMaxNReg():
            _converge(step)
            return False
        case kir.AsyncAwait(kind, keep, read_only):
            await_groups(step, kind, keep, read_only=read_only)
        case (
            kir.WgmmaFence() | kir.Compute() | kir.Slice() | kir.Reduce() | kir.Scan()
            | kir.Unpack() | kir.Coordinate() | kir.Mma()
        ):  # fmt: skip
            registers(step)
        case kir.Gather(_, src):
            if src.name in (*step.world.kernel.outputs, *step.world.kernel.workspaces):
                raise UnsupportedError(f"{src.name} is gathered from, and may be written")
            registers(step)
        case kir.Load(_, place):
            _ordinary(step, place, writes=False)
        case kir.Store(place) | kir.AtomicAdd(place):
            _ordinary(step, place, writes=True)
        case kir.AsyncCommit(kind):
            a.commits(kind)
        case kir.MBarrierArrive(barrier, _, _, to) as stmt:
            if (cta := _cta(step, to)) >= 0:
                Visit(step, barrier, _at(step, barrier, cta)).arrive(stmt=stmt)
        case kir.CpAsync(dst, src):
            _cp_async(step, dst, src)
        case kir.TmaLoad() as stmt:
            _tma_load(step, stmt)
        case kir.BlockSync() | kir.NamedArrive() as stmt:
            if not block_sync(step, stmt):
                return False
        case kir.WarpSync():
            warp_sync(step)
            return False
        case kir.ClusterWait():
            if not cluster_wait(step):
                return False
        case kir.BlockSerializeWait() as stmt:
            wait_for_turn(step, stmt)
            return False
        case kir.GridSync() as stmt:
            grid_sync(step, stmt)
            return False
        case kir.LastArriving() as stmt:
            elect_last(step, stmt)
            return False
        case kir.TmaStore(dst, src):
            _tma_store(step, dst, src)
        case kir.TmaReduce(dst, src):
            step.alone(Rule.WAW, "is issued", " at once")
            _tma_store(step, dst, src)
        case kir.QueueCopy(dst, src):
            _queue_copy(step, dst, src)
        case kir.StAsync() as stmt:
            _st_async(step, stmt)
        case kir.MBarrierInit(barrier):
            initialise(step, barrier)
        case kir.MBarrierInvalidate(barrier):
            invalidate(step, barrier)
        case kir.MBarrierArriveExpectTx(barrier) as stmt:
            Visit(step, barrier, _at(step, barrier)).arrive(step.world.expected(stmt))
        case kir.MBarrierExpectTx(barrier) as stmt:
            Visit(step, barrier, _at(step, barrier)).expect(step.world.expected(stmt))
        case kir.CpAsyncMBarrierArrive(barrier, _, noinc):
            groups = a.groups(kir.AsyncKind.CP_ASYNC)
            ends = bits(one[0][0] for group in groups for one in group)
            known = step.not_of_memory | a.copied | ends  # of all copies so far
            Visit(step, barrier, _at(step, barrier)).arrive(raises=not noinc, releases=known)
            # they stay in the open group, which matters only where one is ever awaited
            a.drops_copies(keep=step.world.awaits_copies)
        case kir.FenceAsyncProxy(space):
            _fence(step, space)
        case kir.TensorMapReplace(ref):
            _write_map(step, ref)
        case kir.TensorMapRelease():
            if step.holds(Rule.MAP_FENCES):
                a.carries(step.events.writes_of_maps, RELEASED)
        case kir.TensorMapAcquire(maps):
            where = step.map_slot(maps)
            if where is not None and step.holds(Rule.MAP_FENCES):
                a.acquires(step.events.maps.get(where, 0))
        case kir.GridDependencyWait():
            wait_for_launches(step)
        case kir.GridDependencyLaunch():
            pass
        case kir.FenceMBarrierInit():
            inits = (a.own & a.mine & step.events.inits) << SHARED
            a.fences_inits(inits)
        case kir.ThreadFence(scope):
            wide = scope is kir.Scope.CLUSTER and step.world.kernel.cluster > 1
            if wide or scope is kir.Scope.GPU:
                a.fenced |= a.mine
        case kir.ClusterArrive(relaxed):
            cluster_arrive(step, relaxed=relaxed)
        case kir.BlockSerializeRelease() as stmt:
            release(step, stmt)
        case stmt:
            raise UnsupportedError(f"{step.site.where}: {type(stmt).__name__}")
    a.goes_on()
    return True


def _at(step: Step, barrier: kir.MBarrier, cta: int = -1) -> Where:
    """Return the slot of a barrier that a statement means, in its own CTA unless it says so."""
    return (step.cta if cta < 0 else cta), barrier.name, step.value("bar")


def _cta(step: Step, rank: Expr | None) -> int:
    """Return the CTA that a statement reaches, its own unless it says so; -1 if there is none."""
    cta, many = step.cta if rank is None else step.value("cta"), step.world.kernel.cluster
    if rank is not None:
        step.findings.ask()
    if rank is not None and not 0 <= cta < many:
        step.wrong(Rule.BOUNDS, f"reaches for CTA {cta} of a cluster of {many}")
        return -1
    return cta


def _converge(step: Step) -> None:
    """Execute a statement that all lanes of a warp execute at once.

    They are there together, so each has returned from its waits; that says nothing about memory.

    Source: PTX ISA, "wgmma.mma_async", `.sync.aligned`.
    """
    a, site = step.a, step.site
    mate, stmt = step.state.mate(a), site.stmt
    group = warpgroup(step) if isinstance(stmt, kir.Wgmma) else ()
    if site.elected:
        step.wrong(Rule.COLLECTIVE, "is executed by all lanes of a warp only")
        members: tuple[Agent, ...] = (a,)
    elif any(b.waiting != f"lanes {site.index}" for b in (mate, *group) if b is not a):
        a.stops(f"lanes {site.index}")
        return
    elif isinstance(stmt, kir.SetMaxNReg) and not granted(step, stmt):
        return
    else:
        members = group or tuple(sorted((a, mate), key=lambda one: one.kind.index))
        for lead, rest in zip(members[::2], members[1::2], strict=True):
            met = (lead.mine | rest.mine) & ~step.events.accesses
            lead.learns_with_warp(met)
            rest.learns_with_warp(met)
    for one in members:
        mine = step.by(one)
        match stmt:
            case kir.SetMaxNReg():
                take_registers(mine, stmt)
            case kir.AsyncAwait(kind, keep):
                await_groups(mine, kind, keep, read_only=False)
                if one.kind.warps[0] // 4 == one.kind.warps[-1] // 4:
                    learn_of_product(mine)
            case kir.Wgmma():
                wgmma(mine, stmt)
            case _:
                raise AssertionError("only what lanes do together")
        one.goes_on()
    if group:
        note_product(step, group)


def _box(step: Step, tensor: kir.Tensor) -> Where | None:
    """Return the piece of global memory that a statement accesses now, if it is followed."""
    layout = step.world.layout
    if tensor.name not in layout.tracked:
        return None
    step.depends(layout.names(step.do)[0])
    return layout.box(step.do, step.a)


def _ordinary(step: Step, place: kir.Slot | kir.Box, *, writes: bool) -> None:
    registers(step)
    if not step.world.accesses.touch(step.site, step.agent):
        return
    if isinstance(place, kir.Box):
        if (there := _box(step, place.tensor)) is not None:
            Access(step, there, writes).judge()
        return
    cta = _cta(step, place.cta)
    at = step.slot(place.buffer, step.value("slot"), cta) if cta >= 0 else None
    if at is None:
        return
    event = Access(step, at, writes).judge()
    if cta != step.cta:
        _has_begun(step, writes=writes)
        step.state.fly(event, cta, step.site.index)
    if writes and step.world.accesses.collide(step.site, step.agent):
        step.wrong(Rule.WAW, "threads of one store share bytes", earlier=step.site)


def _has_begun(step: Step, *, writes: bool) -> None:
    """Check that a CTA of the cluster has begun that threads store into.

    Source: CUDA programming guide, "distributed shared memory".  What is read there has been
    written there, and who uses an mbarrier there knows of its init.
    """
    step.findings.ask()
    if writes and not (step.state.begun >= 0 and step.knows(step.state.begun)):
        step.wrong(Rule.BEGUN, "nothing tells that this CTA of the cluster has begun")


def _launched(step: Step, slot: kir.Slot, index: int, cta: int, *, writes: bool) -> int:
    """Let an engine access a slot through the async proxy; return the end, -1 without a slot."""
    at = step.slot(slot.buffer, index, cta, proxy=True)
    if at is None:
        return -1
    end = Access(step, at, writes, proxy=True, engine=True).judge()
    step.state.fly(end, cta, step.site.index)
    return end


def _cp_async(step: Step, dst: kir.Slot, src: kir.Box) -> None:
    if not step.world.accesses.touch(step.site, step.agent):
        return
    if (there := _box(step, src.tensor)) is not None:
        read = Access(step, there, writes=False, engine=True).judge()
        step.a.starts(kir.AsyncKind.CP_ASYNC, (read,))
    where = step.slot(dst.buffer, step.value("slot"), step.cta)
    if where is not None:
        end = Access(step, where, writes=True, engine=True).judge()
        step.a.starts(kir.AsyncKind.CP_ASYNC, (end,))
        step.state.fly(end, step.cta, step.site.index)


def _st_async(step: Step, stmt: kir.StAsync) -> None:
    registers(step)
    world, site, buffer = step.world, step.site, stmt.dst.buffer
    step.findings.ask()
    if world.kernel.cluster == 1:
        step.wrong(Rule.COLLECTIVE, "reaches into a cluster, and the kernel has none")
    if stmt.src.layout.threads != len(site.place.threads):
        says = f"{len(site.place.threads)} threads, {stmt.src.name} is dealt to others"
        step.wrong(Rule.COLLECTIVE, f"is executed by {says}")
    if not world.accesses.touch(site, step.agent):
        return
    cta = _cta(step, stmt.dst.cta)
    at = step.slot(buffer, step.value("slot"), cta) if cta >= 0 else None
    if at is None:
        return
    end = Access(step, at, writes=True, engine=True).judge()
    step.state.fly(end, cta, site.index)
    if world.accesses.collide(site, step.agent):
        step.wrong(Rule.WAW, "threads of one store share bytes", earlier=site)
    visit = Visit(step, stmt.barrier, _at(step, stmt.barrier, cta))
    nbytes = world.accesses.count(site, step.agent) * buffer.dtype.nbytes
    visit.deliver(nbytes, step.not_of_memory | bit(end), end, far=cta != step.cta)


def _tma_load(step: Step, stmt: kir.TmaLoad) -> None:
    step.alone(Rule.WAW, "is issued", " at once")
    a, box, index = step.a, stmt.src, step.value("slot")
    if box.index is not None:
        may = {*step.world.kernel.outputs, *step.world.kernel.workspaces}
        if not may.isdisjoint((box.tensor.name, box.index.src.tensor.name)):
            raise UnsupportedError(f"an index says where {box.tensor.name} is read; one is written")
    _, name, bar = _at(step, stmt.barrier)
    nbytes = prod(box.shape) * box.tensor.dtype.nbytes * a.kind.count
    read = 0
    if (there := _box(step, box.tensor)) is not None:
        read = bit(Access(step, there, writes=False, proxy=True, engine=True).judge())
    ctas = [step.cta]
    if stmt.multicast is not None:
        mask, all_of_them = step.value("cast"), (1 << step.world.kernel.cluster) - 1
        step.findings.ask()
        if not mask or mask & ~all_of_them:
            step.wrong(Rule.BOUNDS, f"multicast by {mask}, its cluster has mask {all_of_them}")
        ctas = [cta for cta in range(step.world.kernel.cluster) if mask >> cta & 1]
    # of a multicast every copy has to be over before the map may be written
    maps = [0] * len(ctas)
    if stmt.through is not None:
        ends = [_goes_by_map(step, stmt.through) for _ in ctas]
        maps = [bit(end) if end >= 0 else 0 for end in ends]
    for cta, went_by in zip(ctas, maps, strict=True):
        end = _launched(step, stmt.dst, index, cta, writes=True)
        if end < 0:
            return
        # After a mere issue nothing is ordered: the copy does not release what its thread did
        # before; that it came before in time is all.
        facts = step.not_of_memory | bit(end) | read | went_by
        visit = Visit(step, stmt.barrier, (cta, name, bar))
        visit.fenced()
        visit.deliver(nbytes, facts, end)


def _tma_store(step: Step, dst: kir.Box, src: kir.Slot) -> None:
    read = _launched(step, src, step.value("slot"), step.cta, writes=False)
    if read < 0:
        return
    write = -1
    if (there := _box(step, dst.tensor)) is not None:
        write = Access(step, there, writes=True, proxy=True, engine=True).judge()
    step.a.starts(kir.AsyncKind.BULK, (read, write))
    through = getattr(step.site.stmt, "through", None)
    if through is not None and (went_by := _goes_by_map(step, through)) >= 0:
        step.a.starts(kir.AsyncKind.BULK, (went_by, -1))


def _queue_copy(step: Step, dst: kir.Slot, src: kir.Box) -> None:
    """Put a copy at the end of the queue of a thread, each of which is a group by itself."""
    step.alone(Rule.WAW, "is issued", " at once")
    ends: tuple[int, ...] = ()
    if (there := _box(step, src.tensor)) is not None:
        ends = (Access(step, there, writes=False, proxy=True, engine=True).judge(),)
    end = _launched(step, dst, step.value("slot"), step.cta, writes=True)
    step.a.starts(kir.AsyncKind.QUEUE, (*ends, end) if end >= 0 else ends)
    step.a.commits(kir.AsyncKind.QUEUE)


def _write_map(step: Step, ref: kir.MapSlot) -> None:
    """Write a tensor map, and put down what it says."""
    step.alone(Rule.WAW, "is executed")
    where = step.map_slot(ref.maps)
    if where is None:
        return
    Access(step, where, writes=True).judge()
    names = sorted({v.name for e in step.do.says for v in variables(e) if v.name in step.a.env})
    values = tuple((name, step.a.env[name]) for name in names)
    step.state.told[where] = Told(step.site.index, step.do.says, values)
    for name in names:
        step.state.notes(Kept((("told", where), name), (step.agent, name)))


def _goes_by_map(step: Step, ref: kir.MapSlot) -> int:
    """Let a copy read its tensor map; return the event of the end of that, -1 without one."""
    where = step.map_slot(ref.maps)
    if where is None:
        return -1
    end = Access(step, where, writes=False, proxy=True, engine=True).judge()
    told = step.state.told.get(where)
    if told is None:
        return end
    known: dict[Var, Expr] = {Var(n): v for n, v in step.a.env.items()}
    then: dict[Var, Expr] = {Var(n): v for n, v in told.values}
    step.findings.ask()
    for told_, taken in zip(told.says, step.do.says, strict=True):
        is_, meant = substitute(told_, then), substitute(taken, known)
        if poly(is_) != poly(meant):  # in which launch they differ is for `showing` to find
            says = f"the map says {is_}, not {meant}: {said(step.site, step.k)}"
            writer = step.world.code.sites[told.site]
            event = next(e.event for e in step.state.memory[where] if e.writes)
            step.wrong(Rule.MAP, says, earlier=writer, event=event)
            return end
    step.state.notes(Said(step.agent, where, told.says, step.do.says))
    return end


def _fence(step: Step, space: kir.Space) -> None:
    """Carry what these threads know over to the async proxy.

    Inits are left out: only fence.mbarrier_init by their own thread makes them visible to other
    CTAs (PTX ISA, "fence.mbarrier_init"), and it has to stand before the barrier of the cluster.
    """
    if not step.holds(Rule.FENCE_ORDERS):
        return
    carried = ONES & ~step.events.inits & ~step.events.writes_of_maps
    for fact, silent in ((SHARED, kir.Space.GLOBAL), (GLOBAL, kir.Space.SHARED)):
        if space is not silent:
            step.a.carries(carried, fact)
    step.a.carries(step.a.own & carried, OWN)
