"""What machines read: JUnit XML and Markdown."""

from __future__ import annotations

from xml.etree import ElementTree

from records import record
from reported import RUNS, SPLIT, book, frame

from reports import ci, correctness


def suites(text: str) -> dict[str, ElementTree.Element]:
    """Return the suites by name."""
    return {suite.get("name", ""): suite for suite in ElementTree.fromstring(text.encode())}


def test_a_failure_is_a_case_with_its_command() -> None:
    """Unknown is skipped, with numbers, and never a pass."""
    prover = suites(ci.junit(SPLIT, correctness.found(book())))["prover"]
    assert (prover.get("tests"), prover.get("failures"), prover.get("skipped")) == ("1", "1", "0")
    (failed,) = prover
    assert failed.findtext("system-out") == "nox -s repro -- a.py"
    assert failed.findtext("failure") == "line 3"
    rows = [record("a"), record("b", status="unknown")]
    (skipped,) = suites(ci.junit(frame(*rows), []))["prover"]
    assert skipped[0].get("message") == "1 of 2 cases without an answer"


def test_what_fails_behind_another_failure_is_no_pass() -> None:
    """It is told of the judge nearest to the cause; its own suite says that there is such."""
    rows = [record("c", oracle=name, status="fail", kind="x") for name in ("differential", "gpu")]
    found = suites(ci.junit(frame(*rows), correctness.found(book(*rows))))
    assert (found["differential"].get("failures"), found["gpu"].get("failures")) == ("1", "0")
    (behind,) = found["gpu"]
    assert "nearer to the cause" in (behind[0].get("message") or "")
    assert found["gpu"].get("skipped") == "1"


def test_what_xml_cannot_hold_is_replaced() -> None:
    """A compiler's log may have escape codes."""
    rows = [record("c", status="fail", kind="race", reason="\x1b[31mred < \ud800")]
    (suite,) = suites(ci.junit(frame(*rows), correctness.found(book(*rows)))).values()
    assert suite[0].findtext("failure") == "?[31mred < ?"


def test_the_summary_is_markdown_for_people() -> None:
    """The result, a table that Markdown reads as one, and the commands."""
    head, totals = correctness.headline(SPLIT, RUNS), correctness.totals(SPLIT, RUNS).table
    text = ci.summary("fuser correctness", head, totals, correctness.found(book()))
    assert text.startswith("## fuser correctness: 2 of 4 cases failed")
    assert "\n| prover | 1 | 1 | 1 | 0 | 0 | 0 | 0 |\n| simulator |" in text
    assert "\n- **new** prover race direct/tma, 1 case: `nox -s repro -- a.py`\n" in text
    assert "No failure." in ci.summary("t", head, totals, [])
