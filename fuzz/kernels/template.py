"""Templates: every family of small kernels, each function draws a variant of one.

Of one CTA around rings (TMA copies, cp.async, tensor cores, named barriers), then of several: split
sums in the order of a semaphore, and clusters of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from fuser.cookbook.matmul import STEP, TILE_M, TILE_N, double_wgmma, turn, wgmma_ring
from fuser.cookbook.ring import (
    BULK,
    CP_ASYNC,
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
from fuser.dtype import DType
from fuser.expr import Expr, Kind, Var, ceildiv, eq, fold, maximum, minimum, substitute
from fuser.kernel import ir as kir
from fuzz.kernels.product import product
from fuzz.kernels.tile import (
    COLS,
    NBYTES,
    ROWS,
    C,
    R,
    Start,
    Template,
    X,
    Y,
    add,
    box,
    fragment,
    layout,
    one_cta,
    over_tiles,
    slots,
    tile,
)
from fuzz.mutation.site import parts, substituted

Body = tuple[kir.Stmt, ...]


def fill(s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    """Load a tile into a slot."""
    return (
        kir.MBarrierArriveExpectTx(full, at, NBYTES),
        kir.TmaLoad(kir.Slot(s, at), src, full, at),
    )


def freed(empty: kir.MBarrier, at: Expr, *, each_thread: bool) -> Body:
    """Say that a slot was read: every thread, or a lane per warp after all lanes."""
    arrive = kir.MBarrierArrive(empty, at)
    return (arrive,) if each_thread else (kir.WarpSync(), kir.Elect(PER_WARP, (arrive,)))


def elected_loop(body: Body, *, inside: bool) -> kir.Stmt:
    """Run a loop over all trips in which one thread acts: elected once, or in every trip."""
    if inside:
        return kir.ForLoop(k, trips, (kir.Elect(ELECT, body),))
    return kir.Elect(ELECT, (kir.ForLoop(k, trips, body),))


def pipelined(rng: Random) -> Template:
    """One role; a thread loads `ahead` tiles ahead.  An mbarrier or a block sync frees slots."""
    stages, warps, block = rng.randint(1, 4), rng.randint(1, 2), rng.random() < 0.5
    ahead = rng.randint(0, stages - 1) if block else rng.randint(1, stages)
    each = rng.random() < 0.5
    s, full = slots("S", stages), ring("full", 1, stages)
    empty = ring("empty", kir.WARP * warps if each else warps, stages)
    slot, later = k % stages, k + ahead
    first = kir.IfThenElse(q < trips, fill(s, full, q % stages, box(X, q)))
    room = () if block else (emptied(empty, later, stages),)
    more = kir.IfThenElse(later < trips, (*room, *fill(s, full, later % stages, box(X, later))))
    issue = kir.Elect(ELECT, (more,))
    read = (filled(full, k, stages), kir.Load(fragment("x", warps), kir.Slot(s, slot), 1))
    write = (add(warps), kir.Store(box(Y, k), fragment("y", warps), 1))
    loop: Body
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
    return Template(over_tiles("pipelined", warps, body, (s,), barriers), stages, one_cta)


def specialized(rng: Random) -> Template:
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

    def consume(number: int) -> Body:
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
    return Template(kernel, stages, one_cta)


def store_ring(rng: Random) -> Template:
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
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(1, kir.WARP * warps),
        kir.Elect(ELECT, (*issue, *after)),
    )
    end = kir.Elect(ELECT, (kir.AsyncAwait(BULK, 0, read_only=rng.random() < 0.7),))
    body = (kir.ForLoop(k, trips, loop), end)
    return Template(over_tiles("store_ring", warps, body, (s,)), stages, one_cta)


def chained(rng: Random) -> Template:
    """Load, compute and store by a warp each, with rings between; the last may free a slot late."""
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
        kir.FenceAsyncProxy(kir.Space.SHARED),
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
    return Template(kernel, max(loads, stores), one_cta)


t, rows = Var("t"), Var("rows")


def persistent(rng: Random) -> Template:
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
    return Template(kernel, stages, _rows_and_trips)


def _rows_and_trips(count: int) -> tuple[Start, ...]:
    pairs = dict.fromkeys([(1, count), (2, count), (min(count, 3), count), (count, 1)])
    return tuple((1, {"R": ROWS * down, "C": COLS * across}) for down, across in pairs)


def cp_async_ring(rng: Random) -> Template:
    """Every thread copies `stages - 1` tiles ahead, one group a step, and a block sync a step.

    Where each thread reads only what it copied itself, it goes without the sync.
    """
    stages, warps, private = rng.randint(2, 4), rng.randint(1, 2), rng.random() < 0.25
    s = slots("S", stages)
    vector = 1 if private else 2
    later = k + (stages - 1)

    def copy(number: Expr) -> kir.Stmt:
        deal = layout(warps, vector)
        return kir.CpAsync(kir.Slot(s, number % stages), box(X, number), deal, vector)

    sync = () if private else (kir.BlockSync(0, kir.WARP * warps),)
    loop = (
        kir.AsyncAwait(CP_ASYNC, stages - 2),
        *sync,
        kir.IfThenElse(later < trips, (copy(later),)),
        kir.AsyncCommit(CP_ASYNC),
        kir.Load(fragment("x", warps), kir.Slot(s, k % stages), 1),
        add(warps),
        kir.Store(box(Y, k), fragment("y", warps), 1),
    )
    ahead = (kir.IfThenElse(q < trips, (copy(q),)), kir.AsyncCommit(CP_ASYNC))
    body = (kir.ForLoop(q, stages - 1, ahead), kir.ForLoop(k, trips, loop))
    return Template(over_tiles("cp_async_ring", warps, body, (s,)), stages, one_cta)


def cp_async_mbarrier(rng: Random) -> Template:
    """Copy by cp.async in a warp; the copies arrive, with or without counts of their own."""
    stages, consumers = rng.randint(1, 4), rng.randint(1, 2)
    noinc, each = rng.random() < 0.5, rng.random() < 0.5
    s, full = slots("S", stages), ring("full", kir.WARP, stages)
    empty = ring("empty", consumers * (kir.WARP if each else 1), stages)
    slot = k % stages
    own = () if noinc else (kir.MBarrierArrive(full, slot),)
    produce = (
        emptied(empty, k, stages),
        kir.CpAsync(kir.Slot(s, slot), box(X, k), layout(1, 2), 2),
        kir.CpAsyncMBarrierArrive(full, slot, noinc=noinc),
        *own,
    )
    consume = (
        filled(full, k, stages),
        kir.Load(fragment("x", consumers), kir.Slot(s, slot), 1),
        *freed(empty, slot, each_thread=each),
        add(consumers),
        kir.Store(box(Y, k), fragment("y", consumers), 1),
    )
    body = (
        *start(full, empty, threads=kir.WARP * (consumers + 1)),
        kir.Role("compute", 0, consumers, (kir.ForLoop(k, trips, consume),)),
        kir.Role("load", consumers, 1, (kir.ForLoop(k, trips, produce),)),
    )
    kernel = over_tiles("cp_async_mbarrier", consumers + 1, body, (s,), (full, empty))
    return Template(kernel, stages, one_cta)


def wgmma(rng: Random) -> Template:
    """Keep groups of wgmma in flight on a ring, run two matmuls on one, or draw a whole kernel."""
    if rng.random() < 0.4:
        return product(rng)
    stages = rng.randint(1, 4)
    depth = rng.randint(0, stages - 1)
    kernel = double_wgmma(stages) if rng.random() < 0.2 else wgmma_ring(stages, depth)
    return Template(kernel, stages, one_product)


def one_product(count: int) -> tuple[Start, ...]:
    """One tile of D in `count` steps along K."""
    return ((1, {"M": TILE_M, "N": TILE_N, "K": STEP * count}),)


def named(rng: Random) -> Template:
    """Hand tiles from warp to warp over one or two slots, by named barriers both ways."""
    stages = rng.randint(1, 2)
    s, pair = slots("S", stages), 2 * kir.WARP

    def by_slot(body: list[Body]) -> Body:
        if stages == 1:
            return body[0]
        return tuple(kir.IfThenElse(eq(k % 2, i), inner) for i, inner in enumerate(body))

    def give(i: int) -> Body:
        return (
            kir.IfThenElse(k >= stages, (kir.BlockSync(2 * i + 2, pair),)),
            kir.Load(fragment("x", 1), box(X, k), 1),
            kir.Store(kir.Slot(s, i), fragment("x", 1), 1),
            kir.NamedArrive(2 * i + 1, pair),
        )

    def take(i: int) -> Body:
        return (
            kir.BlockSync(2 * i + 1, pair),
            kir.Load(fragment("x", 1), kir.Slot(s, i), 1),
            kir.IfThenElse(k + stages < trips, (kir.NamedArrive(2 * i + 2, pair),)),
            add(1),
            kir.Store(box(Y, k), fragment("y", 1), 1),
        )

    giver = kir.ForLoop(k, trips, by_slot([give(i) for i in range(stages)]))
    taker = kir.ForLoop(k, trips, by_slot([take(i) for i in range(stages)]))
    body = (kir.Role("give", 0, 1, (giver,)), kir.Role("take", 1, 1, (taker,)))
    return Template(over_tiles("named", 2, body, (s,)), stages, one_cta)


# --- from warp to warp --------------------------------------------------------------------------

_PAIR = 2 * kir.WARP
MOST = 3
"""Tiles that are written out at most."""
FILLS = {
    "loaded": 1,
    "expected": 1,
    "copied": kir.WARP,
    "counted": kir.WARP,
    "awaited": kir.WARP,
    "stored": kir.WARP,
    "joined": 1,
}
"""Every way to fill a slot, and the arrivals that it makes."""


def filled_by(way: str, s: kir.Buffer, full: kir.MBarrier, at: Expr, src: kir.Box) -> Body:
    """Fill a slot from a box in one of the ways, and announce it on a barrier."""
    slot, arrive = kir.Slot(s, at), kir.MBarrierArrive(full, at)
    copy = kir.CpAsync(slot, src, layout(1, 2), 2)
    x = fragment("x", 1)
    match way:
        case "loaded":
            return (kir.Elect(ELECT, fill(s, full, at, src)),)
        case "expected":  # bytes are expected, loaded, and the arrival made by three statements
            expect = kir.MBarrierExpectTx(full, at, NBYTES)
            return (kir.Elect(ELECT, (expect, kir.TmaLoad(slot, src, full, at), arrive)),)
        case "copied":
            return copy, kir.CpAsyncMBarrierArrive(full, at, noinc=True)
        case "counted":  # copies arrive for themselves, and every thread as well
            return copy, kir.CpAsyncMBarrierArrive(full, at, noinc=False), arrive
        case "awaited":
            return copy, kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0), arrive
        case "stored":
            return kir.Load(x, src, 1), kir.Store(slot, x, 1), arrive
        case _:  # joined: the warp stores, is joined, and one lane arrives for it
            stores = (kir.Load(x, src, 1), kir.Store(slot, x, 1))
            return *stores, kir.WarpSync(), kir.Elect(ELECT, (arrive,))


def handed(rng: Random) -> Template:
    """Draw how slots are filled and given back, their number, and a loop or a few tiles."""
    way, arrivals = rng.choice(tuple(FILLS.items()))
    stages, back = rng.randint(1, 3), rng.choice(("each", "one", "block"))
    s, full = slots("S", stages), ring("full", arrivals, stages)
    empty = ring("empty", kir.WARP if back == "each" else 1, stages)
    elected = way in ("loaded", "expected")
    same = rng.random() < 0.3 and not elected
    x = replace(fragment("x", 1), layout=layout(1, 1 if same else 2))
    y = replace(x, name="y")

    def give(at: Expr, src: kir.Box) -> Body:
        slot = at % stages
        fills = filled_by(way, s, full, slot, src)
        if back == "block":
            return *fills, kir.BlockSync(1, _PAIR)
        room = emptied(empty, at, stages)
        match fills:
            case (kir.Elect(per, inner),) if elected:
                return (kir.Elect(per, (room, *inner)),)
            case _:
                return room, *fills

    def take(at: Expr, dst: kir.Box) -> Body:
        slot = at % stages
        free = freed(empty, slot, each_thread=back == "each")
        return (
            filled(full, at, stages),
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
        return Template(kernel, stages, one_cta)
    many = rng.randint(1, MOST)
    given, taken = (
        kir.Tensor(name, DType.F32, (ROWS * many, COLS), (COLS, 1), 4) for name in ("X", "Y")
    )

    def part(tensor: kir.Tensor, number: int) -> kir.Box:
        return kir.Box(tensor, (number * ROWS, 0), (ROWS, COLS), tensor.extents)

    giver = tuple(stmt for i in range(many) for stmt in give(i, part(given, i)))
    taker = tuple(stmt for i in range(many) for stmt in take(i, part(taken, i)))
    kernel = kir.Kernel(
        "handed", (), (given, taken), (), (s,), barriers, _PAIR, body(giver, taker),
        outputs=("Y",), requires=(eq(kir.GRID, 1),),
    )  # fmt: skip
    return Template(kernel, stages, lambda count: ((1, {}),))


# --- several CTAs ------------------------------------------------------------------------------

splits, number = Var("splits"), Var("tile")
W = kir.Tensor("W", DType.F32, (R, C), (C, 1), 4)
_TILES = ceildiv(R, ROWS) * ceildiv(C, COLS)
_SEMAPHORE = kir.Semaphore("turns", _TILES)


def turnstile(rng: Random) -> Template:
    """Let `splits` CTAs add to a tile in order, through registers or by TMA reductions."""
    warps, by_tma = rng.randint(1, 2), rng.random() < 0.5
    across = ceildiv(C, COLS)
    here = {tensor.name: tile(tensor, number // across, number % across) for tensor in (X, Y, W)}
    summed, buffers = (_by_tma if by_tma else _by_registers)(here, warps)
    load = kir.Load(fragment("x", warps), here["X"], 1)
    kernel = _split("turnstile", X, _SEMAPHORE, kir.WARP * warps, (load, *summed), buffers)
    kernel = replace(kernel, residency=rng.choice(("ticket", "co-resident")))
    return Template(kernel, 1, _splits)


def _split(
    name: str,
    x: kir.Tensor,
    semaphore: kir.Semaphore,
    threads: int,
    part: Body,
    buffers: tuple[kir.Buffer, ...],
    barriers: tuple[kir.MBarrier, ...] = (),
) -> kir.Kernel:
    """Return a kernel in which `splits` CTAs do their part of a tile in a semaphore's order."""
    body = (
        kir.Let(number, kir.BLOCK // splits),
        kir.Let(turn, kir.BLOCK % splits),
        *part,
        kir.BlockSync(0, threads),
        kir.Elect(ELECT, (kir.BlockSerializeRelease(semaphore, number, (turn + 1) % splits),)),
    )
    return kir.Kernel(
        name, (R, C, splits), (x, W, Y), (), buffers, barriers, threads, body,
        outputs=("Y",), workspaces=("W",), semaphores=(semaphore,),
        requires=(splits >= 1, eq(kir.GRID, semaphore.count * splits)), residency="ticket",
    )  # fmt: skip


def _splits(count: int) -> tuple[Start, ...]:
    return ((count, {"R": ROWS, "C": COLS, "splits": count}),) if count else ()


_Sum = tuple[Body, tuple[kir.Buffer, ...]]


def _by_registers(here: dict[str, kir.Box], warps: int) -> _Sum:
    x, y, w = fragment("x", warps), fragment("y", warps), fragment("w", warps)
    later = (kir.Load(w, here["W"], 1), kir.Compute(y, "add", (x, w)))
    return (
        kir.BlockSerializeWait(_SEMAPHORE, number, turn),
        kir.IfThenElse(eq(turn, 0), (kir.Compute(y, "cast", (x,)),), later),
        kir.IfThenElse(
            turn + 1 < splits, (kir.Store(here["W"], y, 1),), (kir.Store(here["Y"], y, 1),)
        ),
    ), ()


def _by_tma(here: dict[str, kir.Box], warps: int) -> _Sum:
    s = slots("S", 1)
    store = kir.Store(kir.Slot(s, 0), fragment("x", warps), 1)
    added = _added(_SEMAPHORE, kir.Slot(s, 0), here["W"], here["Y"], fragment("y", warps))
    return (store, kir.FenceAsyncProxy(kir.Space.SHARED), *added), (s,)


def _added(
    semaphore: kir.Semaphore, slot: kir.Slot, w: kir.Box, y: kir.Box, total: kir.Fragment
) -> Body:
    """Store or add a slot to the workspace in order; the last CTA writes the sum."""
    threads, vector = total.layout.threads, total.layout.vector
    reduce = (kir.FenceAsyncProxy(kir.Space.GLOBAL), kir.TmaReduce(w, slot))
    issue = (
        kir.IfThenElse(eq(turn, 0), (kir.TmaStore(w, slot),), reduce),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    write = (kir.BlockSync(0, threads), kir.Load(total, w, vector), kir.Store(y, total, vector))
    return (
        kir.BlockSerializeWait(semaphore, number, turn),
        kir.Elect(ELECT, issue),
        kir.IfThenElse(eq(turn + 1, splits), write),
    )


WIDE, WIDE_THREADS = 128, 256
"""Rows and columns of a large tile, and threads of the CTA that adds it."""


def wide_turns() -> Template:
    """Add up tiles of 64 KB by bulk copies in the order of a semaphore: Y = X[0] + X[1] + ...

    The parts of X lie below each other.  Nearly all of its time is copies under way, so that a
    release that comes too early shows without delays.
    """
    wide, across = (WIDE, WIDE), ceildiv(C, WIDE)
    x = kir.Tensor("X", DType.F32, (R * splits, C), (C, 1), 4)
    semaphore = kir.Semaphore("turns", ceildiv(R, WIDE) * across)
    buffer, full = kir.Buffer("S", DType.F32, wide, 1, 0), ring("full", 1, 1)
    total = kir.Fragment("sum", DType.F32, kir.Layout(wide, 4, WIDE_THREADS))

    def here(tensor: kir.Tensor, below: Expr = 0) -> kir.Box:
        origin = (below + number // across * WIDE, number % across * WIDE)
        return kir.Box(tensor, origin, wide, tensor.extents)

    slot = kir.Slot(buffer, 0)
    load = (
        kir.MBarrierArriveExpectTx(full, 0, buffer.slot_nbytes),
        kir.TmaLoad(slot, here(x, turn * R), full, 0),
    )
    part = (
        *start(full, threads=WIDE_THREADS),
        kir.Elect(ELECT, load),
        kir.MBarrierWaitParity(full, 0, 0),
        *_added(semaphore, slot, here(W), here(Y), total),
    )
    kernel = _split("wide_turns", x, semaphore, WIDE_THREADS, part, (buffer,), (full,))

    def at(ctas: int) -> tuple[Start, ...]:
        return ((ctas, {"R": WIDE, "C": WIDE, "splits": ctas}),) if ctas else ()

    return Template(kernel, 2, at)


def cluster(rng: Random) -> Template:
    """Two CTAs: one loads for both by multicast, or one writes into the other's shared memory."""
    stages = rng.randint(1, 3)
    s, full = slots("S", stages), ring("full", 1, stages)
    multicast = rng.random() < 0.5
    empty = ring("empty", 2 if multicast else 1, stages)
    work = _multicast(s, full, empty) if multicast else _remote(s, full, empty)
    warps = 2 if multicast else 1
    init, _ = start(full, empty, threads=kir.WARP * warps)
    down = ceildiv(R, 2 * ROWS) if multicast else ceildiv(R, ROWS)
    body = (
        kir.Let(trips, down),
        init,
        kir.ClusterArrive(),
        kir.ClusterWait(),
        *work,
        kir.ClusterArrive(),
        kir.ClusterWait(),
    )
    kernel = kir.Kernel(
        "multicast" if multicast else "remote", (R, C), (X, Y), (), (s,), (full, empty),
        kir.WARP * warps, body, outputs=("Y",), requires=(eq(kir.GRID, 2 * ceildiv(C, COLS)),),
        cluster=2,
    )  # fmt: skip
    rows = 2 * ROWS if multicast else ROWS

    def at(count: int) -> tuple[Start, ...]:
        return ((2, {"R": rows * count, "C": COLS}),)

    return Template(kernel, stages, at)


_CLUSTER = kir.BLOCK // 2


def _multicast(s: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
    """CTA 0 loads a tile for both, each stores a row of tiles of its own.

    Both say first to CTA 1, then to CTA 0, that a slot is free: only CTA 0's barrier lets CTA 0 run
    ahead, and its next arrival at CTA 1 must not come before the last one of CTA 1 itself.
    """
    stages, slot = s.slots, k % s.slots
    free = Body(
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot, kir.Scope.CLUSTER, cta),))
        for cta in (1, 0)
    )
    loop = (
        filled(full, k, stages),
        kir.Load(fragment("x", 1), kir.Slot(s, slot), 1),
        kir.WarpSync(),
        *free,
        add(1),
        kir.Store(tile(Y, k * 2 + kir.RANK, _CLUSTER), fragment("y", 1), 1),
    )
    both = kir.TmaLoad(kir.Slot(s, slot), tile(X, k * 2, _CLUSTER), full, slot, multicast=3)
    fill = (
        replace(emptied(empty, k, stages), scope=kir.Scope.CLUSTER),
        kir.MBarrierArriveExpectTx(full, slot, NBYTES),
        kir.IfThenElse(eq(kir.RANK, 0), (both,)),
    )
    return (
        kir.Role("compute", 0, 1, (kir.ForLoop(k, trips, loop),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, trips, (kir.Elect(ELECT, fill),)),)),
    )


