"""What a crosscheck prints: every kernel counted once, every disagreement named."""

from dataclasses import replace

from fuzz.crosscheck.judge import Answer, Bucket, Outcome
from fuzz.crosscheck.report import lines

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
