"""Bulk groups: TMA stores, their commits, the waits for their sources, and who waits."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    PER_WARP,
    ROLE,
    X1,
    Y1,
    Litmus,
    box,
    broken,
    elect,
    fill,
    init,
    k,
    legal,
    n,
    said,
    single,
    slots,
    tensor,
    trips,
    wait,
)
from litmus.stores import OUT_LOOP, leaving

Z1 = tensor("Z")


def drain(keep: int, *, read_only: bool = True) -> kir.Elect:
    """Wait for bulk groups by the elected thread."""
    return elect(kir.AsyncAwait(BULK, keep, read_only))


def passed_on(sentence: str) -> kir.Kernel:
    """Load a tile by TMA and send it off by TMA, by one thread, without touching it."""
    buffer, bar = slots("S"), kir.MBarrier("full", 1, 1)
    words: dict[str, kir.Stmt] = {
        "load": elect(*fill(kir.Slot(buffer, 0), box(X1), bar)),
        "wait": elect(wait(bar, 0, 0)),
        "store": elect(kir.TmaStore(box(Y1), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "end": drain(0),
    }
    return single(
        (init(bar), kir.BlockSync(0, 32), *said(sentence, words)),
        buffers=(buffer,),
        barriers=(bar,),
    )


LITMUS: tuple[Litmus, ...] = (
    broken(
        "source_overwritten_without_a_wait",
        "H40",
        leaving(OUT_LOOP.replace("drain ", "")),
        "WAR",
        "results_leave_by_tma",
        "The engine may still read the slot that the next iteration stores into.",
        launches=trips(2, 5),
    ),
    broken(
        "source_awaited_after_the_stores",
        "H40 H43",
        leaving(OUT_LOOP.replace("drain sync put", "sync put drain")),
        "WAR",
        "results_leave_by_tma",
        "The wait stands behind the stores that it should hold back.",
        launches=trips(2, 5),
    ),
    legal(
        "source_awaited_at_the_end_of_the_iteration",
        "H40 H44",
        leaving("get put fence join issue drain sync", ""),
        "A wait right behind the issue is as good, and leaves nothing in flight.",
    ),
    broken(
        "groups_not_committed",
        "H42",
        leaving(
            issue=elect(kir.TmaStore(box(tensor("Y", n), k), kir.Slot(slots("S"), 0))),
        ),
        "WAR group exit",
        "results_leave_by_tma",
        "A wait covers committed groups only (PTX ISA, cp.async.bulk.commit_group).",
        launches=trips(2, 5),
    ),
    broken(
        "commit_before_the_store",
        "H42",
        leaving(
            issue=elect(
                kir.AsyncCommit(BULK),
                kir.TmaStore(box(tensor("Y", n), k), kir.Slot(slots("S"), 0)),
            ),
        ),
        "WAR group exit",
        "results_leave_by_tma",
        "The group that is committed is empty; the store joins the next one.",
        launches=trips(2, 5),
    ),
    broken(
        "awaited_by_a_thread_of_another_warp",
        "H43",
        leaving(drain=kir.Role("other", 1, 1, (drain(0),))),
        "WAR group",
        "results_leave_by_tma",
        "Bulk groups belong to the thread that issued them.",
        launches=trips(2, 5),
    ),
    broken(
        "committed_by_a_thread_of_another_warp",
        "H43 H42",
        leaving(
            OUT_LOOP + " commit",
            issue=elect(kir.TmaStore(box(tensor("Y", n), k), kir.Slot(slots("S"), 0))),
            commit=kir.Role("other", 1, 1, (elect(kir.AsyncCommit(BULK)),)),
        ),
        "WAR group exit",
        "results_leave_by_tma",
        "The other thread closes a group of its own, which is empty.",
        launches=trips(2, 5),
    ),
    broken(
        "awaited_without_a_barrier",
        "H43 H40",
        leaving(OUT_LOOP.replace("sync ", "")),
        "WAR",
        "results_leave_by_tma",
        "One thread knows that the slot is free; the others store without having heard of it.",
        launches=trips(2, 5),
    ),
    broken(
        "awaited_behind_the_barrier",
        "H43 H40",
        leaving(OUT_LOOP.replace("drain sync", "sync drain")),
        "WAR",
        "results_leave_by_tma",
        "The barrier joins before the elected thread has waited.",
        launches=trips(2, 5),
    ),
    legal(
        "two_slots_one_group_in_flight",
        "H44 H40",
        leaving(stages=2),
        "The slot of the iteration before last is free when one group is left in flight.",
    ),
    broken(
        "two_slots_two_groups_in_flight",
        "H44 H40",
        leaving(stages=2, drain=drain(2)),
        "WAR",
        "two_slots_one_group_in_flight",
        "Two groups read two slots, and one of them is overwritten.",
    ),
    legal(
        "empty_group_counts",
        "H42 H44",
        leaving(OUT_LOOP + " empty", drain=drain(1), empty=elect(kir.AsyncCommit(BULK))),
        "An empty commit makes a group, so the one left in flight is empty "
        "(PTX ISA, cp.async.bulk.commit_group).",
    ),
    broken(
        "one_slot_one_group_in_flight",
        "H44 H40",
        leaving(drain=drain(1)),
        "WAR",
        "results_leave_by_tma",
        "The group left in flight reads the only slot.",
        launches=trips(2, 5),
    ),
    broken(
        "left_with_a_store_in_flight",
        "H45",
        leaving(after=""),
        "exit",
        "results_leave_by_tma",
        "The shared memory of a CTA that has left may be given to another "
        "(PTX ISA, cp.async.bulk, source lifetime).",
        launches=trips(1, 5),
    ),
    broken(
        "left_with_one_of_two_stores_in_flight",
        "H45 H44",
        leaving(stages=2, after="late", late=drain(1)),
        "exit",
        "two_slots_one_group_in_flight",
        "The last group still reads shared memory at the end.",
        launches=trips(1, 5),
    ),
    legal(
        "left_when_sources_are_read",
        "H45",
        passed_on("load wait store end"),
        "Writes of global memory may still be on their way when a CTA leaves.",
    ),
    broken(
        "passed_on_without_a_wait",
        "H01 H45",
        passed_on("load store end"),
        "RAW exit",
        "left_when_sources_are_read",
        "The store engine may read before the load engine has written.",
    ),
    broken(
        "passed_on_and_left",
        "H45",
        passed_on("load wait store"),
        "exit",
        "left_when_sources_are_read",
        "The store engine still reads shared memory at the end.",
    ),
    broken(
        "store_by_one_thread_of_each_warp",
        "H82 H14",
        leaving(
            issue=kir.Elect(
                PER_WARP,
                (
                    kir.TmaStore(box(tensor("Y", n), k), kir.Slot(slots("S"), 0)),
                    kir.AsyncCommit(BULK),
                ),
            ),
            drain=kir.Elect(PER_WARP, (kir.AsyncAwait(BULK, 0, read_only=True),)),
            end=kir.Elect(PER_WARP, (kir.AsyncAwait(BULK, 0, read_only=True),)),
        ),
        "WAW coverage",
        "store_by_one_thread",
        "Each warp writes the same box (seen with a store issued by a whole warp).",
        launches=trips(1, 5),
        refused="issued by one thread",
    ),
    legal(
        "store_by_one_thread",
        "H82 H14",
        leaving(
            issue=kir.Elect(
                ROLE,
                (
                    kir.TmaStore(box(tensor("Y", n), k), kir.Slot(slots("S"), 0)),
                    kir.AsyncCommit(BULK),
                ),
            ),
            drain=kir.Elect(PER_WARP, (kir.AsyncAwait(BULK, 0, read_only=True),)),
            end=kir.Elect(PER_WARP, (kir.AsyncAwait(BULK, 0, read_only=True),)),
        ),
        "A thread that committed nothing may wait for nothing.",
    ),
)
