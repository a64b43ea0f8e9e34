"""Kernels as text: one line per statement, and line numbers that hold."""

import kernels
from conftest import Golden

from fuser.kernel.text import line, numbered, text


def test_specialized_text(golden: Golden) -> None:
    """How a hand-written kernel reads."""
    golden.check(text(kernels.specialized(3)))


def test_numbers_are_those_of_the_text() -> None:
    """Witnesses name lines by them."""
    for kernel in (kernels.direct(), kernels.pipelined(3, 2), kernels.staged(2)):
        lines = text(kernel).splitlines()
        for number, stmt in numbered(kernel):
            assert lines[number - 1].strip() == line(stmt)
