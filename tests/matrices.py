"""Small kernels around `ldmatrix` and `stmatrix`, and what has to be said of each.

Two warps hold a tile of 32 x 16 in strips, each its own 16 rows, in shared memory; in `ACROSS`, by
`.trans`, its 16 columns there.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook.ring import BULK, ELECT, PER_WARP
from fuser.dtype import DType
from fuser.expr import eq
from fuser.kernel import ir as kir
from fuzz.mutation.site import fresh, parts

SLOT = kir.Slot(kir.Buffer("S", DType.BF16, (32, 16), 1, 0, 32), 0)
"""Swizzled, as the compiler has it; that moves addresses and nothing else."""
TILE = kir.Fragment("x", DType.BF16, kir.Layout((32, 16), 2, 64, kir.Deal.STRIPS))
AGAIN = replace(TILE, name="y")
ACROSS = kir.Slot(kir.Buffer("S", DType.BF16, (16, 32), 1, 0, 64), 0)
LINES = kir.Fragment("z", DType.BF16, kir.Layout((16, 32), 8, 64))
"""Of what lies in `ACROSS` half a row for each pair of threads: parts of both strips."""
HALF = kir.Fragment("x", DType.BF16, kir.Layout((32, 16), 2, 32, kir.Deal.STRIPS))
"""The whole tile, held by one warp."""
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


def put(src: kir.Fragment = TILE) -> kir.Store:
    """Store the tile by `stmatrix.trans`."""
    return kir.Store(ACROSS, src, 2, matrix=True, transposed=True)


def get() -> kir.Load:
    """Load it back by `ldmatrix.trans`."""
    return kir.Load(AGAIN, ACROSS, 2, matrix=True, transposed=True)


def lines() -> kir.Load:
    """Load what lies there, row by row."""
    return kir.Load(LINES, ACROSS, 8)


def one_warp(*body: kir.Stmt) -> kir.Role:
    """The first of the two warps executes statements."""
    return kir.Role("first", 0, 1, body)


def kernel(*body: kir.Stmt, split: bool = False) -> kir.Kernel:
    """A kernel of two warps; with `split` one lane of each has something to do alone."""
    barriers = (BAR,) if any(isinstance(s, kir.MBarrierArrive) for s in kir.walk(body)) else ()
    life = (kir.Elect(ELECT, (kir.MBarrierInit(BAR),)), kir.BlockSync(0, 64)) if barriers else ()
    alone = (kir.Elect(PER_WARP, (FENCE,)),) if split else ()
    sent = next((s for s in kir.walk(body) if isinstance(s, kir.TmaStore)), None)
    used = {ref.buffer for s in kir.walk(body) for ref in parts(s, kir.Slot)}
    every = tuple(fresh(stmt) for stmt in (*life, *alone, ZERO, *body))
    return kir.Kernel(
        "matrix", (), (sent.dst.tensor if sent else OUT,), (), (*used,), barriers, 64, every,
        ("Y",) if sent else (), requires=(eq(kir.GRID, 1),),
    )  # fmt: skip


def _left(*before: kir.Stmt, slot: kir.Slot = SLOT, awaited: bool = True) -> tuple[kir.Stmt, ...]:
    """Leave by a TMA store."""
    shape = slot.buffer.shape
    tensor = kir.Tensor("Y", DType.BF16, shape, (shape[1], 1), 8)
    store = kir.TmaStore(kir.Box(tensor, (0, 0), shape, shape), slot)
    done = (kir.AsyncAwait(BULK, 0, read_only=True),) if awaited else ()
    return (*before, kir.Elect(ELECT, (store, kir.AsyncCommit(BULK), *done)))


_HALF_ZERO = kir.Compute(HALF, "cast", ZERO.args)
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
_TURNED: dict[str, tuple[str, tuple[kir.Stmt, ...]]] = {
    "trans, back": ("RAW", (put(), get())),
    "trans, warp, back": ("", (put(), _WARP, get())),
    "trans, warp, load": ("RAW", (put(), _WARP, lines())),
    "trans, block, load": ("", (put(), _BLOCK, lines())),
    "trans, mbarrier, load": ("", (put(), *_MET, lines())),
    "trans, load, trans": ("WAR", (put(), _BLOCK, lines(), put())),
    "trans, load, block, trans": ("", (put(), _BLOCK, lines(), _BLOCK, put())),
    "trans twice": ("WAW", (put(), put())),
    "trans twice, warp": ("", (put(), _WARP, put())),
    "back, trans": ("WAR", (put(), _WARP, get(), put())),
    "trans by one, load": ("RAW", (one_warp(_HALF_ZERO, put(HALF)), lines())),
    "trans by one, block, load": ("", (one_warp(_HALF_ZERO, put(HALF)), _BLOCK, lines())),
    "trans by one, warp, load": ("RAW", (one_warp(_HALF_ZERO, put(HALF), _WARP), lines())),
}
_GONE, _GOING = (_left(put(), FENCE, _BLOCK, slot=ACROSS, awaited=a) for a in (True, False))
CASES: dict[str, tuple[str, kir.Kernel]] = {
    f"{name}{', split' if split else ''}": (kind, kernel(*body, split=split))
    for name, (kind, body) in (_PLAIN | _TURNED).items()
    for split in (False, True)
} | {
    "one lane": ("collective", kernel(kir.Elect(PER_WARP, (write(),)))),
    "left": ("", kernel(*_left(write(), FENCE, _BLOCK))),
    "left by its warp": ("RAW", kernel(*_left(write(), FENCE, _WARP))),
    "no fence": ("proxy", kernel(*_left(write(), _BLOCK))),
    "one fence": ("proxy", kernel(*_left(write(), kir.Elect(PER_WARP, (FENCE,)), _BLOCK))),
    "fence before": ("proxy", kernel(*_left(FENCE, write(), _BLOCK))),
    "one lane, trans": ("collective", kernel(kir.Elect(PER_WARP, (put(),)))),
    "trans, left": ("", kernel(*_left(put(), FENCE, _BLOCK, slot=ACROSS))),
    "trans, left by its warp": ("RAW", kernel(*_left(put(), FENCE, _WARP, slot=ACROSS))),
    "trans, left at once": ("RAW", kernel(*_left(put(), FENCE, slot=ACROSS))),
    "trans, no fence": ("proxy", kernel(*_left(put(), _BLOCK, slot=ACROSS))),
    "trans, left and next": ("", kernel(*_GONE, _BLOCK, put())),
    "trans, left and next at once": ("WAR", kernel(*_GONE, put())),
    "trans, left unawaited and next": ("WAR", kernel(*_GOING, _BLOCK, put())),
}
"""By name, the kind of error (none: it is right) and the kernel."""


_BIG = replace(ACROSS.buffer, shape=(32, 64), swizzle=128)
_ROUND = replace(TILE, layout=replace(TILE.layout, deal=kir.Deal.ROUND))
_EACH = replace(AGAIN, layout=replace(TILE.layout, deal=kir.Deal.EACH_WARP))
_LINE = kir.Fragment("x", DType.BF16, kir.Layout((512,), 8, 64))
_TENSOR = kir.Tensor("Y", DType.BF16, (16, 32), (32, 1), 8)


def _zeroed(move: kir.Store | kir.Load) -> kir.Kernel:
    """A kernel of a move whose registers hold zeros, should it be a store."""
    if isinstance(move, kir.Load):
        return kernel(put(), kir.BlockSync(0, 64), move)
    return kernel(replace(ZERO, dst=move.src), move)


_PUT, _GET = put(), get()
IMPOSSIBLE: dict[str, kir.Kernel] = {
    "the shape as it is": _zeroed(replace(_PUT, dst=SLOT)),
    "another shape": _zeroed(replace(_PUT, dst=kir.Slot(_BIG, 0))),
    "one axis": _zeroed(
        replace(_PUT, src=_LINE, dst=kir.Slot(replace(ACROSS.buffer, shape=(512,), swizzle=0), 0))
    ),
    "elements of 32 bits": _zeroed(
        replace(_PUT, dst=kir.Slot(replace(ACROSS.buffer, dtype=DType.F32, swizzle=128), 0))
    ),
    "a conversion": _zeroed(replace(_GET, dst=replace(AGAIN, dtype=DType.F32))),
    "rounds": _zeroed(replace(_PUT, src=_ROUND)),
    "each warp all": _zeroed(replace(_GET, dst=_EACH)),
    "single elements": _zeroed(replace(_PUT, width=1)),
    "another CTA": _zeroed(replace(_PUT, dst=replace(ACROSS, cta=0))),
    "a limit": _zeroed(replace(_GET, limit=(8, 8))),
    "a limit of single elements": _zeroed(
        replace(_GET, dst=replace(_ROUND, name="y"), width=1, matrix=False, limit=(8, 8))
    ),
}
"""Moves that no instruction does: each is refused, and by every judge refuted."""
