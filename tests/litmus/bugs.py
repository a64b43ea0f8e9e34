"""Mistakes that compilers made, beyond one missing word; and kernels that only look odd."""

from __future__ import annotations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    X1,
    XN,
    Y1,
    YN,
    Body,
    Litmus,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    q,
    said,
    single,
    slots,
    store,
    tensor,
    trips,
    wait,
)
from litmus.rings import FULL, RING, SLOT, expect, ring
from litmus.stores import leaving

STAGES = 2
PIPELINED = "wait read sync refill out"


def pipelined(
    loop: str = PIPELINED, *, guarded: bool = True, last: Expr = k + STAGES, full: str = "all"
) -> kir.Kernel:
    """One role of two warps: its first thread loads ahead, all compute; `last` guards refills."""
    buffer, bar, tile = slots("S", STAGES), kir.MBarrier("full", 1, STAGES), fragment("x", 64)

    def issue(number: Expr) -> Body:
        slot = number % STAGES
        return fill(kir.Slot(buffer, slot), box(XN, number), bar, slot)

    first: kir.Stmt = elect(*issue(q))
    every = wait(bar, k % STAGES, k // STAGES)
    words: dict[str, kir.Stmt] = {
        "wait": every if full == "all" else elect(every),
        "publish": kir.BlockSync(1, 64),
        "read": load(tile, kir.Slot(buffer, k % STAGES)),
        "sync": kir.BlockSync(0, 64),
        "refill": kir.IfThenElse(last < n, (elect(*issue(k + STAGES)),)),
        "out": store(box(YN, k), tile),
    }
    body = (
        init(bar),
        kir.BlockSync(0, 64),
        kir.ForLoop(q, STAGES, ((kir.IfThenElse(q < n, (first,)) if guarded else first),)),
        kir.ForLoop(k, n, said(loop, words)),
    )
    return kernel(body, threads=64, buffers=(buffer,), barriers=(bar,))


def in_flight(count: int) -> kir.Kernel:
    """Start three loads at once on `count` mbarriers, then wait for them in turn."""
    buffer, bar, tile = slots("S", 3), kir.MBarrier("full", 1, count), fragment("x")
    x, y = tensor("X", 3), tensor("Y", 3)
    loads = (fill(kir.Slot(buffer, i), box(x, i), bar, i % count) for i in range(3))
    uses = (
        (
            wait(bar, i % count, i // count),
            load(tile, kir.Slot(buffer, i)),
            store(box(y, i), tile),
        )
        for i in range(3)
    )
    body = (
        init(bar),
        kir.BlockSync(0, 32),
        elect(*(stmt for load_one in loads for stmt in load_one)),
        *(stmt for use in uses for stmt in use),
    )
    return single(body, buffers=(buffer,), barriers=(bar,), tensors=(x, y))


def published(sentence: str) -> kir.Kernel:
    """One thread loads a tile and waits for it; the others hear of it by a barrier."""
    buffer, bar, tile = slots("S"), kir.MBarrier("full", 1, 1), fragment("x", 64)
    words: dict[str, kir.Stmt] = {
        "wait": elect(wait(bar, 0, 0)),
        "sync": kir.BlockSync(0, 64),
        "warp": kir.WarpSync(),
    }
    body = (
        init(bar),
        kir.BlockSync(1, 64),
        elect(*fill(kir.Slot(buffer, 0), box(X1), bar)),
        *said(sentence, words),
        load(tile, kir.Slot(buffer, 0)),
        store(box(Y1), tile),
    )
    return single(body, threads=64, buffers=(buffer,), barriers=(bar,))


def fewer_slots() -> kir.Kernel:
    """Return a ring of two barriers over one slot."""
    one = kir.Slot(RING, 0)
    return ring(read=load(fragment("x"), one), fill=kir.TmaLoad(one, box(XN, k), FULL, SLOT))


def expected_by_the_user(use: str) -> kir.Kernel:
    """Let the user expect the bytes and the loader only load."""
    return ring(use, "room fill", user_expects=elect(expect()))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "pipelined_by_one_role",
        "H13 H01 H05",
        pipelined(),
        "Loads run ahead where there is something to load; a barrier frees the slot.",
    ),
    broken(
        "prologue_not_guarded",
        "H13",
        pipelined(guarded=False),
        "exit bounds",
        "pipelined_by_one_role",
        "With fewer trips than stages, loads are in flight for which nobody waits "
        "(seen where the prologue met the epilogue).",
        launches=trips(0, 1),
    ),
    broken(
        "refill_once_too_often",
        "H13",
        pipelined(last=k + STAGES - 1),
        "exit bounds",
        "pipelined_by_one_role",
        "The last refill is a load for which nobody waits.",
    ),
    broken(
        "refill_once_too_seldom",
        "H13 H12",
        pipelined(last=k + STAGES + 1),
        "deadlock",
        "pipelined_by_one_role",
        "The last iteration waits for a load that nobody makes.",
    ),
    broken(
        "pipelined_without_a_barrier",
        "H05 H70",
        pipelined("wait read refill out"),
        "WAR parity RAW deadlock",
        "pipelined_by_one_role",
        "The first thread refills a slot that others still read (seen with one warp row).",
    ),
    broken(
        "pipelined_refill_before_the_barrier",
        "H05",
        pipelined("wait read refill sync out"),
        "WAR parity RAW deadlock",
        "pipelined_by_one_role",
        "The refill stands before the barrier that should hold it back.",
    ),
    legal(
        "pipelined_wait_by_one_thread",
        "H43 H01",
        pipelined("wait publish read sync refill out", full="one"),
        "One thread waits and a barrier tells the others.",
    ),
    broken(
        "pipelined_wait_by_one_thread_unpublished",
        "H01 H43",
        pipelined("wait read sync refill out", full="one"),
        "RAW",
        "pipelined_wait_by_one_thread",
        "The others neither wait nor hear of it.",
        launches=trips(1, 5),
    ),
    legal(
        "loads_on_barriers_of_their_own",
        "H08 H09",
        in_flight(3),
        "Three loads in flight, three barriers.",
    ),
    broken(
        "more_loads_than_barriers",
        "H08 H09",
        in_flight(2),
        "arrivals bytes parity RAW",
        "loads_on_barriers_of_their_own",
        "The third load arrives on the barrier of the first, whose phase may not be over "
        "(seen with eight loads on six barriers).",
    ),
    broken(
        "fewer_slots_than_barriers",
        "H05 H74",
        fewer_slots(),
        "WAR WAW RAW",
        "ring",
        "Two loads are let into one slot at the same time.",
        launches=trips(2, 5),
    ),
    legal(
        "published_by_a_barrier",
        "H43 H35",
        published("wait sync"),
        "One thread waits, a block barrier tells the others; no fence is owed.",
    ),
    broken(
        "published_by_nobody",
        "H43 H01",
        published("wait"),
        "RAW",
        "published_by_a_barrier",
        "What one thread has waited for the others do not know.",
    ),
    broken(
        "published_to_one_warp",
        "H43 H70",
        published("wait warp"),
        "RAW",
        "published_by_a_barrier",
        "A warp barrier does not reach the other warp.",
    ),
    broken(
        "published_before_it_is_known",
        "H43 H01",
        published("sync wait"),
        "RAW",
        "published_by_a_barrier",
        "The barrier stands before the wait.",
    ),
    broken(
        "stores_awaited_after_the_loop",
        "H40 H42",
        leaving(
            "get put fence join issue",
            "last",
            issue=elect(kir.TmaStore(box(YN, k), kir.Slot(slots("S"), 0))),
            last=elect(kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0)),
        ),
        "WAR",
        "results_leave_by_tma",
        "Committed and awaited once, after the loop that reuses the slot "
        "(seen in pointwise kernels with TMA stores).",
        launches=trips(2, 5),
    ),
    legal(
        "expected_by_the_user",
        "H14 H08",
        expected_by_the_user("user_expects wait read free out"),
        "Who expects and who loads may be different threads, within one phase.",
    ),
    broken(
        "expected_by_every_lane_of_the_user",
        "H14 H08 H09",
        ring("user_expects wait read free out", "room fill", user_expects=expect()),
        "arrivals bytes deadlock parity RAW",
        "expected_by_the_user",
        "32 lanes arrive, and expect 32 tiles.",
        launches=trips(1, 5),
    ),
    broken(
        "expected_behind_the_wait",
        "H14 H16",
        expected_by_the_user("wait user_expects read free out"),
        "deadlock",
        "expected_by_the_user",
        "The wait comes before the arrival that it needs.",
        launches=trips(1, 5),
    ),
    broken(
        "expected_and_loaded_under_different_guards",
        "H14 H12",
        ring(feed="room maybe fill", maybe=kir.IfThenElse(k + 1 < n, (expect(),))),
        "deadlock bytes",
        "ring",
        "The last load is not expected, and its phase never gets its arrival.",
        launches=trips(1, 5),
    ),
)
