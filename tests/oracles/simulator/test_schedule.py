"""Schedules as lists of small integers: replayed, and drawn and made short by Hypothesis."""

from __future__ import annotations

import kernels
import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st

from fuser.cookbook.recipes import specialized_ring, wgmma_ring
from oracles.simulator.simulate import Launch, simulate
from oracles.verdict import Status

LAUNCH = Launch(1, {"R": 4, "C": 64 * 5, "pitch": 64 * 5})


def test_a_schedule_is_replayed() -> None:
    """The same list gives the same verdict; an empty one is the default order."""
    broken = kernels.specialized(3, warp_sync=False)
    for schedule in ((), (5, 3, 0, 12), (0,) * 50):
        verdicts = [simulate(broken, LAUNCH, schedule=schedule) for _ in range(2)]
        assert verdicts[0] == verdicts[1]
        assert "schedule [" in verdicts[0].reason
    right = simulate(kernels.specialized(3), LAUNCH, schedule=(7, 7, 7, 300, 12))
    assert right.status is Status.PASS, right


def test_hypothesis_draws_and_shrinks_schedules() -> None:
    """A kernel whose first slot is read before it is written in some orders only."""
    broken = kernels.handed(2, free=False)

    def fails(schedule: list[int]) -> bool:
        return simulate(broken, LAUNCH, schedule=schedule).status is Status.FAIL

    quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    found = find(st.lists(st.integers(0, 200), max_size=30), fails, settings=quick)
    assert len(found) <= 8


@pytest.mark.parametrize("seed", range(4))
def test_right_kernels_pass_under_drawn_choices(seed: int) -> None:
    """No false alarm in orders that the strategies do not take."""
    schedule = [(seed * 37 + i * i * 11) % 97 for i in range(60)]
    assert simulate(specialized_ring(), Launch(1, {"R": 4, "C": 256}), schedule=schedule).findings
    verdict = simulate(wgmma_ring(), Launch(1, {"M": 64, "N": 8, "K": 80}), schedule=schedule)
    assert verdict.status is Status.PASS, verdict
