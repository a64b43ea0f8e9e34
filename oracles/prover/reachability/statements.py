"""What each statement does: which of the prover's rules it uses."""

from __future__ import annotations

from math import prod

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.barriers import block_sync, cluster_arrive, cluster_wait, warp_sync
from oracles.prover.reachability.grid.semaphores import (
    elect_last,
    meet_ctas,
    release,
    wait_for_turn,
)
from oracles.prover.reachability.mbarriers import Visit, initialise, invalidate, must_wait
from oracles.prover.reachability.memory import Access
from oracles.prover.reachability.registers import (
    await_groups,
    granted,
    learn_of_product,
    note_product,
    registers,
    take_registers,
    warpgroup,
    wgmma,
)
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import GLOBAL, ONES, OWN, SHARED, Agent, Where, bit, bits
from oracles.prover.reachability.step import Step


def execute(step: Step) -> bool:
    """Execute a statement; False if the threads have to wait (they may have moved on since)."""
    match step.site.stmt:
        case kir.BlockSync() as stmt:
            if not block_sync(step, stmt):
                return False
        case kir.NamedArrive() as stmt:
            block_sync(step, stmt)
        case kir.WarpSync():
            warp_sync(step)
            return False
        case kir.MBarrierWaitParity(barrier) as stmt:
            where, parity = _at(step, barrier), step.value("parity")
            if must_wait(step, stmt, where, parity):
                return False
            Visit(step, barrier, where).wait(stmt, parity)
        case kir.ClusterWait():
            if not cluster_wait(step):
                return False
        case kir.AsyncAwait(kir.AsyncKind.WGMMA) | kir.Wgmma() | kir.SetMaxNReg():
            _converge(step)
            return False
        case kir.AsyncAwait(kind, keep, read_only):
            await_groups(step, kind, keep, read_only=read_only)
        case kir.BlockSerializeWait() as stmt:
            wait_for_turn(step, stmt)
            return False
        case kir.GridSync() as stmt:
            meet_ctas(step, stmt)
            return False
        case kir.LastArriving() as stmt:
            elect_last(step, stmt)
            return False
        case _:
            _go(step)
    step.a.goes_on()
    return True


def _at(step: Step, barrier: kir.MBarrier, cta: int = -1) -> Where:
    """Return the slot of a barrier that a statement means, in its own CTA unless it says so."""
    return (step.cta if cta < 0 else cta), barrier.name, step.value("bar")


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


def _go(step: Step) -> None:
    """Execute a statement that never waits."""
    a = step.a
    match step.site.stmt:
        case kir.Load(_, place):
            _ordinary(step, place, writes=False)
        case kir.Store(place) | kir.AtomicAdd(place):
            _ordinary(step, place, writes=True)
        case kir.TmaLoad() as stmt:
            _tma_load(step, stmt)
        case kir.TmaStore(dst, src):
            _tma_store(step, dst, src)
        case kir.TmaReduce(dst, src):
            step.alone(Rule.WAW, "is issued", " at once")
            _tma_store(step, dst, src)
        case kir.CpAsync(dst, src):
            _cp_async(step, dst, src)
        case kir.MBarrierInit(barrier):
            initialise(step, barrier)
        case kir.MBarrierInvalidate(barrier):
            invalidate(step, barrier)
        case kir.MBarrierArrive(barrier, _, scope, to):
            cta = -1 if to is None else step.value("cta")
            Visit(step, barrier, _at(step, barrier, cta)).arrive(scope=scope)
        case kir.MBarrierArriveExpectTx(barrier, _, nbytes):
            Visit(step, barrier, _at(step, barrier)).arrive(nbytes)
        case kir.MBarrierExpectTx(barrier, _, nbytes):
            Visit(step, barrier, _at(step, barrier)).expect(nbytes)
        case kir.CpAsyncMBarrierArrive(barrier, _, noinc):
            groups = a.groups(kir.AsyncKind.CP_ASYNC)
            known = step.not_of_memory | bits(one[0][0] for group in groups for one in group)
            Visit(step, barrier, _at(step, barrier)).arrive(raises=not noinc, releases=known)
            # they stay in the open group, which matters only where one is ever awaited
            a.drops_copies(keep=step.world.awaits_copies)
        case kir.AsyncCommit(kind):
            a.commits(kind)
        case kir.FenceAsyncProxy(space):
            _fence(step, space)
        case kir.FenceMBarrierInit():
            inits = (a.own & a.mine & step.events.inits) << SHARED
            a.fences_inits(inits)
        case kir.ThreadFence(scope):
            wide = scope is kir.Scope.CLUSTER and step.world.kernel.cluster > 1
            if wide or scope is kir.Scope.GPU:
                a.fenced |= a.mine
        case (
            kir.WgmmaFence() | kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate()
            | kir.Mma()
        ):  # fmt: skip
            registers(step)
        case kir.ClusterArrive(relaxed):
            cluster_arrive(step, relaxed=relaxed)
        case kir.BlockSerializeRelease() as stmt:
            release(step, stmt)
        case stmt:
            raise UnsupportedError(f"{step.site.where}: {type(stmt).__name__}")


