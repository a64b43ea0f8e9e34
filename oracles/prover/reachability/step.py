"""One statement by threads of one kind: which of the prover's rules it uses."""

from __future__ import annotations

from math import prod
from typing import TypeVar

from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.barriers import block_sync, cluster_arrive, cluster_wait, warp_sync
from oracles.prover.reachability.grid.last_arriving import come
from oracles.prover.reachability.grid.semaphores import meet_ctas, release_turn, take_turn
from oracles.prover.reachability.mbarriers import arrive, deliver, initialise, invalidate, wait
from oracles.prover.reachability.memory import access
from oracles.prover.reachability.program.code import Do, Site
from oracles.prover.reachability.register_pool import granted, take
from oracles.prover.reachability.registers import await_groups, registers, wgmma
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, GLOBAL, ONES, OWN, SHARED, Agent, State, Where
from oracles.prover.reachability.warpgroup import learn_of_group, note_group, warpgroup
from oracles.prover.reachability.world import World

Group = TypeVar("Group", bound=tuple[object, ...])


def execute(world: World, state: State, a: Agent, do: Do, k: int) -> bool:
    """Execute a statement; False if the threads have to wait (they may have moved on since)."""
    site, cta = do.site, a.kind.cta
    stmt = site.stmt

    def value(name: str) -> int:
        return do.values[name](a.env)

    def bar(barrier: kir.MBarrier) -> Where:
        return cta, barrier.name, value("bar")

    match stmt:
        case kir.BlockSync():
            if not block_sync(world, state, a, site, stmt, k):
                return False
        case kir.NamedArrive():
            block_sync(world, state, a, site, stmt, k)
        case kir.WarpSync():
            warp_sync(world, state, a)
            return False
        case kir.MBarrierWaitParity(barrier):
            if not wait(world, state, a, site, stmt, bar(barrier), value("parity"), k):
                return False
        case kir.ClusterWait():
            if not cluster_wait(world, state, a, site, k):
                return False
        case kir.AsyncAwait(kir.AsyncKind.WGMMA) | kir.Wgmma() | kir.SetMaxNReg():
            _converge(world, state, a, do, k)
            return False
        case kir.AsyncAwait(kind, keep, read_only):
            await_groups(world, state, a, kind, keep, read_only=read_only)
        case kir.BlockSerializeWait():
            take_turn(world, state, a, do, stmt, k)
            return False
        case kir.GridSync():
            meet_ctas(world, state, a, do, stmt, k)
            return False
        case kir.LastArriving():
            come(world, state, a, do, stmt, k)
            return False
        case _:
            _go(world, state, a, do, k)
    a.at += 1
    a.waiting = ""
    return True


def _converge(world: World, state: State, a: Agent, do: Do, k: int) -> None:
    """Execute a statement that all lanes of a warp execute at once.

    They are there together, so each has returned from its waits; that says nothing about memory.

    Source: PTX ISA, "wgmma.mma_async", `.sync.aligned`.
    """
    mate = state.agents[a.kind.index ^ 1]
    stmt = do.site.stmt
    group = warpgroup(world, state, a, do.site) if isinstance(stmt, kir.Wgmma) else ()
    if do.site.elected:
        says = "is executed by all lanes of a warp only"
        world.wrong(state, Rule.COLLECTIVE, "collective", do.site, k, says)
    elif any(b.waiting != f"lanes {do.site.index}" for b in (mate, *group) if b is not a):
        a.waiting = f"lanes {do.site.index}"
        return
    elif isinstance(stmt, kir.SetMaxNReg) and not granted(world, state, a, stmt):
        return
    members = group or tuple(sorted((a, mate), key=lambda one: one.kind.index))
    if do.site.elected:
        members = (a,)
    else:
        for lead, rest in zip(members[::2], members[1::2], strict=True):
            met = (lead.mine | rest.mine) & ~world.access_bits
            for one in (lead, rest):
                one.mine |= met
                one.warp |= met
                if len(one.kind.warps) == 1:
                    one.all |= met
    for one in members:
        match stmt:
            case kir.SetMaxNReg():
                take(world, state, one, do.site, stmt, k)
            case kir.AsyncAwait(kind, keep):
                await_groups(world, state, one, kind, keep, read_only=False)
                if one.kind.warps[0] // 4 == one.kind.warps[-1] // 4:
                    learn_of_group(world, state, one)
            case kir.Wgmma():
                wgmma(world, state, one, do, stmt, k, _slot)
            case _:
                raise AssertionError("only what lanes do together")
        one.waiting = ""
        one.at += 1
    if group:
        note_group(world, state, group)


