"""What scripts share with the judge: inputs that are always the same, and what counts as right."""

from __future__ import annotations

import pytest
import torch
from random_words import philox as plainly

from fuzz.cases.case import SPECIALS
from fuzz.target.words import drawn, philox, right

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("got", "expected", "bound", "good"),
    [
        (1.0, 1.0, 0.0, True),
        (1.5, 1.0, 0.5, True),
        (1.5, 1.0, 0.25, False),
        (NAN, NAN, 0.0, True),
        (NAN, 1.0, INF, False),
        (1.0, NAN, 1.0, False),
        (INF, INF, 0.0, True),
        (-INF, INF, 1.0, False),
    ],
)
def test_right_is_within_the_bound_or_of_one_class(
    got: float, expected: float, bound: float, good: bool
) -> None:
    """NaN is right where NaN is asked for, and inf of the same sign."""
    assert right(got, expected, bound) is good


def test_reals_hold_special_values_and_integers_none() -> None:
    """Both are drawn anew, and alike, for each seed."""
    reals = drawn(3, torch.float64, (4096,), (1,), 0, False)
    assert torch.equal(reals.isnan(), drawn(3, torch.float64, (4096,), (1,), 0, False).isnan())
    assert all((reals == special).any() for special in SPECIALS if special == special)
    whole = drawn(3, torch.float64, (4096,), (1,), 0, True)
    assert whole.unique().tolist() == list(range(-4, 5))


def test_philox_is_that_of_the_standard_words() -> None:
    """Also of a negative seed, and of places that are not four words apart."""
    place = torch.arange(9)
    for seed, stream in ((5, 7), (-1, 2**40 + 3)):
        args = torch.full([9], seed), torch.full([9], stream), place
        assert torch.equal(philox(*args), plainly(*args))
