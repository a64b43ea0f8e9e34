"""Lives of mbarriers: initialised, visible, invalidated, their bytes used for data."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from litmus.parts import (
    NBYTES,
    X1,
    Y1,
    Litmus,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    legal,
    load,
    said,
    single,
    slots,
    store,
    tensor,
    wait,
    zero,
)
from litmus.rings import EMPTY, FULL, ring

X2, Y2 = tensor("X", 2), tensor("Y", 2)
LIVES = "init sync fill_0 wait_0 read_0 out_0 sync_0 inval init_1 sync_1 fill_1 wait_1 read_1 out_1"


def lives(sentence: str = LIVES) -> kir.Kernel:
    """Use one barrier for two loads, in two lives."""
    bar, buffer, tile = kir.MBarrier("full", 1, 1), slots("S", 2), fragment("x")
    words: dict[str, kir.Stmt] = {
        "init": init(bar),
        "init_1": init(bar),
        "inval": elect(kir.MBarrierInvalidate(bar)),
    }
    for i in range(2):
        words |= {
            "sync" if i == 0 else "sync_1": kir.BlockSync(0, 32),
            f"fill_{i}": elect(*fill(kir.Slot(buffer, i), box(X2, i), bar)),
            f"wait_{i}": wait(bar, 0, 0),
            f"read_{i}": load(tile, kir.Slot(buffer, i)),
            f"out_{i}": store(box(Y2, i), tile),
        }
    words["sync_0"] = kir.BlockSync(0, 32)
    body = said(sentence, words)
    return single(body, buffers=(buffer,), barriers=(bar,), tensors=(X2, Y2))


def reused(sentence: str, *, lane: int = 0) -> kir.Kernel:
    """Store a tile over the bytes of a barrier that has done its duty; they are `lane`'s."""
    a, b = slots("A"), slots("B", offset=NBYTES)
    bar = kir.MBarrier("full", 1, 1, offset=NBYTES + 16 * lane)
    tile, other = fragment("x"), fragment("z", vector=1)
    words: dict[str, kir.Stmt] = {
        "clear": zero(tile),
        "wait": wait(bar, 0, 0),
        "read": load(tile, kir.Slot(a, 0)),
        "left": kir.BlockSync(0, 32),
        "inval": elect(kir.MBarrierInvalidate(bar)),
        "over": kir.BlockSync(0, 32),
        "put": store(kir.Slot(b, 0), tile),
        "seen": kir.BlockSync(0, 32),
        "get": load(other, kir.Slot(b, 0)),
        "out": store(box(Y1), other),
    }
    body = (
        init(bar),
        kir.BlockSync(0, 32),
        elect(*fill(kir.Slot(a, 0), box(X1), bar)),
        *said(sentence, words),
    )
    return single(body, buffers=(a, b), barriers=(bar,))


def alone(order: str) -> kir.Kernel:
    """Initialise a barrier and use it in the one thread that loads; the others meet later."""
    bar, buffer, tile = kir.MBarrier("full", 1, 1), slots("S"), fragment("x")
    words: dict[str, kir.Stmt] = {
        "init": kir.MBarrierInit(bar),
        "expect": kir.MBarrierArriveExpectTx(bar, 0, NBYTES),
        "fill": kir.TmaLoad(kir.Slot(buffer, 0), box(X1), bar, 0),
        "wait": wait(bar, 0, 0),
    }
    body = (
        elect(*said(order, words)),
        kir.BlockSync(0, 32),
        load(tile, kir.Slot(buffer, 0)),
        store(box(Y1), tile),
    )
    return single(body, buffers=(buffer,), barriers=(bar,))


def begun(order: str) -> kir.Kernel:
    """Invalidate a barrier on which one of two arrivals has come; nobody waits for the other."""
    bar, tile = kir.MBarrier("full", 2, 1), fragment("x")
    words: dict[str, kir.Stmt] = {
        "join": kir.BlockSync(0, 64),
        "end": elect(kir.MBarrierInvalidate(bar)),
    }
    body = (
        init(bar),
        kir.BlockSync(0, 64),
        kir.Role("arriving", 1, 1, (elect(kir.MBarrierArrive(bar, 0)),)),
        *said(order, words),
        kir.Role("moving", 0, 1, (load(tile, box(X1)), store(box(Y1), tile))),
    )
    return single(body, threads=64, barriers=(bar,))


def seen(order: str) -> kir.Kernel:
    """One warp loads, another invalidates the barrier on which that completes."""
    bar, buffer, tile = kir.MBarrier("full", 1, 1), slots("S"), fragment("x")
    words: dict[str, kir.Stmt] = {
        "wait": wait(bar, 0, 0),
        "read": load(tile, kir.Slot(buffer, 0)),
        "lanes": kir.WarpSync(),
        "end": elect(kir.MBarrierInvalidate(bar)),
        "out": store(box(Y1), tile),
    }
    body = (
        init(bar),
        kir.BlockSync(0, 64),
        kir.Role("load", 1, 1, (elect(*fill(kir.Slot(buffer, 0), box(X1), bar)),)),
        kir.Role("use", 0, 1, said(order, words)),
    )
    return single(body, threads=64, buffers=(buffer,), barriers=(bar,))


