"""The ledger keeps what was committed, whatever happens to its writer."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from records import record

from fuzz.campaign.ledger import Ledger, LedgerError, failures, main
from fuzz.campaign.record import VERSION, signature
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
        values = ("prover", "k", "pass", 1, 0.1, "", "", "family", "tma", "tma", 2, "reals", "")
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


def test_shards_merge_without_losing_or_doubling(tmp_path: Path) -> None:
    """Merging the same shard twice must change nothing."""
    for name in ("a", "b"):
        with Ledger(tmp_path / f"{name}.sqlite") as book:
            book.append(book.start(f"shard-{name}", {}), [record(name)], text=f"case {name}")
    with Ledger(tmp_path / "a.sqlite") as book:
        assert book.merge(tmp_path / "b.sqlite") == 1
        assert book.merge(tmp_path / "b.sqlite") == 0
        assert {r.case for r in book.records()} == {"a", "b"}


def test_foreign_files_are_refused_with_a_way_out(tmp_path: Path) -> None:
    """Neither another version nor something else is overwritten."""
    old = tmp_path / "old.sqlite"
    with sqlite3.connect(old) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(LedgerError, match="name another file with --ledger"):
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


def test_a_ledger_of_the_version_before_is_brought_up(tmp_path: Path) -> None:
    """Weeks of campaigns are not thrown away for a new column."""
    path = tmp_path / "old.sqlite"
    with Ledger(path) as book:
        book.start("run", {})
        book.append("run", [record("a")])
    with closing(sqlite3.connect(path)) as db:
        new = ("witness", "confirmed", "lines", "cause", "failure", "skeleton", "kernel")
        dropped = (f"ALTER TABLE records DROP COLUMN {name};" for name in new)
        db.executescript("".join(dropped) + "PRAGMA user_version=1")
    with Ledger(path) as book:
        book.append("run", [record("b", witness="{}", confirmed="order")])
        assert [(r.witness, r.confirmed) for r in book.records()] == [("", ""), ("{}", "order")]


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


def test_merging_ends_by_the_table(tmp_path: Path) -> None:
    """A shard that is none is wrong usage, and no traceback."""
    (tmp_path / "shard").write_bytes(b"no database at all, but long enough to be looked at" * 40)
    done = CliRunner().invoke(main, [str(tmp_path / "target.sqlite"), str(tmp_path / "shard")])
    assert done.exit_code == USAGE
    assert "file is not a database; name another file" in done.stderr
