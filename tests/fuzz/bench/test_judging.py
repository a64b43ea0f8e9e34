"""Two versions on fixed cases: a changed verdict is seen, and so is where the time went."""

from __future__ import annotations

from fuzz.bench.judging import differences, table


def test_a_verdict_that_changes_is_named() -> None:
    """What only one version has is no difference, but counted."""
    old = {"a prover k": ("pass", "", 3), "b prover k": ("pass", "", 1)}
    new = {"a prover k": ("fail", "WAR", 3), "c prover k": ("pass", "", 1)}
    first, last = differences(new, old)
    assert first == "a prover k: ('pass', '', 3) -> ('fail', 'WAR', 3)"
    assert last == "1 common answers of 2 and 2, 1 differ"
    assert list(differences(old, old)) == ["2 common answers of 2 and 2, 0 differ"]


def test_the_parts_add_up() -> None:
    """All first, then the largest part; a part that is new has no ratio."""
    shown = table({"prover": 3.0, "build": 1.0}, {"prover": 6.0})
    rows = list(zip(*(list(column.cells) for column in shown.columns), strict=True))
    assert rows[0] == ("all", "6.00", "4.00", "0.67")
    assert rows[1:] == [("prover", "6.00", "3.00", "0.50"), ("build", "0.00", "1.00", "-")]
