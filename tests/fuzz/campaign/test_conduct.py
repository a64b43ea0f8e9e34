"""A campaign of seconds: it ends, counts, shrinks, and outlives its children."""

import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner
from records import record
from rich.console import Console

from fuzz.campaign import corpus, summary
from fuzz.campaign.conduct import REPLACED, Campaign, _listen, main
from fuzz.campaign.driver import Job, Judged, Message, Plan, Ready, Round, Shrunk
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.mutants import OPERATIONS
from fuzz.campaign.record import ORACLES, Record, gist, signature
from fuzz.cases.case import case_id
from fuzz.cases.features import legal
from fuzz.cases.params import FAMILIES
from fuzz.exit_code import CLEAN, FAILED, HARNESS, USAGE
from fuzz.workers.local import Ended


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    """Exit code, output and ledger of one small campaign."""
    ledger = tmp_path_factory.mktemp("campaign") / "ledger.sqlite"
    command = "--seconds 5 --cases 5 --workers 1 --gpu off --oracles prover,simulator,agreement"
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
    for oracle in ("build", "prover", "simulator", "agreement"):
        assert f"\n{oracle}:" in said, said
    assert "\nmutant:" in said or "mutants: no time left" in said, said
    assert "median proof" in said
    assert "proofs confirmed in full by z3" in said
    assert "gpu: " in said
    assert "0 cases run" in said
    assert "% valid" in said
    assert f"coverage: 0 of {len(legal())} legal cells in 20 cases or more" in said
    good = "green: no failure, each family judged by prover, simulator, agreement; exit code 0\n"
    assert said.endswith(good) == (code == CLEAN)
    assert f"report: {ledger.parent / 'index.html'}" in said
    assert (ledger.parent / "index.html").is_file()


def test_what_a_campaign_judged_is_in_its_ledger(finished: tuple[int, str, Path]) -> None:
    """Every case has its text and one bucket per oracle."""
    with Ledger(finished[2]) as book:
        run = book.resume("seed0-1of1-1w")
        assert run is not None
        records = book.records(run)
        texts, cells = book.texts(run), book.cells(run)
    assert set(cells) == legal()
    drawn = [case for case, r in {r.case: r for r in records}.items() if r.phase == "generate"]
    assert 0 < max(cells.values()) <= len(drawn)
    cases = {r.case for r in records if not r.mutant}
    by_phase = Counter(r.phase for r in {r.case: r for r in records if not r.mutant}.values())
    assert by_phase["base"] == len(FAMILIES) + len(OPERATIONS)
    assert 0 < by_phase["generate"] <= 5
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
    path, room = tmp_path / "ledger.sqlite", 400_000
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
    monkeypatch.setattr("fuzz.campaign.conduct._listen", lambda campaign, pool: False)


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
    assert f"{signature(failed)}: new, 1 case, repro before.py: " in done.stdout


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


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    """A campaign that has heard nothing yet."""
    ledger = tmp_path / "ledger.sqlite"
    plan = Plan(1.0, None, 0, ("prover",), 1, (1, 1), ledger, False, False, False)
    with Ledger(ledger) as book:
        run = book.start("test", {})
        yield Campaign(plan, book, run, Console(quiet=True))


