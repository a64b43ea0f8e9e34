"""Workloads: launches that a kernel allows, and exact results of it."""

from __future__ import annotations

import pytest
import torch

from fuser.kernel import ir as kir
from fuser.runtime.kernel_launch import check_tensors, values_of
from fuser.runtime.scratch import elements
from fuzz.kernels.semaphores import BASES, semaphore_mutant
from fuzz.kernels.subjects import find
from fuzz.semaphores.workloads import PRODUCTS, SUMS, scalars, workloads

ANY = ("template 0 0", "template 0 11", "mutant persistent 2 7", "matmul cooperative_cluster 3")
CONTROLS = tuple(f"semaphore {base}/control" for base in BASES)


@pytest.mark.parametrize("name", [*CONTROLS, *ANY])
def test_launches_keep_the_conditions_of_the_kernel(name: str) -> None:
    """A launch that breaks one would tell nothing; tensors have the size that it wants."""
    subject = find(name)
    kernel, loads = subject.base, list(workloads(subject))
    assert 1 <= len(loads) <= 4
    for load in loads:
        values = values_of(kernel, load.grid, load.params)
        assert values[kir.GRID] == load.grid
        room = {
            t.name: torch.empty(elements(t, values)) for t in kernel.tensors
            if t.name in kernel.workspaces
        }  # fmt: skip
        for given, want in load.sets:
            assert set(want) == set(kernel.outputs)
            check_tensors(kernel, values, given | want | room, scalars(kernel))


@pytest.mark.parametrize("base", BASES)
def test_shapes_reach_from_one_tile_to_many_ctas_on_each_processor(base: str) -> None:
    """With few CTAs each waits for the others; many are in each other's way."""
    loads = list(workloads(semaphore_mutant(f"{base}/control")))
    assert loads[0].grid <= 6
    assert loads[-1].grid >= 256
    splits = [load.params["splits"] for load in loads]
    assert splits == [s for *_, s in (SUMS if base == "wide_turns" else PRODUCTS)]
    assert all(load.grid % load.params["splits"] == 0 for load in loads)


@pytest.mark.parametrize("name", [*CONTROLS, *ANY])
def test_results_are_exact_and_differ_from_set_to_set(name: str) -> None:
    """A result of the launch before must not pass."""
    for load in workloads(find(name)):
        (_, one), (_, two) = load.sets
        for out in one:
            assert not torch.equal(one[out], two[out])
            assert torch.equal(one[out].nan_to_num(), one[out].nan_to_num().round())


def test_a_sum_is_that_of_its_parts() -> None:
    """By torch alone."""
    ((given, want), _) = next(workloads(semaphore_mutant("wide_turns/control"))).sets
    assert torch.equal(want["Y"], sum(given["X"].split(128)))


def test_what_comes_out_is_what_the_unchanged_kernel_computes() -> None:
    """The simulator's word, here for `Y = X + X`: a fault must not change what is expected."""
    for load in workloads(find("template 0 0")):
        for given, want in load.sets:
            assert torch.equal(want["Y"], given["X"] + given["X"])


def test_rounded_values_are_not_expected() -> None:
    """Where order changes the result, a difference is no defect."""
    with pytest.raises(ValueError, match="values are rounded, nothing is exact"):
        list(workloads(find("matmul computed_ampere 0")))
