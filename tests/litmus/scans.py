"""Rows that several warps scan: what stands before a warp's part is found where all put theirs."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.kernel import ir as kir
from litmus.parts import Litmus, broken, k, kernel, legal, n, said, trips

ROWS, COLS, THREADS = 2, 128, 128
ACROSS = 64
TILE = kir.Layout((ROWS, COLS), 2, THREADS, kir.Deal.ROWS, 1, ACROSS)
"""Two rows at a time, each of two warps; a thread has a vector."""
PARTS = replace(TILE, shape=(ROWS, 2), vector=1, alike=32)
EVERY = replace(PARTS, vector=2, alike=ACROSS)
CARRY = replace(EVERY, shape=(ROWS, 1), vector=1)
LOOP = "load within free put join get before up out total carry"


def rows(loop: str = LOOP) -> kir.Kernel:
    """Return a loop along two rows that adds up their elements, to each of them."""
    x, y = (kir.Tensor(name, DType.F32, (ROWS, n * COLS), (n * COLS, 1), 2) for name in "XY")
    slot = kir.Slot(kir.Buffer("S", DType.F32, (ROWS, 2), 1, 0), 0)
    tile, up, halves, every, before, total, carry = (
        kir.Fragment(name, DType.F32, layout)
        for name, layout in (
            ("tile", TILE), ("up", TILE), ("halves", PARTS), ("every", EVERY),
            ("before", PARTS), ("total", CARRY), ("carry", CARRY),
        )
    )  # fmt: skip
    at = (0, k * COLS), (ROWS, COLS)
    words: dict[str, kir.Stmt] = {
        "load": kir.Load(tile, kir.Box(x, *at, x.extents), 2),
        "within": kir.Reduce(halves, tile, "add"),
        "free": kir.BlockSync(0, THREADS),
        "put": kir.Store(slot, halves, 1),
        "join": kir.BlockSync(0, THREADS),
        "warp": kir.WarpSync(),
        "get": kir.Load(every, slot, 2),
        "before": kir.Scan(before, every, "add", carry, exclusive=True),
        "up": kir.Scan(up, tile, "add", before),
        "out": kir.Store(kir.Box(y, *at, y.extents), up, 2),
        "total": kir.Reduce(total, every, "add"),
        "carry": kir.Compute(carry, "add", (carry, total)),
    }
    begin = kir.Compute(carry, "promote", (kir.Literal(0.0, DType.F32),))
    body = (begin, kir.ForLoop(k, n, said(loop, words)))
    return kernel(body, threads=THREADS, buffers=(slot.buffer,), tensors=(x, y))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "scanned_rows_meet",
        "H70",
        rows(),
        "Each warp puts down the sum of its part; all threads of a row take those of all.",
    ),
    broken(
        "scanned_rows_taken_without_a_join",
        "H70",
        rows(LOOP.replace("join ", "")),
        "RAW",
        "scanned_rows_meet",
        "A row's second warp takes what the first one may not have put down yet.",
    ),
    broken(
        "scanned_rows_taken_after_a_join_of_lanes",
        "H70",
        rows(LOOP.replace("join", "warp")),
        "RAW",
        "scanned_rows_meet",
        "Lanes of a warp are joined, warps are not.",
    ),
    broken(
        "scanned_rows_put_over_those_of_the_last_turn",
        "H70",
        rows(LOOP.replace("free ", "")),
        "WAR",
        "scanned_rows_meet",
        "One warp of a row may be a turn ahead of the other.",
        launches=trips(2, 5),
    ),
    broken(
        "scanned_rows_joined_by_the_scan_alone",
        "H70",
        rows(LOOP.replace("free ", "").replace("join ", "")),
        "RAW",
        "scanned_rows_meet",
        "Shuffles order nothing in memory, and are of one warp each.",
    ),
)
