"""Tiles whose numbers CTAs draw from a counter: one thread draws, all roles work on the tile."""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook import matmul
from fuser.cookbook.ring import emptied, start, step, trips
from fuser.cookbook.ring import ring as ring_of
from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    ONE_CTA,
    PER_WARP,
    SHARED,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    p,
    q,
    s,
    said,
    slots,
    store,
    t,
    tensor,
    wait,
    zero,
)

i, j, u, v = (Var(name) for name in "ijuv")
X, Y, WIDE = tensor("X", n), tensor("Y", n), fragment("x", 64)
RUNS = tuple(Run(grid, (("n", tiles),)) for grid, tiles in ((1, 0), (1, 1), (2, 1), (1, 3), (2, 5)))
LATER = RUNS[-1:]
NEXT = "next"


def numbers(count: int, offset: int = 0) -> kir.Buffer:
    """So many slots for a number."""
    return kir.Buffer("S", DType.I32, (1,), count, offset, pitch=16 if count > 1 else 0)


def ring(position: Expr, count: int) -> Expr:
    """A slot of a ring."""
    return position % count if count > 1 else 0


JOINED = "draw told fetch taken leave work"


def joined(sentence: str = JOINED, *, requires: tuple[Expr, ...] = ()) -> kir.Kernel:
    """All threads of a CTA fetch the number that one of them draws, between two barriers."""
    slot = kir.Slot(numbers(1), 0)
    words: dict[str, kir.Stmt] = {
        "draw": elect(kir.Draw(slot, NEXT)),
        "alone": elect(kir.Draw(slot, NEXT, atomic=False)),
        "told": kir.BlockSync(0, 64),
        "lanes": kir.WarpSync(),
        "fetch": kir.Fetch(t, slot),
        "taken": kir.BlockSync(0, 64),
        "leave": kir.Leave(t, n),
        "early": kir.Leave(t, n - 1),
        "in": load(WIDE, box(X, t)),
        "out": store(box(Y, t), WIDE),
    }
    text = sentence.replace("work", "in out")
    body = (kir.Loop(i, said(text, words)),)
    return replace(_drawn(body, 64, (numbers(1),), ()), requires=requires)


def _drawn(
    body: Body, threads: int, buffers: tuple[kir.Buffer, ...], barriers: tuple[kir.MBarrier, ...]
) -> kir.Kernel:
    made = kernel(
        body, threads=threads, buffers=buffers, barriers=barriers, tensors=(X, Y), requires=()
    )
    return replace(made, counters=(NEXT,))


SCHEDULE, FEED, USE = (
    "room draw lanes give fetch taken leave",
    "wait fetch lanes free leave fill",
    "wait fetch lanes free leave in_wait read out_free out",
)


def roles(
    schedule: str = SCHEDULE, feed: str = FEED, use: str = USE, *, count: int = 1, stages: int = 1
) -> kir.Kernel:
    """A warp draws numbers, one loads those tiles and one stores them, each by the number."""
    told, freed = kir.MBarrier("told", 1, count), kir.MBarrier("freed", 2, count)
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 1, stages)
    tiles, tile = slots("T", stages), fragment("tile")
    numbered = numbers(count, stages * NBYTES)

    def role(name: str, first: int, index: Var, number: Var, sentence: str) -> kir.Role:
        slot, at, turn = kir.Slot(numbered, ring(index, count)), ring(index, count), index // count
        place, round_ = ring(index, stages), index // stages
        words: dict[str, kir.Stmt] = {
            "room": wait(freed, at, turn + 1),
            "draw": elect(kir.Draw(slot, NEXT)),
            "lanes": kir.WarpSync(),
            "taken": kir.WarpSync(),
            "give": elect(kir.MBarrierArrive(told, at)),
            "wait": wait(told, at, turn),
            "wait_wrong": wait(told, at, turn + 1),
            "fetch": kir.Fetch(number, slot),
            "free": elect(kir.MBarrierArrive(freed, at)),
            "leave": kir.Leave(number, n),
            "fill": elect(
                wait(empty, place, round_ + 1),
                kir.MBarrierArriveExpectTx(full, place, NBYTES),
                kir.TmaLoad(kir.Slot(tiles, place), box(X, number), full, place),
            ),
            "in_wait": wait(full, place, round_),
            "read": load(tile, kir.Slot(tiles, place)),
            "out_free": kir.Elect(PER_WARP, (kir.MBarrierArrive(empty, place),)),
            "out": store(box(Y, number), tile),
            "join": kir.WarpSync(),
        }
        return kir.Role(name, first, 1, (kir.Loop(index, said(sentence, words)),))

    body = (
        init(told, freed, full, empty),
        kir.BlockSync(0, 96),
        role("schedule", 0, i, t, schedule),
        role("feed", 1, j, u, feed),
        role("use", 2, s, v, use.replace("out_free", "join out_free")),
    )
    return _drawn(body, 96, (tiles, numbered), (told, freed, full, empty))


