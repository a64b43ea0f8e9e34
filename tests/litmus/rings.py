"""The ring of TMA loads that most pairs about mbarriers are variants of: one warp loads, one uses.

All 32 threads of the user arrive on `empty`, so each releases what it has read itself.
"""

from __future__ import annotations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    NBYTES,
    XN,
    YN,
    Body,
    box,
    elect,
    fragment,
    init,
    k,
    kernel,
    load,
    m,
    n,
    p,
    said,
    slots,
    store,
    t,
    tensor,
    wait,
)

STAGES = 2
RING = slots("S", STAGES)
FULL, EMPTY = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", 32, STAGES)
IN = fragment("x")
SLOT, TURN = k % STAGES, k // STAGES

USE, LOAD = "wait read free out", "room expect fill"


def arrive(bar: kir.MBarrier = EMPTY, at: Expr = SLOT) -> kir.MBarrierArrive:
    """Arrive by every executing thread."""
    return kir.MBarrierArrive(bar, at)


def expect(nbytes: int = NBYTES) -> kir.MBarrierArriveExpectTx:
    """Arrive on the slot's full barrier, expecting so many bytes."""
    return kir.MBarrierArriveExpectTx(FULL, SLOT, nbytes)


def ring(
    use: str = USE,
    feed: str = LOAD,
    *,
    start: str = "init sync",
    empty: kir.MBarrier = EMPTY,
    fed: Expr = n,
    **own: kir.Stmt,
) -> kir.Kernel:
    """Return a ring of two stages, in the words of its two roles; `own` replaces words."""
    words: dict[str, kir.Stmt] = {
        "init": init(FULL, empty),
        "sync": kir.BlockSync(0, 64),
        "wait": wait(FULL, SLOT, TURN),
        "read": load(IN, kir.Slot(RING, SLOT)),
        "free": arrive(empty),
        "fence": kir.FenceAsyncProxy(kir.Space.SHARED),
        "out": store(box(YN, k), IN),
        "room": wait(empty, SLOT, TURN + 1),
        "expect": expect(),
        "fill": kir.TmaLoad(kir.Slot(RING, SLOT), box(XN, k), FULL, SLOT),
    }
    words |= own
    body = (
        *said(start, words),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, said(use, words)),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, fed, (elect(*said(feed, words)),)),)),
    )
    return kernel(body, threads=64, buffers=(RING,), barriers=(FULL, empty))


def shifted(turn: Expr) -> kir.Kernel:
    """Return a ring whose positions start at 3, so that slot 1 is used first."""
    at = (k + 3) % STAGES
    return ring(
        wait=wait(FULL, at, turn),
        read=load(IN, kir.Slot(RING, at)),
        free=arrive(EMPTY, at),
        room=wait(EMPTY, at, TURN + 1),
        expect=kir.MBarrierArriveExpectTx(FULL, at, NBYTES),
        fill=kir.TmaLoad(kir.Slot(RING, at), box(XN, k), FULL, at),
    )


def one_stage(turn: Expr = k) -> kir.Kernel:
    """Return a ring with a single slot, whose user waits for phase `turn`."""
    buffer, full = slots("S"), kir.MBarrier("full", 1, 1)
    empty = kir.MBarrier("empty", 32, 1)
    use = (
        wait(full, 0, turn),
        load(IN, kir.Slot(buffer, 0)),
        arrive(empty, 0),
        store(box(YN, k), IN),
    )
    feed = (
        wait(empty, 0, k + 1),
        kir.MBarrierArriveExpectTx(full, 0, NBYTES),
        kir.TmaLoad(kir.Slot(buffer, 0), box(XN, k), full, 0),
    )
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, use),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (elect(*feed),)),)),
    )
    return kernel(body, threads=64, buffers=(buffer,), barriers=(full, empty))


