"""Tests of loops in loops: what is one long loop, and what is refused."""

from __future__ import annotations

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.matmul import t
from fuser.cookbook.ring import k, p
from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.rewriting import AT, FLAT, levels
from oracles.verdict import Status


def test_each_level_has_its_own_statements() -> None:
    """Steps and tiles share nothing; the question of deadlock sees both."""
    found = levels(recipes.persistent())
    assert found is not None

    def kinds(kernel: kir.Kernel) -> set[str]:
        return {type(stmt).__name__ for stmt in kernel.walk()}

    assert {"Wgmma", "TmaLoad"} <= kinds(found.steps)
    assert "TmaStore" not in kinds(found.steps)
    assert "TmaStore" in kinds(found.tiles)
    assert not {"Wgmma", "TmaLoad"} & kinds(found.tiles)
    assert {"Wgmma", "TmaLoad", "TmaStore"} <= kinds(found.whole)
    loops = [s for s in found.steps.walk() if isinstance(s, kir.ForLoop)]
    assert {(loop.index, loop.stop) for loop in loops} == {(AT, FLAT)}


COMPILED = compiled(linear(), hopper("cooperative", 3, 2, persistent=True, groups=2, columns=8))
"""The compiler's own: one thread runs the load loop, results leave by TMA in chunks."""


def test_a_loop_that_one_thread_runs_is_one_over_tiles_too() -> None:
    """Loads are issued by one thread, whose loops stand inside its election."""
    verdict = confirm(COMPILED)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked > 80


@pytest.mark.parametrize(
    "kind",
    [
        kir.AsyncCommit,
        kir.BlockSync,
        kir.FenceAsyncProxy,
        kir.MBarrierArrive,
        kir.MBarrierWaitParity,
        kir.AsyncAwait,
    ],
)
def test_no_sync_of_a_compiled_kernel_can_be_left_out(kind: type[kir.Stmt]) -> None:
    """Neither of the steps nor of the chunks."""
    kernel = COMPILED.rewrite(lambda stmt: [] if isinstance(stmt, kind) else None)
    assert confirm(kernel).status is not Status.PASS


def test_flat_kernels_are_left_alone() -> None:
    """There is nothing to flatten."""
    assert levels(recipes.tma_ring()) is None


def changed(old: type[kir.Stmt], value: Expr) -> kir.Kernel:
    """Return the persistent recipe with another advance or start of its position."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, old) and isinstance(stmt, kir.Assign | kir.Let) and stmt.var == p:
            return [type(stmt)(p, value)]
        return None

    return recipes.persistent().rewrite(rule)


@pytest.mark.parametrize("value", [p, p + 2, t, k])
def test_a_position_that_does_not_advance_by_one_is_refused(value: Expr) -> None:
    """The steps of all tiles would not be counted by it."""
    with pytest.raises(UnsupportedError, match="advance by one"):
        levels(changed(kir.Assign, value))


def test_a_position_that_only_one_role_advances_is_not_proved() -> None:
    """The other one stays at its first slot."""
    kernel = recipes.persistent()
    for victim in [s for s in kernel.walk() if isinstance(s, kir.Assign)]:
        stuck = kernel.rewrite(lambda s, gone=victim: [] if s is gone else None)  # type: ignore[misc]
        assert confirm(stuck).status is not Status.PASS


def test_a_position_that_starts_anew_with_each_tile_is_not_proved() -> None:
    """Slots go on from tile to tile; a restart waits for phases that are long over."""
    kernel = recipes.persistent()

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.ForLoop(index, stop, body) if index == t:
                return [kir.ForLoop(index, stop, (kir.Let(p, 0), *body))]
            case _:
                return None

    assert confirm(kernel.rewrite(rule)).status is Status.UNSUPPORTED


def test_roles_that_run_other_tiles_are_refused() -> None:
    """One long loop is only right where all run the same steps."""
    kernel = recipes.persistent()
    loops = [s for s in kernel.walk() if isinstance(s, kir.ForLoop) and s.index == t]

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if stmt is loops[-1]:
            return [kir.ForLoop(t, loops[-1].stop + 1, loops[-1].body)]
        return None

    assert confirm(kernel.rewrite(rule)).status is Status.UNSUPPORTED


def test_tiles_may_not_use_the_ring_of_the_steps() -> None:
    """Each pair of accesses has to be in one of the two levels."""
    kernel = recipes.persistent()
    a = kernel.buffers[0]

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.TmaStore(dst):
                return [kir.TmaStore(dst, kir.Slot(a, 0))]
            case _:
                return None

    with pytest.raises(UnsupportedError, match="share SA"):
        levels(kernel.rewrite(rule))


def test_a_tile_that_waits_before_its_steps_is_refused() -> None:
    """It may wait for what others do after them: a deadlock that neither level shows."""
    with pytest.raises(UnsupportedError):
        levels(recipes.ping_pong())
