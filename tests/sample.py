"""How much of a long list of similar cases is tried: a sample, and all of it on demand."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

ALL = os.environ.get("LITMUS_ALL") == "1"
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
