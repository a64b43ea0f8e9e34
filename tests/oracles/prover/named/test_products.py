"""A slot that an mma reads is full, and not refilled before it has been read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decided import answers, mutated
from litmus.suite import by_name

from fuser.cookbook.matmul import cluster_multicast
from fuser.cookbook.ring import k
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from oracles.prover.named.check import OPERANDS as NAME

FAULTS = {
    "wgmma_ring": (
        "drop line 19: mbarrier_wait_parity",
        "drop line 23: async_await",
        "drop line 32: mbarrier_wait_parity",
        "keep one more line 23",
        "swap line 23",
        "no guard line 24",
        "guard one later line 24",
        "parity flipped line 19",
        "next slot of full line 19",
        "next slot of SA line 21",
        "next slot of empty line 26",
        "next slot of empty line 32",
        "next slot of SA line 34",
        "no first line 30",
        "not from 40 on line 19",
        "not from 40 on line 32",
    ),
    "split_k": ("drop line 33: async_await", "move first line 34", "only if (1 <= k) line 35"),
    "cp_async_ring": (
        "drop line 16: async_await",
        "keep one more line 16",
        "drop line 17: block_sync",
        "only each warp line 17",
        "drop line 14: async_commit",
    ),
    "cooperative_cluster": ("only if ((k + 1) < ((n2 + 15) // 16)) line 50: async_await",),
    "cp_async_mbarrier": ("drop line 19: mbarrier_wait", "drop line 27: mbarrier_wait"),
}


@pytest.mark.parametrize(
    ("recipe", "change"), [(name, change) for name, some in FAULTS.items() for change in some]
)
def test_a_fault_of_the_ring_is_not_proved(recipe: str, change: str) -> None:
    """Neither a wait, nor its slot or parity, nor an await before the slot is freed, can go."""
    assert answers(mutated(recipe, change))[NAME] != "proved"


@pytest.mark.parametrize(
    ("name", "policy", "expected"),
    [
        ("slot_freed_before_the_wait", "default", "open"),
        ("operands_staged_without_a_join", "default", "open"),
        ("operands_staged_without_a_proxy_fence", "default", "open"),
        ("operands_fenced_behind_the_join", "default", "proved"),
        ("warpgroups_stage_their_own_rows", "default", "proved"),
        ("warpgroups_stage_each_others_columns", "default", "open"),
        ("one_arrival_per_warpgroup_is_an_error_under_strict", "strict", "open"),
        ("one_arrival_per_warpgroup_is_an_error_under_strict", "default", "proved"),
        ("product_of_what_a_queue_copies", "strict", "proved"),
        ("product_of_a_copy_in_flight", "strict", "open"),
        ("operand_queued_again_while_it_is_multiplied", "strict", "open"),
    ],
)
def test_litmus_of_operands(name: str, policy: str, expected: str) -> None:
    """Who fences, who joins, and for whom a warp may arrive."""
    kernel = by_name(name).kernel
    assert isinstance(kernel, kir.Kernel)
    assert answers(kernel, policy)[NAME] == expected


def cluster(mask: int, filler: Expr) -> kir.Kernel:
    """Two CTAs share B: one of them fills slots of those in a mask."""

    def changed(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.IfThenElse(then=(kir.TmaLoad() as load,)):
                then = (replace(load, multicast=mask),)
                return [replace(stmt, condition=eq(kir.RANK, filler), then=then)]
            case _:
                return None

    return cluster_multicast().rewrite(changed)


@pytest.mark.parametrize(
    ("mask", "filler", "expected"),
    [
        (3, 0, "proved"),
        (3, 1, "proved"),
        (3, k % 2, "proved"),
        (1, 0, "open"),
        (2, 0, "open"),
        (3, 2, "open"),
        (3, k % 3, "open"),
    ],
)
def test_somebody_multicasts_to_each_reader(mask: int, filler: Expr, expected: str) -> None:
    """CTAs may take turns; none may be left out, and whose turn it is has to exist."""
    assert answers(cluster(mask, filler))[NAME] == expected
