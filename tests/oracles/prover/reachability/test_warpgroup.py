"""What one warp of a warpgroup knows of the others through a product of theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.suite import by_name

from fuser.kernel import ir as kir
from oracles.prover.reachability.fixpoint import judge
from oracles.prover.reachability.rules import Rule

ONE = "one_arrival_per_warpgroup_is_a_warning"


def made() -> kir.Kernel:
    """A warpgroup frees its slots by one thread."""
    found = by_name(ONE).kernel
    assert isinstance(found, kir.Kernel)
    return found


@pytest.mark.parametrize(("policy", "errors"), [("default", set()), ("strict", {"WAR", "proxy"})])
def test_one_arrival_for_four_warps_is_a_matter_of_policy(policy: str, errors: set[str]) -> None:
    """Three warps' reads are covered by the word of the fourth: worth a warning, or an error."""
    closed = judge(made(), policy=policy)
    assert {v.kind for v in closed.violations} <= errors
    assert ("WAR" in {v.kind for v in closed.warnings}) is (policy == "default")


def test_an_arrival_before_the_wait_releases_nothing() -> None:
    """The product tells of the other warps only once its end has been seen."""
    late = next(s for s in made().walk() if isinstance(s, kir.AsyncAwait))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.ForLoop) and late in stmt.body:
            at = stmt.body.index(late)
            body = (*stmt.body[:at], *stmt.body[at + 1 :], late)
            return [replace(stmt, body=body)]
        return None

    assert {v.kind for v in judge(made().rewrite(rule)).violations} & {"WAR", "parity"}


def test_without_the_await_s_edge_nothing_is_known() -> None:
    """The knowledge comes with the await's axiom, and goes with it."""
    closed = judge(made(), without=frozenset({Rule.AWAIT_ORDERS}))
    assert closed.violations
