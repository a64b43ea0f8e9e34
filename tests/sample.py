"""How much of a long list of similar cases is tried: a sample, and all of it on demand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")

ALL = os.environ.get("TESTS_ALL") == "1"
"""Whether nothing is left out: slow, for a change to a judge's core and for releases."""


def some(whole: tuple[T, ...], *sample: T) -> tuple[T, ...]:
    """Return the whole if all is asked for, else a sample of it.

    Raises
    ------
    ValueError
        If the sample holds something that the whole does not.
    """
    strange = [one for one in sample if one not in whole]
    if strange:
        raise ValueError(f"some({whole}): {strange} are none of these; a sample is a part")
    return whole if ALL else sample


def often(whole: int, sample: int) -> int:
    """Return how many draws are made: the whole number if all is asked for, else a part."""
    return whole if ALL else min(sample, whole)


def covering(strength: int, *axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations if all is asked for, else few that hold each pair of values.

    Most mistakes need two choices to meet, not all of them (pairwise testing).

    Parameters
    ----------
    strength : int
        How many values meet in every way: 2 for pairs; 1 tries each value once.
    axes : iterable
        The values of each choice, hashable or not.
    """
    values = [list(axis) for axis in axes]
    whole = list(itertools.product(*(range(len(axis)) for axis in values)))

    def met(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(itertools.combinations(enumerate(row), strength))

    if ALL:
        rows = whole
    else:
        rows, missing = [], set().union(*map(met, whole))
        while missing:
            rows.append(max(whole, key=lambda row: len(met(row) & missing)))
            missing -= met(rows[-1])
    return [tuple(axis[n] for axis, n in zip(values, row, strict=True)) for row in sorted(rows)]
