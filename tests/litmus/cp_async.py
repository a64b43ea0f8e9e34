"""Ampere's cp.async: groups counted, completion per thread, slots refilled."""

from __future__ import annotations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    CP_ASYNC,
    XN,
    YN,
    Litmus,
    box,
    broken,
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

STAGES = 3
AHEAD, LOOP = "ahead commit", "await sync refill commit2 read out"
X2, Y2 = tensor("X", 2), tensor("Y", 2)


def copies(
    ahead: str = AHEAD, loop: str = LOOP, *, keep: int = STAGES - 2, private: bool = False
) -> kir.Kernel:
    """Return a ring of three slots that two warps fill by cp.async and read in another layout."""
    buffer, mine = slots("S", STAGES), fragment("x", 64)
    yours = mine if private else fragment("z", 64, vector=1)

    def copy(number: Expr) -> kir.CpAsync:
        return kir.CpAsync(kir.Slot(buffer, number % STAGES), box(XN, number), mine.layout, 2)

    later = k + (STAGES - 1)
    words: dict[str, kir.Stmt] = {
        "ahead": kir.IfThenElse(q < n, (copy(q),)),
        "commit": kir.AsyncCommit(CP_ASYNC),
        "await": kir.AsyncAwait(CP_ASYNC, keep),
        "sync": kir.BlockSync(0, 64),
        "refill": kir.IfThenElse(later < n, (copy(later),)),
        "refill_and_commit": kir.IfThenElse(later < n, (copy(later), kir.AsyncCommit(CP_ASYNC))),
        "commit2": kir.AsyncCommit(CP_ASYNC),
        "read": load(yours, kir.Slot(buffer, k % STAGES)),
        "sync2": kir.BlockSync(1, 64),
        "out": store(box(YN, k), yours),
        "await_tail": kir.IfThenElse(
            later < n + 1,
            (kir.AsyncAwait(CP_ASYNC, STAGES - 2),),
            (kir.AsyncAwait(CP_ASYNC, 0),),
        ),
    }
    body = (
        kir.ForLoop(q, STAGES - 1, said(ahead, words)),
        kir.ForLoop(k, n, said(loop, words)),
    )
    return kernel(body, threads=64, buffers=(buffer,))


def announced(waits: int) -> kir.Kernel:
    """Two slots are copied, each announced on its own barrier; both are read after one wait."""
    buffer, tile = slots("S", 2), fragment("x")
    full = kir.MBarrier("full", 32, 2)
    fills: list[kir.Stmt] = []
    for slot in range(2):
        fills += (
            kir.CpAsync(kir.Slot(buffer, slot), box(X2, slot), tile.layout, 1),
            kir.CpAsyncMBarrierArrive(full, slot, noinc=False),
            kir.MBarrierArrive(full, slot),
        )
    uses = [wait(full, waits, 0)]
    for slot in range(2):
        uses += (load(tile, kir.Slot(buffer, slot)), store(box(Y2, slot), tile))
    uses.append(wait(full, 1 - waits, 0))
    body = (
        init(full),
        kir.BlockSync(0, 64),
        kir.Role("fill", 0, 1, tuple(fills)),
        kir.Role("use", 1, 1, tuple(uses)),
    )
    return single(body, threads=64, buffers=(buffer,), barriers=(full,), tensors=(X2, Y2))


