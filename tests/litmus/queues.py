"""Queues of copies: entries that finish in order, waited for by how many are still in flight."""

from __future__ import annotations

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus import products
from litmus.parts import (
    QUEUE,
    SHARED,
    WGMMA,
    YN,
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
    q,
    said,
    single,
    slots,
    store,
    tensor,
    trips,
)

STAGES = 3
AHEAD, LOOP = "ahead", "await sync refill read fence out"
X2, Y2 = tensor("X", 2), tensor("Y", 2)
ALL_TRIPS = trips(0, 1, 2, 3, 4, 7)


def copies(
    loop: str = LOOP, *, ahead: str = AHEAD, keep: int = STAGES - 2, tail: int = 0, each: int = 1
) -> kir.Kernel:
    """Return a ring of three slots that one thread fills by its queue and two warps read.

    Of `each` buffers a stage; the await keeps so many entries, at the `tail`, where no new ones
    follow, so many others.
    """
    tensors = [tensor(name, n) for name in ("X", "W")[:each]]
    rings = [slots(name, STAGES, 512 * STAGES * i) for i, name in enumerate("ST"[:each])]
    tiles = [fragment(name, 64) for name in ("x", "w")[:each]]

    def fill(number: Expr) -> tuple[kir.Stmt, ...]:
        return tuple(
            kir.QueueCopy(kir.Slot(ring, number % STAGES), box(of, number))
            for ring, of in zip(rings, tensors, strict=True)
        )

    later = k + (STAGES - 1)
    at = [kir.Slot(ring, k % STAGES) for ring in rings]
    reads = tuple(load(tile, slot) for tile, slot in zip(tiles, at, strict=True))
    total = tiles[0] if each == 1 else fragment("sum", 64)
    adds = () if each == 1 else (kir.Compute(total, "add", tuple(tiles)),)
    words: dict[str, kir.Stmt] = {
        "ahead": elect(kir.IfThenElse(q < n, fill(q))),
        "await": elect(
            kir.IfThenElse(
                later < n + 1, (kir.AsyncAwait(QUEUE, keep),), (kir.AsyncAwait(QUEUE, tail),)
            )
        ),
        "sync": kir.BlockSync(0, 64),
        "refill": elect(kir.IfThenElse(later < n, fill(later))),
        "fence": kir.FenceAsyncProxy(SHARED),
        "out": store(box(YN, k), total),
    }
    words |= {f"read{i}": stmt for i, stmt in enumerate((*reads, *adds))}
    loop = loop.replace("read", " ".join(name for name in words if name.startswith("read")))
    body = (kir.ForLoop(q, STAGES - 1, said(ahead, words)), kir.ForLoop(k, n, said(loop, words)))
    return kernel(body, threads=64, buffers=tuple(rings), tensors=(*tensors, YN))


def two(sentence: str, *, keep: int = 0, slot: int = 1) -> kir.Kernel:
    """One thread copies two tiles, the second into a `slot`; another warp reads one of each."""
    buffer, tile, other = slots("S", 2), fragment("x"), fragment("z")
    words: dict[str, kir.Stmt] = {
        "first": elect(kir.QueueCopy(kir.Slot(buffer, 0), box(X2, 0))),
        "second": elect(kir.QueueCopy(kir.Slot(buffer, slot), box(X2, 1))),
        "await": elect(kir.AsyncAwait(QUEUE, keep)),
        "await2": elect(kir.AsyncAwait(QUEUE, 0)),
        "others_await": kir.Role("other", 1, 1, (elect(kir.AsyncAwait(QUEUE, keep)),)),
        "sync": kir.BlockSync(0, 64),
        "sync2": kir.BlockSync(1, 64),
        "sync3": kir.BlockSync(2, 64),
        "end": elect(kir.AsyncAwait(QUEUE, 0)),
        "clear": kir.Role(
            "clearing", 1, 1, (load(tile, box(X2, 0)), store(kir.Slot(buffer, 0), tile))
        ),
        "fence": kir.FenceAsyncProxy(SHARED),
        "read": kir.Role(
            "reading",
            1,
            1,
            (load(tile, kir.Slot(buffer, 0)), store(box(Y2, 0), tile)),
        ),
        "read2": kir.Role(
            "reading_2",
            1,
            1,
            (load(other, kir.Slot(buffer, slot)), store(box(Y2, 1), other)),
        ),
    }
    return single(said(sentence, words), threads=64, buffers=(buffer,), tensors=(X2, Y2))


