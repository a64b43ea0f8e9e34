"""Tests of loops that do something else in every m-th iteration: proved for every remainder."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from fuser.cookbook import recipes
from fuser.expr import eq
from fuser.kernel import ir as kir
from fuzz.kernels.draw import draw
from fuzz.kernels.template import FAMILIES
from fuzz.mutation.operators import drop_each_sync
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.rewriting import unrolled, whole
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status


@cache
def doubled() -> kir.Kernel:
    """Return a right kernel that hands tiles over by two named barriers each way, in turn."""
    first = tuple(FAMILIES).index("named")
    return next(
        found.kernel
        for index in range(first, 3000, len(FAMILIES))
        if not (found := draw(20, index)).faults and found.kernel.buffers[0].slots == 2
    )


def test_two_slots_in_turn_are_proved_for_all_trip_counts() -> None:
    """Odd and even numbers of trips are asked one by one."""
    assert len(unrolled(whole(doubled()))) == 2
    verdict = confirm(doubled())
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 20


def test_no_slot_of_several_is_proved_with_a_sync_dropped() -> None:
    """Whatever the other engine refutes is not proved here."""
    for mutant in drop_each_sync(doubled()):
        assert fixpoint.judge(mutant.kernel).violations, mutant.change
        assert confirm(mutant.kernel).status in (Status.FAIL, Status.UNSUPPORTED), mutant.change


def test_only_the_last_round_may_be_short() -> None:
    """With an odd number of trips the second half of the last round does not run."""
    even, odd = (part.kernel for part in unrolled(whole(doubled())))

    def guards(kernel: kir.Kernel) -> int:
        return sum(
            isinstance(s, kir.IfThenElse) and "round < rounds" in str(s.condition)
            for s in kernel.walk()
        )

    assert guards(even) == 0
    assert guards(odd) == 2


def test_a_kernel_that_asks_for_no_remainder_stays_as_it_is() -> None:
    """Rings turn by slots, not by ifs."""
    one = whole(recipes.specialized_ring())
    assert unrolled(one) == [one]


def test_what_threads_do_not_share_may_be_left_out_without_unrolling() -> None:
    """Roles that write every other tile wait for all of them; their loop may stay as it is."""
    kernel = every(recipes.store_ring(), 7)
    assert len(unrolled(whole(kernel))) == 1
    assert confirm(kernel).status is Status.PASS


def every(kernel: kir.Kernel, by: int, many: int = 1) -> kir.Kernel:
    """Execute the first statements of a loop in every `by`-th iteration only."""
    loop = next(s for s in kernel.walk() if isinstance(s, kir.ForLoop))
    body = (kir.IfThenElse(eq(loop.index % by, 0), loop.body[:many]), *loop.body[many:])
    return kernel.rewrite(lambda stmt: [replace(loop, body=body)] if stmt is loop else None)


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (every(recipes.specialized_ring(), 2), "in a loop that asks for k % 2"),
        (every(recipes.store_ring(), 7, 3), "different things every"),
        (every(every(recipes.store_ring(), 2, 3), 3), "different things every"),
    ],
)
def test_what_is_not_unrolled_is_named(kernel: kir.Kernel, says: str) -> None:
    """Unsupported is an answer, and must say of what."""
    verdict = confirm(kernel)
    assert verdict.status is Status.UNSUPPORTED, verdict
    assert says in verdict.reason
