"""Verdicts cannot be made to lie."""

import pickle

import kernels as ks
import pytest

from fuser.kernel.text import line, numbered
from oracles.explorer import explore as explorer
from oracles.prover.prove import prove
from oracles.simulator import simulate as simulator
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


def test_lines_trips_and_launch_are_fields() -> None:
    """Who replays a finding needs numbers and not a sentence; a ledger's worker pickles them."""
    kernel = ks.specialized(2, warp_sync=False)
    proof = prove(kernel)
    params = {p.name: 20 for p in kernel.params}
    seen = explorer.explore(kernel, explorer.Launch(1, params))
    run = simulator.search(kernel, simulator.Launch(1, params), schedules=12)
    assert {proof.status, seen.status, run.status} == {Status.FAIL}
    texts = {number: line(stmt) for number, stmt in numbered(kernel)}
    for finding in proof.findings:
        where = " | ".join(f"line {number}: {texts[number]}" for number in finding.lines)
        assert (finding.where, finding.witness.split(",")[0]) == (where, f"trips={finding.trips}")
    for finding in (*seen.findings, *run.findings):
        assert dict(finding.launch) == {**params, "gridDim": 1}
    assert seen.states > 0
    assert pickle.loads(pickle.dumps((proof, seen, run))) == (proof, seen, run)
