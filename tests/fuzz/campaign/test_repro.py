"""A failing case becomes a script that runs alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from behaviour import compute, segfault
from click.testing import CliRunner
from records import record
from rich.console import Console

from fuser import pipeline
from fuser.kernel import ir as kir
from fuser.passes.free_slots import free_slots
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.mutants import representative
from fuzz.campaign.record import Record
from fuzz.campaign.repro import judged, main, outcome, replay, shown, write, written
from fuzz.cases.case import Case, case_id, from_text, to_text
from fuzz.exit_code import CLEAN, FAILED, HARNESS, USAGE, CannotWrite
from fuzz.failures.judge import judge_failure

ROOT = Path(__file__).parents[3]
SCRIPT = written(record("x"), to_text(representative("direct/tma")))


def test_a_script_holds_the_case_and_runs_alone(tmp_path: Path) -> None:
    """No ledger, no campaign, no pytest: exit code 0, as this failure is gone."""
    text = to_text(representative("direct/tma"))
    failed = record("x", status="fail", kind="race", reason='a "quoted" reason\nin two lines')
    path = write(failed, text, folder=tmp_path)
    assert path.name.startswith("prover_race_")
    assert ", python 3." in path.read_text()
    assert to_text(from_text(path.read_text())) == text
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, done.stdout), done.stderr
    assert done.stdout.endswith("prover: fixed\n")


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0), CLEAN), ((0, 1, 0), FAILED), ((3, 1), FAILED), ((0, 3), HARNESS)],
)
def test_replaying_several_scripts_exits_with_the_worst(
    codes: tuple[int, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are run, whatever one of them says."""
    paths = [tmp_path / f"{number}.py" for number in range(len(codes))]
    for path in paths:
        path.write_text(SCRIPT)
    left = iter(codes)
    monkeypatch.setattr("fuzz.campaign.repro.shown", lambda *_, **__: next(left))
    done = CliRunner().invoke(main, list(map(str, paths)))
    assert done.exit_code == code
    assert [f"{path}:" for path in paths] == done.stdout.splitlines()


def test_what_is_no_repro_is_wrong_usage_and_not_run(tmp_path: Path) -> None:
    """It would count as fixed, or as a failure that is still there; nor are those beside it run."""
    mark, path, good = (tmp_path / n for n in ("mark", "one.py", "good.py"))
    path.write_text(f"open({str(mark)!r}, 'w')\n{SCRIPT}")
    good.write_text(SCRIPT)
    done = CliRunner().invoke(main, [str(good), str(path)])
    assert done.exit_code == USAGE
    assert "line 1: calls open; name a script that a campaign wrote" in done.stderr
    assert not mark.exists()


def test_a_script_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    """And no failure; nor is to replay nothing at all."""
    assert CliRunner().invoke(main, [str(tmp_path / "nope.py")]).exit_code == USAGE
    assert CliRunner().invoke(main, []).exit_code == USAGE


def test_a_script_that_breaks_has_judged_nothing(tmp_path: Path) -> None:
    """An API that has changed since says nothing about the failure."""
    path = tmp_path / "old.py"
    path.write_text(SCRIPT.replace("vector=4", "vectors=4"))
    done = CliRunner().invoke(main, [str(path)])
    assert done.exit_code == HARNESS
    assert "TypeError: " in done.stderr


def test_any_case_of_a_ledger_is_replayed(tmp_path: Path) -> None:
    """By what its id begins with; it says what it runs, and of which compiler."""
    text = to_text(representative("direct/direct"))
    name = case_id(text)
    with Ledger(tmp_path / "some.sqlite") as book:
        book.append(book.start("run", {}), [record(name)], text=text)
    words = ["--ledger", str(tmp_path / "some.sqlite"), "--case"]
    done = CliRunner().invoke(main, [*words, name[:6]])
    assert done.exit_code == CLEAN, done.output
    assert f"case {name} (" in done.stdout
    assert str(ROOT / "fuser") in done.stdout.replace("\n", "")
    none = CliRunner().invoke(main, [*words, "nope"])
    assert none.exit_code == USAGE
    assert "--case nope: 0 cases of" in none.stderr


def test_a_failure_is_shown_with_its_kernel_and_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines of the finding, its witness, and the pass since which the prover says so."""
    case = representative("tma-specialized/direct")

    def forgetful(kernel: kir.Kernel) -> kir.Kernel:
        waits = kir.MBarrierWaitParity
        return kernel.rewrite(lambda s: [] if isinstance(s, waits) and "empty" in str(s) else None)

    passes = list(pipeline.PASSES)
    passes.insert(passes.index(free_slots) + 1, forgetful)
    monkeypatch.setattr(pipeline, "PASSES", tuple(passes))
    monkeypatch.setattr("fuzz.campaign.repro.judged", lambda case, _: judge_failure(to_text(case)))
    out = Console(record=True, width=120)
    assert shown([case], "", out, pictured=True, bisected=True) == FAILED
    said = out.export_text()
    assert "prover: fail parity" in said
    assert "tma_load(" in said
    assert "bisect: since forgetful" in said


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (compute, "hang: no answer within 0.5 s of CPU time ("),
        (segfault, "crash: killed by signal 11 (SIGSEGV) while the simulator was at work on k"),
    ],
)
def test_a_replay_that_hangs_or_dies_still_fails_and_says_how(
    work: Callable[[str], list[Record]],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who waits for it learns what happened, and whoever was at work."""
    monkeypatch.setattr("fuzz.campaign.repro.judge_text", work)
    monkeypatch.setattr("fuzz.campaign.repro.LIMIT_S", 0.5)
    with pytest.raises(SystemExit) as end:
        replay(representative("direct/tma"), oracle="simulator")
    assert end.value.code == FAILED
    out = capsys.readouterr().out
    assert says in out
    assert out.endswith("simulator: still fails\n")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("pass", "pass"), CLEAN),
        (("pass", "fail"), FAILED),
        (("error",), FAILED),
        (("unknown", "pass"), HARNESS),
        (("invalid",), HARNESS),
        ((), HARNESS),
    ],
)
def test_only_what_passes_is_fixed(statuses: tuple[str, ...], code: int) -> None:
    """A case that is refused by now, or without an answer, is not judged any more."""
    assert outcome([record("a", status=status) for status in statuses]) == code


def test_of_a_good_case_the_oracle_passes_and_of_a_refused_one_says_why() -> None:
    """Only the oracle whose failure it was is asked about, and whether the case is built."""
    good = representative("tma-pipelined/direct")
    refused = Case(good.fusion, good.params, {**good.extents, "i1": 63}, good.kind, good.seed)
    answer, none = judged(good, "prover"), judged(refused, "prover")
    assert isinstance(answer, list)
    assert {(r.oracle, r.status) for r in answer} == {("prover", "pass")}
    assert isinstance(none, list)
    assert {(r.oracle, r.status) for r in none} == {("build", "invalid")}


def test_a_script_that_cannot_be_written_is_told_so(tmp_path: Path) -> None:
    """With the way out."""
    (tmp_path / "repros").write_text("")
    failed, text = record("x", status="fail"), to_text(representative("direct/tma"))
    with pytest.raises(CannotWrite, match="File exists: .*; name another place with --ledger"):
        write(failed, text, folder=tmp_path / "repros")
