"""What an executable knows of the fastest schedules, and who measures them, now or in a thread."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Literal

from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion
from fuser.pipeline import Program
from fuser.runtime.classify import Alternatives
from fuser.runtime.tuning import memory
from fuser.runtime.tuning.outputs import Rounding
from fuser.runtime.tuning.search import Report, Stand, Tuning, search
from fuser.runtime.tuning.timing import Timer
from fuser.schedule.shape_class import CallClass, Params

Tune = bool | Literal["background"] | Tuning
"""Whether to tune, and how: True is ``Tuning()``, "background" is ``Tuning(background=True)``."""

_alone = threading.Lock()
"""Held by who measures in this process: others' kernels would be measured with it."""


def asked(tune: Tune, params: Params | None) -> Tuning | None:
    """Return how to tune as an Executable is asked to; ScheduleError if nothing can be tuned."""
    if tune is False:
        return None
    if params is not None:
        name = type(params).__name__
        why = "params leave nothing to choose; leave out one of both"
        raise ScheduleError(f"Executable(fusion, {name}(...), tune={tune!r}): {why}")
    if tune is True or tune == "background":
        return Tuning(background=tune == "background")
    if isinstance(tune, Tuning):
        return tune
    way_out = 'use True, "background" or Tuning(n=8)'
    raise ScheduleError(f"Executable(fusion, tune={tune!r}): no way to tune; {way_out}")


class Tuner:
    """The answers for one fusion, by what they depend on (`memory.about`).

    Answers of this process are kept beside those on disk, which may be full.
    """

    def __init__(self, fusion: Fusion, tuning: Tuning) -> None:
        self.tuning = tuning
        self._rounding = Rounding(fusion)
        self._known: dict[str, tuple[Params, ...]] = {}
        self._threads: dict[str, threading.Thread] = {}

    def chosen(
        self, alternatives: Alternatives, key: str, build: Callable[[CallClass], Program]
    ) -> CallClass | None:
        """Return the class that is known to be the fastest; None if none is, or it cannot be."""
        schedules = self._known.get(key)
        if schedules is None:
            found = memory.recall(key, self.tuning.n, self.tuning.judged_by)
            if found is None:
                return None
            schedules = found.schedules
        shapes = alternatives.having(schedules)
        if shapes is None:
            return None
        try:
            build(shapes)
        except ScheduleError:
            return None
        self._known[key] = schedules
        return shapes

    def measure(
        self,
        alternatives: Alternatives,
        key: str,
        stand: Stand,
        timer: Timer,
        going: Callable[[], bool] = lambda: True,
    ) -> Report:
        """Measure, and remember the answer here and on disk; one thread does so at a time."""
        with _alone:
            report = search(alternatives, stand, timer, self.tuning, self._rounding, going)
        if going():
            self._known[key] = report.schedules
            entry = memory.Entry(report.schedules, self.tuning.n, self.tuning.judged_by)
            memory.remember(key, entry)
        return report

    def begin(self, key: str, work: Callable[[Callable[[], bool]], None]) -> None:
        """Work in a thread, once for each key; it is given what tells whether to go on.

        The end of the main thread is a reason not to: the process waits for this thread.
        """

        def run() -> None:
            try:
                work(threading.main_thread().is_alive)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                warnings.warn(
                    f"tune in the background: {why}; the default schedule stays",
                    RuntimeWarning,
                    stacklevel=1,
                )

        self._threads[key] = threading.Thread(target=run, name="fuser-tune")
        self._threads[key].start()

    def begun(self, key: str) -> bool:
        """Whether a thread measures, or has measured, or has failed to."""
        return key in self._threads

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until no thread measures; False if that takes longer."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in [*self._threads.values()]:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
            if thread.is_alive():
                return False
        return True
