"""Tensors that are read and written: outputs updated in place, tiles handed on one by one."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    SHARED,
    Body,
    Litmus,
    Run,
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
    slots,
    store,
    tensor,
    trips,
    wait,
)

YN = tensor("Y", n)
X2, W2, Y2 = (tensor(name, 2) for name in "XWY")
PAIR = (Run(2),)
FLAGS = kir.Semaphore("flags", 2)


def doubled(sentence: str) -> kir.Kernel:
    """Double an output in place, by threads."""
    tile, twice = fragment("x", 64), fragment("twice", 64)
    other = fragment("z", 64, 1)
    words: dict[str, kir.Stmt] = {
        "get": load(tile, box(YN, k)),
        "get_thin": load(other, box(YN, k)),
        "add": kir.Compute(twice, "add", (tile, tile)),
        "join": kir.BlockSync(0, 64),
        "put": store(box(YN, k), twice),
    }
    body = (kir.ForLoop(k, n, said(sentence, words)),)
    return kernel(body, threads=64, tensors=(YN,))


def by_engines(sentence: str) -> kir.Kernel:
    """Double an output in place, by way of a slot that TMA fills and sends."""
    buffer, full, tile, twice = slots("S"), kir.MBarrier("f", 1, 1), fragment("x"), fragment("y")
    words: dict[str, kir.Stmt] = {
        "fill": elect(*fill(kir.Slot(buffer, 0), box(YN, k), full)),
        "wait": wait(full, 0, k),
        "get": load(tile, kir.Slot(buffer, 0)),
        "add": kir.Compute(twice, "add", (tile, tile)),
        "put": store(kir.Slot(buffer, 0), twice),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(0, 32),
        "send": elect(kir.TmaStore(box(YN, k), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
        "left": kir.BlockSync(0, 32),
    }
    body = (init(full), kir.BlockSync(0, 32), kir.ForLoop(k, n, said(sentence, words)))
    return kernel(body, buffers=(buffer,), barriers=(full,), tensors=(YN,))


def handed_on(keep: int, *, read_only: bool = False) -> kir.Kernel:
    """One CTA sends two tiles, and tells of the first while at most `keep` stores are in flight."""
    buffer, tile, back = slots("S", 2), fragment("x", 64), fragment("y", 64)

    def tell(at: Expr) -> kir.Stmt:
        return kir.BlockSerializeRelease(FLAGS, at, 1)

    def send(at: int) -> Body:
        return (kir.TmaStore(box(W2, at), kir.Slot(buffer, at)), kir.AsyncCommit(BULK))

    stage = [(load(tile, box(X2, at)), store(kir.Slot(buffer, at), tile)) for at in range(2)]
    first = kir.AsyncAwait(BULK, keep, read_only)
    sends = elect(*send(0), *send(1), first, tell(0), kir.AsyncAwait(BULK, 0), tell(1))
    put = (*stage[0], *stage[1], kir.FenceAsyncProxy(SHARED), kir.BlockSync(0, 64), sends)
    takes = [
        (kir.BlockSerializeWait(FLAGS, at, 1), load(back, box(W2, at)), store(box(Y2, at), back))
        for at in range(2)
    ]
    clears = elect(*(kir.BlockSerializeRelease(FLAGS, at, 0) for at in range(2)))
    get = (*takes[0], *takes[1], kir.BlockSync(0, 64), clears)
    body = (kir.IfThenElse(eq(kir.BLOCK, 0), put, get),)
    made = kernel(
        body, threads=64, buffers=(buffer,), tensors=(X2, W2, Y2), workspaces=("W",), params=(),
        requires=(eq(kir.GRID, 2),),
    )  # fmt: skip
    return replace(made, semaphores=(FLAGS,), residency="co-resident")


LITMUS: tuple[Litmus, ...] = (
    legal(
        "an_output_updated_in_place",
        "H70",
        doubled("get add put"),
        "What it holds before the launch may be read; each thread has its own elements.",
    ),
    legal(
        "an_output_updated_in_place_after_others_read_it",
        "H70",
        doubled("get add get_thin join put"),
        "All have read it when it is overwritten.",
    ),
    broken(
        "an_output_updated_in_place_while_others_read_it",
        "H70",
        doubled("get add get_thin put"),
        "WAR RAW",
        "an_output_updated_in_place_after_others_read_it",
        "Other threads read these elements, and nothing joins them.",
        launches=trips(1, 5),
    ),
    legal(
        "an_output_updated_in_place_by_engines",
        "H41 H70",
        by_engines("fill wait get add put fence join send drain left"),
        "Each tile is sent back when all of it was read, and the slot refilled after that.",
    ),
    broken(
        "an_output_updated_in_place_by_engines_that_overlap",
        "H41 H70",
        by_engines("fill wait get add put fence join send"),
        "WAR WAW exit RAW",
        "an_output_updated_in_place_by_engines",
        "The slot is refilled while the store engine still reads it.",
        launches=trips(2, 5),
    ),
    legal(
        "a_tile_is_told_of_while_the_next_one_is_sent",
        "H40 H41",
        handed_on(1),
        "Only the tile that is told of has to be performed.",
        launches=PAIR,
    ),
    broken(
        "a_tile_is_told_of_while_it_is_sent",
        "H40 H41",
        handed_on(2),
        "drain RAW",
        "a_tile_is_told_of_while_the_next_one_is_sent",
        "Nothing is awaited before the release.",
        launches=PAIR,
    ),
    broken(
        "a_tile_is_told_of_when_its_source_is_read",
        "H40 H41",
        handed_on(1, read_only=True),
        "drain RAW",
        "a_tile_is_told_of_while_the_next_one_is_sent",
        "The await of the reads says nothing of the writes.",
        launches=PAIR,
    ),
)
