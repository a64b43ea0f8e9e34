"""A turnstile of large tiles: CTAs add up tiles of 64 KB by bulk copies, in turns.

`Y = X[0] + X[1] + ...`, the parts of X below each other.  It multiplies nothing, so that nearly all
of its time is copies on their way, and a turn that is given on too early shows without delays.
"""

from __future__ import annotations

from fuser.cookbook.ring import BULK, ELECT, ring, start
from fuser.dtype import DType
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.tile import Start, Template

R, C, splits = Var("R"), Var("C"), Var("splits")
tile, turn = Var("tile"), Var("turn")
ROWS, COLS, THREADS = 128, 128, 256
X = kir.Tensor("X", DType.F32, (R * splits, C), (C, 1), 4)
W = kir.Tensor("W", DType.F32, (R, C), (C, 1), 4)
Y = kir.Tensor("Y", DType.F32, (R, C), (C, 1), 4)
TILES = ceildiv(R, ROWS) * ceildiv(C, COLS)
TURNS = kir.Semaphore("turns", TILES)
SUM = kir.Fragment("sum", DType.F32, kir.Layout((ROWS, COLS), 4, THREADS))


def _box(tensor: kir.Tensor, below: Expr = 0) -> kir.Box:
    """Return this CTA's tile of a tensor, so many rows further down."""
    across = ceildiv(C, COLS)
    origin = (below + tile // across * ROWS, tile % across * COLS)
    return kir.Box(tensor, origin, (ROWS, COLS), tensor.extents)


def wide_turns() -> kir.Kernel:
    """Load, wait for the turn, store or add, drain, give the turn on; the last one writes Y."""
    buffer, full = kir.Buffer("S", DType.F32, (ROWS, COLS), 1, 0), ring("full", 1, 1)
    slot = kir.Slot(buffer, 0)
    load = (
        kir.MBarrierArriveExpectTx(full, 0, buffer.slot_nbytes),
        kir.TmaLoad(slot, _box(X, turn * R), full, 0),
    )
    add = (kir.FenceAsyncProxy(kir.Space.GLOBAL), kir.TmaReduce(_box(W), slot))
    issue = (
        kir.IfThenElse(eq(turn, 0), (kir.TmaStore(_box(W), slot),), add),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    last = (
        kir.BlockSync(0, THREADS),
        kir.Load(SUM, _box(W), 4),
        kir.Store(_box(Y), SUM, 4),
    )
    body = (
        kir.Let(tile, kir.BLOCK // splits),
        kir.Let(turn, kir.BLOCK % splits),
        *start(full, threads=THREADS),
        kir.Elect(ELECT, load),
        kir.MBarrierWaitParity(full, 0, 0),
        kir.BlockSerializeWait(TURNS, tile, turn),
        kir.Elect(ELECT, issue),
        kir.IfThenElse(eq(turn + 1, splits), last),
        kir.BlockSync(0, THREADS),
        kir.Elect(ELECT, (kir.BlockSerializeRelease(TURNS, tile, (turn + 1) % splits),)),
    )
    return kir.Kernel(
        "wide_turns",
        (R, C, splits),
        (X, W, Y),
        (),
        (buffer,),
        (full,),
        THREADS,
        body,
        outputs=("Y",),
        workspaces=("W",),
        semaphores=(TURNS,),
        requires=(splits >= 1, eq(kir.GRID, TILES * splits)),
        residency="ticket",
    )


def wide_pattern() -> Template:
    """Return the kernel, with launches of one tile that so many CTAs share."""

    def at(count: int) -> tuple[Start, ...]:
        return ((count, {"R": ROWS, "C": COLS, "splits": count}),) if count else ()

    return Template(wide_turns(), 2, at)
