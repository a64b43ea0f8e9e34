"""What is known of a count, beyond or short of what it is compared with, tells states apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.cookbook.ring import BULK, ELECT, k, q, trips
from fuser.cookbook.sum import IN, X, Y, sum_box, sum_kernel, sum_slots
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from oracles.prover import prove
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.canonical.margins import limit
from oracles.prover.reachability.flow import settle
from oracles.prover.reachability.grid.readings import readings
from oracles.prover.reachability.state import Unknown
from oracles.verdict import Status

j = Var("j")
FENCE = kir.FenceAsyncProxy(kir.Space.SHARED)
ROUND = kir.BlockSync(0, 128)


def _after(condition: Expr, *around: kir.Stmt) -> kir.Kernel:
    """Return a kernel that goes its rounds and then copies a tile, fenced if a condition holds."""
    s = sum_slots("S", 1)
    copy = (
        kir.TmaStore(sum_box(Y, k), kir.Slot(s, 0)),
        kir.AsyncCommit(BULK),
        kir.AsyncAwait(BULK, 0),
    )
    body = (
        *around,
        kir.ForLoop(q, trips, (ROUND,)),
        kir.Let(k, 0),
        kir.Load(IN, sum_box(X, k), 4),
        kir.Store(kir.Slot(s, 0), IN, 4),
        kir.IfThenElse(condition, (FENCE,)),
        ROUND,
        kir.Elect(ELECT, copy),
    )
    return sum_kernel("after", body, (s,), (), 128)


@pytest.mark.parametrize("bound", [1, 3, 12, 40])
def test_a_count_is_followed_up_to_what_it_is_compared_with(bound: int) -> None:
    """All rounds of an empty loop were one, so that no launch of more than one came: a false proof.

    From `bound` trips on, the copy reads what no fence covers.
    """
    found = fixpoint.judge(_after(trips < bound)).violations
    assert {(v.kind, v.trips) for v in found} == {("proxy", bound)}


def test_a_count_compared_with_a_prologs_counter_is_followed_as_far_as_that_goes() -> None:
    """A prolog of five rounds asks five numbers; behind its loop nobody asks any more."""
    sync = kir.IfThenElse(j < trips, (ROUND,))
    world = fixpoint.opened(
        kernel := _after(1, kir.ForLoop(j, 5, (sync,))),
        next(iter(readings(kernel))),
        policy="default",
    )
    state = fixpoint.start(world)
    (atom,) = world.code.counts
    assert limit(world, state, Unknown(atom, (), 0)) == 6
    with pytest.raises(Exception, match=">="):
        settle(world, state)
    for a in state.agents:
        a.at = next(n for n, i in enumerate(world.code.programs[a.kind.index]) if _main(i)) + 1
    assert limit(world, state, Unknown(atom, (), 0)) == 0


def _main(i: object) -> bool:
    return getattr(i, "name", "") == "q"


def test_a_prolog_in_each_tile_ends_in_states_that_repeat() -> None:
    """A tile's steps were told apart without end by a test that only the next tile makes."""
    tiles, tile = Var("tiles"), Var("tile")
    sync = kir.IfThenElse(j < trips, (ROUND,))
    body = (kir.ForLoop(j, 2, (sync,)), kir.ForLoop(q, trips, (ROUND,)))
    kernel = _after(1)
    kernel = replace(
        kernel,
        params=(*kernel.params, tiles),
        body=(kernel.body[0], kir.ForLoop(tile, tiles, body), *kernel.body[2:]),
    )
    closed = fixpoint.judge(kernel)
    assert (closed.reason, closed.violations) == ("", ())
    assert closed.states < 100


def test_a_false_proof_is_none_for_the_prover_either() -> None:
    """No second engine may hide it: this kernel is one that only `closure` follows."""
    assert prove.prove(_after(trips < 12)).status is not Status.PASS
