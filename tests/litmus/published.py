"""cp.async beside mbarriers and engines: arrivals of copies, fences of what they wrote."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    CP_ASYNC,
    SHARED,
    XN,
    YN,
    Litmus,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    slots,
    store,
    trips,
    wait,
)

GIVE, TAKE = "room copy publish", "wait read free out"


def published(
    give: str = GIVE,
    take: str = TAKE,
    *,
    arrivals: int = 32,
    noinc: bool = True,
    leaves: bool = False,
) -> kir.Kernel:
    """Return two roles: one copies by cp.async and publishes on an mbarrier, one takes.

    The taker reads the tile, or sends it off by TMA where it `leaves`.
    """
    buffer, tile = slots("S", 2), fragment("x")
    extra, held = slots("E", 2, buffer.end), fragment("e")
    full = kir.MBarrier("full", arrivals, 2)
    empty = kir.MBarrier("empty", 1 if leaves else 32, 2)
    slot, turn = k % 2, k // 2
    words: dict[str, kir.Stmt] = {
        "room": wait(empty, slot, turn + 1),
        "copy": kir.CpAsync(kir.Slot(buffer, slot), box(XN, k), tile.layout, 4),
        "get": load(held, box(XN, k)),
        "put": store(kir.Slot(extra, slot), held),
        "publish": kir.CpAsyncMBarrierArrive(full, slot, noinc),
        "arrive": kir.MBarrierArrive(full, slot),
        "commit": kir.AsyncCommit(CP_ASYNC),
        "await": kir.AsyncAwait(CP_ASYNC, 0),
        "fence": kir.FenceAsyncProxy(SHARED),
        "wait": wait(full, slot, turn),
        "fence_here": kir.FenceAsyncProxy(SHARED),
        "read": load(tile, kir.Slot(buffer, slot)),
        "read_extra": load(held, kir.Slot(extra, slot)),
        "free": kir.MBarrierArrive(empty, slot),
        "out": store(box(YN, k), tile),
        "out_extra": store(box(YN, k), held),
        "send": kir.TmaStore(box(YN, k), kir.Slot(buffer, slot)),
        "sent": kir.AsyncCommit(BULK),
        "drain": kir.AsyncAwait(BULK, 0, read_only=True),
    }
    taken = (elect(*said(take, words)),) if leaves else said(take, words)
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("give", 0, 1, (kir.ForLoop(k, n, said(give, words)),)),
        kir.Role("take", 1, 1, (kir.ForLoop(k, n, taken),)),
    )
    return kernel(body, threads=64, buffers=(buffer, extra), barriers=(full, empty))


def sent(loop: str) -> kir.Kernel:
    """Copy a tile by cp.async of two warps and send it off by TMA, in one slot."""
    buffer, tile = slots("S"), fragment("x", 64)
    words: dict[str, kir.Stmt] = {
        "drain": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "sync": kir.BlockSync(0, 64),
        "copy": kir.CpAsync(kir.Slot(buffer, 0), box(XN, k), tile.layout, 2),
        "commit": kir.AsyncCommit(CP_ASYNC),
        "await": kir.AsyncAwait(CP_ASYNC, 0),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(1, 64),
        "issue": elect(kir.TmaStore(box(YN, k), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
    }
    end = elect(kir.AsyncAwait(BULK, 0, read_only=True))
    return kernel((kir.ForLoop(k, n, said(loop, words)), end), threads=64, buffers=(buffer,))


SEND = "wait fence_here send sent drain free"

LITMUS: tuple[Litmus, ...] = (
    legal(
        "copies_published",
        "H52",
        published(),
        "Each thread's copies arrive for it (PTX ISA, cp.async.mbarrier.arrive.noinc).",
    ),
    broken(
        "copies_published_with_increment",
        "H52",
        published(noinc=False),
        "deadlock arrivals",
        "copies_published",
        "Without noinc the arrivals raise the pending count before they lower it.",
        launches=trips(1, 5),
    ),
    legal(
        "copies_published_with_increment_and_arrivals",
        "H52",
        published("room copy publish arrive", noinc=False),
        "The threads arrive themselves, and the copies' arrivals are counted on top.",
    ),
    broken(
        "copies_published_on_a_larger_count",
        "H52 H09",
        published(arrivals=33),
        "deadlock arrivals",
        "copies_published",
        "32 threads arrive and the phase asks for 33.",
        launches=trips(1, 5),
    ),
    broken(
        "copies_published_and_arrived_twice",
        "H52 H09",
        published("room copy publish arrive"),
        "arrivals RAW WAR parity",
        "copies_published",
        "Ordinary arrivals complete the phase while copies are in flight.",
        launches=trips(1, 5),
    ),
    broken(
        "copies_announced_by_an_ordinary_arrival",
        "H52 H51",
        published("room copy arrive"),
        "RAW",
        "copies_awaited_then_announced",
        "An arrival releases what is done, and the copy is not.",
        launches=trips(1, 5),
    ),
    legal(
        "copies_awaited_then_announced",
        "H52 H51",
        published("room copy commit await arrive"),
        "Each thread waits for its own copies and then arrives.",
    ),
    broken(
        "stores_published_by_copies",
        "H52",
        published("room copy get put publish", "wait read read_extra free out_extra"),
        "RAW",
        "stores_published_by_arrivals",
        "The arrival of copies publishes the copies, never ordinary stores.",
        launches=trips(1, 5),
    ),
    legal(
        "stores_published_by_arrivals",
        "H52",
        published(
            "room copy get put publish arrive", "wait read read_extra free out_extra", arrivals=64
        ),
        "Copies arrive for themselves, and each thread arrives for its stores.",
    ),
    broken(
        "copies_published_into_a_slot_in_use",
        "H53 H05",
        published("copy publish"),
        "WAR WAW arrivals parity RAW deadlock",
        "copies_published",
        "Nothing keeps the copies from a slot that is still read.",
    ),
    legal(
        "copies_sent_by_tma",
        "H54",
        sent("drain sync copy commit await fence join issue"),
        "Awaited, fenced by each writer, joined, sent.",
    ),
    broken(
        "copies_sent_without_a_fence",
        "H54",
        sent("drain sync copy commit await join issue"),
        "proxy",
        "copies_sent_by_tma",
        "cp.async writes in the generic proxy and the store engine reads in the async one.",
        launches=trips(1, 5),
    ),
    broken(
        "copies_fenced_while_in_flight",
        "H54 H33",
        sent("drain sync copy commit fence await join issue"),
        "proxy",
        "copies_sent_by_tma",
        "A fence between the issue of a copy and its wait covers nothing.",
        launches=trips(1, 5),
    ),
    broken(
        "copies_sent_while_in_flight",
        "H54 H51",
        sent("drain sync copy commit fence join issue await"),
        "RAW proxy",
        "copies_sent_by_tma",
        "The wait for the copies comes behind the engine's read.",
        launches=trips(1, 5),
    ),
    legal(
        "published_copies_fenced_by_the_taker",
        "H54",
        published(take=SEND, leaves=True),
        "Where copies arrive for themselves, only the taker can fence, after its wait.",
    ),
    broken(
        "published_copies_not_fenced",
        "H54",
        published(take=SEND.replace("fence_here ", ""), leaves=True),
        "proxy",
        "published_copies_fenced_by_the_taker",
        "cp.async writes in the generic proxy, also when it arrives on an mbarrier.",
        launches=trips(1, 5),
    ),
    broken(
        "published_copies_fenced_by_the_giver",
        "H54 H33",
        published("room copy fence publish", SEND.replace("fence_here ", ""), leaves=True),
        "proxy",
        "published_copies_fenced_by_the_taker",
        "At the giver's fence the copies are still in flight.",
        launches=trips(1, 5),
    ),
)
