"""Mutants are kernels with one change, and the table tells killed from survived."""

import re
import sys
from functools import cache

import kernels
import pytest

from fuser import pipeline
from fuser.cookbook import recipes
from fuser.errors import CompileError, ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.pipeline import Program, build
from fuser.runtime.classify import classify
from fuzz.campaign.mutants import Searched, conclude, judge_mutants, representative
from fuzz.cases.case import specs
from fuzz.cases.params import FAMILIES
from fuzz.cases.schedules import OBSERVES, SPLITS
from fuzz.kernels.cookbook import recipe_mutants
from fuzz.mutation.operators import OPERATORS, Mutant, drop_each_sync, mutants
from fuzz.mutation.site import closed
from oracles.verdict import Finding, Status, Verdict


def test_each_mutant_lacks_exactly_one_sync() -> None:
    """A mutant with two changes would not say which sync matters."""
    kernel = kernels.specialized(3)
    before = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.SYNCS)]
    dropped = list(drop_each_sync(kernel))
    assert [m.victim for m in dropped] == before
    for mutant in dropped:
        after = [stmt for stmt in mutant.kernel.walk() if isinstance(stmt, kir.SYNCS)]
        assert after == [stmt for stmt in before if stmt is not mutant.victim]


def test_a_kernel_without_syncs_has_no_mutants() -> None:
    """The direct family has nothing to drop."""
    assert not list(drop_each_sync(kernels.direct()))


MET = {
    "no_reset": {"split_k", "split_k_tma"},
    "promise": {"split_k", "split_k_tma"},
    "proxy": {"store_ring", "persistent", "split_k_tma"},
}
"""Operators that act on what few recipes have."""
LEAST = {"phase": 9, "role": 9, "hoist": 9}
"""Recipes that an operator changes at least, where it is not all twelve."""


@cache
def changed(name: str, operator: str) -> tuple[Mutant, ...]:
    """The mutants of a recipe by an operator."""
    return tuple(mutants(recipes.RECIPES[name](), operator))


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_changes_every_recipe_that_it_is_for(operator: str) -> None:
    """An operator that finds nothing would count as a hundred percent."""
    acting = {name for name in recipes.RECIPES if changed(name, operator)}
    if operator in MET:
        assert acting == MET[operator]
    assert len(acting) >= LEAST.get(operator, 12) or operator in MET
    for name, make in recipes.RECIPES.items():
        texts = [text(mutant.kernel) for mutant in changed(name, operator)]
        assert len({*texts, text(make())}) == len(texts) + 1
        assert {mutant.operator for mutant in changed(name, operator)} <= {operator}


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_mutant_is_a_kernel(name: str) -> None:
    """No variable outside its scope, and no statement object twice, which judges rely on."""
    for operator in OPERATORS:
        for mutant in changed(name, operator):
            assert closed(mutant.kernel), mutant.change
            statements = [id(stmt) for stmt in mutant.kernel.walk()]
            assert len(set(statements)) == len(statements), mutant.change


VARIANTS = ("two_consumers", "register_a", "pooled", "cp_async_wgmma", "zero_filled", "atomic_sum")


def test_every_hazard_row_that_a_kernel_can_show_is_aimed_at() -> None:
    """The score per row says nothing of a row without mutants."""
    every = [m for name in recipes.RECIPES for op in OPERATORS for m in changed(name, op)]
    every += [m for name in VARIANTS for m in recipe_mutants(name, 2)]
    rows = "01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 20 21 22 23 24 25 26 27 30 31 32"
    rows += " 33 34 40 41 42 43 44 45 46 50 51 52 53 54 55 60 61 62 63 64 65 70 71 72 73 74 75 76"
    rows += " 80 81 82 83 84"
    assert {f"H{row}" for row in rows.split()} <= {row for m in every for row in m.hazards}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_representative_kernel_is_of_its_family(family: str) -> None:
    """The table must have every family, not of one six times."""
    case = representative(family)
    program = build(case.fusion, case.params, classify(case.fusion, case.params, specs(case)))
    text = {type(stmt).__name__ for stmt in program.launches[0].kernel.walk()}
    assert case.params.family == family
    hopper, ampere = family in SPLITS, family in OBSERVES
    assert (("Wgmma" in text), ("Mma" in text)) == (hopper, ampere)
    assert ("TmaLoad" in text) == (family.startswith("tma") or hopper)
    assert ("TmaStore" in text) == (family.endswith("tma") or hopper)
    split = family in ("hopper-cooperative", "hopper-ping_pong", "ampere-mbarriers")
    assert ("Role" in text) == ("specialized" in family or split)


