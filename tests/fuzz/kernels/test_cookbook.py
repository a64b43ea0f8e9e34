"""Mutants of the cookbook: every recipe, each mutant found again by its number."""

from itertools import islice

import pytest

from fuser.cookbook.recipes import RECIPES
from fuser.kernel.text import text
from fuzz.kernels.cookbook import mutated, recipe, recipe_mutants, subjects


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_launches(name: str) -> None:
    """A recipe that is never launched has no score."""
    one = recipe(name, 2)
    assert len(one.launches) >= 6
    for _, params in one.launches:
        assert set(params) == {p.name for p in one.kernel.params}


def test_a_mutant_is_found_by_its_number() -> None:
    """The name of a result leads back to its kernel."""
    found = mutated("store_ring", 2, 5)
    mutant = recipe_mutants("store_ring", 2)[5]
    assert text(found.kernel) == text(mutant.kernel)
    assert found.faults == (f"{mutant.operator}: {mutant.change}",)


def test_subjects_name_every_mutant() -> None:
    """Numbers run through, then come the next stages of the same recipe."""
    number = len(recipe_mutants("tma_ring", 2))
    names = list(islice(subjects((2, 3)), number + 1))
    assert names == [*(("tma_ring", 2, i) for i in range(number)), ("tma_ring", 3, 0)]
