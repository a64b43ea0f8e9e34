"""Make a failing schedule short and plain: fewer choices, and smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fails = Callable[[tuple[int, ...]], bool]
"""Runs a schedule and tells whether it still fails in the same way."""


def shrink(schedule: Sequence[int], fails: Fails) -> tuple[int, ...]:
    """Return a failing schedule from which nothing can be left out.

    Parameters
    ----------
    schedule : sequence of int
        One that fails.
    fails : callable
        Called a few hundred times at most for schedules of some dozens of choices.

    Returns
    -------
    tuple of int
        No single choice of it can be dropped, replaced by 0 or halved; its last one is not 0.
    """
    best = _stripped(schedule)
    while True:
        smaller = _step(best, fails)
        if smaller is None:
            return best
        best = smaller


def _step(best: tuple[int, ...], fails: Fails) -> tuple[int, ...] | None:
    """Try everything that makes a schedule smaller, the largest cuts first."""
    size = len(best)
    width = size
    while width:
        for start in range(0, size, width):
            without = _stripped(best[:start] + best[start + width :])
            if len(without) < size and fails(without):
                return without
        for start in range(0, size, width):
            part = best[start : start + width]
            if any(part):
                plain = _stripped(best[:start] + (0,) * len(part) + best[start + width :])
                if fails(plain):
                    return plain
        width //= 2
    for i, choice in enumerate(best):
        for less in (1, choice // 2, choice - 1):
            if 0 < less < choice:
                smaller = (*best[:i], less, *best[i + 1 :])
                if fails(smaller):
                    return smaller
    return None


def _stripped(schedule: Sequence[int]) -> tuple[int, ...]:
    """Drop zeros at the end: an exhausted list goes on with zeros."""
    out = list(schedule)
    while out and out[-1] == 0:
        out.pop()
    return tuple(out)
