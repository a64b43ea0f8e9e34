"""The ledger keeps what was committed, whatever happens to its writer."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from records import record

from fuzz.campaign.ledger import Ledger, LedgerError, Totals, failures
from fuzz.campaign.record import COLUMNS, VERSION, Record, signature
from fuzz.exit_code import HARNESS, USAGE, CannotWrite

WRITER = """
import sys
from contextlib import closing
from pathlib import Path
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import Record

with Ledger(Path(sys.argv[1])) as book:
    run = book.start("killed", {})
    for n in range(10**9):
        values = ("prover", "k", "pass", 1, 0.1, "", "", "family", "tma", "tma", 2, "reals")
        book.append(run, [Record(f"c{n}", *values)], text="text")
        print(n, flush=True)
"""


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Records, texts and facts come back as they went in."""
    with Ledger(tmp_path / "new" / "ledger.sqlite") as book:
        run = book.start("seed0", {"seed": 0})
        book.append(run, [record("a"), record("a", oracle="simulator")], text="case a")
        book.note(run, {"elapsed_s": 1.5})
        assert book.records(run) == [record("a"), record("a", oracle="simulator")]
        assert book.texts(run) == {"a": "case a"}
        assert book.facts(run) == {"seed": 0, "elapsed_s": 1.5}


def test_committed_records_survive_kill_9(tmp_path: Path) -> None:
    """A campaign of a night must not be lost with its process."""
    path = tmp_path / "ledger.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for said in writer.stdout:
            if int(said) >= 50:
                os.kill(writer.pid, signal.SIGKILL)
                break
    time.sleep(0.05)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Ledger(path) as book:
        assert len(book.records("killed")) >= 51


def test_a_case_counts_once_in_each_cell_that_there_is(tmp_path: Path) -> None:
    """Neither a round that is drawn again, nor a refused case, nor a cell beside the table."""
    path, add, exp = tmp_path / "a.sqlite", ("operation", "add", "f32"), ("operation", "exp", "f32")
    with Ledger(path) as book:
        run = book.start("seed0", {})
        book.expect(run, [add, exp])
        book.append(run, [record("a")], cells=[add, ("operation", "add", "bool")])
        book.append(run, [record("a", oracle="simulator")], cells=[add])
        book.append(run, [record("b", oracle="build", status="invalid")], cells=[exp])
        book.append(run, [record("c")], cells=[add, exp])
    with Ledger(path) as book:
        book.hold()
        book.expect(run, [add, exp])
        book.append(run, [record("c")], cells=[add, exp])
        assert book.cells(run) == {add: 2, exp: 1}
        assert book.cells(book.start("seed1", {})) == {}
    with Ledger(tmp_path / "b.sqlite") as book:
        book.merge(path)
        assert book.cells(run) == {add: 2, exp: 1}


def test_a_resumed_run_knows_its_rounds(tmp_path: Path) -> None:
    """Resuming must go on, not repeat."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book:
        book.finish_round(book.start("seed0", {}), worker=1, round_=4)
        later = book.start("seed0", {})
        book.finish_round(later, worker=0, round_=2)
        assert later == "seed0.2"
    with Ledger(path) as book:
        assert book.resume("seed0") == "seed0.2"
        assert book.rounds("seed0.2", 0) == {2}
        assert book.rounds("seed0.2", 1) == set()
        assert book.resume("seed1") is None


def written(path: Path, name: str, *records: Record) -> str:
    """Write records into a new run of a ledger."""
    with Ledger(path) as book:
        run = book.start(name, {"elapsed_s": 60.0})
        for row in records:
            book.append(run, [row], text=f"case {row.case}")
        book.finish_round(run, 0, 0)
        return run


def test_shards_merge_without_losing_or_doubling(tmp_path: Path) -> None:
    """Merging again changes nothing; two machines may use one name; a run may go on meanwhile."""
    ours, theirs = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    written(ours, "seed0", record("a"))
    written(theirs, "seed0", record("a", status="fail"), record("b"))
    with Ledger(ours) as book:
        assert [book.merge(theirs), book.merge(theirs)] == [2, 0]
        assert [r.status for r in book.records("seed0")] == ["pass"]
        assert [r.status for r in book.records("seed0.2")] == ["fail", "pass"]
        assert book.rounds("seed0.2", 0) == {0}
    with Ledger(theirs) as book:
        book.hold()
        book.append("seed0", [record("c")], text="case c")
    with Ledger(ours) as book:
        assert book.merge(theirs) == 1
        assert list(book.texts("seed0.2")) == ["a", "b", "c"]
        assert [run for run, *_ in book.runs()] == ["seed0", "seed0.2"]
    with Ledger(theirs) as book:  # what lags behind takes nothing away
        assert book.merge(ours) == 1
        assert len(book.records("seed0")) == 3


def test_what_a_resumed_run_judges_again_replaces_what_was_said(tmp_path: Path) -> None:
    """A judge that was killed with its campaign is asked again, and its death is no failure."""
    path = tmp_path / "ledger.sqlite"
    lost = record("a", oracle="build", subject="", status="error", kind="crash")
    run = written(path, "seed0", lost, record("a", mutant="drop line 3"), record("b"))
    with Ledger(path) as book:
        book.hold()
        book.append(run, [record("a")])
        book.append(run, [record("a", oracle="simulator")])
        assert [(r.case, r.oracle, r.mutant) for r in book.records(run)] == [
            ("a", "prover", "drop line 3"),
            ("b", "prover", ""),
            ("a", "prover", ""),
            ("a", "simulator", ""),
        ]


def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    """Two campaigns on one ledger would each take the other's rounds for its own."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book, Ledger(path) as other:
        run = book.start("seed0", {})
        book.append(run, [record("a")])
        assert len(other.records(run)) == 1
        with pytest.raises(
            LedgerError, match=r"another process is writing it \(run seed0, begun 2"
        ):
            other.start("seed0", {})
        assert len(list(other.runs())) == 1
    with Ledger(path) as book:
        assert book.start("seed0", {}) == "seed0.2"


