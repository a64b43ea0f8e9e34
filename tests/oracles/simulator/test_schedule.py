"""Schedules as lists of small integers: replayed, and drawn and made short by Hypothesis."""

from __future__ import annotations

import kernels
import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st

from fuser.cookbook.recipes import specialized_ring, wgmma_ring
from oracles.prover import prove
from oracles.simulator import schedule as moves
from oracles.simulator.machine import Agent, Flight, Machine
from oracles.simulator.schedule import STRATEGIES, Order, Schedule, Strategy
from oracles.simulator.simulate import Launch, simulate
from oracles.verdict import Status
from oracles.witness import Mark

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
    ring = simulate(specialized_ring(), Launch(1, {"R": 4, "C": 256}), schedule=schedule)
    assert ring.status is Status.PASS, ring
    assert not ring.findings
    verdict = simulate(wgmma_ring(), Launch(1, {"M": 64, "N": 8, "K": 80}), schedule=schedule)
    assert verdict.status is Status.PASS, verdict


@pytest.mark.parametrize("seed", range(6))
def test_copies_that_hold_too_much_move_first(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in flight holds a clock: fewer wait, by those strategies by which they wait longest."""
    most = []
    picked = Schedule.pick

    def counted(self: Schedule, machine: Machine) -> Agent | Flight | None:
        most.append(len(machine.flights))
        return picked(self, machine)

    monkeypatch.setattr(Schedule, "pick", counted)
    kernel = kernels.specialized(3)
    assert simulate(kernel, LAUNCH, seed=seed).status is Status.PASS
    before = max(most)
    most.clear()
    monkeypatch.setattr(moves, "MOST_HELD", 1)
    assert simulate(kernel, LAUNCH, seed=seed).status is Status.PASS
    assert max(most) <= before
    if STRATEGIES[seed] in (Strategy.LATE, Strategy.NEWEST):
        assert max(most) < before


def test_an_order_of_events_is_followed() -> None:
    """Who comes to the next event goes; the first that is too early for its barrier is found."""
    kernel = kernels.specialized(3, warp_sync=False)
    found = prove.witness(kernel)
    assert found is not None
    order = Order(tuple((row.line, row.k, "engine" in row.lane) for row in found.rows))
    verdict = simulate(kernel, LAUNCH, schedule=order)
    assert verdict.status is Status.FAIL
    marked = {row.line for row in found.rows if row.mark is not Mark.NONE}
    assert set(verdict.findings[-1].lines) == marked
    assert f"in the order of {len(found.rows)} events" in verdict.reason


def test_events_that_nobody_comes_to_are_passed_over() -> None:
    """A right kernel passes, whatever the order."""
    order = Order(((999, -1, False), (1, 7, True), (15, 3, False), (15, 0, False)))
    assert simulate(kernels.specialized(3), LAUNCH, schedule=order).status is Status.PASS
