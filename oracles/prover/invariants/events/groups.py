"""Which copies an await covers, where commits may stand inside an `if`.

An await covers a copy if more than `keep` commits have run between the two: the first of them
closes the group of the copy, and the groups of the others are those that the await leaves alone.
So some commits that run are reason enough, whatever the others do.

Source: PTX ISA, "cp.async.bulk.wait_group", "cp.async.wait_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from oracles.prover.invariants.events.parametric import Bound, Place, both

LATER = 2
"""Iterations that a commit inside an `if` may be late, as far as it is followed."""
MOST = 12
"""Choices of commits that are tried for one await and one copy."""


def distances(commits: Sequence[Place], before: int, awaited: int, keep: int, low: int) -> range:
    """Return how many iterations after a copy an await is asked whether it covers it.

    Parameters
    ----------
    commits : sequence of Place
        The commits of an iteration, at least one.
    before, awaited : int
        How many of them precede the copy, and the await.
    keep : int
        Groups that the await leaves alone.
    low : int
        First iteration of the copy: the first await covers also what is issued ahead.
    """
    least = -((awaited - keep - before - 1) // len(commits))
    late = LATER if any(place.guard for place in commits) else 0
    return range(least, max(least + late, -low) + 1)


def covering(
    commits: Sequence[Place], before: int, awaited: int, keep: int, back: int
) -> Iterator[tuple[Bound, ...]]:
    """Yield conditions on k, each enough for an await of iteration k to cover a copy `back` before.

    Parameters
    ----------
    commits, before, awaited, keep
        As for `distances`.
    back : int
        Iterations from the copy to the await.
    """
    between = [(0, place) for place in commits[before if back == 0 else 0 : awaited]]
    between += [(j, place) for j in range(1, back) for place in commits]
    between += [(back, place) for place in commits[before:] if back > 0]
    guards = [tuple(g.at(-j) for g in place.guard) for j, place in between]
    for chosen in _enough(guards, keep + 1):
        yield tuple(dict.fromkeys(bound for guard in chosen for bound in guard))


def _enough(guards: list[tuple[Bound, ...]], many: int) -> Iterator[tuple[tuple[Bound, ...], ...]]:
    """Yield choices of `many` commits; those that always run are in every choice."""
    unsure = [guard for guard in guards if guard]
    return islice(combinations(unsure, max(0, many - (len(guards) - len(unsure)))), MOST)


def closing(commits: Sequence[Place], before: int, keep: int, more: int) -> Iterator[str]:
    """Yield in SMT-LIB when an await after the loop covers a copy of iteration k.

    Parameters
    ----------
    commits, before, keep
        As for `distances`.
    more : int
        Commits between the loop and the await.
    """
    need = max(0, keep + 1 - more)
    behind = [place.runs(0) for place in commits[before:]]
    behind += [place.runs(j) for j in range(1, need + LATER) for place in commits]
    for chosen in islice(combinations(behind, need), MOST):
        yield both(list(chosen))
