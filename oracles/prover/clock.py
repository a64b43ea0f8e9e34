"""What a proof takes: limits in CPU seconds and memory, and what it is at, for who waits for it.

The loops that may run long, and every question to z3, call `working`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import psutil

Tell = Callable[[float, str], None]
"""Is called now and then with the CPU seconds so far, and what the proof is at."""
OFTEN_S = 0.1
"""Seconds between two looks at the CPU time, which may itself take milliseconds."""
MEMORY = 600 << 20
"""Bytes that a proof may add to what its process has: with what a child of a campaign may rest
with, less than that may have in all (`fuzz/campaign/child.py`)."""


class GaveUpError(Exception):
    """A proof has taken more CPU seconds, or memory, than it was given."""


def _resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(psutil.Process().memory_info().rss)


@dataclass(slots=True)
class Clock:
    """The CPU time of one proof, by this thread, and the memory that its process had before."""

    limit: float
    tell: Tell | None
    begin: float = field(default_factory=time.thread_time)
    before: int = field(default_factory=lambda: _resident())
    looked: float = field(default_factory=time.perf_counter)


_CLOCK: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def limited(limit: float, tell: Tell | None = None) -> Iterator[None]:
    """Limit the CPU seconds of what is done inside; a proof inside another has what is left.

    Nothing is collected meanwhile, unless memory is short: what a proof makes lives until it ends,
    and looking through it again and again takes a fifth of the time.
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
        If it has taken too long, or `MEMORY` though nothing is left to collect.
    """
    clock = _CLOCK.get()
    if clock is None or time.perf_counter() - clock.looked < OFTEN_S:
        return
    clock.looked = time.perf_counter()
    seconds, words = time.thread_time() - clock.begin, at if number < 0 else f"{at} {number}"
    if seconds > clock.limit:
        says = f"gave up after {clock.limit:g} CPU s, at {words}; --limit gives it more"
        raise GaveUpError(says)
    if _resident() - clock.before > MEMORY:
        gc.collect()
        more = _resident() - clock.before
        if more > MEMORY:
            says = f"gave up at {more >> 20} MiB of memory, at {words}"
            raise GaveUpError(f"{says}; rings of fewer slots need less")
    if clock.tell is not None:
        clock.tell(seconds, words)
