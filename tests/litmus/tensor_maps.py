"""Tensor maps that a kernel writes anew while copies go through them, as grouped products do.

Source: PTX ISA, "tensormap.replace", "fence.proxy" (tensormap), "Asynchronous copy".
"""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    SHARED,
    TILE,
    XN,
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
    p,
    said,
    slots,
    store,
    t,
    tensor,
    trips,
    wait,
)

FILLS = "room write release acquire expect fill"
"""What the load role does for each tile."""


def map_of(maps: kir.TensorMaps, index: Expr, number: Expr) -> kir.MapSlot:
    """Return a map that begins at a tile."""
    return kir.MapSlot(maps, index, (number * TILE[0], 0))


def end(number: Expr) -> tuple[Expr, Expr]:
    """Return the limit of a map that ends behind a tile."""
    return (number + 1) * TILE[0], TILE[1]


def alone(of: kir.Tensor, number: Expr) -> kir.Box:
    """Return a tile through a map that has no other."""
    return replace(box(of, number), limit=end(number))


def rewritten(maps: kir.TensorMaps, index: Expr, number: Expr) -> kir.TensorMapReplace:
    """Make a map that of a tile."""
    return kir.TensorMapReplace(map_of(maps, index, number), end(number))


def ring(
    each: str = FILLS,
    *,
    stages: int = 2,
    maps: int = 2,
    before: str = "",
    use: str = "wait read free out",
    other: str = "",
    ctas: Expr = 1,
    more: int = 0,
) -> kir.Kernel:
    """Return a load role, one that uses its tiles, and perhaps one that writes the maps.

    CTA `b` of `ctas` copies tiles `b`, `b + ctas`, ...; X has some `more`.
    """
    x = tensor("X", n + more)
    buffer, tile = slots("S", stages), fragment("x")
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 32, stages)
    told = kir.MBarrier("told", 1, stages)
    own = kir.TensorMaps("maps", x, maps)
    slot, turn, at = k % stages, k // stages, k % maps
    number = k if ctas == 1 else kir.BLOCK + k * kir.GRID
    stop = n if ctas == 1 else (n - kir.BLOCK + kir.GRID - 1) // kir.GRID
    last = (k - 1) % stages, (k - 1) // stages

    def fill(of: kir.MapSlot, src: kir.Box) -> kir.Stmt:
        return elect(kir.TmaLoad(kir.Slot(buffer, slot), src, full, slot, through=of))

    words: dict[str, kir.Stmt] = {
        "room": elect(wait(empty, slot, turn + 1)),
        "room_there": elect(wait(empty, slot, turn + 1)),
        "write": elect(rewritten(own, at, number)),
        "write_next": elect(rewritten(own, (k + 1) % maps, number + 1)),
        "write_first": elect(rewritten(own, 0, 0)),
        "write_whole": elect(kir.TensorMapReplace(map_of(own, 0, 0), x.extents)),
        "release": elect(kir.TensorMapRelease()),
        "release_first": elect(kir.TensorMapRelease()),
        "acquire": elect(kir.TensorMapAcquire(own, at)),
        "acquire_by_all": kir.TensorMapAcquire(own, at),
        "acquire_other": elect(kir.TensorMapAcquire(own, (k + 1) % maps)),
        "acquire_first": elect(kir.TensorMapAcquire(own, 0)),
        "expect": elect(kir.MBarrierArriveExpectTx(full, slot, NBYTES)),
        "fill": fill(map_of(own, at, number), alone(x, number)),
        "fill_whole": fill(map_of(own, 0, 0), box(x, number)),
        "fill_next": fill(map_of(own, at, number + 1), alone(x, number + 1)),
        "fill_more": fill(map_of(own, at, number), replace(box(x, number), limit=end(number + 1))),
        "landed": kir.IfThenElse(k >= 1, (elect(wait(full, *last)),)),
        "fence": elect(kir.FenceAsyncProxy(kir.Space.ALL)),
        "tell": elect(kir.MBarrierArrive(told, slot)),
        "heard": elect(wait(told, slot, turn)),
        "wait": wait(full, slot, turn),
        "read": load(tile, kir.Slot(buffer, slot)),
        "free": kir.MBarrierArrive(empty, slot),
        "out": store(box(YN, number), tile),
    }
    roles = [
        kir.Role("load", 0, 1, (*said(before, words), kir.ForLoop(k, stop, said(each, words)))),
        kir.Role("use", 1, 1, (kir.ForLoop(k, stop, said(use, words)),)),
    ]
    if other:
        roles.append(kir.Role("maps", 2, 1, (kir.ForLoop(k, stop, said(other, words)),)))
    threads = 32 * len(roles)
    barriers = (full, empty, told) if other else (full, empty)
    made = kernel(
        (init(*barriers), kir.BlockSync(0, threads), *roles),
        threads=threads,
        buffers=(buffer,),
        barriers=barriers,
        tensors=(x, YN),
        requires=(eq(kir.GRID, ctas),) if isinstance(ctas, int) else (),
    )
    return replace(made, maps=(own,))


