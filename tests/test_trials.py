"""Small launches really run their loops as often as they say, and break no precondition."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest

from fuser.cookbook import RECIPES
from fuser.expr import Var, eq
from oracles import simulator
from oracles.trials import broken, settings, trials, trips
from oracles.verdict import Status


@pytest.mark.parametrize("name", ["tma_ring", "wgmma_ring", "cluster_multicast", "cp_async_ring"])
def test_recipes_get_a_launch_for_every_trip_count(name: str) -> None:
    """0, 1, 2 and 3 trips are where rings break first."""
    kernel = RECIPES[name]()
    found = trials(kernel)
    assert {trial.trips["k"] for trial in found} == {0, 1, 2, 3}
    assert all(trial.grid % kernel.cluster == 0 for trial in found)


def test_nested_loops_are_run_together() -> None:
    """A launch in which only the outer or only the inner loop runs shows nothing."""
    found = [dict(trial.trips) for trial in trials(RECIPES["persistent"](), 2)]
    assert {"t": 2, "k": 2} in found


def test_turns_of_a_semaphore_are_launched() -> None:
    """One CTA alone never waits for another."""
    assert any(trial.params["splits"] > 1 for trial in trials(RECIPES["split_k"](), 2))


def test_the_simulator_takes_every_launch() -> None:
    """It checks the preconditions with a reading of its own."""
    kernel = ks.direct()
    for trial in trials(kernel):
        launch = simulator.Launch(trial.grid, trial.params)
        assert simulator.simulate(kernel, launch).status is Status.PASS


def test_a_kernel_that_nothing_satisfies_gets_none() -> None:
    """The caller says so instead of judging nothing."""
    assert trials(replace(ks.direct(), requires=(eq(ks.R, 10**6),))) == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"R": 4, "C": 6, "pitch": 8}, "T0 is aligned to 4"),
        ({"R": 4, "C": 4, "pitch": 6}, "T0 is aligned to 4"),
        ({"R": 4, "C": 4, "pitch": 4}, ""),
    ],
)
def test_a_broken_precondition_is_named(values: dict[str, int], says: str) -> None:
    """Such a launch would be refused, which says nothing of the kernel."""
    found = broken(ks.direct(), {**values, "gridDim": 1, "blockIdx": 0, "clusterRank": 0})
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_a_requirement_and_a_cluster_are_preconditions() -> None:
    """Both are promises of the launch."""
    at = {"R": 4, "C": 4, "pitch": 4, "gridDim": 3, "blockIdx": 0, "clusterRank": 0}
    assert "requires" in broken(replace(ks.direct(), requires=(eq(Var("gridDim"), 2),)), at)
    assert "cluster of 2" in broken(replace(ks.direct(), cluster=2), at)


def test_counts_follow_the_lets() -> None:
    """Seven rows are two tiles of four, shared by two CTAs."""
    at = {"R": 7, "C": 64, "pitch": 64, "gridDim": 2, "blockIdx": 0, "clusterRank": 0}
    assert trips(ks.direct(), at) == {"k": 1}


def test_a_launch_is_written_as_it_is_asked_for() -> None:
    """A reader copies it."""
    assert settings(2, {"M": 64, "K": 0}) == "--grid 2 --set M=64 --set K=0"
