"""What a phase of an mbarrier counts: arrivals, bytes, and iterations on both of its sides."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import maximum
from fuser.kernel import ir as kir
from litmus.parts import (
    NBYTES,
    PER_WARP,
    X1,
    Y1,
    Litmus,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    legal,
    load,
    n,
    single,
    slots,
    store,
    tensor,
    trips,
    wait,
)
from litmus.rings import (
    EMPTY,
    FULL,
    RING,
    SLOT,
    STAGES,
    arrive,
    expect,
    ring,
)


def one_barrier(nbytes: int) -> kir.Kernel:
    """Load two tiles on one barrier that expects `nbytes`."""
    a, b, bar = slots("A"), slots("B", offset=NBYTES), kir.MBarrier("full", 1, 1)
    other, x, y, z = tensor("Z"), fragment("x"), fragment("y"), fragment("z")
    body = (
        init(bar),
        kir.BlockSync(0, 32),
        elect(
            kir.MBarrierArriveExpectTx(bar, 0, nbytes),
            kir.TmaLoad(kir.Slot(a, 0), box(X1), bar, 0),
            kir.TmaLoad(kir.Slot(b, 0), box(other), bar, 0),
        ),
        wait(bar, 0, 0),
        load(x, kir.Slot(a, 0)),
        load(y, kir.Slot(b, 0)),
        kir.Compute(z, "add", (x, y)),
        store(box(Y1), z),
    )
    return single(body, buffers=(a, b), barriers=(bar,), tensors=(X1, other, Y1))


def clipped(nbytes: int) -> kir.Kernel:
    """Load a box of four rows from a tensor of three."""
    x = kir.Tensor("X", DType.F32, (3, 32), (32, 1), 4)
    y = kir.Tensor("Y", DType.F32, (3, 32), (32, 1), 4)
    bar, buffer, tile = kir.MBarrier("full", 1, 1), slots("S"), fragment("x")
    body = (
        init(bar),
        kir.BlockSync(0, 32),
        elect(
            kir.MBarrierArriveExpectTx(bar, 0, nbytes),
            kir.TmaLoad(kir.Slot(buffer, 0), box(x), bar, 0),
        ),
        wait(bar, 0, 0),
        load(tile, kir.Slot(buffer, 0)),
        store(box(y), tile),
    )
    return single(body, buffers=(buffer,), barriers=(bar,), tensors=(x, y))


def guarded(limit: int) -> kir.IfThenElse:
    """Free a slot only where the loader comes back for it, `limit` iterations later."""
    return kir.IfThenElse(k + limit < n, (arrive(),))


LITMUS: tuple[Litmus, ...] = (
    broken(
        "ring_never_freed",
        "H09 H16",
        ring("wait read out"),
        "deadlock arrivals",
        "ring",
        "The second turn waits for an arrival that nobody makes.",
    ),
    broken(
        "ring_expects_half",
        "H08",
        ring(expect=expect(NBYTES // 2)),
        "bytes RAW",
        "ring",
        "The phase may complete when half of the box has landed (PTX ISA, mbarrier tx-count).",
    ),
    broken(
        "ring_expects_double",
        "H08",
        ring(expect=expect(2 * NBYTES)),
        "bytes deadlock",
        "ring",
        "The other half of the expected bytes never comes.",
        launches=trips(1, 5),
    ),
    broken(
        "ring_expects_nothing",
        "H08",
        ring(expect=kir.MBarrierArrive(FULL, SLOT)),
        "bytes RAW",
        "ring",
        "Arrival alone completes the phase while the copy is in flight.",
    ),
    broken(
        "ring_expects_twice",
        "H08",
        ring(feed="room again expect fill", again=kir.MBarrierExpectTx(FULL, SLOT, NBYTES)),
        "bytes deadlock",
        "ring",
        "Expected bytes add up, and one box is copied.",
        launches=trips(1, 5),
    ),
    legal(
        "one_barrier_for_two_loads",
        "H08",
        one_barrier(2 * NBYTES),
        "One barrier may expect the sum of the bytes of two loads.",
    ),
    broken(
        "one_barrier_expects_one_of_two_loads",
        "H08",
        one_barrier(NBYTES),
        "bytes RAW exit",
        "one_barrier_for_two_loads",
        "The phase is complete when as many bytes as one tile have landed, of either.",
    ),
    legal(
        "clipped_box_expects_all_of_it",
        "H08",
        clipped(NBYTES),
        "Rows outside the tensor are filled with zeros and count (PTX ISA, cp.async.bulk.tensor).",
    ),
    broken(
        "clipped_box_expects_what_is_inside",
        "H08",
        clipped(NBYTES - 128),
        "bytes RAW exit",
        "clipped_box_expects_all_of_it",
        "The engine counts the full box, also what lies outside the tensor.",
    ),
    broken(
        "ring_expects_after_the_arrival",
        "H08",
        ring(
            feed="room late_arrive late_expect fill",
            late_arrive=kir.MBarrierArrive(FULL, SLOT),
            late_expect=kir.MBarrierExpectTx(FULL, SLOT, NBYTES),
        ),
        "bytes RAW parity arrivals",
        "ring_expects_before_the_arrival",
        "The only arrival ends the phase before the bytes are added to it.",
    ),
    legal(
        "ring_expects_before_the_arrival",
        "H08",
        ring(
            feed="room late_expect fill late_arrive",
            late_arrive=kir.MBarrierArrive(FULL, SLOT),
            late_expect=kir.MBarrierExpectTx(FULL, SLOT, NBYTES),
        ),
        "An expect-tx without arrival is fine while an arrival is missing "
        "(PTX ISA, mbarrier.expect_tx).",
    ),
    legal(
        "ring_loads_before_it_expects",
        "H08 H14",
        ring(feed="room fill expect"),
        "The tx-count may pass below zero while the arrival of the phase is missing "
        "(seen as two elect blocks for one stage in a fusion compiler).",
    ),
    broken(
        "ring_arrivals_one_too_few",
        "H09",
        ring(empty=replace(EMPTY, arrivals=33)),
        "arrivals deadlock",
        "ring",
        "32 threads arrive and the phase asks for 33.",
    ),
    broken(
        "ring_arrivals_one_too_many",
        "H09",
        ring(empty=replace(EMPTY, arrivals=31)),
        "arrivals WAR parity",
        "ring",
        "The phase completes without the last of 32 readers.",
    ),
    broken(
        "ring_elected_arrival_of_32",
        "H09 H14",
        ring(free=kir.Elect(PER_WARP, (arrive(),))),
        "arrivals deadlock",
        "ring",
        "One thread arrives and the phase asks for 32.",
    ),
    broken(
        "ring_all_arrive_for_one",
        "H09 H14",
        ring(empty=replace(EMPTY, arrivals=1)),
        "arrivals WAR parity",
        "ring_one_arrival_after_a_warp_sync",
        "The first of 32 arrivals ends the phase, the others end phases of later turns.",
    ),
    legal(
        "ring_one_arrival_after_a_warp_sync",
        "H09 H14",
        ring(
            "wait read warp free out",
            empty=replace(EMPTY, arrivals=1),
            warp=kir.WarpSync(),
            free=kir.Elect(PER_WARP, (kir.MBarrierArrive(replace(EMPTY, arrivals=1), SLOT),)),
        ),
        "A warp barrier collects the reads of the lanes before one of them arrives.",
    ),
    broken(
        "ring_one_arrival_without_a_warp_sync",
        "H05 H09",
        ring(
            empty=replace(EMPTY, arrivals=1),
            free=kir.Elect(PER_WARP, (kir.MBarrierArrive(replace(EMPTY, arrivals=1), SLOT),)),
        ),
        "WAR RAW parity",
        "ring_one_arrival_after_a_warp_sync",
        "An arrival releases what its own thread did, nothing of the lanes beside it.",
    ),
    legal(
        "ring_freed_only_where_refilled",
        "H12",
        ring(free=guarded(STAGES)),
        "The last turns are freed for nobody; leaving those arrivals out is legal.",
    ),
    broken(
        "ring_freed_too_seldom",
        "H12",
        ring(free=guarded(STAGES + 1)),
        "deadlock arrivals",
        "ring_freed_only_where_refilled",
        "The guard of an arrival is one short of the guard of its wait.",
    ),
    broken(
        "ring_last_load_left_out",
        "H12 H13",
        ring(fed=maximum(n - 1, 0)),
        "deadlock RAW arrivals bytes bounds",
        "ring",
        "The user waits for a load that the loader does not make.",
    ),
    broken(
        "ring_one_load_too_many",
        "H13 H12",
        ring(fed=n + 1),
        "exit deadlock",
        "ring",
        "The last copy writes shared memory when the CTA has left "
        "(or its room never comes: nobody frees it).",
    ),
    broken(
        "ring_even_loads_left_out",
        "H12",
        ring(
            feed="room odd",
            odd=kir.IfThenElse(
                k % 2,
                (expect(), kir.TmaLoad(kir.Slot(RING, SLOT), box(tensor("X", n), k), FULL, SLOT)),
            ),
        ),
        "deadlock",
        "ring",
        "The loader skips iterations for which the user waits.",
    ),
)
