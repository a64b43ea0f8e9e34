"""Times, what confirms proofs, and where a campaign's time went."""

from __future__ import annotations

import pytest
from records import record
from reported import RUNS, SPLIT, frame

from reports import times


def test_times_give_median_and_claims_per_family() -> None:
    """The goals of 100 ms and 50 ms are read off here."""
    rows = [record(f"c{n}", seconds=s, checked=4) for n, s in enumerate((0.01, 0.02, 0.3))]
    rows += [record(r.case, oracle="simulator", seconds=0.2) for r in rows]
    section = times.times(frame(*rows))
    assert section.table["median ms"].tolist() == pytest.approx([20.0, 200.0])
    assert section.table["claims"].tolist() == [12, 9]
    assert section.says.startswith("1 of 2 medians")
    assert section.figure is not None


def test_times_say_how_many_proofs_are_confirmed_in_full() -> None:
    """A proof by one engine only is one, but the page shows how often."""
    names = ("order mma-result-coverage", "mma-result-coverage", "")
    rows = [record(f"c{n}", confirmed=text) for n, text in enumerate(names)]
    rows += [record("d", status="fail", kind="RAW"), record("d", oracle="simulator")]
    assert times.times(frame(*rows)).table["confirmed in full"].tolist() == [1, ""]
    says = times.proofs(frame(*rows)).says
    assert says.startswith("4 kernels judged for all trip counts: 3 proved, 1 refuted, 0 unknown")
    assert "z3 confirms all of the order in 1 of 3 proofs. Named invariants: " in says
    assert "mma-result-coverage in 2. Median" in says


def test_time_is_summed_by_oracle_and_by_why_a_case_was_judged() -> None:
    """Shrinking and mutants cost, too; of the workers' time, the share."""
    section = times.spent(SPLIT, RUNS)
    table = section.table.set_index("oracle")
    assert table.loc["prover", "shrinking"] == pytest.approx(0.5)
    assert table.loc["mutant", "mutants"] == pytest.approx(0.5)
    assert table["seconds"].sum() == pytest.approx(0.5 * len(SPLIT))
    assert section.says.startswith("6.0 s of judging, 150 % of the 4 s that the workers had")


def test_without_judges_there_is_a_sentence() -> None:
    """A campaign that was interrupted at once."""
    assert times.times(frame()).says == "No kernel was proved or simulated."
    assert times.proofs(frame()).says == "Nothing was proved."
    assert times.spent(frame(), RUNS).figure is None
