"""mbarriers: arrivals and bytes come in their own phase, generations are distinguished."""

from __future__ import annotations

import pytest
from litmus.parts import (
    CP_ASYNC,
    NBYTES,
    X1,
    XN,
    Y1,
    YN,
    Body,
    box,
    elect,
    fragment,
    init,
    k,
    kernel,
    load,
    n,
    single,
    slots,
    store,
    wait,
)

from fuser.kernel import ir as kir
from oracles.prover.reachability.fixpoint import Closed, judge
from oracles.prover.reachability.rules import Rule

BAR = kir.MBarrier("bar", 1, 1)
TILE = fragment("x")
RING = slots("S")
WORK = (load(TILE, box(X1)),) * 4


def kinds(closed: Closed, rule: Rule | None = None) -> set[str]:
    """Kinds of the errors, or of those of a rule."""
    return {v.kind for v in closed.violations if rule in (None, v.rule)}


def filled(fill: Body, *, joined: bool, threads: int = 64) -> kir.Kernel:
    """Let one warp fill a slot, and another make the only arrival of the phase that says so."""
    meet: Body = (kir.BlockSync(1, 64),) if joined else ()
    take = elect(kir.MBarrierArrive(BAR, 0)), wait(BAR, 0, 0), load(TILE, kir.Slot(RING, 0))
    body: Body = (
        init(BAR),
        kir.BlockSync(0, threads),
        kir.Role("fills", 0, 1, (*fill, *meet)),
        kir.Role("takes", 1, 1, (*WORK, *meet, *take, store(box(Y1), TILE))),
    )
    return single(body, threads=threads, buffers=(RING,), barriers=(BAR,))


@pytest.mark.parametrize(
    ("fill", "kind"),
    [
        (
            (
                elect(
                    kir.MBarrierExpectTx(BAR, 0, NBYTES),
                    kir.TmaLoad(kir.Slot(RING, 0), box(X1), BAR, 0),
                ),
            ),
            "bytes",
        ),
        (
            (
                kir.CpAsync(kir.Slot(RING, 0), box(X1), TILE.layout, 4),
                kir.CpAsyncMBarrierArrive(BAR, 0, noinc=False),
            ),
            "arrivals",
        ),
    ],
    ids=["expected bytes", "an arrival more"],
)
def test_what_a_phase_waits_for_is_known_before_its_last_arrival(fill: Body, kind: str) -> None:
    """The arrival may come first, and then the phase is over before the copy is known of."""
    assert not kinds(judge(filled(fill, joined=True)))
    assert kinds(judge(filled(fill, joined=False)), Rule.PHASE_EARLY) == {kind}


@pytest.mark.parametrize("ends", [(), (kir.MBarrierInvalidate(BAR),)], ids=["exit", "invalidated"])
def test_bytes_are_not_expected_for_nothing(ends: Body) -> None:
    """Nobody waits for them, and no copy brings them: the phase can never be complete."""
    last = kir.WarpSync(), load(TILE, box(X1)), store(box(Y1), TILE)
    expect = init(BAR), kir.WarpSync(), elect(kir.MBarrierExpectTx(BAR, 0, NBYTES), *ends)
    assert kinds(judge(single((*expect, *last), barriers=(BAR,)))) == {"init" if ends else "bytes"}
    begun = init(BAR), kir.WarpSync(), elect(*ends)
    assert not kinds(judge(single((*begun, *last), barriers=(BAR,))))


def arriving(bar: kir.MBarrier, *step: kir.Stmt, waits: bool = True) -> kir.Kernel:
    """Arrive in every round at a barrier, and wait for it only in the last."""
    last: Body = (kir.IfThenElse(n <= k + 1, (wait(bar, 0, k),)),) if waits else ()
    body: Body = (
        init(bar),
        kir.BlockSync(0, 32),
        kir.ForLoop(k, n, (load(TILE, box(XN, k)), *step, *last, store(box(YN, k), TILE))),
        kir.AsyncAwait(CP_ASYNC, 0),
    )
    return kernel(body, barriers=(bar,), buffers=(slots("S", 8),))


@pytest.mark.parametrize("arrivals", [1, 2])
def test_a_phase_of_ones_own_arrivals_is_over_without_a_wait(arrivals: int) -> None:
    """One thread makes all of them, one after the other: it need not ask whether they are in."""
    bar = kir.MBarrier("bar", arrivals, 1)
    step = elect(*(kir.MBarrierArrive(bar, 0),) * arrivals)
    assert not kinds(judge(arriving(bar, step, kir.WarpSync())))


def test_a_phase_with_other_threads_arrivals_is_not() -> None:
    """A thread may be back before another has arrived, and take that one's place."""
    bar = kir.MBarrier("bar", 32, 1)
    step = kir.MBarrierArrive(bar, 0)
    assert kinds(judge(arriving(bar, step))) == {"parity"}
    assert not kinds(judge(arriving(bar, step, kir.WarpSync())))


def test_phases_that_nobody_waits_for_are_told_apart_all_the_same() -> None:
    """All judges agree on it: an arrival counts for its own phase, whoever looks."""
    bar = kir.MBarrier("bar", 32, 1)
    step = kir.MBarrierArrive(bar, 0)
    assert kinds(judge(arriving(bar, step, waits=False))) == {"parity"}
    assert not kinds(judge(arriving(bar, step, kir.WarpSync(), waits=False)))


def test_copies_that_arrive_at_a_barrier_stay_in_their_group() -> None:
    """Their thread may await the group all the same, and then nothing is in flight at the end."""
    copy = kir.CpAsync(kir.Slot(RING, 0), box(X1), TILE.layout, 4)
    late = kir.CpAsyncMBarrierArrive(BAR, 0, noinc=False)
    last = load(TILE, box(X1)), store(box(Y1), TILE)
    done = kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0)
    for ends, found in (((), {"exit"}), (done, set())):
        body = init(BAR), kir.WarpSync(), copy, late, *ends, *last
        assert kinds(judge(single(body, buffers=(RING,), barriers=(BAR,)))) == found


def test_an_arrival_that_copies_make_comes_when_they_are_done() -> None:
    """The thread goes on before it: in the next round it may still be to come."""
    ring = slots("S", 8)
    whole = kir.Layout(TILE.layout.shape, 4, 1)
    copy = kir.CpAsync(kir.Slot(ring, k % 8), box(XN, k), whole, 4), kir.AsyncCommit(CP_ASYNC)
    late = *copy, kir.CpAsyncMBarrierArrive(BAR, 0, noinc=True), kir.AsyncAwait(CP_ASYNC, 1)
    done = *copy, kir.AsyncAwait(CP_ASYNC, 0), kir.MBarrierArrive(BAR, 0)
    assert kinds(judge(arriving(BAR, elect(*late), kir.WarpSync()))) == {"parity"}
    assert not kinds(judge(arriving(BAR, elect(*done), kir.WarpSync())))