def _go(world: World, state: State, a: Agent, do: Do, k: int) -> None:
    """Execute a statement that never waits."""
    site, cta = do.site, a.kind.cta
    stmt = site.stmt

    def value(name: str) -> int:
        return do.values[name](a.env)

    match stmt:
        case kir.Load() | kir.Store() | kir.AtomicAdd():
            _ordinary(world, state, a, do, k)
        case kir.TmaLoad():
            _tma_load(world, state, a, do, stmt, k)
        case kir.TmaStore(dst, src) | kir.TmaReduce(dst, src):
            _tma_store(world, state, a, do, dst, src, k)
        case kir.CpAsync(dst, src):
            if world.touches(site, a.kind.index):
                if src.tensor.name in world.tracked:
                    there = world.box(do, a)
                    read = access(world, state, a, site, there, k, writes=False, engine=True, do=do)
                    a.copies_open = (*a.copies_open, read)
                where = _slot(world, state, a, site, dst.buffer, value("slot"), cta, k)
                if where is not None:
                    end = access(world, state, a, site, where, k, writes=True, engine=True)
                    a.copies_open = (*a.copies_open, end)
                    state.flying[end] = cta, site.index
        case kir.MBarrierInit(barrier):
            initialise(world, state, a, site, barrier, k)
        case kir.MBarrierInvalidate(barrier):
            invalidate(world, state, a, site, barrier, k)
        case kir.MBarrierArrive(barrier, _, scope, to):
            where = (cta if to is None else value("cta")), barrier.name, value("bar")
            arrive(world, state, a, site, where, barrier, k, scope=scope)
        case kir.MBarrierArriveExpectTx(barrier, _, nbytes):
            where = cta, barrier.name, value("bar")
            arrive(world, state, a, site, where, barrier, k, nbytes=nbytes)
        case kir.MBarrierExpectTx(barrier, _, nbytes):
            where = cta, barrier.name, value("bar")
            arrive(world, state, a, site, where, barrier, k, nbytes=nbytes, counts=False)
        case kir.CpAsyncMBarrierArrive(barrier, _, noinc):
            _copies_arrive(world, state, a, do, barrier, k, noinc=noinc)
        case kir.AsyncCommit(kind):
            _commit(a, kind)
        case kir.FenceAsyncProxy(space):
            _fence(world, a, space)
        case kir.FenceMBarrierInit():
            inits = (a.own & a.mine & world.init_bits) << SHARED
            a.mine |= inits
            if a.kind.alone:
                state.learn(a, inits)
            a.fenced |= inits | inits >> SHARED
        case kir.ThreadFence(scope):
            wide = scope is kir.Scope.CLUSTER and world.kernel.cluster > 1
            if wide or scope is kir.Scope.GPU:
                a.fenced |= a.mine
        case (
            kir.WgmmaFence() | kir.Compute() | kir.Slice() | kir.Reduce() | kir.Coordinate()
            | kir.Mma()
        ):  # fmt: skip
            registers(world, state, a, site, k)
        case kir.ClusterArrive(relaxed):
            cluster_arrive(world, state, a, site, k, relaxed=relaxed)
        case kir.BlockSerializeRelease():
            release_turn(world, state, a, do, stmt, k)
        case _:
            raise UnsupportedError(f"{site.where}: {type(stmt).__name__}")


def _slot(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    buffer: kir.Buffer,
    index: int,
    cta: int,
    k: int,
) -> Where | None:
    world.checked += 1
    if not 0 <= index < buffer.slots:
        says = f"{buffer.name}[{index}] is outside its {buffer.slots} slots"
        world.wrong(state, Rule.BOUNDS, "bounds", site, k, says)
        return None
    for m, slot in world.under.get((buffer.name, index), ()):
        life = state.phases.get((cta, m.name, slot))
        if (
            life is not None
            and (life.alive or not a.mine >> FACTS * life.end & 1)
            and world.covers(site, a.kind.index, (cta, buffer.name, index), m, slot)
        ):
            says = f"{buffer.name}[{index}] lies on bytes of {m.name}, which may still be alive"
            world.wrong(state, Rule.INIT, "init", site, k, says)
    return cta, buffer.name, index


def _ordinary(world: World, state: State, a: Agent, do: Do, k: int) -> None:
    site, stmt = do.site, do.site.stmt
    registers(world, state, a, site, k)
    match stmt:
        case kir.Load(_, place):
            writes = False
        case kir.Store(place):
            writes = True
        case kir.AtomicAdd(place):
            writes = True
        case _:
            raise AssertionError("ordinary accesses only")
    if not world.touches(site, a.kind.index):
        return
    if isinstance(place, kir.Box):
        if place.tensor.name in world.tracked:
            access(world, state, a, site, world.box(do, a), k, writes=writes, do=do)
        return
    cta = a.kind.cta if place.cta is None else do.values["cta"](a.env)
    at = _slot(world, state, a, site, place.buffer, do.values["slot"](a.env), cta, k)
    if at is None:
        return
    event = access(world, state, a, site, at, k, writes=writes)
    if cta != a.kind.cta:
        state.flying[event] = cta, site.index
    if writes and world.collides(site, a.kind.index):
        says = "threads of one store share bytes"
        world.wrong(state, Rule.WAW, "WAW", site, k, says, earlier=site)


