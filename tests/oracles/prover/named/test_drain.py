"""No release, and no exit, before the bulk writes that others rely on are complete."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decided import answers, mutated

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from oracles.prover.named.check import DRAIN as NAME

BULK = kir.AsyncKind.BULK


@pytest.mark.parametrize(
    "change",
    [
        "drop line 53: async_await",
        "drop line 52: async_commit",
        "keep one more line 53",
        "read only line 53",
        "swap line 52",
        "apart, by the second warp, line 53",
        "drop line 58: block_sync",
    ],
)
def test_a_turn_is_not_handed_on_before_its_writes_are_done(change: str) -> None:
    """By TMA: the thread that stores awaits all of it, then releases or joins who does."""
    assert answers(recipes.split_k_tma())[NAME] == "proved"
    expected = "proved" if "58" in change else "open"  # the same thread stores and releases
    assert answers(mutated("split_k_tma", change))[NAME] == expected


def test_a_join_leads_from_every_thread_to_the_one_that_releases() -> None:
    """By ordinary stores: without the sync, only the releasing thread's own are published."""
    assert answers(recipes.split_k())[NAME] == "proved"
    syncs = [s for s in recipes.split_k().walk() if isinstance(s, kir.BlockSync)]
    left = iter(range(len(syncs)))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return [] if isinstance(stmt, kir.BlockSync) and next(left) == len(syncs) - 1 else None

    assert answers(recipes.split_k().rewrite(rule))[NAME] == "open"


@pytest.mark.parametrize(
    ("last", "expected"),
    [((0, True), "proved"), ((0, False), "proved"), ((1, True), "open"), (None, "open")],
)
def test_at_the_end_all_sources_have_been_read(
    last: tuple[int, bool] | None, expected: str
) -> None:
    """That is enough there: the boundary of launches orders the writes themselves."""
    kernel = recipes.store_ring()
    *body, end = kernel.body
    assert isinstance(end, kir.Elect)
    stmts = () if last is None else (kir.AsyncAwait(BULK, *last),)
    changed = replace(kernel, body=(*body, *((replace(end, body=stmts),) if stmts else ())))
    assert answers(changed)[NAME] == expected


def test_a_turn_released_by_another_role_needs_a_join() -> None:
    """Without one, program order does not even say which comes first."""
    kernel = recipes.split_k_tma()
    *body, sync, release = kernel.body
    assert isinstance(release, kir.Elect)
    moved = kir.Role("other", 1, 1, (release,))
    assert answers(replace(kernel, body=(*body, sync, moved)))[NAME] == "proved"
    assert answers(replace(kernel, body=(*body, moved)))[NAME] in ("unknown", "open")
