"""How many CTAs are enough: numbers, periods and unknowns beside a CTA's place."""

from __future__ import annotations

import pytest

from fuser.expr import Expr, Var, both, eq, maximum, minimum
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.sizes import COUNT, PLACE, Sizes

n, m, k = Var("n"), Var("m"), Var("k")


def largest(*tests: Expr, turns: tuple[Expr, ...] = ()) -> int:
    """Return the size of a group that is enough for some conditions and turns."""
    made = Sizes({k: 6})
    for test in tests:
        made.condition(test)
    for turn in turns:
        made.turn(turn)
    return made.largest


def test_first_last_and_two_between_are_enough_where_no_number_is_compared_with() -> None:
    """The usual turnstile: the first begins, the last ends, between them are two alike."""
    assert largest(eq(PLACE, 0), PLACE + 1 < COUNT, turns=(PLACE, (PLACE + 1) % COUNT)) == 4


@pytest.mark.parametrize(
    ("test", "least"),
    [
        (PLACE < 9, 11),
        (minimum(PLACE, 9) < n, 11),
        (eq(n + (PLACE > 8), n), 11),
        (m // 2 + 9 > PLACE, 11),
        (COUNT < 9, 9),
        (both(n < 1, minimum(COUNT, n + 9) < n), 9),
        (COUNT - PLACE < 9, 10),
        (eq(PLACE // 5 % 3, 2), 17),
        (PLACE * 3 < 27, 11),
        (PLACE // 3 < 3, 11),
        (k < PLACE, 8),
        (PLACE * n < n * 9, 11),
        ((PLACE % 2) * 9 > PLACE, 11),
        (maximum(PLACE - 4, 0) < 5, 11),
    ],
    ids=str,
)
def test_no_number_beside_a_place_is_lost(test: Expr, least: int) -> None:
    """Wherever it stands, places on both sides of it are among those that are followed."""
    assert least <= largest(test) <= least + 12


def test_numbers_of_an_unknown_that_places_are_compared_with_are_numbers_of_places() -> None:
    """That the count is at least 9 and the place below it is seen by no fewer than ten CTAs."""
    assert largest(n > PLACE, n < 9) >= largest(n > PLACE) + 8
    assert largest(n > PLACE, m < 9) == largest(n > PLACE)


@pytest.mark.parametrize(
    ("test", "alike"),
    [
        (n < (COUNT + 7) // 8, 1),
        (n > COUNT % 8, 1),
        (n < PLACE // 8, 8),
        (n < (COUNT - PLACE) // 8, 8),
        (n > (COUNT + PLACE) % 8, 8),
    ],
    ids=str,
)
def test_a_division_of_the_count_tells_no_places_apart(test: Expr, alike: int) -> None:
    """It counts for how many CTAs are followed, not for which may be the last-arriving one."""
    made = Sizes({})
    made.condition(test)
    assert made.repeats == alike
    assert made.lasts == (made.first + alike, made.last)
    assert made.period == 8
    assert made.largest > 8 + made.last


def test_a_turn_that_is_a_number_is_a_number_of_places() -> None:
    """Whoever waits for turn 7 waits for one CTA."""
    assert largest(turns=(PLACE, 7)) >= 10


@pytest.mark.parametrize("test", [PLACE * 2 < COUNT, 9 % (PLACE + 1) < 2, PLACE * PLACE < 9])
def test_what_has_no_such_form_is_refused(test: Expr) -> None:
    """The middle of a group is not where any smaller group has it."""
    with pytest.raises(UnsupportedError):
        largest(test)


@pytest.mark.parametrize("size", range(1, 30))
def test_answers_repeat_beyond_what_is_followed(size: int) -> None:
    """Checked by hand for one condition: each pair of neighbours is one of a followed group."""
    test = both(PLACE % 3 < 2, minimum(PLACE, 4) < COUNT - 2)

    def answers(count: int) -> list[int]:
        return [int(p % 3 < 2 and min(p, 4) < count - 2) for p in range(count)]

    def pairs(count: int) -> set[tuple[int, ...]]:
        found = answers(count)
        return {(*found[at : at + 2], at % 3) for at in range(count - 1)}

    made = [pairs(count) for count in range(1, largest(test) + 1)]
    assert pairs(size) <= set().union(*made)
