"""Bytes that both proxies write, or that meet in global memory: cleared, changed, exchanged."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import (
    ALL,
    GLOBAL,
    SHARED,
    W1,
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
    wait,
    zero,
)


def cleared(sentence: str) -> kir.Kernel:
    """Clear a slot by ordinary stores, then load a tile into it by TMA."""
    buffer, bar, tile = slots("S"), kir.MBarrier("full", 1, 1), fragment("x", 64)
    none = fragment("none", 64, vector=1)
    words: dict[str, kir.Stmt] = {
        "clear": store(kir.Slot(buffer, 0), none),
        "fence": kir.FenceAsyncProxy(SHARED),
        "elected_fence": elect(kir.FenceAsyncProxy(SHARED)),
        "sync": kir.BlockSync(0, 64),
        "fill": elect(*fill(kir.Slot(buffer, 0), box(X1), bar)),
        "wait": wait(bar, 0, 0),
    }
    body = (
        init(bar),
        kir.BlockSync(1, 64),
        zero(none),
        *said(sentence, words),
        load(tile, kir.Slot(buffer, 0)),
        store(box(Y1), tile),
    )
    return single(body, threads=64, buffers=(buffer,), barriers=(bar,))


def by_global(sentence: str) -> kir.Kernel:
    """Store a tile to global memory by all threads, and load it back by TMA."""
    buffer, bar = slots("S"), kir.MBarrier("full", 1, 1)
    tile, back = fragment("x", 64), fragment("back", 64)
    words: dict[str, kir.Stmt] = {
        "put": store(box(W1), tile),
        "fence": kir.FenceAsyncProxy(GLOBAL),
        "fence_all": kir.FenceAsyncProxy(ALL),
        "fence_shared": kir.FenceAsyncProxy(SHARED),
        "elected_fence": elect(kir.FenceAsyncProxy(GLOBAL)),
        "sync": kir.BlockSync(0, 64),
        "fill": elect(*fill(kir.Slot(buffer, 0), box(W1), bar)),
    }
    body = (
        init(bar),
        kir.BlockSync(1, 64),
        load(tile, box(X1)),
        *said(sentence, words),
        wait(bar, 0, 0),
        load(back, kir.Slot(buffer, 0)),
        store(box(Y1), back),
    )
    return single(
        body,
        threads=64,
        buffers=(buffer,),
        barriers=(bar,),
        tensors=(X1, W1, Y1),
        workspaces=("W",),
    )


def written_back(sentence: str) -> kir.Kernel:
    """Load a tile by TMA, change it in place by ordinary accesses, and read it again."""
    buffer, bar, tile = slots("S"), kir.MBarrier("full", 1, 1), fragment("x", 64)
    turned = fragment("z", 64, vector=1)
    words: dict[str, kir.Stmt] = {
        "wait": wait(bar, 0, 0),
        "read": load(tile, kir.Slot(buffer, 0)),
        "put": store(kir.Slot(buffer, 0), tile),
        "sync": kir.BlockSync(0, 64),
    }
    body = (
        init(bar),
        kir.BlockSync(1, 64),
        elect(*fill(kir.Slot(buffer, 0), box(X1), bar)),
        *said(sentence, words),
        load(turned, kir.Slot(buffer, 0)),
        store(box(Y1), turned),
    )
    return single(body, threads=64, buffers=(buffer,), barriers=(bar,))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "slot_cleared_before_a_load",
        "H32",
        cleared("clear fence sync fill wait"),
        "Each writer fences, all join, one loads.",
    ),
    broken(
        "slot_cleared_without_a_fence",
        "H32",
        cleared("clear sync fill wait"),
        "proxy",
        "slot_cleared_before_a_load",
        "Ordinary stores may land after the engine's bytes (seen with destinations that are "
        "cleared before a load).",
    ),
    broken(
        "slot_cleared_without_a_barrier",
        "H32",
        cleared("clear fence fill wait"),
        "WAW",
        "slot_cleared_before_a_load",
        "Stores of other threads may come after the load.",
    ),
    broken(
        "slot_cleared_and_fenced_by_one_thread",
        "H32 H33",
        cleared("clear elected_fence sync fill wait"),
        "proxy",
        "slot_cleared_before_a_load",
        "The fence before the barrier covers the stores of its own thread only.",
    ),
    broken(
        "slot_cleared_during_the_load",
        "H32",
        cleared("fill clear fence sync wait"),
        "WAW",
        "slot_cleared_before_a_load",
        "The load is in flight when the slot is cleared.",
    ),
    legal(
        "slot_changed_after_the_load",
        "H35",
        written_back("wait read put sync"),
        "After the wait ordinary reads and writes owe no fence: the completion carries it.",
    ),
    legal(
        "slot_changed_after_the_load_under_strict",
        "H35",
        written_back("wait read put sync"),
        "Nothing asynchronous comes after, so no fence is owed under any policy.",
        policy="strict",
    ),
    broken(
        "slot_changed_before_the_wait",
        "H35 H32",
        written_back("read put sync wait"),
        "RAW WAW",
        "slot_changed_after_the_load",
        "The engine may still write what is read and overwritten.",
    ),
    legal(
        "global_tile_written_and_loaded",
        "H34",
        by_global("put fence sync fill"),
        "Each writer fences global memory, all join, one loads by TMA.",
    ),
    legal(
        "global_tile_fenced_in_every_space",
        "H34",
        by_global("put fence_all sync fill"),
        "A fence of all spaces covers global memory.",
    ),
    broken(
        "global_tile_loaded_without_a_fence",
        "H34",
        by_global("put sync fill"),
        "proxy",
        "global_tile_written_and_loaded",
        "TMA reads global memory in the async proxy (PTX ISA, async proxy).",
    ),
    broken(
        "global_tile_fenced_in_shared_space",
        "H34 H33",
        by_global("put fence_shared sync fill"),
        "proxy",
        "global_tile_written_and_loaded",
        "A fence of shared memory says nothing of global memory.",
    ),
    broken(
        "global_tile_fenced_by_one_thread",
        "H34 H33",
        by_global("put elected_fence sync fill"),
        "proxy",
        "global_tile_written_and_loaded",
        "The fence before the barrier covers the stores of its own thread only.",
    ),
    broken(
        "global_tile_loaded_without_a_barrier",
        "H34",
        by_global("put fence fill"),
        "RAW",
        "global_tile_written_and_loaded",
        "Other threads may store after the load has read.",
    ),
)
