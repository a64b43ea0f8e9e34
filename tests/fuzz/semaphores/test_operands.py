"""Shapes and operands of the release family: launches that a kernel allows, and exact results."""

from __future__ import annotations

import pytest
import torch

from fuser.kernel import ir as kir
from fuser.runtime.kernel_launch import check_tensors, values_of
from fuser.runtime.scratch import elements
from fuzz.semaphores.family import BASES, member
from fuzz.semaphores.operands import SHAPES, operands, params_of


@pytest.mark.parametrize("base", BASES)
def test_launches_keep_the_conditions_of_the_kernel(base: str) -> None:
    """A launch that breaks one would betray the control; tensors have the size that it wants."""
    control = member(f"{base}/control")
    kernel = control.kernel
    for shape in SHAPES[base]:
        grid, params = params_of(control, shape)
        values = values_of(kernel, grid, params)
        assert values[kir.GRID] == grid
        assert grid % shape.splits == 0
        given = operands(control, shape)
        room = {
            t.name: torch.empty(elements(t, values)) for t in kernel.tensors
            if t.name in kernel.workspaces
        }  # fmt: skip
        tensors = {kernel.tensors[0].name: given.turns[0], kernel.outputs[0]: given.want[0]}
        check_tensors(kernel, values, {**tensors, **given.fixed, **room}, {})


@pytest.mark.parametrize("base", BASES)
def test_shapes_reach_from_one_tile_to_many_ctas_on_each_processor(base: str) -> None:
    """Few CTAs meet often; many are in each other's way."""
    control = member(f"{base}/control")
    grids = [params_of(control, shape)[0] for shape in SHAPES[base]]
    assert grids[0] <= 6
    assert grids[-1] >= 256
    assert len({shape.splits for shape in SHAPES[base]}) == len(SHAPES[base])


@pytest.mark.parametrize("base", BASES)
def test_results_are_exact_and_differ_from_set_to_set(base: str) -> None:
    """A result of the launch before must not pass."""
    control = member(f"{base}/control")
    for shape in SHAPES[base]:
        given = operands(control, shape)
        one, two = given.want
        assert not torch.equal(one, two)
        assert torch.equal(one, one.round())
        assert tuple(one.shape) == (shape.m, shape.n)
    small = operands(control, SHAPES[base][0])
    if base == "wide_turns":
        assert torch.equal(small.want[0], sum(small.turns[0].split(128)))