MULTIPLY = "await join refill fence mma commit await_mma"


def multiplied(loop: str = MULTIPLY, *, keep: int = 2 * (STAGES - 2)) -> kir.Kernel:
    """Return a warpgroup that multiplies what its first thread copies by its queue, two a step."""
    a, b = products.tiles(STAGES)

    def fill(number: Expr) -> kir.Stmt:
        at = number % STAGES
        both = (
            kir.QueueCopy(kir.Slot(a, at), products.a_box(number)),
            kir.QueueCopy(kir.Slot(b, at), products.b_box(number)),
        )
        return elect(kir.IfThenElse(number < n, both))

    drained = kir.AsyncAwait(QUEUE, 0)
    words: dict[str, kir.Stmt] = {
        "await": elect(kir.IfThenElse(k + 1 < n, (kir.AsyncAwait(QUEUE, keep),), (drained,))),
        "join": kir.BlockSync(0, 128),
        "refill": fill(k + (STAGES - 1)),
        "fence": kir.WgmmaFence(),
        "mma": kir.Wgmma(products.ACC, kir.Slot(a, k % STAGES), kir.Slot(b, k % STAGES)),
        "commit": kir.AsyncCommit(WGMMA),
        "await_mma": kir.AsyncAwait(WGMMA, 0),
    }
    body = (
        kir.Compute(products.ACC, "cast", (products.ZERO,)),
        kir.ForLoop(q, STAGES - 1, (fill(q),)),
        kir.ForLoop(k, n, said(loop, words)),
        kir.Store(products.out_box(), products.ACC, 2),
    )
    tensors = (products.A, products.B, products.OUT)
    return kernel(body, threads=128, buffers=(a, b), tensors=tensors)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "copies_in_a_queue",
        "H50 H51 H53 H55",
        copies(),
        "An entry a step; at the tail, where none follows, all are awaited; one barrier a step.",
        launches=ALL_TRIPS,
    ),
    legal(
        "two_copies_a_step_in_a_queue",
        "H50",
        copies(keep=2 * (STAGES - 2), each=2),
        "Each copy is an entry by itself, so that two a step stay in flight.",
        launches=ALL_TRIPS,
    ),
    broken(
        "one_entry_too_many_in_flight",
        "H50",
        copies(keep=STAGES - 1),
        "RAW",
        "copies_in_a_queue",
        "The entry that is read next may still be in flight.",
        launches=trips(2, 5),
    ),
    broken(
        "half_a_step_too_many_in_flight",
        "H50",
        copies(keep=2 * (STAGES - 2) + 1, each=2),
        "RAW",
        "two_copies_a_step_in_a_queue",
        "Of the step that is read next the second copy may still be in flight.",
        launches=trips(2, 5),
    ),
    broken(
        "tail_of_a_queue_not_awaited",
        "H55",
        copies(tail=STAGES - 2),
        "RAW",
        "copies_in_a_queue",
        "Where no new entries follow, those in flight are the ones that are read.",
        launches=trips(1, 5),
    ),
    legal(
        "queue_always_drained",
        "H50",
        copies(keep=0),
        "Waiting for more than needed is slow, not wrong.",
    ),
    broken(
        "queue_never_awaited",
        "H50",
        copies("sync refill read fence out"),
        "RAW exit",
        "copies_in_a_queue",
        "Nothing waits for the copies.",
        launches=trips(1, 5),
    ),
    broken(
        "queue_awaited_after_the_read",
        "H50",
        copies("sync refill read fence await out"),
        "RAW",
        "copies_in_a_queue",
        "The wait comes an iteration late.",
        launches=trips(1, 5),
    ),
    broken(
        "queue_read_without_a_barrier",
        "H51",
        copies("await refill read fence out"),
        "RAW WAR",
        "copies_in_a_queue",
        "The wait tells the thread whose queue it is, and no other.",
        launches=trips(1, 5),
    ),
    broken(
        "queue_joined_before_the_wait",
        "H51",
        copies("sync await refill read fence out"),
        "RAW",
        "copies_in_a_queue",
        "The barrier joins a thread that has not waited yet.",
        launches=trips(1, 5),
    ),
    broken(
        "slot_queued_again_before_the_barrier",
        "H53",
        copies("await refill sync read fence out"),
        "WAR",
        "copies_in_a_queue",
        "The slot that is refilled may still be read by threads of the step before.",
        launches=trips(5),
    ),
    legal(
        "slot_queued_again_without_a_fence",
        "H31",
        copies("await sync refill read out"),
        "Order is enough; that reads are in another proxy is warned of.",
        warns="proxy",
        launches=ALL_TRIPS,
    ),
    legal(
        "slot_queued_again_behind_a_fence_under_strict",
        "H31",
        copies(ahead="ahead", loop="await sync refill read out fence"),
        "The readers fence before they join.",
        policy="strict",
        launches=ALL_TRIPS,
    ),
    broken(
        "slot_queued_again_without_a_fence_under_strict",
        "H31",
        copies("await sync refill read out"),
        "proxy",
        "slot_queued_again_behind_a_fence_under_strict",
        "The queue writes in the async proxy what was read in the generic one.",
        policy="strict",
        launches=trips(5),
    ),
    legal(
        "the_older_entry_of_two",
        "H50",
        two("first second await sync read end sync2 read2", keep=1),
        "Entries finish in order: with one left in flight the older one is done.",
    ),
    broken(
        "the_younger_entry_of_two",
        "H50",
        two("second first await sync read end sync2 read2", keep=1),
        "RAW",
        "the_older_entry_of_two",
        "The one left in flight is the younger one, which is read.",
    ),
    broken(
        "queue_awaited_by_another_thread",
        "H51",
        two("first second others_await sync read sync2 read2"),
        "RAW exit",
        "the_older_entry_of_two",
        "It waits for its own queue, which is empty.",
    ),
    broken(
        "a_slot_queued_twice",
        "H53",
        two("first await sync read second await2 sync2 read2", slot=0),
        "WAR RAW",
        "a_slot_queued_twice_after_its_reader",
        "Nothing joins the reader of the first tile before the second one is copied.",
    ),
    legal(
        "a_slot_queued_twice_after_its_reader",
        "H53",
        two("first await sync read fence sync2 second await2 sync3 read2", slot=0),
        "The reader fences and joins before the slot is filled again.",
    ),
    broken(
        "two_entries_for_one_slot",
        "H53",
        two("first second await sync read fence sync2 read2", slot=0),
        "WAW",
        "a_slot_queued_twice_after_its_reader",
        "They finish in order, but the second one may begin before the first one has finished.",
    ),
    legal(
        "slot_cleared_before_it_is_queued",
        "H30",
        two("clear fence sync first second await sync2 read end read2"),
        "The writer fences before the thread that queues knows of it.",
    ),
    broken(
        "slot_cleared_without_a_fence_before_it_is_queued",
        "H30",
        two("clear sync first second await sync2 read end read2"),
        "proxy",
        "slot_cleared_before_it_is_queued",
        "The queue writes in the async proxy what was written in the generic one.",
    ),
    legal(
        "product_of_what_a_queue_copies",
        "H26 H50 H51",
        multiplied(),
        "Queue and tensor core are of one proxy: awaits and a barrier a step, and no proxy fence.",
        policy="strict",
    ),
    broken(
        "product_of_a_copy_in_flight",
        "H50",
        multiplied(keep=2 * (STAGES - 2) + 1),
        "RAW",
        "product_of_what_a_queue_copies",
        "Of the step that is multiplied next B may still be in flight.",
        policy="strict",
        launches=trips(2, 5),
    ),
    broken(
        "product_without_a_barrier_behind_the_queue",
        "H51",
        multiplied(MULTIPLY.replace("join ", "")),
        "RAW WAR",
        "product_of_what_a_queue_copies",
        "The wait tells the thread whose queue it is, not the warps that multiply.",
        policy="strict",
        launches=trips(1, 5),
    ),
    broken(
        "operand_queued_again_while_it_is_multiplied",
        "H26",
        multiplied("await refill join fence mma commit await_mma"),
        "WAR",
        "product_of_what_a_queue_copies",
        "Two steps ahead is the slot of the step before, which other warps may not have awaited.",
        policy="strict",
        launches=trips(5),
    ),
)
