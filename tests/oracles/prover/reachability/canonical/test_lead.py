"""A role that is done with its rounds, or far ahead, does not settle how many others go through."""

from __future__ import annotations

import pytest

from fuser.cookbook.ring import BULK, ELECT, k, q, trips
from fuser.cookbook.sum import IN, X, Y, sum_box, sum_kernel, sum_slots
from fuser.expr import Expr
from fuser.kernel import ir as kir
from oracles.prover.reachability import fixpoint


def _second(condition: Expr, first: kir.Stmt) -> kir.Kernel:
    """Return a kernel with a role that waits for another's rounds before its own.

    It copies a tile in every round, through a fence if a condition holds.
    """
    s = sum_slots("S", 1)
    copy = (
        kir.TmaStore(sum_box(Y, k), kir.Slot(s, 0)),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    rounds = (
        kir.Load(IN, sum_box(X, k), 4),
        kir.BlockSync(2, 128),
        kir.Store(kir.Slot(s, 0), IN, 4),
        kir.IfThenElse(condition, (kir.FenceAsyncProxy(kir.Space.SHARED),)),
        kir.BlockSync(2, 128),
        kir.Elect(ELECT, copy),
    )
    roles = (
        kir.Role("late", 0, 4, (kir.BlockSync(1, 256), kir.ForLoop(k, trips, rounds))),
        kir.Role("early", 4, 4, (first, kir.NamedArrive(1, 256))),
    )
    return sum_kernel("second", roles, (s,), (), 256)


SAME = kir.ForLoop(q, trips, (kir.BlockSync(3, 128),))
"""As many rounds as the late role goes through."""


@pytest.mark.parametrize("bound", [1, 3, 12, 40])
def test_rounds_of_one_role_do_not_stand_for_those_of_another(bound: int) -> None:
    """The early role's rounds are all one, so the late one was seen in its first only.

    From round `bound` on nothing fences its copies: a false proof.
    """
    found = fixpoint.judge(_second(k < bound, SAME)).violations
    assert {(v.kind, v.k) for v in found} == {("proxy", bound)}


def test_roles_one_after_the_other_are_proved() -> None:
    """A lead without bound must not keep a right kernel from its proof."""
    closed = fixpoint.judge(_second(1, SAME))
    assert (closed.violations, closed.reason) == ((), "")
    assert closed.states < 50


def test_what_shows_only_with_two_lengths_for_one_count_is_no_refutation() -> None:
    """The late role never goes through more rounds than the early one, though it is let go."""
    early = kir.IfThenElse(trips < 12, (), (SAME,))
    closed = fixpoint.judge(_second(k < trips, early))
    assert closed.violations == ()
