"""Where threads join: named barriers, the lanes of a warp, and the cluster's barrier.

Turns of a barrier are told apart as the argument in `closure` asks for: threads that reach it know
that its last turn is over.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.register_pool import met
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import FACTS, Agent, State, Turn
from oracles.prover.reachability.world import World
from oracles.prover.sites import Site


def block_sync(
    world: World, state: State, a: Agent, site: Site, stmt: kir.BlockSync | kir.NamedArrive, k: int
) -> bool:
    """Reach a named barrier; the last thread to arrive lets all of them go on."""
    return _reach(
        world, state, a, site, (a.kind.cta, stmt.barrier), stmt.threads, k,
        stays=isinstance(stmt, kir.BlockSync),
    )  # fmt: skip


def _reach(
    world: World,
    state: State,
    a: Agent,
    site: Site,
    key: tuple[int, int],
    threads: int,
    k: int,
    *,
    stays: bool,
) -> bool:
    turn = state.turns.setdefault(key, Turn())
    if turn.count == 0:
        turn.threads = threads
    name = f"barrier {key[1]}"
    if turn.threads != threads:
        says = f"{name} is used with {turn.threads} and with {threads} threads"
        world.wrong(state, Rule.SYNC_COUNT, "collective", site, k, says)
    world.checked += 1
    if turn.last >= 0 and not a.mine >> FACTS * turn.last & 1:
        says = f"nothing keeps it apart from the last turn of {name}"
        earlier = world.code.sites[state.when[turn.last][1]]
        world.wrong(state, Rule.SYNC_APART, "collective", site, k, says, earlier=earlier)
    turn.count += a.kind.count
    turn.before |= a.mine
    if stays:
        turn.waiting = (*turn.waiting, a.kind.index)
        a.waiting = "sync"
    if turn.count > turn.threads:
        says = f"{turn.count} threads arrive at {name}, which takes {turn.threads}"
        world.wrong(state, Rule.SYNC_COUNT, "collective", site, k, says)
    if turn.count >= turn.threads:
        end = world.event(state, "turn", key)
        state.when[end] = k, site.index
        _released(world, state, turn, end, k)
        turn.last = end
        turn.count, turn.before, turn.waiting = 0, 0, ()
    return not stays


def _released(world: World, state: State, turn: Turn, end: int, k: int) -> None:
    """Let all threads that have met go on, knowing what each of them knew."""
    facts = turn.before | 1 << FACTS * end if Rule.SYNC_JOINS not in world.off else 1 << FACTS * end
    met(state, turn.waiting)
    for index in turn.waiting:
        other = state.agents[index]
        state.learn(other, facts)
        other.waiting = ""
        other.at += 1


def warp_sync(world: World, state: State, a: Agent) -> None:
    """Reach a `WarpSync`: the two kinds of lanes of these warps go on together."""
    mate = state.agents[a.kind.index ^ 1]
    if mate.waiting != "warp":
        a.waiting = "warp"
        return
    if Rule.WARP_JOINS not in world.off:
        both, common = a.mine | mate.mine, a.all | mate.all
        if len(a.kind.warps) == 1:
            common = both
        for one in (a, mate):
            one.mine = one.warp = both
            one.all = common
    for one in (a, mate):
        one.waiting = ""
        one.at += 1


def cluster_arrive(
    world: World, state: State, a: Agent, site: Site, k: int, *, relaxed: bool
) -> None:
    """Arrive at the cluster's barrier."""
    key = -1, 0
    turn = state.turns.setdefault(key, Turn(world.kernel.threads * world.kernel.cluster))
    world.checked += 1
    if turn.count >= turn.threads or (turn.last >= 0 and not a.mine >> FACTS * turn.last & 1):
        says = "arrives twice at the cluster's barrier without a wait between"
        world.wrong(state, Rule.SYNC_APART, "collective", site, k, says)
    turn.count += a.kind.count
    turn.before |= a.fenced if relaxed else a.mine
    a.arrived = True
    if turn.count >= turn.threads:
        end = world.event(state, "turn", key)
        state.when[end] = k, site.index
        turn.last = end
        state.turns[-1, 1] = Turn(before=turn.before | 1 << FACTS * end, last=end)
        turn.count, turn.before = 0, 0


def cluster_wait(world: World, state: State, a: Agent, site: Site, k: int) -> bool:
    """Wait at the cluster's barrier; False until all threads of the cluster have arrived."""
    if not a.arrived:
        says = "waits at the cluster's barrier without having arrived"
        world.wrong(state, Rule.COLLECTIVE, "collective", site, k, says)
        return True
    done = state.turns.get((-1, 1))
    if done is None or a.mine >> FACTS * done.last & 1:
        return False
    a.arrived = False
    facts = done.before if Rule.CLUSTER_JOINS not in world.off else 1 << FACTS * done.last
    state.learn(a, facts)
    return True