def _remote(s: kir.Buffer, full: kir.MBarrier, empty: kir.MBarrier) -> Body:
    """CTA 0 writes tiles into the ring of CTA 1, which stores them."""
    stages, slot, wide = s.slots, k % s.slots, kir.Scope.CLUSTER
    give = (
        kir.Load(fragment("x", 1), tile(X, k, _CLUSTER), 1),
        replace(emptied(empty, k, stages), scope=wide),
        kir.Store(kir.Slot(s, slot, 1), fragment("x", 1), 1),
        kir.WarpSync(),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(full, slot, wide, 1),)),
    )
    take = (
        replace(filled(full, k, stages), scope=wide),
        kir.Load(fragment("x", 1), kir.Slot(s, slot), 1),
        kir.WarpSync(),
        kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, slot, wide, 0),)),
        add(1),
        kir.Store(tile(Y, k, _CLUSTER), fragment("y", 1), 1),
    )
    mine = (kir.ForLoop(k, trips, give),)
    return (kir.IfThenElse(eq(kir.RANK, 0), mine, (kir.ForLoop(k, trips, take),)),)


# --- guards of all kinds -------------------------------------------------------------------------


def amount(rng: Random, names: tuple[Var, ...], depth: int = 2) -> Expr:
    """Draw a number that is never negative, of some names and small constants."""
    if depth == 0 or rng.random() < 0.25:
        return rng.choice(names) if rng.random() < 0.65 else rng.randint(0, 5)
    a, b = (amount(rng, names, depth - 1) for _ in range(2))
    few = rng.randint(2, 3)
    match rng.choice(("sum", "less", "min", "max", "times", "over", "rest", "condition")):
        case "sum":
            return a + b
        case "less":
            return maximum(a - few, 0)
        case "min":
            return minimum(a, b)
        case "max":
            return maximum(a, b)
        case "times":
            return a * few
        case "over":
            return a // few
        case "rest":
            return a % few
        case _:
            return fold(Kind.LT, a, b)


