"""Shares of the time: who has had more is not asked, but meets what is new a little longer."""

import pytest

from fuzz.budget import (
    KINDS,
    LARGE,
    LARGE_SHARE,
    PROOF_S,
    SPARE,
    Budget,
    proof_s,
    taken,
)
from fuzz.campaign.judge import CPU_ORACLES
from fuzz.campaign.record import ORACLES


def spent(name: str, share: float) -> dict[str, float]:
    """What is spent where a kind has had a share of all."""
    return {KINDS[name].parts[0]: share, "build": 1.0 - share}


def test_every_judge_is_of_one_kind() -> None:
    """All shares together are all of the time; who compares two judges has none."""
    named = [oracle for kind in KINDS.values() for oracle in kind.oracles]
    assert len(set(named)) == len(named)
    assert set(CPU_ORACLES) - set(named) == {"agreement"}
    assert set(named) <= {*ORACLES}
    assert sum(kind.share for kind in KINDS.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_beyond_its_share_is_not_asked(name: str) -> None:
    """The others are; within it all are."""
    kind = KINDS[name]
    assert not Budget(spent(name, kind.share - 0.01)).skipped(())
    skipped = Budget(spent(name, kind.share + 0.01)).skipped(())
    assert {*skipped} - {"agreement"} == {*kind.oracles}
    assert ("agreement" in skipped) == (name in ("proofs", "simulation"))
    assert all(why.startswith(f"not judged: {name} had more than") for why in skipped.values())


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kind_has_not_met_it_meets_early(name: str) -> None:
    """Once; and where it has had far too much, not even that."""
    share = KINDS[name].share
    budget = Budget(spent(name, share * (1 + SPARE) / 2))
    assert not budget.skipped({"new"})
    assert budget.skipped({"new"})
    assert not budget.skipped({"new", "newer"})
    assert Budget(spent(name, SPARE * share + 0.01)).skipped({"new"})


def test_what_is_spent_is_seen_while_it_grows() -> None:
    """The dict is that of the judges, empty at first."""
    seconds: dict[str, float] = {}
    budget = Budget(seconds)
    assert not budget.skipped(())
    seconds["schedules"] = 1.0
    assert "schedules" in budget.skipped(())


def test_large_cases_have_a_share() -> None:
    """Of those the first goes, and then as many as have had less; small ones always go."""
    seconds = {"build": 1.0}
    budget = Budget(seconds)
    assert not budget.leaves(LARGE + 1, ())
    with budget.judging(LARGE + 1):
        seconds["build"] += LARGE_SHARE
    assert not budget.leaves(LARGE + 1, ())
    with budget.judging(LARGE):
        seconds["build"] += 1.0
    with budget.judging(LARGE + 1):
        seconds["build"] += 1.0
    assert budget.large_s == pytest.approx(1.0 + LARGE_SHARE)
    assert budget.leaves(LARGE + 1, {"new"})
    assert not budget.leaves(LARGE, ())


def test_taken_is_a_part_of_all() -> None:
    """Also of nothing."""
    assert taken({"assembler": 1.0, "ptx": 2.0, "drawing": 1.0})["compiled code"] == 0.75
    assert set(taken({}).values()) == {0.0}


def test_a_proof_has_a_part_of_a_campaign() -> None:
    """Not less than most proofs take, nor more than the prover gives up after."""
    assert (proof_s(1.0), proof_s(1e6)) == PROOF_S
    assert proof_s(300.0) == pytest.approx(10.0)
