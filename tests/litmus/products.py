"""The matmul loop that most pairs about wgmma are variants of: `D = A @ B^T`, 64 x 8 x 16 n."""

from __future__ import annotations

from fuser.dtype import DType
from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    PER_WARP,
    SHARED,
    WGMMA,
    Body,
    elect,
    init,
    k,
    kernel,
    n,
    said,
    wait,
)

ROWS, COLS, DEPTH = 64, 8, 16
STAGES = 2
SLOT, TURN = k % STAGES, k // STAGES
A = kir.Tensor("A", DType.BF16, (ROWS, n * DEPTH), (n * DEPTH, 1), 8)
B = kir.Tensor("B", DType.BF16, (COLS, n * DEPTH), (n * DEPTH, 1), 8)
OUT = kir.Tensor("Y", DType.F32, (ROWS, COLS), (COLS, 1), 4)
STRIPS = kir.Layout((ROWS, COLS), 2, 128, kir.Deal.STRIPS)
ACC = kir.Fragment("acc", DType.F32, STRIPS)
ACC2 = kir.Fragment("acc2", DType.F32, STRIPS)
SUM = kir.Fragment("sum", DType.F32, STRIPS)
ZERO = kir.Literal(0.0, DType.F32)
A_NBYTES, B_NBYTES = ROWS * DEPTH * 2, COLS * DEPTH * 2


def a_box(number: Expr = k) -> kir.Box:
    """Step `number` of A."""
    return kir.Box(A, (0, number * DEPTH), (ROWS, DEPTH), A.extents)


def b_box(number: Expr = k) -> kir.Box:
    """Step `number` of B."""
    return kir.Box(B, (0, number * DEPTH), (COLS, DEPTH), B.extents)


def out_box() -> kir.Box:
    """Return all of the result."""
    return kir.Box(OUT, (0, 0), (ROWS, COLS), OUT.extents)


def tiles(stages: int) -> tuple[kir.Buffer, kir.Buffer]:
    """Return slots for A and B."""
    a = kir.Buffer("SA", DType.BF16, (ROWS, DEPTH), stages, 0)
    return a, kir.Buffer("SB", DType.BF16, (COLS, DEPTH), stages, a.end)


