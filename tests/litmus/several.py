"""One thread that arrives for several: for its warp, for its role, at home and at a peer."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.clusters import LATER, PAIRS, multicast
from litmus.clusters import SLOT as ONLY
from litmus.parts import (
    CLUSTER,
    PER_WARP,
    Litmus,
    box,
    broken,
    elect,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    store,
    tensor,
    wait,
)
from litmus.rings import EMPTY, IN, RING, SLOT, STAGES, TURN, ring, two_warps

BOTH = replace(EMPTY, arrivals=64)


def lead(count: int, bar: kir.MBarrier = EMPTY) -> kir.Elect:
    """Arrive for so many, one lane per warp."""
    return kir.Elect(PER_WARP, (kir.MBarrierArrive(bar, SLOT, count=count),))


def freed(use: str, count: int = 32) -> kir.Kernel:
    """Free a slot of a ring that a warp reads, by one lane of it."""
    return ring(use, warp=kir.WarpSync(), free=lead(count))


def freed_by_two(count: int, use: str = "wait read warp free out") -> kir.Kernel:
    """Free a slot that two warps read, one lane of each."""
    return two_warps(use, BOTH, free=lead(count, BOTH), once=elect(lead(count, BOTH).body[0]))


def handed(give: str, count: int = 32) -> kir.Kernel:
    """Hand tiles to another role through ordinary stores, told of by one lane for all."""
    full = kir.MBarrier("full", 32, STAGES)
    words: dict[str, kir.Stmt] = {
        "wait": wait(full, SLOT, TURN),
        "read": load(IN, kir.Slot(RING, SLOT)),
        "warp": kir.WarpSync(),
        "free": lead(32),
        "out": store(box(tensor("Y", n), k), IN),
        "room": wait(EMPTY, SLOT, TURN + 1),
        "get": load(IN, box(tensor("X", n), k)),
        "put": store(kir.Slot(RING, SLOT), IN),
        "collect": kir.WarpSync(),
        "give": lead(count, full),
    }
    body = (
        init(full, EMPTY),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, said("wait read warp free out", words)),)),
        kir.Role("give", 1, 1, (kir.ForLoop(k, n, said(give, words)),)),
    )
    return kernel(body, threads=64, buffers=(RING,), barriers=(full, EMPTY))


def among(home: int, peer: int, use: str = "wait read warp free free_peer out") -> kir.Kernel:
    """Free a slot in both CTAs of a cluster, by one lane for its warp."""
    bar = kir.MBarrier("empty", 64, 1)

    def arrive(count: int, cta: Expr) -> kir.Elect:
        return elect(kir.MBarrierArrive(bar, ONLY, CLUSTER, cta, count))

    return multicast(
        use, arrivals=64, free=arrive(home, kir.RANK), free_peer=arrive(peer, 1 - kir.RANK)
    )


LITMUS: tuple[Litmus, ...] = (
    legal(
        "one_lane_arrives_for_its_warp",
        "H09 H05",
        freed("wait read warp free out"),
        "The reads of all lanes are collected by the warp barrier, and one arrival counts for "
        "all of them (PTX ISA, mbarrier.arrive, count).",
    ),
    broken(
        "one_lane_arrives_for_its_warp_unjoined",
        "H09 H05",
        freed("wait read free out"),
        "WAR RAW parity",
        "one_lane_arrives_for_its_warp",
        "It counts for the other lanes, and releases nothing of theirs.",
    ),
    broken(
        "one_lane_arrives_for_all_but_one",
        "H09",
        freed("wait read warp free out", 31),
        "deadlock arrivals",
        "one_lane_arrives_for_its_warp",
        "One arrival of every phase is missing.",
    ),
    broken(
        "one_lane_arrives_for_half_a_warp",
        "H09",
        freed("wait read warp free out", 16),
        "deadlock arrivals parity",
        "one_lane_arrives_for_its_warp",
        "Two turns complete one phase: the loader hangs, or is a phase off.",
    ),
    broken(
        "every_lane_arrives_for_its_warp",
        "H09 H14",
        ring("wait read warp free out", warp=kir.WarpSync(), free=lead(32).body[0]),
        "arrivals WAR parity",
        "one_lane_arrives_for_its_warp",
        "32 lanes that count 32 each complete 32 phases.",
    ),
    legal(
        "two_lanes_arrive_for_two_warps",
        "H09",
        freed_by_two(32),
        "Two arrivals of 32 make one phase of 64.",
    ),
    broken(
        "two_lanes_arrive_for_one_too_many",
        "H09",
        freed_by_two(33),
        "arrivals parity WAR",
        "two_lanes_arrive_for_two_warps",
        "The second arrival counts for more than the phase has left.",
    ),
    broken(
        "two_lanes_arrive_for_all_each",
        "H09",
        freed_by_two(64),
        "arrivals parity WAR RAW WAW",
        "two_lanes_arrive_for_two_warps",
        "Each of them completes a phase, one of which is a later turn's.",
    ),
    legal(
        "one_lane_arrives_for_two_warps",
        "H09",
        freed_by_two(64, "wait read join once out"),
        "A barrier of both warps collects their reads; one thread counts for all 64.",
    ),
    broken(
        "one_lane_arrives_for_two_warps_unjoined",
        "H09 H05",
        freed_by_two(64, "wait read warp once out"),
        "WAR RAW parity",
        "one_lane_arrives_for_two_warps",
        "What the other warp still reads is not covered.",
    ),
    legal(
        "one_lane_tells_of_a_tile_stored_by_all",
        "H09 H01",
        handed("room get put collect give"),
        "The warp barrier collects the stores before one lane arrives for all.",
    ),
    broken(
        "one_lane_tells_of_its_own_store_only",
        "H09 H01",
        handed("room get put give"),
        "RAW WAR",
        "one_lane_tells_of_a_tile_stored_by_all",
        "The arrival releases the stores of one lane.",
    ),
    broken(
        "one_lane_tells_for_too_few",
        "H09",
        handed("room get put collect give", 8),
        "deadlock arrivals",
        "one_lane_tells_of_a_tile_stored_by_all",
        "24 arrivals are missing.",
    ),
    legal(
        "one_lane_arrives_for_its_warp_in_a_cluster",
        "H60 H62 H09",
        among(32, 32),
        "Counts at the own CTA and at a peer (PTX ISA, mbarrier.arrive.shared::cluster, count).",
        launches=PAIRS,
    ),
    broken(
        "one_lane_arrives_for_all_at_home",
        "H60 H62 H09",
        among(64, 64, "wait read warp free out"),
        "WAR WAW parity arrivals bytes RAW",
        "one_lane_arrives_for_its_warp_in_a_cluster",
        "The first CTA writes into the second, whose readers count at home only.",
        launches=LATER,
    ),
    broken(
        "one_lane_arrives_for_too_few_at_the_peer",
        "H62 H09",
        among(32, 31),
        "deadlock arrivals parity",
        "one_lane_arrives_for_its_warp_in_a_cluster",
        "One arrival is missing in each CTA.",
        launches=LATER,
    ),
    broken(
        "arrives_for_more_than_the_barrier_takes",
        "H09",
        freed("wait read warp free out", 33),
        "arrivals",
        "one_lane_arrives_for_its_warp",
        "A phase has 32 arrivals; the pending count cannot go below zero.",
        refused="counts 33 arrivals; empty takes 32 a phase",
    ),
)
