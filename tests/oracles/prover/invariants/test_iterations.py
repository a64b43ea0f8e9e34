"""Tests of statements as functions of the iteration: linear conditions, slots that walk."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest

from fuser.expr import Kind, fold
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import K, N, UnsupportedError
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.trace import Bound, Walk, bounds, read, read_runs
from oracles.verdict import Status


def test_what_is_not_linear_is_unsupported() -> None:
    """The construct is named."""
    kernel = ks.specialized(2)

    def odd(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.TmaLoad):
            return [kir.IfThenElse(fold(Kind.LT, ks.K * 2, ks.TRIPS), (stmt,))]
        return None

    verdict = confirm(kernel.rewrite(odd))
    assert verdict.status is Status.UNSUPPORTED
    assert "no difference" in verdict.reason or "not linear" in verdict.reason
    assert confirm(replace(kernel, cluster=2)).status is Status.UNSUPPORTED


def test_conditions_become_differences() -> None:
    """`k + 2 < n` is one bound; its negation the opposite one."""
    ahead = fold(Kind.LT, K + 2, N)
    assert bounds(ahead) == (Bound(-1, 1, -3),)
    assert bounds(fold(Kind.EQ, ahead, 0)) == (Bound(1, -1, 2),)
    assert bounds(1) == ()
    assert Bound(-1, 1, -3).text() == "(<= (- k n) (- 3))"
    with pytest.raises(UnsupportedError):
        bounds(fold(Kind.LT, 2 * K, N))


def test_what_is_issued_ahead_becomes_iterations_before_the_first() -> None:
    """Two ahead of three slots: the loop's copy starts at iteration -2, in phase k + 2."""
    found = read_runs(read(ks.pipelined(3, 2)))
    assert {(p.low, p.bar) for p in found.of.values() if p.low} == {(-2, Walk(3, 2))}
    assert len(found.ahead) == 4
