"""The commands that look after a ledger, as a user calls them."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from records import record

from fuzz.campaign.ledger import Ledger
from fuzz.exit_code import CLEAN, USAGE
from fuzz.ledger import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of two runs."""
    place = tmp_path / "ledger.sqlite"
    with Ledger(place) as book:
        for name in ("night1", "night2"):
            run = book.start(name, {"elapsed_s": 120.0})
            failed = record("b", status="fail", kind="WAR", reason="line 20", subject="k2")
            book.append(run, [record("a")], text="# case a")
            book.append(run, [failed], text="# case b")
    return place


def run(*words: object) -> Result:
    """Call a command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_nights_are_a_line_each(path: Path) -> None:
    """What became of them, at a glance."""
    done = run("list", "--ledger", path)
    assert done.exit_code == CLEAN
    *_, first, second = done.stdout.splitlines()
    assert first.split()[0] == "night1"
    assert first.split()[3:] == ["2.0", "2", "0.0", "0", "0", "1", "0", "2"]
    assert second.split()[0] == "night2"
    assert "night1" not in run("list", "--last", 1, "--ledger", path).stdout


def test_a_run_is_shown_as_its_campaign_ended(path: Path) -> None:
    """And a case with its text."""
    assert (
        "prover WAR direct/tma: new, 1 case, without a repro: line 20"
        in run("show", "--ledger", path).stdout
    )
    one = run("show", "night1", "--case", "b", "--ledger", path)
    assert one.stdout == "# case b\n# prover k2: fail WAR line 20\n"


def test_ledgers_are_merged_and_pruned(path: Path, tmp_path: Path) -> None:
    """Shards of several machines become one history, which does not grow for ever."""
    target = tmp_path / "all.sqlite"
    assert run("merge", target, path).stdout == f"{path}: 4 records\n"
    done = run("prune", "--days", 0, "--ledger", target)
    assert done.stdout.startswith("2 runs pruned, ")
    assert done.stdout.endswith(" bytes freed: night1, night2\n")
    assert "night1 (pruned)" in run("list", "--ledger", target).stdout


def test_wrong_usage_says_what_there_is(path: Path) -> None:
    """And ends by the table, without a traceback."""
    (path.parent / "shard").write_bytes(b"no database at all, but long enough to be looked at" * 40)
    for words, said in (
        (("show", "night3", "--ledger", path), "pick from night1, night2"),
        (("show", "night1", "--case", "x", "--ledger", path), "no case 'x' in run night1"),
        (("merge", path, path.parent / "shard"), "file is not a database; name another file"),
    ):
        done = run(*words)
        assert (done.exit_code, said in done.stderr) == (USAGE, True), done.stderr
