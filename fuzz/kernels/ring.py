"""Small kernels of one CTA around rings of TMA copies; each is drawn with its variants."""

from __future__ import annotations

from random import Random

from fuser.cookbook.ring import (
    BULK,
    ELECT,
    PER_WARP,
    emptied,
    filled,
    k,
    p,
    q,
    ring,
    start,
    step,
    trips,
)
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from fuzz.kernels.tile import (
    COLS,
    NBYTES,
    ROWS,
    C,
    Pattern,
    R,
    Start,
    X,
    Y,
    add,
    box,
    fragment,
    one_cta,
    over_tiles,
    slots,
    tile,
)

_SHARED = kir.Space.SHARED


def fill(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> tuple[kir.Stmt, ...]:
    """Load a tile into a slot."""
    return (
        kir.MBarrierArriveExpectTx(full, at, NBYTES),
        kir.TmaLoad(kir.Slot(s, at), src, full, at),
    )


def freed(empty: kir.MBarrier, at: Expr, *, each_thread: bool) -> tuple[kir.Stmt, ...]:
    """Say that a slot was read: every thread, or a lane per warp after all lanes."""
    arrive = kir.MBarrierArrive(empty, at)
    return (arrive,) if each_thread else (kir.WarpSync(), kir.Elect(PER_WARP, (arrive,)))


def elected_loop(body: tuple[kir.Stmt, ...], *, inside: bool) -> kir.Stmt:
    """Run a loop over all trips in which one thread acts: elected once, or in every trip."""
    if inside:
        return kir.ForLoop(k, trips, (kir.Elect(ELECT, body),))
    return kir.Elect(ELECT, (kir.ForLoop(k, trips, body),))


def pipelined(rng: Random) -> Pattern:
    """One role; a thread of it loads `ahead` tiles ahead.

    Slots are freed by an mbarrier, or by a block sync at the end of each iteration.
    """
    stages, warps, block = rng.randint(1, 4), rng.randint(1, 2), rng.random() < 0.5
    ahead = rng.randint(0, stages - 1) if block else rng.randint(1, stages)
    each = rng.random() < 0.5
    s, full = slots("S", stages), ring("full", 1, stages)
    empty = ring("empty", kir.WARP * warps if each else warps, stages)
    slot, later = k % stages, k + ahead
    first = kir.IfThenElse(q < trips, fill(s, full, q % stages, box(X, q)))
    room = () if block else (emptied_at(empty, later, stages),)
    more = kir.IfThenElse(later < trips, (*room, *fill(s, full, later % stages, box(X, later))))
    issue = kir.Elect(ELECT, (more,))
    read = (filled(full, k, stages), kir.Load(fragment("x", warps), kir.Slot(s, slot), 1))
    write = (add(warps), kir.Store(box(Y, k), fragment("y", warps), 1))
    loop: tuple[kir.Stmt, ...]
    if block:
        loop = (issue, *read, *write, kir.BlockSync(0, kir.WARP * warps))
    else:
        loop = (*read, *freed(empty, slot, each_thread=each), issue, *write)
    barriers = (full,) if block else (full, empty)
    body = (
        *start(*barriers, threads=kir.WARP * warps),
        kir.ForLoop(q, ahead, (kir.Elect(ELECT, (first,)),)),
        kir.ForLoop(k, trips, loop),
    )
    return Pattern(over_tiles("pipelined", warps, body, (s,), barriers), stages, one_cta)


def emptied_at(empty: kir.MBarrier, at: Expr, stages: int) -> kir.MBarrierWaitParity:
    """Wait until the slot of a position is free; at once in the first turn."""
    return kir.MBarrierWaitParity(empty, at % stages, (at // stages + 1) % 2)


def specialized(rng: Random) -> Pattern:
    """Load by a warp, compute by one to three: each every tile, or the tiles in turn.

    In turn only where a slot always goes to the same warp: who skips phases of a barrier cannot
    tell the one before its own from the one after.
    """
    stages, consumers = rng.randint(1, 4), rng.randint(1, 3)
    in_turn, each = stages % consumers == 0 and rng.random() < 0.4, rng.random() < 0.5
    per_tile = 1 if in_turn else consumers
    s, full = slots("S", stages), ring("full", 1, stages)
    empty = ring("empty", per_tile * (kir.WARP if each else 1), stages)
    slot = k % stages

    def consume(number: int) -> tuple[kir.Stmt, ...]:
        use = (
            filled(full, k, stages),
            kir.Load(fragment("x", 1), kir.Slot(s, slot), 1),
            *freed(empty, slot, each_thread=each),
        )
        out = (add(1), kir.Store(box(Y, k), fragment("y", 1), 1))
        mine = eq(k % consumers, number)
        if in_turn:
            return (kir.IfThenElse(mine, (*use, *out)),)
        return (*use, kir.IfThenElse(mine, out))

    load = (emptied(empty, k, stages), *fill(s, full, slot, box(X, k)))
    roles = [
        kir.Role(f"compute{i}", i, 1, (kir.ForLoop(k, trips, consume(i)),))
        for i in range(consumers)
    ]
    producer = elected_loop(load, inside=rng.random() < 0.5)
    roles.append(kir.Role("load", consumers, 1, (producer,)))
    body = (*start(full, empty, threads=kir.WARP * (consumers + 1)), *roles)
    kernel = over_tiles("specialized", consumers + 1, body, (s,), (full, empty))
    return Pattern(kernel, stages, one_cta)


def store_ring(rng: Random) -> Pattern:
    """Results leave through a ring of slots by TMA stores; the wait precedes reuse or ends it."""
    stages, warps, early = rng.randint(1, 4), rng.randint(1, 2), rng.random() < 0.5
    s = slots("S", stages)
    x, y = fragment("x", warps), fragment("y", warps)
    room = kir.AsyncAwait(BULK, stages - 1, read_only=True)
    issue = (kir.TmaStore(box(Y, k), kir.Slot(s, k % stages)), kir.AsyncCommit(BULK))
    before = (kir.Elect(ELECT, (room,)),) if early else ()
    after = () if early else (room,)
    loop = (
        kir.Load(x, box(X, k), 1),
        add(warps),
        *before,
        kir.BlockSync(0, kir.WARP * warps),
        kir.Store(kir.Slot(s, k % stages), y, 1),
        kir.FenceAsyncProxy(_SHARED),
        kir.BlockSync(1, kir.WARP * warps),
        kir.Elect(ELECT, (*issue, *after)),
    )
    end = kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=rng.random() < 0.7),))
    body = (kir.ForLoop(k, trips, loop), end)
    return Pattern(over_tiles("store_ring", warps, body, (s,)), stages, one_cta)


