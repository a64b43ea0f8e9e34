"""Tiles that come back from a slot with their axes exchanged: by threads, and filled by TMA.

Sums in strips go there by `stmatrix.trans`, and leave by TMA.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    PER_WARP,
    SHARED,
    Litmus,
    broken,
    elect,
    fill,
    init,
    k,
    kernel,
    legal,
    n,
    said,
    trips,
    wait,
)

ROWS, COLS, THREADS, STAGES = 8, 16, 64, 2
ACROSS = kir.Layout((COLS, ROWS), 2, THREADS)
ALONG = kir.Layout((ROWS, COLS), 2, THREADS)
X = kir.Tensor("X", DType.F32, (n * COLS, ROWS), (ROWS, 1), 4)
Y = kir.Tensor("Y", DType.F32, (ROWS, n * COLS), (n * COLS, 1), 4)
SLOT, TURN = k % STAGES, k // STAGES


def x_tile() -> kir.Box:
    """Tile k of the input, as it lies in memory."""
    return kir.Box(X, (k * COLS, 0), (COLS, ROWS), X.extents)


def y_tile() -> kir.Box:
    """Tile k of the output."""
    return kir.Box(Y, (0, k * COLS), (ROWS, COLS), Y.extents)


def by_threads(sentence: str, *, threads: int = THREADS, back: bool = False) -> kir.Kernel:
    """Return `y = x.T`, tile by tile through one slot.

    Each tile is put as it lies and got exchanged, or the other way round where it comes `back`.
    """
    own, other = (replace(one, threads=threads) for one in (ACROSS, ALONG))
    tile, turned = kir.Fragment("x", DType.F32, own), kir.Fragment("y", DType.F32, other)
    shape = (ROWS, COLS) if back else (COLS, ROWS)
    slot = kir.Slot(kir.Buffer("S", DType.F32, shape, 1, 0, 32), 0)
    words: dict[str, kir.Stmt] = {
        "get": kir.Load(tile, x_tile(), 2),
        "put": kir.Store(slot, tile, 1 if back else 2, transposed=back),
        "join": kir.BlockSync(0, threads),
        "meet": kir.BlockSync(0, threads),
        "warp": kir.WarpSync(),
        "lanes": kir.WarpSync(),
        "turn": kir.Load(turned, slot, 2 if back else 1, transposed=not back),
        "turn_again": kir.Load(replace(tile, name="z"), slot, 1, transposed=True),
        "out": kir.Store(y_tile(), turned, 2),
    }
    body = (kir.ForLoop(k, n, said(sentence, words)),)
    return kernel(body, threads=threads, buffers=(slot.buffer,), tensors=(X, Y))


def by_tma(sentence: str) -> kir.Kernel:
    """Return the same from a ring that a warp fills by TMA."""
    buffer = kir.Buffer("S", DType.F32, (COLS, ROWS), STAGES, 0, 32)
    full, empty = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", 1, STAGES)
    turned = kir.Fragment("y", DType.F32, replace(ALONG, threads=32))
    slot = kir.Slot(buffer, SLOT)
    words: dict[str, kir.Stmt] = {
        "wait": wait(full, SLOT, TURN),
        "turn": kir.Load(turned, slot, 1, transposed=True),
        "warp": kir.WarpSync(),
        "free": kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, SLOT),)),
        "out": kir.Store(y_tile(), turned, 2),
    }
    feed = elect(wait(empty, SLOT, TURN + 1), *fill(slot, x_tile(), full, SLOT))
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("compute", 0, 1, (kir.ForLoop(k, n, said(sentence, words)),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    return kernel(body, threads=64, buffers=(buffer,), barriers=(full, empty), tensors=(X, Y))


STRIPS = kir.Layout((128, 64), 2, 128, kir.Deal.STRIPS)
"""Two blocks of 64 rows: each of four warps has two strips of 16."""
MOVED = "get drained meet put fence join send"


def sums(
    sentence: str = MOVED,
    *,
    shape: tuple[int, int] = (64, 128),
    layout: kir.Layout = STRIPS,
    dtype: DType = DType.BF16,
    swizzle: int = 128,
    width: int = 2,
) -> kir.Kernel:
    """Return `z = w.T`, tile by tile: what four warps hold in strips leaves exchanged, by TMA."""
    rows, cols = layout.shape[-2:]
    w = kir.Tensor("W", dtype, (n * rows, cols), (cols, 1), 8)
    z = kir.Tensor("Z", dtype, (shape[0], n * shape[1]), (n * shape[1], 1), 8)
    slot = kir.Slot(kir.Buffer("D", dtype, shape, 1, 0, swizzle), 0)
    held = kir.Fragment("w", dtype, layout)
    words: dict[str, kir.Stmt] = {
        "get": kir.Load(held, kir.Box(w, (k * rows, 0), (rows, cols), w.extents), 2),
        "drained": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "meet": kir.BlockSync(0, 128),
        "put": kir.Store(slot, held, width, matrix=True, transposed=True),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(1, 128),
        "warp": kir.WarpSync(),
        "send": elect(
            kir.TmaStore(kir.Box(z, (0, k * shape[1]), shape, z.extents), slot),
            kir.AsyncCommit(BULK),
        ),
    }
    body = (
        kir.ForLoop(k, n, said(sentence, words)),
        elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    )
    made = kernel(body, threads=128, buffers=(slot.buffer,), tensors=(w, z))
    return replace(made, outputs=("Z",))


THROUGH = "get join put meet turn out"
"""All have left the slot where it is written, and have written it where it is read."""
ONE_WARP = "get warp put lanes turn out"

LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_tile_is_transposed_in_a_slot",
        "H01",
        by_threads(THROUGH),
        "Whoever wrote an element, all have joined before it is read along the other axis.",
    ),
    broken(
        "a_transposed_tile_read_before_it_is_there",
        "H01",
        by_threads("get join put turn out"),
        "RAW",
        "a_tile_is_transposed_in_a_slot",
        "A row of the tile lies in rows of the slot that other threads have written.",
    ),
    broken(
        "a_transposed_tile_overwritten_by_the_next",
        "H04",
        by_threads("get put meet turn out"),
        "WAR",
        "a_tile_is_transposed_in_a_slot",
        "Others may still read the tile before.",
    ),
    legal(
        "a_tile_is_put_across_and_got_along",
        "H01",
        by_threads(THROUGH, back=True),
        "The same, exchanged where it is stored.",
    ),
    broken(
        "a_tile_put_across_and_got_too_early",
        "H01",
        by_threads("get join put turn out", back=True),
        "RAW",
        "a_tile_is_put_across_and_got_along",
        "Each thread stores to rows that others read.",
    ),
    legal(
        "a_warp_transposes_its_own_tile",
        "H01",
        by_threads(ONE_WARP, threads=32),
        "The barrier of a warp joins all that hold a part of the tile.",
    ),
    broken(
        "a_warp_transposes_without_joining",
        "H01",
        by_threads("get warp put turn out", threads=32),
        "RAW",
        "a_warp_transposes_its_own_tile",
        "Lanes of a warp do not run in step.",
    ),
    broken(
        "two_warps_transpose_and_join_each_for_itself",
        "H01",
        by_threads(ONE_WARP),
        "RAW WAR",
        "a_warp_transposes_its_own_tile",
        "The tile is dealt to both warps, by rows and by columns.",
    ),
    broken(
        "a_slot_that_is_not_the_tile_exchanged",
        "H75",
        by_threads(THROUGH.replace("turn", "turn_again turn")),
        "bounds coverage",
        "a_tile_is_transposed_in_a_slot",
        "The tile of the registers has the shape of the slot itself.",
        refused="last two axes exchanged",
    ),
    legal(
        "a_ring_of_tiles_got_across",
        "H02",
        by_tma("wait turn warp free out"),
        "A tile lies in its slot as in memory; its columns are read as rows.",
        warns="proxy",
    ),
    broken(
        "a_ring_of_tiles_got_across_unawaited",
        "H02",
        by_tma("turn wait warp free out"),
        "RAW",
        "a_ring_of_tiles_got_across",
        "The engine may not have written the slot.",
    ),
    broken(
        "a_ring_of_tiles_freed_before_all_have_read_across",
        "H06",
        by_tma("wait turn free warp out"),
        "WAR",
        "a_ring_of_tiles_got_across",
        "One lane frees the slot while others read it.",
    ),
    legal(
        "sums_leave_exchanged",
        "H31 H40",
        sums(),
        "Drained, met, stored by matrices, fenced by who stored, joined, sent.",
    ),
    legal(
        "sums_leave_exchanged_without_a_swizzle",
        "H31 H40",
        sums(swizzle=0),
        "Rows of whole matrices lie at multiples of 16 bytes.",
    ),
    broken(
        "sums_leave_exchanged_unfenced",
        "H31",
        sums(MOVED.replace(" fence", "")),
        "proxy",
        "sums_leave_exchanged",
        "The engine may read what the slot held before.",
    ),
    broken(
        "sums_leave_exchanged_and_are_fenced_by_others",
        "H31",
        sums("get drained meet fence put join send"),
        "proxy",
        "sums_leave_exchanged",
        "A fence covers what its thread has stored before.",
    ),
    broken(
        "sums_leave_exchanged_before_all_are_there",
        "H31 H70",
        sums(MOVED.replace("join", "warp")),
        "RAW WAR",
        "sums_leave_exchanged",
        "Columns of the slot are rows of other warps.",
    ),
    broken(
        "sums_leave_exchanged_over_what_leaves",
        "H40",
        sums(MOVED.replace("drained ", "")),
        "WAR",
        "sums_leave_exchanged",
        "The engine may still read the tile before.",
        launches=trips(2, 5),
    ),
    broken(
        "sums_leave_exchanged_though_one_thread_alone_has_waited",
        "H43 H70",
        sums(MOVED.replace("meet ", "")),
        "WAR",
        "sums_leave_exchanged",
        "Who has not waited does not know that the engine has read.",
        launches=trips(2, 5),
    ),
    broken(
        "sums_leave_in_the_shape_that_they_have",
        "H75",
        sums(shape=(128, 64)),
        "bounds coverage",
        "sums_leave_exchanged",
        "A slot of the fragment's own shape has no place for its rows as columns.",
        refused="last two axes exchanged",
    ),
    broken(
        "fewer_sums_leave_in_the_shape_that_they_have",
        "H75",
        sums(shape=(64, 128), layout=replace(STRIPS, shape=(64, 128))),
        "bounds coverage",
        "sums_leave_exchanged",
        "Here the columns would reach beyond the slot.",
        refused="last two axes exchanged",
    ),
    broken(
        "sums_of_32_bits_leave_by_matrices",
        "H75",
        sums(dtype=DType.F32),
        "bounds",
        "sums_leave_exchanged",
        "Matrices that are transposed on their way have elements of 16 bits.",
        refused="16 bits",
    ),
    broken(
        "tiles_in_rounds_leave_by_matrices",
        "H75",
        sums(layout=replace(STRIPS, deal=kir.Deal.ROUND)),
        "bounds coverage",
        "sums_leave_exchanged",
        "No lane holds what an 8 x 8 matrix has for it.",
        refused="dealt in another way",
    ),
    broken(
        "sums_leave_one_by_one_by_matrices",
        "H75",
        sums(width=1),
        "bounds",
        "sums_leave_exchanged",
        "A register of a matrix has two elements.",
        refused="use 2 for both",
    ),
)
