"""Shared memory as threads access it: here `ldmatrix` and `stmatrix`, by any lane of a warp."""

from __future__ import annotations

import pytest
from matrices import CASES, SLOT, kernel, write

from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from oracles.simulator.simulate import Launch, search
from oracles.verdict import Status


@pytest.mark.parametrize("name", CASES)
def test_lanes_of_a_matrix_access_are_not_told_apart(name: str) -> None:
    """What one lane did before is ordered by a sync of its warp, or a wider one."""
    expected, subject = CASES[name]
    if name != "one lane":
        validate(subject, final=True)
    verdict = search(subject, Launch(1, {}), schedules=6)
    assert {f.kind for f in verdict.findings if f.severity == "error"} == {expected} - {""}
    assert verdict.status is (Status.FAIL if expected else Status.PASS)


def test_a_matrix_access_stays_in_its_cta() -> None:
    """The instructions know no other shared memory."""
    far = kir.Store(kir.Slot(SLOT.buffer, 0, 0), write().src, 2, matrix=True)
    verdict = search(kernel(far), Launch(1, {}), schedules=1)
    assert {f.kind for f in verdict.findings} == {"bounds"}
