"""Rows that several warps put together: their parts meet in shared memory."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.kernel import ir as kir
from litmus.parts import Litmus, broken, k, kernel, legal, n, said, trips

ROWS, COLS, THREADS = 2, 64, 64
TILE = kir.Layout((ROWS, COLS), 1, THREADS)
HALVES = replace(TILE, shape=(ROWS, 2), folded=32)
WHOLE = kir.Layout((ROWS, 2), 2, THREADS)
LOOP = "load within free put join get together out"


def rows(loop: str = LOOP, *, slots: int = 1) -> kir.Kernel:
    """Return a loop that adds up two rows in each iteration; each of two warps has half of both."""
    x = kir.Tensor("X", DType.F32, (n * ROWS, COLS), (COLS, 1), 4)
    y = kir.Tensor("Y", DType.F32, (n * ROWS, 1), (1, 0), 1)
    parts = kir.Buffer("S", DType.F32, (ROWS, 2), slots, 0)
    slot = kir.Slot(parts, k % slots if slots > 1 else 0)
    tile, halves, whole, total = (
        kir.Fragment(name, DType.F32, layout)
        for name, layout in (
            ("tile", TILE), ("halves", HALVES), ("whole", WHOLE),
            ("total", replace(WHOLE, shape=(ROWS, 1), folded=2)),
        )
    )  # fmt: skip
    words: dict[str, kir.Stmt] = {
        "load": kir.Load(tile, kir.Box(x, (k * ROWS, 0), (ROWS, COLS), x.extents), 1),
        "within": kir.Reduce(halves, tile, "add"),
        "free": kir.BlockSync(0, THREADS),
        "put": kir.Store(slot, halves, 1),
        "join": kir.BlockSync(0, THREADS),
        "warp": kir.WarpSync(),
        "get": kir.Load(whole, slot, 1),
        "together": kir.Reduce(total, whole, "add"),
        "out": kir.Store(kir.Box(y, (k * ROWS, 0), (ROWS, 1), y.extents), total, 1),
    }
    body = (kir.ForLoop(k, n, said(loop, words)),)
    return kernel(body, threads=THREADS, buffers=(parts,), tensors=(x, y))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "parts_of_rows_meet",
        "H70",
        rows(),
        "Warps put their halves down, join, take the whole rows, and join before the next turn.",
    ),
    broken(
        "parts_of_rows_taken_without_a_join",
        "H70",
        rows(LOOP.replace("join ", "")),
        "RAW",
        "parts_of_rows_meet",
        "The first warp takes what the second one may not have put down yet.",
    ),
    broken(
        "parts_of_rows_taken_after_a_join_of_lanes",
        "H70",
        rows(LOOP.replace("join", "warp")),
        "RAW",
        "parts_of_rows_meet",
        "Lanes of a warp are joined, warps are not.",
    ),
    broken(
        "parts_of_rows_put_over_those_of_the_last_turn",
        "H70",
        rows(LOOP.replace("free ", "")),
        "WAR",
        "parts_of_rows_meet",
        "The second warp may be a turn ahead of the first.",
        launches=trips(2, 5),
    ),
    legal(
        "parts_of_rows_in_two_slots",
        "H70",
        rows(LOOP.replace("free ", ""), slots=2),
        "A warp that has joined in this turn has taken the parts of the last one.",
    ),
)
