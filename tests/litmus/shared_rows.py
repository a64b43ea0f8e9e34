"""Rows that threads share: what all hold is stored once, what each has copied is its own."""

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
TOTAL = replace(EVERY, shape=(ROWS, 1), vector=1)
LOOP = "load within free put join get together less out total"
RING = "copy commit await get less out"


def _words(slots: int) -> tuple[dict[str, kir.Stmt], tuple[kir.Buffer, ...], kir.Tensor]:
    x = kir.Tensor("X", DType.F32, (n * ROWS, COLS), (COLS, 1), 4)
    y = kir.Tensor("Y", DType.F32, (n * ROWS, COLS), (COLS, 1), 4)
    z = kir.Tensor("Z", DType.F32, (n * ROWS, 1), (1, 0), 1)
    parts = kir.Buffer("S", DType.F32, (ROWS, 2), slots, 0)
    slot = kir.Slot(parts, k % slots if slots > 1 else 0)
    tile, less, halves, every, total = (
        kir.Fragment(name, DType.F32, layout)
        for name, layout in (
            ("tile", TILE), ("less", TILE), ("halves", PARTS), ("every", EVERY), ("total", TOTAL),
        )
    )  # fmt: skip
    words: dict[str, kir.Stmt] = {
        "load": kir.Load(tile, kir.Box(x, (k * ROWS, 0), (ROWS, COLS), x.extents), 2),
        "within": kir.Reduce(halves, tile, "add"),
        "free": kir.BlockSync(0, THREADS),
        "put": kir.Store(slot, halves, 1),
        "join": kir.BlockSync(0, THREADS),
        "warp": kir.WarpSync(),
        "get": kir.Load(every, slot, 2),
        "together": kir.Reduce(total, every, "add"),
        "less": kir.Compute(less, "sub", (tile, total)),
        "out": kir.Store(kir.Box(y, (k * ROWS, 0), (ROWS, COLS), y.extents), less, 2),
        "total": kir.Store(kir.Box(z, (k * ROWS, 0), (ROWS, 1), z.extents), total, 1),
    }
    return words, (parts,), x


def rows(loop: str = LOOP, *, slots: int = 1) -> kir.Kernel:
    """Return a loop that subtracts the sum of each row from it, and stores both."""
    words, buffers, x = _words(slots)
    tensors = (x, *(words[word].dst.tensor for word in ("out", "total")))  # type: ignore[union-attr]
    body = (kir.ForLoop(k, n, said(loop, words)),)
    made = kernel(body, threads=THREADS, buffers=buffers, tensors=tensors)
    return replace(made, outputs=("Y", "Z"))


def copied(loop: str = RING, read: kir.Layout = TILE) -> kir.Kernel:
    """Return a loop that copies rows by cp.async and reads them under a layout."""
    x = kir.Tensor("X", DType.F32, (n * ROWS, COLS), (COLS, 1), 4)
    y = kir.Tensor("Y", DType.F32, (n * ROWS, COLS), (COLS, 1), 4)
    buffer = kir.Buffer("S", DType.F32, (ROWS, COLS), 1, 0)
    slot, tile = kir.Slot(buffer, 0), kir.Fragment("tile", DType.F32, read)
    less = replace(tile, name="less")
    at = (k * ROWS, 0), (ROWS, COLS)
    words: dict[str, kir.Stmt] = {
        "copy": kir.CpAsync(slot, kir.Box(x, *at, x.extents), TILE, 2),
        "commit": kir.AsyncCommit(kir.AsyncKind.CP_ASYNC),
        "await": kir.AsyncAwait(kir.AsyncKind.CP_ASYNC, 0),
        "join": kir.BlockSync(0, THREADS),
        "free": kir.BlockSync(0, THREADS),
        "get": kir.Load(tile, slot, read.vector),
        "less": kir.Compute(less, "neg", (tile,)),
        "out": kir.Store(kir.Box(y, *at, y.extents), less, read.vector),
    }
    body = (kir.ForLoop(k, n, said(loop, words)),)
    return kernel(body, threads=THREADS, buffers=(buffer,), tensors=(x, y))


OTHER = kir.Layout((ROWS, COLS), 1, THREADS, kir.Deal.ROWS, 1, THREADS)
"""All threads share each row in turn: others than those that have copied it."""

LITMUS: tuple[Litmus, ...] = (
    legal(
        "shared_rows_meet",
        "H70",
        rows(),
        "The first lane of each warp puts its half down; all threads of a row take both.",
    ),
    broken(
        "shared_rows_taken_without_a_join",
        "H70",
        rows(LOOP.replace("join ", "")),
        "RAW",
        "shared_rows_meet",
        "A row's first warp takes what the second one may not have put down yet.",
    ),
    broken(
        "shared_rows_taken_after_a_join_of_lanes",
        "H70",
        rows(LOOP.replace("join", "warp")),
        "RAW",
        "shared_rows_meet",
        "Lanes of a warp are joined, warps are not.",
    ),
    broken(
        "shared_rows_put_over_those_of_the_last_turn",
        "H70",
        rows(LOOP.replace("free ", "")),
        "WAR",
        "shared_rows_meet",
        "One warp of a row may be a turn ahead of the other.",
        launches=trips(2, 5),
    ),
    legal(
        "shared_rows_in_two_slots",
        "H70",
        rows(LOOP.replace("free ", ""), slots=2),
        "A warp that has joined in this turn has taken the parts of the last one.",
    ),
    legal(
        "rows_copied_by_who_reads_them",
        "H70",
        copied(),
        "Each thread awaits its own copies, reads what it has copied, and copies over that.",
    ),
    broken(
        "rows_read_before_the_copies_are_awaited",
        "H70",
        copied(RING.replace("await ", "")),
        "RAW",
        "rows_copied_by_who_reads_them",
        "A copy runs on behind its issue.",
    ),
    legal(
        "rows_copied_by_others_than_read_them",
        "H70",
        copied(RING.replace("get", "join get free"), OTHER),
        "Who copies has awaited that before all join, and who reads is done before the next join.",
    ),
    broken(
        "rows_read_of_others_without_a_join",
        "H70",
        copied(RING.replace("get", "get free"), OTHER),
        "RAW",
        "rows_copied_by_others_than_read_them",
        "A thread has awaited its own copies, not those of the others that it reads.",
    ),
)