def stepped(restart: str = "", stages: int = 2) -> kir.Kernel:
    """Tiles of `m` steps each, through a ring whose position runs on over the tiles.

    `restart` names the roles that set their position back to 0 at each tile.
    """
    told, freed = kir.MBarrier("told", 1, 1), kir.MBarrier("freed", 2, 1)
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 1, stages)
    tiles, numbered = slots("T", stages), numbers(1, stages * NBYTES)
    step, total, steps = fragment("step"), fragment("total"), tensor("X", n * m)
    at, turn = p % stages, p // stages
    load_ = elect(
        wait(empty, at, turn + 1),
        kir.MBarrierArriveExpectTx(full, at, NBYTES),
        kir.TmaLoad(kir.Slot(tiles, at), box(steps, u * m + k), full, at),
    )
    use: Body = (
        wait(full, at, turn),
        load(step, kir.Slot(tiles, at)),
        kir.WarpSync(),
        elect(kir.MBarrierArrive(empty, at)),
        kir.Compute(total, "add", (total, step)),
    )

    def role(name: str, first: int, index: Var, number: Var, body: Body) -> kir.Role:
        again: Body = (kir.Assign(p, 0),) if name in restart.split() else ()
        begin = (
            wait(told, 0, index),
            kir.Fetch(number, kir.Slot(numbered, 0)),
            kir.WarpSync(),
            elect(kir.MBarrierArrive(freed, 0)),
            kir.Leave(number, n),
        )
        return kir.Role(name, first, 1, (kir.Loop(index, (*begin, *again, *body)),))

    draws: Body = (
        wait(freed, 0, i + 1),
        elect(kir.Draw(kir.Slot(numbered, 0), NEXT)),
        kir.WarpSync(),
        elect(kir.MBarrierArrive(told, 0)),
        kir.Fetch(t, kir.Slot(numbered, 0)),
        kir.WarpSync(),
        kir.Leave(t, n),
    )
    on, also_on = kir.Assign(p, p + 1), kir.Assign(p, p + 1)
    inner = kir.ForLoop(q, m, (*use, also_on))
    body = (
        init(told, freed, full, empty),
        kir.BlockSync(0, 96),
        kir.Let(p, 0),
        kir.Role("schedule", 0, 1, (kir.Loop(i, draws),)),
        role("feed", 1, j, u, (kir.ForLoop(k, m, (load_, on)),)),
        role("use", 2, s, v, (zero(total), inner, store(box(Y, v), total))),
    )
    made = _drawn(body, 96, (tiles, numbered), (told, freed, full, empty))
    return replace(made, params=(n, m), tensors=(steps, Y))


