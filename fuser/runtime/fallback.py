"""Kernels whose default schedule is refused have the next best one.

What threads hold in registers is known once a kernel is lowered; heuristics only estimate it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion
from fuser.pipeline import Program, build
from fuser.runtime.call import Spec
from fuser.runtime.classify import Alternatives
from fuser.schedule.shape_class import CallClass

TRIES = 32
"""Other schedules that are tried for a kernel."""


def fitted(
    fusion: Fusion,
    shapes: CallClass,
    specs: Mapping[str, Spec],
    free: Mapping[str, int] | None = None,
    sms: int = SM_90A.sms,
) -> Program:
    """Compile a class of default schedules, or one in which refused kernels have other schedules.

    Parameters
    ----------
    fusion : Fusion
        What is compiled.
    shapes : CallClass
        The class of a call by default: `classify` of the other arguments.
    specs, free, sms
        The call, as `classify` takes it; looked at again if a kernel is refused.

    Raises
    ------
    ScheduleError
        What was said first, if no other schedule suits, or the fusion asks for what none can have.
    """
    first: ScheduleError | None = None
    others: Alternatives | None = None
    left: dict[int, Iterator[CallClass]] = {}
    while True:
        try:
            return build(fusion, None, shapes)
        except ScheduleError as error:
            first = first or error
            if error.kernel is None:
                raise first from None
            kernel = error.kernel
        others = others or Alternatives(fusion, specs, free, sms)
        if kernel not in left:
            left[kernel] = _others(others, shapes, kernel)
        other = next(left[kernel], None)
        if other is None:
            raise first
        shapes = other


def _others(others: Alternatives, shapes: CallClass, kernel: int) -> Iterator[CallClass]:
    """Yield classes in which a kernel has another schedule; those before it have theirs by now."""
    for params in islice(others.candidates(kernel), TRIES):
        other = others.replaced(shapes, kernel, params)
        if other is not None:
            yield other
