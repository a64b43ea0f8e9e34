"""Other calls that the program of a case serves: of its class, with other extents and values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import prod

from fuser.errors import FusionError, ScheduleError
from fuser.pipeline import Program
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams
from fuzz.cases.case import Case, Kind, compiled, shape_of, specs
from fuzz.cases.extents import bounded
from fuzz.cases.params import trimmed

CALLS = 32
"""Other calls of a program, at most."""
TRIES = 3
"""Extents that are looked at for each of them, at most."""
ELEMENTS = 1 << 11
"""Elements of the largest tensor of another call, where the case itself has not more."""


def others(case: Case, program: Program, *, smaller: bool = False) -> Iterator[Case]:
    """Yield other calls of a program, `CALLS` at most, the same for every process.

    First one with other values, then such with other extents, too; what adds up integers exactly is
    also given reals.  Of these only the `smaller` ones, if they are asked for: at most half as many
    elements.
    """
    rng = random.Random(f"{case.seed} {case.extents!r} {case.params!r}")
    kinds: list[Kind] = ["reals"] if case.kind == "reals" else ["integers", "reals"]
    seen, left = {tuple(case.extents.values())}, CALLS - 1
    most = _elements(case) // 2
    if not smaller:
        yield replace(case, kind=kinds[-1], seed=case.seed + 1)
    for _ in range(TRIES * CALLS):
        extents = {name: rng.choice(_near(n)) for name, n in case.extents.items()}
        other = replace(case, extents=extents, kind=rng.choice(kinds), seed=case.seed + len(seen))
        if tuple(extents.values()) not in seen and _is_short(other, case):
            seen.add(tuple(extents.values()))
            if not (smaller and _elements(other) > most) and _served(other, program):
                left -= 1
                yield other
        if not left:
            return


def named(other: Case) -> str:
    """Return the words for a call that differ from those of every other one of a case."""
    at = ", ".join(f"{name}={n}" for name, n in other.extents.items())
    return f"{at or 'other values'}, {other.kind} of seed {other.seed}"


def called(case: Case, subject: str) -> Case | None:
    """Return the other call of a case that `subject` ends with the words for, if it does."""
    if " of seed " not in subject:
        return None
    program = compiled(case)
    made = chain(others(case, program), others(case, program, smaller=True))
    return next((other for other in made if subject.endswith(named(other))), None)


def _near(extent: int) -> list[int]:
    """Return extents that may suit what an extent suits: multiples of the same power of two."""
    unit = min(extent & -extent, 16) or 1
    some = {unit, 2 * unit, 3 * unit, 7 * unit, extent, extent - unit, extent + unit}
    some |= {extent // 2 // unit * unit, 2 * extent - unit}
    return sorted(n for n in some if n > 0) if extent else [0]


def _elements(case: Case) -> int:
    return max(prod(shape_of(case, tv)) for tv in case.fusion.tensors)


def _is_short(other: Case, case: Case) -> bool:
    """Tell whether the simulation of another call is as short as those of drawn cases."""
    if _elements(other) > max(ELEMENTS, _elements(case)):
        return False
    match other.params:
        case MatmulParams() | AmpereParams() as params:
            exact = case.kind == "integers"
            most = bounded(other.fusion, params, other.extents, exact=exact)
            return most == other.extents
        case NormParams():
            return True
        case PointwiseParams():
            return trimmed(other).extents == other.extents


def _served(other: Case, program: Program) -> bool:
    """Tell whether a call is of the class that a program was compiled for."""
    try:
        return classify(other.fusion, other.params, specs(other)) == program.shapes
    except (FusionError, ScheduleError):
        return False
