"""What TMA stores and reductions write: read back, overwritten, written twice, added up."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    SHARED,
    W1,
    X1,
    Y1,
    Litmus,
    box,
    broken,
    elect,
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
)

Z1 = tensor("Z")


def drain(keep: int, *, read_only: bool = True) -> kir.Elect:
    """Wait for bulk groups by the elected thread."""
    return elect(kir.AsyncAwait(BULK, keep, read_only))


def through(sentence: str) -> kir.Kernel:
    """Send a tile to global memory by TMA, and read it back by all threads."""
    buffer, tile, back = slots("S"), fragment("x", 64), fragment("z", 64, vector=1)
    other = fragment("y", 64)
    words: dict[str, kir.Stmt] = {
        "done": drain(0, read_only=False),
        "read": drain(0),
        "sync": kir.BlockSync(0, 64),
        "sync2": kir.BlockSync(0, 64),
        "over": store(box(W1), other),
        "back": load(back, box(W1)),
        "out": store(box(Y1), back),
        "end": drain(0),
    }
    body = (
        load(tile, box(X1)),
        kir.Compute(other, "add", (tile, tile)),
        store(kir.Slot(buffer, 0), tile),
        kir.FenceAsyncProxy(SHARED),
        kir.BlockSync(1, 64),
        elect(kir.TmaStore(box(W1), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        *said(sentence, words),
    )
    return single(body, threads=64, buffers=(buffer,), tensors=(X1, W1, Y1), workspaces=("W",))


def twice(sentence: str, *, determinism: str = "bitwise") -> kir.Kernel:
    """Load two tiles, send both to one box of a workspace, read it back."""
    a, b, bar = slots("A"), slots("B", offset=NBYTES), kir.MBarrier("full", 1, 1)
    back = fragment("x")
    words: dict[str, kir.Stmt] = {
        "store_a": elect(kir.TmaStore(box(W1), kir.Slot(a, 0)), kir.AsyncCommit(BULK)),
        "store_b": elect(kir.TmaStore(box(W1), kir.Slot(b, 0)), kir.AsyncCommit(BULK)),
        "add_a": elect(kir.TmaReduce(box(W1), kir.Slot(a, 0)), kir.AsyncCommit(BULK)),
        "add_b": elect(kir.TmaReduce(box(W1), kir.Slot(b, 0)), kir.AsyncCommit(BULK)),
        "read": drain(0),
        "done": drain(0, read_only=False),
        "done2": drain(0, read_only=False),
        "done3": drain(0, read_only=False),
    }
    body = (
        init(bar),
        kir.BlockSync(0, 32),
        elect(
            kir.MBarrierArriveExpectTx(bar, 0, 2 * NBYTES),
            kir.TmaLoad(kir.Slot(a, 0), box(X1), bar, 0),
            kir.TmaLoad(kir.Slot(b, 0), box(Z1), bar, 0),
        ),
        wait(bar, 0, 0),
        *said(sentence, words),
        kir.BlockSync(0, 32),
        load(back, box(W1)),
        store(box(Y1), back),
    )
    made = single(
        body, buffers=(a, b), barriers=(bar,), tensors=(X1, Z1, W1, Y1), workspaces=("W",)
    )
    return replace(made, determinism=determinism)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "sent_and_read_back",
        "H34 H41 H43",
        through("done sync back out"),
        "Performed, joined, read: no fence is owed after the wait.",
    ),
    broken(
        "read_back_after_the_source_was_read",
        "H41 H34",
        through("read sync back out"),
        "RAW drain",
        "sent_and_read_back",
        "A wait for the reads of the engine says nothing of its writes "
        "(PTX ISA, cp.async.bulk.wait_group.read).",
    ),
    broken(
        "read_back_without_a_barrier",
        "H43 H34",
        through("done back out end"),
        "RAW",
        "sent_and_read_back",
        "Only the thread that waited knows that the writes are performed.",
    ),
    broken(
        "read_back_without_a_wait",
        "H34 H41",
        through("sync back out end"),
        "RAW",
        "sent_and_read_back",
        "The barrier orders the issue, not the engine's writes.",
    ),
    legal(
        "destination_overwritten_when_performed",
        "H41 H46",
        through("done sync over sync2 back out"),
        "The engine's writes are performed before others overwrite them.",
    ),
    broken(
        "destination_overwritten_after_the_source_was_read",
        "H41 H46",
        through("read sync over sync2 back out"),
        "WAW RAW",
        "destination_overwritten_when_performed",
        "The engine may still write the destination.",
    ),
    legal(
        "two_stores_to_one_box_in_turn",
        "H46",
        twice("store_a done store_b done2"),
        "The second store begins when the first is performed.",
    ),
    broken(
        "two_stores_to_one_box_at_once",
        "H46",
        twice("store_a store_b done"),
        "WAW",
        "two_stores_to_one_box_in_turn",
        "Bulk stores of one thread are not ordered among each other (PTX ISA, cp.async.bulk).",
    ),
    broken(
        "two_stores_to_one_box_after_the_read",
        "H46 H41",
        twice("store_a read store_b done"),
        "WAW",
        "two_stores_to_one_box_in_turn",
        "The first has read its source and not yet written its destination.",
    ),
    broken(
        "reduction_beside_a_store",
        "H46 H83",
        twice("store_a add_b done"),
        "WAW RAW WAR",
        "reduction_after_a_store",
        "The sum may be overwritten by the store, or begin from what was there before.",
    ),
    legal(
        "reduction_after_a_store",
        "H46 H83",
        twice("store_a done add_b done2"),
        "The reduction adds to what is performed.",
    ),
    legal(
        "reductions_in_turn",
        "H83 H46",
        twice("store_a done add_b done2 add_a done3"),
        "One after the other they round in one order.",
    ),
    legal(
        "reductions_in_any_order_declared",
        "H83 H46",
        twice("store_a done add_b add_a done2", determinism="unordered"),
        "Reductions are atomic among each other; the kernel promises no order.",
    ),
    broken(
        "reductions_in_any_order",
        "H83",
        twice("store_a done add_b add_a done2"),
        "determinism",
        "reductions_in_any_order_declared",
        "Two reductions in flight round in either order, and the kernel promises the same bits.",
    ),
)
