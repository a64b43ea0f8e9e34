"""Where mbarriers lie: beside each other, on each other, on buffers, and where nothing is."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    SHARED,
    Litmus,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    k,
    legal,
    load,
    n,
    said,
    single,
    slots,
    store,
    tensor,
    trips,
    wait,
)
from litmus.rings import EMPTY, FULL, ring

X2, Y2 = tensor("X", 2), tensor("Y", 2)
PAD = slots("PAD", offset=2 * NBYTES)
"""A tile that nobody uses, behind two that are."""
ROOM = PAD.offset
THIRD = kir.MBarrier("third", 1, 1)


def laid(full: int | None, empty: int | None) -> kir.Kernel:
    """Lay the barriers of a ring of two slots to these bytes of its buffers."""
    places = {"full": replace(FULL, offset=full), "empty": replace(EMPTY, offset=empty)}

    def moved(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case (
                kir.MBarrierInit(bar)
                | kir.MBarrierWaitParity(bar)
                | kir.MBarrierArrive(bar)
                | kir.MBarrierArriveExpectTx(bar)
                | kir.TmaLoad(barrier=bar)
            ):
                return [replace(stmt, barrier=places[bar.name])]
            case _:
                return None

    made = ring().rewrite(moved)
    return replace(made, buffers=(*made.buffers, PAD), barriers=tuple(places.values()))


LIVES = "init sync fill wait read out left inval init_1 sync_1 fill_1 wait_1 read_1 out_1"


COPY = "init third sync fill wait read out left inval fence refill refilled take out_1"


def lives(sentence: str = LIVES, *, other: int = 0, apart: int = 0) -> kir.Kernel:
    """Load a tile by a barrier, and another one by a second barrier at its place.

    Warp `other` ends the life of the first; the second begins so many bytes behind it.
    """
    buffer, tile = slots("S", 2), fragment("x", 64)
    first, second = (kir.MBarrier(f"b{i}", 1, 2, ROOM + i * apart) for i in range(2))
    ends = kir.Elect(kir.Per.ROLE, (kir.MBarrierInvalidate(first),))
    words: dict[str, kir.Stmt] = {
        "inval": kir.Role("other", other, 1, (ends,)) if other else ends,
        "left": kir.BlockSync(0, 64),
        "over": kir.BlockSync(0, 64),
        "fence": elect(kir.FenceAsyncProxy(SHARED)),
        "third": init(THIRD),
        "refill": elect(*fill(kir.Slot(PAD, 0), box(X2, 1), THIRD)),
        "refilled": wait(THIRD, 0, 0),
        "take": load(tile, kir.Slot(PAD, 0)),
    }
    for i, (bar, more) in enumerate(((first, ""), (second, "_1"))):
        words |= {
            f"init{more}": init(bar),
            f"sync{more}": kir.BlockSync(0, 64),
            f"fill{more}": elect(*fill(kir.Slot(buffer, i), box(X2, i), bar)),
            f"wait{more}": wait(bar, 0, 0),
            f"read{more}": load(tile, kir.Slot(buffer, i)),
            f"out{more}": store(box(Y2, i), tile),
        }
    body = said(sentence, words)
    barriers = (first, THIRD if "third" in sentence else second)
    return single(body, threads=64, buffers=(buffer, PAD), barriers=barriers, tensors=(X2, Y2))


def in_turn(*, ended: bool) -> kir.Kernel:
    """Use two barriers at one place in the rounds of a loop, each in every other round."""
    buffer, tile = slots("S", 2), fragment("x", 64)
    bars = [kir.MBarrier(name, 1, 1, ROOM) for name in ("even", "odd")]
    x, y = tensor("X", n), tensor("Y", n)

    def once(bar: kir.MBarrier) -> tuple[kir.Stmt, ...]:
        ends = elect(kir.MBarrierInvalidate(bar))
        return (
            init(bar),
            kir.BlockSync(0, 64),
            elect(*fill(kir.Slot(buffer, k % 2), box(x, k), bar)),
            wait(bar, 0, 0),
            load(tile, kir.Slot(buffer, k % 2)),
            store(box(y, k), tile),
            kir.BlockSync(0, 64),
            *((ends,) if ended else ()),
        )

    body = (kir.IfThenElse(eq(k % 2, 0), once(bars[0]), once(bars[1])),)
    made = single((), threads=64, buffers=(buffer, PAD), barriers=tuple(bars), tensors=(x, y))
    return replace(made, body=(kir.ForLoop(k, n, body),), params=(n,))


def after_data(sentence: str) -> kir.Kernel:
    """Use the bytes of a tile, which threads or engines have had, for a barrier."""
    data, buffer = slots("A"), slots("B", offset=NBYTES)
    at = 0 if "again" in sentence else 16
    first, bar = kir.MBarrier("first", 1, 1), kir.MBarrier("later", 1, 1, at)
    tile, thin = fragment("x", 64), fragment("z", 64, 1)
    words: dict[str, kir.Stmt] = {
        "get": load(tile, box(X2, 0)),
        "put": store(kir.Slot(data, 0), tile),
        "seen": kir.BlockSync(0, 64),
        "look": load(thin, kir.Slot(data, 0)),
        "again": load(tile, kir.Slot(data, 0)),
        "out": store(box(Y2, 0), thin),
        "out_own": store(box(Y2, 0), tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "send": elect(kir.TmaStore(box(Y2, 0), kir.Slot(data, 0)), kir.AsyncCommit(BULK)),
        "taken": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
        "start": init(first),
        "fetch": elect(*fill(kir.Slot(data, 0), box(X2, 0), first)),
        "here": wait(first, 0, 0),
        "left": kir.BlockSync(0, 64),
        "init": init(bar),
        "sync": kir.BlockSync(0, 64),
        "fill": elect(*fill(kir.Slot(buffer, 0), box(X2, 1), bar)),
        "wait": wait(bar, 0, 0),
        "read": load(tile, kir.Slot(buffer, 0)),
        "last": store(box(Y2, 1), tile),
    }
    body = said(f"{sentence} init sync fill wait read last", words)
    barriers = (first, bar) if "start" in sentence else (bar,)
    return single(body, threads=64, buffers=(data, buffer), barriers=barriers, tensors=(X2, Y2))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "barriers_beside_each_other_on_a_buffer",
        "H74",
        laid(ROOM, ROOM + 16),
        "Each has bytes of its own, of a tile that nobody uses.",
    ),
    broken(
        "two_live_barriers_at_one_place",
        "H11 H74",
        laid(ROOM, ROOM),
        "init",
        "barriers_beside_each_other_on_a_buffer",
        "The second one is initialised over the first (PTX ISA, mbarrier.init).",
    ),
    broken(
        "the_last_slot_of_one_ring_of_barriers_is_the_first_of_another",
        "H11 H74",
        laid(ROOM, ROOM + 8),
        "init",
        "barriers_beside_each_other_on_a_buffer",
        "A ring of barriers has 8 bytes a slot.",
    ),
    broken(
        "barriers_on_the_slots_of_the_ring_that_they_guard",
        "H11 H74",
        laid(0, 16),
        "init proxy WAW WAR",
        "barriers_beside_each_other_on_a_buffer",
        "A copy lands on the barrier that it completes on.",
        launches=trips(1, 5),
    ),
    broken(
        "a_barrier_at_the_place_of_one_that_is_laid_out",
        "H74",
        laid(None, PAD.end),
        "bounds",
        "barriers_beside_each_other_on_a_buffer",
        "Those without a place begin where the buffers end.",
        refused="those without an offset",
    ),
    broken(
        "a_barrier_past_the_shared_memory_of_its_cta",
        "H74",
        laid(ROOM, PAD.end - 8),
        "bounds",
        "barriers_beside_each_other_on_a_buffer",
        "Its last slot is outside of what the launch allocates.",
        refused="the CTA has 1536 bytes",
    ),
    broken(
        "a_barrier_far_past_the_shared_memory_of_its_cta",
        "H74",
        laid(ROOM, 1 << 20),
        "bounds",
        "barriers_beside_each_other_on_a_buffer",
        "There is no such memory.",
        refused="the CTA has 1536 bytes",
    ),
    broken(
        "a_barrier_at_an_odd_place",
        "H74",
        laid(ROOM + 4, ROOM + 32),
        "bounds",
        "barriers_beside_each_other_on_a_buffer",
        "It lies at a multiple of 8 (PTX ISA, mbarrier, size and alignment).",
        refused="use a multiple of 8",
    ),
    legal(
        "a_barrier_after_another_one_at_its_place",
        "H11 H74",
        lives(),
        "Invalidated when all have left it, and then its bytes begin another life.",
    ),
    broken(
        "a_barrier_on_one_that_is_not_invalidated",
        "H11 H74",
        lives(LIVES.replace("inval ", "")),
        "init",
        "a_barrier_after_another_one_at_its_place",
        "Only an invalidated barrier is memory again (PTX ISA, mbarrier.inval).",
    ),
    broken(
        "a_barrier_on_one_that_others_may_wait_for",
        "H11 H74",
        lives(LIVES.replace("left ", "")),
        "init",
        "a_barrier_after_another_one_at_its_place",
        "Other threads may not have seen the phase of the first one.",
    ),
    broken(
        "a_barrier_on_half_of_one_that_is_not_invalidated",
        "H11 H74",
        lives(LIVES.replace("inval ", ""), apart=8),
        "init",
        "a_barrier_after_another_one_at_its_place",
        "It has the bytes of a slot of a live one.",
    ),
    legal(
        "a_barrier_after_one_that_another_warp_invalidates",
        "H11 H74",
        lives(LIVES.replace("inval", "inval over"), other=1),
        "The two warps meet between the end of one life and the begin of the next.",
    ),
    broken(
        "a_barrier_while_another_warp_invalidates_the_one_before",
        "H11 H74",
        lives(other=1),
        "init WAW",
        "a_barrier_after_one_that_another_warp_invalidates",
        "Nothing orders the begin of the second life after the end of the first.",
    ),
    legal(
        "a_copy_onto_the_bytes_of_a_barrier",
        "H11 H74",
        lives(COPY),
        "Threads have used these bytes, and a proxy fence carries that over to the copy engine.",
    ),
    broken(
        "a_copy_onto_the_bytes_of_a_barrier_unfenced",
        "H11 H74",
        lives(COPY.replace("fence ", "")),
        "proxy",
        "a_copy_onto_the_bytes_of_a_barrier",
        "An mbarrier is used in the generic proxy, until it is invalidated.",
    ),
    broken(
        "a_copy_onto_the_bytes_of_a_live_barrier",
        "H11 H74",
        lives(COPY.replace("inval ", "")),
        "init WAW WAR",
        "a_copy_onto_the_bytes_of_a_barrier",
        "Nothing has ended its life.",
    ),
    legal(
        "barriers_take_turns_at_one_place",
        "H11 H74",
        in_turn(ended=True),
        "Each is invalidated in its own round.",
    ),
    broken(
        "barriers_take_turns_at_one_place_and_live_on",
        "H11 H74",
        in_turn(ended=False),
        "init",
        "barriers_take_turns_at_one_place",
        "In the second round the first barrier still lives.",
        launches=trips(2, 5),
    ),
    legal(
        "a_barrier_on_a_tile_that_was_read",
        "H11 H74",
        after_data("get put seen look out left"),
        "All have read the tile when its bytes become a barrier.",
    ),
    broken(
        "a_barrier_on_a_tile_that_is_read",
        "H11 H74",
        after_data("get put seen look out"),
        "init WAR WAW",
        "a_barrier_on_a_tile_that_was_read",
        "Nothing orders the reads before the initialisation.",
    ),
    legal(
        "a_barrier_on_what_its_own_thread_has_read",
        "H11 H74",
        after_data("get put again out_own"),
        "All threads read their own elements; the first of them has those bytes.",
    ),
    legal(
        "a_barrier_on_a_tile_that_was_sent",
        "H11 H74",
        after_data("get put fence seen send taken left"),
        "The engine has read the tile.",
    ),
    broken(
        "a_barrier_on_a_tile_that_is_being_sent",
        "H11 H74",
        after_data("get put fence seen send left").rewrite(
            lambda stmt: (
                [stmt, elect(kir.AsyncAwait(BULK, 0))]
                if isinstance(stmt, kir.MBarrierWaitParity)
                else None
            )
        ),
        "init WAR WAW",
        "a_barrier_on_a_tile_that_was_sent",
        "The store engine may read the bytes when the barrier is there already.",
    ),
    legal(
        "a_barrier_on_a_tile_that_was_fetched",
        "H11 H74",
        after_data("start seen fetch here look out left"),
        "The copy has completed, and all have read what it brought.",
    ),
    broken(
        "a_barrier_on_a_tile_that_is_being_fetched",
        "H11 H74",
        after_data("start seen fetch left").rewrite(
            lambda stmt: (
                [
                    stmt,
                    wait(kir.MBarrier("first", 1, 1), 0, 0),
                    store(box(Y2, 0), fragment("x", 64)),
                ]
                if isinstance(stmt, kir.Store)
                else None
            )
        ),
        "init WAW",
        "a_barrier_on_a_tile_that_was_fetched",
        "The copy may land on the barrier.",
    ),
)
