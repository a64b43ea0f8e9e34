"""Distributed shared memory: tiles read from and put into the other CTA of a cluster."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    CLUSTER,
    CTA,
    Litmus,
    Run,
    box,
    broken,
    fragment,
    init,
    kernel,
    legal,
    load,
    said,
    slots,
    store,
    tensor,
    wait,
)

PAIR = (Run(2),)


def shared(sentence: str) -> kir.Kernel:
    """Two CTAs each store a tile into their shared memory and read the other's."""
    buffer, tile = slots("S"), fragment("x", 64)
    x, y = tensor("X", 2), tensor("Y", 2)
    words: dict[str, kir.Stmt] = {
        "put": store(kir.Slot(buffer, 0), tile),
        "arrive": kir.ClusterArrive(),
        "relaxed": kir.ClusterArrive(relaxed=True),
        "fence": kir.ThreadFence(CLUSTER),
        "fence_cta": kir.ThreadFence(CTA),
        "wait": kir.ClusterWait(),
        "sync": kir.BlockSync(0, 64),
        "one_warp": kir.Role("one", 0, 1, (kir.ClusterArrive(),)),
        "get": load(tile, kir.Slot(buffer, 0, 1 - kir.RANK)),
        "arrive2": kir.ClusterArrive(),
        "relaxed2": kir.ClusterArrive(relaxed=True),
        "wait2": kir.ClusterWait(),
        "out": store(box(y, kir.RANK), tile),
    }
    body = (load(tile, box(x, kir.RANK)), *said(sentence, words))
    made = kernel(body, threads=64, buffers=(buffer,), tensors=(x, y), params=())
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


def signalled(
    *, arrive: kir.Scope = CLUSTER, seen: kir.Scope = CLUSTER, to: Expr = 1 - kir.RANK
) -> kir.Kernel:
    """Two CTAs each store a tile into the other's shared memory and signal it on its mbarrier."""
    buffer, tile, bar = slots("S"), fragment("x"), kir.MBarrier("full", 32, 1)
    x, y = tensor("X", 2), tensor("Y", 2)
    body = (
        init(bar),
        kir.ClusterArrive(),
        kir.ClusterWait(),
        load(tile, box(x, kir.RANK)),
        store(kir.Slot(buffer, 0, 1 - kir.RANK), tile),
        kir.MBarrierArrive(bar, 0, arrive, to),
        wait(bar, 0, 0, seen),
        load(tile, kir.Slot(buffer, 0)),
        store(box(y, kir.RANK), tile),
        kir.ClusterArrive(),
        kir.ClusterWait(),
    )
    made = kernel(body, buffers=(buffer,), barriers=(bar,), tensors=(x, y), params=())
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


