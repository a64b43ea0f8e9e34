"""Questions about pairs of instances: order, products of unknowns, and what is not decided."""

from __future__ import annotations

import pytest

from fuser.cookbook import recipes
from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from oracles.prover.named.program import (
    Asked,
    Instance,
    Program,
    WitnessedError,
    normal,
    products,
)
from oracles.prover.sites import kinds
from oracles.prover.solver import Possible

RLIMIT = 1_000_000
t, u, k, K = Var("t"), Var("u"), Var("k"), Var("K")


def asked(*facts: Expr) -> Asked:
    """No question yet."""
    return Asked(Possible(facts, RLIMIT), 2)


def test_instances_are_ordered_by_their_loops_then_by_the_text() -> None:
    """The outer loop counts first; in one iteration, the place."""
    program = Program(recipes.persistent(), kinds(recipes.persistent(), 1)[0])
    one = next(p for p in program.points if isinstance(p.stmt, kir.Wgmma))
    two = next(p for p in program.points if isinstance(p.stmt, kir.AsyncAwait))
    question = asked()
    assert question.before(Instance(one, (t, k)), Instance(two, (t, k))) == 1
    assert question.before(Instance(two, (t, k)), Instance(one, (t, k))) == 0
    assert question.before(Instance(two, (t, k)), Instance(one, (t, k + 1))) == 1
    assert question.before(Instance(one, (t + 1, 0)), Instance(two, (t, k))) == 0


def test_a_later_tile_has_later_positions() -> None:
    """z3 is given no product of unknowns, and is told of each that it is more for more."""
    trips = ceildiv(K, 16)
    later = normal((u * trips) <= (t * trips + k))
    inside = normal(k < trips)
    told = products([later], t, u)
    assert told
    with pytest.raises(WitnessedError):
        asked().holds([t < u, inside, later], lambda: 0, "")
    asked().holds([t < u, inside, later, *told], lambda: 0, "")


def test_the_next_tile_begins_where_one_ends() -> None:
    """Nothing lies between: the last position of a tile is never of the slot of the next one."""
    trips = ceildiv(K, 16)
    same = normal(eq((t * trips + trips - 1) % 2, (u * trips) % 2))
    told = products([same], t, u)
    with pytest.raises(WitnessedError):
        asked().holds([t < u, same, *told], lambda: 0, "")
    asked().holds([eq(t + 1, u), same, *told], lambda: 0, "")
    with pytest.raises(WitnessedError):
        asked().holds([eq(t + 1, u), same, *told[:1]], lambda: 0, "")


def test_what_follows_from_the_facts_of_a_launch_is_proved() -> None:
    """And what does not is shown with values."""
    question = asked()
    question.holds([eq(t % 2, 1)], lambda: t >= 1, "odd")
    with pytest.raises(WitnessedError, match="t=0"):
        question.holds([t <= 0], lambda: t >= 1, "none")
    assert question.count == 2


def test_each_case_is_decided_with_as_little_in_reach_as_it_takes() -> None:
    """What is built for one case is asked of the others, too."""
    question, looked = asked(), []

    def claim() -> Expr:
        looked.append(question.reach)
        return t <= question.reach

    assert question.holds_in([eq(t, 0), eq(t, 2), eq(t, 1)], [t < 9], claim)
    assert looked == [1, 2]
    assert not question.holds_in([eq(t, 0), eq(t, 3)], [t < 9], claim)
    assert (question.count, question.reach) == (2, 1)
