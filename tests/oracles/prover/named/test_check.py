"""The named invariants of all compiled schedules, recipes and litmus; a share that may not fall."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from decided import answers
from litmus.suite import LITMUS, kernels

from fuser.cookbook.recipes import RECIPES
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuzz.kernels.matmul import COMPILED
from fuzz.kernels.subjects import find
from oracles.prover.invariants.check import confirm
from oracles.prover.named import drain, operands, results
from oracles.prover.prove import prove
from oracles.verdict import Status

FULL = {
    "added": 4, "ampere": 3, "batched": 0, "computed": 1, "cooperative": 1, "gated": 0,
    "inputs": 0, "last": 0, "ping_pong": 1, "pipelined": 1, "reduced": 1, "shared": 6,
    "split": 8, "stacked": 1, "statistics": 2, "two": 0,
}  # fmt: skip
"""By family, how many compiled schedules z3 confirms in full, at least."""


def family(name: str) -> str:
    """The family of a compiled schedule: how its name begins."""
    match = re.match(r"ping_pong|[a-z]+", name)
    assert match is not None
    return match.group()


def compiled(name: str) -> kir.Kernel:
    """A compiled schedule."""
    kernel = find(f"matmul {name} 0").kernel
    assert isinstance(kernel, kir.Kernel)
    return kernel


@pytest.mark.parametrize("name", COMPILED)
def test_all_named_invariants_of_a_compiled_schedule_are_proved(name: str) -> None:
    """Those that have a subject; a product has operands, and by wgmma results."""
    kernel = compiled(name)
    found = answers(kernel)
    assert set(found.values()) <= {"proved"}, found
    stmts = set(map(type, kernel.walk()))
    assert (results.NAME in found) is (kir.Wgmma in stmts)
    assert (operands.NAME in found) is bool({kir.Wgmma, kir.Mma} & stmts)
    assert (drain.NAME in found) or not stmts & {kir.TmaStore, kir.TmaReduce}


def test_as_many_schedules_as_ever_are_confirmed_in_full() -> None:
    """By family: a change after which z3 follows fewer of them is seen here."""
    full = Counter(
        family(name) for name in COMPILED if confirm(compiled(name)).status is Status.PASS
    )
    assert set(FULL) == set(map(family, COMPILED))
    fallen = {name: full[name] for name, many in FULL.items() if full[name] < many}
    assert not fallen, dict(full)


@pytest.mark.parametrize("name", RECIPES)
def test_all_named_invariants_of_a_recipe_are_proved(name: str) -> None:
    """What is written by hand and right is not refused."""
    assert set(answers(RECIPES[name]()).values()) <= {"proved"}


def test_no_right_litmus_is_refused() -> None:
    """A false alarm would make a right kernel unknown."""
    judged = [one for one in LITMUS if not one.refused and one.expect.status is Status.PASS]
    refused = {
        one.name: found
        for one in judged
        for kernel in kernels(one)
        if set((found := answers(kernel, one.expect.policy)).values()) - {"proved"}
    }
    assert refused == OPEN


HALF = {"mma-operand-coverage": "unknown", "mma-result-coverage": "proved"}
OPEN = {
    "a_tile_is_told_of_while_the_next_one_is_sent": {"drain-before-release": "open"},
    "a_tile_told_of_while_the_next_leaves": {"drain-before-release": "open"},
    "two_roles_meet_at_integers_of_their_own": {"drain-before-release": "unknown"},
    "two_steps_of_a_slot_in_one_group": HALF,
    "two_steps_of_a_slot_in_groups_of_their_own": HALF,
    "two_steps_of_a_slot_one_turn_behind": HALF,
}
"""Right litmus that are not decided: what is not announced is in flight; another role's write;
operands that are filled as another buffer."""


def test_wrong_litmus_of_these_faults_are_refused() -> None:
    """As many of them as ever, by invariant, and each where a release publishes too early."""
    counts: Counter[str] = Counter()
    for one in LITMUS:
        if one.refused or one.expect.status is Status.PASS:
            continue
        found: Counter[str] = Counter()
        for kernel in kernels(one):
            said = answers(kernel, one.expect.policy)
            found.update(name for name, answer in said.items() if answer != "proved")
        counts.update(set(found))
        if one.expect.kinds == {"drain"}:
            assert drain.NAME in found, one.name
    assert counts[drain.NAME] >= 22
    assert counts[operands.NAME] >= 32
    assert counts[results.NAME] >= 15


def test_a_pass_says_what_z3_has_confirmed() -> None:
    """Each by its name, and the order of events where all of it is."""
    ring = prove(RECIPES["wgmma_ring"]())
    assert ring.confirmed_by == (operands.NAME, results.NAME, "order")
    assert all(one.questions for one in ring.confirmed)
    alone = prove(compiled("last_rows"))
    assert alone.status is Status.PASS
    assert "order" not in alone.confirmed_by
    assert alone.reason.startswith("reachability alone")


def test_what_is_refused_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass of the other engine is not confirmed by it."""
    kernel = replace(RECIPES["wgmma_ring"](), name="not remembered", params=_more())
    monkeypatch.setattr(results, "covered", lambda *_, **__: [])
    verdict = prove(kernel)
    assert verdict.status is Status.PASS
    assert results.NAME not in verdict.confirmed_by
    assert verdict.reason.startswith("mma-result-coverage is open")


def _more() -> tuple[Var, ...]:
    return (*RECIPES["wgmma_ring"]().params, Var("unused"))


def test_premises_that_no_launch_meets_prove_nothing() -> None:
    """All follows from what cannot be."""
    kernel = RECIPES["wgmma_ring"]()
    impossible = replace(kernel, requires=(*kernel.requires, Var("K") < 0))
    assert set(answers(impossible).values()) == {"unknown"}
