"""Each use of a product follows the await of its group, whatever the control structure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decided import answers, mutated

from fuser.cookbook import recipes
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from oracles.prover.named.check import RESULTS as NAME

k = Var("k")
WGMMA = kir.AsyncKind.WGMMA


@pytest.mark.parametrize(
    "change",
    [
        "drop line 27: async_await",
        "drop line 22: async_commit",
        "keep one more line 27",
        "swap line 21",
        "only if (1 <= k) line 22",
        "move first line 27",
        "last in role load, line 27",
    ],
)
def test_an_accumulator_is_not_used_before_its_await(change: str) -> None:
    """Without the await, or with one that keeps its group, there is a pair that shows it."""
    assert answers(mutated("wgmma_ring", change))[NAME] == "open"
    assert answers(recipes.wgmma_ring())[NAME] == "proved"


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_groups_are_counted_over_iterations(keep: int) -> None:
    """In the iteration after, one more group is closed: an await there may keep that one."""
    kernel = recipes.wgmma_ring()

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, 1):
                return [replace(stmt, keep=keep), _use(k >= 1)]
            case _:
                return None

    expected = "proved" if keep == 0 else "open"
    assert answers(kernel.rewrite(rule))[NAME] == expected


def test_a_guard_of_use_and_await_is_one_guard() -> None:
    """What a walk over the text alone cannot tell: both are executed, or neither is."""
    kernel = recipes.wgmma_ring()

    def rule(test: Expr) -> kir.Kernel:
        def inner(stmt: kir.Stmt) -> list[kir.Stmt] | None:
            if stmt == kir.AsyncAwait(WGMMA, 1):
                await_ = kir.IfThenElse(k >= 1, (kir.AsyncAwait(WGMMA, 0),))
                return [await_, _use(test)]
            return None

        return kernel.rewrite(inner)

    assert answers(rule(k >= 2))[NAME] == "proved"
    assert answers(rule(k >= 0))[NAME] == "open"


def _use(test: Expr) -> kir.Stmt:
    """Scale the accumulator where a condition holds."""
    (acc,) = {s.acc for s in recipes.wgmma_ring().walk() if isinstance(s, kir.Wgmma)}
    return kir.IfThenElse(test, (kir.Compute(acc, "add", (acc, acc)),))