@pytest.mark.parametrize("page", [3, 7])
def test_a_damaged_ledger_is_refused_before_anything_is_written(page: int, tmp_path: Path) -> None:
    """What can be read of it is still there to be saved."""
    path = tmp_path / "ledger.sqlite"
    written(path, "seed0", *(record(f"c{n}", reason=90 * "x") for n in range(200)))
    torn = bytearray(path.read_bytes())
    torn[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(torn)
    with (
        pytest.raises(LedgerError, match="(malformed|damaged: .*); name another"),
        Ledger(path) as b,
    ):
        b.start("seed1", {})
    assert path.read_bytes() == torn


def test_a_pruned_run_keeps_its_totals(tmp_path: Path) -> None:
    """Trends over nights outlive the records; a shard does not bring them back."""
    path, shard = tmp_path / "ledger.sqlite", tmp_path / "shard.sqlite"
    rows = (
        record("a", status="fail"),
        record("a", oracle="simulator", status="unknown"),
        record("b", phase="base"),
        record("s", phase="shrink", status="fail"),
        record("m", oracle="mutant", mutant="drop line 3"),
    )
    written(shard, "old", *rows)
    with Ledger(path) as book:
        assert book.merge(shard) == len(rows)
        counted = Totals(drawn=1, given=1, mutants=1, answers=3, failing=1, open=1)
        assert [n for *_, n in book.runs()] == [counted]
        assert book.prune(datetime.now(UTC) - timedelta(hours=1)) == []
        assert book.prune(datetime.now(UTC) + timedelta(hours=1)) == ["old"]
        assert (book.records(), book.texts("old"), book.rounds("old", 0)) == ([], {}, set())
        assert [n for *_, n in book.runs()] == [counted]
        assert book.merge(shard) == 0


def test_foreign_files_are_refused_with_a_way_out(tmp_path: Path) -> None:
    """Neither another version nor something else is overwritten."""
    old = tmp_path / "old.sqlite"
    with sqlite3.connect(old) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
        db.execute("CREATE TABLE t (x)")
    said = f"version {VERSION + 1}, this program writes {VERSION}; move it away, or name another"
    with pytest.raises(LedgerError, match=said):
        Ledger(old)
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"no database at all, but long enough to be looked at" * 40)
    with pytest.raises(LedgerError, match="name another file"):
        Ledger(other)


def test_failures_are_grouped_by_signature() -> None:
    """Shrinking and reports name one failure per oracle, kind and family."""
    rows = [
        record("a", status="fail", kind="race"),
        record("b", status="fail", kind="race"),
        record("c", status="fail", kind="race", mutant="drop line 3"),
    ]
    assert list(failures(rows)) == ["prover race direct/tma"] == [signature(rows[0])]


def test_records_take_only_known_words() -> None:
    """A misspelt status would fall out of every total."""
    with pytest.raises(ValueError, match="pick one of"):
        record("a", status="passed")


