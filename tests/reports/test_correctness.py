"""Sections say the right numbers about a few records."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pandas as pd
import pytest
from records import record
from reported import REPROS, RUNS, SPLIT, book, frame
from witnesses import RING

from fuzz.campaign.record import ORACLES, SHORT, STATUSES, Record
from oracles.witness import dumps
from reports import correctness
from reports.correctness import Failure


def test_every_case_is_in_one_bucket_of_each_oracle() -> None:
    """Buckets must add up, with nothing from shrinking or mutants."""
    table = correctness.totals(SPLIT, RUNS).table.set_index("oracle")
    assert list(table.index) == list(ORACLES)
    assert (table[list(STATUSES)].sum(axis=1) == table["cases"]).all()
    assert table.loc[["prover"], ["pass", "fail", "unknown"]].to_numpy().tolist() == [[1, 1, 1]]
    assert table.loc[["simulator"], ["pass", "fail"]].to_numpy().tolist() == [[0, 2]]
    assert table.loc["gpu", "note"] == "no device, 0 cases run"


def test_a_larger_call_that_there_is_not_leaves_a_case_as_it_is() -> None:
    """As in the last lines of the campaign; one that is wrong is a failure."""
    silent = record("a", oracle="gpu", subject="enlarged", status="unknown")
    rows = [record("a", oracle="gpu"), silent]
    table = correctness.totals(frame(*rows), RUNS).table.set_index("oracle")
    assert table.loc[["gpu"], ["pass", "unknown"]].to_numpy().tolist() == [[1, 0]]
    wrong = replace(silent, subject="enlarged: i0=134217729", status="fail")
    table = correctness.totals(frame(*rows, wrong), RUNS).table.set_index("oracle")
    assert table.loc[["gpu"], ["pass", "fail"]].to_numpy().tolist() == [[0, 1]]


def test_a_run_that_judged_too_little_is_not_called_good() -> None:
    """The head of the page says what was missing; a failure comes before that."""
    good = frame(record("a", phase="base"), record("b", oracle="build"))
    assert correctness.headline(good, RUNS).status == "pass"
    facts = {"elapsed_s": 2.0, SHORT: "direct/tma was never judged"}
    short = RUNS.assign(facts=pd.Series([facts]))
    head = correctness.headline(good, short)
    assert head.status == "unknown"
    assert (
        head.says == "2 cases, no failure, but not enough was judged: direct/tma was never judged"
    )
    assert ("Cases per second", "0.5") in head.numbers
    assert correctness.headline(SPLIT, short).status == "fail"


def test_only_opposite_answers_are_disagreements() -> None:
    """Case a split prover and simulator; in case c both refused."""
    section = correctness.disagreements(SPLIT)
    assert section.table["case"].tolist() == ["a"]
    assert section.says.startswith("1 of 4 cases")


def test_open_answers_are_listed_with_reasons() -> None:
    """Unknown is not pass, and the reader must see why."""
    section = correctness.unanswered(SPLIT)
    assert set(section.table["reason"]) == {"too much shared memory", "z3 gave up"}
    assert section.says.startswith("1 of 5 answers (20.00 %)")


def test_remarks_on_passed_cases_are_counted() -> None:
    """A spill is no failure, and must be seen all the same."""
    said = "warning: spill at k: 8 bytes\nwarning: proxy at line 3: no fence"
    rows = [record("a", reason=said), record("b", reason="warning: spill at k: 4 bytes")]
    section = correctness.warnings(frame(*rows))
    assert section.table[["kind", "cases"]].to_numpy().tolist() == [["spill", 2], ["proxy", 1]]
    assert section.says.startswith("3 times")


def shown(*records: Record, **changes: object) -> dict[str, Failure]:
    """Return the failures by signature."""
    return {failure.signature: failure for failure in correctness.found(book(*records, **changes))}


def test_a_failure_is_shown_once_with_its_command_and_fusion() -> None:
    """The reader wants one card per bug, and the command that shows it."""
    known = shown(before=frozenset({"simulator race direct/tma"}))
    assert list(known) == ["prover race direct/tma", "simulator race direct/tma"]
    failure = known["prover race direct/tma"]
    assert (failure.cases, failure.case, failure.new) == (1, "c", True)
    assert failure.command == "nox -s repro -- a.py"
    assert failure.fusion == "case = Case(...)"
    assert not known["simulator race direct/tma"].new
    section = correctness.failures(list(known.values()), 1)
    assert section.says.startswith("2 kinds of failure, 1 new: 1 older run met the others.")
    assert section.body is not None
    assert section.body.count("data-copy") == 1
    assert "There is no script" in section.body
    assert correctness.failures([], 0).body is None


def test_the_execution_shown_is_that_of_the_shrunk_kernel() -> None:
    """Of an unshrunk one, the lines would be those of another text."""
    large = replace(RING, kernel="large")
    rows = [
        record("w", status="fail", kind="race", witness=dumps(large)),
        record("c", status="fail", kind="race", witness=dumps(RING), phase="shrink"),
    ]
    failure = shown(*rows)["prover race direct/tma"]
    assert failure.case == "c"
    assert RING.says in failure.drawing
    assert {12, 24} < failure.lines
    more = frame(*rows).assign(kernel=["", "kernel k\n  a < b"], failure=["", "0f0f"])
    told = replace(book(*rows), records=more)
    section = correctness.failures(correctness.found(told), 0)
    assert "a &lt; b" in (section.body or "")
    assert "failure 0f0f" in (section.body or "")


def test_what_follows_from_a_failure_is_none_of_its_own() -> None:
    """The judge nearest to the cause names a case; one that fails alone elsewhere is a failure."""
    rows = [
        record("c", oracle="differential", status="fail", kind="value"),
        record("c", oracle="gpu", status="fail", kind="value"),
        record("c", oracle="schedules", status="fail", kind="differs"),
        record("d", oracle="gpu", status="fail", kind="value"),
        record("s", oracle="differential", status="fail", kind="value", phase="shrink"),
    ]
    known = shown(*rows)
    assert list(known) == ["differential value direct/tma", "gpu value direct/tma"]
    first, second = known.values()
    assert (first.cases, first.follows) == (1, ("schedules differs direct/tma",))
    assert (second.cases, second.case, second.follows) == (1, "d", ())
    assert "schedules differs direct/tma of the same" in (
        correctness.failures(list(known.values()), 0).body or ""
    )
    met = book(*rows, before=frozenset({"schedules differs direct/tma"}))
    assert correctness.gone(met, correctness.found(met)).table.empty


def test_new_failures_come_first() -> None:
    """What is known was seen yesterday."""
    both = {"c": "prover", "d": "simulator"}
    rows = [record(case, oracle=name, status="fail", kind="x") for case, name in both.items()]
    order = list(shown(*rows, before=frozenset({"prover x direct/tma"})))
    assert order == ["simulator x direct/tma", "prover x direct/tma"]


def test_what_is_not_met_any_more_is_said() -> None:
    """It is mended, or was not drawn again."""
    known = book(before=frozenset({"prover RAW direct/direct", "prover race direct/tma"}))
    section = correctness.gone(known, correctness.found(known))
    assert section.table["failure"].tolist() == ["prover RAW direct/direct"]


def test_the_gpu_stands_against_each_judge() -> None:
    """A failure that only the device shows is a bug of a judge, or of our picture of it."""
    rows = [record("a"), record("a", oracle="gpu", status="fail"), record("b", oracle="gpu")]
    rows += [record("b", oracle="simulator", status="fail")]
    section = correctness.device(frame(*rows))
    assert section.says.startswith("2 cases ran on a GPU; 1 failed there alone, 1 only before")
    passed = section.table.set_index(["gpu", "judge"])["pass"]
    assert passed["fail", "prover"] == 1
    assert correctness.device(SPLIT).says == "No case ran on a GPU."


@pytest.mark.parametrize("rows", [[], [record("a")]])
def test_every_section_stands_on_little_or_nothing(rows: list[Record]) -> None:
    """A campaign that was interrupted at once still gets its page."""
    records = frame(*rows)
    for make in (
        correctness.disagreements,
        correctness.unanswered,
        correctness.warnings,
        correctness.device,
    ):
        assert make(records).says
    assert correctness.totals(records, RUNS).says
    assert correctness.headline(records, RUNS).says
    assert correctness.found(book(records=records, repros=REPROS[:0])) == []


def test_runs_without_facts_are_shown_without_a_warning() -> None:
    """Their table has columns of floats, which pandas will refuse to fill with text."""
    runs = pd.DataFrame({"run": ["a"], "started": ["now"], "facts": [{}]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        section = correctness.environment(runs)
        assert len(correctness.environment(runs[:0]).table) == 0
    assert section.says == "1 run in this report."
