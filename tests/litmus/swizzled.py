"""Swizzled tiles over the bytes of others: there it counts where their elements lie."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    SHARED,
    Litmus,
    broken,
    elect,
    fill,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    single,
    store,
    tensor,
    trips,
    wait,
    zero,
)

X2, Y2, XN, YN = tensor("X", 2), tensor("Y", 2), tensor("X", 2 * n), tensor("Y", 2 * n)
ROWS = (8, 32)
"""Rows of 128 bytes, after which a swizzle of 128 bytes repeats."""
SWIZZLED = kir.Buffer("S", DType.F32, ROWS, 1, 0, swizzle=128)
PLAIN = kir.Buffer("R", DType.F32, ROWS, 1, 0)
TILE = kir.Fragment("x", DType.F32, kir.Layout(ROWS, 4, 64))


def own(over: kir.Buffer) -> kir.Kernel:
    """Each thread stores 16 bytes, reads them again, and clears 16 bytes of another buffer."""
    here = kir.Box(Y2, (0, 0), ROWS, Y2.extents)
    again = replace(TILE, name="y")
    body = (
        load(TILE, kir.Box(X2, (0, 0), ROWS, X2.extents)),
        store(kir.Slot(SWIZZLED, 0), TILE),
        load(again, kir.Slot(SWIZZLED, 0)),
        store(here, again),
        zero(TILE),
        store(kir.Slot(over, 0), TILE),
    )
    return single(body, threads=64, buffers=(SWIZZLED, over), tensors=(X2, Y2))


STAGED = "fill wait read sync put fence join issue drain"


def staged(sentence: str = STAGED, *, swizzle: int = 64, offset: int = 0) -> kir.Kernel:
    """Load tiles by TMA, and send results from a buffer over the loaded one, swizzled otherwise."""
    out = kir.Buffer("D", DType.F32, (8, 16), 1, offset, swizzle=swizzle)
    half = kir.Fragment("y", DType.F32, kir.Layout((8, 16), 2, 64))
    full = kir.MBarrier("full", 1, 1)
    rows = kir.Box(XN, (8 * k, 0), ROWS, XN.extents)
    target = kir.Tensor("Z", DType.F32, (8 * n, 16), (16, 1), 4)
    words: dict[str, kir.Stmt] = {
        "fill": elect(*fill(kir.Slot(SWIZZLED, 0), rows, full)),
        "wait": wait(full, 0, k),
        "read": load(TILE, kir.Slot(SWIZZLED, 0)),
        "sync": kir.BlockSync(0, 64),
        "put": store(kir.Slot(out, 0), half),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(1, 64),
        "issue": elect(
            kir.TmaStore(kir.Box(target, (8 * k, 0), (8, 16), target.extents), kir.Slot(out, 0)),
            kir.AsyncCommit(BULK),
        ),
        "drain": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    }
    put = store(kir.Box(YN, (8 * k, 0), ROWS, YN.extents), TILE)
    body = (
        init(full),
        kir.BlockSync(2, 64),
        zero(half),
        kir.ForLoop(k, n, (*said(sentence, words), put)),
        elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    )
    made = kernel(
        body,
        threads=64,
        buffers=(SWIZZLED, out),
        barriers=(full,),
        tensors=(XN, YN, target),
    )
    return replace(made, outputs=("Y", "Z"))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "bytes_of_a_thread_go_by_two_names_of_one_swizzle",
        "H74",
        own(replace(SWIZZLED, name="R")),
        "Each thread overwrites what it alone has read: its elements lie alike in both.",
    ),
    broken(
        "bytes_of_other_threads_go_by_another_swizzle",
        "H74",
        own(PLAIN),
        "WAR WAW",
        "bytes_of_a_thread_go_by_two_names_of_one_swizzle",
        "From the second row on the elements of a thread lie elsewhere, and nothing joins them.",
    ),
    legal(
        "results_staged_over_a_swizzled_tile",
        "H74 H32 H31",
        staged(),
        "Read by all, joined, overwritten, sent, drained before the next load.",
    ),
    broken(
        "results_staged_over_a_swizzled_tile_that_is_read",
        "H74 H70",
        staged(STAGED.replace("sync ", "")),
        "WAR",
        "results_staged_over_a_swizzled_tile",
        "Other threads still read the bytes.",
        launches=trips(1, 5),
    ),
    broken(
        "results_on_their_way_when_a_swizzled_tile_is_loaded",
        "H74 H40",
        staged(STAGED.replace(" drain", "")),
        "WAR WAW",
        "results_staged_over_a_swizzled_tile",
        "The next load writes bytes that the store engine still reads.",
        launches=trips(2, 5),
    ),
    legal(
        "results_staged_beside_a_swizzled_tile",
        "H74",
        staged(STAGED.replace("sync ", ""), offset=1024),
        "Without shared bytes a tile may be staged while others still read.",
    ),
    broken(
        "results_staged_sixteen_bytes_later",
        "H74",
        staged(offset=16),
        "bounds",
        "results_staged_over_a_swizzled_tile",
        "Engines find a swizzle where its rows repeat (PTX ISA, tensor swizzling modes).",
        refused="multiple",
    ),
)