FIRST = COLUMNS[: COLUMNS.index("witness")]
"""Columns of records in version 1, besides the run and `ops`, which version 5 lacks."""
LATER = ("witness", "confirmed")
"""What versions 2 and 3 added."""


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_ledger_of_an_older_version_is_brought_up(version: int, tmp_path: Path) -> None:
    """Weeks of campaigns are not thrown away for a new column."""
    path = tmp_path / "old.sqlite"
    names = [*FIRST, "ops", *(COLUMNS[len(FIRST) :] if version == 4 else LATER[: version - 1])]
    values = {**asdict(record("a")), "witness": "{}", "confirmed": "order", "ops": "add/f32"}
    of_runs = "run TEXT PRIMARY KEY, started TEXT, facts TEXT" + ", id TEXT" * (version > 3)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE runs ({of_runs})")
        db.execute("CREATE TABLE rounds (run TEXT, worker INTEGER, round INTEGER)")
        db.execute('CREATE TABLE cases ("case" TEXT PRIMARY KEY, text TEXT NOT NULL)')
        db.execute('CREATE TABLE repros (run TEXT, signature TEXT, "case" TEXT, path TEXT)')
        columns = ", ".join(f'"{name}"' for name in names)
        key = 'PRIMARY KEY (run, "case", oracle, subject, mutant, phase)'
        db.execute(f"CREATE TABLE records (run TEXT, {columns}, {key})")
        for run in ("night", "night.2"):
            known = [run, "2026-11-01T00:00:00+00:00", "{}", f"id of {run}"][: 3 + (version > 3)]
            db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(known))})", known)
            row = (run, *(values[name] for name in names))
            db.execute(f"INSERT INTO records VALUES ({', '.join('?' * len(row))})", row)
        db.execute(f"PRAGMA user_version={version}")
    with Ledger(path) as book:
        assert book.resume("night") == "night.2"
        book.hold()
        book.append("night", [record("b", witness="{}", confirmed="order", kernel="k")])
        old = ("{}" if version > 1 else "", "order" if version > 2 else "", "")
        kept = [(r.witness, r.confirmed, r.kernel) for r in book.records("night")]
        assert kept == [old, ("{}", "order", "k")]
    with Ledger(tmp_path / "new.sqlite") as book:
        assert book.merge(path) == 3
        assert book.merge(path) == 0


def fill(book: Ledger, run: str) -> None:
    """Write case after case."""
    for n in count(len(book.records(run))):
        book.append(run, [record(f"c{n}")], text=500 * "x")


def test_a_full_disk_loses_nothing_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has ended the transaction by itself then; what was committed can be read."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book:
        run = book.start("run", {})
        with closing(sqlite3.connect(path)) as db:
            pages = db.execute("PRAGMA page_count").fetchone()[0] + 2

    def small(*words: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*words, **options)
        made.execute(f"PRAGMA max_page_count={pages}")
        return made

    connect = sqlite3.connect
    monkeypatch.setattr("fuzz.campaign.ledger.sqlite3.connect", small)
    said = r"cannot be written: database or disk is full \([\d,]+ of [\d,]+ bytes are free there\)"
    with Ledger(path) as book:
        for _ in range(2):
            with pytest.raises(CannotWrite, match=said + "; make room, or name another file with"):
                fill(book, run)
        written = len(book.records(run))
        assert written
    monkeypatch.undo()
    with Ledger(path) as book:
        assert set(book.texts(run)) == {f"c{n}" for n in range(written)}


@pytest.mark.parametrize("name", ["file/ledger.sqlite", "file/new/ledger.sqlite", "folder"])
def test_a_place_that_cannot_be_written_is_told_apart_from_a_foreign_file(
    name: str, tmp_path: Path
) -> None:
    """The one is the exit code of the harness, the other wrong usage."""
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        CannotWrite, match=r"(File exists|Not a directory|Is a directory): .* \(.*; name"
    ) as raised:
        Ledger(tmp_path / name)
    assert raised.value.exit_code == HARNESS
    assert LedgerError.exit_code == USAGE


def test_opening_a_ledger_writes_nothing(tmp_path: Path) -> None:
    """On a full disk, too, it can be read."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book:
        book.start("run", {})
    before = path.read_bytes()
    with Ledger(path) as book:
        assert book.resume("run") == "run"
        assert not path.with_name("ledger.sqlite-wal").stat().st_size
    assert path.read_bytes() == before
