"""What is printed: the answer first, statements once, and nothing hidden."""

from __future__ import annotations

import io

import kernels as ks
import pytest
from rich.console import Console
from witnesses import RING

from oracles.cli import answers
from oracles.cli.advice import Advice, Cost, Survey
from oracles.verdict import Confirmation, Finding, Status, Verdict


def paper() -> tuple[Console, io.StringIO]:
    """A console that prints into a text."""
    text = io.StringIO()
    return Console(file=text, width=120, highlight=False), text


def test_markup_in_a_statement_is_printed_as_it_is() -> None:
    """`S[red]` is a slot, no colour."""
    out, text = paper()
    answers.verdict(out, "S[red]", Verdict("judge", Status.UNKNOWN, 0, reason="[bold]why"), 0.5)
    assert text.getvalue() == "unknown     S[red]  0 claims checked in 0.50 s\n  [bold]why\n"


def test_what_z3_has_confirmed_has_a_line_each() -> None:
    """With its questions, so that a reader sees what a pass rests on."""
    out, text = paper()
    confirmed = (Confirmation("drain-before-release", 4), Confirmation("order", 1))
    answers.verdict(out, "k", Verdict("prover", Status.PASS, 5, confirmed=confirmed), 0.5)
    assert text.getvalue().splitlines()[1:] == [
        "  drain-before-release: decided by z3, 4 questions",
        "  order: decided by z3, 1 question",
    ]


def test_a_statement_is_not_repeated_in_the_judges_words() -> None:
    """It stands above, under its line."""
    kernel = ks.staged(2)
    out, text = paper()
    first, second = "elect one thread per role", "S1[(k % 2)] = store(y, width=4)"
    says = f"trips=3: `{second}`: late (the other is `{first}`)"
    where = f"line 9: {first} | line 12: {second}"
    answers.findings(out, kernel, (Finding("WAR", where, says, lines=(9, 12)),))
    lines = [line.strip() for line in text.getvalue().splitlines()]
    assert lines == [
        "error: WAR",
        "9  elect one thread per role",
        "12  S1[(k % 2)] = store(y, width=4)",
        "trips=3: late",
    ]


def test_a_place_that_is_no_line_is_printed_whole() -> None:
    """Coverage is about outputs."""
    out, text = paper()
    answers.findings(out, ks.staged(2), (Finding("coverage", "T1", "3 elements", "warning"),))
    assert text.getvalue().splitlines() == ["  warning: coverage", "    T1", "         3 elements"]


def test_a_witness_is_drawn_in_the_width_of_the_console() -> None:
    """Rich must not break its lines again."""
    out, text = paper()
    answers.witness(out, RING)
    lines = text.getvalue().splitlines()
    assert any("◆ x = load(S0[0]) k=0" in line for line in lines)
    assert max(map(len, lines)) <= 120


def survey(cut: bool) -> Survey:
    """Two fences of which one may go."""
    pieces = [
        Advice((n,), ("fence_async_proxy(shared)",), Cost.FENCE, ("k",), "7 claims hold", (o,))
        for n, o in ((4, 5), (5, 4))
    ]
    return Survey(tuple(pieces), ((4,), (5,)), (9,), not cut, 8, cut)


def test_alternatives_are_printed_as_such() -> None:
    """Reading two pieces of advice as both to be followed breaks the kernel."""
    out, text = paper()
    answers.advice(out, survey(cut=False))
    said = text.getvalue()
    assert "if it goes, line 5 must stay" in said
    assert "together may go: lines 4\n    and then also: lines 9\n    or instead: lines 5" in said
    assert "cut" not in said


def test_a_cut_search_is_printed() -> None:
    """Silence is not praise."""
    out, text = paper()
    answers.advice(out, survey(cut=True))
    assert "cut after 8 proofs" in text.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_to_who_waits(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    """On a terminal, after a while, and gone when there is an answer."""
    text = io.StringIO()
    errors = Console(file=text, force_terminal=terminal)
    monkeypatch.setattr(answers, "console", lambda *, stderr: errors)
    with answers.progress("ring") as tell:
        assert (tell is not None) is terminal
        if tell is not None:
            tell(1.0, "state 1")
            assert not text.getvalue()
            tell(3.2, "state 77")
            assert text.getvalue() == f"\rring: 3 CPU s, state 77{answers.CLEAR}"
    assert text.getvalue().endswith(f"\r{answers.CLEAR}") is terminal
