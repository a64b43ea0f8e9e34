"""Samples: what a sample leaves out is said, and every pair of choices is in it."""

from itertools import combinations, product

import pytest
from sample import ALL, covering, some

AXES = "abcde", range(4), [{"no": "hash"}, {}]


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_all_choices_of_so_many_axes_meet(strength: int) -> None:
    """By fewer rows than there are combinations; all of them are in the last."""
    rows = covering(strength, *AXES)
    for places in combinations(range(3), strength):
        for wanted in product(*(AXES[at] for at in places)):
            assert any(
                all(row[at] == one for at, one in zip(places, wanted, strict=True)) for row in rows
            )
    assert (len(rows) == 40) == (ALL or strength == 3)
    assert len(rows) >= (5, 20, 40)[strength - 1]


def test_a_sample_is_a_part() -> None:
    """A name that is gone must not make a test try nothing."""
    assert some((1, 2, 3), 1, 3) == ((1, 2, 3) if ALL else (1, 3))
    with pytest.raises(ValueError, match=r"\[4\] are none of these"):
        some((1, 2, 3), 4)
