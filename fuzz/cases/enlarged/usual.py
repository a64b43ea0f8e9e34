"""A case at extents that people have: only its kernels are built there, by default.

What the simulator can take is so small that the heuristics choose a few schedules only; most of
those that anybody runs are chosen for thousands of rows.
"""

from __future__ import annotations

import random
from math import log2, prod

from fuzz.cases.case import Case, shape_of, symbols
from fuzz.cases.enlarged.call import Enlarged

SHORTEST, LONGEST = 1 << 4, 1 << 15
"""Extents that are drawn."""
ELEMENTS = 1 << 28
"""Elements of the largest tensor, at most."""


def usual(case: Case) -> Enlarged | None:
    """Return the case at about such extents, log-uniform, the same for every process.

    Each is a multiple, odd or even, of what it was, so that what divides it still does; and hangs
    on the seed and its name alone, so that smaller cases of a failure keep it.  None if all extents
    are 0, or numbers.
    """
    times = {name: _times(case, name) for name in symbols(case.fusion)}
    while True:
        larger = Enlarged.of(case, times)
        extents = larger.case.extents
        most = max(prod(shape_of(larger.case, tv)) for tv in case.fusion.tensors)
        longest = max(times, key=lambda name: extents[name], default="")
        if most <= ELEMENTS or times[longest] == 1:
            break
        times[longest] = max(times[longest] // 4 * 2 + times[longest] % 2, 1)
    return larger if extents != case.extents and most <= ELEMENTS else None


def _times(case: Case, name: str) -> int:
    rng = random.Random(f"{case.seed} {name}")
    wanted, odd = 2 ** rng.uniform(log2(SHORTEST), log2(LONGEST)), rng.random() < 0.5
    times = int(wanted / max(case.extents[name], 1))
    return max(times | 1 if odd else times & ~1, 1)
