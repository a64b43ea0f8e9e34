"""One child process with a wall limit, replaced after a crash or a hang.

Source: measured (pebble loses only the job that died).
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as HangError
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Literal, TypeVar

from pebble import ProcessExpired, ProcessPool

R = TypeVar("R")

PRELOAD = ("torch", "z3", "numpy", "fuzz.campaign.judge", "fuzz.campaign.mutants")
"""Modules that the fork server loads once, so that a new child starts in milliseconds."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What is left of a call whose child did not come back.

    Parameters
    ----------
    kind : {"crash", "hang"}
        Whether it died or was ended at the limit.
    reason : str
        With the exit code or the limit.
    """

    kind: Literal["crash", "hang"]
    reason: str


class Child(Generic[R]):
    """A process that runs one call of `work` at a time.

    Parameters
    ----------
    work : callable
        Takes one argument; both it and its result can be pickled.
    limit_s : float
        Wall limit of a call in seconds; then the process is killed and a new one started.
    spawn : bool
        Start from a fresh interpreter (for CUDA) and not from the fork server.
    preload : list of str
        What the fork server loads, if this is the first child of the process.
    """

    def __init__(
        self,
        work: Callable[[str], R],
        *,
        limit_s: float,
        spawn: bool = False,
        preload: Sequence[str] = PRELOAD,
    ) -> None:
        self._work = work
        self._limit_s = limit_s
        context = multiprocessing.get_context("spawn" if spawn else "forkserver")
        if not spawn:
            context.set_forkserver_preload(list(preload))
        self._pool = ProcessPool(max_workers=1, context=context, initializer=_ignore_interrupts)

    def __enter__(self) -> Child[R]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.stop()
        self._pool.join()

    def call(self, argument: str) -> R | Lost:
        """Run `work(argument)`; exceptions of `work` are raised here."""
        future = self._pool.schedule(self._work, args=[argument], timeout=self._limit_s)
        try:
            return future.result()  # type: ignore[no-any-return]  # pebble has no types
        except HangError:
            return Lost("hang", f"no answer within {self._limit_s:g} s")
        except ProcessExpired as error:
            return Lost("crash", f"the process ended with exit code {error.exitcode}")


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
