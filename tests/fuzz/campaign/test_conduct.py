"""A campaign of seconds: it ends, counts, shrinks, and outlives its children."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from records import record
from rich.console import Console

from fuzz.campaign import summary
from fuzz.campaign.conduct import Campaign, Plan, main
from fuzz.campaign.driver import Judged
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import ORACLES, Record, signature
from fuzz.exit_code import CLEAN, FAILED, HARNESS, USAGE


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
    assert 0 < len(cases) <= 5
    assert cases <= set(texts)
    assert {r.oracle for r in records} <= set(ORACLES)


@pytest.mark.parametrize(
    "words",
    [
        ("--oracles", "prophet"),
        ("--oracles", ""),
        ("--oracles", "agreement,prover"),
        ("--shard", "3/2"),
        ("--seconds", "0"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(words: tuple[str, str]) -> None:
    """A script must tell a typing error from a bug found, and from a clean run."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == USAGE
    assert "Invalid value for" in done.stderr


def belongs(process: Path, word: str) -> bool:
    """Tell whether a process has a word in its environment."""
    try:
        return word.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_a_full_disk_ends_a_campaign(tmp_path: Path) -> None:
    """With a sentence, the exit code of the harness, no process left, and a ledger to read."""
    path, room = tmp_path / "ledger.sqlite", 90_000
    command = "--seconds 100 --workers 1 --gpu off --no-mutants --oracles prover"
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", *command.split(), "--ledger", str(path)],
        env={**os.environ, "FUSER_CACHE": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == HARNESS, done.stdout + done.stderr
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if belongs(pid, str(tmp_path))]
    assert done.stderr.startswith(f"Error: Ledger('{path}'): cannot be written: ")
    assert done.stderr.endswith("name another file with --ledger\n")
    with Ledger(path) as book:
        assert f"ended early; {len(book.texts('seed0-1of1-1w'))} judged cases" in done.stdout
        assert book.records()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign whose drivers have nothing to say."""
    monkeypatch.setattr("fuzz.campaign.conduct._listen", lambda campaign: False)


@pytest.mark.usefixtures("quiet")
def test_a_resumed_campaign_answers_for_what_it_found_before(tmp_path: Path) -> None:
    """Red stays red, and says where."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as book:
        run = book.start("seed0-1of1-1w", {})
        failed = record("a", status="fail", kind="RAW")
        book.append(run, [failed], text="text")
        book.add_repro(run, signature(failed), "a", "before.py")
    done = CliRunner().invoke(main, ["--workers", "1", "--resume", "--ledger", str(path)])
    assert done.exit_code == FAILED, done.output
    assert "prover:        0 pass, 1 fail" in done.stdout
    assert f"repro of {signature(failed)}: before.py" in done.stdout


@pytest.mark.usefixtures("quiet")
def test_a_report_that_cannot_be_written_is_no_clean_run(tmp_path: Path) -> None:
    """Nobody would look for the page."""
    (tmp_path / "index.html").mkdir()
    done = CliRunner().invoke(main, ["--ledger", str(tmp_path / "ledger.sqlite")])
    assert done.exit_code == HARNESS
    assert "index.html: cannot be written: Is a directory: " in done.stdout


@pytest.mark.parametrize("below", ["", "repros"])
@pytest.mark.usefixtures("quiet")
def test_a_folder_that_cannot_be_made_is_told_at_once(below: str, tmp_path: Path) -> None:
    """Before a driver starts, and not when the first failure is found."""
    place = tmp_path / "place"
    if below:
        place.mkdir()
    (place / below).write_text("a file")
    done = CliRunner().invoke(main, ["--ledger", str(place / "ledger.sqlite")])
    assert done.exit_code == HARNESS
    assert re.search(r"Error: .*: cannot be written: (Not a directory|File exists): ", done.stderr)


@pytest.mark.parametrize(
    ("status", "oracles", "code"),
    [
        ("pass", ("prover",), CLEAN),
        ("fail", ("prover",), FAILED),
        ("error", ("prover",), HARNESS),
        ("unknown", ("prover",), HARNESS),
        ("pass", ("prover", "assembler"), HARNESS),
    ],
)
def test_an_oracle_that_never_answers_is_not_clean(
    status: str, oracles: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """Who asks two judges and hears one has not been told that all is well."""
    path = tmp_path / "ledger.sqlite"
    plan = Plan(1.0, None, 0, oracles, 1, (1, 1), path, False, False, False)
    with Ledger(path) as book:
        one = Campaign(plan, book, book.start("run", {}), Console(quiet=True))
        one.hear(0, Judged([record("a", status=status)], "text"))
        assert one.exit_code() == code


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
