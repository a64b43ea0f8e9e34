"""A campaign of seconds: it ends, counts, shrinks, and outlives its children."""

import subprocess
import sys
from pathlib import Path

import pytest
from behaviour import behave
from click.testing import CliRunner
from records import record

from fuzz.campaign import summary
from fuzz.campaign.child import Child, Lost
from fuzz.campaign.conduct import CLEAN, FAILED, HARNESS, main
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import ORACLES, Record


def test_a_child_that_crashes_or_hangs_is_replaced() -> None:
    """A case that kills its judge must cost that case alone."""
    with Child(behave, limit_s=2.0, preload=()) as child:
        first = child.call("fine")
        crashed, hung = child.call("crash"), child.call("hang")
        assert isinstance(crashed, Lost)
        assert isinstance(hung, Lost)
        assert (crashed.kind, hung.kind) == ("crash", "hang")
        assert "exit code 9" in crashed.reason
        assert "within 2 s" in hung.reason
        with pytest.raises(ValueError, match="raise"):
            child.call("raise")
        last = child.call("fine")
        assert isinstance(first, str)
        assert isinstance(last, str)
        assert first != last


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    """Exit code, output and ledger of one small campaign."""
    ledger = tmp_path_factory.mktemp("campaign") / "ledger.sqlite"
    command = "--seconds 6 --cases 5 --workers 1 --gpu off --oracles prover,simulator,agreement"
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", *command.split(), "--ledger", str(ledger)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr, ledger


def test_a_campaign_ends_with_a_line_per_oracle_and_a_report(
    finished: tuple[int, str, Path],
) -> None:
    """A newcomer must see the end, and where to look next."""
    code, said, ledger = finished
    assert code in (CLEAN, FAILED), said
    for oracle in ("build", "prover", "simulator", "agreement", "mutant"):
        assert f"\n{oracle}:" in said, said
    assert "median proof" in said
    assert "gpu: " in said
    assert "0 cases run" in said
    assert "% valid" in said
    assert f"report: {ledger.parent / 'index.html'}" in said
    assert (ledger.parent / "index.html").is_file()


def test_what_a_campaign_judged_is_in_its_ledger(finished: tuple[int, str, Path]) -> None:
    """Every case has its text and one bucket per oracle."""
    with Ledger(finished[2]) as book:
        run = book.resume("seed0-1of1-1w")
        assert run is not None
        records = book.records(run)
        texts = book.texts(run)
    cases = {r.case for r in records if not r.mutant}
    assert len(cases) == 5
    assert cases <= set(texts)
    assert {r.oracle for r in records} <= set(ORACLES)


def test_wrong_usage_is_exit_code_2() -> None:
    """A script must tell a typing error from a bug found."""
    runner = CliRunner()
    for words in (["--oracles", "prophet"], ["--shard", "3/2"], ["--seconds", "0"]):
        assert runner.invoke(main, words).exit_code == 2, words


def test_a_case_counts_as_its_worst_record() -> None:
    """Seven passing trip counts do not make up for one that fails."""
    rows = [record("a"), record("a", subject="k trips=3", status="fail"), record("b")]
    rows.append(record("b", status="fail", mutant="drop line 3"))
    assert summary.verdicts(rows) == {("a", "prover"): "fail", ("b", "prover"): "pass"}


def test_the_summary_lists_every_open_reason() -> None:
    """What stays unknown must be seen, not averaged."""
    rows: list[Record] = [record("a"), record("b", status="unknown", reason="z3 gave up")]
    said = "\n".join(summary.lines(rows))
    assert "prover:        1 pass, 0 fail, 1 unknown, 0 unsupported" in said
    assert "1 of 2 answers (50.00 %)" in said
    assert "1 x prover unknown: z3 gave up" in said


def test_exit_codes_are_told_apart() -> None:
    """Continuous integration reads nothing else."""
    assert (CLEAN, FAILED, HARNESS) == (0, 1, 3)
