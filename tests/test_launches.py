"""Small launches: legal, with the trip counts that were asked for."""

from __future__ import annotations

import kernels as ks
import pytest

from fuser import kernel_ir as kir
from fuser.cookbook import RECIPES, cluster_multicast, persistent, split_k, tma_ring
from oracles import launches, sites, tiles


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_launches_of_each_trip_count(name: str) -> None:
    """Trip counts 0 to 3 of the loop over k, every one by a launch that the kernel allows."""
    kernel = RECIPES[name]()
    found = launches.small(kernel, most=3)
    assert {launch.trips["k"] for launch in found} == {0, 1, 2, 3}
    required = [launches.function(expr) for expr in kernel.requires]
    for launch in found:
        values = {**launch.params, kir.GRID.name: launch.grid}
        assert launches.legal(kernel, required, values)
        assert 0 <= launch.block < launch.grid
        wrong = tiles.wrong_in(kernel, tiles.readings(sites.read(kernel)), values, frozenset())
        assert wrong is None


@pytest.mark.parametrize(("t", "k"), [(0, 0), (1, 5), (3, 2), (7, 1)])
def test_nested_loops_are_reached_together(t: int, k: int) -> None:
    """Tiles of a CTA and steps of a tile belong to different parameters."""
    found = launches.example(persistent(), {"t": t, "k": k})
    assert found is not None
    assert (found.trips["t"], found.trips["k"]) == (t, k)


def test_a_grid_that_is_required_is_kept() -> None:
    """CTAs that share a tile are all launched; a cluster is whole."""
    splits = {launch.params["splits"] for launch in launches.small(split_k())}
    assert splits == {1, 2, 3}
    assert all(launch.grid % launch.params["splits"] == 0 for launch in launches.small(split_k()))
    assert all(launch.grid % 2 == 0 for launch in launches.small(cluster_multicast()))


def test_rows_do_not_meet() -> None:
    """A parameter that is only a stride is as large as a row: an output overlaps nowhere."""
    for launch in launches.small(ks.direct()):
        assert launch.params["pitch"] >= launch.params["C"]


def test_a_trip_count_that_no_launch_has_is_not_found() -> None:
    """The prologue of a ring has as many turns as it has stages."""
    assert launches.example(tma_ring(3), {"q": 2}) is None
    assert launches.example(tma_ring(3), {"q": 3, "k": 40}) is not None


def test_a_launch_that_is_found_is_one_that_the_kernel_allows() -> None:
    """The prover asks whether what it refuted can be launched."""
    kernel = ks.direct()
    found = launches.example(kernel, {"k": 5})
    assert found is not None
    values = {**found.params, kir.GRID.name: found.grid}
    readings = tiles.readings(sites.read(kernel))
    assert tiles.wrong_in(kernel, readings, values, frozenset()) is None