GROUP = "done write release acquire"
"""What the load role does for each group, before its tiles."""


def grouped(group: str = GROUP, *, maps: int = 2, use: str = "tell_done") -> kir.Kernel:
    """Return a load role and one that uses its tiles: CTAs take groups of `m` tiles in turn.

    Positions of the ring go on from group to group; each group has a map, written once.
    """
    extents, shape = (n, m * TILE[0], TILE[1]), (1, *TILE)
    x, y = (kir.Tensor(name, DType.F32, extents, (m * NBYTES // 4, TILE[1], 1), 4) for name in "XY")
    buffer = kir.Buffer("S", DType.F32, shape, 2, 0)
    tile = kir.Fragment("x", DType.F32, kir.Layout(shape, 4, 32))
    full, empty = kir.MBarrier("full", 1, 2), kir.MBarrier("empty", 32, 2)
    done = kir.MBarrier("done", 32, maps)
    own = kir.TensorMaps("maps", x, maps)
    number = kir.BLOCK + t * kir.GRID
    stop = (n - kir.BLOCK + kir.GRID - 1) // kir.GRID
    at, last = kir.MapSlot(own, t % maps, (number, 0, 0)), (number + 1, *extents[1:])

    def piece(of: kir.Tensor, limit: tuple[Expr, ...]) -> kir.Box:
        return kir.Box(of, (number, k * TILE[0], 0), shape, limit)

    def tiles(*body: kir.Stmt) -> kir.ForLoop:
        return kir.ForLoop(k, m, (*body, kir.Assign(p, p + 1)))

    words: dict[str, kir.Stmt] = {
        "done": elect(wait(done, t % maps, t // maps + 1)),
        "write": elect(kir.TensorMapReplace(at, last)),
        "release": elect(kir.TensorMapRelease()),
        "acquire": elect(kir.TensorMapAcquire(own, t % maps)),
        "tell_done": kir.MBarrierArrive(done, t % maps),
    }
    fills = tiles(
        elect(
            wait(empty, p % 2, p // 2 + 1),
            kir.MBarrierArriveExpectTx(full, p % 2, NBYTES),
            kir.TmaLoad(kir.Slot(buffer, p % 2), piece(x, last), full, p % 2, through=at),
        )
    )
    uses = tiles(
        wait(full, p % 2, p // 2),
        load(tile, kir.Slot(buffer, p % 2)),
        kir.MBarrierArrive(empty, p % 2),
        store(piece(y, extents), tile),
    )
    roles = (
        kir.Role("load", 0, 1, (kir.Let(p, 0), kir.ForLoop(t, stop, (*said(group, words), fills)))),
        kir.Role("use", 1, 1, (kir.Let(p, 0), kir.ForLoop(t, stop, (uses, *said(use, words))))),
    )
    made = kernel(
        (init(full, empty, done), kir.BlockSync(0, 64), *roles),
        threads=64,
        buffers=(buffer,),
        barriers=(full, empty, done),
        tensors=(x, y),
        params=(n, m),
        requires=(m >= 1,),
    )
    return replace(made, maps=(own,))


SENDS = "get drain sync put fence write release acquire sync_again send"


def leaving(each: str = SENDS, *, maps: int = 1, keep: int = 0) -> kir.Kernel:
    """Return a kernel whose results leave by TMA through a map of each tile."""
    buffer, tile = slots("S", maps), fragment("x")
    own = kir.TensorMaps("maps", YN, maps)
    at = k % maps
    words: dict[str, kir.Stmt] = {
        "get": load(tile, box(XN, k)),
        "drain": elect(kir.AsyncAwait(BULK, keep, read_only=True)),
        "sync": kir.BlockSync(0, 32),
        "sync_again": kir.BlockSync(0, 32),
        "put": store(kir.Slot(buffer, at), tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "write": elect(rewritten(own, at, k)),
        "release": elect(kir.TensorMapRelease()),
        "acquire": elect(kir.TensorMapAcquire(own, at)),
        "send": elect(
            kir.TmaStore(alone(YN, k), kir.Slot(buffer, at), map_of(own, at, k)),
            kir.AsyncCommit(BULK),
        ),
    }
    body = (kir.ForLoop(k, n, said(each, words)), elect(kir.AsyncAwait(BULK, 0, read_only=True)))
    return replace(kernel(body, buffers=(buffer,)), maps=(own,))


def once(*steps: tuple[str, str]) -> kir.Kernel:
    """Return a kernel of two warps that copies one tile; they join between steps."""
    x, y = tensor("X"), tensor("Y")
    buffer, tile, full = slots("S"), fragment("x"), kir.MBarrier("full", 1, 1)
    own = kir.TensorMaps("maps", x, 1)
    body: Body = ()
    for step in steps:
        for warp, sentence in enumerate(step):
            words: dict[str, kir.Stmt] = {
                "write": rewritten(own, 0, 0),
                "release": kir.TensorMapRelease(),
                "acquire": kir.TensorMapAcquire(own, 0),
                "expect": kir.MBarrierArriveExpectTx(full, 0, NBYTES),
                "fill": kir.TmaLoad(
                    kir.Slot(buffer, 0), alone(x, 0), full, 0, through=map_of(own, 0, 0)
                ),
            }
            if sentence:
                one = elect(*said(sentence, words))
                body = (*body, kir.Role(("first", "second")[warp], warp, 1, (one,)))
        body = (*body, kir.BlockSync(0, 64))
    use: Body = (wait(full, 0, 0), load(tile, kir.Slot(buffer, 0)), store(box(y, 0), tile))
    made = kernel(
        (init(full), kir.BlockSync(0, 64), *body, kir.Role("first", 0, 1, use)),
        threads=64,
        buffers=(buffer,),
        barriers=(full,),
        tensors=(x, y),
        params=(),
    )
    return replace(made, maps=(own,))


GRIDS = tuple(Run(grid, (("n", count),)) for grid, count in ((1, 2), (2, 5), (3, 4)))

GROUPS = tuple(
    Run(grid, (("n", groups), ("m", tiles)))
    for grid, groups, tiles in ((1, 0, 1), (2, 3, 1), (1, 3, 3), (1, 4, 2))
)
SMALL = (Run(1, (("n", 3), ("m", 1))), Run(1, (("n", 5), ("m", 1))))
"""Groups of one tile: with more of them, the ring alone holds the load role back."""

LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_map_for_each_tile",
        "H36",
        ring(),
        "Room in the ring means that the copy through this map has ended.",
    ),
    legal(
        "a_map_for_each_tile_but_the_last",
        "H36",
        ring(more=1),
        "Nobody asks for the last tile.",
    ),
    legal(
        "a_map_for_each_tile_in_each_cta",
        "H36",
        ring(ctas=kir.GRID),
        "Every CTA has maps of its own.",
        launches=GRIDS,
    ),
    legal(
        "one_map_for_a_ring_of_one",
        "H36",
        ring(stages=1, maps=1),
        "The next copy begins when the last one has been read.",
    ),
    legal(
        "more_maps_than_slots",
        "H36",
        ring(stages=2, maps=4),
        "A map is written anew later than it has to be.",
    ),
    broken(
        "one_map_for_a_ring_of_two",
        "H36",
        ring(maps=1),
        "WAR",
        "a_map_for_each_tile",
        "The copy of the tile before may still read the map (PTX ISA, Asynchronous copy).",
        launches=trips(2, 5),
    ),
    legal(
        "one_map_for_a_ring_of_two_awaited",
        "H36",
        ring("room landed write release acquire expect fill", maps=1),
        "The load role waits for the last copy itself.",
    ),
    broken(
        "a_map_written_before_there_is_room",
        "H36",
        ring("write room release acquire expect fill"),
        "WAR",
        "a_map_for_each_tile",
        "Only room in the ring tells that the copy before through this map has ended.",
        launches=trips(3, 5),
    ),
    broken(
        "a_map_not_released",
        "H36",
        ring("room write acquire expect fill"),
        "proxy",
        "a_map_for_each_tile",
        "An acquire takes over what was released.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_not_acquired",
        "H36",
        ring("room write release expect fill"),
        "proxy",
        "a_map_for_each_tile",
        "The engine may go by what it has kept of the map.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_acquired_before_it_is_released",
        "H36",
        ring("room write acquire release expect fill"),
        "proxy",
        "a_map_for_each_tile",
        "The acquire finds nothing released.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_released_before_it_is_written",
        "H36",
        ring("room release write acquire expect fill"),
        "proxy",
        "a_map_for_each_tile",
        "The release covers earlier writes only.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_acquired_behind_the_copy",
        "H36",
        ring("room write release expect fill acquire"),
        "proxy",
        "a_map_for_each_tile",
        "The copy may have begun.",
        launches=trips(1, 5),
    ),
    broken(
        "another_map_acquired",
        "H36",
        ring("room write release acquire_other expect fill"),
        "proxy",
        "a_map_for_each_tile",
        "An acquire is of 128 bytes at one address.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_fenced_as_other_memory",
        "H36",
        ring("room write fence expect fill"),
        "proxy",
        "a_map_for_each_tile",
        "Maps are read through a proxy of their own.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_that_nobody_writes",
        "H36",
        ring("room release acquire expect fill"),
        "RAW",
        "a_map_for_each_tile",
        "The launch lends memory with nothing in it.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_of_the_tile_before",
        "H36",
        ring("room write release acquire expect fill_next", more=1),
        "map",
        "a_map_for_each_tile_but_the_last",
        "The map begins a tile before the one that the copy takes it to begin at.",
        launches=trips(1, 5),
    ),
    broken(
        "a_map_that_ends_too_early",
        "H36",
        ring("room write release acquire expect fill_more", more=1),
        "map",
        "a_map_for_each_tile_but_the_last",
        "What lies behind the end of the map is cut off.",
        launches=trips(1, 5),
    ),
    legal(
        "one_map_for_all",
        "H36",
        ring("room expect fill_whole", maps=1, before="write_whole release acquire_first"),
        "Written once, acquired once.",
    ),
    broken(
        "one_map_for_all_not_acquired",
        "H36",
        ring("room expect fill_whole", maps=1, before="write_whole release"),
        "proxy",
        "one_map_for_all",
        "That nothing changes later does not matter.",
        launches=trips(1, 5),
    ),
    legal(
        "maps_written_one_tile_ahead",
        "H36",
        ring(
            "room landed write_next release acquire expect fill",
            before="write_first release_first",
        ),
        "The map of the next tile is written once the copy before this one has ended.",
    ),
    broken(
        "maps_written_one_tile_ahead_at_once",
        "H36",
        ring("room write_next release acquire expect fill", before="write_first release_first"),
        "WAR",
        "maps_written_one_tile_ahead",
        "The copy of the tile before goes through the map that the next one gets.",
        launches=trips(2, 5),
    ),
    legal(
        "maps_written_by_another_role",
        "H36",
        ring("heard acquire expect fill", other="room write release tell"),
        "Released by who wrote it, acquired by who copies.",
    ),
    legal(
        "maps_acquired_by_another_role",
        "H36",
        ring("heard expect fill", other="room write release acquire tell"),
        "The acquire precedes the copy, in the same CTA.",
    ),
    broken(
        "maps_of_another_role_not_heard_of",
        "H36",
        ring("room acquire expect fill", other="room_there write release tell"),
        "RAW WAR",
        "maps_written_by_another_role",
        "Nothing orders the write before the acquire and the copy.",
        launches=trips(1, 5),
    ),
    broken(
        "maps_of_another_role_not_released",
        "H36",
        ring("heard acquire expect fill", other="room write tell"),
        "proxy",
        "maps_written_by_another_role",
        "The arrival orders the write, through the generic proxy.",
        launches=trips(1, 5),
    ),
    broken(
        "maps_told_of_before_the_release",
        "H36",
        ring("heard acquire expect fill", other="room write tell release"),
        "proxy",
        "maps_written_by_another_role",
        "The release may come after the acquire.",
        launches=trips(1, 5),
    ),
    broken(
        "maps_acquired_by_who_does_not_tell",
        "H36",
        ring(
            "heard expect fill",
            use="acquire_by_all wait read free out",
            other="room write release tell",
        ),
        "proxy",
        "maps_acquired_by_another_role",
        "The role that acquires tells nobody.",
        launches=trips(1, 5),
    ),
    legal(
        "a_map_acquired_by_the_other_lanes_too",
        "H36",
        ring("room write release acquire_by_all expect fill"),
        "One of the threads that acquire is the one that copies.",
    ),
    legal(
        "a_map_written_by_one_warp_for_another",
        "H36",
        once(("write release", ""), ("", "acquire expect fill")),
        "The barrier orders the release before the acquire.",
    ),
    legal(
        "a_map_released_by_who_has_seen_it",
        "H36",
        once(("write", ""), ("", "release acquire expect fill")),
        "Who releases has observed the write.",
    ),
    legal(
        "a_map_acquired_by_one_warp_for_another",
        "H36",
        once(("write release acquire", ""), ("", "expect fill")),
        "The barrier orders the acquire before the copy.",
    ),
    broken(
        "a_map_acquired_by_one_warp_alone",
        "H36",
        once(("write release", ""), ("acquire", "expect fill")),
        "proxy",
        "a_map_acquired_by_one_warp_for_another",
        "The warp that copies has not acquired it, nor heard of it.",
    ),
    broken(
        "a_map_written_by_another_warp_unheard",
        "H36",
        once(("write release", "acquire expect fill")),
        "RAW WAR",
        "a_map_written_by_one_warp_for_another",
        "Nothing orders the two warps.",
    ),
    broken(
        "a_map_written_by_two_warps",
        "H36",
        once(("write", "write"), ("", "release acquire expect fill")),
        "WAW",
        "a_map_written_by_one_warp_for_another",
        "Both write 128 bytes at one address.",
    ),
    legal(
        "results_leave_through_a_map_each",
        "H36",
        leaving(),
        "The last store has read the map when its source is read (PTX ISA, wait_group.read).",
    ),
    legal(
        "results_leave_through_two_maps",
        "H36",
        leaving(maps=2, keep=1),
        "The last store but one has read its map.",
    ),
    broken(
        "results_leave_through_one_map_of_two_groups",
        "H36",
        leaving(maps=1, keep=1),
        "WAR",
        "results_leave_through_a_map_each",
        "The last store may still read the map, and its source.",
        launches=trips(2, 5),
    ),
    broken(
        "a_map_written_before_the_store_has_read_it",
        "H36",
        leaving("get write release acquire drain sync put fence sync_again send"),
        "WAR",
        "results_leave_through_a_map_each",
        "The wait for the last store comes too late.",
        launches=trips(2, 5),
    ),
    broken(
        "results_leave_through_a_map_not_acquired",
        "H36",
        leaving(SENDS.replace("acquire ", "")),
        "proxy",
        "results_leave_through_a_map_each",
        "They may go where the last ones went.",
        launches=trips(2, 5),
    ),
    broken(
        "results_leave_through_a_map_not_released",
        "H36",
        leaving(SENDS.replace("release ", "")),
        "proxy",
        "results_leave_through_a_map_each",
        "They may go where the last ones went.",
        launches=trips(2, 5),
    ),
    legal(
        "a_map_for_each_group",
        "H36",
        grouped(),
        "All copies through this map were used before the group that says so was done.",
        launches=GROUPS,
    ),
    legal(
        "one_map_for_groups_in_turn",
        "H36",
        grouped(maps=1),
        "The group before is done.",
        launches=GROUPS,
    ),
    broken(
        "a_map_for_each_group_at_once",
        "H36",
        grouped("write release acquire", use=""),
        "WAR",
        "a_map_for_each_group",
        "Copies of the group before last may still read the map.",
        launches=SMALL,
    ),
    broken(
        "a_map_for_each_group_told_of_too_early",
        "H36",
        grouped("write release acquire done"),
        "WAR",
        "a_map_for_each_group",
        "The map is written before the group that had it is done.",
        launches=SMALL,
    ),
    broken(
        "a_map_for_each_group_not_acquired",
        "H36",
        grouped("done write release"),
        "proxy",
        "a_map_for_each_group",
        "The tiles may be those of another group.",
        launches=GROUPS[1:],
    ),
)
