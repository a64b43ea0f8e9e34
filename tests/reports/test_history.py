"""Many campaigns: how they went, and what they add up to."""

from __future__ import annotations

import pandas as pd

from reports import history

COUNTS = {"cases": 12, "drawn": 10, "answers": 60, "passed": 57, "failed": 1, "open": 2}
COUNTS |= {"failing": 1, "records": 90, "shrinking": 3, "mutants": 5, "blind": 0}


def runs(*seconds: float) -> pd.DataFrame:
    """Return campaigns of so many seconds each."""
    lines = [
        {
            "run": f"r{n}",
            "started": f"2026-11-0{n + 1}T00:00:00+00:00",
            "facts": {"elapsed_s": taken},
            "revision": f"v{n}",
            **COUNTS,
        }
        for n, taken in enumerate(seconds)
    ]
    return pd.DataFrame(lines)


def test_the_last_campaign_stands_beside_the_usual_one() -> None:
    """A campaign at half the speed is a regression, too."""
    section = history.trends(runs(5, 5, 10))
    assert section.says == (
        "3 campaigns: the last drew 1.00 cases a second, those before 2.00 (median)."
    )
    assert (section.figure or "").count('class="chart"') == 3
    assert history.trends(runs(5)).figure is None


def test_the_ledger_adds_up_or_says_so() -> None:
    """Every answer is in one bucket."""
    section = history.total(runs(5, 0))
    assert "2 campaigns, 24 cases, 180 records, 10 mutants; 120 answers: 114 passes" in section.says
    assert section.says.endswith("4 open.")
    assert section.table["run"].tolist() == ["r1", "r0"]
    lost = history.total(runs(5).assign(answers=61))
    assert lost.says.endswith("which is 60: the ledger does not add up.")


def test_a_run_without_records_counts_as_nothing() -> None:
    """Interrupted at once, or pruned."""
    bare = runs(5, 5).astype(object)
    bare.loc[1, [*COUNTS]] = None
    assert "12 cases" in history.total(bare).says
    bare = bare.assign(facts=pd.Series([{}, {"cases": 7, "answers": 9}]))
    section = history.total(bare)
    assert "19 cases" in section.says
    assert "does not add up" not in section.says
