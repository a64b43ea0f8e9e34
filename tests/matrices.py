"""Small kernels around `ldmatrix` and `stmatrix`, and what has to be said of each.

Two warps hold a tile of 32 x 16 in strips, each its own 16 rows, in shared memory.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook.ring import BULK, ELECT, PER_WARP
from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuzz.mutation.site import fresh

SLOT = kir.Slot(kir.Buffer("S", DType.BF16, (32, 16), 1, 0, 32), 0)
"""Swizzled, as the compiler has it; that moves addresses and nothing else."""
TILE = kir.Fragment("x", DType.BF16, kir.Layout((32, 16), 2, 64, kir.Deal.STRIPS))
AGAIN = replace(TILE, name="y")
OUT = kir.Tensor("Y", DType.BF16, (32, 16), (16, 1), 8)
BAR = kir.MBarrier("bar", 64, 1)
FENCE = kir.FenceAsyncProxy(kir.Space.SHARED)
ZERO = kir.Compute(TILE, "cast", (kir.Literal(0.0, DType.F32),))


def write(*, matrix: bool = True) -> kir.Store:
    """Store the tile."""
    return kir.Store(SLOT, TILE, 2, matrix)


def read(*, matrix: bool = True) -> kir.Load:
    """Load it back."""
    return kir.Load(AGAIN, SLOT, 2, 0, matrix)


def kernel(*body: kir.Stmt, split: bool = False) -> kir.Kernel:
    """A kernel of two warps; with `split` one lane of each has something to do alone."""
    barriers = (BAR,) if any(isinstance(s, kir.MBarrierArrive) for s in kir.walk(body)) else ()
    life = (kir.Elect(ELECT, (kir.MBarrierInit(BAR),)), kir.BlockSync(0, 64)) if barriers else ()
    alone = (kir.Elect(PER_WARP, (FENCE,)),) if split else ()
    outputs = ("Y",) if any(isinstance(s, kir.TmaStore) for s in kir.walk(body)) else ()
    every = tuple(fresh(stmt) for stmt in (*life, *alone, ZERO, *body))
    return kir.Kernel(
        "matrix", (), (OUT,), (), (SLOT.buffer,), barriers, 64, every,
        outputs,
    )  # fmt: skip


def _left(*before: kir.Stmt) -> tuple[kir.Stmt, ...]:
    """Leave by a TMA store."""
    box = kir.Box(OUT, (0, 0), (32, 16), (32, 16))
    done = kir.AsyncAwait(BULK, 0, read_only=True)
    return (*before, kir.Elect(ELECT, (kir.TmaStore(box, SLOT), kir.AsyncCommit(BULK), done)))


_WARP, _BLOCK = kir.WarpSync(), kir.BlockSync(0, 64)
_MET = (kir.MBarrierArrive(BAR, 0), kir.MBarrierWaitParity(BAR, 0, 0))
_PLAIN: dict[str, tuple[str, tuple[kir.Stmt, ...]]] = {
    "each lane its own": ("", (write(matrix=False), read(matrix=False))),
    "stmatrix, load": ("RAW", (write(), read(matrix=False))),
    "store, ldmatrix": ("RAW", (write(matrix=False), read())),
    "stmatrix, ldmatrix": ("RAW", (write(), read())),
    "stmatrix, warp, load": ("", (write(), _WARP, read(matrix=False))),
    "store, warp, ldmatrix": ("", (write(matrix=False), _WARP, read())),
    "stmatrix, block, ldmatrix": ("", (write(), _BLOCK, read())),
    "stmatrix, mbarrier, load": ("", (write(), *_MET, read(matrix=False))),
    "store, mbarrier, ldmatrix": ("", (write(matrix=False), *_MET, read())),
    "ldmatrix, store": ("WAR", (write(), _WARP, read(), write(matrix=False))),
    "load, stmatrix": ("WAR", (write(), _WARP, read(matrix=False), write())),
    "ldmatrix, warp, store": ("", (write(), _WARP, read(), _WARP, write(matrix=False))),
    "ldmatrix twice": ("", (write(), _WARP, read(), read())),
    "stmatrix, store": ("WAW", (write(), write(matrix=False))),
    "store, stmatrix": ("WAW", (write(matrix=False), write())),
    "stmatrix twice": ("WAW", (write(), write())),
    "stmatrix twice, warp": ("", (write(), _WARP, write())),
}
CASES: dict[str, tuple[str, kir.Kernel]] = {
    f"{name}{', split' if split else ''}": (kind, kernel(*body, split=split))
    for name, (kind, body) in _PLAIN.items()
    for split in (False, True)
} | {
    "one lane": ("collective", kernel(kir.Elect(PER_WARP, (write(),)))),
    "left": ("", kernel(*_left(write(), FENCE, _BLOCK))),
    "left by its warp": ("RAW", kernel(*_left(write(), FENCE, _WARP))),
    "no fence": ("proxy", kernel(*_left(write(), _BLOCK))),
    "one fence": ("proxy", kernel(*_left(write(), kir.Elect(PER_WARP, (FENCE,)), _BLOCK))),
    "fence before": ("proxy", kernel(*_left(FENCE, write(), _BLOCK))),
}
"""By name, the kind of error (none: it is right) and the kernel."""
