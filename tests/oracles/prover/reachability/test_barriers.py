"""Named barriers: a turn is over, for all who arrive, before they arrive for the next."""

from __future__ import annotations

import pytest
from litmus.parts import XN, YN, Body, box, fragment, k, kernel, load, n, slots, store

from fuser.kernel import ir as kir
from oracles.prover.reachability.fixpoint import judge
from oracles.prover.reachability.rules import Rule

SLOT = kir.Slot(slots("S"), 0)
MINE, YOURS = fragment("x"), fragment("z", vector=1)


def handed(arrivals: int) -> kir.Kernel:
    """Hand tiles over; the giver arrives so many times at the barrier that says full."""
    give: Body = (
        load(MINE, box(XN, k)),
        store(SLOT, MINE),
        *(kir.NamedArrive(1, 64) for _ in range(arrivals)),
        kir.BlockSync(2, 64),
    )
    take: Body = (
        kir.BlockSync(1, 64),
        load(YOURS, SLOT),
        kir.NamedArrive(2, 64),
        store(box(YN, k), YOURS),
    )
    roles = (
        kir.Role("give", 0, 1, (kir.ForLoop(k, n, give),)),
        kir.Role("take", 1, 1, (kir.ForLoop(k, n, take),)),
    )
    return kernel(roles, threads=64, buffers=(SLOT.buffer,))


@pytest.mark.parametrize("arrivals", [2, 3])
def test_arriving_again_before_the_turn_is_over_is_an_error(arrivals: int) -> None:
    """Three arrivals add up to two turns, but which of them ends the taker's turn is chance."""
    assert not judge(handed(1)).violations
    again = judge(handed(arrivals)).violations
    assert Rule.SYNC_APART in {v.rule for v in again}
    assert {v.kind for v in again} == {"collective"}
