"""The kernels that a Python file offers, with small launches, so that their mutants can be judged.

Subjects are numbered through: 0 is the kernel itself, then come its mutants.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain, product

from fuser.expr import variables
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuzz.kernels.draw import Subject, accepted
from fuzz.kernels.tile import Start
from fuzz.mutation.operators import LATE, Mutant, all_mutants
from oracles.cli.target import load
from oracles.prover import launches
from oracles.prover.launches import Launch
from oracles.prover.sites import fixed_grid, touches

MOST = 4
"""Largest trip count of the launches."""
CTAS = 4
"""Launches of more CTAs are left out; of several, where CTAs share nothing."""
FURTHEST = 8
"""Tiles that are named by number: those before it may be of a CTA each."""
SAME = 3
"""Launches with one trip count that are looked at."""


def names(spec: str) -> Iterator[str]:
    """Yield `FILE.py:name` for every kernel that `FILE.py` offers, or `FILE.py:name` alone.

    Programs of several launches are passed over.  TargetError if there is no such file or name, or
    a kernel is not well formed.
    """
    offered = load(spec)
    file = spec[: spec.rindex(".py") + 3]
    for target in offered:
        if isinstance(target.subject, kir.Kernel):
            yield f"{file}:{target.name}"


@lru_cache(maxsize=1)  # a hundred mutants; asked about one after another
def _kernel(name: str) -> tuple[kir.Kernel, tuple[Mutant, ...]]:
    (target,) = load(name)
    assert isinstance(target.subject, kir.Kernel), "`names` gives kernels only"
    return target.subject, tuple(m for m in all_mutants(target.subject) if accepted(m.kernel))


def subjects(*specs: str, workers: int = 1) -> Iterator[tuple[str, int]]:
    """Yield name and number of every kernel of some files and of every mutant.

    Kernels of equal text are yielded once: no judge can tell a mutant from the same one of a twin.
    """
    every, seen = list(chain.from_iterable(map(names, specs))), set[bytes]()
    with ProcessPoolExecutor(workers) as pool:
        for name, digests in zip(every, pool.map(_digests, every, chunksize=4), strict=True):
            for number, digest in enumerate(digests):
                if digest not in seen:
                    seen.add(digest)
                    yield name, number


def _digests(name: str) -> list[bytes]:
    base, mutants = _kernel(name)
    nameless = (replace(one, name="") for one in (base, *(m.kernel for m in mutants)))
    return [sha256(text(one).encode()).digest() for one in nameless]


def of_file(name: str, number: int) -> Subject:
    """Return subject `number` of the kernel `FILE.py:name`, with launches of few trips."""
    base, mutants = _kernel(name)
    mutant = mutants[number - 1] if number else None
    kernel = base if mutant is None else mutant.kernel

    def at(count: int) -> tuple[Start, ...]:
        fitting = (one for one in _small(kernel, count) if count in one.trips.values())
        return tuple((one.grid, one.params) for one in fitting)[:SAME]

    starts: list[Start] = []
    for one in _small(kernel, MOST):
        if (one.grid, one.params) not in starts:
            starts.append((one.grid, one.params))
    if mutant is not None and mutant.operator == "stages":
        starts += at(LATE + MOST)
    faults = () if mutant is None else (mutant.fault,)
    hazards = () if mutant is None else mutant.hazards
    family = name.rpartition(":")[2]
    return Subject(base, kernel, family, faults, hazards, tuple(starts), at)


def _small(kernel: kir.Kernel, most: int) -> list[Launch]:
    """Return small launches; those up to `MOST` trips all, of more only the few that have it."""
    if most > MOST:
        free = {n for one in _small(kernel, 1) for n in one.trips}
        asked = [dict.fromkeys(free, most), *({name: most} for name in sorted(free))]
        exact = [launches.example(kernel, trips) for trips in asked]
        exact += [launches.example(kernel, trips, two) for trips in asked for two in _twos(kernel)]
        found = [one for one in exact if one is not None and one.grid <= CTAS]
        return [one for n, one in enumerate(found) if one not in found[:n]]
    shared = kernel.semaphores or kernel.workspaces
    far = _furthest(kernel)
    several = far if far > CTAS else CTAS - 1
    found = launches.small(kernel, most=most, clusters=several if shared else 1)
    for two, count in product(_twos(kernel), range(1, most + 1)):
        free = {name for one in found for name in one.trips}
        more = (launches.example(kernel, {name: count}, two) for name in sorted(free))
        found += [one for one in more if one is not None]
    return [one for one in found if one.grid <= max(CTAS, far)]


def _furthest(kernel: kir.Kernel) -> int:
    """Return how many CTAs there are if one has the last box of a number below `FURTHEST`."""
    boxes = filter(None, map(touches, kernel.walk()))
    tiles = (at // n for box in boxes for at, n in zip(box.origin, box.shape, strict=True)
             if isinstance(at, int))  # fmt: skip
    return 1 + max((tile for tile in tiles if tile < FURTHEST), default=0)


def _twos(kernel: kir.Kernel) -> list[dict[str, int]]:
    """Return 2 for one number after another of which the grid is made, where CTAs wait."""
    grid = fixed_grid(kernel) if kernel.semaphores else None
    return [{v.name: 2} for v in sorted(variables(grid or 0), key=str)]
