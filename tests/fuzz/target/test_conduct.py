"""Planted faults are found and made small; a target that dies or never ends is survived."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from functions import case_of
from hypothesis import strategies as st

from fuser.fusion.definition import Ops, TensorView
from fuzz.campaign.ledger import Ledger
from fuzz.cases.case import from_text
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, HARNESS, USAGE
from fuzz.target import conduct
from fuzz.target.conduct import main
from fuzz.target.judge import calls
from fuzz.target.script import Target


def searched(folder: Path, backend: str, *words: str) -> Result:
    """Run a search and return how it ended."""
    ledger = ["--ledger", str(folder / "ledger.sqlite")]
    return CliRunner().invoke(main, ["--backend", f"wrong_backends:{backend}", *ledger, *words])


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw two cases: operations before and behind a tanh, and one without a tanh."""

    def before_and_behind(ops: Ops, x: TensorView) -> TensorView:
        return ops.relu(ops.mul(ops.tanh(ops.add(x, 1.0)), 3.0))

    some = [case_of(before_and_behind, seed=9, gap=3), case_of(lambda ops, x: ops.abs(x), seed=2)]
    monkeypatch.setattr(conduct, "cases", lambda wishes: st.sampled_from(some))


def test_a_planted_fault_is_drawn_found_and_made_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one draw in two is asked for it; its least case is one operation, its script a file."""
    asked = (("operation", "tanh", "bf16"),)
    monkeypatch.setattr(conduct, "cases", lambda wishes: cases(wishes=asked))
    done = searched(tmp_path, "tanh_is_sin", "--seconds", "90", "--cases", "8", "--seed", "3")
    assert done.exit_code == FAILED, done.output
    with Ledger(tmp_path / "ledger.sqlite") as book:
        ((run, _, _, totals),) = book.runs()
        (name,) = [n for n in book.repros(run) if "wrong_backends" in n]
        assert name.startswith("differential value wrong_backends:tanh_is_sin tanh/")
        assert totals.drawn == 8
        path = Path(book.repros(run)[name])
        texts = book.texts(run)
    least = from_text(texts[path.stem.rpartition("_")[2]])
    assert [tv.op for tv in least.fusion.tensors] == ["input", "tanh"]
    assert "torch.tanh" in path.read_text()


@pytest.mark.usefixtures("chain")
def test_a_fault_that_no_operation_is_to_blame_for_is_called_by_its_least_case(
    tmp_path: Path,
) -> None:
    """It is gone when every tensor is an output, so at least two operations are left."""
    done = searched(tmp_path, "lone_tanh_is_sin", "--cases", "2", "--seconds", "60")
    assert done.exit_code == FAILED, done.output
    assert "value wrong_backends:lone_tanh_is_sin fused: add tanh: " in done.output


@pytest.mark.usefixtures("chain")
def test_a_right_target_is_green(tmp_path: Path) -> None:
    """The last line says so, and each case was judged."""
    done = searched(tmp_path, "plain", "--cases", "2", "--seconds", "60")
    assert done.exit_code == CLEAN, done.output
    assert "wrong_backends:plain: 2 pass, 0 fail, 0 unknown, 0 unsupported" in done.output


@pytest.mark.usefixtures("chain")
def test_a_crash_is_a_failure_and_the_search_goes_on(tmp_path: Path) -> None:
    """It is made small like any other; the other case passes."""
    done = searched(tmp_path, "crashes", "--cases", "2", "--seconds", "180")
    assert done.exit_code == FAILED, done.output
    assert (
        "differential crash wrong_backends:crashes killed by signal 11 (SIGSEGV): 1 cases"
        in done.output
    )
    assert "1 pass" in done.output
    (path,) = (tmp_path / "repros").glob("*crash*.py")
    assert "T1 = torch.tanh(T0)" in path.read_text()


@pytest.mark.usefixtures("chain")
def test_a_hang_is_a_failure_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at the limit, and is written down as it was found."""
    monkeypatch.setattr(conduct, "LIMIT_S", 1.0)
    monkeypatch.setattr(conduct, "REPLAY_S", 1.0)
    done = searched(tmp_path, "hangs", "--cases", "2", "--seconds", "60")
    assert done.exit_code == FAILED, done.output
    assert "differential hang wrong_backends:hangs no answer: 1 cases" in done.output
    assert "1 pass" in done.output


def test_a_failure_of_the_second_call_becomes_one_of_the_first() -> None:
    """Whose values are reals; then nothing else need be called."""
    case = case_of(lambda ops, x: ops.abs(x), seed=3)
    (_, second, *_) = calls(Target(dynamic=True), case)
    assert str(second) in map(str, conduct.plain_inputs(case))
    assert {one.kind for one in conduct.plain_inputs(second)} == {"reals"}


def test_what_is_not_judged_is_not_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsupported cases are counted, with the reason, and are no pass."""

    def refused(ops: Ops, x: TensorView) -> TensorView:
        return ops.gather(x, 0, ops.cast(x, "i32"))

    some = [case_of(refused, "f8e5m2", seed=n) for n in range(3)]
    monkeypatch.setattr(conduct, "cases", lambda wishes: st.sampled_from(some))
    done = searched(tmp_path, "plain", "--cases", "3", "--seconds", "60")
    assert done.exit_code == HARNESS, done.output
    assert "3 x eager torch unsupported: NotImplementedError" in done.output


def test_a_judge_that_breaks_is_not_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its case counts as an error, and the search goes on."""
    good = case_of(lambda ops, x: ops.abs(x))
    monkeypatch.setattr(
        conduct, "cases", lambda wishes: st.sampled_from([replace(good, extents={}), good])
    )
    done = searched(tmp_path, "plain", "--cases", "2", "--seconds", "60")
    assert done.exit_code == HARNESS, done.output
    assert "1 cases broke the judge" in done.output
    assert "1 x wrong_backends:plain error: KeyError" in done.output
    assert "1 pass" in done.output


def test_a_wrong_call_is_refused(tmp_path: Path) -> None:
    """Before anything is drawn."""
    assert searched(tmp_path, "plain", "--cases", "0").exit_code == USAGE