def product(leave: str = "drain join put fence join2 send", count: int = 1) -> kir.Kernel:
    """The persistent product of the cookbook, on tiles that a warp of its own draws."""
    (a, b), full, empty = matmul.operands(3), ring_of("full", 1, 3), ring_of("empty", 4, 3)
    staged = kir.Buffer("SD", DType.F32, (64, 8), 1, -(-b.end // 128) * 128)
    numbered = numbers(count, staged.end)
    told, freed = ring_of("told", 1, count), ring_of("freed", 5, count)
    send = kir.TmaStore(matmul.d_box(matmul.D, v), kir.Slot(staged, 0))
    words: dict[str, kir.Stmt] = {
        "drain": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "join": kir.BlockSync(1, 128),
        "put": kir.Store(kir.Slot(staged, 0), matmul.ACC, 2),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join2": kir.BlockSync(2, 128),
        "send": elect(send, kir.AsyncCommit(BULK)),
    }

    def role(
        name: str, first: int, warps: int, index: Var, number: Var, body: Body, *end: kir.Stmt
    ) -> kir.Role:
        at = ring(index, count)
        begin = (
            wait(told, at, index // count),
            kir.Fetch(number, kir.Slot(numbered, at)),
            kir.WarpSync(),
            kir.Elect(PER_WARP, (kir.MBarrierArrive(freed, at),)),
            kir.Leave(number, matmul.tile_count()),
        )
        return kir.Role(name, first, warps, (kir.Loop(index, (*begin, *body)), *end))

    at = ring(i, count)
    draws: Body = (
        wait(freed, at, i // count + 1),
        elect(kir.Draw(kir.Slot(numbered, at), NEXT)),
        kir.WarpSync(),
        elect(kir.MBarrierArrive(told, at)),
        kir.Fetch(t, kir.Slot(numbered, at)),
        kir.WarpSync(),
        kir.Leave(t, matmul.tile_count()),
    )
    fill = (emptied(empty, p, 3), *matmul.loads(a, b, full, p % 3, u, k))
    multiply = kir.ForLoop(k, trips, (*matmul.multiply(a, b, full, empty, p), step(p)))
    body = (
        kir.Let(p, 0),
        *start(full, empty, told, freed, threads=192),
        role(
            "mma",
            0,
            4,
            s,
            v,
            (matmul.zero(), multiply, *said(leave, words)),
            elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        ),
        role("load", 4, 1, j, u, (kir.ForLoop(k, trips, (elect(*fill), step(p))),)),
        kir.Role("draw", 5, 1, (kir.Loop(i, draws),)),
    )
    made = matmul.matmul("drawn", body, (a, b, staged, numbered), (full, empty, told, freed), 192)
    return replace(made, requires=(), counters=(NEXT,))


PRODUCTS = tuple(
    Run(grid, (("M", rows), ("N", 16), ("K", 40))) for grid, rows in ((1, 64), (2, 130))
)
STEPS = tuple(
    Run(grid, (("n", tiles), ("m", steps)))
    for grid, tiles, steps in ((1, 1, 0), (2, 1, 3), (2, 3, 3))
)

LITMUS: tuple[Litmus, ...] = (
    legal(
        "tiles_are_drawn_between_barriers",
        "H84 H70",
        joined(),
        "Each number is drawn once, told of by a barrier, and taken by all before the next one.",
        launches=RUNS,
    ),
    legal(
        "tiles_are_drawn_and_the_loop_left_first",
        "H84 H70",
        joined("draw told fetch leave taken work"),
        "Behind the exit nothing is drawn any more that could be in the way.",
        launches=RUNS,
    ),
    broken(
        "number_fetched_before_it_is_told",
        "H84 H70",
        joined("draw fetch taken leave work"),
        "RAW",
        "tiles_are_drawn_between_barriers",
        "Other threads read what one may not have stored yet.",
        launches=LATER,
    ),
    broken(
        "number_told_to_a_warp_only",
        "H84 H70",
        joined("draw lanes fetch taken leave work"),
        "RAW",
        "tiles_are_drawn_between_barriers",
        "The other warp is not joined.",
        launches=LATER,
    ),
    broken(
        "number_drawn_over_the_one_before",
        "H84 H70",
        joined("draw told fetch leave work"),
        "WAR RAW",
        "tiles_are_drawn_between_barriers",
        "The slot is overwritten before all threads have read it.",
        launches=LATER,
    ),
    broken(
        "two_ctas_draw_one_number",
        "H84",
        joined("alone told fetch taken leave work"),
        "WAW RAW",
        "tiles_are_drawn_between_barriers",
        "Loaded and then stored, one number may be drawn by two CTAs (PTX ISA, atom).",
        launches=LATER,
    ),
    legal(
        "one_cta_draws_by_itself",
        "H84",
        joined("alone told fetch taken leave work", requires=(ONE_CTA,)),
        "Nobody else draws.",
        launches=RUNS[:2],
    ),
    broken(
        "last_tile_is_left_out",
        "H84 H12",
        joined("draw told fetch taken early work"),
        "coverage",
        "tiles_are_drawn_between_barriers",
        "All leave at the number of the last tile.",
        launches=LATER,
    ),
    legal(
        "roles_work_on_tiles_that_one_draws",
        "H84 H05",
        roles(),
        "The number goes through a slot with barriers of its own, freed by both of the others.",
        launches=RUNS,
    ),
    legal(
        "roles_work_on_tiles_two_ahead",
        "H84 H05",
        roles(count=2, stages=2),
        "A ring of two numbers, and of two tiles.",
        launches=RUNS,
    ),
    broken(
        "numbers_drawn_without_room",
        "H84 H05",
        roles(SCHEDULE.replace("room ", "")),
        "WAR WAW RAW parity arrivals",
        "roles_work_on_tiles_that_one_draws",
        "The next number overwrites one that not all roles have fetched.",
        launches=LATER,
    ),
    broken(
        "numbers_drawn_while_the_own_lanes_fetch",
        "H84 H05",
        roles(SCHEDULE.replace("taken ", "")),
        "WAR RAW",
        "roles_work_on_tiles_that_one_draws",
        "The other lanes of the drawing warp free nothing; they are to be joined.",
        launches=LATER,
    ),
    broken(
        "number_given_before_it_is_drawn",
        "H84 H01",
        roles("room give draw lanes fetch taken leave"),
        "RAW WAR",
        "roles_work_on_tiles_that_one_draws",
        "An arrival releases what stands before it.",
        launches=LATER,
    ),
    broken(
        "number_fetched_without_a_wait",
        "H84 H01",
        roles(use=USE.removeprefix("wait ")),
        "RAW WAR parity arrivals",
        "roles_work_on_tiles_that_one_draws",
        "A role may read the number before, or none.",
        launches=LATER,
    ),
    broken(
        "number_awaited_by_the_wrong_parity",
        "H84 H03",
        roles(use=USE.replace("wait ", "wait_wrong ", 1)),
        "RAW WAR parity arrivals deadlock",
        "roles_work_on_tiles_that_one_draws",
        "The wait passes a phase early.",
        launches=LATER,
    ),
    broken(
        "number_freed_before_it_is_fetched",
        "H84 H05",
        roles(feed="wait lanes free fetch leave fill"),
        "WAR RAW",
        "roles_work_on_tiles_that_one_draws",
        "The slot is handed back before it is read.",
        launches=LATER,
    ),
    broken(
        "number_never_freed_by_a_role",
        "H84 H09",
        roles(use=USE.replace("free leave", "leave")),
        "deadlock arrivals",
        "roles_work_on_tiles_that_one_draws",
        "The next number waits for an arrival that nobody makes.",
        launches=LATER,
    ),
    legal(
        "steps_of_tiles_that_one_draws",
        "H84 H05 H03",
        stepped(),
        "A ring of steps runs on over the tiles of a CTA, whichever those are.",
        launches=STEPS,
    ),
    legal(
        "products_of_tiles_that_one_draws",
        "H84 H05 H06 H08",
        product(),
        "Loads, products and stores of a tile follow its number in three roles.",
        launches=PRODUCTS,
    ),
    legal(
        "products_of_tiles_two_ahead",
        "H84 H05 H06 H08",
        product(count=2),
        "The next number may be drawn while the tile of the last one is multiplied.",
        launches=PRODUCTS,
    ),
    broken(
        "product_of_the_tile_before_put_over",
        "H84 H40 H44",
        product("join put fence join2 send"),
        "WAR",
        "products_of_tiles_that_one_draws",
        "The engine may still read the staged tile of the number before.",
        launches=PRODUCTS[1:],
    ),
    broken(
        "steps_of_each_tile_drawn_begin_again",
        "H84 H03",
        stepped("use"),
        "RAW WAR parity deadlock arrivals exit",
        "steps_of_tiles_that_one_draws",
        "The reader begins with the first slot at every tile, the loader goes on.",
        launches=STEPS[-1:],
    ),
)
