"""What may be left when threads are gone: nothing in flight, no barrier half reached."""

from __future__ import annotations

from litmus.parts import (
    BULK,
    X1,
    XN,
    Y1,
    YN,
    Body,
    box,
    elect,
    fragment,
    k,
    kernel,
    load,
    n,
    single,
    slots,
    store,
)

from fuser.kernel import ir as kir
from oracles.prover.reachability.fixpoint import Closed, judge
from oracles.prover.reachability.rules import Rule

TILE = fragment("x")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))


def kinds(closed: Closed) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in closed.violations}


def test_an_arrival_that_no_barrier_takes_is_an_error() -> None:
    """A named barrier with threads on it at the end was meant to be met."""
    alone = single((kir.NamedArrive(1, 64), *COPY), threads=32)
    assert kinds(judge(alone)) == {"collective"}
    assert not kinds(judge(alone, without=frozenset({Rule.SYNC_COUNT})))


def test_an_arrival_that_is_met_is_none() -> None:
    """The same arrival, with a warp that waits for it."""
    body: Body = (
        kir.Role("gives", 0, 1, (kir.NamedArrive(1, 64), *COPY)),
        kir.Role("takes", 1, 1, (kir.BlockSync(1, 64),)),
    )
    assert not kinds(judge(single(body, threads=64)))


def test_an_arrival_too_many_shows_at_the_trip_count_that_leaves_it() -> None:
    """The giver arrives in each turn, the taker waits in all but the last."""
    given = kir.NamedArrive(1, 64), kir.BlockSync(2, 64)
    body: Body = (
        kir.Role("gives", 0, 1, (kir.ForLoop(k, n, given),)),
        kir.Role(
            "takes",
            1,
            1,
            (
                kir.ForLoop(
                    k, n, (kir.IfThenElse(k + 1 < n, (kir.BlockSync(1, 64),)), kir.BlockSync(2, 64))
                ),
            ),
        ),
        *COPY,
    )
    made = kernel(body, threads=64, tensors=(X1, Y1))
    assert "collective" in kinds(judge(made))


def test_groups_of_threads_that_never_wait_do_not_pile_up() -> None:
    """All threads commit, one waits: the others' empty groups are as good as none."""
    ring = slots("S")
    step: Body = (
        load(TILE, box(XN, k)),
        store(kir.Slot(ring, 0), TILE),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(0, 32),
        elect(kir.TmaStore(box(YN, k), kir.Slot(ring, 0))),
        kir.AsyncCommit(BULK),
        elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        kir.BlockSync(0, 32),
    )
    closed = judge(kernel((kir.ForLoop(k, n, step),), buffers=(ring,)))
    assert not kinds(closed)
    assert not closed.reason
    assert closed.states < 10
