"""Mutants of the cookbook: every recipe, each mutant found again by its number."""

from itertools import islice

import pytest

from fuser.cookbook.recipes import RECIPES
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuzz.kernels.cookbook import recipe, recipe_mutant, recipe_mutants, subjects
from oracles.explorer import explore
from oracles.prover import prove
from oracles.simulator import simulate
from oracles.verdict import Status

VARIANTS = (
    "two_consumers",
    "register_a",
    "pooled",
    "cp_async_wgmma",
    "zero_filled",
    "atomic_sum",
)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_launches(name: str) -> None:
    """A recipe that is never launched has no score."""
    one = recipe(name, 2)
    assert len(one.launches) >= 6
    for _, params in one.launches:
        assert set(params) == {p.name for p in one.kernel.params}


def test_a_mutant_is_found_by_its_number() -> None:
    """The name of a result leads back to its kernel."""
    found = recipe_mutant("store_ring", 2, 5)
    mutant = recipe_mutants("store_ring", 2)[5]
    assert text(found.kernel) == text(mutant.kernel)
    assert found.faults == (f"{mutant.operator}: {mutant.change}",)


def test_subjects_name_every_mutant() -> None:
    """Numbers run through, then come the next stages of the same recipe."""
    number = len(recipe_mutants("tma_ring", 2))
    names = list(islice(subjects((2, 3)), number + 1))
    assert names == [*(("tma_ring", 2, i) for i in range(number)), ("tma_ring", 3, 0)]


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_right(name: str, stages: int) -> None:
    """By validation and three judges: a mutant of a wrong kernel says nothing."""
    one = recipe(name, stages)
    validate(one.kernel, final=True)
    assert prove.prove(one.kernel).status is Status.PASS
    for grid, params in (one.launches[0], one.launches[3], one.launches[-1]):
        seen = explore.explore(one.kernel, explore.Launch(grid, params))
        assert seen.status is Status.PASS, seen
        launch = simulate.Launch(grid, params)
        assert simulate.search(one.kernel, launch, schedules=2).status is Status.PASS
