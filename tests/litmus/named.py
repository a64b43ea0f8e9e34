"""Named barriers: numbers, counts, turns, and who has to reach them."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import (
    X1,
    XN,
    Y1,
    YN,
    Body,
    Litmus,
    box,
    broken,
    elect,
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
    tensor,
    trips,
)
from litmus.rings import ring

ONE = slots("S")
X2, Y2 = tensor("X", 2), tensor("Y", 2)


def teams(barriers: tuple[int, int], count: int = 64) -> kir.Kernel:
    """Two roles of two warps each exchange a tile of their own, joined by a named barrier."""

    def role(me: int) -> kir.Role:
        mine, yours = fragment("x", 64), fragment("z", 64, vector=1)
        buffer = buffers[me]
        body = (
            load(mine, box(X2, me)),
            store(kir.Slot(buffer, 0), mine),
            kir.BlockSync(barriers[me], count),
            load(yours, kir.Slot(buffer, 0)),
            store(box(Y2, me), yours),
        )
        return kir.Role(f"team{me}", 2 * me, 2, body)

    buffers = slots("A"), slots("B", offset=512)
    return single((role(0), role(1)), threads=128, buffers=buffers, tensors=(X2, Y2))


def handover(give: str, take: str, **own: kir.Stmt) -> kir.Kernel:
    """Hand tiles from a role to another by named barriers: 1 is full, 2 is free."""
    mine, yours, slot = fragment("x"), fragment("z", vector=1), kir.Slot(ONE, 0)
    words: dict[str, kir.Stmt] = {
        "get": load(mine, box(XN, k)),
        "put": store(slot, mine),
        "full": kir.NamedArrive(1, 64),
        "free": kir.BlockSync(2, 64),
        "wait": kir.BlockSync(1, 64),
        "read": load(yours, kir.Slot(ONE, 0)),
        "done": kir.NamedArrive(2, 64),
        "out": store(box(YN, k), yours),
    }
    words |= own
    body = (
        kir.Role("give", 0, 1, (kir.ForLoop(k, n, said(give, words)),)),
        kir.Role("take", 1, 1, (kir.ForLoop(k, n, said(take, words)),)),
    )
    return kernel(body, threads=64, buffers=(ONE,))


def crossed(first: tuple[int, int], second: tuple[int, int]) -> kir.Kernel:
    """Two roles meet at two named barriers, each in its own order."""
    tile = fragment("x")

    def sync(order: tuple[int, int]) -> Body:
        return tuple(kir.BlockSync(number, 64) for number in order)

    body = (
        kir.Role("a", 0, 1, (*sync(first), load(tile, box(X1)), store(box(Y1), tile))),
        kir.Role("b", 1, 1, sync(second)),
    )
    return single(body, threads=64)


def lonely(*syncs: kir.Stmt, idle: Body = ()) -> kir.Kernel:
    """One warp of two does something with `syncs` in it; the other does `idle`."""
    mine, yours, slot = fragment("x"), fragment("z", vector=1), kir.Slot(ONE, 0)
    body: Body = (
        kir.Role(
            "work",
            0,
            1,
            (
                load(mine, box(X1)),
                store(slot, mine),
                *syncs,
                load(yours, kir.Slot(ONE, 0)),
                store(box(Y1), yours),
            ),
        ),
    )
    if idle:
        body = (*body, kir.Role("idle", 1, 1, idle))
    return single(body, threads=64, buffers=(ONE,))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "teams_with_barriers_of_their_own",
        "H72 H71",
        teams((1, 2)),
        "Each team joins at a barrier of its own number.",
    ),
    broken(
        "teams_share_a_barrier_number",
        "H72",
        teams((1, 1)),
        "RAW collective deadlock arrivals",
        "teams_with_barriers_of_their_own",
        "A warp of each team may complete the barrier together (seen in a fusion compiler).",
    ),
    broken(
        "teams_count_too_many",
        "H72",
        teams((1, 2), 96),
        "deadlock collective arrivals",
        "teams_with_barriers_of_their_own",
        "64 threads arrive and the barrier asks for 96.",
    ),
    broken(
        "teams_count_too_few",
        "H72 H70",
        teams((1, 2), 32),
        "RAW collective arrivals",
        "teams_with_barriers_of_their_own",
        "The barrier completes with one warp of two.",
    ),
    legal(
        "handover",
        "H72 H70",
        handover("get put full free", "wait read done out"),
        "One side arrives where the other waits, in turn (PTX ISA, bar.arrive).",
    ),
    broken(
        "handover_without_waiting_for_room",
        "H72 H70",
        handover("get put full", "wait read out"),
        "WAR RAW collective deadlock arrivals",
        "handover",
        "The giver arrives a second time before the taker has come, and overwrites the tile.",
    ),
    broken(
        "handover_given_before_the_store",
        "H70 H72",
        handover("get full put free", "wait read done out"),
        "RAW",
        "handover",
        "The arrival covers what stands before it.",
        launches=trips(1, 5),
    ),
    broken(
        "handover_done_before_the_read",
        "H70 H72",
        handover("get put full free", "wait done read out"),
        "WAR",
        "handover",
        "The arrival covers what stands before it, and the read stands after.",
        launches=trips(2, 5),
    ),
    broken(
        "handover_counts_one_role",
        "H72",
        handover("get put full free", "wait read done out", full=kir.NamedArrive(1, 32)),
        "collective deadlock arrivals RAW",
        "handover",
        "Both sides of a named barrier must name the same number of threads.",
        launches=trips(1, 5),
    ),
    broken(
        "handover_to_another_number",
        "H72",
        handover("get put full free", "wait read done out", full=kir.NamedArrive(3, 64)),
        "deadlock collective arrivals",
        "handover",
        "The arrival goes to a barrier that nobody waits at.",
        launches=trips(1, 5),
    ),
    legal(
        "barriers_in_the_same_order",
        "H16 H72",
        crossed((1, 2), (1, 2)),
        "Both roles meet at barrier 1, then at barrier 2.",
    ),
    broken(
        "barriers_in_opposite_order",
        "H16 H72",
        crossed((1, 2), (2, 1)),
        "deadlock",
        "barriers_in_the_same_order",
        "Each role waits at the barrier that the other reaches later "
        "(seen as a hang with several async roles).",
    ),
    legal(
        "role_joins_at_its_own_barrier",
        "H71 H76 H73",
        lonely(kir.BlockSync(1, 32)),
        "One warp joins its own lanes; the idle warp has left already.",
    ),
    broken(
        "role_joins_the_whole_cta",
        "H76 H71",
        lonely(kir.BlockSync(0, 64)),
        "deadlock collective",
        "role_joins_at_its_own_barrier",
        "The other warp never reaches the barrier of the whole CTA.",
    ),
    legal(
        "every_role_joins_the_whole_cta",
        "H76 H71",
        lonely(kir.BlockSync(0, 64), idle=(kir.BlockSync(0, 64),)),
        "All threads reach the barrier, each in its own branch.",
    ),
    broken(
        "one_role_joins_once_more",
        "H71 H72",
        lonely(kir.BlockSync(0, 64), idle=(kir.BlockSync(0, 64), kir.BlockSync(0, 64))),
        "deadlock collective",
        "every_role_joins_the_whole_cta",
        "The second barrier is reached by one warp only.",
    ),
    broken(
        "ring_user_joins_the_whole_cta",
        "H76",
        ring("wait read join free out", join=kir.BlockSync(0, 64)),
        "deadlock collective",
        "ring_user_joins_itself",
        "The loading warp never reaches it (seen in a fusion compiler: a block barrier in the "
        "branch of the computing warps).",
        launches=trips(1, 5),
    ),
    legal(
        "ring_user_joins_itself",
        "H76",
        ring("wait read join free out", join=kir.BlockSync(1, 32)),
        "A role may join its own warps by a barrier of their number.",
    ),
    broken(
        "one_lane_at_a_block_barrier",
        "H71 H73",
        lonely(elect(kir.BlockSync(1, 32))),
        "deadlock collective RAW",
        "role_joins_at_its_own_barrier",
        "A barrier inside an election is reached by one lane of a warp (PTX ISA, bar.sync).",
        refused="inside an elect",
    ),
    broken(
        "half_a_warp_at_a_block_barrier",
        "H73",
        lonely(kir.BlockSync(1, 48)),
        "deadlock collective",
        "role_joins_at_its_own_barrier",
        "Barriers count whole warps (PTX ISA, bar.sync: a multiple of the warp size).",
        refused="multiple of 32",
    ),
)
