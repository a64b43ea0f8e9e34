"""Kernels as text: one line per statement, and line numbers that hold."""

import kernels
import pytest
from conftest import Golden

from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered, short, text


def test_specialized_text(golden: Golden) -> None:
    """How a hand-written kernel reads."""
    golden.check(text(kernels.specialized(3)))


def test_numbers_are_those_of_the_text() -> None:
    """Witnesses name lines by them."""
    for kernel in (kernels.direct(), kernels.pipelined(3, 2), kernels.staged(2)):
        lines = text(kernel).splitlines()
        for number, stmt in numbered(kernel):
            assert lines[number - 1].strip() == line(stmt)


@pytest.mark.parametrize(
    ("stmt", "numbers", "says"),
    [
        (
            kir.MBarrierWaitParity(kir.MBarrier("full", 1, 2), Var("k") % 2, Var("k") // 2 % 2),
            {"bar": 1, "parity": 0},
            "full[1] wait parity 0",
        ),
        (
            kir.MBarrierArrive(kir.MBarrier("empty", 1, 2), Var("k") % 2, kir.Scope.CLUSTER, 1),
            {"bar": 0, "cta": 1},
            "empty[0] of CTA 1 arrive",
        ),
        (kir.BlockSync(0, 64), {}, "block_sync(0, 64)"),
    ],
)
def test_a_statement_in_short_has_numbers_for_expressions(
    stmt: kir.Stmt, numbers: dict[str, int], says: str
) -> None:
    """As the diagrams of all judges show it; what has no short form is its line."""
    assert short(stmt, numbers) == says