def _alone(world: World, state: State, a: Agent, site: Site, k: int) -> None:
    if not a.kind.alone:
        says = f"is issued by {a.kind.count} threads at once"
        world.wrong(state, Rule.WAW, "WAW", site, k, says)


def _tma_load(world: World, state: State, a: Agent, do: Do, stmt: kir.TmaLoad, k: int) -> None:
    site = do.site
    _alone(world, state, a, site, k)
    index, bar = do.values["slot"](a.env), do.values["bar"](a.env)
    nbytes = prod(stmt.src.shape) * stmt.src.tensor.dtype.nbytes * a.kind.count
    name = stmt.src.tensor.name
    read = -1
    if name in world.tracked:
        read = access(
            world, state, a, site, world.box(do, a), k,
            writes=False, proxy=True, engine=True, do=do,
        )  # fmt: skip
    ctas = [a.kind.cta]
    if stmt.multicast is not None:
        mask = do.values["cast"](a.env)
        ctas = [cta for cta in range(world.kernel.cluster) if mask >> cta & 1]
    for cta in ctas:
        at = _slot(world, state, a, site, stmt.dst.buffer, index, cta, k)
        if at is None:
            return
        end = access(world, state, a, site, at, k, writes=True, proxy=True, engine=True)
        state.flying[end] = cta, site.index
        # After a mere issue nothing is ordered: what its thread did before is not told by the copy,
        # only that it came before in time.
        facts = a.mine & ~world.access_bits | 1 << FACTS * end
        if read >= 0:
            facts |= 1 << FACTS * read
        deliver(world, state, a, site, (cta, stmt.barrier.name, bar), nbytes, facts, end, k)


def _tma_store(
    world: World, state: State, a: Agent, do: Do, dst: kir.Box, src: kir.Slot, k: int
) -> None:
    site = do.site
    if isinstance(site.stmt, kir.TmaReduce):
        _alone(world, state, a, site, k)
    at = _slot(world, state, a, site, src.buffer, do.values["slot"](a.env), a.kind.cta, k)
    if at is None:
        return
    read = access(world, state, a, site, at, k, writes=False, proxy=True, engine=True)
    state.flying[read] = a.kind.cta, site.index
    write = -1
    if dst.tensor.name in world.tracked:
        write = access(
            world, state, a, site, world.box(do, a), k,
            writes=True, proxy=True, engine=True, do=do,
        )  # fmt: skip
    a.bulk_open = (*a.bulk_open, (read, write))


def _copies_arrive(
    world: World, state: State, a: Agent, do: Do, barrier: kir.MBarrier, k: int, *, noinc: bool
) -> None:
    """Let this thread's copies so far arrive when they are done."""
    ends = [end for group in (*a.copies, a.copies_open) for end in group]
    known = a.mine & ~world.access_bits
    for end in ends:
        known |= 1 << FACTS * end
    where = a.kind.cta, barrier.name, do.values["bar"](a.env)
    arrive(world, state, a, do.site, where, barrier, k, raises=not noinc, releases=known)
    # they stay in the open group, which matters only where one is ever awaited
    still = a.copies_open if world.awaits_copies else ()
    a.copies_open = tuple(end for end in still if not a.mine >> FACTS * end & 1)


def _commit(a: Agent, kind: kir.AsyncKind) -> None:
    match kind:
        case kir.AsyncKind.BULK:
            a.bulk, a.bulk_open = _trimmed((*a.bulk, a.bulk_open)), ()
        case kir.AsyncKind.CP_ASYNC:
            a.copies, a.copies_open = _trimmed((*a.copies, a.copies_open)), ()
        case kir.AsyncKind.WGMMA:
            a.mma, a.mma_open = _trimmed((*a.mma, a.mma_open)), ()


def _trimmed(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Drop empty groups that are older than any other: all but the latest say the same without."""
    first = next((i for i, group in enumerate(groups) if group), len(groups))
    return groups[first:]


def _fence(world: World, a: Agent, space: kir.Space) -> None:
    """Carry what these threads know over to the async proxy.

    Inits are left out: only fence.mbarrier_init by their own thread makes them visible to other
    CTAs (PTX ISA, "fence.mbarrier_init"), and it has to stand before the barrier of the cluster.
    """
    if Rule.FENCE_ORDERS in world.off:
        return
    carried = ONES & ~world.init_bits
    for fact, silent in ((SHARED, kir.Space.GLOBAL), (GLOBAL, kir.Space.SHARED)):
        if space is not silent:
            a.mine |= (a.mine & carried) << fact
            a.warp |= (a.warp & carried) << fact
            a.all |= (a.all & carried) << fact
    own = a.own & carried
    a.mine |= (a.mine & own) << OWN
    a.warp |= (a.warp & own) << OWN
    a.all |= (a.all & own) << OWN
