"""The event graph: which threads share an element of a tile, and which copies an await covers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import kernels as ks
import pytest
from litmus.matmul_kernels import round_trip
from litmus.parts import BULK, YN, box, elect, k, n, slots
from litmus.stores import leaving

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.graph import LATER, Footprints, closing, covering, distances
from oracles.prover.invariants.trace import Bound, Run, read
from oracles.prover.reachability import fixpoint
from oracles.prover.sites import Overlap
from oracles.verdict import Status


def test_plain_accesses_of_one_layout_do_not_meet() -> None:
    """Each element has one thread."""
    feet = Footprints(read(round_trip("put get warp", put_matrix=False, get_matrix=False)))
    put, get = feet.spreads
    assert not list(feet.overlaps(put, get))


@pytest.mark.parametrize(("put_matrix", "get_matrix"), [(True, True), (True, False), (False, True)])
def test_matrix_accesses_overlap_within_their_warp(*, put_matrix: bool, get_matrix: bool) -> None:
    """Lanes are not distinguished, warps are."""
    kernel = round_trip("put warp get warp2", put_matrix=put_matrix, get_matrix=get_matrix)
    feet = Footprints(read(kernel))
    put, get = feet.spreads
    found = list(feet.overlaps(put, get))
    assert found
    assert all(how is Overlap.WARP for *_, how in found)


def test_lanes_of_one_matrix_store_touch_different_elements() -> None:
    """So the store does not collide with itself, though it meets itself an iteration later."""
    feet = Footprints(read(round_trip("put warp get warp2")))
    put, _ = feet.spreads
    assert not feet.collides(put)
    assert list(feet.overlaps(put, put))


def test_the_same_layout_meets_only_itself() -> None:
    """A private round trip needs no barrier; a change of layout does."""
    feet = Footprints(read(ks.relaid(same=True)))
    store, load = feet.spreads
    assert not list(feet.overlaps(store, load))
    feet = Footprints(read(ks.relaid()))
    assert any(how is Overlap.ANY for *_, how in feet.overlaps(store, load))


def test_a_broadcast_tile_meets_many_threads() -> None:
    """One shared element handed to a row of threads is read by threads that did not write it."""
    narrow = kir.Buffer("S0", ks.X.dtype, (ks.ROWS, 1), 1, 0)
    column = kir.Fragment("c", ks.X.dtype, kir.Layout((ks.ROWS, 1), 1, 32 * ks.WARPS))
    body: list[kir.Stmt] = [
        kir.Load(column, kir.Box(ks.T0, (0, 0), (ks.ROWS, 1), (ks.R, ks.C)), 1),
        kir.Store(kir.Slot(narrow, 0), column, 1),
        kir.Load(ks.X, kir.Slot(narrow, 0), 1),
    ]
    feet = Footprints(read(ks.kernel("broadcast", body, buffers=(narrow,))))
    store, load = feet.spreads
    assert list(feet.overlaps(store, load))


# --- commits inside an if: which copies an await covers then --------------------------------------


ALWAYS = Run(0, 0, (), None, None)
LATE = Run(0, 0, (Bound(1, 0, -1),), None, None)
"""From iteration 1 on."""

GUARDS: dict[str, Expr] = {
    "not the first": k >= 1,
    "not the first two": k >= 2,
    "not the last": k + 1 < n,
    "not the last two": k + 2 < n,
    "even ones": eq(k % 2, 0),
    "odd ones": eq(k % 2, 1),
}


def storing(stages: int, test: Expr, keep: int, *, alone: bool, flush: bool) -> kir.Kernel:
    """Return a kernel that sends tiles off, but commits only where a test holds.

    `alone` leaves the copy outside of the if, `flush` commits once more behind the loop.
    """
    put = kir.TmaStore(box(YN, k), kir.Slot(slots("S", stages), k % stages))
    commit = kir.AsyncCommit(BULK)
    issue = (
        (put, kir.IfThenElse(test, (commit,))) if alone else (kir.IfThenElse(test, (put, commit)),)
    )
    drained = kir.AsyncAwait(BULK, 0, read_only=True)
    return leaving(
        stages=stages,
        issue=elect(*issue),
        drain=elect(kir.AsyncAwait(BULK, keep, read_only=True)),
        end=elect(*((commit, drained) if flush else (drained,))),
    )


def cases() -> Iterator[tuple[str, kir.Kernel]]:
    """Yield kernels, right and wrong ones."""
    for name, test in GUARDS.items():
        for stages, keep in ((1, 0), (2, 0), (2, 1)):
            for alone, flush in ((False, False), (True, True)):
                who = "commit" if alone else "copy and commit"
                says = f"{who}, {name}, {stages} slots, keep {keep}"
                yield says, storing(stages, test, keep, alone=alone, flush=flush)


CASES = dict(cases())


@cache
def wrong(says: str) -> bool:
    """Whether the other engine refutes a case."""
    return bool(fixpoint.judge(CASES[says]).violations)


@pytest.mark.parametrize("says", CASES)
def test_a_commit_inside_an_if_means_the_same_to_both_engines(says: str) -> None:
    """Neither a proof that the other engine refutes, nor a doubt that it does not share."""
    assert confirm(CASES[says]).status is (Status.FAIL if wrong(says) else Status.PASS)


def test_some_commits_inside_an_if_are_right_and_some_wrong() -> None:
    """Else the comparison of both engines would say little."""
    refuted = sum(wrong(says) for says in CASES)
    assert 12 < refuted < len(CASES) - 12


def test_a_slot_that_neither_walks_nor_stands_still_is_unsupported() -> None:
    """Every second iteration of a ring of three takes its slots two by two."""
    verdict = confirm(storing(3, eq(k % 2, 0), 0, alone=False, flush=False))
    assert verdict.status is Status.UNSUPPORTED
    assert "does not walk through 3 slots" in verdict.reason


@pytest.mark.parametrize(
    ("before", "awaited", "keep", "least"),
    [(0, 1, 0, 0), (0, 0, 0, 1), (0, 1, 1, 1), (0, 1, 2, 2), (1, 1, 0, 1)],
)
def test_an_await_covers_a_copy_as_soon_as_more_than_keep_commits_follow(
    before: int, awaited: int, keep: int, least: int
) -> None:
    """One commit an iteration: the iterations between are the groups left alone."""
    found = distances([ALWAYS], before, awaited, keep, 0)
    assert found == range(least, least + 1)
    assert list(covering([ALWAYS], before, awaited, keep, least)) == [()]
    if least:
        assert not list(covering([ALWAYS], before, awaited, keep, least - 1))


def test_the_first_await_covers_what_was_issued_ahead() -> None:
    """Three copies ahead of the loop are three iterations before its first await."""
    assert distances([ALWAYS], 0, 1, 0, -3) == range(4)


def test_a_commit_that_may_not_run_covers_where_it_does() -> None:
    """The copy of iteration 0 is committed in iteration 1, and its group is covered there."""
    assert distances([LATE], 0, 1, 0, 0) == range(LATER + 1)
    assert list(covering([LATE], 0, 1, 0, 0)) == [(Bound(1, 0, -1),)]
    assert list(covering([LATE], 0, 1, 0, 1)) == [(Bound(1, 0, -1),), (Bound(1, 0, -2),)]


def test_groups_behind_the_loop_count_for_an_await_there() -> None:
    """One that keeps a group covers all of the loop if one more commit follows."""
    assert list(closing([ALWAYS], 0, 1, 2)) == ["true"]
    assert next(closing([ALWAYS], 0, 1, 1)) == ALWAYS.happens(0)
    assert not list(closing([], 0, 0, 0))
