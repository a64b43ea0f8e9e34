"""The named invariants of all compiled schedules, recipes and litmus; a share that may not fall."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from decided import answers
from litmus.suite import LITMUS, kernels
from sample import some

from fuser.cookbook.recipes import RECIPES
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.schedule.matmul_params import MatmulParams
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import COMPILED
from fuzz.kernels.matmul import compiled as schedule
from fuzz.kernels.subjects import find
from oracles.prover.named import products
from oracles.prover.named.check import DRAIN, OPERANDS, RESULTS
from oracles.prover.prove import prove
from oracles.verdict import Status


def compiled(name: str) -> kir.Kernel:
    """A compiled schedule."""
    kernel = find(f"matmul {name} 0").kernel
    assert isinstance(kernel, kir.Kernel)
    return kernel


@pytest.mark.parametrize("name", some(tuple(COMPILED), *list(COMPILED)[::3]))
def test_all_named_invariants_of_a_compiled_schedule_are_proved(name: str) -> None:
    """Those that have a subject; a product has operands, and by wgmma results."""
    kernel = compiled(name)
    found = answers(kernel)
    assert set(found.values()) <= {"proved"}, found
    stmts = set(map(type, kernel.walk()))
    assert (RESULTS in found) is (kir.Wgmma in stmts)
    assert (OPERANDS in found) is bool({kir.Wgmma, kir.Mma} & stmts)
    assert (DRAIN in found) or not stmts & {kir.TmaStore, kir.TmaReduce}


@pytest.mark.parametrize("name", RECIPES)
def test_all_named_invariants_of_a_recipe_are_proved(name: str) -> None:
    """What is written by hand and right is not refused."""
    assert set(answers(RECIPES[name]()).values()) <= {"proved"}


@pytest.mark.parametrize("stages", [5, 6, 7, 8])
def test_all_groups_of_a_ring_may_be_in_flight(stages: int) -> None:
    """An await may leave more of them than iterations are looked at otherwise."""
    tile = 64, 16, 16
    params = MatmulParams(tile, 1, "pipelined", stages, 0, persistent=False, raster=1, columns=16)
    kernel = schedule(linear(), params)
    assert max(s.keep for s in kernel.walk() if isinstance(s, kir.AsyncAwait)) == stages - 1
    assert set(answers(kernel).values()) == {"proved"}


def test_no_right_litmus_is_refused() -> None:
    """A false alarm would make a right kernel unknown."""
    judged = [one for one in LITMUS if not one.refused and one.expect.status is Status.PASS]
    refused = {
        one.name: found
        for one in judged
        for kernel in kernels(one)
        if set((found := answers(kernel, one.expect.policy)).values()) - {"proved"}
    }
    assert not refused


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
            assert DRAIN in found, one.name
    assert counts[DRAIN] >= 22
    assert counts[OPERANDS] >= 32
    assert counts[RESULTS] >= 15


def test_a_pass_says_what_z3_has_confirmed() -> None:
    """Each by its name, and the order of events where all of it is."""
    ring = prove(RECIPES["wgmma_ring"]())
    assert ring.confirmed_by == (OPERANDS, RESULTS, "order")
    assert all(one.questions for one in ring.confirmed)


def test_what_is_not_decided_here_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the other engine says."""
    kernel = replace(RECIPES["wgmma_ring"](), name="not remembered", params=_more())
    monkeypatch.setattr(products, "covered", lambda *_, **__: [])
    verdict = prove(kernel)
    assert verdict.status is Status.UNKNOWN
    assert verdict.confirmed_by == ()
    assert verdict.reason.startswith("mma-result-coverage is open")


def _more() -> tuple[Var, ...]:
    return (*RECIPES["wgmma_ring"]().params, Var("unused"))


def test_premises_that_no_launch_meets_prove_nothing() -> None:
    """All follows from what cannot be."""
    kernel = RECIPES["wgmma_ring"]()
    impossible = replace(kernel, requires=(*kernel.requires, Var("K") < 0))
    assert set(answers(impossible).values()) == {"unknown"}
