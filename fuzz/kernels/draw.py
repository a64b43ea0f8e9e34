"""Small kernels, drawn at random, legal or with up to three faults: what judges must agree on.

A seed and an index give one kernel, always the same.  Without a fault it is legal by
construction; with faults it may still be.  Families alternate, so that each has an equal share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuzz.kernels.template import FAMILIES
from fuzz.kernels.tile import Start, Template
from fuzz.kernels.wide import WIDE, shift
from fuzz.mutation.operators import LATE, OPERATORS, Mutant
from fuzz.mutation.site import closed

TRIES = 20
"""Mutants of one operator that are tried."""
FAULTS = {0: 3, 1: 5, 2: 3, 3: 1}
"""Weights of the numbers of faults."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What judges are asked about: a small kernel, its faults, and launches worth a look.

    `base` is without the faults.  The family is a template's, or the name of a recipe.  Faults are
    ``"operator: change"`` in the order of application; hazards are the rows of the hazard table
    that they aim at.  Launches, each a grid and parameters, have 0, 1, S - 1, S, S + 1, 2 S + 1 and
    2 S + 2 trips, and more than `LATE` where a fault acts only there; `at` returns those with a
    given number.
    """

    base: kir.Kernel
    kernel: kir.Kernel
    family: str
    faults: tuple[str, ...]
    hazards: tuple[str, ...]
    launches: tuple[Start, ...]
    at: Callable[[int], tuple[Start, ...]]


def family_of(index: int, families: Iterable[str] = FAMILIES) -> str:
    """Return the family of a drawn kernel, or of a wide one; they alternate."""
    names = tuple(families)
    return names[index % len(names)]


def draw(seed: int, index: int) -> Subject:
    """Return kernel `index` of a seed."""
    return _faulty(Random(f"{seed}/{index}"), FAMILIES, index, OPERATORS)


def draw_wide(seed: int, index: int) -> Subject:
    """Return wide kernel `index` of a seed; half of its faults are of one number."""
    rng = Random(f"wide {seed}/{index}")
    shifted = rng.random() < 0.5
    # No launch of theirs is long enough for what shows late.
    usual = {name: operator for name, operator in OPERATORS.items() if name != "stages"}
    return _faulty(rng, WIDE, index, {"shift": shift} if shifted else usual)


def _faulty(
    rng: Random,
    families: Mapping[str, Callable[[Random], Template]],
    index: int,
    operators: Mapping[str, Callable[[kir.Kernel], Iterator[Mutant]]],
) -> Subject:
    family = family_of(index, families)
    template = families[family](rng)
    (number,) = rng.choices(tuple(FAULTS), tuple(FAULTS.values()))
    kernel, faults, hazards = template.kernel, list[str](), set[str]()
    for _ in range(number):
        some = (operators[name] for name in rng.sample(tuple(operators), len(operators)))
        mutant = next(filter(None, (_drawn(rng, kernel, one) for one in some)))
        kernel = mutant.kernel
        faults.append(mutant.fault)
        hazards |= set(mutant.hazards)
    return subject(template, family, kernel, tuple(faults), tuple(sorted(hazards)))


def _drawn(
    rng: Random, kernel: kir.Kernel, operator: Callable[[kir.Kernel], Iterator[Mutant]]
) -> Mutant | None:
    """Return a mutant that validation lets through; what it refuses is not for judges."""
    some, words = list(operator(kernel)), text(kernel)
    rng.shuffle(some)
    tried = (m for m in some[:TRIES] if text(m.kernel) != words and accepted(m.kernel))
    return next(tried, None)


def accepted(kernel: kir.Kernel) -> bool:
    """Tell whether validation lets a mutant through, so that it is for judges."""
    if not closed(kernel):
        return False
    try:
        validate(kernel, final=True)
    except ScheduleError:
        return False
    return True


def subject(
    template: Template,
    family: str,
    kernel: kir.Kernel | None = None,
    faults: tuple[str, ...] = (),
    hazards: tuple[str, ...] = (),
) -> Subject:
    """Return a template's kernel, or that kernel with faults, with the launches of the template."""
    slots = template.slots
    counts = sorted({0, 1, slots - 1, slots, slots + 1, 2 * slots + 1, 2 * slots + 2})
    if any(fault.startswith("stages") for fault in faults):
        counts.append(LATE + slots + 1)
    starts: list[Start] = []
    for count in counts:
        starts += [start for start in template.at(count) if start not in starts]
    made = template.kernel if kernel is None else kernel
    return Subject(template.kernel, made, family, faults, hazards, tuple(starts), template.at)


def mutated(template: Template, family: str, mutant: Mutant) -> Subject:
    """Return a mutant of a template's kernel."""
    return subject(template, family, mutant.kernel, (mutant.fault,), mutant.hazards)
