"""Threads of one CTA: block and warp barriers, shared and global memory."""

from __future__ import annotations

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.parts import (
    W1,
    X1,
    XN,
    Y1,
    YN,
    Litmus,
    box,
    broken,
    fragment,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    single,
    slots,
    store,
    trips,
)

ONE, TWO = slots("S"), slots("S", 2)


def exchange(
    sentence: str, *, threads: int = 64, buffer: kir.Buffer = ONE, same: bool = False
) -> kir.Kernel:
    """Turn tiles round through shared memory: stored in one layout, loaded in another."""
    mine = fragment("x", threads)
    yours = mine if same else fragment("z", threads, vector=1)
    slot = k % buffer.slots
    words: dict[str, kir.Stmt] = {
        "get": load(mine, box(XN, k)),
        "put": store(kir.Slot(buffer, slot), mine),
        "sync": kir.BlockSync(0, threads),
        "warp": kir.WarpSync(),
        "read": load(yours, kir.Slot(buffer, slot)),
        "sync2": kir.BlockSync(0, threads),
        "warp2": kir.WarpSync(),
        "out": store(box(YN, k), yours),
        "even": kir.IfThenElse(eq(k % 2, 0), (kir.BlockSync(0, threads),)),
        "either": kir.IfThenElse(
            eq(k % 2, 0), (kir.BlockSync(0, threads),), (kir.BlockSync(0, threads),)
        ),
    }
    return kernel((kir.ForLoop(k, n, said(sentence, words)),), threads=threads, buffers=(buffer,))


def by_global(sentence: str) -> kir.Kernel:
    """Exchange a tile between the threads of a CTA through global memory."""
    mine, yours = fragment("x", 64), fragment("z", 64, vector=1)
    words: dict[str, kir.Stmt] = {"sync": kir.BlockSync(0, 64), "warp": kir.WarpSync()}
    body = (
        load(mine, box(X1)),
        store(box(W1), mine),
        *said(sentence, words),
        load(yours, box(W1)),
        store(box(Y1), yours),
    )
    return single(body, threads=64, tensors=(X1, W1, Y1), workspaces=("W",))


def elected_twice(arrivals: int) -> kir.Kernel:
    """One thread of the CTA arrives, though one of each warp is elected inside."""
    bar = kir.MBarrier("bar", arrivals, 1)
    inside = kir.Elect(kir.Per.WARP, (kir.MBarrierArrive(bar, 0),))
    tile = fragment("x", 64)
    body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar),)),
        kir.BlockSync(0, 64),
        kir.Elect(kir.Per.ROLE, (inside,)),
        kir.MBarrierWaitParity(bar, 0, 0),
        load(tile, box(X1)),
        store(box(Y1), tile),
    )
    return single(body, threads=64, barriers=(bar,))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "elected_inside_an_election",
        "H14",
        elected_twice(1),
        "Whoever is not elected outside is not asked inside: one thread arrives.",
    ),
    broken(
        "elected_inside_an_election_counted_by_warp",
        "H14",
        elected_twice(2),
        "arrivals deadlock",
        "elected_inside_an_election",
        "The barrier waits for one arrival of each warp, but the election outside leaves one.",
    ),
    legal(
        "exchange",
        "H70",
        exchange("get put sync read sync2 out"),
        "One barrier before the tile is read under another layout, one before it is overwritten.",
    ),
    broken(
        "exchange_read_without_a_barrier",
        "H70",
        exchange("get put read sync2 out"),
        "RAW",
        "exchange",
        "Threads read what others store, and no barrier stands between (PTX ISA, bar).",
        launches=trips(1, 5),
    ),
    broken(
        "exchange_overwritten_without_a_barrier",
        "H70",
        exchange("get put sync read out"),
        "WAR",
        "exchange",
        "A fast warp overwrites in the next iteration what a slow one still reads.",
        launches=trips(2, 5),
    ),
    broken(
        "exchange_barrier_hoisted_before_the_store",
        "H70",
        exchange("get sync put read sync2 out"),
        "RAW",
        "exchange",
        "The barrier stands before the store instead of behind it.",
        launches=trips(1, 5),
    ),
    broken(
        "exchange_barrier_in_one_branch",
        "H70",
        exchange("get put even read sync2 out"),
        "RAW",
        "exchange_barrier_in_both_branches",
        "In odd iterations no barrier stands before the read (seen in a tile language).",
        launches=trips(2, 5),
    ),
    legal(
        "exchange_barrier_in_both_branches",
        "H70 H71",
        exchange("get put either read sync2 out"),
        "Both branches join all threads, and all take the same one.",
    ),
    legal(
        "double_buffer_with_one_barrier",
        "H70 H53",
        exchange("get put sync read out", buffer=TWO),
        "A slot is overwritten two iterations later, with the barrier of the next between.",
    ),
    broken(
        "double_buffer_without_a_barrier",
        "H70 H53",
        exchange("get put read out", buffer=TWO),
        "RAW WAR",
        "double_buffer_with_one_barrier",
        "Alternating slots replace one barrier of two, not both.",
        launches=trips(1, 5),
    ),
    legal(
        "private_round_trip",
        "H70",
        exchange("get put read out", same=True),
        "Under one layout each thread reads what it stored itself; no barrier is owed.",
    ),
    legal(
        "exchange_inside_a_warp",
        "H70",
        exchange("get put warp read warp2 out", threads=32),
        "In a CTA of one warp a warp barrier joins all (PTX ISA, bar.warp.sync).",
    ),
    broken(
        "exchange_inside_a_warp_without_a_barrier",
        "H70",
        exchange("get put read warp2 out", threads=32),
        "RAW",
        "exchange_inside_a_warp",
        "Lanes of a warp do not run in step.",
        launches=trips(1, 5),
    ),
    broken(
        "exchange_inside_a_warp_overwritten",
        "H70",
        exchange("get put warp read out", threads=32),
        "WAR",
        "exchange_inside_a_warp",
        "Lanes of a warp do not run in step, also across iterations.",
        launches=trips(2, 5),
    ),
    broken(
        "exchange_between_warps_by_a_warp_barrier",
        "H70",
        exchange("get put warp read sync2 out"),
        "RAW",
        "exchange",
        "A warp barrier joins lanes, not warps.",
        launches=trips(1, 5),
    ),
    legal(
        "exchange_through_global_memory",
        "H70",
        by_global("sync"),
        "A block barrier orders global accesses of the CTA as well.",
    ),
    broken(
        "exchange_through_global_memory_without_a_barrier",
        "H70",
        by_global(""),
        "RAW",
        "exchange_through_global_memory",
        "Threads of a CTA exchange through global memory (seen in a fusion compiler that "
        "looked for shared memory only).",
    ),
    broken(
        "exchange_through_global_memory_by_a_warp_barrier",
        "H70",
        by_global("warp"),
        "RAW",
        "exchange_through_global_memory",
        "A warp barrier joins lanes, not warps.",
    ),
)
