"""Sections say the right numbers about a few records."""

import dataclasses
import errno
import json
import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from records import record
from witnesses import RING

from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import ORACLES, SHORT, STATUSES, Record
from fuzz.exit_code import CLEAN, HARNESS, USAGE, CannotWrite
from oracles.witness import dumps
from reports import correctness, page
from reports.__main__ import main, read

RUNS = pd.DataFrame(
    {
        "run": ["r"],
        "started": ["2026-11-20T10:00:00+00:00"],
        "facts": [{"seed": 3, "elapsed_s": 2.0, "gpu": "no device, 0 cases run"}],
    }
)
REPROS = pd.DataFrame({"run": ["r"], "signature": ["prover race direct/tma"], "path": ["a.py"]})


def frame(*records: Record) -> pd.DataFrame:
    """Records as the report reads them."""
    return pd.DataFrame([dataclasses.asdict(r) for r in records])


ROWS = (
    record("a"),
    record("a", oracle="build"),
    record("a", oracle="simulator", subject="k trips=0"),
    record("a", oracle="simulator", subject="k trips=3", status="fail", kind="race"),
    record("b", oracle="build", status="invalid", reason="too much shared memory"),
    record("c", status="fail", kind="race", reason="line 3"),
    record("c", oracle="simulator", status="fail", kind="race"),
    record("d", status="unknown", reason="z3 gave up"),
    record("s", status="fail", kind="race", phase="shrink"),
    record("m", status="pass", mutant="drop line 3"),
    record("m", oracle="simulator", status="fail", mutant="drop line 3"),
    record("m", oracle="mutant", status="fail", reason="only the simulator", mutant="drop line 3"),
)
SPLIT = frame(*ROWS)


def test_every_case_is_in_one_bucket_of_each_oracle() -> None:
    """Buckets must add up, with nothing from shrinking or mutants."""
    table = correctness.totals(SPLIT, RUNS).table.set_index("oracle")
    assert list(table.index) == list(ORACLES)
    assert (table[list(STATUSES)].sum(axis=1) == table["cases"]).all()
    assert table.loc[["prover"], ["pass", "fail", "unknown"]].to_numpy().tolist() == [[1, 1, 1]]
    assert table.loc[["simulator"], ["pass", "fail"]].to_numpy().tolist() == [[0, 2]]
    assert table.loc["gpu", "note"] == "no device, 0 cases run"


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


def test_a_failure_is_listed_once_with_its_script() -> None:
    """The reader wants one row per bug, and the command that shows it."""
    table = correctness.failures(SPLIT, REPROS).table
    rows = table[table["oracle"] == "prover"]
    assert rows[["cases", "case", "repro"]].to_numpy().tolist() == [[2, "c", "a.py"]]
    assert len(table) == 2


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


def test_the_mutant_table_says_who_killed() -> None:
    """A blind judge is a failure of ours."""
    row = correctness.kills(SPLIT).table.iloc[0]
    assert (row["prover"], row["simulator"], row["status"]) == ("survived", "killed", "fail")
    says = correctness.mutants(SPLIT).says
    assert says.startswith("1 mutant: 0 killed by both judges, 0 redundant syncs, 1 past a blind")


def test_times_give_median_and_claims_per_family() -> None:
    """The goals of 100 ms and 50 ms are read off here."""
    rows = [record(f"c{n}", seconds=s, checked=4) for n, s in enumerate((0.01, 0.02, 0.3))]
    rows += [record(r.case, oracle="simulator", seconds=0.2) for r in rows]
    section = correctness.times(frame(*rows))
    assert section.table["median ms"].tolist() == pytest.approx([20.0, 200.0])
    assert section.table["claims"].tolist() == [12, 9]
    assert section.says.startswith("1 of 2 medians")
    assert section.figure is not None


def test_times_say_how_many_proofs_are_confirmed_in_full() -> None:
    """A proof by one engine only is one, but the page shows how often."""
    names = ("order mma-result-coverage", "mma-result-coverage", "")
    rows = [record(f"c{n}", confirmed=text) for n, text in enumerate(names)]
    rows += [record("d", status="fail", kind="RAW"), record("d", oracle="simulator")]
    section = correctness.times(frame(*rows))
    assert section.table["confirmed in full"].tolist() == [1, ""]
    assert section.says.endswith("z3 confirms all of the order in 1 of 3 proofs.")


def test_operations_are_counted_per_operand_type() -> None:
    """Coverage is a count of cases, not of records."""
    rows = [record("a", ops="add/f32 exp/bf16"), record("a", oracle="simulator", ops="add/f32")]
    table = correctness.operations(frame(*rows)).table
    assert table.to_dict("records") == [
        {"op": "add", "f32": 1, "bf16": 0},
        {"op": "exp", "f32": 0, "bf16": 1},
    ]


