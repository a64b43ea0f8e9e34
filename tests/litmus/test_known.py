"""Every known bug is a kernel that judges refute, beside a right one, or says what else catches it.

That the judges do is checked by `test_litmus`.
"""

from __future__ import annotations

import pytest

from litmus.known import KNOWN, Known
from litmus.suite import by_name
from oracles.verdict import Status


@pytest.mark.parametrize("one", KNOWN, ids=lambda one: one.bug)
def test_a_known_bug_is_a_kernel_or_has_a_reason(one: Known) -> None:
    """A name leads to a kernel that fails and a twin that passes."""
    assert bool(one.broken) is not bool(one.why_not)
    for name in one.broken.split():
        litmus = by_name(name)
        assert litmus.expect.status is Status.FAIL
        assert by_name(litmus.twin).expect.status is Status.PASS


def test_most_bugs_are_kernels() -> None:
    """Each is named once, and reasons stay the exception."""
    assert len({one.bug for one in KNOWN}) == len(KNOWN) >= 80
    assert sum(bool(one.broken) for one in KNOWN) >= 70