def ended(joined: str) -> kir.Kernel:
    """Invalidate the barriers of a ring behind it; nobody has waited for its last phases."""
    made = ring()
    words: dict[str, kir.Stmt] = {
        "all": kir.BlockSync(0, 64),
        "end": elect(kir.MBarrierInvalidate(FULL), kir.MBarrierInvalidate(EMPTY)),
    }
    return replace(made, body=(*made.body, *said(joined, words)))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_ring_joined_and_invalidated",
        "H10",
        ended("all end"),
        "All arrivals are before the join, so the phases that they complete are over.",
    ),
    broken(
        "a_ring_invalidated_before_it_is_joined",
        "H10",
        ended("end all"),
        "init",
        "a_ring_joined_and_invalidated",
        "Other threads still arrive.",
    ),
    legal(
        "a_barrier_invalidated_by_who_saw_its_phase",
        "H10",
        seen("wait read lanes end out"),
        "All that was to come on it has: the arrival and the bytes.",
    ),
    broken(
        "a_barrier_invalidated_before_its_phase_is_over",
        "H10",
        seen("lanes end wait read out"),
        "init",
        "a_barrier_invalidated_by_who_saw_its_phase",
        "The load may still arrive and complete on it.",
    ),
    legal(
        "a_phase_that_has_begun_is_invalidated",
        "H10",
        begun("join end"),
        "The barrier must be valid and out of use, no more (PTX ISA, mbarrier.inval).",
    ),
    broken(
        "a_phase_that_begins_is_invalidated",
        "H10",
        begun("end join"),
        "init",
        "a_phase_that_has_begun_is_invalidated",
        "The arrival may come after the invalidation.",
    ),
    broken(
        "init_not_joined",
        "H10",
        ring(start="init"),
        "init",
        "ring_without_the_cluster_fence",
        "Other threads may use a barrier only after a barrier of the CTA behind its "
        "initialisation (PTX ISA, mbarrier.init).",
    ),
    broken(
        "init_after_the_join",
        "H10",
        ring(start="sync init"),
        "init",
        "ring_without_the_cluster_fence",
        "The join comes before what it should make visible.",
    ),
    legal(
        "ring_without_the_cluster_fence",
        "H10",
        ring(init=elect(kir.MBarrierInit(FULL), kir.MBarrierInit(EMPTY))),
        "In one CTA the block barrier is enough; the fence is for clusters.",
    ),
    legal(
        "ring_without_the_cluster_fence_under_strict",
        "H10",
        ring(
            "wait read fence free out",
            init=elect(kir.MBarrierInit(FULL), kir.MBarrierInit(EMPTY)),
        ),
        "Copies complete on the barrier, and libraries of the field all fence: worth a warning.",
        warns="init",
        policy="strict",
    ),
    broken(
        "one_of_two_barriers_not_initialised",
        "H10 H11",
        ring(init=elect(kir.MBarrierInit(FULL), kir.FenceMBarrierInit())),
        "init",
        "ring",
        "A barrier that was never initialised has no phase.",
    ),
    legal(
        "one_thread_initialises_uses_and_waits",
        "H10 H43",
        alone("init expect fill wait"),
        "A thread sees its own initialisation, and the barrier behind its wait hands the data on.",
    ),
    broken(
        "expected_before_its_life",
        "H11 H10",
        alone("expect init fill wait"),
        "init",
        "one_thread_initialises_uses_and_waits",
        "An arrival on a barrier that is not initialised is undefined.",
    ),
    broken(
        "waited_before_its_life",
        "H11 H10",
        alone("wait init expect fill"),
        "init",
        "one_thread_initialises_uses_and_waits",
        "A wait on a barrier that is not initialised is undefined.",
    ),
    legal(
        "two_lives",
        "H11",
        lives(),
        "Invalidated when all have left it, initialised again, joined (PTX ISA, mbarrier.inval).",
    ),
    broken(
        "initialised_again_without_invalidation",
        "H11",
        lives(LIVES.replace(" inval", "")),
        "init",
        "two_lives",
        "A live barrier must not be initialised (PTX ISA, mbarrier.init).",
    ),
    broken(
        "used_after_invalidation",
        "H11",
        lives(LIVES.replace(" init_1", "")),
        "init",
        "two_lives",
        "An invalidated barrier has no phase (PTX ISA, mbarrier.inval).",
    ),
    broken(
        "invalidated_while_others_wait",
        "H11",
        lives(LIVES.replace(" sync_0", "")),
        "init",
        "two_lives",
        "One lane ends the life of the barrier while others may still wait on it.",
    ),
    broken(
        "second_life_not_joined",
        "H11 H10",
        lives(LIVES.replace(" sync_1", "")),
        "init",
        "two_lives",
        "Other lanes may wait on the second life before it begins.",
    ),
    legal(
        "barrier_bytes_used_for_data",
        "H11 H74",
        reused("wait read left inval over put seen get out"),
        "The barrier is invalidated when all have left it, before its bytes are written.",
    ),
    broken(
        "barrier_bytes_used_without_invalidation",
        "H11 H74",
        reused("wait read left over put seen get out"),
        "init WAW WAR",
        "barrier_bytes_used_for_data",
        "The bytes of a live barrier hold its phase (PTX ISA, mbarrier, opaque object).",
    ),
    broken(
        "barrier_bytes_used_while_others_wait",
        "H11 H74",
        reused("wait read inval put seen get out"),
        "init WAW WAR",
        "barrier_bytes_used_for_data",
        "Stores may hit the barrier while other lanes still wait on it.",
    ),
    broken(
        "barrier_bytes_written_before_the_wait",
        "H11 H74",
        reused("clear put seen wait read left inval get out"),
        "init WAW WAR RAW",
        "barrier_bytes_used_for_data",
        "A live barrier lies over a buffer that is written before the copy completes on it.",
    ),
)
