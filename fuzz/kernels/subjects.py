"""Every subject by its name, as results and replays call it."""

from __future__ import annotations

from fuzz.kernels.cookbook import recipe_mutant
from fuzz.kernels.draw import Subject, draw, draw_wide
from fuzz.kernels.file import of_file
from fuzz.kernels.matmul import scheduled
from fuzz.kernels.semaphores import semaphore_mutant


def find(name: str) -> Subject:
    """Return what a name stands for.

    ``"template SEED INDEX"``, ``"wide SEED INDEX"``, ``"mutant RECIPE STAGES NUMBER"``,
    ``"matmul SCHEDULE NUMBER"``, ``"semaphore BASE/CHANGE"`` or ``"of FILE.py:NAME NUMBER"``.
    """
    match name.split():
        case ["template", seed, index]:
            return draw(int(seed), int(index))
        case ["wide", seed, index]:
            return draw_wide(int(seed), int(index))
        case ["mutant", recipe, stages, number]:
            return recipe_mutant(recipe, int(stages), int(number))
        case ["matmul", schedule, number]:
            return scheduled(schedule, int(number))
        case ["semaphore", key]:
            return semaphore_mutant(key)
        case ["of", *file, number]:
            return of_file(" ".join(file), int(number))
        case _:
            raise ValueError(f"find({name!r}): name a template or a mutant")


def together(name: str) -> str:
    """Return what the names of subjects have in common that one process had better find.

    All mutants of a kernel of a file are made when the first one is asked for.
    """
    return name.rpartition(" ")[0] if name.startswith("of ") else name
