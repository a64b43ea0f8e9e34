"""Kernels on which a judge was wrong once; most were mutants of the other litmus kernels."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import eq
from fuser.kernel import ir as kir
from litmus.aliases import EPILOGUE, epilogue
from litmus.cp_async import copies
from litmus.lives import reused
from litmus.parts import (
    NBYTES,
    X1,
    Y1,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    single,
    slots,
    store,
    trips,
)
from litmus.products import STAGED, staged
from litmus.rings import FULL, SLOT, ring
from litmus.stores import OUT_LOOP, leaving
from litmus.turnstiles import added

SHARED = kir.Space.SHARED
PER_WARP = kir.Elect(kir.Per.WARP, (kir.FenceAsyncProxy(SHARED),))


def expected_by(warp: int) -> kir.Kernel:
    """One thread loads a tile and drains its own stores; a thread of `warp` expects the bytes."""
    made = epilogue(EPILOGUE.replace("sync ", ""), offset=NBYTES)

    def by_other(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Elect(_, (kir.MBarrierArriveExpectTx() as expect, *rest)):
                return [kir.Role("expects", warp, 1, (elect(expect),)), elect(*rest)]
            case _:
                return None

    return made.rewrite(by_other)


def announced_by_the_reader() -> kir.Kernel:
    """The bytes of a slot are expected by its reader; the loader arrives for itself."""
    return ring(
        "announce wait read free out",
        "room late_arrive fill",
        late_arrive=kir.MBarrierArrive(FULL, SLOT),
        announce=elect(kir.MBarrierExpectTx(FULL, SLOT, NBYTES)),
    )


def sums_before_the_base() -> kir.Kernel:
    """Three warps add to a base that one of them stores, and only each warp joins before."""
    joins = kir.BlockSync(0, 96)
    return added().rewrite(lambda stmt: [kir.WarpSync()] if stmt == joins else None)


def registers_twice(*between: kir.Stmt) -> kir.Kernel:
    """One warpgroup gives registers back in two steps."""
    tile = fragment("x", 128)
    steps = kir.SetMaxNReg(64, increase=False), kir.SetMaxNReg(40, increase=False)
    body = (
        kir.Role("give", 0, 4, (steps[0], *between, steps[1])),
        kir.Role("work", 4, 4, (load(tile, box(X1)), store(box(Y1), tile))),
    )
    return replace(single(body, threads=256), registers=128)


def taken_again(registers: int) -> kir.Kernel:
    """Ask for a number of registers when there are 128."""
    tile = fragment("x", 128)
    more = kir.SetMaxNReg(registers, increase=True)
    body = (more, load(tile, box(X1)), store(box(Y1), tile))
    return replace(single((kir.Role("all", 0, 4, body),), threads=128), registers=128)


def compared(*, everywhere: bool) -> kir.Kernel:
    """Exchange a tile between two warps, with a barrier where `n <= m`, or in any case."""
    buffer, wide, thin = slots("S"), fragment("x", 64), fragment("x", 64, 1)
    join, other = kir.BlockSync(0, 64), kir.BlockSync(1, 64)
    body = (
        load(wide, box(X1)),
        store(kir.Slot(buffer, 0), wide),
        kir.IfThenElse(n <= m, (join,), (other,) if everywhere else ()),
        load(thin, kir.Slot(buffer, 0)),
        store(box(Y1), thin),
    )
    return kernel(body, threads=64, buffers=(buffer,), tensors=(X1, Y1), params=(n, m))


MORE, LESS = (Run(1, (("n", a), ("m", b))) for a, b in ((2, 1), (1, 2)))
LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_barrier_whichever_count_is_larger",
        "H70 H71",
        compared(everywhere=True),
        "Both branches join all threads, and all take the same one.",
        launches=(LESS, MORE),
    ),
    broken(
        "a_barrier_where_a_count_is_no_larger",
        "H70",
        compared(everywhere=False),
        "RAW",
        "a_barrier_whichever_count_is_larger",
        "In a launch with a larger one there is none (once proved: `m - n` was taken for a count).",
        launches=(MORE,),
    ),
    legal(
        "copy_expected_by_its_issuer",
        "H35 H53",
        expected_by(0),
        "The arrival comes after the thread's wait for its store, and tells of it.",
    ),
    broken(
        "copy_tells_nothing_of_its_issuer",
        "H35 H53",
        expected_by(1),
        "WAR",
        "copy_expected_by_its_issuer",
        "Another thread arrives, and the end of a copy tells of the copy alone: after a mere issue "
        "nothing is ordered.",
        launches=trips(2, 5),
    ),
    broken(
        "bytes_announced_by_the_reader",
        "H08",
        announced_by_the_reader(),
        "bytes RAW parity arrivals deadlock",
        "ring_expects_before_the_arrival",
        "The loader's arrival may end the phase before the bytes are added to it.",
        launches=trips(5),
    ),
    broken(
        "fence_behind_the_join_in_even_turns",
        "H30 H33",
        leaving(
            OUT_LOOP.replace("fence join", "join maybe"),
            maybe=kir.IfThenElse(eq(k % 2, 0), (kir.FenceAsyncProxy(SHARED),)),
        ),
        "proxy",
        "fence_on_both_branches",
        "With the reader a fence is worth a warning; in odd turns there is none at all.",
        launches=trips(2, 5),
    ),
    broken(
        "operands_fenced_by_one_lane_of_each_warp",
        "H25 H33",
        staged(STAGED.replace("fence_proxy sync", "sync fence_proxy")).rewrite(
            lambda stmt: [PER_WARP] if stmt == kir.FenceAsyncProxy(SHARED) else None
        ),
        "proxy",
        "operands_fenced_behind_the_join",
        "All lanes issue the product; behind the barrier each needs a fence of its own.",
        launches=trips(1, 5),
    ),
    broken(
        "atomic_sums_before_the_base",
        "H83 H70",
        sums_before_the_base(),
        "WAW RAW WAR",
        "atomic_sums_declared_unordered",
        "Sums may come in any order, but all of them after the base is stored.",
    ),
    legal(
        "registers_changed_twice",
        "H75",
        registers_twice(kir.BlockSync(1, 128)),
        "The warps of the warpgroup meet in between (PTX ISA, setmaxnreg).",
    ),
    broken(
        "registers_changed_twice_at_once",
        "H75",
        registers_twice(),
        "registers",
        "registers_changed_twice",
        "All warps of the warpgroup have to meet before the next setmaxnreg (PTX ISA).",
    ),
    legal(
        "registers_changed_to_what_they_are",
        "H75",
        taken_again(128),
        "An increase asks for no fewer than there are; as many is no change (PTX ISA, setmaxnreg).",
    ),
    legal(
        "barrier_bytes_overwritten_by_their_lane",
        "H11",
        reused("wait read left inval put seen get out"),
        "The lane that ends the barrier's life is the one that stores over it.",
    ),
    broken(
        "barrier_bytes_overwritten_by_another_lane",
        "H11",
        reused("wait read left inval put seen get out", lane=1),
        "init WAW WAR",
        "barrier_bytes_overwritten_by_their_lane",
        "Lanes do not run in step: the barrier may be alive when another lane stores over it.",
    ),
    legal(
        "copies_committed_a_turn_later",
        "H50",
        copies(loop="await sync commit2 refill read out", keep=0),
        "A wait covers the groups that are committed; what is not yet in one is waited for later.",
    ),
)
