"""Tests of what z3 is asked: neither contradictory nor empty, and evidence to be kept."""

from __future__ import annotations

import kernels as ks
import pytest

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from oracles.prover.invariants.check import certify, text
from oracles.prover.invariants.claims import Claims
from oracles.prover.invariants.events.footprint import Footprints
from oracles.prover.invariants.events.graph import Skeleton
from oracles.prover.invariants.questions import RLIMIT, Questions, UndecidedError, Width
from oracles.prover.invariants.solver import Script
from oracles.prover.invariants.trace import read
from oracles.prover.invariants.window import Window
from oracles.verdict import Status


def test_a_starved_solver_is_unknown() -> None:
    """A work limit of nothing proves nothing."""
    assert certify(ks.combined(4, 3, 2), rlimit=1).status is Status.UNKNOWN


@pytest.mark.parametrize("kernel", [ks.pipelined(4, 3), ks.specialized(3), ks.combined(3, 2, 2)])
def test_premises_have_a_model_and_each_claim_can_fail_without_them(kernel: kir.Kernel) -> None:
    """Neither are the constraints contradictory, nor are the claims empty."""
    trace = read(kernel)
    skeleton = Skeleton(trace, Footprints(trace))
    times = Questions(skeleton, RLIMIT).times
    window = Window(skeleton, set(range(-9, 2)))
    whole = f"{window.text()}(assert {window.inside(times)})"
    assert Script(whole, RLIMIT).ask().status == "sat"
    claims = Claims(skeleton, times, "default").ordered
    assert claims
    for claim in claims:
        head = "(declare-const k Int)(declare-const n Int)"
        script = Script(f"{head}(assert {claim.when})", RLIMIT)
        assert script.ask().status == "sat", claim


def test_no_kind_of_claim_is_idle() -> None:
    """Without the requirements of a phase, every kind of claim about order is violated."""
    trace = read(ks.combined(3, 0, 2, specialized=True))
    skeleton = Skeleton(trace, Footprints(trace))
    questions = Questions(skeleton, RLIMIT)
    times = questions.times
    claims = Claims(skeleton, times, "default").ordered
    skeleton.crosses.clear()
    for chain in skeleton.chains.values():
        chain[:] = [item for item in chain if item.waits]
    found = questions.violated(claims, Width.WHOLE)
    assert {claim.kind for claim in found} == {claim.kind for claim in claims}
    assert {"parity", "RAW", "WAR", "WAW", "proxy"} == {claim.kind for claim in claims}


@pytest.mark.parametrize("kernel", [recipes.tma_ring(), recipes.persistent()])
def test_the_text_of_the_questions_can_be_asked_again(kernel: kir.Kernel) -> None:
    """It is evidence: any solver says "unsat" to every question of it."""
    questions = text(kernel).split("; ")[1:]
    assert questions
    for question in questions:
        head, body = question.split("\n", 1)
        assert head.startswith(kernel.name)
        assert body.rstrip().endswith("(check-sat)")
        assert Script(body.replace("(check-sat)", ""), RLIMIT).ask().status == "unsat"


def test_there_is_no_text_of_what_is_not_proved() -> None:
    """Else a report would show a proof that is none."""
    with pytest.raises(UndecidedError, match="not proved"):
        text(ks.specialized(3, full=False))
