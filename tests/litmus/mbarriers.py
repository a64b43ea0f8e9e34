"""Rings of mbarriers: waits and arrivals missing, misplaced, or on another slot."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import (
    NBYTES,
    X1,
    Y1,
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
    said,
    single,
    slots,
    store,
    tensor,
    wait,
)
from litmus.rings import (
    EMPTY,
    FULL,
    IN,
    RING,
    SLOT,
    STAGES,
    TURN,
    arrive,
    ring,
    two_users,
)

RACES = "RAW WAR WAW parity arrivals bytes deadlock exit"


def two_loads(sentence: str, *, sum_up: bool = True) -> kir.Kernel:
    """Load two tiles, each on its own barrier, and add them."""
    a, b = slots("A"), slots("B", offset=NBYTES)
    first, second = kir.MBarrier("first", 1, 1), kir.MBarrier("second", 1, 1)
    other, x, y, z = tensor("Z"), fragment("x"), fragment("y"), fragment("z")
    words: dict[str, kir.Stmt] = {
        "wait_a": wait(first, 0, 0),
        "wait_b": wait(second, 0, 0),
    }
    body = (
        init(first, second),
        kir.BlockSync(0, 32),
        elect(
            *fill(kir.Slot(a, 0), box(X1), first),
            *fill(kir.Slot(b, 0), box(other), second),
        ),
        *said(sentence, words),
        load(x, kir.Slot(a, 0)),
        load(y, kir.Slot(b, 0)),
        kir.Compute(z, "add", (x, y)),
        store(box(Y1), z),
    )
    return single(body, buffers=(a, b), barriers=(first, second), tensors=(X1, other, Y1))


def handed(use: str, give: str) -> kir.Kernel:
    """Hand tiles from a role to another through ordinary stores and mbarriers."""
    wide, words = fragment("x"), dict[str, kir.Stmt]()
    full = kir.MBarrier("full", 32, STAGES)
    words |= {
        "wait": wait(full, SLOT, TURN),
        "read": load(wide, kir.Slot(RING, SLOT)),
        "free": arrive(),
        "out": store(box(tensor("Y", n), k), wide),
        "room": wait(EMPTY, SLOT, TURN + 1),
        "get": load(IN, box(tensor("X", n), k)),
        "put": store(kir.Slot(RING, SLOT), IN),
        "give": arrive(full),
    }
    body = (
        init(full, EMPTY),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, said(use, words)),)),
        kir.Role("give", 1, 1, (kir.ForLoop(k, n, said(give, words)),)),
    )
    return kernel(body, threads=64, buffers=(RING,), barriers=(full, EMPTY))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "ring",
        "H01 H02 H03 H05 H08 H09 H12 H13 H14 H16 H17 H31",
        ring(),
        "Every stage is waited for before it is read, and freed by each reader "
        "(PTX ISA, mbarrier.try_wait); that no fence stands between the reads and the refill "
        "is disputed, and a warning.",
        warns="proxy",
    ),
    broken(
        "ring_read_without_a_wait",
        "H01",
        ring("read free out"),
        RACES,
        "ring",
        "A TMA load is observed through its mbarrier only (PTX ISA, cp.async.bulk, completion).",
    ),
    broken(
        "ring_read_before_its_wait",
        "H01",
        ring("read wait free out"),
        "RAW",
        "ring",
        "A wait orders what follows it, not what stands before it.",
    ),
    legal(
        "handed_by_stores",
        "H01 H05",
        handed("wait read free out", "room get put give"),
        "Each arrival releases the stores of its own thread (PTX ISA, mbarrier.arrive).",
    ),
    broken(
        "handed_by_stores_without_a_wait",
        "H01",
        handed("read free out", "room get put give"),
        "RAW WAR parity arrivals deadlock",
        "handed_by_stores",
        "Ordinary stores of another warp are seen after an acquire only.",
    ),
    broken(
        "handed_before_the_store",
        "H01",
        handed("wait read free out", "room give get put"),
        "RAW",
        "handed_by_stores",
        "A release covers what stands before it, and the store stands after "
        "(seen as an arrive moved before the copy).",
    ),
    broken(
        "handed_store_before_the_room",
        "H05",
        handed("wait read free out", "get put room give"),
        "WAR WAW",
        "handed_by_stores",
        "The store may overwrite a slot that is still read, for the wait comes after it.",
    ),
    legal(
        "two_barriers_both_waited",
        "H02",
        two_loads("wait_a wait_b"),
        "Each load completes on its own barrier, and both are waited for.",
    ),
    legal(
        "two_barriers_waited_in_either_order",
        "H02",
        two_loads("wait_b wait_a"),
        "Waits for different barriers may stand in any order.",
    ),
    broken(
        "two_barriers_second_not_waited",
        "H02",
        two_loads("wait_a"),
        "RAW exit",
        "two_barriers_both_waited",
        "The end of one load says nothing of another (PTX ISA: no order between bulk copies).",
    ),
    broken(
        "two_barriers_first_not_waited",
        "H02",
        two_loads("wait_b"),
        "RAW exit",
        "two_barriers_both_waited",
        "The later load may finish first (PTX ISA: no order between bulk copies).",
    ),
    broken(
        "ring_waits_on_the_next_slot",
        "H02",
        ring(wait=wait(FULL, (k + 1) % STAGES, TURN)),
        "RAW deadlock parity",
        "ring",
        "The barrier of another slot tells of another load.",
    ),
    broken(
        "ring_frees_the_next_slot",
        "H02 H05",
        ring(free=arrive(EMPTY, (k + 1) % STAGES)),
        "WAR WAW deadlock parity arrivals bytes",
        "ring",
        "The slot that was read stays taken, and one that is in use is given away.",
    ),
    broken(
        "ring_refilled_without_room",
        "H05",
        ring(feed="expect fill"),
        "WAR WAW parity arrivals bytes deadlock RAW",
        "ring",
        "Nothing keeps the refill from the slot until its readers are done.",
    ),
    broken(
        "ring_freed_before_the_read",
        "H05",
        ring("wait free read out"),
        "WAR",
        "ring",
        "The arrival releases what stands before it; the read stands after it.",
    ),
    broken(
        "ring_refilled_before_the_room",
        "H05",
        ring(feed="expect fill room"),
        RACES,
        "ring",
        "The wait stands after the copy it should hold back (seen in a fusion compiler).",
    ),
    legal(
        "two_users_one_empty_barrier",
        "H04 H05",
        two_users(),
        "The empty barrier counts the arrivals of both readers.",
    ),
    broken(
        "two_users_one_arrives",
        "H05 H04",
        two_users(second="wait read"),
        "WAR WAW RAW parity deadlock",
        "two_users_one_empty_barrier",
        "The second reader never says that it is done.",
    ),
    legal(
        "two_users_two_empty_barriers",
        "H05",
        two_users(shared=False),
        "The loader waits for the empty barrier of each reader.",
    ),
    broken(
        "two_users_two_barriers_one_waited",
        "H05 H04",
        two_users(shared=False, rooms="room"),
        "WAR WAW RAW parity deadlock",
        "two_users_two_empty_barriers",
        "The loader asks one of the two readers only.",
    ),
)
