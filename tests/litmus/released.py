"""Releases of shared memory only: what an arrival at another CTA does not order then."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.clusters import PAIRS, SLOT, multicast
from litmus.parts import (
    ALL,
    CLUSTER,
    SHARED,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    kernel,
    legal,
    load,
    slots,
    store,
    tensor,
    wait,
)

PAIR = (Run(2),)
OTHER = 1 - kir.RANK


def handed(way: str, space: kir.Space, *, by_way: bool = False) -> kir.Kernel:
    """Two CTAs each put a tile somewhere, arrive at the other, and get that one's.

    The way is "own" shared memory, that of the "peer", or "global" memory.  `by_way`: a second warp
    puts it, and the first one arrives.
    """
    buffer, tile, back = slots("S"), fragment("x"), fragment("z")
    told, full = kir.MBarrier("told", 32, 1), kir.MBarrier("full", 1, 1)
    x, y, w = tensor("X", 2), tensor("Y", 2), tensor("W", 2)
    place: kir.Slot | kir.Box = box(w, kir.RANK)
    there: kir.Slot | kir.Box = box(w, OTHER)
    if way != "global":
        place = kir.Slot(buffer, 0, OTHER if way == "peer" else None)
        there = kir.Slot(buffer, 0, None if way == "peer" else OTHER)
    put = (load(tile, box(x, kir.RANK)), store(place, tile))
    tell = elect(kir.MBarrierArrive(full, 0, CLUSTER, OTHER, space=space))
    get = (wait(full, 0, 0, CLUSTER), load(back, there), store(box(y, kir.RANK), back))
    work: tuple[kir.Stmt, ...] = (*put, kir.WarpSync(), tell, *get)
    if by_way:
        work = (
            kir.Role("puts", 1, 1, (*put, kir.MBarrierArrive(told, 0))),
            kir.Role("tells", 0, 1, (wait(told, 0, 0), kir.WarpSync(), tell, *get)),
        )
    begin, end = ((kir.ClusterArrive(), kir.ClusterWait()) for _ in range(2))
    made = kernel(
        (init(told, full), *begin, *work, *end),
        threads=64 if by_way else 32,
        buffers=(buffer,) if way != "global" else (),
        barriers=(told, full),
        tensors=(x, y, w) if way == "global" else (x, y),
        workspaces=("W",) if way == "global" else (),
        params=(),
    )
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


def _freed(*, over: bool) -> kir.Kernel:
    """A ring that CTA 0 fills for both; where `over`, CTA 0's loads come without asking."""
    free, free_peer = (
        elect(kir.MBarrierArrive(kir.MBarrier("empty", 2, 1), SLOT, CLUSTER, to, space=SHARED))
        for to in (kir.RANK, OTHER)
    )
    feed = "expect fill" if over else "room expect fill"
    return multicast(feed=feed, free=free, free_peer=free_peer)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "own_slot_told_of_by_a_release_of_shared_memory",
        "H60 H64",
        handed("own", SHARED),
        "The tile lies in the shared memory of the CTA whose thread arrives.",
        launches=PAIR,
    ),
    legal(
        "own_slot_of_another_warp_told_of_by_a_release_of_shared_memory",
        "H60 H64",
        handed("own", SHARED, by_way=True),
        "A release is cumulative, one of shared memory as well.",
        launches=PAIR,
    ),
    legal(
        "tile_in_global_memory_told_of_by_a_release_of_all",
        "H64",
        handed("global", ALL),
        "The arrival releases what its thread wrote, at the scope of the cluster.",
        launches=PAIR,
    ),
    broken(
        "tile_in_global_memory_told_of_by_a_release_of_shared_memory",
        "H64",
        handed("global", SHARED),
        "RAW scope",
        "tile_in_global_memory_told_of_by_a_release_of_all",
        "fence.release.sync_restrict::shared::cta applies to shared memory of the CTA only.",
        launches=PAIR,
    ),
    legal(
        "tile_of_another_warp_in_global_memory_told_of_by_a_release_of_all",
        "H64",
        handed("global", ALL, by_way=True),
        "Releases are cumulative.",
        launches=PAIR,
    ),
    broken(
        "tile_of_another_warp_in_global_memory_told_of_by_a_release_of_shared_memory",
        "H64",
        handed("global", SHARED, by_way=True),
        "RAW scope",
        "tile_of_another_warp_in_global_memory_told_of_by_a_release_of_all",
        "What the thread has observed is no more of shared memory than what it did.",
        launches=PAIR,
    ),
    legal(
        "slot_of_the_peer_told_of_by_a_release_of_all",
        "H63 H64",
        handed("peer", ALL),
        "The arrival releases stores into the peer's shared memory.",
        launches=PAIR,
    ),
    broken(
        "slot_of_the_peer_told_of_by_a_release_of_shared_memory",
        "H63 H64",
        handed("peer", SHARED),
        "RAW scope",
        "slot_of_the_peer_told_of_by_a_release_of_all",
        "shared::cta is the shared memory of the CTA that executes the fence.",
        launches=PAIR,
    ),
    legal(
        "multicast_freed_by_releases_of_shared_memory",
        "H60 H64",
        _freed(over=False),
        "What is freed are reads of the CTA's own shared memory.",
        launches=PAIRS,
    ),
    broken(
        "multicast_freed_by_releases_of_shared_memory_and_not_asked",
        "H60",
        _freed(over=True),
        "WAR WAW parity arrivals bytes RAW",
        "multicast_freed_by_releases_of_shared_memory",
        "Nothing keeps the refill from slots that are read in either CTA.",
        launches=(Run(2, (("n", 5),)),),
    ),
)
