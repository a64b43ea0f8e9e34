"""Counters: what an arrival may land in, and what is left when all threads are done."""

from dataclasses import replace

import pytest
from litmus.parts import (
    CP_ASYNC,
    X1,
    Y1,
    box,
    fragment,
    init,
    load,
    single,
    slots,
    store,
    wait,
)

from fuser.kernel import ir as kir
from oracles.explorer.explore import Launch, Rule, explore

TILE = fragment("x")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))
BAR = kir.MBarrier("bar", 1, 1)
ARRIVE = kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(BAR, 0),))


def kinds(kernel: kir.Kernel, without: frozenset[Rule] = frozenset()) -> set[str]:
    """Kinds of errors of one launch."""
    return {
        f.kind
        for f in explore(replace(kernel, requires=()), Launch(1, {}), without=without).findings
    }


def roles(*bodies: tuple[kir.Stmt, ...]) -> kir.Kernel:
    """A kernel of one warp for each body, and one that writes the output."""
    threads = 32 * len(bodies) + 32
    warps = (*bodies, COPY)
    body: tuple[kir.Stmt, ...] = (
        init(BAR),
        kir.BlockSync(0, threads),
        *(kir.Role(f"r{i}", i, 1, each) for i, each in enumerate(warps)),
    )
    return single(body, threads=threads, barriers=(BAR,))


def counted(count: int, body: tuple[kir.Stmt, ...]) -> kir.Kernel:
    """A kernel of one warp for the body, whose barrier has another count."""
    bar = replace(BAR, arrivals=count)

    def again(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.MBarrierInit | kir.MBarrierArrive):
            return [replace(stmt, barrier=bar)]
        return None

    return replace(roles(body).rewrite(again), barriers=(bar,))


def test_threads_that_have_arrived_at_a_named_barrier_are_met() -> None:
    """What is left there is counted in the next turn of that barrier."""
    give, take = kir.NamedArrive(1, 64), kir.BlockSync(1, 64)
    assert kinds(roles((give,), (take,))) == set()
    assert kinds(roles((give, give), (take, take))) == {"collective"}
    assert kinds(roles((give,), ())) == {"collective"}
    assert kinds(roles((give,), ()), without=frozenset({Rule.COLLECTIVE})) == set()


def test_a_named_barrier_is_not_met_again_before_its_turn_is_over() -> None:
    """Which arrivals end the turn that the taker is in is else a matter of the schedule."""
    give, take, back = kir.NamedArrive(1, 64), kir.BlockSync(1, 64), kir.BlockSync(2, 64)
    assert kinds(roles((), (take,), (give, give, give))) == {"collective"}
    assert kinds(roles((), (take, back, take), (give, back, give))) == set()


def test_an_arrival_at_the_cluster_is_followed_by_a_wait() -> None:
    """Who leaves without it has not seen that its peers are done."""
    arrive, wait_ = kir.ClusterArrive(), kir.ClusterWait()
    assert kinds(single((*COPY, arrive), threads=32)) == {"collective"}
    assert kinds(single((*COPY, arrive, wait_), threads=32)) == set()


def test_an_arrival_that_nobody_waits_for_has_a_phase_all_the_same() -> None:
    """A phase may go unseen and unfinished, but which arrivals it counts is not left to chance."""
    assert kinds(roles((ARRIVE,), (ARRIVE,))) == {"parity"}
    assert kinds(roles((ARRIVE, kir.BlockSync(1, 64)), (kir.BlockSync(1, 64), ARRIVE))) == set()
    assert kinds(counted(2, (ARRIVE,))) == set()


def test_lanes_that_arrive_twice_do_not_share_a_phase() -> None:
    """Lane 0 arrives for the second time before lanes 1 to 31 have arrived once; nobody waits."""
    twice = (kir.MBarrierArrive(BAR, 0), kir.MBarrierArrive(BAR, 0))
    assert kinds(counted(32, twice)) & {"arrivals", "parity"}
    assert kinds(counted(32, (twice[0], kir.WarpSync(), twice[1]))) == set()


