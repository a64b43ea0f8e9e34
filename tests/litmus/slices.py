"""Products of a part of a slot: two steps of K in one slot, each multiplied through a view."""

from __future__ import annotations

from fuser.dtype import DType
from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    PER_WARP,
    WGMMA,
    Body,
    Litmus,
    broken,
    elect,
    init,
    k,
    kernel,
    legal,
    n,
    said,
    trips,
    wait,
)
from litmus.products import ACC, COLS, DEPTH, OUT, ROWS, ZERO, out_box

STAGES, PARTS = 2, 2
SLOT, TURN = k % STAGES, k // STAGES
A = kir.Tensor("A", DType.BF16, (n * PARTS, ROWS, DEPTH), (ROWS * DEPTH, DEPTH, 1), 8)
B = kir.Tensor("B", DType.BF16, (n * PARTS, COLS, DEPTH), (COLS * DEPTH, DEPTH, 1), 8)
A_PART, B_PART = ROWS * DEPTH * 2, COLS * DEPTH * 2
WHOLE_A = kir.Buffer("SA", DType.BF16, (PARTS, ROWS, DEPTH), STAGES, 0)
WHOLE_B = kir.Buffer("SB", DType.BF16, (PARTS, COLS, DEPTH), STAGES, WHOLE_A.end)


def part(whole: kir.Buffer, rows: int, number: int, name: str) -> kir.Buffer:
    """Return a view of one step of every slot."""
    nbytes = rows * DEPTH * 2
    at = whole.offset + number * nbytes
    return kir.Buffer(name, DType.BF16, (rows, DEPTH), STAGES, at, pitch=PARTS * nbytes)


A_PARTS = tuple(part(WHOLE_A, ROWS, i, f"SA{i}") for i in range(PARTS))
B_PARTS = tuple(part(WHOLE_B, COLS, i, f"SB{i}") for i in range(PARTS))


def boxes(number: Expr) -> tuple[kir.Box, kir.Box]:
    """Return both operands of the two steps of a turn."""
    return (
        kir.Box(A, (number * PARTS, 0, 0), (PARTS, ROWS, DEPTH), A.extents),
        kir.Box(B, (number * PARTS, 0, 0), (PARTS, COLS, DEPTH), B.extents),
    )


def sliced(
    loop: str = "wait fence mma_0 mma_1 commit await free",
    after: str = "out",
    feed: str = "room expect fill_a fill_b",
) -> kir.Kernel:
    """Return a ring whose slots hold two steps, multiplied one after the other."""
    full, empty = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", 4, STAGES)
    old = (k + (STAGES - 1)) % STAGES

    def freed(slot: Expr) -> kir.Stmt:
        return kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot),))

    a_box, b_box = boxes(k)
    words: dict[str, kir.Stmt] = {
        "wait": wait(full, SLOT, TURN),
        "fence": kir.WgmmaFence(),
        "mma_0": kir.Wgmma(ACC, kir.Slot(A_PARTS[0], SLOT), kir.Slot(B_PARTS[0], SLOT)),
        "mma_1": kir.Wgmma(ACC, kir.Slot(A_PARTS[1], SLOT), kir.Slot(B_PARTS[1], SLOT)),
        "commit": kir.AsyncCommit(WGMMA),
        "commit_0": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "await_1": kir.AsyncAwait(WGMMA, 1),
        "flush": kir.AsyncAwait(WGMMA, 0),
        "free": freed(SLOT),
        "free_old": kir.IfThenElse(k >= 1, (freed(old),)),
        "out": kir.Store(out_box(), ACC, 2),
        "room": wait(empty, SLOT, TURN + 1),
        "expect": kir.MBarrierArriveExpectTx(full, SLOT, PARTS * (A_PART + B_PART)),
        "expect_less": kir.MBarrierArriveExpectTx(full, SLOT, PARTS * A_PART + B_PART),
        "fill_a": kir.TmaLoad(kir.Slot(WHOLE_A, SLOT), a_box, full, SLOT),
        "fill_b": kir.TmaLoad(kir.Slot(WHOLE_B, SLOT), b_box, full, SLOT),
    }
    use: Body = (
        kir.Compute(ACC, "cast", (ZERO,)),
        kir.ForLoop(k, n, said(loop, words)),
        *said(after, words),
    )
    body = (
        init(full, empty),
        kir.BlockSync(0, 160),
        kir.Role("mma", 0, 4, use),
        kir.Role("load", 4, 1, (kir.ForLoop(k, n, (elect(*said(feed, words)),)),)),
    )
    buffers = (WHOLE_A, WHOLE_B, *A_PARTS, *B_PARTS)
    tensors = (A, B, OUT)
    return kernel(body, threads=160, buffers=buffers, barriers=(full, empty), tensors=tensors)


SEPARATE = "wait fence mma_0 commit_0 mma_1 commit"
LITMUS: tuple[Litmus, ...] = (
    legal(
        "two_steps_of_a_slot_in_one_group",
        "H06 H20 H74",
        sliced(),
        "The wait covers both steps, and one await both products.",
    ),
    legal(
        "two_steps_of_a_slot_in_groups_of_their_own",
        "H06 H20 H74",
        sliced(f"{SEPARATE} await free"),
        "Both groups are awaited before the slot is freed.",
    ),
    legal(
        "two_steps_of_a_slot_one_turn_behind",
        "H06 H22 H74",
        sliced("wait fence mma_0 mma_1 commit await_1 free_old", "flush out"),
        "With the group of this turn in flight the slot of the turn before is freed.",
    ),
    broken(
        "two_steps_of_a_slot_freed_behind_the_first",
        "H06 H74",
        sliced(f"{SEPARATE} await_1 free", "flush out"),
        "WAR",
        "two_steps_of_a_slot_in_groups_of_their_own",
        "The second product still reads its half.",
        launches=trips(3, 5),
    ),
    broken(
        "two_steps_of_a_slot_freed_between_them",
        "H06 H74",
        sliced("wait fence mma_0 commit_0 await free mma_1 commit flush"),
        "WAR RAW",
        "two_steps_of_a_slot_in_groups_of_their_own",
        "The second product begins when the slot may be refilled.",
        launches=trips(3, 5),
    ),
    broken(
        "two_steps_of_a_slot_of_which_bytes_are_missing",
        "H08 H74",
        sliced(feed="room expect_less fill_a fill_b"),
        "bytes RAW parity arrivals",
        "two_steps_of_a_slot_in_one_group",
        "Of the columns only half the bytes are expected.",
        launches=trips(1, 5),
    ),
)
