"""The variants beside the cookbook are right kernels: by validation and by three judges."""

import pytest

from fuser.kernel.validate.legal import validate
from fuzz.kernels.cookbook import recipe
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


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_right(name: str, stages: int) -> None:
    """A mutant of a wrong kernel says nothing."""
    one = recipe(name, stages)
    validate(one.kernel, final=True)
    assert prove.prove(one.kernel).status is Status.PASS
    for grid, params in (one.launches[0], one.launches[3], one.launches[-1]):
        seen = explore.explore(one.kernel, explore.Launch(grid, params))
        assert seen.status is Status.PASS, seen
        launch = simulate.Launch(grid, params)
        assert simulate.search(one.kernel, launch, schedules=2).status is Status.PASS
