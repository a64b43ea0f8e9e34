"""Tests of what z3 is asked: neither contradictory nor empty, and evidence to be kept."""

from __future__ import annotations

import kernels as ks
import pytest

from fuser.kernel import ir as kir
from oracles.prover.invariants.check import RLIMIT, Questions, Width, Window, confirm
from oracles.prover.invariants.claims import Claims
from oracles.prover.invariants.graph import EventGraph
from oracles.prover.invariants.trace import read
from oracles.prover.solver import Script
from oracles.verdict import Status


def test_a_starved_solver_is_unknown() -> None:
    """A work limit of nothing proves nothing."""
    assert confirm(ks.combined(4, 3, 2), rlimit=1).status is Status.UNKNOWN


@pytest.mark.parametrize("kernel", [ks.pipelined(4, 3), ks.specialized(3), ks.combined(3, 2, 2)])
def test_premises_have_a_model_and_each_claim_can_fail_without_them(kernel: kir.Kernel) -> None:
    """Neither are the constraints contradictory, nor are the claims empty."""
    trace = read(kernel)
    graph = EventGraph(trace)
    times = Questions(graph, RLIMIT).times
    window = Window(graph, set(range(-9, 2)))
    whole = f"{window.text()}(assert {window.inside(times)})"
    assert Script(whole, RLIMIT).ask().status == "sat"
    claims = Claims(graph, times, "default").ordered
    assert claims
    for claim in claims:
        head = "(declare-const k Int)(declare-const n Int)"
        script = Script(f"{head}(assert {claim.when})", RLIMIT)
        assert script.ask().status == "sat", claim


def test_no_kind_of_claim_is_idle() -> None:
    """Without the requirements of a phase, every kind of claim about order is violated."""
    trace = read(ks.combined(3, 0, 2, specialized=True))
    graph = EventGraph(trace)
    questions = Questions(graph, RLIMIT)
    times = questions.times
    claims = Claims(graph, times, "default").ordered
    graph.crosses.clear()
    for chain in graph.chains.values():
        chain[:] = [item for item in chain if item.waits]
    found = questions.violated(claims, Width.WHOLE)
    assert {claim.kind for claim in found} == {claim.kind for claim in claims}
    assert {"parity", "RAW", "WAR", "WAW", "proxy"} == {claim.kind for claim in claims}
