"""Who is right: the buckets of a crosscheck, with judges that are wrong on purpose."""

from dataclasses import replace

import pytest

from fuser.kernel import ir as kir
from fuzz.crosscheck.judge import (
    HARD_SCHEDULES,
    SCHEDULES,
    Answer,
    Bucket,
    conclude,
    settle,
    witness_launches,
)
from fuzz.kernels.cookbook import recipe
from fuzz.kernels.draw import Subject
from fuzz.kernels.subjects import find
from fuzz.kernels.tile import Start
from oracles.verdict import Finding, Status, Verdict

GOOD = Verdict("judge", Status.PASS, 1, reason="7 states", states=7)


def bad(kind: str = "RAW", trips: int = 2, launch: tuple[tuple[str, int], ...] = ()) -> Verdict:
    """An error with its trip count."""
    finding = Finding(kind, "line 1", "...", trips=trips, launch=launch)
    return Verdict("judge", Status.FAIL, 1, (finding,))


def praise(_: kir.Kernel) -> Verdict:
    """A prover that passes everything."""
    return GOOD


def blame(_: kir.Kernel) -> Verdict:
    """A prover that fails everything."""
    return bad()


def clear(_: kir.Kernel, __: Start) -> Verdict:
    """An explorer that finds nothing anywhere."""
    return GOOD


def break_at_2(_: kir.Kernel, start: Start) -> Verdict:
    """An explorer that finds a defect where there are two trips."""
    return bad() if start[1]["R"] == 8 else GOOD


def ring() -> Subject:
    """A legal kernel."""
    return recipe("tma_ring", 2)


def test_a_planted_false_proof_is_reported() -> None:
    """The bucket for which the crosscheck exists."""
    outcome = settle("x", ring(), prover=praise, explorer=break_at_2)
    assert outcome.bucket == Bucket.FALSE_PROOF
    assert outcome.explorer.launch == "grid 1, R=8, C=64"


def test_a_planted_false_alarm_is_reported() -> None:
    """The explorer passes where the prover says that it fails."""
    outcome = settle("x", ring(), prover=blame, explorer=clear)
    assert outcome.bucket == Bucket.FALSE_ALARM


def test_an_alarm_is_false_only_if_its_witness_was_explored() -> None:
    """Out of states at the witness is no acquittal."""

    def lost_at_2(kernel: kir.Kernel, start: Start) -> Verdict:
        if start[1]["R"] == 8:
            return Verdict("judge", Status.UNKNOWN, 0, reason="more than 9 states")
        return clear(kernel, start)

    outcome = settle("x", ring(), prover=blame, explorer=lost_at_2)
    assert outcome.bucket == Bucket.EXPLORER_OPEN
    assert "more than 9" in outcome.explorer.reason


def test_a_defect_at_another_launch_is_agreement_by_another_name() -> None:
    """The kernel is unsafe, and the witness of the prover shows it to nobody."""
    early = bad(trips=1)
    outcome = settle("x", ring(), prover=lambda _: early, explorer=break_at_2)
    assert outcome.bucket == Bucket.LATER
    assert outcome.explorer.launch == "grid 1, R=8, C=64"


def test_an_alarm_at_a_clear_witness_is_open_while_another_launch_is() -> None:
    """Only an explorer that finished everywhere contradicts."""

    def lost_at_2(kernel: kir.Kernel, start: Start) -> Verdict:
        if start[1]["R"] == 8:
            return Verdict("judge", Status.UNKNOWN, 0, reason="more than 9 states")
        return clear(kernel, start)

    early = bad(trips=1)
    outcome = settle("x", ring(), prover=lambda _: early, explorer=lost_at_2)
    assert outcome.bucket == Bucket.EXPLORER_OPEN