def _box(step: Step, tensor: kir.Tensor) -> Where | None:
    """Return the piece of global memory that a statement accesses now, if it is followed."""
    layout = step.world.layout
    return layout.box(step.do, step.a) if tensor.name in layout.tracked else None


def _ordinary(step: Step, place: kir.Slot | kir.Box, *, writes: bool) -> None:
    registers(step)
    if not step.world.accesses.touch(step.site, step.agent):
        return
    if isinstance(place, kir.Box):
        if (there := _box(step, place.tensor)) is not None:
            Access(step, there, writes).judge()
        return
    cta = step.cta if place.cta is None else step.value("cta")
    at = step.slot(place.buffer, step.value("slot"), cta)
    if at is None:
        return
    event = Access(step, at, writes).judge()
    if cta != step.cta:
        step.state.fly(event, cta, step.site.index)
    if writes and step.world.accesses.collide(step.site, step.agent):
        step.wrong(Rule.WAW, "threads of one store share bytes", earlier=step.site)


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


def _tma_load(step: Step, stmt: kir.TmaLoad) -> None:
    step.alone(Rule.WAW, "is issued", " at once")
    a, box, index = step.a, stmt.src, step.value("slot")
    _, name, bar = _at(step, stmt.barrier)
    nbytes = prod(box.shape) * box.tensor.dtype.nbytes * a.kind.count
    read = 0
    if (there := _box(step, box.tensor)) is not None:
        read = bit(Access(step, there, writes=False, proxy=True, engine=True).judge())
    ctas = [step.cta]
    if stmt.multicast is not None:
        mask = step.value("cast")
        ctas = [cta for cta in range(step.world.kernel.cluster) if mask >> cta & 1]
    for cta in ctas:
        at = step.slot(stmt.dst.buffer, index, cta)
        if at is None:
            return
        end = Access(step, at, writes=True, proxy=True, engine=True).judge()
        step.state.fly(end, cta, step.site.index)
        # After a mere issue nothing is ordered: the copy does not release what its thread did
        # before; that it came before in time is all.
        facts = step.not_of_memory | bit(end) | read
        Visit(step, stmt.barrier, (cta, name, bar)).deliver(nbytes, facts, end)


def _tma_store(step: Step, dst: kir.Box, src: kir.Slot) -> None:
    at = step.slot(src.buffer, step.value("slot"), step.cta)
    if at is None:
        return
    read = Access(step, at, writes=False, proxy=True, engine=True).judge()
    step.state.fly(read, step.cta, step.site.index)
    write = -1
    if (there := _box(step, dst.tensor)) is not None:
        write = Access(step, there, writes=True, proxy=True, engine=True).judge()
    step.a.starts(kir.AsyncKind.BULK, (read, write))


def _fence(step: Step, space: kir.Space) -> None:
    """Carry what these threads know over to the async proxy.

    Inits are left out: only fence.mbarrier_init by their own thread makes them visible to other
    CTAs (PTX ISA, "fence.mbarrier_init"), and it has to stand before the barrier of the cluster.
    """
    if not step.holds(Rule.FENCE_ORDERS):
        return
    carried = ONES & ~step.events.inits
    for fact, silent in ((SHARED, kir.Space.GLOBAL), (GLOBAL, kir.Space.SHARED)):
        if space is not silent:
            step.a.carries(carried, fact)
    step.a.carries(step.a.own & carried, OWN)
