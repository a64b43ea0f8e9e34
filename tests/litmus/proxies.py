"""Ordinary and asynchronous accesses of the same bytes: which fence stands where."""

from __future__ import annotations

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.parts import (
    ALL,
    BULK,
    GLOBAL,
    SHARED,
    XN,
    YN,
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
    trips,
    wait,
)
from litmus.rings import IN, RING, SLOT, TURN, ring
from litmus.stores import OUT_LOOP, leaving

FREE_FENCED = "wait read fence free out"
STAGES = 2


def between_roles(give: str, take: str) -> kir.Kernel:
    """One role stores tiles and arrives, another waits and sends them off by TMA."""
    full, empty = kir.MBarrier("full", 32, STAGES), kir.MBarrier("empty", 1, STAGES)
    words: dict[str, kir.Stmt] = {
        "room": wait(empty, SLOT, TURN + 1),
        "get": load(IN, box(XN, k)),
        "put": store(kir.Slot(RING, SLOT), IN),
        "fence": kir.FenceAsyncProxy(SHARED),
        "give": kir.MBarrierArrive(full, SLOT),
        "wait": wait(full, SLOT, TURN),
        "fence_here": kir.FenceAsyncProxy(SHARED),
        "issue": kir.TmaStore(box(YN, k), kir.Slot(RING, SLOT)),
        "commit": kir.AsyncCommit(BULK),
        "await": kir.AsyncAwait(BULK, 0, read_only=True),
        "free": kir.MBarrierArrive(empty, SLOT),
    }
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("give", 0, 1, (kir.ForLoop(k, n, said(give, words)),)),
        kir.Role("take", 1, 1, (kir.ForLoop(k, n, (elect(*said(take, words)),)),)),
    )
    return kernel(body, threads=64, buffers=(RING,), barriers=(full, empty))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "results_leave_by_tma",
        "H30 H33 H35 H40 H42 H43 H45",
        leaving(),
        "Each writer fences its stores before the barrier; after the wait of the store engine's "
        "reads no fence is owed (PTX ISA, fence.proxy.async).",
    ),
    broken(
        "results_leave_without_a_fence",
        "H30",
        leaving(OUT_LOOP.replace("fence ", "")),
        "proxy",
        "results_leave_by_tma",
        "The store engine reads in the async proxy what was written in the generic one.",
        launches=trips(1, 5),
    ),
    broken(
        "fence_on_one_branch",
        "H30",
        leaving(
            OUT_LOOP.replace("fence", "maybe"),
            maybe=kir.IfThenElse(eq(k % 2, 0), (kir.FenceAsyncProxy(SHARED),)),
        ),
        "proxy",
        "fence_on_both_branches",
        "In odd iterations no fence stands between the stores and the engine's reads.",
        launches=trips(2, 5),
    ),
    legal(
        "fence_on_both_branches",
        "H30",
        leaving(
            OUT_LOOP.replace("fence", "either"),
            either=kir.IfThenElse(
                eq(k % 2, 0), (kir.FenceAsyncProxy(SHARED),), (kir.FenceAsyncProxy(ALL),)
            ),
        ),
        "Whichever branch is taken, a fence stands on the path.",
    ),
    broken(
        "fence_before_the_stores",
        "H33",
        leaving(OUT_LOOP.replace("put fence", "fence put")),
        "proxy",
        "results_leave_by_tma",
        "A fence covers what stands before it.",
        launches=trips(1, 5),
    ),
    broken(
        "fence_of_the_other_space",
        "H33",
        leaving(fence=kir.FenceAsyncProxy(GLOBAL)),
        "proxy",
        "results_leave_by_tma",
        "A fence of global memory says nothing of shared memory.",
        launches=trips(1, 5),
    ),
    legal(
        "fence_of_every_space",
        "H33",
        leaving(fence=kir.FenceAsyncProxy(ALL)),
        "A fence of all spaces covers shared memory too.",
    ),
    broken(
        "fence_by_the_elected_thread_before_the_barrier",
        "H33",
        leaving(fence=elect(kir.FenceAsyncProxy(SHARED))),
        "proxy",
        "results_leave_by_tma",
        "It has not yet seen the stores of the others, so it covers its own only.",
        launches=trips(1, 5),
    ),
    legal(
        "fence_by_the_elected_thread_behind_the_barrier",
        "H33",
        leaving(
            OUT_LOOP.replace("fence join", "join fence"), fence=elect(kir.FenceAsyncProxy(SHARED))
        ),
        "Behind the barrier it has seen all stores: accepted, with a warning.",
        warns="proxy",
    ),
    legal(
        "fence_by_all_behind_the_barrier",
        "H33",
        leaving(OUT_LOOP.replace("fence join", "join fence")),
        "A fence on the reader's side of the barrier is accepted with a warning.",
        warns="proxy",
    ),
    broken(
        "fence_by_a_warp_that_wrote_half",
        "H33",
        leaving(fence=kir.Role("half", 0, 1, (kir.FenceAsyncProxy(SHARED),))),
        "proxy",
        "results_leave_by_tma",
        "The stores of the other warp are not fenced (seen with a narrowed fence).",
        launches=trips(1, 5),
    ),
    broken(
        "fence_behind_the_barrier_by_a_bystander",
        "H33",
        leaving(
            OUT_LOOP.replace("fence join", "join fence"),
            fence=kir.Role("other", 1, 1, (kir.FenceAsyncProxy(SHARED),)),
        ),
        "proxy",
        "fence_by_all_behind_the_barrier",
        "The warp that fences is not on the way from the stores to the engine.",
        launches=trips(1, 5),
    ),
    legal(
        "given_to_another_role",
        "H30 H33",
        between_roles("room get put fence give", "wait issue commit await free"),
        "Fence before the arrive, wait before the engine's read.",
    ),
    broken(
        "given_to_another_role_without_a_fence",
        "H30",
        between_roles("room get put give", "wait issue commit await free"),
        "proxy",
        "given_to_another_role",
        "An mbarrier orders generic accesses; the engine reads in the async proxy.",
        launches=trips(1, 5),
    ),
    broken(
        "fence_after_the_arrive",
        "H33",
        between_roles("room get put give fence", "wait issue commit await free"),
        "proxy",
        "given_to_another_role",
        "The engine may start at the arrival, before the fence.",
        launches=trips(1, 5),
    ),
    legal(
        "fence_by_the_taker_behind_its_wait",
        "H33",
        between_roles("room get put give", "wait fence_here issue commit await free"),
        "The taker has observed the stores when it fences: accepted, with a warning.",
        warns="proxy",
    ),
    broken(
        "fence_by_the_taker_before_its_wait",
        "H33",
        between_roles("room get put give", "fence_here wait issue commit await free"),
        "proxy",
        "given_to_another_role",
        "Before its wait the taker has observed nothing that the fence could cover.",
        launches=trips(1, 5),
    ),
    broken(
        "slot_given_back_before_the_engine_read_it",
        "H40",
        between_roles("room get put fence give", "wait issue commit free await"),
        "WAR",
        "given_to_another_role",
        "The store engine still reads the slot when it is given back.",
    ),
    broken(
        "engine_started_before_the_wait",
        "H30 H01",
        between_roles("room get put fence give", "issue commit wait await free"),
        "RAW",
        "given_to_another_role",
        "The engine may read before the stores are done.",
        launches=trips(1, 5),
    ),
    broken(
        "refill_after_reads_without_a_fence_under_strict",
        "H31",
        ring(),
        "proxy",
        "refill_after_reads_with_a_fence_under_strict",
        "Under the strict policy the reader owes a fence before it frees the slot.",
        policy="strict",
    ),
    legal(
        "refill_after_reads_with_a_fence_under_strict",
        "H31",
        ring(FREE_FENCED),
        "Read, fence, arrive.",
        policy="strict",
    ),
    broken(
        "refill_after_reads_fenced_too_late_under_strict",
        "H31 H33",
        ring("wait read free fence out"),
        "proxy",
        "refill_after_reads_with_a_fence_under_strict",
        "The fence stands behind the arrival that frees the slot.",
        policy="strict",
    ),
)