def product(
    before: str = "zero",
    loop: str = "wait fence mma commit await free",
    after: str = "out",
    *,
    arrivals: int = 4,
    **own: kir.Stmt,
) -> kir.Kernel:
    """Return a ring that a warpgroup multiplies from; a warp loads."""
    a, b = tiles(STAGES)
    full, empty = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", arrivals, STAGES)
    old = (k + (STAGES - 1)) % STAGES
    each = kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, SLOT),))
    each_old = kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, old),))
    words: dict[str, kir.Stmt] = {
        "zero": kir.Compute(ACC, "cast", (ZERO,)),
        "zero2": kir.Compute(ACC2, "cast", (ZERO,)),
        "wait": wait(full, SLOT, TURN),
        "fence": kir.WgmmaFence(),
        "fence2": kir.WgmmaFence(),
        "mma": kir.Wgmma(ACC, kir.Slot(a, SLOT), kir.Slot(b, SLOT)),
        "mma2": kir.Wgmma(ACC2, kir.Slot(a, SLOT), kir.Slot(b, SLOT)),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "await_1": kir.AsyncAwait(WGMMA, 1),
        "await_2": kir.AsyncAwait(WGMMA, 2),
        "flush": kir.AsyncAwait(WGMMA, 0),
        "join": kir.BlockSync(1, 128),
        "free": each,
        "free_old": kir.IfThenElse(k >= 1, (each_old,)),
        "free_one": elect(kir.MBarrierArrive(empty, SLOT)),
        "double": kir.Compute(ACC, "add", (ACC, ACC)),
        "sum": kir.Compute(SUM, "add", (ACC, ACC2)),
        "out": kir.Store(out_box(), ACC, 2),
        "out_sum": kir.Store(out_box(), SUM, 2),
        "await_first_warp": kir.Role("first", 0, 1, (kir.AsyncAwait(WGMMA, 0),)),
        "commit_first_warp": kir.Role("first", 0, 1, (kir.AsyncCommit(WGMMA),)),
    }
    words |= own
    feed = elect(
        wait(empty, SLOT, TURN + 1),
        kir.MBarrierArriveExpectTx(full, SLOT, A_NBYTES + B_NBYTES),
        kir.TmaLoad(kir.Slot(a, SLOT), a_box(), full, SLOT),
        kir.TmaLoad(kir.Slot(b, SLOT), b_box(), full, SLOT),
    )
    use = (*said(before, words), kir.ForLoop(k, n, said(loop, words)), *said(after, words))
    body = (
        init(full, empty),
        kir.BlockSync(0, 160),
        kir.Role("mma", 0, 4, use),
        kir.Role("load", 4, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    return _kernel(body, (a, b), (full, empty), 160)


def _kernel(
    body: Body, buffers: tuple[kir.Buffer, ...], barriers: tuple[kir.MBarrier, ...], threads: int
) -> kir.Kernel:
    return kernel(body, threads=threads, buffers=buffers, barriers=barriers, tensors=(A, B, OUT))


STAGED = "get put fence_proxy sync fence mma commit await sync2"


def staged(loop: str = STAGED, *, first_warp: int = 0, warps: int = 4) -> kir.Kernel:
    """Return a loop that stages both operands by ordinary stores of the warpgroup itself."""
    a, b = tiles(1)
    by_a = kir.Fragment("ra", DType.BF16, kir.Layout((ROWS, DEPTH), 8, 128))
    by_b = kir.Fragment("rb", DType.BF16, kir.Layout((COLS, DEPTH), 1, 128))
    by_b_copy = kir.Layout((COLS, DEPTH), 2, 128)
    words: dict[str, kir.Stmt] = {
        "get": kir.Load(by_a, a_box(), 8),
        "get_b": kir.Load(by_b, b_box(), 1),
        "put": kir.Store(kir.Slot(a, 0), by_a, 8),
        "put_b": kir.Store(kir.Slot(b, 0), by_b, 1),
        "copy": kir.CpAsync(kir.Slot(a, 0), a_box(), by_a.layout, 8),
        "copy_b": kir.CpAsync(kir.Slot(b, 0), b_box(), by_b_copy, 2),
        "copied": kir.AsyncCommit(kir.AsyncKind.CP_ASYNC),
        "landed": kir.AsyncAwait(kir.AsyncKind.CP_ASYNC, 0),
        "fence_proxy": kir.FenceAsyncProxy(SHARED),
        "elected_fence": elect(kir.FenceAsyncProxy(SHARED)),
        "sync": kir.BlockSync(1, 128),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(ACC, kir.Slot(a, 0), kir.Slot(b, 0)),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "sync2": kir.BlockSync(2, 128),
    }
    sentence = loop.replace("get ", "get get_b ").replace("put ", "put put_b ")
    sentence = sentence.replace("copy ", "copy copy_b ")
    body = (
        kir.Compute(ACC, "cast", (ZERO,)),
        kir.ForLoop(k, n, said(sentence, words)),
        kir.AsyncAwait(WGMMA, 0),
        kir.Store(out_box(), ACC, 2),
    )
    return _kernel((kir.Role("mma", first_warp, warps, body),), (a, b), (), 32 * (first_warp + 4))


def by_registers(loop: str, *, fragments: int = 1) -> kir.Kernel:
    """Return a loop with A in registers, loaded from global memory, and B staged once by TMA.

    With two fragments, a step of the loop multiplies by one and then by the other.
    """
    b = kir.Buffer("SB", DType.BF16, (COLS, DEPTH), 1, 0)
    first = kir.Tensor("B", DType.BF16, (COLS, DEPTH), (DEPTH, 1), 8)
    full = kir.MBarrier("full", 1, 1)
    held = kir.Layout((ROWS, DEPTH), 2, 128, kir.Deal.STRIPS)
    wide = kir.Tensor("A", DType.BF16, (ROWS, n * 32), (n * 32, 1), 8)
    words: dict[str, kir.Stmt] = {
        "fence": kir.WgmmaFence(),
        "fence2": kir.WgmmaFence(),
        "commit": kir.AsyncCommit(WGMMA),
        "commit2": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "await2": kir.AsyncAwait(WGMMA, 0),
        "await_1": kir.AsyncAwait(WGMMA, 1),
        "await_1b": kir.AsyncAwait(WGMMA, 1),
        "await_2": kir.AsyncAwait(WGMMA, 2),
        "await_2b": kir.AsyncAwait(WGMMA, 2),
    }
    for i in range(2):
        fragment = kir.Fragment(f"a{i % fragments}", DType.BF16, held)
        source = kir.Box(wide, (0, k * 32 + i * DEPTH), (ROWS, DEPTH), wide.extents)
        words[f"get_{i}"] = kir.Load(fragment, source, 2)
        words[f"mma_{i}"] = kir.Wgmma(ACC, fragment, kir.Slot(b, 0))
    body = (
        init(full),
        kir.BlockSync(0, 128),
        elect(
            kir.MBarrierArriveExpectTx(full, 0, B_NBYTES),
            kir.TmaLoad(
                kir.Slot(b, 0), kir.Box(first, (0, 0), (COLS, DEPTH), first.extents), full, 0
            ),
        ),
        wait(full, 0, 0),
        kir.Compute(ACC, "cast", (ZERO,)),
        kir.ForLoop(k, n, said(loop, words)),
        kir.AsyncAwait(WGMMA, 0),
        kir.Store(out_box(), ACC, 2),
    )
    return kernel(body, threads=128, buffers=(b,), barriers=(full,), tensors=(wide, first, OUT))


def refilled(loop: str) -> kir.Kernel:
    """Return a warpgroup whose first thread refills the one slot that it multiplies from."""
    a, b = tiles(1)
    full, empty = kir.MBarrier("full", 1, 1), kir.MBarrier("empty", 1, 1)
    words: dict[str, kir.Stmt] = {
        "fill": elect(
            kir.MBarrierArriveExpectTx(full, 0, A_NBYTES + B_NBYTES),
            kir.TmaLoad(kir.Slot(a, 0), a_box(), full, 0),
            kir.TmaLoad(kir.Slot(b, 0), b_box(), full, 0),
        ),
        "wait": wait(full, 0, k),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(ACC, kir.Slot(a, 0), kir.Slot(b, 0)),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "join": kir.BlockSync(1, 128),
        "free": elect(kir.MBarrierArrive(empty, 0)),
        "room": elect(wait(empty, 0, k)),
    }
    words["fill_by_other"] = kir.Role("other", 1, 1, (words["fill"],))
    out = kir.Store(out_box(), ACC, 2)
    multiply = (kir.Compute(ACC, "cast", (ZERO,)), kir.ForLoop(k, n, said(loop, words)), out)
    body = (init(full, empty), kir.BlockSync(0, 128), *multiply)
    return _kernel(body, (a, b), (full, empty), 128)


def two_groups(loop: str) -> kir.Kernel:
    """Return two warpgroups that share both operands in one slot, refilled by the first thread."""
    a = kir.Buffer("SA", DType.BF16, (2 * ROWS, DEPTH), 1, 0)
    b = kir.Buffer("SB", DType.BF16, (COLS, DEPTH), 1, a.end)
    wide = kir.Tensor("A", DType.BF16, (2 * ROWS, n * DEPTH), (n * DEPTH, 1), 8)
    out = kir.Tensor("Y", DType.F32, (2 * ROWS, COLS), (COLS, 1), 4)
    acc = kir.Fragment("acc", DType.F32, kir.Layout((2 * ROWS, COLS), 2, 256, kir.Deal.STRIPS))
    full = kir.MBarrier("full", 1, 1)
    words: dict[str, kir.Stmt] = {
        "fill": elect(
            kir.MBarrierArriveExpectTx(full, 0, 2 * A_NBYTES + B_NBYTES),
            kir.TmaLoad(
                kir.Slot(a, 0),
                kir.Box(wide, (0, k * DEPTH), (2 * ROWS, DEPTH), wide.extents),
                full,
                0,
            ),
            kir.TmaLoad(kir.Slot(b, 0), b_box(), full, 0),
        ),
        "wait": wait(full, 0, k),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(acc, kir.Slot(a, 0), kir.Slot(b, 0)),
        "commit": kir.AsyncCommit(WGMMA),
        "await": kir.AsyncAwait(WGMMA, 0),
        "sync": kir.BlockSync(0, 256),
        "half": kir.Role("half", 0, 4, (kir.BlockSync(1, 128),)),
        "other_half": kir.Role("other", 4, 4, (kir.BlockSync(2, 128),)),
    }
    body = (
        init(full),
        kir.BlockSync(0, 256),
        kir.Compute(acc, "cast", (ZERO,)),
        kir.ForLoop(k, n, said(loop, words)),
        kir.AsyncAwait(WGMMA, 0),
        kir.Store(kir.Box(out, (0, 0), (2 * ROWS, COLS), out.extents), acc, 2),
    )
    return kernel(body, threads=256, buffers=(a, b), barriers=(full,), tensors=(wide, B, out))
