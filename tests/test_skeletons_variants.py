"""The variants beside the cookbook are right kernels: by validation and by three judges."""

import pytest

from fuser.validate import validate
from fuzz.skeletons_cookbook import recipe
from oracles import explorer, prover, simulator
from oracles.verdict import Status

VARIANTS = (
    "two_consumers",
    "register_a",
    "pooled",
    "cp_async_wgmma",
    "zero_filled",
    "atomic_sum",
)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_right(name: str, stages: int) -> None:
    """A mutant of a wrong kernel says nothing."""
    one = recipe(name, stages)
    validate(one.kernel, final=True)
    assert prover.prove(one.kernel).status is Status.PASS
    for grid, params in (one.launches[0], one.launches[3], one.launches[-1]):
        seen = explorer.explore(one.kernel, explorer.Launch(grid, params))
        assert seen.status is Status.PASS, seen
        launch = simulator.Launch(grid, params)
        assert simulator.search(one.kernel, launch, schedules=2).status is Status.PASS