@pytest.mark.parametrize("noinc", [True, False])
def test_a_count_is_raised_before_the_phase_can_end(noinc: bool) -> None:
    """The reader's 32 arrivals are all that the count asks for, if nothing raises it in time."""
    ring = slots("S")
    slot = kir.Slot(ring, 0)
    full = kir.MBarrier("full", 64 if noinc else 32, 1)
    copy = kir.CpAsync(slot, box(X1), TILE.layout, 4)
    end = kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0)
    give = (copy, kir.CpAsyncMBarrierArrive(full, 0, noinc), *end)
    take = (kir.MBarrierArrive(full, 0), wait(full, 0, 0), load(TILE, slot), store(box(Y1), TILE))
    body = (
        init(full),
        kir.BlockSync(0, 64),
        kir.Role("give", 0, 1, give),
        kir.Role("take", 1, 1, take),
    )
    kernel = single(body, threads=64, buffers=(ring,), barriers=(full,))
    assert both_ways(kernel) == (set() if noinc else {"RAW"})


@pytest.mark.parametrize("known", [True, False])
def test_bytes_are_announced_to_an_arrival_that_was_counted(known: bool) -> None:
    """The copy's own end comes too late to say that it was expected: the phase may be over."""
    ring = slots("S")
    slot = kir.Slot(ring, 0)
    expect = (kir.MBarrierExpectTx(BAR, 0, ring.slot_nbytes),)
    issue = (*expect, kir.TmaLoad(slot, box(X1), BAR, 0))
    read = (wait(BAR, 0, 0), load(TILE, slot), store(box(Y1), TILE))
    met = (kir.BlockSync(1, 64),) if known else ()
    body = (
        init(BAR),
        kir.BlockSync(0, 64),
        kir.Role("take", 0, 1, (*met, ARRIVE, *read)),
        kir.Role("give", 1, 1, (kir.Elect(kir.Per.ROLE, issue), *met)),
    )
    kernel = single(body, threads=64, buffers=(ring,), barriers=(BAR,))
    assert both_ways(kernel) == (set() if known else {"RAW"})


def both_ways(kernel: kir.Kernel) -> set[str]:
    """Kinds of errors, the same with one way for all and with every way."""
    kernel, launch = replace(kernel, requires=()), Launch(1, {})
    short, full = (explore(kernel, launch, reduce=reduce) for reduce in (True, False))
    found = [{f.kind for f in verdict.findings} for verdict in (short, full)]
    assert found[0] == found[1]
    return found[0]


def test_an_arrival_belongs_to_one_phase_where_somebody_waits() -> None:
    """Of two arrivals without an order either is the first; the waiter may take one for two."""
    wait = kir.MBarrierWaitParity(BAR, 0, 0)
    assert kinds(roles((ARRIVE,), (wait,))) == set()
    assert kinds(roles((ARRIVE,), (ARRIVE,), (wait,))) & {"parity", "deadlock"}


def test_an_arrival_that_may_be_early_is_an_error_even_if_it_harms_nobody() -> None:
    """Each lane frees one barrier, then another; a lane that goes round takes another's place."""
    one, two = kir.MBarrier("one", 32, 1), kir.MBarrier("two", 32, 1)
    free = (kir.MBarrierArrive(one, 0), kir.MBarrierArrive(two, 0))
    go, done = kir.MBarrier("go", 1, 1), kir.MBarrierWaitParity(two, 0, 1)
    start = (
        kir.MBarrierWaitParity(one, 0, 0),
        kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(go, 0),)),
    )
    body = (
        init(one, two, go),
        kir.BlockSync(0, 96),
        kir.Role("frees", 0, 1, (*free, kir.MBarrierWaitParity(go, 0, 0), *free)),
        kir.Role("lets", 1, 1, start),
        kir.Role("waits", 2, 1, (kir.MBarrierWaitParity(two, 0, 0), done, *COPY)),
    )
    kernel = single(body, threads=96, barriers=(one, two, go))
    assert kinds(kernel) in ({"parity"}, {"arrivals"})