def put(order: str) -> kir.Kernel:
    """Two CTAs each store a tile into the other's shared memory, and meet before it is read."""
    buffer, tile, other = slots("S"), fragment("x", 64), fragment("z", 64)
    x, y = tensor("X", 2), tensor("Y", 2)
    words: dict[str, kir.Stmt] = {
        "arrive": kir.ClusterArrive(),
        "relaxed": kir.ClusterArrive(relaxed=True),
        "wait": kir.ClusterWait(),
        "meet": kir.ClusterArrive(),
        "met": kir.ClusterWait(),
        "sync": kir.BlockSync(0, 64),
        "put": store(kir.Slot(buffer, 0, 1 - kir.RANK), tile),
        "get": load(other, kir.Slot(buffer, 0)),
        "out": store(box(y, kir.RANK), other),
    }
    body = (load(tile, box(x, kir.RANK)), *said(order, words))
    made = kernel(body, threads=64, buffers=(buffer,), tensors=(x, y), params=())
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "tiles_put_once_all_have_begun",
        "H63",
        put("arrive wait put meet met get out"),
        "The CTAs of a cluster have met before they use each other (CUDA, distributed shared "
        "memory).",
        launches=PAIR,
    ),
    legal(
        "tiles_put_behind_a_relaxed_meeting",
        "H63",
        put("relaxed wait put meet met get out"),
        "That a CTA has begun needs no release.",
        launches=PAIR,
    ),
    broken(
        "tiles_put_before_all_have_begun",
        "H63",
        put("put arrive wait get out"),
        "residency",
        "tiles_put_once_all_have_begun",
        "The other CTA may not run yet: its shared memory is not there.",
        launches=PAIR,
    ),
    broken(
        "tiles_put_between_arrival_and_wait",
        "H63",
        put("arrive put wait meet met get out"),
        "residency",
        "tiles_put_once_all_have_begun",
        "Who has arrived does not know that the others have.",
        launches=PAIR,
    ),
    broken(
        "tiles_put_behind_a_block_barrier",
        "H63",
        put("sync put arrive wait get out"),
        "residency",
        "tiles_put_once_all_have_begun",
        "A block barrier joins one CTA.",
        launches=PAIR,
    ),
    legal(
        "tiles_shared_in_a_cluster",
        "H64 H63 H65",
        shared("put arrive wait get arrive2 wait2 out"),
        "Stored, met, read, met again before either leaves.",
        launches=PAIR,
    ),
    broken(
        "tiles_shared_over_a_relaxed_meeting",
        "H64",
        shared("put relaxed wait get arrive2 wait2 out"),
        "scope RAW",
        "tiles_shared_in_a_cluster",
        "A relaxed arrival releases nothing (PTX ISA, barrier.cluster.arrive.relaxed).",
        launches=PAIR,
    ),
    legal(
        "tiles_shared_over_a_fenced_relaxed_meeting",
        "H64",
        shared("put fence relaxed wait get arrive2 wait2 out"),
        "A fence at cluster scope before the relaxed arrival releases the stores.",
        launches=PAIR,
    ),
    broken(
        "tiles_shared_over_a_meeting_fenced_too_narrowly",
        "H64",
        shared("put fence_cta relaxed wait get arrive2 wait2 out"),
        "scope RAW",
        "tiles_shared_over_a_fenced_relaxed_meeting",
        "A fence at cta scope does not reach the other CTA.",
        launches=PAIR,
    ),
    broken(
        "tiles_shared_over_a_block_barrier",
        "H64",
        shared("put sync get arrive2 wait2 out"),
        "RAW scope",
        "tiles_shared_in_a_cluster",
        "A block barrier joins one CTA, not the cluster.",
        launches=PAIR,
    ),
    broken(
        "shared_tile_left_behind",
        "H63",
        shared("put arrive wait get out"),
        "exit",
        "tiles_shared_in_a_cluster",
        "The peer may still read the shared memory of a CTA that has left.",
        launches=PAIR,
    ),
    broken(
        "cluster_barrier_of_one_warp",
        "H65",
        shared("put one_warp wait get arrive2 wait2 out"),
        "deadlock collective",
        "tiles_shared_in_a_cluster",
        "Every thread of the cluster has to arrive (PTX ISA, barrier.cluster).",
        launches=PAIR,
    ),
    broken(
        "cluster_barrier_arrived_twice",
        "H65",
        shared("put arrive arrive2 wait get wait2 out"),
        "collective deadlock exit RAW arrivals",
        "tiles_shared_in_a_cluster",
        "A thread arrives again before it has waited (PTX ISA, barrier.cluster: undefined).",
        launches=PAIR,
    ),
    broken(
        "cluster_barrier_waited_without_arriving",
        "H65",
        shared("put wait get arrive wait2 out"),
        "collective deadlock RAW exit",
        "tiles_shared_in_a_cluster",
        "A wait belongs to an arrival before it.",
        launches=PAIR,
    ),
    legal(
        "tile_put_and_signalled",
        "H62 H64",
        signalled(),
        "Released by the arrival at cluster scope, acquired by the wait at cluster scope.",
        launches=PAIR,
    ),
    broken(
        "tile_put_and_acquired_at_cta_scope",
        "H64",
        signalled(seen=CTA),
        "scope RAW",
        "tile_put_and_signalled",
        "The wait acquires nothing from another CTA.",
        launches=PAIR,
    ),
    broken(
        "tile_put_and_released_at_cta_scope",
        "H64",
        signalled(arrive=CTA),
        "scope RAW",
        "tile_put_and_signalled",
        "The arrival releases nothing to another CTA.",
        refused="does not reach it",
        launches=PAIR,
    ),
    broken(
        "tile_put_and_signalled_at_home",
        "H62",
        signalled(to=kir.RANK),
        "RAW",
        "tile_put_and_signalled",
        "Each CTA signals itself, and reads what the other may not have stored yet.",
        launches=PAIR,
    ),
)
