"""Which groups of CTAs stand for all: as few as z3 finds, and never fewer."""

from __future__ import annotations

import pytest
from litmus.numbers import OTHER, turns
from litmus.parts import m, s

from fuser.expr import Expr, eq
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.schedule.params import ReductionParams
from fuzz.cases.case import Case, compiled
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


def test_conditions_in_loops_are_of_rounds_that_are_executed() -> None:
    """Eight loops behind an election: of rounds that no CTA has, scenes would be told apart."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["i0", "i1"], dtype="f32")
    for number in range(8):
        fd.add_output(fd.ops.sum(fd.ops.mul(x, float(number)), [1]))
    params = ReductionParams((2, 64), 1, 1, None, "direct", "direct", splits=2, meet="last")
    case = Case(fd.fusion(), params, {"i0": 48, "i1": 64}, "reals", 0)
    (launch,) = compiled(case).launches
    assert "order" in prove.prove(launch.kernel).confirmed_by