def two_users(
    first: str = "wait read free out",
    second: str = "wait read free",
    rooms: str = "room room1",
    *,
    shared: bool = True,
) -> kir.Kernel:
    """Return a ring read by two roles of a warp each, with one empty barrier or one of each.

    The first role stores what it read; the second only reads.
    """
    joint = kir.MBarrier("empty", 64 if "free" in second else 32, STAGES)
    alone = kir.MBarrier("empty0", 32, STAGES), kir.MBarrier("empty1", 32, STAGES)
    empties = (joint,) if shared else alone

    def role(number: int, sentence: str) -> kir.Role:
        words: dict[str, kir.Stmt] = {
            "wait": wait(FULL, SLOT, TURN),
            "read": load(IN, kir.Slot(RING, SLOT)),
            "free": arrive(joint if shared else alone[number]),
            "out": store(box(YN, k), IN),
        }
        return kir.Role(f"use{number}", number, 1, (kir.ForLoop(k, n, said(sentence, words)),))

    waits: dict[str, kir.Stmt] = {"room": wait(empties[0], SLOT, TURN + 1)}
    if not shared:
        waits["room1"] = wait(alone[1], SLOT, TURN + 1)
    fill = kir.TmaLoad(kir.Slot(RING, SLOT), box(XN, k), FULL, SLOT)
    feed = elect(*said("room" if shared else rooms, waits), expect(), fill)
    body = (
        init(FULL, *empties),
        kir.BlockSync(0, 96),
        role(0, first),
        role(1, second),
        kir.Role("load", 2, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    return kernel(body, threads=96, buffers=(RING,), barriers=(FULL, *empties))


def two_warps(use: str, empty: kir.MBarrier, **own: kir.Stmt) -> kir.Kernel:
    """Return a ring whose user is a role of two warps."""
    wide = fragment("x", 64)
    words: dict[str, kir.Stmt] = {
        "wait": wait(FULL, SLOT, TURN),
        "read": load(wide, kir.Slot(RING, SLOT)),
        "join": kir.BlockSync(1, 64),
        "warp": kir.WarpSync(),
        "out": store(box(YN, k), wide),
    }
    words |= own
    feed = elect(
        wait(empty, SLOT, TURN + 1),
        expect(),
        kir.TmaLoad(kir.Slot(RING, SLOT), box(XN, k), FULL, SLOT),
    )
    body = (
        init(FULL, empty),
        kir.BlockSync(0, 96),
        kir.Role("use", 0, 2, (kir.ForLoop(k, n, said(use, words)),)),
        kir.Role("load", 2, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    return kernel(body, threads=96, buffers=(RING,), barriers=(FULL, empty))


def tiled(
    steps: int, *, turn: Expr | None = None, restart: str = "", slot: Expr | None = None
) -> kir.Kernel:
    """Return a ring that runs on over `m` tiles of `steps` steps each.

    `restart` names the roles that set their position back to 0 at each tile.
    """
    at = p % STAGES if slot is None else slot
    times = p // STAGES if turn is None else turn
    number = t * steps + k
    x, y = tensor("X", m * steps), tensor("Y", m * steps)

    def loop(name: str, warp: int, body: Body) -> kir.Role:
        again: Body = (kir.Assign(p, 0),) if name in restart.split() else ()
        inner = kir.ForLoop(k, steps, (*body, kir.Assign(p, p + 1)))
        return kir.Role(name, warp, 1, (kir.ForLoop(t, m, (*again, inner)),))

    use = (
        wait(FULL, at, times),
        load(IN, kir.Slot(RING, at)),
        arrive(EMPTY, at),
        store(box(y, number), IN),
    )
    feed = elect(
        wait(EMPTY, at, times + 1),
        kir.MBarrierArriveExpectTx(FULL, at, NBYTES),
        kir.TmaLoad(kir.Slot(RING, at), box(x, number), FULL, at),
    )
    body = (
        kir.Let(p, 0),
        init(FULL, EMPTY),
        kir.BlockSync(0, 64),
        loop("use", 0, use),
        loop("load", 1, (feed,)),
    )
    return kernel(
        body, threads=64, buffers=(RING,), barriers=(FULL, EMPTY), tensors=(x, y), params=(m,)
    )