def condition(rng: Random, names: tuple[Var, ...], most: int) -> Expr:
    """Draw a comparison of two numbers, or its opposite; values up to `most` show both answers."""
    while True:
        a, b = amount(rng, names), amount(rng, names, 1)
        test = fold(rng.choice((Kind.LT, Kind.LE, Kind.EQ)), a, b)
        test = eq(test, 0) if rng.random() < 0.3 else test
        small, large = (
            {substitute(test, dict(zip(names, some, strict=True))) for some in pairs}
            for pairs in (_values(names, 0, most + 1), _values(names, most + 1, FAR))
        )
        if large <= small:
            return test


def _values(names: tuple[Var, ...], first: int, end: int) -> list[tuple[int, ...]]:
    """Return values of one name, or of a counter and its end."""
    if len(names) == 1:
        return [(n,) for n in range(first, end)]
    return [(i, n) for n in range(first, end) for i in range(n)]


def guarded(rng: Random) -> Template:
    """Threads of a CTA, or of CTAs in turn, are joined by one of two barriers, as drawn."""
    if rng.random() < 0.5:
        test = condition(rng, (k, trips), 2 * MOST_ROUNDS)
        s = slots("S", 1)
        wide, thin = (kir.Fragment("x", DType.F32, layout(2, vector)) for vector in (2, 1))
        loop = (
            kir.Load(wide, box(X, k), 2),
            kir.Store(kir.Slot(s, 0), wide, 2),
            kir.IfThenElse(test, (kir.BlockSync(0, _PAIR),), (kir.BlockSync(1, _PAIR),)),
            kir.Load(thin, kir.Slot(s, 0), 1),
            add(2),
            kir.Store(box(Y, k), fragment("y", 2), 1),
            kir.BlockSync(2, _PAIR),
        )
        kernel = over_tiles("guarded", 2, (kir.ForLoop(k, trips, loop),), (s,))
        return Template(kernel, MOST_ROUNDS, _and_fewer(one_cta))
    test = condition(rng, (rng.choice((turn, splits)),), 2 * MOST_TURNS)
    same = rng.choice((turn, minimum(turn, splits), maximum(turn, minimum(turn, 3))))

    def chosen(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.BlockSync(0, threads):
                return [kir.IfThenElse(test, (stmt,), (kir.BlockSync(1, threads),))]
            case kir.BlockSerializeWait():
                return [replace(stmt, turn=same)]
            case _:
                return None

    plain = turnstile(rng)
    made = replace(plain.kernel.rewrite(chosen), name="guarded")
    return Template(made, MOST_TURNS, _and_fewer(plain.at))


def _and_fewer(at: Callable[[int], tuple[Start, ...]]) -> Callable[[int], tuple[Start, ...]]:
    """Return launches with a number of trips, and those with up to three fewer."""

    def launches(count: int) -> tuple[Start, ...]:
        return tuple(start for n in range(count, max(count - 4, -1), -1) for start in at(n))

    return launches


def in_bulk(rng: Random) -> Template:
    """Rings, or results that leave, by bulk copies without a tensor map, all or some of them."""
    plain = rng.choice((pipelined, specialized, chained, store_ring))(rng)
    some = rng.random() < 0.3
    narrow = {C: COLS}
    tensors = {t: replace(t, extents=(R, COLS), strides=(COLS, 1)) for t in plain.kernel.tensors}

    def shrunk(part: kir.Box) -> kir.Box:
        ends = (tuple(substitute(e, narrow) for e in of) for of in (part.origin, part.limit))
        return kir.Box(tensors[part.tensor], next(ends), part.shape, next(ends))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if kir.bodies(stmt):
            return None
        made = substituted(stmt, {part: shrunk(part) for part in parts(stmt, kir.Box)})
        match made:
            case kir.Let(_, value):
                made = replace(made, value=substitute(value, narrow))
            case kir.TmaLoad() | kir.TmaStore() if not (some and rng.random() < 0.5):
                made = replace(made, bulk=True)
            case _:
                pass
        return [made]

    made = plain.kernel.rewrite(rule)
    return replace(
        plain,
        kernel=replace(
            made,
            name=f"{made.name}_in_bulk",
            tensors=tuple(tensors.values()),
            requires=(*made.requires, eq(R % ROWS, 0)),
        ),
    )


MOST_ROUNDS, MOST_TURNS = 4, 2
"""Slots of rings with half as many rounds, or turns, as guards tell apart."""
FAR = 40
"""A value beyond which drawn conditions say nothing new."""


FAMILIES: dict[str, Callable[[Random], Template]] = {
    family.__name__: family
    for family in (
        pipelined, specialized, chained, persistent, store_ring, cp_async_ring, cp_async_mbarrier,
        wgmma, turnstile, handed, named, cluster, guarded, in_bulk,
    )
}  # fmt: skip
"""Every family, with what draws a variant of it; they alternate in this order."""
