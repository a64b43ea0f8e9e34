"""Prologue, main loop and epilogue: copies that run ahead of the loop which uses them."""

from __future__ import annotations

from fuser.expr import Expr, Var, maximum, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    CP_ASYNC,
    XN,
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
    p,
    q,
    slots,
    store,
    trips,
    wait,
)

main, e, at = Var("main"), Var("e"), Var("at")


def ahead_by_tma(
    ahead: int,
    stages: int,
    *,
    first: str = "fewer",
    rest: Expr | None = None,
    refill: int | None = None,
    joined: bool = True,
    behind: int = 0,
    position: str = "derived",
) -> kir.Kernel:
    """Return a kernel of two warps that copies `ahead` tiles before its loop, by one thread.

    The prologue copies the `first` tiles in one of several ways; the epilogue takes the `rest`,
    by positions that are derived from the counters or stepped.
    """
    buffer, full, tile = slots("S", stages), kir.MBarrier("full", 1, stages), fragment("x", 64)
    again = ahead if refill is None else refill

    def copy(number: Expr) -> kir.Stmt:
        slot = number % stages
        return elect(*fill(kir.Slot(buffer, slot), box(XN, number), full, slot))

    def use(number: Expr) -> Body:
        read = load(tile, kir.Slot(buffer, number % stages))
        return (
            wait(full, number % stages, number // stages + behind),
            read,
            store(box(YN, number), tile),
        )

    prologues: dict[str, Body] = {
        "fewer": (kir.ForLoop(q, minimum(n, ahead), (copy(q),)),),
        "guarded": (kir.ForLoop(q, ahead, (kir.IfThenElse(q < n, (copy(q),)),)),),
        "written_out": tuple(kir.IfThenElse(i < n, (copy(i),)) for i in range(ahead)),
        "all": (kir.ForLoop(q, ahead, (copy(q),)),),
    }
    join: Body = (kir.BlockSync(0, 64),) if joined else ()
    steps = position == "stepped"

    def step() -> Body:
        return (kir.Assign(p, p + 1),) if steps else ()

    turn = (*use(p if steps else k), *join, copy(k + again), *step())
    last: Body = (*use(p), *step()) if steps else (kir.Let(at, main + e), *use(at))
    tail = kir.ForLoop(e, n - main if rest is None else rest, last)
    body = (
        init(full),
        kir.BlockSync(0, 64),
        *((kir.Let(p, 0),) if steps else ()),
        kir.Let(main, maximum(n - ahead, 0)),
        *prologues[first],
        kir.ForLoop(k, main, turn),
        tail,
    )
    return kernel(body, threads=64, buffers=(buffer,), barriers=(full,))


def ahead_by_cp_async(
    ahead: int, stages: int, *, keep: int | None = None, drained: bool = True
) -> kir.Kernel:
    """Return a kernel that copies `ahead` tiles by cp.async, a group each, before its loop."""
    buffer, tile, thin = slots("S", stages), fragment("x", 64), fragment("z", 64, vector=1)

    def copy(number: Expr) -> Body:
        slot = kir.Slot(buffer, number % stages)
        one = kir.CpAsync(slot, box(XN, number), tile.layout, 2)
        return (kir.IfThenElse(number < n, (one,)), kir.AsyncCommit(CP_ASYNC))

    def use(number: Expr) -> Body:
        return (load(thin, kir.Slot(buffer, number % stages)), store(box(YN, number), thin))

    kept = ahead - 1 if keep is None else keep
    turn = (kir.AsyncAwait(CP_ASYNC, kept), kir.BlockSync(0, 64), *use(k), kir.BlockSync(1, 64))
    finish = (kir.AsyncAwait(CP_ASYNC, 0),) if drained else ()
    body = (
        kir.Let(main, maximum(n - ahead, 0)),
        kir.ForLoop(q, ahead, copy(q)),
        kir.ForLoop(k, main, (*turn, *copy(k + ahead))),
        *finish,
        kir.BlockSync(0, 64),
        kir.ForLoop(e, n - main, (kir.Let(at, main + e), *use(at))),
    )
    return kernel(body, threads=64, buffers=(buffer,))


def fed_ahead(ahead: int, stages: int, *, rooms: int = 0, first: Expr | None = None) -> kir.Kernel:
    """Return a ring whose loader fills the first slots without asking for room."""
    buffer, tile = slots("S", stages), fragment("x")
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 32, stages)
    begun = minimum(n, ahead) if first is None else first

    def copy(number: Expr, *before: kir.Stmt) -> kir.Stmt:
        slot = number % stages
        return elect(*before, *fill(kir.Slot(buffer, slot), box(XN, number), full, slot))

    later = k + ahead
    room = wait(empty, later % stages, later // stages + 1 + rooms)
    use = (
        wait(full, k % stages, k // stages),
        load(tile, kir.Slot(buffer, k % stages)),
        kir.MBarrierArrive(empty, k % stages),
        store(box(YN, k), tile),
    )
    feed = (
        kir.ForLoop(q, begun, (copy(q),)),
        kir.ForLoop(k, maximum(n - ahead, 0), (copy(later, room),)),
    )
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, use),)),
        kir.Role("load", 1, 1, feed),
    )
    return kernel(body, threads=64, buffers=(buffer,), barriers=(full, empty))


