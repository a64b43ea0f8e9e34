"""Mistakes that compilers of matmuls made: operands freed apart, roles out of turn, bad boxes."""

from __future__ import annotations

from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.clusters import PAIRS, RING, multicast
from litmus.parts import (
    BULK,
    CP_ASYNC,
    NBYTES,
    PER_WARP,
    X1,
    XN,
    Y1,
    YN,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    said,
    single,
    slots,
    store,
    t,
    tensor,
    trips,
    wait,
    zero,
)
from litmus.products import product
from litmus.stores import leaving

STAGES = 2
ZN = tensor("Z", n)


def two_operands(use: str) -> kir.Kernel:
    """Return a ring of two buffers that are loaded together and added."""
    s, z = slots("S", STAGES), slots("SZ", STAGES, offset=STAGES * NBYTES)
    full, empty = kir.MBarrier("full", 1, STAGES), kir.MBarrier("empty", 32, STAGES)
    slot, turn = k % STAGES, k // STAGES
    x, y, total = fragment("x"), fragment("z"), fragment("total")
    words: dict[str, kir.Stmt] = {
        "wait": wait(full, slot, turn),
        "read": load(x, kir.Slot(s, slot)),
        "read_other": load(y, kir.Slot(z, slot)),
        "free": kir.MBarrierArrive(empty, slot),
        "add": kir.Compute(total, "add", (x, y)),
        "out": store(box(YN, k), total),
    }
    feed = elect(
        wait(empty, slot, turn + 1),
        kir.MBarrierArriveExpectTx(full, slot, 2 * NBYTES),
        kir.TmaLoad(kir.Slot(s, slot), box(XN, k), full, slot),
        kir.TmaLoad(kir.Slot(z, slot), box(ZN, k), full, slot),
    )
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (kir.ForLoop(k, n, said(use, words)),)),
        kir.Role("load", 1, 1, (kir.ForLoop(k, n, (feed,)),)),
    )
    return kernel(body, threads=64, buffers=(s, z), barriers=(full, empty), tensors=(XN, ZN, YN))


def copied(who: str) -> kir.Kernel:
    """Return a tile that one warp copies, or each of two, and both read."""
    buffer, tile = slots("S"), fragment("x")
    wide = fragment("z", 64)

    def copy() -> Body:
        start = kir.CpAsync(kir.Slot(buffer, 0), box(X1), tile.layout, 4)
        return (start, kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0))

    roles = tuple(kir.Role(f"warp{w}", int(w), 1, copy()) for w in who.split())
    body: Body = (
        *roles,
        kir.BlockSync(0, 64),
        load(wide, kir.Slot(buffer, 0)),
        store(box(Y1), wide),
    )
    return single(body, threads=64, buffers=(buffer,))


IN_TURN = "enter wait read warp leave free out"


