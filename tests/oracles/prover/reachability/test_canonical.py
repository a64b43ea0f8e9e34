"""The canonical form leaves out only what follows from the rest: no state hides a worse one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook.ring import BULK, ELECT, k, p, q, step, trips
from fuser.cookbook.sum import IN, C, R, X, Y, sum_box, sum_kernel, sum_slots
from fuser.expr import Expr, Kind, Op, Var, ceildiv, eq
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability import fixpoint

M = Var("M")


def _fenced_if(condition: Expr) -> kir.Kernel:
    """Return a kernel whose copies follow a store through a fence, if a condition holds."""
    s = sum_slots("S", 1)
    copy = (
        kir.TmaStore(sum_box(Y, k), kir.Slot(s, 0)),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    body = (
        kir.Load(IN, sum_box(X, 0), 4),
        kir.Store(kir.Slot(s, 0), IN, 4),
        kir.IfThenElse(condition, (kir.FenceAsyncProxy(kir.Space.SHARED),)),
        kir.BlockSync(1, 128),
        kir.ForLoop(k, trips, (kir.Elect(ELECT, copy),)),
    )
    return replace(sum_kernel("fenced_if", body, (s,), (), 128), params=(R, C, M))


def _stores(fence: kir.Stmt, *more: kir.Stmt) -> kir.Kernel:
    """Return a kernel that stores a tile and copies it in every round, with a fence between."""
    s = sum_slots("S", 1)
    copy = (
        kir.TmaStore(sum_box(Y, k), kir.Slot(s, 0)),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    loop = (
        kir.Load(IN, sum_box(X, k), 4),
        kir.BlockSync(0, 128),
        kir.Store(kir.Slot(s, 0), IN, 4),
        fence,
        kir.BlockSync(1, 128),
        kir.Elect(ELECT, copy),
        *more,
    )
    body = (kir.Let(p, 10), kir.Let(q, 0), kir.ForLoop(k, trips, loop))
    return replace(sum_kernel("stores", body, (s,), (), 128), params=(R, C, M))


FENCE = kir.FenceAsyncProxy(kir.Space.SHARED)


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (Op(Kind.LE, 1, q % 5), (kir.Assign(q, q + k // 3),)),
        (eq(q % 2, 0), (kir.Assign(q, p), kir.Assign(p, k // 4))),
    ],
)
def test_what_an_assignment_makes_of_a_value_is_a_use_of_it(
    condition: Expr, steps: tuple[kir.Stmt, ...]
) -> None:
    """Rounds that only a later assignment tells apart were one, and a missing fence was missed."""
    kernel = _stores(kir.IfThenElse(condition, (FENCE,)), *steps)
    assert {v.kind for v in fixpoint.judge(kernel).violations} == {"proxy"}


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (Op(Kind.LE, 3, p), (step(p, -1),)),
        (eq(p % 2, 0), (kir.Assign(p, p // 2),)),
        (p <= q + 20, (step(p, 2), step(q))),
    ],
)
def test_values_that_do_not_repeat_are_refused(
    condition: Expr, steps: tuple[kir.Stmt, ...]
) -> None:
    """A position that falls, or is compared with another, was taken to repeat: a false proof."""
    kernel = _stores(kir.IfThenElse(condition, (FENCE,)), *steps)
    with pytest.raises(UnsupportedError, match="repeat|fall below"):
        fixpoint.judge(kernel)


def test_a_count_known_in_advance_is_still_reached() -> None:
    """Rounds before a count of at least eight were one, so the round without a fence never came."""
    blocks = ceildiv(M, 4)
    inner = kir.IfThenElse(k < blocks, (FENCE,))
    kernel = _stores(kir.IfThenElse(Op(Kind.LE, 8, blocks), (inner,), (FENCE,)))
    assert {v.kind for v in fixpoint.judge(kernel).violations} == {"proxy"}


def test_a_fence_that_everybody_knows_of_is_not_one_that_nobody_does() -> None:
    """The states after it, with and without, were one: a launch without the fence was proved."""
    blocks = ceildiv(M, 4)
    for condition in (blocks < 5, Op(Kind.LE, 5, blocks)):
        found = fixpoint.judge(_fenced_if(condition)).violations
        assert {v.kind for v in found} == {"proxy"}
