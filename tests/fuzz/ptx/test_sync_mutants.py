"""Compiled kernels without a sync, before the judge of PTX."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fuzz.exit_code import CLEAN
from fuzz.kernels.subjects import find
from fuzz.ptx.sync_mutants import KILLED, REDUNDANT, RIGHT, STRICT, answers, judged, main, shown
from oracles.verdict import Status


def test_a_whole_kernel_and_its_mutants_are_told_apart() -> None:
    """Of a ring of one slot each sync is needed but one that another does for."""
    names = [f"matmul pipelined_1_slot {number}" for number in range(15)]
    fates = [judged(name).fate for name in names]
    assert fates[0] == RIGHT
    assert fates.count(KILLED) == 13
    assert fates.count(REDUNDANT) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pipelined_1_slot 1", "init"),
        ("pipelined_1_slot 10", "warps"),
        ("pipelined_1_slot 18", "warps"),
        ("cooperative_cluster 4", "init"),
    ],
)
def test_what_shows_a_mutant_is_named(name: str, kind: str) -> None:
    """Warnings count: warps that have waited for their own part alone, inits without a fence."""
    verdict = shown(find(f"matmul {name}"))
    assert verdict.status is Status.FAIL
    assert verdict.findings[0].kind == kind


def test_a_sync_that_every_tile_has_anyway_is_redundant() -> None:
    """Two slots: the next tile never begins in the one that is still read."""
    assert judged("matmul ampere_groups_persistent 2").fate == REDUNDANT


def test_a_fence_at_the_reader_is_refused_by_the_strict_policy_alone() -> None:
    """Order through the fence is enough by the letter."""
    assert judged("matmul pipelined_1_slot 28").fate == STRICT


def test_semaphore_mutants_are_shown() -> None:
    """Released before the bulk store is done with."""
    (answer,) = answers(["semaphore split_k_tma/no-await"], 1)
    assert answer.fate == KILLED


@pytest.mark.long
def test_one_kernel_alone_ends_clean() -> None:
    """The table of a family; exit code 0 if nothing is missed, disputed or open."""
    said = CliRunner().invoke(main, ["--only", "ampere_mbarriers", "--operator", "weaken"])
    assert said.exit_code == CLEAN, said.output
    assert "ampere" in said.output
