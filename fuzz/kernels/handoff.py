"""Small kernels in which a warp hands tiles to another, by every protocol there is for it.

How a slot is filled and announced, and how it is given back, are drawn apart; in a loop, or a few
tiles written out one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from fuser.cookbook.ring import CP_ASYNC, ELECT, k, ring, start, trips
from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from fuzz.kernels.ring import fill, freed
from fuzz.kernels.tile import (
    COLS,
    NBYTES,
    ROWS,
    Pattern,
    X,
    Y,
    box,
    fragment,
    layout,
    one_cta,
    over_tiles,
    slots,
)

Body = tuple[kir.Stmt, ...]
Fill = Callable[[kir.Buffer, kir.MBarrier, Expr, kir.Box], Body]
"""Fill a slot from a box, and announce it on a barrier."""
_PAIR = 2 * kir.WARP
MOST = 3
"""Tiles that are written out at most."""


def _loaded(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    return (kir.Elect(ELECT, fill(s, full, at, src)),)


def _expected(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    """Expect bytes, load, and arrive, by three statements."""
    load = kir.TmaLoad(kir.Slot(s, at), src, full, at)
    arrive = kir.MBarrierArrive(full, at)
    return (kir.Elect(ELECT, (kir.MBarrierExpectTx(full, at, NBYTES), load, arrive)),)


def _copied(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    copy = kir.CpAsync(kir.Slot(s, at), src, layout(1, 2), 2)
    return copy, kir.CpAsyncMBarrierArrive(full, at, noinc=True)


def _counted(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    """Let copies arrive for themselves, and every thread as well."""
    copy = kir.CpAsync(kir.Slot(s, at), src, layout(1, 2), 2)
    return (
        copy,
        kir.CpAsyncMBarrierArrive(full, at, noinc=False),
        kir.MBarrierArrive(full, at),
    )


def _awaited(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    return (
        kir.CpAsync(kir.Slot(s, at), src, layout(1, 2), 2),
        kir.AsyncCommit(CP_ASYNC),
        kir.AsyncAwait(CP_ASYNC, 0),
        kir.MBarrierArrive(full, at),
    )


def _stored(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    x = fragment("x", 1)
    return (
        kir.Load(x, src, 1),
        kir.Store(kir.Slot(s, at), x, 1),
        kir.MBarrierArrive(full, at),
    )


def _joined(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    """Store, join the warp, and let one lane arrive for it."""
    *stores, arrive = _stored(s, full, at, src)
    return *stores, kir.WarpSync(), kir.Elect(ELECT, (arrive,))


_FILLS: tuple[tuple[Fill, int], ...] = (
    (_loaded, 1),
    (_expected, 1),
    (_copied, kir.WARP),
    (_counted, kir.WARP),
    (_awaited, kir.WARP),
    (_stored, kir.WARP),
    (_joined, 1),
)
"""Every way to fill a slot, and the arrivals that it makes."""


def handed(rng: Random) -> Pattern:
    """Draw how slots are filled and given back, their number, and a loop or a few tiles."""
    filling, arrivals = rng.choice(_FILLS)
    stages, back = rng.randint(1, 3), rng.choice(("each", "one", "block"))
    s, full = slots("S", stages), ring("full", arrivals, stages)
    empty = ring("empty", kir.WARP if back == "each" else 1, stages)
    elected = filling in (_loaded, _expected)
    same = rng.random() < 0.3 and not elected
    x = replace(fragment("x", 1), layout=layout(1, 1 if same else 2))
    y = replace(x, name="y")

    def give(at: Expr, src: kir.Box) -> Body:
        slot, turn = at % stages, at // stages
        fills = filling(s, full, slot, src)
        if back == "block":
            return *fills, kir.BlockSync(1, _PAIR)
        room = kir.MBarrierWaitParity(empty, slot, (turn + 1) % 2)
        match fills:
            case (kir.Elect(per, inner),) if elected:
                return (kir.Elect(per, (room, *inner)),)
            case _:
                return room, *fills

    def take(at: Expr, dst: kir.Box) -> Body:
        slot, turn = at % stages, at // stages
        free = freed(empty, slot, each_thread=back == "each")
        return (
            kir.MBarrierWaitParity(full, slot, turn % 2),
            kir.Load(x, kir.Slot(s, slot), x.layout.vector),
            *((kir.BlockSync(1, _PAIR),) if back == "block" else free),
            kir.Compute(y, "add", (x, x)),
            kir.Store(dst, y, x.layout.vector),
        )

    barriers = (full,) if back == "block" else (full, empty)

    def body(giver: Body, taker: Body) -> Body:
        roles = kir.Role("give", 0, 1, giver), kir.Role("take", 1, 1, taker)
        return *start(*barriers, threads=_PAIR), *roles

    if rng.random() < 0.6:
        loops = kir.ForLoop(k, trips, give(k, box(X, k))), kir.ForLoop(k, trips, take(k, box(Y, k)))
        kernel = over_tiles("handed", 2, body(loops[:1], loops[1:]), (s,), barriers)
        return Pattern(kernel, stages, one_cta)
    many = rng.randint(1, MOST)
    given, taken = _tensor("X", many), _tensor("Y", many)
    giver = tuple(stmt for i in range(many) for stmt in give(i, _tile(given, i)))
    taker = tuple(stmt for i in range(many) for stmt in take(i, _tile(taken, i)))
    kernel = kir.Kernel(
        "handed", (), (given, taken), (), (s,), barriers, _PAIR, body(giver, taker),
        outputs=("Y",), requires=(eq(kir.GRID, 1),),
    )  # fmt: skip
    return Pattern(kernel, stages, lambda count: ((1, {}),))


def _tensor(name: str, many: int) -> kir.Tensor:
    return kir.Tensor(name, DType.F32, (ROWS * many, COLS), (COLS, 1), 4)


def _tile(tensor: kir.Tensor, number: int) -> kir.Box:
    return kir.Box(tensor, (number * ROWS, 0), (ROWS, COLS), tensor.extents)
