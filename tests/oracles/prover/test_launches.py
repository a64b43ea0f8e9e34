"""Small launches: legal, with the trip counts that were asked for."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import orders
import pytest
from litmus.parts import XN, YN, box, fragment, k, load, m, n, store
from litmus.parts import kernel as litmus_kernel
from stores import COLS

from fuser.cookbook.recipes import (
    RECIPES,
    cluster_multicast,
    persistent,
    split_k,
    tma_ring,
    wgmma_ring,
)
from fuser.expr import Expr, Var, ceildiv, eq, maximum
from fuser.kernel import ir as kir
from oracles.prover import launches, sites
from oracles.prover.arithmetic import function
from oracles.prover.coverage import outputs as boxes
from oracles.prover.launches import broken
from oracles.prover.prove import prove
from oracles.simulator import simulate
from oracles.verdict import Status


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_launches_of_each_trip_count(name: str) -> None:
    """Trip counts 0 to 3 of the loop over k, every one by a launch that the kernel allows."""
    kernel = RECIPES[name]()
    found = launches.small(kernel, most=3)
    assert {launch.trips["k"] for launch in found} == {0, 1, 2, 3}
    for launch in found:
        values = {**launch.params, kir.GRID.name: launch.grid}
        assert not broken(kernel, values)
        assert 0 <= launch.block < launch.grid
        wrong = boxes.wrong_in(kernel, boxes.readings(sites.read(kernel)), values, frozenset())
        assert wrong is None


@pytest.mark.parametrize(("t", "k"), [(0, 0), (1, 5), (3, 2), (7, 1)])
def test_nested_loops_are_reached_together(t: int, k: int) -> None:
    """Tiles of a CTA and steps of a tile belong to different parameters."""
    found = launches.example(persistent(), {"t": t, "k": k})
    assert found is not None
    assert (found.trips["t"], found.trips["k"]) == (t, k)


def test_a_rest_of_a_number_is_reached_by_a_small_one() -> None:
    """What does not grow with a parameter is not bisected: the middle of all numbers fits, too."""
    body = (kir.ForLoop(k, n % 3, (load(fragment("x"), box(XN, k)),)),)
    found = launches.example(litmus_kernel(body, tensors=(XN, YN), requires=(n >= 1,)), {"k": 2})
    assert found is not None
    assert found.params["n"] == 2


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
    readings = boxes.readings(sites.read(kernel))
    assert boxes.wrong_in(kernel, readings, values, frozenset()) is None


def test_nested_loops_are_run_together() -> None:
    """A launch in which only the outer or only the inner loop runs shows nothing."""
    found = [dict(launch.trips) for launch in launches.small(persistent(), most=2)]
    assert {"t": 2, "k": 2} in found


def test_loops_that_cannot_have_a_count_at_once_have_it_one_by_one() -> None:
    """A loop that starts later than another is one iteration shorter forever."""
    copy = (load(fragment("x"), box(XN, k)), store(box(YN, k), fragment("x")))
    later = (kir.ForLoop(k, n, copy), kir.ForLoop(m, maximum(n - 1, 0), ()))
    found = launches.small(litmus_kernel(later), most=4)
    for name in "km":
        assert {0, 1, 2, 3, 4} <= {launch.trips[name] for launch in found}


@pytest.mark.parametrize("name", ["tma_ring", "persistent", "wgmma_ring", "cluster_multicast"])
def test_several_ctas_have_something_to_do(name: str) -> None:
    """One CTA alone never waits for another, nor does it write over its tiles."""
    kernel = RECIPES[name]()
    found = launches.small(kernel, clusters=3)
    assert {launch.grid for launch in found} == {kernel.cluster * many for many in (1, 2, 3)}
    for launch in found:
        if launch.grid > kernel.cluster and "t" in launch.trips:
            assert launch.block == launch.grid - 1
            assert launch.trips["t"] == 1


def test_loops_that_a_launch_does_not_settle_are_not_counted() -> None:
    """A number that holds in the first turn only would mislead; a constant says nothing."""
    found = launches.counted(tma_ring(3), 1, {"R": 9, "C": 4})
    assert dict(found.trips) == {"k": 3}
    inner = (
        kir.ForLoop(m, k, ()),
        load(fragment("x"), box(XN, k)),
        store(box(YN, k), fragment("x")),
    )
    assert dict(
        launches.counted(litmus_kernel((kir.ForLoop(k, n, inner),)), 1, {"n": 4}).trips
    ) == {"k": 4}


def test_counts_follow_the_lets() -> None:
    """Seven rows are two tiles of four, shared by two CTAs."""
    assert launches.counted(ks.direct(), 2, {"R": 7, "C": 64, "pitch": 64}).trips == {"k": 1}


def test_grids_come_from_what_is_required() -> None:
    """Nobody wants to compute the number of tiles."""
    assert launches.grids(cluster_multicast(), {"M": 129, "N": 8, "K": 16}) == [4]
    assert launches.grids(replace(ks.direct(), cluster=4), {"R": 1}) == [4, 8, 12, 16]


def test_the_simulator_takes_every_launch() -> None:
    """It checks the preconditions with a reading of its own."""
    kernel = ks.direct()
    for launch in launches.small(kernel, clusters=2):
        run = simulate.Launch(launch.grid, launch.params)
        assert simulate.simulate(kernel, run).status is Status.PASS


def test_a_kernel_that_nothing_satisfies_gets_none() -> None:
    """The caller says so instead of judging nothing."""
    assert launches.small(replace(ks.direct(), requires=(eq(ks.R + 1, 0),))) == []
    assert launches.small(replace(ks.direct(), requires=(eq(ks.R, 10**6),))) == []


def test_a_tile_of_several_boxes_is_filled() -> None:
    """What a parameter is divided by is the size of a tile, whatever a store takes of it."""
    parts = orders.kernel(orders.Order(chunks=4))
    columns = {values["N"] for values in launches.some_launches(parts)}
    assert max(columns) >= 2 * 4 * COLS


# --- a launch that breaks what its kernel relies on is named, with the reason ---------------------


GIVEN = {"R": 4, "C": 4, "pitch": 4, "gridDim": 1}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"R": 4, "C": 6, "pitch": 8}, "T0 is aligned to 4"),
        ({"R": 4, "C": 4, "pitch": 6}, "T0 is aligned to 4"),
        ({"R": -1, "C": 4, "pitch": 4}, "R is -1, less than 0"),
        ({"R": 4, "C": 4, "pitch": 4, "gridDim": 0}, "0 CTAs are no launch"),
        ({"R": 4, "C": 4, "pitch": 4}, ""),
    ],
)
def test_a_broken_precondition_is_named(values: dict[str, int], says: str) -> None:
    """Such a launch would be refused, which says nothing of the kernel."""
    found = broken(ks.direct(), {"gridDim": 1, **values})
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_a_requirement_and_a_cluster_are_preconditions() -> None:
    """Both are promises of the launch."""
    at = {**GIVEN, "gridDim": 3}
    assert "requires" in broken(replace(ks.direct(), requires=(eq(Var("gridDim"), 2),)), at)
    assert "cluster of 2" in broken(replace(ks.direct(), cluster=2), at)


def test_rows_that_tma_copies_lie_16_bytes_apart() -> None:
    """A tensor map takes no other strides; one row alone has none."""
    kernel = wgmma_ring()
    narrow = replace(kernel, tensors=tuple(replace(t, aligned=1) for t in kernel.tensors))
    boxes = {t.name: t for t in narrow.tensors}

    def rename(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaLoad(_, box):
                return [replace(stmt, src=replace(box, tensor=boxes[box.tensor.name]))]
            case _:
                return None

    narrow = narrow.rewrite(rename)
    values = {"M": 2, "N": 8, "K": 4, "gridDim": 1}
    assert "strides must be multiples of 16 bytes" in broken(narrow, values)
    assert not broken(narrow, {**values, "K": 16})


def test_a_requirement_that_divides_by_zero_does_not_hold() -> None:
    """It is no number, so nothing is promised."""
    kernel = replace(ks.direct(), requires=(eq(ceildiv(ks.R, ks.C), 1),))
    at = {**GIVEN, "C": 0}
    assert "divides by 0" in broken(kernel, at)


def test_an_expression_is_a_function_of_values_by_name() -> None:
    """Values that it does not name are no concern."""
    assert function(ks.R * 2 + 1)({"R": 4, "C": 9}) == 9
    assert function(3)({}) == 3


# --- whether there is any launch ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requires", "some"),
    [
        ((eq(kir.GRID, 1), n >= 100_000), True),
        ((eq(kir.GRID, 11 * m), m >= 1, (n + 31) // 32 >= 11), True),
        ((eq(kir.GRID, 1), n >= 5, n <= 4), False),
        ((eq(kir.GRID, 1), eq(n * n, 7)), False),
    ],
)
def test_a_kernel_is_proved_only_where_it_has_a_launch(
    requires: tuple[Expr, ...], some: bool
) -> None:
    """However large; whatever holds of a kernel that nobody can launch holds of nothing."""
    x = fragment("x")
    loop = kir.ForLoop(k, n, (load(x, box(XN, k)), store(box(YN, k), x)))
    kernel = replace(litmus_kernel((loop,)), params=(n, m), requires=requires)
    assert launches.exist(kernel) is some
    verdict = prove(replace(kernel, requires=(*requires, n >= 0)))
    assert (verdict.reason[:8] == "vacuous:") is not some
    assert verdict.status in ((Status.PASS, Status.UNKNOWN) if some else (Status.UNKNOWN,))
