"""Rows that a change aims at because of its kernel: each row on the kernels that can show it."""

from collections import defaultdict
from functools import cache

import pytest

from fuser.cookbook.recipes import RECIPES
from fuzz.kernels.cookbook import recipe
from fuzz.mutation.hazards import traits
from fuzz.mutation.operators import mutants

SHOWN = {
    "H04": {"specialized_ring", "ping_pong"},
    "H07": {"two_consumers"},
    "H23": {"register_a"},
    "H25": {"cp_async_wgmma"},
    "H26": {"split_k", "split_k_tma", "cp_async_wgmma"},
    "H31": {"tma_ring", "specialized_ring", "zero_filled"},
    "H32": {"zero_filled"},
    "H46": {"split_k_tma"},
    "H54": {"cp_async_wgmma"},
    "H55": {"cp_async_ring", "cp_async_wgmma"},
    "H61": {"cluster_multicast"},
    "H75": {"pooled"},
    "H83": {"atomic_sum"},
}
"""Kernels whose syncs guard against a row, for rows that no statement shows by itself."""
VARIANTS = ("two_consumers", "register_a", "pooled", "cp_async_wgmma", "zero_filled", "atomic_sum")
OPERATORS = ("drop", "weaken", "move", "predicate", "count", "promise")


@cache
def aimed() -> dict[str, set[str]]:
    """The kernels that show each row, by few operators."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in (*RECIPES, *VARIANTS):
        for operator in OPERATORS:
            for mutant in mutants(recipe(name, 2).kernel, operator):
                for row in mutant.hazards:
                    found[row].add(name)
    return found


@pytest.mark.parametrize("row", SHOWN)
def test_a_row_is_aimed_at_where_the_kernel_can_show_it(row: str) -> None:
    """A row claimed by kernels that cannot show it would hide that nothing does."""
    assert aimed()[row] == SHOWN[row]


def test_part_of_a_warp_and_a_reduction_by_all_threads_are_aimed_at() -> None:
    """A barrier for half a warp less, and a bulk store that nobody elects a thread for."""
    assert aimed()["H73"] >= {"store_ring", "split_k"}
    bulk = {row for m in mutants(recipe("store_ring", 2).kernel, "role") for row in m.hazards}
    assert "H82" in bulk


def test_two_roles_with_a_barrier_each_do_not_share_a_slot() -> None:
    """Ping-pong's slots are freed by one warpgroup at a time."""
    assert not traits(recipe("ping_pong", 2).kernel).warpgroups
    assert traits(recipe("two_consumers", 2).kernel).warpgroups
