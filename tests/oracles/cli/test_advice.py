"""Advice names what may go, what may go together, and what must stay if another goes."""

from __future__ import annotations

import kernels as ks
import pytest

from fuser.kernel import ir as kir
from oracles.cli.advice import Cost, Judge, cost, survey, syncs
from oracles.verdict import Finding, Status, Verdict


def doubled(kernel: kir.Kernel, kind: type, copy: kir.Stmt) -> kir.Kernel:
    """Return the kernel with `copy` after its first statement of a kind."""
    first = next(stmt for stmt in kernel.walk() if isinstance(stmt, kind))
    return kernel.rewrite(lambda stmt: [stmt, copy] if stmt is first else None)


def needing(*wanted: tuple[int, ...]) -> Judge:
    """A judge for `ks.staged(2)` that wants one line of each group to be left."""
    whole = {id(s): n for n, s in syncs(STAGED).items()}

    def judge(kernel: kir.Kernel, policy: str) -> Verdict:
        left = {whole[id(s)] for s in kernel.walk() if id(s) in whole}
        if all(left & set(group) for group in wanted):
            return Verdict("judge", Status.PASS, 7)
        return Verdict("judge", Status.FAIL, 7, (Finding("RAW", "S", "missing", trips=1),))

    return judge


STAGED = ks.staged(2)
LINES = tuple(syncs(STAGED))


def test_a_kernel_without_a_needless_sync_gets_no_advice() -> None:
    """Advice that is always there is not read."""
    found = survey(ks.staged(2))
    assert found.advice == ()
    assert (found.cut, found.reason) == (False, "")
    assert found.proofs >= len(LINES)


def test_of_two_fences_either_may_go_but_not_both() -> None:
    """Single removals alone would advise to remove both."""
    kernel = doubled(ks.staged(2), kir.FenceAsyncProxy, kir.FenceAsyncProxy(kir.Space.SHARED))
    fences = [n for n, s in syncs(kernel).items() if isinstance(s, kir.FenceAsyncProxy)]
    found = survey(kernel)
    assert sorted(n for a in found.advice for n in a.lines) == fences
    assert sorted(found.together) == [(fences[0],), (fences[1],)]
    assert found.complete
    assert [a.instead for a in found.advice] == [(fences[1],), (fences[0],)]
    assert all(a.cost is Cost.FENCE and a.loops == ("k",) for a in found.advice)
    assert "must stay" in str(found.advice[0])


def test_dearest_comes_first() -> None:
    """A fence in the main loop before a fence outside, a fence before a barrier."""
    kernel = doubled(ks.specialized(2), kir.WarpSync, kir.BlockSync(1, 32 * ks.WARPS))
    kernel = doubled(kernel, kir.WarpSync, kir.ThreadFence(kir.Scope.CTA))
    found = survey(kernel).advice
    assert [(a.cost, bool(a.loops)) for a in found] == [
        (Cost.FENCE, True),
        (Cost.BARRIER, True),
        (Cost.BARRIER, True),
        (Cost.FENCE, False),
    ]


IDLE = kir.MBarrier("idle", 1, 1)
HANDSHAKE = ks.kernel(
    "handshake",
    [
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(IDLE),)),
        kir.BlockSync(0, 32 * ks.WARPS),
        kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(IDLE, 0),)),
        kir.MBarrierWaitParity(IDLE, 0, 0),
        *ks.direct().body[1:],
    ],
    barriers=(IDLE,),
)


def judged(*legal: set[type]) -> Judge:
    """A judge of HANDSHAKE that passes what is left of it if that is one of these sets."""

    def judge(kernel: kir.Kernel, policy: str) -> Verdict:
        if {type(s) for s in syncs(kernel).values()} in legal:
            return Verdict("judge", Status.PASS, 7)
        return Verdict("judge", Status.FAIL, 7, (Finding("init", "idle", "missing", trips=1),))

    return judge


ALL = {kir.MBarrierInit, kir.BlockSync, kir.MBarrierArrive, kir.MBarrierWaitParity}


def test_statements_that_only_make_sense_together_are_tried_as_one() -> None:
    """A handshake of which no part may go alone."""
    found = survey(HANDSHAKE, judge=judged(ALL, {kir.BlockSync}))
    (piece,) = found.advice
    assert piece.texts == (
        "mbarrier_init(idle, 1)",
        "mbarrier_arrive(idle[0], cta)",
        "mbarrier_wait_parity(idle[0], 0, cta)",
    )
    assert piece.cost is Cost.WAIT
    assert found.together == (piece.lines,)


def test_what_a_removal_frees_may_go_as_well() -> None:
    """Once nobody waits, nobody needs to arrive, though no arrival may go alone."""
    legal = (ALL, ALL - {kir.MBarrierWaitParity}, {kir.MBarrierInit, kir.BlockSync})
    found = survey(HANDSHAKE, judge=judged(*legal))
    lines = {type(stmt): n for n, stmt in syncs(HANDSHAKE).items()}
    assert found.together == ((lines[kir.MBarrierWaitParity],),)
    assert found.then == (lines[kir.MBarrierArrive],)


@pytest.mark.parametrize(
    ("wanted", "sets"),
    [
        ([LINES], {LINES[:i] + LINES[i + 1 :] for i in range(len(LINES))}),
        ([(n,) for n in LINES[2:]], {LINES[:2]}),
        ([LINES[:2], LINES[1:3], *((n,) for n in LINES[3:])], {(LINES[1],), (LINES[0], LINES[2])}),
    ],
)
def test_all_largest_sets_are_found(
    wanted: list[tuple[int, ...]], sets: set[tuple[int, ...]]
) -> None:
    """Each alternative, and nothing that is part of another."""
    found = survey(STAGED, judge=needing(*wanted), most=1000)
    if len(found.advice) <= 6:
        assert set(found.together) == sets
    else:
        assert not found.complete
        assert set(found.together) <= sets


def test_a_cut_search_says_so() -> None:
    """Silence must not be taken for praise."""
    found = survey(STAGED, most=3)
    assert found.cut
    assert not found.complete
    assert found.proofs == 3


def test_of_a_refuted_kernel_nothing_is_advised() -> None:
    """A sync that a broken kernel does not need may be what a right one does."""
    found = survey(ks.staged(2, fence=False))
    assert found.advice == ()
    assert "the whole kernel is fail" in found.reason


def test_every_sync_has_a_class() -> None:
    """The order of advice is the order of cost."""
    assert cost(kir.FenceAsyncProxy(kir.Space.ALL)) < cost(kir.AsyncAwait(kir.AsyncKind.BULK, 0))
    assert cost(kir.AsyncAwait(kir.AsyncKind.BULK, 0)) < cost(kir.BlockSync(0, 128))
    assert cost(kir.BlockSync(0, 128)) < cost(kir.NamedArrive(1, 128))
    assert cost(kir.NamedArrive(1, 128)) < cost(kir.AsyncCommit(kir.AsyncKind.BULK))
