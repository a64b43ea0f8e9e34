"""How long a proof takes: a limit in CPU seconds, and what it is at, for who waits for it.

The loops that may run long, and every question to z3, call `working`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

Tell = Callable[[float, str], None]
"""Is called now and then with the CPU seconds so far, and what the proof is at."""
OFTEN_S = 0.1
"""Seconds between two looks at the CPU time, which may itself take milliseconds."""


class GaveUpError(Exception):
    """A proof has taken more CPU seconds than it was given."""

    def __init__(self, limit: float, at: str) -> None:
        super().__init__(f"gave up after {limit:g} CPU s, at {at}; --limit gives it more")


@dataclass(slots=True)
class Clock:
    """The CPU time of one proof, by this thread."""

    limit: float
    tell: Tell | None
    begin: float = field(default_factory=time.thread_time)
    looked: float = field(default_factory=time.perf_counter)


_CLOCK: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def limited(limit: float, tell: Tell | None = None) -> Iterator[None]:
    """Limit the CPU seconds of what is done inside; a proof inside another has what is left.

    Nothing is collected meanwhile: what a proof makes lives until it ends, and looking through it
    again and again takes a fifth of the time.
    """
    outer = _CLOCK.get()
    token = None if outer is not None else _CLOCK.set(Clock(limit, tell))
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if token is not None:
            _CLOCK.reset(token)
        if collects:
            gc.enable()


def working(at: str, number: int = -1) -> None:
    """Note what a proof is at, and how many of these there have been.

    Raises
    ------
    GaveUpError
        If it has taken too long.
    """
    clock = _CLOCK.get()
    if clock is None or time.perf_counter() - clock.looked < OFTEN_S:
        return
    clock.looked = time.perf_counter()
    seconds, words = time.thread_time() - clock.begin, at if number < 0 else f"{at} {number}"
    if seconds > clock.limit:
        raise GaveUpError(clock.limit, words)
    if clock.tell is not None:
        clock.tell(seconds, words)
