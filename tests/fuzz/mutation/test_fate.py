"""The fate of a mutant: killed by whom, redundant only where everybody looked, else open."""

import pytest

from fuzz.mutation.fate import Fate, fate


@pytest.mark.parametrize(
    ("proof", "searches", "what"),
    [
        ("fail", ("pass", "fail"), Fate.BOTH),
        ("fail", ("unknown",), Fate.PROVER),
        ("unknown", ("fail",), Fate.SEARCH),
        ("pass", ("pass", "fail"), Fate.SEARCH),
        ("pass", ("pass",), Fate.REDUNDANT),
        ("pass", ("pass", "unknown"), Fate.OPEN),
        ("pass", (), Fate.OPEN),
        ("unsupported", ("pass",), Fate.OPEN),
        ("error", ("pass",), Fate.OPEN),
    ],
)
def test_silence_is_redundancy_only_where_all_looked(
    proof: str, searches: tuple[str, ...], what: Fate
) -> None:
    """Unknown, unsupported and not asked are no pass."""
    assert fate(proof, *searches) is what
