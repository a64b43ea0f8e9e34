"""Mutants are kernels with one sync less, and the table tells killed from survived."""

import re

import kernels
import pytest

from fuser import kernel_ir as kir
from fuser.binding import classify
from fuser.pipeline import build
from fuzz.case import specs
from fuzz.mutants import Searched, conclude, judge_mutants, representative
from fuzz.mutate import drop_each_sync
from fuzz.param_strategies import FAMILIES
from oracles.verdict import Finding, Status, Verdict


def test_each_mutant_lacks_exactly_one_sync() -> None:
    """A mutant with two changes would not say which sync matters."""
    kernel = kernels.specialized(3)
    before = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.SYNCS)]
    mutants = list(drop_each_sync(kernel))
    assert [m.victim for m in mutants] == before
    for mutant in mutants:
        after = [stmt for stmt in mutant.kernel.walk() if isinstance(stmt, kir.SYNCS)]
        assert after == [stmt for stmt in before if stmt is not mutant.victim]


def test_a_kernel_without_syncs_has_no_mutants() -> None:
    """The direct family has nothing to drop."""
    assert not list(drop_each_sync(kernels.direct()))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_representative_kernel_is_of_its_family(family: str) -> None:
    """The table must speak of every family, not of one six times."""
    case = representative(family)
    program = build(case.fusion, case.params, classify(case.fusion, case.params, specs(case)))
    text = {type(stmt).__name__ for stmt in program.launches[0].kernel.walk()}
    assert case.params.family == family
    assert ("TmaLoad" in text) == family.startswith("tma")
    assert ("TmaStore" in text) == family.endswith("tma")
    assert ("Role" in text) == ("specialized" in family)


@pytest.mark.parametrize("family", ["direct/tma", "tma-specialized/direct"])
def test_no_mutant_gets_past_a_judge(family: str) -> None:
    """Each is killed by both judges, or its sync is redundant."""
    ((_, records),) = judge_mutants(family, schedules=6)
    final = [r for r in records if r.oracle == "mutant"]
    assert len(final) * 3 == len(records)
    assert {r.status for r in final} == {"pass"}, [r.reason for r in final]
    assert sum(r.reason == "killed by both" for r in final) >= 6


FINDING = Finding("race", "line 1", "trips=1")
FAIL, PASS = Verdict("x", Status.FAIL, 1, (FINDING,)), Verdict("x", Status.PASS, 1)


@pytest.mark.parametrize(
    ("proof", "found", "status", "words"),
    [
        (FAIL, FAIL, Status.PASS, "killed by both"),
        (PASS, PASS, Status.PASS, "redundant: .* 24 schedules"),
        (FAIL, PASS, Status.FAIL, "only the prover"),
        (PASS, FAIL, Status.FAIL, "only the simulator"),
        (Verdict("x", Status.UNKNOWN, 0, reason="gave up"), PASS, Status.UNKNOWN, "gave up"),
    ],
)
def test_a_survivor_is_redundant_or_shows_a_blind_judge(
    proof: Verdict, found: Verdict, status: Status, words: str
) -> None:
    """The report says which, and nothing else."""
    verdict = conclude(proof, Searched(found, "24 schedules at each of trips 0, 1"), "")
    assert verdict.status is status
    witnesses = [finding.witness for finding in verdict.findings]
    said = " ".join([verdict.reason, *witnesses])
    assert re.search(words, said), said
