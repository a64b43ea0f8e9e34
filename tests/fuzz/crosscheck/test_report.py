"""What a crosscheck prints: every kernel counted once, every disagreement named."""

from dataclasses import replace

import pytest

from fuzz.crosscheck.judge import Answer, Bucket, Outcome, is_sync_mutant
from fuzz.crosscheck.report import (
    WITHOUT,
    fate_of,
    kill_lines,
    lines,
    needless_lines,
    seed_lines,
    seeds_hold,
    settled,
)
from fuzz.kernels.cookbook import SEEDS
from fuzz.kernels.matmul import COMPILED
from fuzz.mutation.fate import Fate

PASS, FAIL = Answer("pass", states=7, seconds=0.01), Answer("fail", ("RAW",), "error: RAW")
GONE = Answer("unsupported", (), "line 3: `x` is beyond 4")


def outcome(proof: Answer, seen: Answer, bucket: Bucket, number: int = 0) -> Outcome:
    """An outcome of a mutant."""
    name = f"mutant ring 2 {number}"
    return Outcome(name, "ring", ("drop: line 3",), ("H05",), bucket, proof, seen)


SEEN = [
    outcome(FAIL, FAIL, Bucket.UNSAFE, 0),
    outcome(PASS, PASS, Bucket.SAFE, 1),
    outcome(PASS, FAIL, Bucket.FALSE_PROOF, 2),
    outcome(GONE, PASS, Bucket.PROVER_OPEN, 3),
]


def test_the_buckets_add_up() -> None:
    """A kernel that is in no bucket would be forgotten."""
    table = [line.split() for line in lines(SEEN) if line.startswith("all ")]
    for row in table:
        *numbers, total = map(int, row[1:])
        assert sum(numbers) == total == len(SEEN)


def test_open_kernels_of_a_family_are_one_line() -> None:
    """Two hundred kernels with one cause are counted, whatever numbers their reasons hold."""
    other = replace(SEEN[3], prover=replace(GONE, reason="line 7: `y` is beyond 5"))
    said = list(lines([*SEEN, other]))
    assert "  prover     2  unsupported, ring: line 3: `x` is beyond 4" in said
    assert not any(line.startswith("  explorer  ") for line in said)
    assert "without an answer: 2 of 5; explorer out of states: 0" in said


def test_an_explorer_out_of_states_is_told_by_their_number() -> None:
    """It withholds an answer for no other reason; one that was not asked has seen none."""
    full, gone = Answer("unknown", states=5000), Answer("unknown", (), "not asked")
    open_ = [outcome(PASS, seen, Bucket.EXPLORER_OPEN) for seen in (full, gone)]
    assert "without an answer: 2 of 2; explorer out of states: 1" in list(lines(open_))


def test_a_disagreement_is_named() -> None:
    """The reader must be able to replay it."""
    assert "disagreements and broken judges: 2 of 8" in list(lines([*SEEN, *SEEN]))
    assert any("FALSE PROOF: mutant ring 2 2" in line for line in lines(SEEN))


def test_no_kernel_at_all_is_told() -> None:
    """An empty run prints zeros and does not divide by them."""
    assert "without an answer: 0 of 0; explorer out of states: 0" in list(lines([]))


# --- the mutation score ---------------------------------------------------------------------------


def mutant(
    proof: Answer, seen: Answer, searched: Answer | None = None, family: str = "tma_ring"
) -> Outcome:
    """An outcome of a sync mutant."""
    bucket = Bucket.SAFE
    name = f"mutant {family} 2 1"
    return Outcome(name, family, ("drop: line 3",), ("H05",), bucket, proof, seen, searched)


MUTANTS = [
    mutant(FAIL, FAIL),
    mutant(PASS, PASS),
    mutant(PASS, FAIL),
    mutant(GONE, PASS),
]


def test_a_mutant_is_killed_by_both_by_one_or_by_none() -> None:
    """Open is not redundant, and nor is what the simulator breaks."""
    assert [fate_of(o).value for o in MUTANTS] == ["both", "redundant", "explorer", "open"]
    assert fate_of(mutant(PASS, PASS, FAIL)) is Fate.SEARCH


