"""Verdicts cannot be made to lie."""

import pytest

from oracles.verdict import Finding, Status, Verdict


def test_pass_without_checks_is_impossible() -> None:
    """An oracle that looked at nothing must not praise."""
    with pytest.raises(ValueError, match="nothing was checked"):
        Verdict("toy", Status.PASS, 0)


def test_pass_with_an_error_is_impossible() -> None:
    """A finding of severity error is a FAIL; a warning may stand beside a PASS."""
    with pytest.raises(ValueError, match="answer FAIL"):
        Verdict("toy", Status.PASS, 1, (Finding("race", "line 3", "trip 2"),))
    warning = Finding("fence", "line 3", "consumer side", severity="warning")
    assert Verdict("toy", Status.PASS, 1, (warning,)).findings == (warning,)


def test_fail_without_an_error_is_impossible() -> None:
    """A FAIL must say why."""
    with pytest.raises(ValueError, match="add an error"):
        Verdict("toy", Status.FAIL, 7)


def test_negative_count_is_impossible() -> None:
    """Counts are sums of checked claims."""
    with pytest.raises(ValueError, match="count from 0"):
        Verdict("toy", Status.UNKNOWN, -1)


def test_unknown_severity_is_impossible() -> None:
    """Reports sort by severity, so there are two."""
    with pytest.raises(ValueError, match="pick one of"):
        Finding("race", "line 3", "trip 2", severity="fatal")


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.UNSUPPORTED])
def test_the_other_two_need_no_checks(status: Status) -> None:
    """Giving up early is allowed, as long as it is called that."""
    assert "0 checked): gave up" in str(Verdict("toy", status, 0, reason="gave up"))


def test_text_shows_the_findings() -> None:
    """The text is what a campaign prints."""
    verdict = Verdict("toy", Status.FAIL, 2, (Finding("race", "line 3", "trip 2"),))
    assert str(verdict) == "toy: fail (2 checked)\n  error: race at line 3: trip 2"
