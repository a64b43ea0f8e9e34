"""What follows from conditions, as z3 says."""

from __future__ import annotations

import pytest

from fuser.expr import Expr, Kind, Op, Var, both, eq, fold, maximum, minimum
from oracles.prover.solver import Exact, Question, Sequents

RLIMIT = 1_000_000
A, B, N = Var("a"), Var("b"), Var("n")


def _le(a: Expr, b: Expr) -> Expr:
    return fold(Kind.LE, a, b)


@pytest.mark.parametrize(
    ("known", "goal", "follows"),
    [
        ((_le(3, A),), _le(2, A), True),
        ((_le(2, A),), _le(3, A), False),
        ((eq(A, B + 1), _le(B, 4)), _le(A, 5), True),
        ((), eq(A % 4, (A + 4) % 4), True),
        ((), eq(A % 4, (A + 2) % 4), False),
        ((_le(0, A),), _le(A // 2 * 2, A), True),
        ((_le(minimum(A, 5), 4),), Op(Kind.LT, A, 5), True),
        ((Op(Kind.LT, B, maximum(A, 5)),), Op(Kind.LT, B, A), False),
        ((both(_le(1, A), _le(A, 1)),), eq(A, 1), True),
        ((eq(_le(A, B), 0),), Op(Kind.LT, B, A), True),
        # what is not linear is an unknown, of which little is said
        ((_le(0, A), _le(1, N)), Op(Kind.LT, Op(Kind.MOD, A, N), N), True),
        ((_le(0, A), _le(1, N)), _le(Op(Kind.FLOORDIV, A, N), A), True),
        ((_le(0, A),), Op(Kind.LT, Op(Kind.MOD, A, N), N), False),
        ((_le(1, A), _le(1, N)), _le(A, A * N), True),
        ((_le(0, A),), _le(A, A * N), False),
    ],
)
def test_a_goal_follows_or_does_not(known: tuple[Expr, ...], goal: Expr, *, follows: bool) -> None:
    """Integers may be negative unless something says that they are not."""
    assert (goal in Sequents(RLIMIT).given(known).held([goal])) is follows
    assert (Sequents(RLIMIT).given(known).first_open([(True, goal)]) is None) is follows


def test_goals_that_do_not_follow_are_dropped_alone() -> None:
    """One model refutes some; the others are asked again without them."""
    goals = [_le(A, 9), _le(A, 1), _le(0, A), eq(A, B)]
    assert Sequents(RLIMIT).given([_le(0, A), _le(A, 5)]).held(goals) == {goals[0], goals[2]}


def test_goals_are_asked_for_behind_steps() -> None:
    """What steps assume helps goals, what they claim is told of by itself."""
    asked, goals = Sequents(RLIMIT, [_le(0, A)]), [_le(2, A), _le(4, A), _le(0, A)]
    assert asked.given([]).held_after([(True, _le(0, A)), (False, _le(2, A))], goals[::2]) == (
        {goals[0], goals[2]}, True,
    )  # fmt: skip
    assert asked.given([]).held_after([(True, _le(1, A)), (False, _le(2, A))], goals) == (
        {goals[0], goals[2]}, False,
    )  # fmt: skip
    assert asked.given([_le(1, A)]).held_after([(True, _le(1, A))], goals) == ({goals[2]}, False)


def test_steps_are_asked_in_their_order() -> None:
    """An assumption helps those behind it only, and so does a claim."""
    asked = Sequents(RLIMIT).given([_le(0, A)])
    steps = [(True, _le(0, A)), (True, _le(3, A)), (False, _le(3, A)), (True, _le(2, A))]
    assert asked.first_open(steps) == 1
    del steps[1]
    assert asked.given([_le(0, A)]).first_open(steps) is None


def test_questions_do_not_mix() -> None:
    """What one question knows is not known in the next."""
    asked = Sequents(RLIMIT)
    assert asked.given([_le(5, A)]).held([_le(4, A)])
    assert not asked.given([]).held([_le(4, A)])
    assert asked.given([_le(4, A)]).first_open([(True, _le(4, A))]) is None


def test_contradictions_are_followed_by_anything() -> None:
    """A way that nobody can go claims nothing; whether there are others is asked elsewhere."""
    assert Sequents(RLIMIT).given([_le(1, A), _le(A, 0)]).held([eq(B, 7)])


@pytest.mark.parametrize("sort", [Question, Exact])
def test_what_is_used_twice_is_written_once(sort: type[Question]) -> None:
    """Sixty sums have a text, the tree of 2**60 leaves that they are has none."""
    total: Expr = A
    for _ in range(60):
        total = fold(Kind.ADD, total, total)
    assert sort(RLIMIT).follows(_le(A, total))
    assert not sort(RLIMIT).follows(_le(total, A))
