"""The command writes two pages that know each other, and what machines read beside them."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from reported import ROWS, RUNS, SPLIT
from timings import FACTS, synthetic

from fuzz.campaign.ledger import Ledger
from fuzz.exit_code import CLEAN, HARNESS, USAGE, CannotWrite
from reports import correctness, page
from reports.__main__ import main


def test_a_ledger_becomes_two_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way that the command takes."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step"))
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        run = ledger.start("seed3", {"seed": 3, "elapsed_s": 1.0})
        ledger.append(run, ROWS)
        ledger.start("other", {})
        ledger.add_timings(ledger.start("bench", FACTS), list(synthetic(4)))
    done = CliRunner().invoke(main, [str(path), "--run", "seed3"])
    assert (done.exit_code, done.stdout) == (CLEAN, f"{tmp_path / 'index.html'}\n"), done.output
    html = (tmp_path / "index.html").read_text()
    assert "2 of 4 cases failed, 2 new kinds of failure, 1 mutant survived a blind judge" in html
    assert '<a href="performance.html">Performance</a>' in html
    speed = (tmp_path / "performance.html").read_text()
    assert "times as fast as the best peer" in speed
    assert '<a href="index.html">Correctness</a>' in speed
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert {suite.get("name"): suite.get("failures") for suite in suites} == {
        "build": "0",
        "prover": "1",
        "simulator": "1",
    }
    assert "**new** prover race direct/tma, 1 case" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "step").read_text() == (tmp_path / "summary.md").read_text()


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
