"""Kernels whose default schedule is refused have the next best one.

What threads hold in registers is known once a kernel is lowered; heuristics only estimate it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion
from fuser.pipeline import Program, build
from fuser.runtime.classify import Alternatives
from fuser.schedule.shape_class import CallClass, Params

TRIES = 32
"""Other schedules that are tried for a kernel."""


def fitted(fusion: Fusion, shapes: CallClass, alternatives: Callable[[], Alternatives]) -> Program:
    """Compile a class of default schedules, or one in which refused kernels have other schedules.

    Parameters
    ----------
    fusion : Fusion
        What is compiled.
    shapes : CallClass
        The class of a call by default.
    alternatives : callable
        Returns other classes of that call; asked if a kernel is refused.

    Raises
    ------
    ScheduleError
        What was said first, if no other schedule suits, or the fusion asks for what none can have.
    """
    try:
        return build(fusion, None, shapes)
    except ScheduleError as error:
        first = refused = error
    others = alternatives() if first.kernel is not None else None
    left: dict[int, Iterator[Params]] = {}
    while others is not None and refused.kernel is not None:
        kernel = refused.kernel
        if kernel not in left:
            left[kernel] = islice(others.candidates(kernel), TRIES)
        params = next(left[kernel], None)
        if params is None:
            break
        other = others.replaced(shapes, kernel, params)
        if other is None:
            continue
        shapes = other
        try:
            return build(fusion, None, shapes)
        except ScheduleError as error:
            refused = error
    raise first
