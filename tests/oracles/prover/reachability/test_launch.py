"""Refutations are shown by a launch, or they are none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import X1, Y1, Body, box, fragment, k, kernel, load, n, store
from litmus.suite import by_name

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from oracles.prover import prove
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.fixpoint import judge, showing
from oracles.verdict import Status

BAR = kir.MBarrier("bar", 1, 1)
TILE = fragment("x")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))


def stuck_if(condition: Expr, *requires: Expr) -> kir.Kernel:
    """Wait forever where a condition holds."""
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(BAR),)),
        kir.BlockSync(0, 32),
        kir.IfThenElse(condition, (kir.MBarrierWaitParity(BAR, 0, 0),)),
        *COPY,
    )
    made = kernel(body, barriers=(BAR,), tensors=(X1, Y1))
    return replace(made, requires=(*made.requires, *requires))


def test_a_launch_that_meets_the_condition_is_found() -> None:
    """The parameters are part of the launch that shows it."""
    found = showing(stuck_if(eq(n, 3)), 3, policy="default")
    assert found is not None
    assert found.params == {"n": 3}
    assert prove.prove(stuck_if(eq(n, 3))).status is Status.FAIL


def test_a_condition_that_no_launch_meets_refutes_nothing() -> None:
    """What is required of launches excludes it; the states do not know."""
    never = stuck_if(eq(n % 2, 1), eq(n % 2, 0))
    assert showing(never, 0, policy="default") is None
    verdict = prove.prove(never)
    assert verdict.status is Status.UNKNOWN
    assert "none of the launches" in verdict.reason


def test_extents_that_are_multiples_of_a_parameter_have_launches() -> None:
    """`16 * n` elements are aligned to 8 for every n."""
    one = by_name("accumulator_read_in_flight").kernel
    assert isinstance(one, kir.Kernel)
    found = showing(one, 1, policy="default")
    assert found is not None
    assert found.params == {"n": 1}


def test_loops_of_different_length_under_one_name_have_launches() -> None:
    """One loop has a trip less than the other, and both are called k."""
    verdict = prove.prove(by_name("ring_last_load_left_out").kernel)
    assert verdict.status is Status.FAIL
    assert {f.kind for f in verdict.findings} & {"deadlock", "arrivals"}


def test_a_loop_with_a_round_more_than_its_count_has_launches() -> None:
    """What goes wrong in round 40 of `n + 1` needs an `n` of 40, and 41 rounds."""
    late = kir.IfThenElse(k >= 40, (kir.MBarrierWaitParity(BAR, 0, 0),))
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(BAR),)),
        kir.BlockSync(0, 32),
        kir.ForLoop(k, n + 1, (late,)),
        *COPY,
    )
    made = kernel(body, barriers=(BAR,), tensors=(X1, Y1))
    found = showing(made, 40, policy="default")
    assert found is not None
    assert found.trips == {"k": 41}


def test_ctas_of_a_cluster_are_told_apart_by_their_block() -> None:
    """`BLOCK` is another number in each CTA of a cluster, not one for all."""
    bar = kir.MBarrier("bar", 1, 1)
    tile = fragment("x")
    own = kir.IfThenElse(
        eq(kir.BLOCK % 2, 0),
        (kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(bar, 0),)),),
    )
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar),)),
        kir.BlockSync(0, 32),
        own,
        kir.MBarrierWaitParity(bar, 0, 0),
        load(tile, box(X1)),
    )
    made = replace(kernel(body, barriers=(bar,), tensors=(X1, Y1)), outputs=(), cluster=2)
    made = replace(made, requires=(eq(kir.GRID, 2),))
    assert prove.prove(made).status is Status.FAIL


def test_a_number_without_a_value_is_not_followed() -> None:
    """A statement moved out of its loop asks for an index that no thread has there."""
    with pytest.raises(UnsupportedError, match="k has no value here"):
        judge(stuck_if(k < 1))


def test_a_launch_that_divides_by_nothing_is_passed_over() -> None:
    """Without tiles a tile has no number; launches with tiles show what goes wrong."""
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(BAR),)),
        kir.BlockSync(0, 32),
        kir.ForLoop(k, n, (kir.IfThenElse(eq(k // n, 0), (kir.MBarrierWaitParity(BAR, 0, 0),)),)),
        *COPY,
    )
    found = showing(kernel(body, barriers=(BAR,), tensors=(X1, Y1)), 0, policy="default")
    assert found is not None
    assert found.params == {"n": 1}