SEVERAL = trips(0, 1, 2, 3, 4, 7)
LITMUS: tuple[Litmus, ...] = (
    *(
        legal(
            f"slots_{stages}_ahead_{ahead}_{first}_{position}",
            "H10 H20 H21",
            ahead_by_tma(ahead, stages, first=first, position=position),
            "Every tile is copied once, by prologue or loop, and used once, by loop or epilogue.",
            launches=SEVERAL,
        )
        for ahead, stages, first, position in (
            (1, 1, "fewer", "derived"),
            (2, 2, "fewer", "derived"),
            (2, 2, "guarded", "derived"),
            (2, 2, "written_out", "stepped"),
            (3, 3, "written_out", "derived"),
            (3, 3, "fewer", "stepped"),
            (2, 3, "guarded", "stepped"),
            (2, 4, "fewer", "derived"),
            (4, 4, "guarded", "derived"),
        )
    ),
    *(
        legal(
            f"slots_{stages}_groups_ahead_{ahead}",
            "H50 H51",
            ahead_by_cp_async(ahead, stages),
            "A group is committed for every turn, also where it is empty.",
            launches=SEVERAL,
        )
        for ahead, stages in ((1, 1), (2, 2), (2, 3), (3, 3))
    ),
    *(
        legal(
            f"loader_{ahead}_ahead_of_{stages}_slots",
            "H10 H16",
            fed_ahead(ahead, stages),
            "The first slots are empty; for the others the loader asks.",
            launches=SEVERAL,
        )
        for ahead, stages in ((1, 1), (2, 2), (3, 3), (1, 3), (2, 4))
    ),
    broken(
        "prologue_of_more_than_there_are",
        "H10 H16",
        ahead_by_tma(2, 2, first="all"),
        "exit",
        "slots_2_ahead_2_fewer_derived",
        "Of fewer tiles than that the prologue copies one that nobody waits for.",
        launches=trips(0, 1),
    ),
    broken(
        "last_tiles_one_too_few",
        "H10 H16",
        ahead_by_tma(2, 2, rest=minimum(n, 1)),
        "exit coverage",
        "slots_2_ahead_2_fewer_derived",
        "The last tile is copied and left alone.",
        launches=trips(2, 5),
    ),
    broken(
        "last_tiles_one_too_many",
        "H10 H16",
        ahead_by_tma(2, 4, rest=2),
        "deadlock",
        "slots_4_ahead_2_fewer_derived",
        "Of a single tile the epilogue waits for two.",
        launches=trips(0, 1),
    ),
    broken(
        "loop_copies_one_too_far",
        "H10 H16",
        ahead_by_tma(3, 3, first="written_out", refill=4),
        "RAW WAR WAW parity deadlock coverage bytes arrivals exit",
        "slots_3_ahead_3_written_out_derived",
        "The tile behind the prologue's is never copied.",
        launches=trips(4, 7),
    ),
    broken(
        "loop_refills_without_a_barrier",
        "H10 H21",
        ahead_by_tma(2, 2, first="guarded", joined=False),
        "WAR",
        "slots_2_ahead_2_guarded_derived",
        "The other warp may still read the slot.",
        launches=trips(3, 7),
    ),
    broken(
        "a_prologue_a_phase_behind",
        "H10 H16",
        ahead_by_tma(4, 4, first="guarded", behind=1),
        "RAW parity",
        "slots_4_ahead_4_guarded_derived",
        "The wait passes before the copy has come.",
        launches=trips(1, 7),
    ),
    broken(
        "groups_ahead_and_one_more_kept",
        "H50 H51",
        ahead_by_cp_async(2, 3, keep=2),
        "RAW",
        "slots_3_groups_ahead_2",
        "The group of the turn itself may be in flight.",
        launches=trips(3, 7),
    ),
    broken(
        "groups_ahead_not_drained",
        "H50 H51",
        ahead_by_cp_async(3, 3, drained=False),
        "RAW",
        "slots_3_groups_ahead_3",
        "The epilogue reads what is still in flight.",
        launches=trips(1, 7),
    ),
    broken(
        "loader_ahead_of_more_than_there_are",
        "H10 H16",
        fed_ahead(2, 2, first=2),
        "exit",
        "loader_2_ahead_of_2_slots",
        "Of fewer tiles than slots one is filled that nobody waits for.",
        launches=trips(0, 1),
    ),
    broken(
        "loader_asks_for_the_room_before",
        "H10 H16",
        fed_ahead(3, 3, rooms=1),
        "WAR RAW WAW parity deadlock arrivals",
        "loader_3_ahead_of_3_slots",
        "The wait passes while the slot is read.",
        launches=trips(4, 7),
    ),
    broken(
        "loader_ahead_by_more_than_it_skips",
        "H10 H16",
        fed_ahead(2, 4, first=minimum(n, 3)),
        "arrivals bytes WAW WAR RAW parity deadlock exit",
        "loader_2_ahead_of_4_slots",
        "The third tile is copied twice.",
        launches=trips(3, 7),
    ),
)
