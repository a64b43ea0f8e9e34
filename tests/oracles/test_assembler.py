"""The assembler's log: real lines are recognised, and an empty log is no pass."""

import pytest

from oracles.assembler import judge_log, resources
from oracles.verdict import Status

CLEAN = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'ring' for 'sm_90a'
ptxas info    : Function properties for ring
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
"""


def test_a_clean_log_passes_with_two_claims() -> None:
    """No message and no spill are two claims about the one kernel."""
    verdict = judge_log(CLEAN)
    assert (verdict.status, verdict.checked) == (Status.PASS, 2)
    assert resources(CLEAN)[0].registers == 40


def test_an_empty_log_is_not_a_pass() -> None:
    """A log without a resource report says nothing."""
    assert judge_log("").status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
            "serialized due to wgmma pipeline crossing function boundary in function 'gemm'",
            "serialized",
        ),
        (
            "ptxas info : (C7517) warpgroup.wait is injected in around line 7 by compiler",
            "injected",
        ),
        (
            "ptxas info : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to "
            "determine register count at entry.",
            "ignored",
        ),
    ],
)
def test_messages_are_findings(text: str, kind: str) -> None:
    """Each of the three words is a finding of its kind."""
    verdict = judge_log(CLEAN + text)
    assert verdict.status is Status.FAIL
    assert [finding.kind for finding in verdict.findings] == [kind]


def test_spills_are_warnings() -> None:
    """A kernel that spills is slow but right; it is named with its bytes."""
    log = CLEAN.replace("0 bytes spill stores", "12 bytes spill stores")
    verdict = judge_log(log)
    (finding,) = verdict.findings
    assert verdict.status is Status.PASS
    assert (finding.kind, finding.where, finding.severity) == ("spill", "ring", "warning")
    assert "12 bytes of spills" in finding.witness
