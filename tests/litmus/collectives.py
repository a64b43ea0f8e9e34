"""What warps do together, and counts that are reached in several steps."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from litmus.parts import (
    CP_ASYNC,
    NBYTES,
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

PER_WARP = kir.Per.WARP
X2, Y2 = tensor("X", 2), tensor("Y", 2)


def arrived(steps: int, count: int, *, extra: bool = False, reads: str = "before") -> kir.Kernel:
    """Return a ring whose user arrives several times for a slot, as often as that is counted."""
    buffer, tile = slots("S", 2), fragment("x")
    full, empty = kir.MBarrier("full", 1, 2), kir.MBarrier("empty", count, 2)
    slot, turn = k % 2, k // 2
    one = elect(kir.MBarrierArrive(empty, slot))
    free: Body = (kir.WarpSync(), kir.ForLoop(q, steps, (one,)))
    read = load(tile, kir.Slot(buffer, slot))
    more = (elect(kir.MBarrierArrive(empty, slot)),) if extra else ()
    body: Body = (read, *free) if reads == "before" else (*free, read)
    use = (wait(full, slot, turn), *body, *more, store(box(YN, k), tile))
    feed = elect(wait(empty, slot, turn + 1), *fill(kir.Slot(buffer, slot), box(XN, k), full, slot))
    whole = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, use),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    return kernel(whole, threads=64, buffers=(buffer,), barriers=(full, empty))


def exchanged(first: kir.Stmt, second: kir.Stmt, *, params: tuple[Var, ...] = ()) -> kir.Kernel:
    """Two roles hand each other a tile, each with a barrier of its own text."""
    buffer = slots("S", 2)

    def role(me: int, join: kir.Stmt) -> kir.Role:
        x, y = fragment("x"), fragment("y")
        body = (
            load(x, box(X2, me)),
            store(kir.Slot(buffer, me), x),
            join,
            load(y, kir.Slot(buffer, 1 - me)),
            store(box(Y2, 1 - me), y),
        )
        return kir.Role(f"half{me}", me, 1, body)

    return kernel(
        (role(0, first), role(1, second)),
        threads=64,
        buffers=(buffer,),
        tensors=(X2, Y2),
        params=params,
    )


def either(test: Expr, then: kir.Stmt, orelse: kir.Stmt) -> kir.IfThenElse:
    """One barrier or the other."""
    return kir.IfThenElse(test, (then,), (orelse,))


def join(threads: int = 64, barrier: int = 1) -> kir.BlockSync:
    """Wait at a barrier."""
    return kir.BlockSync(barrier, threads)


def registers(*halves: tuple[int, int, kir.SetMaxNReg]) -> kir.Kernel:
    """Roles of a warpgroup, by first warp and warps, that each set registers; another one works."""
    tile = fragment("x", 128)
    gives = tuple(
        kir.Role(f"give{first}", first, warps, (change,)) for first, warps, change in halves
    )
    work = kir.Role("work", 4, 4, (load(tile, box(X1)), store(box(Y1), tile)))
    return replace(single((*gives, work), threads=256), registers=128)


def fewer(count: int) -> kir.SetMaxNReg:
    """Give registers back."""
    return kir.SetMaxNReg(count, increase=False)


def in_place(sentence: str) -> kir.Kernel:
    """Copy a tile by cp.async and store over where it came from, by the same lanes or others."""
    buffer, x, twice = slots("S"), fragment("x", 64), fragment("y", 64)
    thin, other = fragment("z", 64, vector=1), fragment("o", 64, vector=1)
    words: dict[str, kir.Stmt] = {
        "copy": kir.CpAsync(kir.Slot(buffer, 0), box(YN, k), x.layout, 2),
        "commit": kir.AsyncCommit(CP_ASYNC),
        "await": kir.AsyncAwait(CP_ASYNC, 0),
        "await_1": kir.AsyncAwait(CP_ASYNC, 1),
        "read": load(x, kir.Slot(buffer, 0)),
        "read_thin": load(thin, kir.Slot(buffer, 0)),
        "get": load(x, box(YN, k)),
        "add": kir.Compute(twice, "add", (x, x)),
        "add_thin": kir.Compute(other, "add", (thin, thin)),
        "put": store(box(YN, k), twice),
        "put_thin": store(box(YN, k), other),
        "join": kir.BlockSync(0, 64),
        "left": kir.BlockSync(0, 64),
    }
    body = (kir.ForLoop(k, n, said(sentence, words)),)
    return kernel(body, threads=64, buffers=(buffer,), tensors=(YN,))


def unread(*, used: str, by_threads: bool = False) -> kir.Kernel:
    """Load two tiles into slots, by an engine or by cp.async, and read one of them or both."""
    one, two, x, y = slots("A"), slots("B", offset=NBYTES), fragment("x", 64), fragment("y", 64)
    full = kir.MBarrier("full", 1, 1)
    copies = elect(
        kir.MBarrierArriveExpectTx(full, 0, 2 * NBYTES),
        kir.TmaLoad(kir.Slot(one, 0), box(X2, 0), full, 0),
        kir.TmaLoad(kir.Slot(two, 0), box(X2, 1), full, 0),
    )
    words: dict[str, kir.Stmt] = {
        "one": load(x, kir.Slot(one, 0)),
        "two": load(y, kir.Slot(two, 0)),
        "out": store(box(Y1), x),
        "sum": kir.Compute(x, "add", (x, y)),
        "wait": wait(full, 0, 0),
        "await": kir.AsyncAwait(CP_ASYNC, 0),
        "join": kir.BlockSync(0, 64),
    }
    begin: Body = (init(full), kir.BlockSync(0, 64), copies)
    if by_threads:
        begin = (
            kir.CpAsync(kir.Slot(one, 0), box(X2, 0), x.layout, 2),
            kir.CpAsync(kir.Slot(two, 0), box(X2, 1), x.layout, 2),
            kir.AsyncCommit(CP_ASYNC),
        )
    body = (*begin, *said(used, words))
    barriers = () if by_threads else (full,)
    return single(body, threads=64, buffers=(one, two), barriers=barriers, tensors=(X2, Y1))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "four_arrivals_one_after_the_other",
        "H09",
        arrived(4, 4),
        "One thread arrives as often as the barrier counts.",
    ),
    legal(
        "three_arrivals_in_a_loop_and_one_behind_it",
        "H09",
        arrived(3, 4, extra=True),
        "One thread arrives as often as the barrier counts.",
    ),
    broken(
        "three_arrivals_of_four",
        "H09",
        arrived(3, 4),
        "deadlock arrivals",
        "four_arrivals_one_after_the_other",
        "The phase never ends.",
        launches=trips(3, 5),
    ),
    broken(
        "five_arrivals_of_four",
        "H09",
        arrived(4, 4, extra=True),
        "arrivals parity WAR RAW deadlock",
        "four_arrivals_one_after_the_other",
        "The last arrival counts for the phase behind; after four rounds that is one more.",
        launches=trips(12),
    ),
    broken(
        "four_arrivals_before_the_read",
        "H09 H21",
        arrived(4, 4, reads="behind"),
        "WAR RAW",
        "four_arrivals_one_after_the_other",
        "The slot is refilled while it is read.",
        launches=trips(3, 5),
    ),
    legal(
        "one_barrier_from_two_roles",
        "H65",
        exchanged(join(), join()),
        "Warps of different roles meet at one barrier, wherever that stands.",
    ),
    legal(
        "one_barrier_from_two_branches",
        "H65",
        exchanged(either(n > 0, join(), join()), join(), params=(n,)),
        "Whichever branch is taken, all threads come.",
        launches=trips(0, 1),
    ),
    broken(
        "two_barriers_from_two_branches",
        "H65",
        exchanged(either(n > 0, join(), join(64, 2)), join(), params=(n,)),
        "deadlock",
        "one_barrier_from_two_branches",
        "In the other branch it is another barrier.",
        launches=trips(0),
    ),
    broken(
        "one_barrier_of_two_counts",
        "H65",
        exchanged(join(64), join(32)),
        "collective deadlock RAW",
        "one_barrier_from_two_roles",
        "One role says that 32 threads come, the other one 64.",
    ),
    legal(
        "registers_given_back_by_a_warpgroup",
        "H75",
        registers((0, 4, fewer(64))),
        "All of its warps ask for the same.",
    ),
    broken(
        "registers_of_two_values_in_a_warpgroup",
        "H75",
        registers((0, 2, fewer(64)), (2, 2, fewer(40))),
        "collective registers",
        "registers_given_back_by_a_warpgroup",
        "All warps of a warpgroup execute the same setmaxnreg (PTX ISA).",
        refused="warpgroup",
    ),
    broken(
        "registers_of_half_a_warpgroup",
        "H75",
        registers((0, 2, fewer(64))),
        "collective registers",
        "registers_given_back_by_a_warpgroup",
        "All warps of a warpgroup execute the same setmaxnreg (PTX ISA).",
        refused="warpgroup",
    ),
    legal(
        "a_lane_stores_over_the_source_of_its_own_copy",
        "H50 H70",
        in_place("copy commit await read add put"),
        "Its copy has been awaited, and so has read its source.",
    ),
    legal(
        "a_lane_stores_over_the_source_of_a_copy_of_others",
        "H50 H70",
        in_place("copy commit await join read_thin add_thin left put_thin"),
        "All lanes have awaited their copies when the barrier lets them go.",
    ),
    broken(
        "a_lane_stores_over_the_source_of_a_copy_in_flight",
        "H50 H70",
        in_place("get add copy commit put await"),
        "WAR RAW",
        "a_lane_stores_over_the_source_of_its_own_copy",
        "The copy may still read what is stored over.",
        launches=trips(1, 5),
    ),
    broken(
        "a_lane_stores_over_the_source_of_a_copy_that_is_kept",
        "H50 H70",
        in_place("get add copy commit await_1 put await"),
        "WAR RAW",
        "a_lane_stores_over_the_source_of_its_own_copy",
        "One group may be in flight, and it is the only one.",
        launches=trips(1, 5),
    ),
    broken(
        "a_lane_stores_over_the_source_of_copies_of_others",
        "H50 H70",
        in_place("copy commit await read_thin add_thin put_thin join"),
        "WAR RAW",
        "a_lane_stores_over_the_source_of_a_copy_of_others",
        "It has awaited its own copies only.",
        launches=trips(1, 5),
    ),
    legal(
        "two_tiles_loaded_and_both_read",
        "H20",
        unread(used="wait one two sum out"),
        "Both slots are read.",
    ),
    legal(
        "two_tiles_loaded_and_one_read",
        "H20",
        unread(used="wait one out"),
        "Nobody reads the other one: that is a waste, and no error.",
        warns="unread",
    ),
    legal(
        "two_tiles_copied_by_threads_and_one_read",
        "H20",
        unread(used="await join one out", by_threads=True),
        "The same of cp.async.",
        warns="unread",
    ),
    legal(
        "two_tiles_copied_by_threads_and_both_read",
        "H20",
        unread(used="await join one two sum out", by_threads=True),
        "Both slots are read.",
    ),
    broken(
        "two_tiles_loaded_and_one_read_too_early",
        "H20",
        unread(used="one out wait"),
        "RAW",
        "two_tiles_loaded_and_both_read",
        "The wait comes behind the read.",
    ),
)