def test_mechanisms_are_counted_per_stages() -> None:
    """A ring depth that was never drawn shows as a hole."""
    rows = [record("a"), record("b", family="tma-pipelined/tma", stages=3)]
    table = correctness.mechanisms(frame(*rows)).table
    assert list(table.columns)[1:] == ["1 stage", "3 stages"]
    assert table.iloc[1, 1:].tolist() == [0, 1]


@pytest.mark.parametrize("rows", [[], [record("a")]])
def test_every_section_stands_on_little_or_nothing(rows: list[Record]) -> None:
    """A campaign that was interrupted at once still gets its page."""
    records = frame(*rows) if rows else pd.DataFrame(columns=list(frame(record("a")).columns))
    for make in (
        correctness.disagreements,
        correctness.unanswered,
        correctness.warnings,
        correctness.mutants,
        correctness.kills,
        correctness.times,
        correctness.mechanisms,
        correctness.operations,
        correctness.families,
    ):
        assert make(records).says
    assert correctness.totals(records, RUNS).says
    assert correctness.failures(records, REPROS).says
    assert correctness.headline(records, RUNS).says


def test_a_ledger_becomes_a_page(tmp_path: Path) -> None:
    """The whole way that the command takes."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book:
        run = book.start("seed3", {"seed": 3, "elapsed_s": 1.0})
        book.append(run, ROWS)
        book.start("other", {})
    records, runs, _ = read(path, ["seed3"])
    assert len(records) == len(SPLIT)
    assert json.dumps(runs["facts"].iloc[0]) == '{"seed": 3, "elapsed_s": 1.0}'
    done = CliRunner().invoke(main, [str(path), "--run", "seed3"])
    assert (done.exit_code, done.stdout) == (CLEAN, f"{tmp_path / 'index.html'}\n")
    html = (tmp_path / "index.html").read_text()
    assert "2 of 4 cases failed, 1 mutant survived a blind judge" in html


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("ledger.sqlite --run seed3 --run nope", USAGE, "--run nope: not among the 2 runs of"),
        ("none.sqlite --run seed3", USAGE, "none.sqlite does not exist"),
        ("text", USAGE, "file is not a database; name a ledger of `python -m fuzz`"),
        ("old.sqlite", USAGE, "version 7 of a ledger, this program reads"),
        ("ledger.sqlite --out text/page.html", HARNESS, "cannot be written: File exists: text"),
    ],
)
def test_what_is_no_page_is_not_exit_code_0(
    words: str, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor 1, which would read as a failure found."""
    monkeypatch.chdir(tmp_path)
    with Ledger(Path("ledger.sqlite")) as book:
        book.append(book.start("seed3", {"seed": 3}), ROWS)
        book.start("other", {})
    Path("text").write_text("no database at all, but long enough to be looked at" * 40)
    with closing(sqlite3.connect("old.sqlite")) as db:
        db.execute("PRAGMA user_version=7")
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == code, done.output
    assert says in done.stderr
    assert not Path("index.html").exists()


def test_a_page_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk must not cost the report of the run before."""

    def full(path: Path, text: str, **_: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    page.write(tmp_path / "index.html", "title", correctness.headline(SPLIT, RUNS), [])
    before = (tmp_path / "index.html").read_text()
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CannotWrite, match="No space left on device: .*; make room, or name"):
        page.write(tmp_path / "index.html", "other", correctness.headline(SPLIT, RUNS), [])
    assert (tmp_path / "index.html").read_text() == before


def test_a_failure_that_carries_a_witness_is_drawn() -> None:
    """The execution is what convinces a reader; once for each signature."""
    shown = record("w", status="fail", kind="WAR", witness=dumps(RING))
    again = record("x", status="fail", kind="WAR", witness=dumps(RING))
    section = correctness.failures(frame(*ROWS, shown, again), REPROS)
    assert section.figure is not None
    assert section.figure.count("<svg") == 1
    assert RING.says in section.figure
    assert "witness" not in section.table
    assert correctness.failures(SPLIT, REPROS).figure is None


def test_runs_without_facts_are_shown_without_a_warning() -> None:
    """Their table has columns of floats, which pandas will refuse to fill with text."""
    runs = pd.DataFrame({"run": ["a"], "started": ["now"], "facts": [{}]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        section = correctness.environment(runs)
        assert len(correctness.environment(runs[:0]).table) == 0
    assert section.says == "1 run in this report."
