"""Bytes that are filled through one buffer and read through another, a view of them."""

from __future__ import annotations

from fuser.dtype import DType
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    Litmus,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    k,
    kernel,
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
from litmus.rings import EMPTY, FULL, RING, SLOT, TURN, arrive

X2, Y2, XN, YN = tensor("X", 2), tensor("Y", 2), tensor("X", n), tensor("Y", n)
WHOLE = kir.Buffer("S", DType.F32, (8, 32), 1, 0)
UPPER, LOWER, BELOW = slots("U"), slots("L", offset=NBYTES), slots("B", offset=2 * NBYTES)
BOTH = kir.Box(X2, (0, 0), (8, 32), X2.extents)


def halves(sentence: str) -> kir.Kernel:
    """Load two tiles by one copy, and read each through a buffer of its own."""
    one, two = (kir.MBarrier(name, 1, 1) for name in ("f", "g"))
    tile = fragment("x", 64)
    words: dict[str, kir.Stmt] = {
        "init": init(one, two),
        "sync": kir.BlockSync(0, 64),
        "left": kir.BlockSync(0, 64),
        "fill": elect(*fill(kir.Slot(WHOLE, 0), BOTH, one)),
        "refill": elect(*fill(kir.Slot(WHOLE, 0), BOTH, two)),
        "refill_upper": elect(*fill(kir.Slot(UPPER, 0), box(X2, 1), two)),
        "wait": wait(one, 0, 0),
        "wait_two": wait(two, 0, 0),
        "upper": load(tile, kir.Slot(UPPER, 0)),
        "out_0": store(box(Y2, 0), tile),
        "lower": load(tile, kir.Slot(LOWER, 0)),
        "below": load(tile, kir.Slot(BELOW, 0)),
        "out_1": store(box(Y2, 1), tile),
    }
    body = said(f"init sync {sentence}", words)
    return single(
        body,
        threads=64,
        buffers=(WHOLE, UPPER, LOWER, BELOW),
        barriers=(one, two),
        tensors=(X2, Y2),
    )


def joined(sentence: str) -> kir.Kernel:
    """Load two tiles by a copy each, and send both on as one."""
    one, two = (kir.MBarrier(name, 1, 1) for name in ("f", "g"))
    words: dict[str, kir.Stmt] = {
        "upper": kir.MBarrierArriveExpectTx(one, 0, NBYTES),
        "fill_upper": kir.TmaLoad(kir.Slot(UPPER, 0), box(X2, 0), one, 0),
        "lower": kir.MBarrierArriveExpectTx(two, 0, NBYTES),
        "fill_lower": kir.TmaLoad(kir.Slot(LOWER, 0), box(X2, 1), two, 0),
        "wait": wait(one, 0, 0),
        "wait_two": wait(two, 0, 0),
        "send": kir.TmaStore(kir.Box(Y2, (0, 0), (8, 32), Y2.extents), kir.Slot(WHOLE, 0)),
        "commit": kir.AsyncCommit(BULK),
        "drain": kir.AsyncAwait(BULK, 0),
    }
    work = elect(*said(f"upper fill_upper lower fill_lower {sentence} send commit drain", words))
    body = (init(one, two), kir.BlockSync(0, 32), work)
    return single(body, buffers=(WHOLE, UPPER, LOWER), barriers=(one, two), tensors=(X2, Y2))


def ring_of_views(use: str) -> kir.Kernel:
    """Return a ring whose user reads a slot through two buffers, each half of it."""
    parts = [
        kir.Buffer(name, DType.F32, (2, 32), 2, at, pitch=NBYTES)
        for name, at in (("H0", 0), ("H1", NBYTES // 2))
    ]
    tile = kir.Fragment("x", DType.F32, kir.Layout((2, 32), 2, 32))
    words: dict[str, kir.Stmt] = {
        "wait": wait(FULL, SLOT, TURN),
        "free": arrive(EMPTY),
        "room": wait(EMPTY, SLOT, TURN + 1),
        "expect": kir.MBarrierArriveExpectTx(FULL, SLOT, NBYTES),
        "fill": kir.TmaLoad(kir.Slot(RING, SLOT), box(XN, k), FULL, SLOT),
    }
    for i, part in enumerate(parts):
        rows = kir.Box(YN, (k * 4 + 2 * i, 0), (2, 32), YN.extents)
        words |= {
            f"read_{i}": load(tile, kir.Slot(part, SLOT)),
            f"out_{i}": store(rows, tile),
        }
    body = (
        init(FULL, EMPTY),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, said(use, words)),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (elect(*said("room expect fill", words)),)),)),
    )
    buffers = (RING, *parts)
    return kernel(body, threads=64, buffers=buffers, barriers=(FULL, EMPTY), tensors=(XN, YN))


READ = "upper out_0 lower out_1"
LITMUS: tuple[Litmus, ...] = (
    legal(
        "halves_of_a_filled_slot",
        "H74",
        halves(f"fill wait {READ}"),
        "The wait covers every byte that is read, whatever the buffer is called.",
    ),
    broken(
        "halves_of_a_slot_that_is_being_filled",
        "H74 H20",
        halves(f"fill {READ} wait"),
        "RAW",
        "halves_of_a_filled_slot",
        "Nobody has waited for the copy.",
    ),
    broken(
        "a_view_past_what_is_filled",
        "H74 H20",
        halves("fill wait upper out_0 below out_1"),
        "RAW",
        "halves_of_a_filled_slot",
        "The copy ends where the view begins.",
    ),
    legal(
        "a_slot_refilled_when_its_views_were_read",
        "H74",
        halves(f"fill wait {READ} left refill wait_two"),
        "All have read both views when the next copy begins.",
    ),
    broken(
        "a_slot_refilled_while_its_view_is_read",
        "H74 H21",
        halves(f"fill wait {READ} refill wait_two"),
        "WAR",
        "a_slot_refilled_when_its_views_were_read",
        "The next copy lands on bytes that others still read as another buffer.",
    ),
    legal(
        "a_view_refilled_when_the_slot_is_complete",
        "H74",
        halves("fill wait left refill_upper wait_two upper out_0 lower out_1"),
        "One half is of the second copy, the other of the first.",
    ),
    broken(
        "a_view_refilled_while_the_slot_is_filled",
        "H74",
        halves("fill refill_upper wait_two wait upper out_0 lower out_1"),
        "WAW RAW",
        "a_view_refilled_when_the_slot_is_complete",
        "Two copies write the same bytes, in any order.",
    ),
    legal(
        "two_copies_sent_on_as_one",
        "H74",
        joined("wait wait_two"),
        "Each half was waited for, by the thread that sends both.",
    ),
    broken(
        "two_copies_sent_on_after_one",
        "H74 H20",
        joined("wait"),
        "RAW exit",
        "two_copies_sent_on_as_one",
        "Half of what is sent may not be there yet.",
    ),
    legal(
        "slots_of_a_ring_read_in_halves",
        "H74",
        ring_of_views("wait read_0 out_0 read_1 out_1 free"),
        "The slot is given back when both of its views have been read.",
    ),
    broken(
        "slots_of_a_ring_freed_between_halves",
        "H74 H21",
        ring_of_views("wait read_0 out_0 free read_1 out_1"),
        "WAR RAW",
        "slots_of_a_ring_read_in_halves",
        "The next copy may land on the second half.",
        launches=trips(5),
    ),
)
