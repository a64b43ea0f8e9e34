"""Tests of roles that take tiles in turn: one role, if the turns really follow each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.ring import p, trips
from fuser.expr import Kind, Op
from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.rewriting import Whole, teamed, whole
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status

PAIR = recipes.ping_pong()
IN_FLIGHT_0 = compiled(linear(), hopper("ping_pong", 2, 1))


def _is_sync(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.SYNCS)


def without(kind: type[kir.Stmt], barrier: str = "") -> kir.Kernel:
    """Return the recipe without one kind of statement, or those on one mbarrier."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if not isinstance(stmt, kind):
            return None
        uses = getattr(stmt, "barrier", None)
        return [] if not barrier or getattr(uses, "name", "") == barrier else None

    return PAIR.rewrite(rule)


def both(change: kir.Stmt, *by: kir.Stmt) -> kir.Kernel:
    """Return the recipe with a statement replaced in both roles."""
    made = PAIR.rewrite(lambda stmt: [*by] if stmt == change else None)
    assert made != PAIR
    return made


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 8])
def test_roles_in_turn_are_proved_for_any_number_of_tiles(stages: int) -> None:
    """And of steps, none included."""
    verdict = confirm(recipes.ping_pong(stages))
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 100


@pytest.mark.parametrize(
    "kernel",
    [
        without(kir.MBarrierWaitParity, "order"),
        without(kir.MBarrierArrive, "order"),
        without(kir.WarpSync),
        without(kir.MBarrierWaitParity, "empty"),
        without(kir.MBarrierArrive, "empty"),
        without(kir.MBarrierWaitParity, "full"),
        without(kir.MBarrierInit, "order"),
        without(kir.WgmmaFence),
        without(kir.AsyncCommit),
        without(kir.AsyncAwait),
    ],
)
def test_no_sync_of_them_can_be_left_out(kernel: kir.Kernel) -> None:
    """The turns are asked of the turns, the rest of the one role."""
    assert kernel != PAIR
    assert confirm(kernel).status is not Status.PASS


def test_lanes_behind_the_one_that_tells_are_beyond_the_baton() -> None:
    """All lanes have multiplied by then, which the turns without their steps do not show."""

    def late(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.IfThenElse(Op(Kind.EQ), mine):
                at = mine.index(kir.WarpSync())
                then = (*mine[:at], mine[at + 1], mine[at], *mine[at + 2 :])
                return [replace(stmt, then=then)]
            case _:
                return None

    swapped = IN_FLIGHT_0.rewrite(late)
    assert swapped != IN_FLIGHT_0
    verdict = confirm(swapped)
    assert verdict.status is Status.UNSUPPORTED, verdict
    assert "nothing orders it after" in verdict.reason
    assert not fixpoint.judge(swapped).violations


def test_turns_given_before_the_steps_are_not_proved() -> None:
    """Then two roles run at once."""

    def early(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.IfThenElse(Op(Kind.EQ), mine):
                wait, clear, loop, sync, tell, *rest = mine
                return [replace(stmt, then=(wait, sync, tell, clear, loop, *rest))]
            case _:
                return None

    verdict = confirm(PAIR.rewrite(early))
    assert verdict.status is Status.UNSUPPORTED
    assert "before the steps" in verdict.reason


def test_groups_in_flight_at_a_change_of_turns_are_not_proved() -> None:
    """The next role does not await them."""
    await_all = kir.AsyncAwait(kir.AsyncKind.WGMMA, 0)
    verdict = confirm(both(await_all, kir.AsyncAwait(kir.AsyncKind.WGMMA, 1)))
    assert verdict.status is Status.UNSUPPORTED
    assert "awaited in their step" in verdict.reason


@pytest.mark.parametrize("skip", [(), (kir.Assign(p, p + trips), kir.Assign(p, p + trips))])
def test_a_position_has_to_skip_the_steps_of_the_other(skip: tuple[kir.Stmt, ...]) -> None:
    """All of them, and once."""
    verdict = confirm(both(kir.Assign(p, p + trips), *skip))
    assert verdict.status is Status.UNSUPPORTED
    assert "skips tiles" in verdict.reason


def test_roles_that_do_different_things_are_unsupported() -> None:
    """One role cannot stand for them."""

    def one(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.Role) and stmt.name == "mma1":
            return [
                replace(
                    stmt,
                    body=kir.rewrite(
                        stmt.body, lambda s: [] if isinstance(s, kir.WgmmaFence) else None
                    ),
                )
            ]
        return None

    assert confirm(PAIR.rewrite(one)).status is Status.UNSUPPORTED


def test_a_team_is_one_role_and_its_turns() -> None:
    """For an even and an odd number of tiles; other kernels have none."""
    assert teamed(whole(recipes.persistent())) is None
    team = teamed(whole(PAIR))
    assert team is not None
    assert [s.name for s in team.one.kernel.body if isinstance(s, kir.Role)] == ["mma0", "load"]
    assert len(team.handovers) == 2
    for turns in team.handovers:
        assert isinstance(turns, Whole)
        assert [b.name for b in turns.kernel.buffers] == ["baton"]


COMPILED = compiled(linear(), hopper("ping_pong", 3, 2, columns=8))
"""The compiler's own: results leave in chunks, through staging that each role has to itself."""


def test_roles_with_staging_of_their_own_are_one() -> None:
    """Each does the same with its own buffers, barrier and groups."""
    verdict = confirm(COMPILED)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 200


@pytest.mark.parametrize("part", range(len([s for s in COMPILED.walk() if _is_sync(s)])))
def test_no_sync_of_compiled_roles_can_be_left_out(part: int) -> None:
    """One at a time, in one of the roles only: what z3 proves the other engine does."""
    victim = [s for s in COMPILED.walk() if _is_sync(s)][part]
    kernel = COMPILED.rewrite(lambda stmt: [] if stmt is victim else None)
    if confirm(kernel).status is Status.PASS:
        assert not fixpoint.judge(kernel).violations
