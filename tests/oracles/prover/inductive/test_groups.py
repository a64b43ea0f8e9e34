"""Which groups of CTAs stand for all: as few as z3 finds, and never fewer."""

from __future__ import annotations

import pytest
from litmus.numbers import OTHER, turns
from litmus.parts import m, s

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from oracles.prover import prove
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.inductive.groups import enough
from oracles.prover.reachability.ctas import MANY, group_of, largest
from oracles.verdict import Status

LONG = eq(kir.BLOCK // 9, m)


def test_few_groups_stand_for_more_than_are_followed() -> None:
    """More CTAs in a row are told apart than are followed, and a few groups show all of them."""
    subject = turns(LONG, others=(OTHER,), counts=True)
    assert largest(subject, group_of(subject)) > MANY
    assert len(enough(subject, prove.RLIMIT)) < 8


@pytest.mark.parametrize(
    "joins", [s < kir.BLOCK + 30, s - kir.BLOCK * 2 <= s // 3 + 30, m + 30 >= kir.BLOCK]
)
def test_what_only_many_ctas_do_is_no_proof(joins: Expr) -> None:
    """The first CTA that is not joined is one of more than are followed."""
    with pytest.raises(UnsupportedError):
        enough(turns(joins, counts=True), prove.RLIMIT)
    assert prove.prove(turns(joins, counts=True)).status is not Status.PASS


@pytest.mark.parametrize("beyond", range(8))
def test_a_fault_of_large_groups_is_in_one_that_is_followed(beyond: int) -> None:
    """Whatever is added to the middle: the last CTAs of twice as many are beyond it."""
    subject = turns(s // 2 + beyond >= kir.BLOCK)
    assert max(enough(subject, prove.RLIMIT)) >= 2 * beyond + 3
    assert prove.prove(subject).status is Status.FAIL
