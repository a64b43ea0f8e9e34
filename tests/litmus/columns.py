"""Columns of one wgmma from several rings, whose slots lie behind each other in turn."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    PER_WARP,
    WGMMA,
    Litmus,
    broken,
    elect,
    init,
    k,
    kernel,
    legal,
    n,
    said,
    wait,
)

ROWS, HALF, DEPTH, STAGES = 64, 8, 16, 2
SLOT, TURN = k % STAGES, k // STAGES
STRIPS = kir.Layout((ROWS, 2 * HALF), 2, 128, kir.Deal.STRIPS)
ACC = kir.Fragment("acc", DType.F32, STRIPS)
OUT = kir.Tensor("Y", DType.F32, (ROWS, 2 * HALF), (2 * HALF, 1), 4)
NBYTES = {"A": ROWS * DEPTH * 2, "B": HALF * DEPTH * 2, "C": HALF * DEPTH * 2}

FEED = "empty expect load_a load_b load_c"
USE = "wait fence mma commit await free"


def tensor(name: str, rows: int) -> kir.Tensor:
    """Return an operand of n steps along K."""
    return kir.Tensor(name, DType.BF16, (rows, n * DEPTH), (n * DEPTH, 1), 8)


def box(of: kir.Tensor, step: Expr = k) -> kir.Box:
    """Step `step` of an operand."""
    return kir.Box(of, (0, step * DEPTH), (of.extents[0], DEPTH), of.extents)  # type: ignore[arg-type]


def columns(feed: str = FEED, use: str = USE, *, gap: int = 0, apart: bool = False) -> kir.Kernel:
    """Return a ring that a warpgroup multiplies from; a warp loads.

    `gap` moves the second ring of columns by so many bytes; where they are `apart`, two wgmmas read
    them.
    """
    a, b, c = tensor("A", ROWS), tensor("B", HALF), tensor("C", HALF)
    sa = kir.Buffer("SA", DType.BF16, (ROWS, DEPTH), STAGES, 0, 0 if gap else 32)
    sb = kir.Buffer("SB", DType.BF16, (HALF, DEPTH), STAGES, sa.end, sa.swizzle, 512)
    sc = replace(sb, name="SC", offset=sb.offset + sb.slot_nbytes + gap)
    full, empty = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", 4, STAGES)
    late = kir.MBarrier("late", 1, STAGES)
    half = replace(ACC, name="left", layout=replace(STRIPS, shape=(ROWS, HALF)))
    other = replace(half, name="right")
    all_bytes = sum(NBYTES.values())
    y = (OUT.extents[0], OUT.extents[1])
    words: dict[str, kir.Stmt] = {
        "empty": wait(empty, SLOT, TURN + 1),
        "expect": kir.MBarrierArriveExpectTx(full, SLOT, all_bytes),
        "expect_a_b": kir.MBarrierArriveExpectTx(full, SLOT, all_bytes - NBYTES["C"]),
        "expect_c": kir.MBarrierArriveExpectTx(late, SLOT, NBYTES["C"]),
        "load_a": kir.TmaLoad(kir.Slot(sa, SLOT), box(a), full, SLOT),
        "load_b": kir.TmaLoad(kir.Slot(sb, SLOT), box(b), full, SLOT),
        "load_c": kir.TmaLoad(kir.Slot(sc, SLOT), box(c), full, SLOT),
        "load_c_late": kir.TmaLoad(kir.Slot(sc, SLOT), box(c), late, SLOT),
        "wait": wait(full, SLOT, TURN),
        "wait_late": wait(late, SLOT, TURN),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(ACC, kir.Slot(sa, SLOT), kir.Slot(sb, SLOT), k >= 1, beside=(sc,)),
        "left": kir.Wgmma(half, kir.Slot(sa, SLOT), kir.Slot(sb, SLOT), k >= 1),
        "right": kir.Wgmma(other, kir.Slot(sa, SLOT), kir.Slot(sc, SLOT), k >= 1),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "free": kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, SLOT),)),
    }
    sums = (half, other) if apart else (ACC,)
    stores = (
        kir.Store(kir.Box(OUT, (0, i * HALF), (ROWS, acc.layout.shape[1]), y), acc, 2)
        for i, acc in enumerate(sums)
    )
    clear = (kir.Compute(acc, "cast", (kir.Literal(0.0, DType.F32),)) for acc in sums)
    more = (late,) if "late" in feed else ()
    body = (
        init(full, empty, *more),
        kir.BlockSync(0, 160),
        kir.Role("mma", 0, 4, (*clear, kir.ForLoop(k, n, said(use, words)), *stores)),
        kir.Role("load", 4, 1, (kir.ForLoop(k, n, (elect(*said(feed, words)),)),)),
    )
    return kernel(
        body,
        threads=160,
        buffers=(sa, sb, sc),
        barriers=(full, empty, *more),
        tensors=(a, b, c, OUT),
    )


LATE = "empty expect_a_b expect_c load_a load_b load_c_late"
SEPARATE = "wait fence left right commit await free"

LITMUS: tuple[Litmus, ...] = (
    legal(
        "columns_of_two_rings",
        "H22",
        columns(),
        "One wgmma reads slots of one number, behind each other, of which one phase tells.",
    ),
    broken(
        "columns_of_a_ring_that_nobody_awaits",
        "H01",
        columns(LATE),
        "RAW",
        "columns_of_two_rings_by_two_barriers",
        "The phase that is awaited tells of the bytes of the first ring only.",
    ),
    legal(
        "columns_of_two_rings_by_two_barriers",
        "H01",
        columns(LATE, "wait wait_late fence mma commit await free"),
        "A phase for each ring, and a wait for each phase.",
    ),
    broken(
        "columns_refilled_before_they_are_free",
        "H06",
        columns("load_c empty expect load_a load_b"),
        "WAR WAW bytes",
        "columns_of_two_rings",
        "The slot of the second ring is loaded before the wait for its readers.",
    ),
    broken(
        "columns_freed_before_the_wait",
        "H06",
        columns(use="wait fence mma commit free await"),
        "WAR",
        "columns_of_two_rings",
        "Until the group is awaited, the slots of both rings are being read.",
    ),
    legal(
        "rings_in_turn_read_apart",
        "H22",
        columns(use=SEPARATE, apart=True),
        "Slots of two rings that lie between each other share no byte.",
    ),
    broken(
        "rings_in_turn_that_overlap",
        "H22",
        columns(use=SEPARATE, apart=True, gap=-128),
        "RAW WAR WAW",
        "rings_in_turn_read_apart",
        "Half of a slot of the second ring lies on one of the first.",
    ),
)