def in_turn(tile: str = IN_TURN, *, parity: Expr = t // 2 + 1) -> kir.Kernel:
    """Return two roles that take the tiles of one ring in turn, let in by each other."""
    ring, x = slots("S"), fragment("x")
    full, empty = kir.MBarrier("full", 1, 1), kir.MBarrier("empty", 1, 1)
    order = kir.MBarrier("order", 1, 2)
    source, y = tensor("X", m), tensor("Y", m)

    def role(me: int) -> kir.Role:
        words: dict[str, kir.Stmt] = {
            "enter": wait(order, me, parity + me),
            "wait": wait(full, 0, t),
            "read": load(x, kir.Slot(ring, 0)),
            "warp": kir.WarpSync(),
            "leave": elect(kir.MBarrierArrive(order, 1 - me)),
            "free": elect(kir.MBarrierArrive(empty, 0)),
            "out": store(box(y, t), x),
        }
        mine = kir.IfThenElse(eq(t % 2, me), said(tile, words))
        return kir.Role(f"compute{me}", me, 1, (kir.ForLoop(t, m, (mine,)),))

    feed = elect(
        wait(empty, 0, t + 1),
        kir.MBarrierArriveExpectTx(full, 0, NBYTES),
        kir.TmaLoad(kir.Slot(ring, 0), box(source, t), full, 0),
    )
    body = (
        init(full, empty, order),
        kir.BlockSync(0, 96),
        role(0),
        role(1),
        kir.Role("load", 2, 1, (kir.ForLoop(t, m, (feed,)),)),
    )
    return kernel(
        body,
        threads=96,
        buffers=(ring,),
        barriers=(full, empty, order),
        tensors=(source, y),
        params=(m,),
    )


def tiles(*counts: int) -> tuple[Run, ...]:
    """Return launches of one CTA of so many tiles."""
    return tuple(Run(1, (("m", count),)) for count in counts)


def stored(use: str) -> kir.Kernel:
    """Return a pair of CTAs whose users store into the slot that a multicast fills."""
    tile = fragment("w")
    put, fence = store(kir.Slot(RING, 0), tile), kir.FenceAsyncProxy(kir.Space.SHARED)
    return multicast(use, clear=zero(tile), put=put, fence=fence)


def wide_box(columns: int) -> kir.Kernel:
    """Return a tile of two rows and many columns that TMA loads and ordinary stores write."""
    shape = (2, columns)
    x, y = (kir.Tensor(name, DType.F32, shape, (columns, 1), 4) for name in "XY")
    buffer, bar = kir.Buffer("S", DType.F32, shape, 1, 0), kir.MBarrier("full", 1, 1)
    tile = kir.Fragment("x", DType.F32, kir.Layout(shape, 4, 32))
    source, target = (kir.Box(of, (0, 0), shape, shape) for of in (x, y))
    body = (
        init(bar),
        kir.BlockSync(0, 32),
        elect(
            kir.MBarrierArriveExpectTx(bar, 0, buffer.slot_nbytes),
            kir.TmaLoad(kir.Slot(buffer, 0), source, bar, 0),
        ),
        wait(bar, 0, 0),
        load(tile, kir.Slot(buffer, 0)),
        store(target, tile),
    )
    return single(body, buffers=(buffer,), barriers=(bar,), tensors=(x, y))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "operands_freed_together",
        "H05 H06",
        two_operands("wait read read_other free add out"),
        "One arrival frees both operands, behind the reads of both.",
    ),
    broken(
        "one_operand_freed_with_the_other",
        "H05 H06",
        two_operands("wait read free read_other add out"),
        "WAR",
        "operands_freed_together",
        "The second operand is read when its slot is given away (seen where two operands of one "
        "loop were handed back in different ways).",
        launches=trips(5),
    ),
    legal(
        "copied_by_one_warp",
        "H51 H46",
        copied("0"),
        "The warp that copied has waited, and a barrier tells the other.",
    ),
    broken(
        "copied_by_each_warp",
        "H51 H46",
        copied("0 1"),
        "WAW",
        "copied_by_one_warp",
        "Two warps write one tile (seen where the copies of the threads that have nothing to copy "
        "were not predicated).",
    ),
    legal(
        "roles_take_tiles_in_turn",
        "H03 H04 H15",
        in_turn(),
        "Whoever has seen its phase lets the other role look for the next one.",
        launches=tiles(0, 1, 2, 3, 5),
    ),
    broken(
        "roles_take_tiles_out_of_turn",
        "H03 H04",
        in_turn("wait read warp leave free out"),
        "parity RAW WAR arrivals deadlock",
        "roles_take_tiles_in_turn",
        "On a fresh barrier the second role's wait for phase 1 passes at once.",
        launches=tiles(2, 3, 5),
    ),
    broken(
        "other_role_let_in_before_the_phase_is_seen",
        "H03 H04",
        in_turn("enter leave wait read warp free out"),
        "parity RAW WAR arrivals deadlock",
        "roles_take_tiles_in_turn",
        "The other role may look for its phase while this one's is still running.",
        launches=tiles(2, 3, 5),
    ),
    broken(
        "roles_both_wait_to_be_let_in",
        "H16 H03",
        in_turn(parity=t // 2),
        "deadlock parity RAW arrivals",
        "roles_take_tiles_in_turn",
        "Nobody has gone before the first turn.",
        launches=tiles(1, 2, 5),
    ),
    legal(
        "stage_stored_into_behind_a_multicast",
        "H60 H32",
        stored("wait read clear put fence warp free free_peer out"),
        "Stored when the copy has landed, fenced, and only then freed for the next one.",
        launches=PAIRS,
    ),
    broken(
        "stage_stored_into_during_a_multicast",
        "H60 H32",
        stored("clear put fence wait read warp free free_peer out"),
        "WAW RAW WAR",
        "stage_stored_into_behind_a_multicast",
        "The peer's copy may be landing in the slot.",
        launches=(Run(2, (("n", 1),)), Run(2, (("n", 2),))),
    ),
    broken(
        "sums_of_the_tile_before",
        "H20 H22",
        product(before="", loop="wait fence mma commit await free"),
        "RAW",
        "product",
        "The first product of a tile adds to registers that nobody has cleared.",
        refused="no statement before it gives a value",
    ),
    broken(
        "summed_by_one_thread_of_each_warp",
        "H14 H83",
        leaving(
            issue=kir.Elect(
                PER_WARP,
                (
                    kir.TmaReduce(box(YN, k), kir.Slot(slots("S"), 0)),
                    kir.AsyncCommit(BULK),
                ),
            ),
        ),
        "determinism coverage",
        "results_leave_by_tma",
        "Each warp adds the tile once more: harmless in a store, wrong in a sum.",
        refused="issued by one thread",
    ),
    legal(
        "box_of_256_columns",
        "H08",
        wide_box(256),
        "As wide as a box may be (PTX ISA, tensor dimension, size and format).",
    ),
    broken(
        "box_of_512_columns",
        "H08",
        wide_box(512),
        "bytes bounds",
        "box_of_256_columns",
        "Merged axes make a box that no tensor map takes.",
        refused="at most 256",
    ),
)
