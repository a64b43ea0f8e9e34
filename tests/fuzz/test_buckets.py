"""Buckets add up, and what is missing is named."""

import pytest
from records import record

from fuzz.buckets import added_up
from fuzz.campaign.record import Record


def case(name: str, build: str = "pass", **answers: str) -> list[Record]:
    """What oracles said of a case."""
    return [record(name, oracle=o, status=s) for o, s in {"build": build, **answers}.items()]


def test_each_case_is_in_one_bucket_of_each_oracle() -> None:
    """Also one that was refused, and one whose judge was lost."""
    rows = [
        *case("a", prover="pass", simulator="unknown"),
        *case("b", "invalid"),
        *case("c", "error"),
        *case("d", prover="fail", simulator="pass"),
        *case("e", prover="pass", simulator="skipped"),
        record("d", status="fail", mutant="drop line 3"),
        record("s", phase="shrink", status="fail"),
    ]
    said, short = added_up(rows, ("prover", "simulator"), "abcde", "abcde")
    assert short == []
    assert said == (
        "the sum: 5 cases x 3 oracles = 15: 6 pass, 1 fail, 1 unknown, 0 unsupported, 1 error, "
        "1 invalid, 1 skipped, 4 not asked (the case was not built, or a judge broke)"
    )


@pytest.mark.parametrize(
    ("heard", "kept", "missing"),
    [
        ("a", "a", "simulator left 1 cases without an answer: a"),
        ("ab", "a", "1 judged cases are not in the ledger: b"),
        ("a", "", "1 cases are in the ledger without their texts: a"),
    ],
)
def test_what_is_lost_is_named(heard: str, kept: str, missing: str) -> None:
    """A remainder is no pass."""
    _, short = added_up(case("a", prover="pass"), ("prover", "simulator"), heard, kept)
    assert missing in short