def test_the_witness_of_the_prover_is_explored_first() -> None:
    """A late bug shows only where the prover says."""
    asked: list[int] = []

    def remember(_: kir.Kernel, start: Start) -> Verdict:
        asked.append(start[1]["R"] // 4)
        return bad() if start[1]["R"] == 41 * 4 else GOOD

    late = bad(trips=41)
    outcome = settle("x", ring(), prover=lambda _: late, explorer=remember)
    assert outcome.bucket == Bucket.UNSAFE
    assert asked == [41]


def test_a_witness_that_names_a_whole_launch_is_taken_at_its_word() -> None:
    """Extents of 0 are launches like any other."""
    verdict = bad("bounds", 0, (("C", 0), ("R", 3), ("gridDim", 2)))
    assert witness_launches(ring(), verdict) == [(2, {"R": 3, "C": 0})]


def test_a_judge_that_raises_is_broken() -> None:
    """An exception is neither praise nor blame."""

    def fall(_: kir.Kernel) -> Verdict:
        raise RuntimeError("fell over")

    outcome = settle("x", ring(), prover=fall, explorer=clear)
    assert outcome.bucket == Bucket.BROKEN
    assert outcome.prover.reason == "RuntimeError: fell over"


def faulty(family: str = "tma_ring", operator: str = "drop") -> Subject:
    """A kernel that calls itself a mutant."""
    return replace(ring(), family=family, faults=(f"{operator}: line 3",))


def test_the_simulator_judges_sync_mutants_of_the_seeds() -> None:
    """The explorer's word alone is no second judge; it is asked hard where the explorer fails."""
    asked: list[tuple[int, int]] = []

    def blind(_: kir.Kernel, start: Start, schedules: int) -> Verdict:
        asked.append((start[1]["R"], schedules))
        return GOOD

    one = settle("x", faulty(), prover=blame, explorer=break_at_2, search=blind)
    assert one.simulator is not None
    assert one.simulator.status == "pass"
    assert asked[0] == (8, HARD_SCHEDULES)
    assert {schedules for _, schedules in asked[1:]} == {SCHEDULES}
    assert len({rows for rows, _ in asked}) == len(asked) == len(ring().launches)


def test_the_simulator_is_not_asked_of_other_mutants() -> None:
    """Where the explorer has an answer, and no claim rests on the simulator, time is saved."""

    def never(_: kir.Kernel, __: Start, ___: int) -> Verdict:
        raise AssertionError("nobody asks")

    for subject in (faulty(operator="move"), faulty(family="cp_async_ring")):
        done = settle("x", subject, prover=blame, explorer=break_at_2, search=never)
        assert done.simulator is None


def test_a_defect_that_the_explorer_passed_is_a_disagreement() -> None:
    """It claims every interleaving; one schedule of the simulator contradicts."""
    found = settle("x", faulty(), prover=praise, explorer=clear, search=lambda *_: bad())
    assert found.bucket == Bucket.BLIND


@pytest.mark.parametrize(
    ("proof", "kinds", "seen", "bucket"),
    [
        ("pass", (), "pass", Bucket.SAFE),
        ("pass", (), "unknown", Bucket.EXPLORER_OPEN),
        ("pass", (), "unsupported", Bucket.EXPLORER_OPEN),
        ("pass", (), "fail", Bucket.FALSE_PROOF),
        ("fail", ("RAW",), "fail", Bucket.UNSAFE),
        ("fail", ("RAW",), "pass", Bucket.FALSE_ALARM),
        ("fail", ("RAW",), "unsupported", Bucket.EXPLORER_OPEN),
        ("fail", ("coverage",), "pass", Bucket.FALSE_ALARM),
        ("fail", ("coverage",), "unknown", Bucket.EXPLORER_OPEN),
        ("unknown", (), "fail", Bucket.PROVER_OPEN),
        ("unsupported", (), "pass", Bucket.PROVER_OPEN),
        ("error", (), "pass", Bucket.BROKEN),
        ("pass", (), "error", Bucket.BROKEN),
    ],
)
def test_every_pair_of_answers_has_its_bucket(
    proof: str, kinds: tuple[str, ...], seen: str, bucket: Bucket
) -> None:
    """Unknown and unsupported never count as agreement."""
    said = conclude(Answer(proof, kinds), Answer(seen), refuted=seen == "fail", cleared=False)
    assert said is bucket


def test_a_subject_that_nobody_knows_is_refused() -> None:
    """A mistyped name must not judge another kernel."""
    with pytest.raises(ValueError, match="name a template or a mutant"):
        find("kernel 3")
