"""Counters: what an arrival may land in, and what is left when all threads are done."""

from dataclasses import replace

from litmus.parts import X1, Y1, box, fragment, init, load, single, store

from fuser import kernel_ir as kir
from oracles.explorer import Launch, Rule, explore

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


def test_threads_that_have_arrived_at_a_named_barrier_are_met() -> None:
    """What is left there is counted in the next turn of that barrier."""
    give, take = kir.NamedArrive(1, 64), kir.BlockSync(1, 64)
    assert kinds(roles((give,), (take,))) == set()
    assert kinds(roles((give, give), (take, take))) == {"collective"}
    assert kinds(roles((give,), ())) == {"collective"}
    assert kinds(roles((give,), ()), without=frozenset({Rule.COLLECTIVE})) == set()


def test_arrivals_that_nobody_waits_for_have_no_order() -> None:
    """Phases without a waiter are legal, however they come about."""
    assert kinds(roles((ARRIVE,), (ARRIVE,))) == set()


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