class Scripted:
    """A pool whose lane says what is written; the drivers that were started are kept."""

    lanes, gpu = 1, False

    def __init__(self, *says: Message | Ended | KeyboardInterrupt) -> None:
        self.says, self.jobs = list(says), list[Job]()

    def start(self, lane: int, job: Job) -> None:
        """Take a job."""
        self.jobs.append(job)

    def heard(self, timeout: float) -> tuple[int, Message | Ended]:
        """Say the next."""
        said = self.says.pop(0)
        if isinstance(said, KeyboardInterrupt):
            raise said
        return 0, said

    def close(self) -> None:
        """End."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_driver_that_dies_is_replaced_and_the_campaign_is_not_green(campaign: Campaign) -> None:
    """The other draws the round again that was cut off, in the time that is left."""
    campaign.plan = replace(campaign.plan, seconds=100.0)
    done = Judged([*every_family(), record("g")], "text")
    pool = Scripted(Ready(), done, Round(0, True), Ended("was killed"), Round(1, False), Ended(""))
    assert not _listen(campaign, pool)
    first, second = pool.jobs
    assert (first.plan.seconds, first.done) == (100.0, frozenset())
    assert 98 < second.plan.seconds < 100
    assert second.done == {0}
    assert campaign.broken == ["driver 1 was killed"]
    assert campaign.exit_code() == HARNESS


def test_a_lane_whose_drivers_all_die_is_given_up(campaign: Campaign) -> None:
    """A machine without memory must not start drivers for a night."""
    campaign.plan = replace(campaign.plan, seconds=100.0)
    pool = Scripted(Ready(), *[Ended("was killed")] * (1 + REPLACED))
    _listen(campaign, pool)
    assert len(pool.jobs) == 1 + REPLACED


def test_an_interrupt_ends_with_what_was_judged(campaign: Campaign) -> None:
    """Ctrl-C and SIGTERM; the report follows."""
    assert _listen(campaign, Scripted(Ready(), judged("a"), KeyboardInterrupt()))
    assert campaign.book.texts(campaign.run) == {"a": "# a"}


def judged(case: str, **changes: object) -> Judged:
    """One record of a case, as a driver sends it."""
    return Judged([record(case, **changes)], f"# {case}")


def every_family(**changes: object) -> list[Record]:
    """A record of each family, by the prover."""
    return [record(family, family=family, phase="base", **changes) for family in FAMILIES]


def test_a_step_of_shrinking_is_no_case(campaign: Campaign) -> None:
    """125 cases in 87 s were once called 10.5 a second; what was given is not drawn either."""
    campaign.start = time.time() - 100
    for number in range(200):
        campaign.hear(0, judged(f"g{number}", phase="generate"))
    for number in range(790):
        campaign.hear(0, judged(f"s{number}", phase="shrink", status="fail"))
    campaign.hear(0, judged("b", phase="base"))
    assert campaign.drawn == 200
    line = campaign.line()
    assert line.startswith("1 given and 200 drawn cases, 2.0/s, 0 bad, 790 steps of shrinking"), (
        line
    )
    assert "(prover 201 passed)" in line


def test_what_was_made_small_is_kept_for_the_next_campaign(campaign: Campaign) -> None:
    """What represents a family is judged anyway, and what comes from the corpus is there."""
    for phase, text in (("shrink", "# small\n"), ("base", "# base\n"), ("corpus", "# old\n")):
        failed = record(case_id(text), status="fail", kind="WAR", phase=phase)
        campaign.hear(0, Shrunk(failed, text))
    kept = corpus.texts(campaign.plan.ledger)
    assert list(kept) == [f"{case_id('# small' + chr(10))}.py"]
    assert list(kept.values()) == ["# prover WAR direct/tma\n# small\n"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ([], CLEAN),
        ([record("f", status="fail", kind="WAR")], FAILED),
        ([record("f", status="fail", phase="base")], FAILED),
        ([record("m", oracle="mutant", status="fail", mutant="drop line 3")], FAILED),
        ([record("e", status="error")], HARNESS),
        ([record("e", status="error", mutant="drop line 3")], HARNESS),
        ([record("i", oracle="build", status="invalid")] * 1, CLEAN),
        ([record(f"i{n}", oracle="build", status="invalid") for n in range(3)], HARNESS),
        ([record(f"u{n}", status="unknown") for n in range(3)], HARNESS),
    ],
)
def test_green_means_judged(campaign: Campaign, more: list[Record], code: int) -> None:
    """A campaign that judged too little is not green, nor one in which a judge broke."""
    campaign.hear(0, Judged([*every_family(), record("g"), *more], ""))
    assert campaign.exit_code() == code


def test_a_family_that_nobody_judged_is_not_green(campaign: Campaign) -> None:
    """An unknown answer is no answer."""
    *most, last = every_family()
    campaign.hear(0, Judged([*most, replace(last, status="unknown"), record("g")], ""))
    assert campaign.exit_code() == HARNESS


def test_a_campaign_without_a_drawn_case_is_not_green(campaign: Campaign) -> None:
    """One kernel of each family is no fuzzing."""
    campaign.hear(0, Judged(every_family(), ""))
    assert campaign.exit_code() == HARNESS


def test_failures_are_named_with_their_scripts_nearest_to_the_cause_first() -> None:
    """`agreement` was once the title of whatever the compiler did wrong, by the alphabet.

    What else a case fails of follows from that; what a case fails of alone is a failure.
    """
    rows = [
        record("a", oracle="agreement", status="fail", kind="not replayed"),
        record("a", oracle="prover", status="fail", kind="WAR"),
        record("b", oracle="build", status="fail", kind="refused", reason="use stages=3\nmore"),
        record("c", oracle="prover", status="fail", kind="WAR"),
        record("s", oracle="simulator", status="fail", kind="WAR", phase="shrink"),
        record("m", oracle="mutant", status="fail", mutant="drop line 3", reason="only the prover"),
        record("n", oracle="simulator", status="error", mutant="drop line 4", reason="KeyError"),
    ]
    repros = {"prover WAR direct/tma": Path("a.py"), "agreement not replayed direct/tma": Path("b")}
    assert list(summary.failing(rows, repros)) == [
        "build refused direct/tma: new, 1 case, without a repro: use stages=3",
        "prover WAR direct/tma: new, 2 cases, repro a.py: no reason",
        "mutant fail direct/tma: drop line 3: only the prover",
        "simulator error direct/tma: drop line 4: KeyError",
    ]


def test_the_summary_counts_cases_by_where_they_come_from() -> None:
    """The valid rate is of what was drawn."""
    rows = [
        record("a", oracle="build", status="invalid", phase="corpus"),
        record("b", oracle="build", phase="base"),
        record("c", oracle="build"),
        record("c", status="fail"),
        record("d", oracle="build", status="invalid"),
        record("s", oracle="build", phase="shrink"),
    ]
    assert list(summary.lines(rows))[:3] == [
        "1 cases of the corpus, 0 failing",
        "1 cases one of each family or type, 0 failing",
        "2 cases drawn, 1 failing, 50.0 % valid",
    ]


def test_a_case_counts_as_its_worst_record() -> None:
    """Seven passing trip counts do not make up for one that fails."""
    rows = [record("a"), record("a", subject="k trips=3", status="fail"), record("b")]
    rows.append(record("b", status="fail", mutant="drop line 3"))
    assert summary.verdicts(rows) == {("a", "prover"): "fail", ("b", "prover"): "pass"}


def test_a_larger_call_that_there_is_not_leaves_a_case_as_it_is() -> None:
    """One case in three has none: a campaign would never be green.  Its reason is still listed."""
    silent = record("a", oracle="gpu", subject="enlarged", status="unknown", reason="no axis grows")
    rows = [record("a", oracle="gpu", subject="launch 0"), silent]
    assert summary.verdicts(rows) == {("a", "gpu"): "pass"}
    assert "1 x gpu unknown: no axis grows" in "\n".join(summary.lines(rows))
    wrong = replace(silent, subject="enlarged: i0=134217729", status="fail")
    assert summary.verdicts([*rows, wrong]) == {("a", "gpu"): "fail"}


def test_the_summary_lists_every_open_reason() -> None:
    """What stays unknown must be seen, not averaged."""
    rows: list[Record] = [record("a"), record("b", status="unknown", reason="z3 gave up")]
    said = "\n".join(summary.lines(rows))
    assert "prover:        1 pass, 0 fail, 1 unknown, 0 unsupported" in said
    assert "1 of 2 answers (50.00 %)" in said
    assert "1 x prover unknown: z3 gave up" in said


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("48 elements (100.0%) undecided, hanging on rounding", "N elements (N%) undecided, "),
        ("16 elements (100.0%) undecided, hanging on rounding under NormParams(tile=(1, 16))", "N"),
        ("AmpereParams(ampere-groups): sm_80 multiplies no f8e5m2 (T0_operand_1 of matmul2)", ""),
        ("gave up after 14.67 CPU s, at state 562\nmore", "gave up after N CPU s, at state N"),
        ("", "no reason"),
    ],
)
def test_reasons_that_differ_by_numbers_and_names_are_one(reason: str, says: str) -> None:
    """Seventy lines that say the same hide the one that does not."""
    found = gist(reason)
    assert found.startswith(says)
    assert "NormParams" not in found
    if "f8" in reason:
        assert found.endswith("sm_80 multiplies no f8e5m2 (TN of matmulN)")
