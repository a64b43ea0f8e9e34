"""Times, what confirms proofs, and where a campaign's time went."""

from __future__ import annotations

import pandas as pd
import pytest
from records import record
from reported import RUNS, SPLIT, frame

from fuzz.campaign.record import CPU_S, LARGE_S, LEFT
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


def test_shares_are_beside_what_was_left_out() -> None:
    """Of each kind, and of large cases; other things that there was no time for are counted."""
    facts = {
        f"{CPU_S} prover": 1.0,
        f"{CPU_S} ptx": 2.0,
        f"{CPU_S} assembler": 1.0,
        LARGE_S: 0.5,
        f"{LEFT} large cases: too many": 3,
        f"{LEFT} mutants: no time left": 7,
        "gpu": "off",
    }
    runs = pd.DataFrame({"facts": [facts]})
    rows = [record(name, oracle="ptx", status="skipped") for name in "ab"]
    section = times.budget(frame(*rows, record("c", oracle="ptx")), runs)
    table = section.table.set_index("kind")
    assert table["had %"].to_dict() == {
        "proofs": 25.0,
        "simulation": 0.0,
        "other schedules": 0.0,
        "compiled code": 75.0,
        "large cases": 12.5,
    }
    assert table["cases left out"].to_dict()["compiled code"] == 2
    assert table["cases left out"].to_dict()["large cases"] == 3
    assert "7 mutants: no time left" in section.says
    assert times.budget(frame(), RUNS).table.empty


def test_what_nobody_was_asked_takes_no_time() -> None:
    """It lowers no median, and is no proof."""
    rows = [record("a", seconds=0.2), record("b", status="skipped", seconds=0.0)]
    assert times.times(frame(*rows)).table["median ms"].tolist() == [200.0]
    assert times.proofs(frame(*rows)).says.startswith("1 kernel judged")


def test_without_judges_there_is_a_sentence() -> None:
    """A campaign that was interrupted at once."""
    assert times.times(frame()).says == "No kernel was proved or simulated."
    assert times.proofs(frame()).says == "Nothing was proved."
    assert times.spent(frame(), RUNS).figure is None