@pytest.mark.parametrize("family", ["direct/tma", "tma-specialized/direct"])
def test_no_mutant_gets_past_a_judge(family: str) -> None:
    """Each is killed by both judges, or its sync is redundant."""
    kills = judge_mutants(family, schedules=6)
    final = [r for r in kills.records if r.oracle == "mutant"]
    assert len(final) * 3 == len([r for r in kills.records if r.mutant])
    assert kills.left == 0
    assert {r.status for r in final} == {"pass"}, [r.reason for r in final]
    assert sum(r.reason == "killed by both" for r in final) >= 6


def test_a_kernel_that_fails_itself_has_no_mutants_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait before a refill everything is killed, whatever a mutant lacks besides."""

    def forgetful(kernel: kir.Kernel) -> kir.Kernel:
        waits = [s for s in kernel.walk() if isinstance(s, kir.MBarrierWaitParity)]
        empty = [wait for wait in waits if wait.barrier.name == "empty"]
        return kernel.rewrite(lambda stmt: [] if stmt in empty else None)

    passes = pipeline.PASSES
    behind = [p.__name__ for p in passes].index("free_slots") + 1
    monkeypatch.setattr(pipeline, "PASSES", (*passes[:behind], forgetful, *passes[behind:]))
    kills = judge_mutants("tma-specialized/direct", schedules=6)
    assert {(r.oracle, r.status, r.phase) for r in kills.records} == {
        ("build", "pass", "base"),
        ("prover", "fail", "base"),
        ("simulator", "fail", "base"),
    }
    assert not [r for r in kills.records if r.mutant]
    assert kills.left == 8


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ScheduleError("PointwiseParams(stages=3): no"), "refused"),
        (CompileError("after free_slots: no", "invalid kernel"), "invalid kernel"),
        (AssertionError("a loop that multiplies awaits"), "AssertionError"),
    ],
)
def test_a_representative_that_does_not_build_is_a_failure(
    error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not a lost worker's fault, nor a user's."""

    def broken(*_: object) -> Program:
        raise error

    monkeypatch.setattr(sys.modules["fuzz.campaign.mutants"], "build", broken)
    kills = judge_mutants("direct/tma")
    assert [(r.oracle, r.status, r.kind) for r in kills.records] == [("build", "fail", kind)]


FINDING = Finding("race", "line 1", "late", trips=1)
FAIL, PASS = Verdict("x", Status.FAIL, 1, (FINDING,)), Verdict("x", Status.PASS, 1)
OPEN = Verdict("x", Status.UNKNOWN, 0, reason="gave up")


@pytest.mark.parametrize(
    ("proof", "found", "status", "words"),
    [
        (FAIL, FAIL, Status.PASS, "killed by both"),
        (PASS, PASS, Status.PASS, "redundant: .* 24 schedules"),
        (FAIL, PASS, Status.FAIL, "only the prover"),
        (PASS, FAIL, Status.FAIL, "only the simulator"),
        (OPEN, PASS, Status.UNKNOWN, "gave up"),
        (PASS, OPEN, Status.UNKNOWN, "the simulator unknown"),
    ],
)
def test_a_survivor_is_redundant_or_shows_a_blind_judge(
    proof: Verdict, found: Verdict, status: Status, words: str
) -> None:
    """The report says which, and nothing else."""
    verdict = conclude(proof, Searched(found, "24 schedules at each of trips 0, 1"))
    assert verdict.status is status
    witnesses = [finding.witness for finding in verdict.findings]
    said = " ".join([verdict.reason, *witnesses])
    assert re.search(words, said), said
