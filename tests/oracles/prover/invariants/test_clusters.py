"""Tests of clusters as one CTA: proved where they are right, never where a handshake is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuser.expr import eq
from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from fuzz.mutation.operators import all_mutants, drop_each_sync
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.rewriting import whole
from oracles.verdict import Status


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_a_multicast_ring_is_proved_for_all_trip_counts(stages: int) -> None:
    """Both CTAs at once: the slots of each are filled and freed by the other one too."""
    verdict = confirm(recipes.cluster_multicast(stages))
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 50


def test_no_cluster_is_proved_with_a_sync_dropped() -> None:
    """A false PASS is the worst a judge can do."""
    for mutant in drop_each_sync(recipes.cluster_multicast(2)):
        # One arrival for four warps is worth a warning by default.
        policy = "strict" if isinstance(mutant.victim, kir.BlockSync) else "default"
        verdict = confirm(mutant.kernel, policy=policy)
        assert verdict.status in (Status.FAIL, Status.UNSUPPORTED), (mutant.change, verdict)


def test_every_rank_has_its_own_memory_and_barriers() -> None:
    """Nothing is shared that is not said to be."""
    kernel = recipes.cluster_multicast(2)
    one = whole(kernel).kernel
    assert one.cluster == 1
    assert [b.name for b in one.buffers] == ["SA@0", "SB@0", "SA@1", "SB@1"]
    loads = [s for s in one.walk() if isinstance(s, kir.TmaLoad)]
    assert sorted(s.dst.buffer.name for s in loads) == ["SA@0", "SA@1", "SB@0", "SB@1"]
    assert {(s.dst.buffer.name[-1], s.barrier.name[-1]) for s in loads} == {("0", "0"), ("1", "1")}


def test_a_kernel_without_clusters_stays_as_it_is() -> None:
    """Most are."""
    kernel = recipes.tma_ring()
    assert whole(kernel).kernel is kernel


def test_statements_keep_their_lines() -> None:
    """Findings point into the text that everybody else prints."""
    kernel = recipes.cluster_multicast(2)
    made = whole(kernel)
    lines = {id(stmt): number for number, stmt in enumerate(kernel.walk())}
    assert len(lines) < len(list(made.kernel.walk()))
    leaves = [s for s in made.kernel.walk() if not kir.bodies(s)]
    assert {made.lines[s] for s in leaves} <= {number for number, _ in numbered(kernel)}


def test_one_arrival_for_a_warpgroup_is_enough_by_default() -> None:
    """Its warps finish a wgmma together, says the field; strict policy wants a barrier."""
    kernel = recipes.cluster_multicast(2)
    bare = kernel.rewrite(lambda stmt: [] if isinstance(stmt, kir.BlockSync) else None)
    assert confirm(bare).status is Status.PASS
    assert confirm(kernel, policy="strict").status is Status.PASS
    assert confirm(bare, policy="strict").status is not Status.PASS


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        (kir.MBarrierArrive, {"scope": kir.Scope.CTA}, "an arrival on empty of another CTA"),
        (kir.MBarrierWaitParity, {"scope": kir.Scope.CTA}, "a wait on empty for another CTA"),
        (kir.ClusterArrive, {"relaxed": True}, "relaxed"),
        (kir.TmaLoad, {"multicast": kir.BLOCK}, "not known"),
        (kir.IfThenElse, {"condition": eq(kir.BLOCK, 0)}, "control depends on block of rank"),
    ],
)
def test_what_is_too_narrow_or_unknown_is_unsupported(
    kind: type[kir.Stmt], changes: dict[str, object], says: str
) -> None:
    """One CTA would have orders that the cluster has not."""
    kernel = recipes.cluster_multicast(2)

    def change(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kind) or (isinstance(stmt, kir.TmaLoad) and not stmt.multicast):
            return None
        return [replace(stmt, **changes)]  # type: ignore[arg-type]  # of the field's own type

    verdict = confirm(kernel.rewrite(change))
    assert verdict.status is Status.UNSUPPORTED, verdict
    assert says in verdict.reason


@pytest.mark.parametrize("kind", [kir.FenceMBarrierInit, kir.ClusterWait])
def test_a_cluster_owes_a_fence_at_its_start_and_a_wait_at_its_end(kind: type[kir.Stmt]) -> None:
    """Both are about the life of barriers, which one CTA alone does not show."""
    kernel = recipes.cluster_multicast(2)
    last = [s for s in kernel.walk() if isinstance(s, kind)][-1]
    with pytest.raises(UnsupportedError):
        whole(kernel.rewrite(lambda stmt: [] if stmt is last else None))


def test_arrivals_of_different_turns_are_not_paired_by_guess() -> None:
    """A remote arrival one slot ahead meets the other CTA's arrival of another iteration."""
    says = "next slot of empty line 28"
    found = [m for m in all_mutants(recipes.cluster_multicast(2)) if m.change.startswith(says)]
    assert [confirm(m.kernel).status for m in found] == [Status.UNSUPPORTED]
