"""Which phase a wait sees: parities, waiters left behind, persistent tiles, roles that wait."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.parts import (
    PER_WARP,
    ROLE,
    XN,
    YN,
    Litmus,
    Run,
    box,
    broken,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    single,
    store,
    tensor,
    trips,
    wait,
)
from litmus.rings import (
    EMPTY,
    FULL,
    SLOT,
    TURN,
    one_stage,
    ring,
    shifted,
    tiled,
    two_users,
    two_warps,
)

TILES = tuple(Run(1, (("m", tiles),)) for tiles in (0, 1, 2, 3))
LATER_TILES = (Run(1, (("m", 3),)),)
ONE, ALL_64 = replace(EMPTY, arrivals=1), replace(EMPTY, arrivals=64)
TWO = replace(EMPTY, arrivals=2)


def leader() -> kir.Elect:
    """Arrive once for the role."""
    return kir.Elect(ROLE, (kir.MBarrierArrive(ONE, SLOT),))


def alternating(first: int, second: int) -> kir.Kernel:
    """Two roles take iterations in turn, each let in by the other; last turns let nobody in.

    `first` and `second` are what is added to the turn number in their waits.
    """
    order = kir.MBarrier("order", 32, 2)
    tile = fragment("x")

    def role(me: int, add: int) -> kir.Role:
        mine = (
            wait(order, me, k // 2 + add),
            load(tile, box(XN, k)),
            store(box(YN, k), tile),
            kir.MBarrierArrive(order, 1 - me),
        )
        return kir.Role(f"turn{me}", me, 1, (kir.ForLoop(k, n, (_own(me, mine),)),))

    body = (init(order), kir.BlockSync(0, 64), role(0, first), role(1, second))
    return kernel(body, threads=64, barriers=(order,))


def _own(me: int, body: tuple[kir.Stmt, ...]) -> kir.IfThenElse:
    return kir.IfThenElse(eq(k % 2, me), body)


def meeting(first: str, second: str) -> kir.Kernel:
    """Two roles meet on two one-shot mbarriers, in the words of each."""
    a, b = kir.MBarrier("a", 32, 1), kir.MBarrier("b", 32, 1)
    tile = fragment("x")

    def role(number: int, sentence: str) -> kir.Role:
        words: dict[str, kir.Stmt] = {
            "arrive_a": kir.MBarrierArrive(a, 0),
            "arrive_b": kir.MBarrierArrive(b, 0),
            "wait_a": wait(a, 0, 0),
            "wait_b": wait(b, 0, 0),
        }
        return kir.Role(f"role{number}", number, 1, said(sentence, words))

    body = (
        init(a, b),
        kir.BlockSync(0, 96),
        role(0, first),
        role(1, second),
        kir.Role("out", 2, 1, (load(tile, box(X1)), store(box(Y1), tile))),
    )
    return single(body, threads=96, barriers=(a, b))


X1, Y1 = tensor("X"), tensor("Y")

LITMUS: tuple[Litmus, ...] = (
    broken(
        "full_parity_flipped",
        "H03",
        ring(wait=wait(FULL, SLOT, TURN + 1)),
        "RAW parity arrivals deadlock",
        "ring",
        "On a fresh barrier a wait for parity 1 passes at once (PTX ISA, mbarrier.test_wait).",
        launches=trips(1, 5),
    ),
    broken(
        "empty_parity_flipped",
        "H03 H16",
        ring(room=wait(EMPTY, SLOT, TURN)),
        "deadlock parity",
        "ring",
        "The loader waits for room in a ring that is still empty, and nobody fills it.",
        launches=trips(1, 5),
    ),
    broken(
        "parity_of_the_slot_number",
        "H03",
        ring(wait=kir.MBarrierWaitParity(FULL, SLOT, SLOT)),
        "RAW parity arrivals deadlock",
        "ring",
        "The parity belongs to the turn, not to the slot (seen in a tile language).",
    ),
    broken(
        "parity_always_zero",
        "H03",
        ring(wait=kir.MBarrierWaitParity(FULL, SLOT, 0)),
        "RAW parity arrivals deadlock",
        "ring",
        "In the second turn the phase of the first is taken for this one.",
    ),
    legal(
        "positions_start_at_three",
        "H03",
        shifted(TURN),
        "Turns are counted from the first use of a slot, whatever its number.",
    ),
    broken(
        "parity_from_a_position_not_counted_from_zero",
        "H03",
        shifted((k + 3) // 2),
        "RAW parity arrivals deadlock",
        "positions_start_at_three",
        "The first turn of a slot is turn 0, though the position starts at 3 "
        "(seen with loops that start elsewhere than at 0).",
    ),
    legal("one_stage_ring", "H03 H13", one_stage(), "A ring of one slot: the parity alternates."),
    broken(
        "one_slot_with_the_parity_of_a_ring",
        "H03",
        one_stage(k // 2),
        "RAW parity arrivals deadlock",
        "one_stage_ring",
        "A barrier used in every iteration changes its phase in every iteration.",
    ),
    broken(
        "observer_is_lapped",
        "H04",
        two_users(second="wait"),
        "parity deadlock",
        "observer_arrives",
        "Nothing keeps the ring from running two phases ahead of a role that only watches "
        "(PTX ISA, mbarrier: a parity wait tells a phase from the next, not from the one after).",
    ),
    legal(
        "observer_arrives",
        "H04",
        two_users(second="wait free"),
        "The watcher is counted by the empty barrier, so the ring cannot lap it.",
    ),
    broken(
        "leader_arrives_before_its_peers_left_the_wait",
        "H04 H05",
        two_warps("wait read leader out", ONE, leader=leader()),
        "parity WAR deadlock RAW",
        "leader_arrives_after_a_barrier",
        "Waits return per thread; the other warp may still stand in its wait.",
    ),
    broken(
        "leader_arrives_and_peers_read_nothing",
        "H04",
        two_warps(
            "wait leader own out",
            ONE,
            leader=leader(),
            own=load(fragment("x", 64), box(XN, k)),
        ),
        "parity deadlock",
        "leader_arrives_after_a_barrier_and_peers_read_nothing",
        "Without any data in danger the wait of the other warp can still be lapped.",
    ),
    legal(
        "leader_arrives_after_a_barrier_and_peers_read_nothing",
        "H04",
        two_warps(
            "wait join leader own out",
            ONE,
            leader=leader(),
            own=load(fragment("x", 64), box(XN, k)),
        ),
        "Every thread has left its wait before the one arrival.",
    ),
    legal(
        "leader_arrives_after_a_barrier",
        "H04 H05",
        two_warps("wait read join leader out", ONE, leader=leader()),
        "The barrier of the role stands between the reads of all and the arrival of one.",
    ),
    legal(
        "each_warp_arrives_for_itself",
        "H04 H05 H09",
        two_warps(
            "wait read warp each out",
            TWO,
            each=kir.Elect(PER_WARP, (kir.MBarrierArrive(TWO, SLOT),)),
        ),
        "One arrival per warp, after a warp barrier, counts every reader.",
    ),
    broken(
        "count_forgets_the_second_warp",
        "H09 H05",
        two_warps(
            "wait read warp each out",
            ONE,
            each=kir.Elect(PER_WARP, (kir.MBarrierArrive(ONE, SLOT),)),
        ),
        "arrivals WAR parity",
        "each_warp_arrives_for_itself",
        "Two warps arrive on a barrier of one arrival.",
    ),
    legal(
        "roles_alternate",
        "H04 H16",
        alternating(1, 0),
        "The last arrival is waited for by nobody, and no waiter can be confused.",
    ),
    broken(
        "roles_alternate_and_both_wait_first",
        "H16 H03",
        alternating(0, 0),
        "deadlock",
        "roles_alternate",
        "Each waits for the other to go first (seen as a wrong start parity).",
        launches=trips(1, 5),
    ),
    broken(
        "roles_alternate_and_both_start",
        "H03",
        alternating(1, 1),
        "parity deadlock arrivals",
        "roles_alternate",
        "The second role passes at once only if it comes early; late, it waits for its own turn.",
    ),
    legal(
        "meeting_arrive_then_wait",
        "H16",
        meeting("arrive_a wait_b", "arrive_b wait_a"),
        "Both arrive before they wait.",
    ),
    broken(
        "meeting_each_waits_first",
        "H16",
        meeting("wait_b arrive_a", "wait_a arrive_b"),
        "deadlock",
        "meeting_arrive_then_wait",
        "Each waits for the other before it arrives itself.",
    ),
    legal(
        "meeting_one_waits_first",
        "H16",
        meeting("wait_b arrive_a", "arrive_b wait_a"),
        "One of two may wait first.",
    ),
    broken(
        "meeting_nobody_arrives_for_one",
        "H16 H09",
        meeting("arrive_a wait_b", "wait_a"),
        "deadlock",
        "meeting_arrive_then_wait",
        "A wait without any arrival waits forever.",
    ),
    legal(
        "position_runs_on_across_tiles",
        "H15",
        tiled(3),
        "The position counts over the whole life of the ring.",
        launches=TILES,
    ),
    broken(
        "parity_from_the_inner_index",
        "H15 H03",
        tiled(3, turn=k // 2, slot=k % 2),
        "RAW parity deadlock WAR WAW arrivals bytes exit",
        "position_runs_on_across_tiles",
        "Three steps a tile are no multiple of two turns of the ring "
        "(seen in persistent kernels: the phase is derived from the inner loop).",
        launches=LATER_TILES,
    ),
    legal(
        "parity_from_the_inner_index_of_whole_turns",
        "H15",
        tiled(4, turn=k // 2, slot=k % 2),
        "Four steps are two whole turns of two slots, so every tile starts at parity 0.",
        launches=TILES,
    ),
    broken(
        "user_restarts_its_position",
        "H15",
        tiled(3, restart="use"),
        "RAW parity deadlock WAR arrivals",
        "position_runs_on_across_tiles",
        "The two roles no longer mean the same slot in the second tile.",
        launches=LATER_TILES,
    ),
    broken(
        "loader_restarts_its_position",
        "H15",
        tiled(3, restart="load"),
        "RAW parity deadlock WAR WAW arrivals bytes",
        "position_runs_on_across_tiles",
        "The loader fills slots out of turn in the second tile.",
        launches=LATER_TILES,
    ),
    broken(
        "wait_gives_up",
        "H17",
        ring(wait=kir.MBarrierWaitParity(FULL, SLOT, TURN % 2, retry=False)),
        "RAW WAR parity arrivals",
        "ring",
        "A try_wait may return before the phase is complete (PTX ISA, mbarrier.try_wait).",
    ),
    broken(
        "room_gives_up",
        "H17",
        ring(room=kir.MBarrierWaitParity(EMPTY, SLOT, (TURN + 1) % 2, retry=False)),
        "WAR WAW parity arrivals bytes RAW",
        "ring",
        "A try_wait that timed out is taken for room (PTX ISA, mbarrier.try_wait).",
    ),
)
