"""The command: what it counts, and how it ends."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fuzz.bench.drawn import texts
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED
from fuzz.ptx import __main__ as command
from fuzz.ptx.cases import Judged
from oracles.verdict import Finding, Status, Verdict


def test_right_cases_end_well() -> None:
    """With a table of answers and times, of other calls and orders, too."""
    words = ["--count", "3", "--seed", "2", "--orders", "2", "--calls", "1"]
    done = CliRunner().invoke(command.main, words)
    assert done.exit_code == CLEAN, done.output
    assert "pass" in done.output
    assert "median CPU seconds" in done.output


def test_a_failure_is_shown_with_its_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And ends the command with 1; what is not modelled is counted by name."""
    bad = Verdict("ptx", Status.FAIL, 1, (Finding("RAW", "line 7", "so it is"),))
    odd = Verdict("ptx", Status.UNSUPPORTED, 0, reason="call.uni, sad.u32")
    answers = iter([Judged((bad,), bad, reached=(frozenset(),)), Judged((odd,), odd)])
    monkeypatch.setattr(command, "judge_case", lambda *_, **__: next(answers))
    tally = command.Tally()
    for text in texts(cases(families=("direct/direct",)), 2, 3):
        tally.judge(text, range(1), 0)
    assert tally.answers == {"fail": 1, "unsupported": 1}
    assert tally.missing == {"call.uni": 1, "sad.u32": 1}
    assert tally.launches == 1
    said = capsys.readouterr().out
    assert "so it is" in said
    assert "case = Case(" in said
    monkeypatch.setattr(command, "judge_case", lambda *_, **__: Judged((bad,), bad))
    done = CliRunner().invoke(command.main, ["--count", "2", "--seed", "2"])
    assert done.exit_code == FAILED
