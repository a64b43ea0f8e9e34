"""Where threads join: named barriers, the lanes of a warp, and the cluster's barrier.

Generations of a barrier are distinguished as the argument in `fixpoint` asks for: threads that
reach it know that its last generation is over.
"""

from __future__ import annotations

from fuser.kernel import ir as kir
from oracles.prover.reachability.rules import Rule
from oracles.prover.reachability.state import Generation, bit, knows
from oracles.prover.reachability.step import Step

CLUSTER, CLUSTER_DONE = (-1, 0), (-1, 1)
"""The cluster's barrier, and its last generation, which threads wait for."""


def block_sync(step: Step, stmt: kir.BlockSync | kir.NamedArrive) -> bool:
    """Reach a named barrier; whether the threads go on without the others.

    The last thread to arrive lets all of them go on.
    """
    stays = isinstance(stmt, kir.BlockSync)
    key = step.cta, stmt.barrier
    now = step.state.generation(key)
    now.begins(stmt.threads)
    name = f"barrier {stmt.barrier}"
    if now.threads != stmt.threads:
        says = f"{name} is used with {now.threads} and with {stmt.threads} threads"
        step.wrong(Rule.SYNC_COUNT, says)
    step.findings.ask()
    if now.last >= 0 and not step.knows(now.last):
        earlier = step.world.code.sites[step.state.when[now.last][1]]
        says = f"nothing keeps it apart from the last turn of {name}"
        step.wrong(Rule.SYNC_APART, says, earlier=earlier)
    now.comes(step.a, step.a.mine, stays=stays)
    if stays:
        step.a.stops("sync")
    if now.count > now.threads:
        says = f"{now.count} threads arrive at {name}, which takes {now.threads}"
        step.wrong(Rule.SYNC_COUNT, says)
    if now.count >= now.threads:
        end = step.event("generation", key)
        facts = bit(end) | (now.before if step.holds(Rule.SYNC_JOINS) else 0)
        step.state.meet(now.waiting)
        step.state.let_go(now.waiting, facts)
        now.completes(end)
    return not stays


def warp_sync(step: Step) -> None:
    """Reach a `WarpSync`: the two kinds of lanes of these warps go on together."""
    if step.state.mate(step.a).waiting != "warp":
        step.a.stops("warp")
    else:
        step.state.join_warps(step.a, joins=step.holds(Rule.WARP_JOINS))


def cluster_arrive(step: Step, *, relaxed: bool) -> None:
    """Arrive at the cluster's barrier."""
    kernel = step.world.kernel
    now = step.state.generation(CLUSTER, kernel.threads * kernel.cluster)
    step.findings.ask()
    if now.count >= now.threads or (now.last >= 0 and not step.knows(now.last)):
        step.wrong(Rule.SYNC_APART, "arrives twice at the cluster's barrier without a wait between")
    now.comes(step.a, step.a.fenced if relaxed else step.a.mine, stays=False)
    step.a.arrived = True
    if now.count >= now.threads:
        end = step.event("generation", CLUSTER)
        done = Generation(before=now.before | bit(end), last=end)
        step.state.barriers[CLUSTER_DONE] = done
        now.completes(end)


def cluster_wait(step: Step) -> bool:
    """Wait at the cluster's barrier; False until all threads of the cluster have arrived."""
    if not step.a.arrived:
        says = "waits at the cluster's barrier without having arrived"
        step.wrong(Rule.COLLECTIVE, says)
        return True
    done = step.state.barriers.get(CLUSTER_DONE)
    if done is None or knows(step.a.mine, done.last):
        return False
    step.a.arrived = False
    step.a.learns(done.before if step.holds(Rule.CLUSTER_JOINS) else bit(done.last))
    return True
