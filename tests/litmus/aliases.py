"""Shared bytes and registers that change hands: buffers over each other, register budgets."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    SHARED,
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
    said,
    single,
    slots,
    store,
    trips,
    wait,
    zero,
)

EPILOGUE = "fill wait read sync put fence join issue drain"


def epilogue(sentence: str = EPILOGUE, *, offset: int = 128) -> kir.Kernel:
    """Load tiles by TMA, and stage the results in a buffer that overlaps the loaded one."""
    loaded, staged, tile = slots("S"), slots("D", offset=offset), fragment("x", 64)
    full = kir.MBarrier("full", 1, 1)
    words: dict[str, kir.Stmt] = {
        "fill": elect(*fill(kir.Slot(loaded, 0), box(XN, k), full)),
        "wait": wait(full, 0, k),
        "read": load(tile, kir.Slot(loaded, 0)),
        "sync": kir.BlockSync(0, 64),
        "put": store(kir.Slot(staged, 0), tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(1, 64),
        "issue": elect(kir.TmaStore(box(YN, k), kir.Slot(staged, 0)), kir.AsyncCommit(BULK)),
        "drain": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    }
    end = elect(kir.AsyncAwait(BULK, 0, read_only=True))
    body = (
        init(full),
        kir.BlockSync(2, 64),
        kir.ForLoop(k, n, said(sentence, words)),
        end,
    )
    return kernel(body, threads=64, buffers=(loaded, staged), barriers=(full,))


OVERLAID = "put_a sync_a get_a over_a put_b sync_b get_b over_b"


def overlaid(sentence: str = OVERLAID, *, offset: int = 128) -> kir.Kernel:
    """Turn a tile round twice a step, through two buffers that share bytes."""
    a, b = slots("A"), slots("B", offset=offset)
    mine, yours, back = fragment("x", 64), fragment("z", 64, vector=1), fragment("y", 64)
    words: dict[str, kir.Stmt] = {
        "put_a": store(kir.Slot(a, 0), mine),
        "sync_a": kir.BlockSync(0, 64),
        "get_a": load(yours, kir.Slot(a, 0)),
        "over_a": kir.BlockSync(1, 64),
        "put_b": store(kir.Slot(b, 0), yours),
        "sync_b": kir.BlockSync(2, 64),
        "get_b": load(back, kir.Slot(b, 0)),
        "over_b": kir.BlockSync(3, 64),
    }
    step = (load(mine, box(XN, k)), *said(sentence, words), store(box(YN, k), back))
    return kernel((kir.ForLoop(k, n, step),), threads=64, buffers=(a, b))


def registers(
    give: str, take: str, *, at_launch: int = 128, less: int = 40, more: int = 216
) -> kir.Kernel:
    """Two warpgroups: one gives registers back, the other takes them."""
    bar, tile = kir.MBarrier("turn", 128, 1), fragment("x", 128)
    words: dict[str, kir.Stmt] = {
        "decrease": kir.SetMaxNReg(less, increase=False),
        "increase": kir.SetMaxNReg(more, increase=True),
        "one_warp": kir.Role("one", 4, 1, (kir.SetMaxNReg(more, increase=True),)),
        "arrive": kir.MBarrierArrive(bar, 0),
        "wait": wait(bar, 0, 0),
    }
    work: Body = (load(tile, box(X1)), store(box(Y1), tile))
    body = (
        init(bar),
        kir.BlockSync(0, 256),
        kir.Role("give", 0, 4, said(give, words)),
        kir.Role("take", 4, 4, (*said(take, words), *work)),
    )
    return replace(single(body, threads=256, barriers=(bar,)), registers=at_launch)


def three_groups(more: int) -> kir.Kernel:
    """One warpgroup gives registers back, two take them."""
    tile = fragment("x", 128)

    def take(number: int, work: Body) -> kir.Role:
        body = (kir.SetMaxNReg(more, increase=True), *work)
        return kir.Role(f"take{number}", 4 * number, 4, body)

    body = (
        kir.Role("give", 0, 4, (kir.SetMaxNReg(24, increase=False),)),
        take(1, (load(tile, box(X1)), store(box(Y1), tile))),
        take(2, ()),
    )
    return replace(single(body, threads=384), registers=168)


def own_bytes(vector: int) -> kir.Kernel:
    """Read a tile, each thread two elements, and clear another on its bytes, without a join."""
    tile, again = fragment("x", 64), fragment("y", 64)
    rows = kir.Buffer("R", tile.dtype, (1, 128), 1, 0)
    other = kir.Fragment("z", tile.dtype, kir.Layout((1, 128), vector, 64))
    body = (
        load(tile, box(X1)),
        store(kir.Slot(slots("S"), 0), tile),
        load(again, kir.Slot(slots("S"), 0)),
        store(box(Y1), again),
        zero(other),
        store(kir.Slot(rows, 0), other),
    )
    return single(body, threads=64, buffers=(slots("S"), rows))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "bytes_of_a_thread_go_by_two_shapes",
        "H74",
        own_bytes(2),
        "Each thread overwrites what it alone has read: elements 2t and 2t + 1 of either shape.",
    ),
    broken(
        "bytes_of_other_threads_go_by_two_shapes",
        "H74",
        own_bytes(1),
        "WAR WAW",
        "bytes_of_a_thread_go_by_two_shapes",
        "Elements t and t + 64 are others' in the other shape, and nothing joins them.",
    ),
    legal(
        "epilogue_over_the_loaded_tile",
        "H74 H32 H31",
        epilogue(),
        "Read by all, joined, overwritten, sent, drained before the next load.",
    ),
    broken(
        "epilogue_overwrites_what_is_read",
        "H74 H70",
        epilogue(EPILOGUE.replace("sync ", "")),
        "WAR",
        "epilogue_over_the_loaded_tile",
        "The staged rows lie over loaded rows that other threads still read.",
        launches=trips(1, 5),
    ),
    broken(
        "epilogue_in_flight_when_loaded_over",
        "H74 H40",
        epilogue(EPILOGUE.replace(" drain", "")),
        "WAR WAW",
        "epilogue_over_the_loaded_tile",
        "The next load writes bytes that the store engine still reads.",
        launches=trips(2, 5),
    ),
    legal(
        "epilogue_beside_the_loaded_tile",
        "H74",
        epilogue(EPILOGUE.replace("sync ", ""), offset=512),
        "Without shared bytes the tile may be staged while others still read.",
    ),
    legal(
        "two_buffers_over_each_other",
        "H74 H70",
        overlaid(),
        "A barrier stands between each use of the shared bytes and the next.",
    ),
    broken(
        "second_buffer_written_over_the_first",
        "H74 H70",
        overlaid(OVERLAID.replace("over_a ", "")),
        "WAR",
        "two_buffers_over_each_other",
        "Other threads still read the first buffer (seen in a fusion compiler that did not see "
        "through the alias).",
        launches=trips(1, 5),
    ),
    broken(
        "first_buffer_written_over_the_second",
        "H74 H70",
        overlaid(OVERLAID.replace(" over_b", "")),
        "WAR",
        "two_buffers_over_each_other",
        "In the next step the first buffer is written while the second is still read.",
        launches=trips(2, 5),
    ),
    broken(
        "first_buffer_read_too_early",
        "H74 H70",
        overlaid(OVERLAID.replace("sync_a ", "")),
        "RAW",
        "two_buffers_over_each_other",
        "The first buffer is read before other threads have stored it.",
        launches=trips(1, 5),
    ),
    broken(
        "second_buffer_read_too_early",
        "H74 H70",
        overlaid(OVERLAID.replace("sync_b ", "")),
        "RAW",
        "two_buffers_over_each_other",
        "The second buffer is read before other threads have stored it.",
        launches=trips(1, 5),
    ),
    legal(
        "two_buffers_beside_each_other",
        "H74 H70",
        overlaid(OVERLAID.replace("over_a ", "").replace(" over_b", ""), offset=512),
        "With bytes of their own, each barrier of one buffer also frees the other.",
    ),
    legal(
        "registers_given_and_taken",
        "H75",
        registers("decrease", "increase"),
        "128 x 40 and 128 x 216 are the 256 x 128 of the launch (PTX ISA, setmaxnreg).",
    ),
    broken(
        "registers_never_given",
        "H75 H16",
        registers("", "increase"),
        "registers deadlock",
        "registers_given_and_taken",
        "No other warpgroup gives registers back, so the increase waits forever.",
    ),
    broken(
        "more_registers_than_there_are",
        "H75",
        registers("decrease", "increase", more=240),
        "registers deadlock",
        "registers_given_and_taken",
        "128 x 40 and 128 x 240 are more than the 256 x 128 of the launch.",
    ),
    broken(
        "registers_in_odd_numbers",
        "H75",
        registers("decrease", "increase", more=212),
        "registers",
        "registers_given_and_taken",
        "The count is a multiple of 8 (PTX ISA, setmaxnreg).",
        refused="multiple of 8",
    ),
    broken(
        "registers_taken_by_one_warp",
        "H75",
        registers("decrease", "one_warp"),
        "collective registers",
        "registers_given_and_taken",
        "All warps of a warpgroup execute setmaxnreg (PTX ISA, setmaxnreg).",
        refused="whole warpgroups",
    ),
    broken(
        "registers_given_after_the_taker_arrived",
        "H75 H16",
        registers("wait decrease", "increase arrive"),
        "deadlock registers",
        "registers_given_before_the_taker_arrives",
        "One waits for registers, the other for the one that waits.",
    ),
    legal(
        "registers_given_before_the_taker_arrives",
        "H75 H16",
        registers("decrease wait", "increase arrive"),
        "The registers are given back first.",
    ),
    legal(
        "registers_of_three_warpgroups",
        "H75",
        three_groups(240),
        "24 + 240 + 240 are three times 168.",
    ),
    broken(
        "registers_of_three_warpgroups_exceeded",
        "H75",
        three_groups(248),
        "registers deadlock",
        "registers_of_three_warpgroups",
        "24 + 248 + 248 are more than three times 168 (seen as a hang with three warpgroups).",
    ),
)