def test_the_score_leaves_redundant_mutants_out_and_open_ones_in() -> None:
    """A judge that withholds answers must not look better."""
    said = list(kill_lines(MUTANTS))
    (row,) = [line.split() for line in said if line.startswith("H05 ")]
    assert row == ["H05", "4", "1", "2", "1", "2", "33.3", "%"]
    assert "survivors: 2 of 4" in said
    assert any("redundant: mutant tma_ring 2 1" in line for line in said)


def test_a_row_without_mutants_is_told() -> None:
    """A score that is silent on a row looks complete."""
    said = "\n".join(kill_lines(MUTANTS))
    assert "H06   no mutant: none of those judged aims at it" in said
    for row, why in WITHOUT.items():
        assert f"{row}   no mutant: {why}" in said


@pytest.mark.parametrize(
    ("proof", "seen", "searched", "what"),
    [
        (FAIL, FAIL, FAIL, Fate.BOTH),
        (FAIL, FAIL, PASS, Fate.OPEN),
        (PASS, PASS, PASS, Fate.REDUNDANT),
        (PASS, PASS, None, Fate.OPEN),
        (PASS, PASS, FAIL, Fate.OPEN),
        (PASS, FAIL, FAIL, Fate.OPEN),
        (PASS, GONE, PASS, Fate.OPEN),
        (GONE, PASS, PASS, Fate.OPEN),
    ],
)
def test_a_sync_mutant_is_killed_by_both_or_redundant_or_open(
    proof: Answer, seen: Answer, searched: Answer | None, what: Fate
) -> None:
    """Only the simulator's own run counts, and only a proof makes silence redundancy."""
    assert settled(mutant(proof, seen, searched)) is what


def test_the_claim_about_the_seeds_can_fail() -> None:
    """One open mutant, or a seed that was not judged, and the run is no success."""
    good = [mutant(FAIL, FAIL, FAIL, name) for name in SEEDS]
    assert seeds_hold(good)
    assert all(line.endswith(": holds") for line in seed_lines(good) if ": of " in line)
    assert not seeds_hold(good[1:])
    assert not seeds_hold([*good, mutant(PASS, FAIL, FAIL)])
    assert not seeds_hold([])
    said = "\n".join(seed_lines([*good, mutant(PASS, FAIL, FAIL)]))
    assert "tma_ring: of 2 sync mutants 1 killed by both" in said
    assert "DOES NOT HOLD, 1 open" in said
    assert "open: mutant tma_ring 2 1: drop: line 3: prover pass, explorer fail" in said


def test_only_syncs_of_seed_kernels_are_claimed() -> None:
    """A moved statement, and a recipe that is no seed, have their own score."""
    assert is_sync_mutant("tma_ring", ("weaken: line 3",))
    assert not is_sync_mutant("tma_ring", ("move: line 3",))
    assert not is_sync_mutant("cp_async_ring", ("drop: line 3",))
    moved = replace(mutant(GONE, PASS), faults=("move: line 3",))
    assert seeds_hold([*(mutant(FAIL, FAIL, FAIL, name) for name in SEEDS), moved])


def test_the_claim_about_matmuls_is_one_of_its_own() -> None:
    """Each schedule has its line; an open mutant of one of them is no matter of the seeds."""
    names = tuple(COMPILED)
    assert is_sync_mutant(names[0], ("drop: line 3",))
    good = [mutant(FAIL, FAIL, FAIL, name) for name in names]
    assert seeds_hold(good, names)
    assert not seeds_hold(good[1:], names)
    open_ = mutant(GONE, FAIL, FAIL, names[0])
    assert not seeds_hold([*good, open_], names)
    assert seeds_hold([*(mutant(FAIL, FAIL, FAIL, name) for name in SEEDS), open_])
    said = "\n".join(seed_lines([*good, open_], names))
    assert "of the matmuls of the compiler" in said
    assert f"  {names[0]}: of 2 sync mutants 1 killed by both" in said


def test_needless_syncs_are_named() -> None:
    """One that can be left out costs time; one that may only change places does not count."""
    swapped = replace(mutant(PASS, PASS, PASS), faults=("swap: line 4",))
    said = list(needless_lines([mutant(PASS, PASS, PASS), mutant(FAIL, FAIL, FAIL), swapped]))
    assert said[1:] == [
        "syncs that nobody misses: 1",
        "  tma_ring: 1",
        "    mutant tma_ring 2 1: drop: line 3",
    ]