def swapped(sentence: str) -> kir.Kernel:
    """Two roles copy a tile each and read the other's."""
    buffer = slots("S", 2)

    def role(me: int) -> kir.Role:
        tile = fragment("x")
        words: dict[str, kir.Stmt] = {
            "copy": kir.CpAsync(kir.Slot(buffer, me), box(X2, me), tile.layout, 4),
            "commit": kir.AsyncCommit(CP_ASYNC),
            "await": kir.AsyncAwait(CP_ASYNC, 0),
            "sync": kir.BlockSync(0, 64),
            "read": load(tile, kir.Slot(buffer, 1 - me)),
            "out": store(box(Y2, 1 - me), tile),
        }
        return kir.Role(f"half{me}", me, 1, said(sentence, words))

    return single((role(0), role(1)), threads=64, buffers=(buffer,), tensors=(X2, Y2))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "copies_in_groups",
        "H50 H51 H53 H55",
        copies(),
        "One group a step, also where nothing is left to copy; one barrier a step "
        "(PTX ISA, cp.async.wait_group).",
        launches=trips(0, 1, 2, 3, 4, 7),
    ),
    broken(
        "one_group_too_many_in_flight",
        "H50",
        copies(keep=STAGES - 1),
        "RAW",
        "copies_in_groups",
        "The group that is read next may still be in flight.",
        launches=trips(1, 5),
    ),
    legal(
        "no_group_in_flight",
        "H50",
        copies(keep=0),
        "Waiting for more than needed is slow, not wrong.",
    ),
    broken(
        "copies_never_awaited",
        "H50",
        copies(loop="sync refill commit2 read out"),
        "RAW exit",
        "copies_in_groups",
        "Nothing waits for the copies.",
        launches=trips(1, 5),
    ),
    broken(
        "copies_awaited_after_the_read",
        "H50",
        copies(loop="sync refill commit2 read await out"),
        "RAW",
        "copies_in_groups",
        "The wait comes an iteration late (seen with a rotated loop).",
        launches=trips(1, 5),
    ),
    broken(
        "prologue_without_commits",
        "H50 H55",
        copies(ahead="ahead"),
        "RAW",
        "copies_in_groups",
        "The copies of the prologue join the first group of the loop, which is awaited later.",
        launches=trips(1, 5),
    ),
    broken(
        "tail_without_commits",
        "H55 H13",
        copies(loop="await sync refill_and_commit read out"),
        "RAW",
        "tail_waits_for_all",
        "In the last steps no group is committed, so the groups left in flight are older ones.",
        launches=trips(2, 5),
    ),
    legal(
        "tail_waits_for_all",
        "H55 H50",
        copies(loop="await_tail sync refill_and_commit read out"),
        "Where no new group follows, all are awaited.",
        launches=trips(0, 1, 2, 3, 4, 7),
    ),
    broken(
        "copies_read_without_a_barrier",
        "H51",
        copies(loop="await refill commit2 read out"),
        "RAW WAR",
        "copies_in_groups",
        "A thread's wait says nothing of what other threads copied.",
        launches=trips(1, 5),
    ),
    broken(
        "copies_joined_before_the_wait",
        "H51",
        copies(loop="sync await refill commit2 read out"),
        "RAW",
        "copies_in_groups",
        "The barrier joins threads that have not waited yet.",
        launches=trips(1, 5),
    ),
    legal(
        "private_copies",
        "H51 H53",
        copies(loop="await refill commit2 read out", private=True),
        "Each thread reads what it copied itself; its own wait is enough.",
        launches=trips(0, 1, 2, 3, 4, 7),
    ),
    legal(
        "swapped_after_a_barrier",
        "H51",
        swapped("copy commit await sync read out"),
        "Each waits for its own copies, then all join.",
    ),
    broken(
        "swapped_without_a_barrier",
        "H51",
        swapped("copy commit await read out"),
        "RAW",
        "swapped_after_a_barrier",
        "The wait covers the copies of the waiting thread only.",
    ),
    broken(
        "swapped_before_the_wait",
        "H51",
        swapped("copy commit sync await read out"),
        "RAW",
        "swapped_after_a_barrier",
        "After a mere issue a barrier orders nothing.",
    ),
    broken(
        "swapped_without_a_commit",
        "H50 H51",
        swapped("copy await sync read out"),
        "RAW group exit",
        "swapped_after_a_barrier",
        "A wait covers committed groups only.",
    ),
    broken(
        "slot_refilled_before_the_barrier",
        "H53",
        copies(loop="await refill commit2 sync read out"),
        "RAW WAR",
        "copies_in_groups",
        "The slot that is refilled may still be read by threads of the step before.",
        launches=trips(5),
    ),
    legal(
        "slot_refilled_after_the_read",
        "H53",
        copies(loop="await sync read refill commit2 out"),
        "The refill goes to another slot than the one read; the barrier stands between.",
        launches=trips(0, 1, 2, 3, 4, 7),
    ),
    legal(
        "the_later_of_two_announced_copies_waited_for",
        "H52",
        announced(1),
        "An arrival waits for all copies of its thread so far (PTX ISA, cp.async.mbarrier.arrive).",
    ),
    broken(
        "the_earlier_of_two_announced_copies_waited_for",
        "H52",
        announced(0),
        "RAW",
        "the_later_of_two_announced_copies_waited_for",
        "It does not wait for copies that come later.",
    ),
)
