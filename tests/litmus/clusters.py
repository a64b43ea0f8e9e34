"""Clusters: multicast, freed and expected by every CTA, initialised and left together."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq, maximum
from fuser.kernel import ir as kir
from litmus.parts import (
    CLUSTER,
    CTA,
    NBYTES,
    XN,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    slots,
    store,
    tensor,
    wait,
)

STAGES = 1
SLOT, TURN = k % STAGES, k // STAGES
RING = slots("S", STAGES)
PAIRS = tuple(Run(2, (("n", trips),)) for trips in (0, 1, 2))
LATER = (Run(2, (("n", 5),)),)
ANY = (Run(2, (("n", 1),)), Run(2, (("n", 5),)))
LET_IN, LET_OUT = "init meet_a meet_w", "leave_a leave_w"


def multicast(
    use: str = "wait read warp free free_peer out",
    feed: str = "room expect fill",
    *,
    start: str = LET_IN,
    end: str = LET_OUT,
    arrivals: int = 2,
    used: Expr = n,
    **own: kir.Stmt,
) -> kir.Kernel:
    """Two CTAs of a cluster; the first loads every tile into both, each keeps its own copy."""
    full, empty = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", arrivals, STAGES)
    tile, out = fragment("x"), tensor("Y", 2 * n)
    source = kir.TmaLoad(kir.Slot(RING, SLOT), box(XN, k), full, SLOT, multicast=3)
    words: dict[str, kir.Stmt] = {
        "init": init(full, empty),
        "bare_init": elect(kir.MBarrierInit(full), kir.MBarrierInit(empty)),
        "sync": kir.BlockSync(0, 64),
        "meet_a": kir.ClusterArrive(),
        "meet_relaxed": kir.ClusterArrive(relaxed=True),
        "meet_w": kir.ClusterWait(),
        "fence_by_a_peer": kir.Role("peer", 1, 1, (elect(kir.FenceMBarrierInit()),)),
        "leave_a": kir.ClusterArrive(),
        "leave_relaxed": kir.ClusterArrive(relaxed=True),
        "fence": kir.ThreadFence(CLUSTER),
        "proxy": kir.FenceAsyncProxy(kir.Space.SHARED),
        "leave_w": kir.ClusterWait(),
        "warp": kir.WarpSync(),
        "wait": wait(full, SLOT, TURN),
        "read": load(tile, kir.Slot(RING, SLOT)),
        "free": elect(kir.MBarrierArrive(empty, SLOT, CLUSTER, kir.RANK)),
        "free_peer": elect(kir.MBarrierArrive(empty, SLOT, CLUSTER, 1 - kir.RANK)),
        "free_here": elect(kir.MBarrierArrive(empty, SLOT, CLUSTER)),
        "free_here_too": elect(kir.MBarrierArrive(empty, SLOT, CLUSTER)),
        "free_second": elect(kir.MBarrierArrive(empty, SLOT, CLUSTER, 1)),
        "free_second_too": elect(kir.MBarrierArrive(empty, SLOT, CLUSTER, 1)),
        "free_peer_cta": elect(kir.MBarrierArrive(empty, SLOT, CTA, 1 - kir.RANK)),
        "out": store(box(out, k * 2 + kir.RANK), tile),
        "room": wait(empty, SLOT, TURN + 1, CLUSTER),
        "room_cta": wait(empty, SLOT, TURN + 1, CTA),
        "expect": kir.MBarrierArriveExpectTx(full, SLOT, NBYTES),
        "expect_first": kir.IfThenElse(
            eq(kir.RANK, 0), (kir.MBarrierArriveExpectTx(full, SLOT, NBYTES),)
        ),
        "expect_all_in_first": kir.IfThenElse(
            eq(kir.RANK, 0),
            (kir.MBarrierArriveExpectTx(full, SLOT, 2 * NBYTES),),
            (kir.MBarrierArrive(full, SLOT),),
        ),
        "fill": kir.IfThenElse(eq(kir.RANK, 0), (source,)),
    }
    words |= own
    body = (
        *said(start, words),
        kir.Role("use", 0, 1, (kir.ForLoop(k, used, said(use, words)),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (elect(*said(feed, words)),)),)),
        *said(end, words),
    )
    made = kernel(body, threads=64, buffers=(RING,), barriers=(full, empty), tensors=(XN, out))
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


def homely(sentence: str) -> kir.Kernel:
    """Two CTAs of a cluster, each with a barrier that nobody of the other one touches."""
    bar, tile = kir.MBarrier("own", 64, 1), fragment("x", 64)
    x, y = tensor("X", 2), tensor("Y", 2)
    words: dict[str, kir.Stmt] = {
        "init": elect(kir.MBarrierInit(bar)),
        "fence": kir.FenceMBarrierInit(),
        "meet_a": kir.ClusterArrive(),
        "meet_relaxed": kir.ClusterArrive(relaxed=True),
        "meet_w": kir.ClusterWait(),
        "arrive": kir.MBarrierArrive(bar, 0),
        "wait": wait(bar, 0, 0),
        "sync": kir.BlockSync(0, 64),
        "tells": kir.Role("tells", 0, 1, (kir.ClusterWait(), kir.MBarrierArrive(bar, 0, count=2))),
        "is_told": kir.Role("is_told", 1, 1, (wait(bar, 0, 0), kir.ClusterWait())),
        "load": load(tile, box(x, kir.RANK)),
        "out": store(box(y, kir.RANK), tile),
    }
    body = said(sentence, words)
    made = kernel(body, threads=64, barriers=(bar,), tensors=(x, y), params=())
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


_MANY = kir.MBarrier("empty", 64, STAGES)
_ONE, _TWO = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", 2, STAGES)
_SOME = eq(kir.RANK, 0)

LITMUS: tuple[Litmus, ...] = (
    legal(
        "multicast_pair",
        "H60 H61 H62 H63 H64 H65 H10",
        multicast(),
        "A slot is refilled when the readers of both CTAs have freed it; all leave together.",
        launches=PAIRS,
    ),
    broken(
        "multicast_freed_by_every_lane",
        "H60 H09",
        multicast(
            "wait read free_all free_peer_all out",
            arrivals=64,
            free_all=kir.MBarrierArrive(_MANY, SLOT, CLUSTER, kir.RANK),
            free_peer_all=kir.MBarrierArrive(_MANY, SLOT, CLUSTER, 1 - kir.RANK),
        ),
        "arrivals parity",
        "multicast_pair",
        "A lane that freed its own CTA lets the next turn begin before it has freed the peer, "
        "where an arrival of the next turn then takes its place.",
        launches=LATER,
    ),
    broken(
        "multicast_frees_only_its_own_cta",
        "H60",
        multicast("wait read warp free out", arrivals=1),
        "WAR WAW parity arrivals bytes RAW",
        "multicast_pair",
        "The first CTA writes into the second, and asks only its own readers.",
        launches=LATER,
    ),
    broken(
        "multicast_without_room",
        "H60",
        multicast(feed="expect fill"),
        "WAR WAW parity arrivals bytes RAW",
        "multicast_pair",
        "Nothing keeps the refill from slots that are read in either CTA.",
        launches=LATER,
    ),
    broken(
        "multicast_pair_with_different_trip_counts",
        "H60 H16 H12",
        multicast(used=maximum(n - kir.RANK, 0)),
        "deadlock exit coverage",
        "multicast_pair",
        "One of the peers stops earlier and frees nothing any more "
        "(seen when a pair straddles two groups of a grouped GEMM).",
        launches=LATER,
    ),
    broken(
        "multicast_beyond_the_cluster",
        "H61 H62",
        multicast(
            fill=kir.IfThenElse(
                eq(kir.RANK, 0),
                (
                    kir.TmaLoad(
                        kir.Slot(RING, SLOT), box(XN, k), _ONE, SLOT, multicast=3 + 4 * _SOME
                    ),
                ),
            )
        ),
        "bounds",
        "multicast_pair",
        "There is no third CTA in a cluster of two.",
        launches=ANY,
    ),
    broken(
        "remote_arrival_beyond_the_cluster",
        "H62",
        multicast(
            free_peer=elect(kir.MBarrierArrive(_TWO, SLOT, CLUSTER, kir.RANK + 1)),
        ),
        "bounds",
        "multicast_pair",
        "The second CTA arrives at a third one, of which there is none.",
        launches=ANY,
    ),
    broken(
        "multicast_expected_in_one_cta",
        "H61",
        multicast(feed="room expect_first fill"),
        "deadlock bytes arrivals",
        "multicast_pair",
        "Bytes complete on the barrier of each destination CTA, which must expect its own.",
        launches=ANY,
    ),
    broken(
        "multicast_expected_twice_in_one_cta",
        "H61 H08",
        multicast(feed="room expect_all_in_first fill"),
        "deadlock bytes RAW",
        "multicast_pair",
        "The first CTA waits for bytes that land in the second.",
        launches=ANY,
    ),
    broken(
        "remote_arrival_with_a_local_address",
        "H62",
        multicast("wait read warp free_here free_here_too out"),
        "WAR WAW arrivals parity bytes RAW",
        "multicast_pair",
        "Both arrivals go to the barrier of the own CTA.",
        launches=LATER,
    ),
    broken(
        "remote_arrival_at_the_wrong_rank",
        "H62",
        multicast("wait read warp free_second free_second_too out"),
        "deadlock arrivals parity",
        "multicast_pair",
        "The second CTA gets all arrivals and the first none.",
        launches=LATER,
    ),
    broken(
        "cluster_left_without_meeting",
        "H63",
        multicast(end=""),
        "exit",
        "multicast_pair",
        "A peer may still arrive on the barriers of a CTA that has left.",
        launches=ANY,
    ),
    broken(
        "cluster_left_after_a_block_barrier",
        "H63",
        multicast(end="sync"),
        "exit",
        "multicast_pair",
        "A block barrier does not wait for the other CTA.",
        launches=ANY,
    ),
    broken(
        "cluster_left_over_a_relaxed_meeting",
        "H63 H64",
        multicast(end="leave_relaxed leave_w"),
        "exit",
        "cluster_left_over_a_fenced_relaxed_meeting",
        "An arrival on the peer's barrier may come after the relaxed one that follows it "
        "(PTX ISA, barrier.cluster.arrive.relaxed).",
        launches=PAIRS[1:],
    ),
    legal(
        "cluster_left_over_a_fenced_relaxed_meeting",
        "H63 H64",
        multicast(end="fence leave_relaxed leave_w"),
        "A fence at cluster scope lets the relaxed arrival release what came before it.",
        launches=PAIRS,
    ),
    broken(
        "remote_barriers_not_met",
        "H10 H64",
        multicast(start="init sync"),
        "init",
        "multicast_pair",
        "The other CTA may arrive or complete bytes before this one has initialised.",
        launches=ANY,
    ),
    legal(
        "initialised_with_a_fence_and_a_relaxed_arrival",
        "H10 H64",
        multicast(start="init meet_relaxed meet_w"),
        "The fence of initialisation makes a relaxed arrival enough "
        "(PTX ISA, fence.mbarrier_init).",
        launches=PAIRS,
    ),
    broken(
        "initialised_with_a_relaxed_arrival_only",
        "H10 H64",
        multicast(start="bare_init meet_relaxed meet_w"),
        "init",
        "initialised_with_a_fence_and_a_relaxed_arrival",
        "A relaxed arrival releases nothing by itself.",
        launches=ANY,
    ),
    broken(
        "initialised_with_a_fence_by_another_thread",
        "H10",
        multicast(start="bare_init sync fence_by_a_peer meet_a meet_w"),
        "init",
        "multicast_pair",
        "The fence of initialisation is for the inits of its own thread "
        "(PTX ISA, fence.mbarrier_init).",
        launches=ANY,
    ),
    broken(
        "initialised_and_fenced_behind_the_meeting",
        "H10",
        multicast("proxy wait read warp free free_peer out", start="bare_init meet_a meet_w"),
        "init",
        "multicast_pair",
        "The fence of initialisation stands before the barrier; a later fence of the async proxy "
        "is another thing.",
        launches=ANY,
    ),
    broken(
        "initialised_with_a_thread_fence",
        "H10",
        multicast(start="bare_init fence meet_a meet_w"),
        "init",
        "multicast_pair",
        "fence.mbarrier_init is what makes an init visible to other CTAs; no other fence is said "
        "to stand for it (PTX ISA, fence.mbarrier_init).",
        launches=ANY,
    ),
    legal(
        "own_barrier_initialised_without_a_fence",
        "H10",
        homely("init meet_a meet_w arrive load wait out"),
        "The cluster's barrier joins the threads of one CTA too; only another one needs the fence.",
        launches=(Run(2),),
    ),
    broken(
        "own_barrier_initialised_over_a_relaxed_meeting",
        "H10",
        homely("init meet_relaxed meet_w arrive load wait out"),
        "init",
        "own_barrier_initialised_without_a_fence",
        "A relaxed arrival releases nothing, not even to its own CTA.",
        launches=(Run(2),),
    ),
    legal(
        "own_barrier_initialised_over_a_fenced_relaxed_meeting",
        "H10",
        homely("init fence meet_relaxed meet_w arrive load wait out"),
        "The fence of initialisation makes a relaxed arrival enough.",
        launches=(Run(2),),
    ),
    legal(
        "a_wait_for_the_cluster_that_is_known_to_have_met",
        "H60",
        homely("init sync meet_a tells is_told load out"),
        "Who has been told by others that all have arrived waits as well, and goes on at once.",
        launches=(Run(2),),
    ),
    broken(
        "a_wait_for_the_cluster_without_an_arrival",
        "H60",
        homely("init sync tells is_told load out"),
        "collective deadlock",
        "a_wait_for_the_cluster_that_is_known_to_have_met",
        "Nobody has arrived, so nobody has anything to wait for.",
        launches=(Run(2),),
    ),
    broken(
        "room_awaited_at_cta_scope",
        "H64",
        multicast(feed="room_cta expect fill"),
        "scope WAR WAW",
        "multicast_pair",
        "The peer's arrival is acquired at cluster scope only (PTX ISA, mbarrier.try_wait).",
        launches=LATER,
    ),
    broken(
        "room_given_at_cta_scope",
        "H64",
        multicast("wait read warp free free_peer_cta out"),
        "scope WAR WAW",
        "multicast_pair",
        "A release at cta scope does not reach the other CTA (PTX ISA, mbarrier.arrive).",
        refused="does not reach it",
        launches=LATER,
    ),
)