def chained(rng: Random) -> Pattern:
    """Load, compute and store by a warp each, with a ring between every two of them.

    The storing warp frees the slot of its last store, or that of the store before.
    """
    loads, stores = rng.randint(1, 3), rng.randint(1, 3)
    lag = rng.randint(0, min(1, stores - 1))
    s, o = slots("S", loads), slots("O", stores, loads * NBYTES)
    full, empty = ring("full", 1, loads), ring("empty", 1, loads)
    ready, free = ring("ready", 1, stores), ring("free", 1, stores)
    load = (emptied(empty, k, loads), *fill(s, full, k % loads, box(X, k)))
    compute = (
        filled(full, k, loads),
        kir.Load(fragment("x", 1), kir.Slot(s, k % loads), 1),
        *freed(empty, k % loads, each_thread=False),
        add(1),
        emptied(free, k, stores),
        kir.Store(kir.Slot(o, k % stores), fragment("y", 1), 1),
        kir.FenceAsyncProxy(_SHARED),
        *freed(ready, k % stores, each_thread=False),
    )
    old = kir.MBarrierArrive(free, (k + (stores - lag)) % stores)
    send = (
        filled(ready, k, stores),
        kir.TmaStore(box(Y, k), kir.Slot(o, k % stores)),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, lag, read_only=True),
        kir.IfThenElse(k >= lag, (old,)) if lag else old,
    )
    drain = (kir.AsyncAwait(BULK, 0, read_only=True),) if lag else ()
    body = (
        *start(full, empty, ready, free, threads=96),
        kir.Role("load", 0, 1, (elected_loop(load, inside=rng.random() < 0.5),)),
        kir.Role("compute", 1, 1, (kir.ForLoop(k, trips, compute),)),
        kir.Role("store", 2, 1, (kir.Elect(ELECT, (kir.ForLoop(k, trips, send), *drain)),)),
    )
    kernel = over_tiles("chained", 3, body, (s, o), (full, empty, ready, free))
    return Pattern(kernel, max(loads, stores), one_cta)


t, rows = Var("t"), Var("rows")


def persistent(rng: Random) -> Pattern:
    """Take rows of tiles one after the other; the ring runs on from row to row."""
    stages, consumers, each = rng.randint(1, 3), rng.randint(1, 2), rng.random() < 0.5
    s, full = slots("S", stages), ring("full", 1, stages)
    empty = ring("empty", consumers * (kir.WARP if each else 1), stages)
    row = kir.BLOCK + t * kir.GRID

    def consume(number: int) -> kir.Role:
        out = (add(1), kir.Store(tile(Y, row, k), fragment("y", 1), 1))
        use = (
            filled(full, p, stages),
            kir.Load(fragment("x", 1), kir.Slot(s, p % stages), 1),
            *freed(empty, p % stages, each_thread=each),
            kir.IfThenElse(eq(t % consumers, number), out) if consumers > 1 else out[0],
            *(() if consumers > 1 else out[1:]),
            step(p),
        )
        loop = kir.ForLoop(t, rows, (kir.ForLoop(k, trips, use),))
        return kir.Role(f"compute{number}", number, 1, (loop,))

    load = kir.Elect(
        ELECT, (emptied(empty, p, stages), *fill(s, full, p % stages, tile(X, row, k)))
    )
    produce = kir.ForLoop(t, rows, (kir.ForLoop(k, trips, (load, step(p))),))
    threads = kir.WARP * (consumers + 1)
    body = (
        kir.Let(rows, ceildiv(ceildiv(R, ROWS) - kir.BLOCK, kir.GRID)),
        kir.Let(trips, ceildiv(C, COLS)),
        kir.Let(p, 0),
        *start(full, empty, threads=threads),
        *(consume(i) for i in range(consumers)),
        kir.Role("load", consumers, 1, (produce,)),
    )
    kernel = kir.Kernel(
        "persistent", (R, C), (X, Y), (), (s,), (full, empty), threads, body, ("Y",)
    )
    return Pattern(kernel, stages, _rows_and_trips)


def _rows_and_trips(count: int) -> tuple[Start, ...]:
    """Few rows of `count` tiles, and `count` rows of few tiles."""
    pairs = dict.fromkeys([(1, count), (2, count), (min(count, 3), count), (count, 1)])
    return tuple((1, {"R": ROWS * down, "C": COLS * across}) for down, across in pairs)
