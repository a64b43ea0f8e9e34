"""Drivers on this machine: each job in a process of its own.

A lane is a place for one driver at a time.  What a driver says is passed on as it is said, so that
a driver, a machine or a campaign that is killed loses nothing that was judged.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Protocol, Self

import psutil

from fuser.runtime.executable import device_present
from fuzz.campaign import driver
from fuzz.campaign.child import FAR, LIMIT_S
from fuzz.campaign.driver import Job, Message

GRACE_S = 30.0
"""Time in which a driver must start, and after its last case end."""
MEMORY = 1_500 << 20
"""Bytes of memory of a driver, at most; its judges have a limit of their own."""
TICK_S = 0.25
"""Seconds between two looks at a driver that says nothing."""
_DRIVER = "from fuzz.workers.local import serve; serve()"


@dataclass(frozen=True, slots=True)
class Ended:
    """A driver is gone; `early` says why if it had not done its job."""

    early: str


class Pool(Protocol):
    """Lanes for drivers, by number from 0."""

    lanes: int
    gpu: bool
    """Whether each lane has a device."""

    def start(self, lane: int, job: Job) -> None:
        """Start a driver in a lane that has none."""

    def heard(self, timeout: float) -> tuple[int, Message | Ended] | None:
        """Return what a driver said and its lane, or None if none says anything for so long."""

    def close(self) -> None:
        """End all drivers at once; their children end with them."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Local:
    """A pool of processes on this machine."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes or len(os.sched_getaffinity(0))
        self.gpu = device_present()
        self._said = SimpleQueue[tuple[int, Message | Ended]]()
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(self.lanes)

    def start(self, lane: int, job: Job) -> None:
        """Start a driver in a lane that has none."""

        def ended(future: Future[str]) -> None:
            error = future.exception()
            self._said.put((lane, Ended(repr(error) if error else future.result())))

        def hear(message: Message) -> None:
            self._said.put((lane, message))

        self._threads.submit(run, job, hear, self._stop).add_done_callback(ended)

    def heard(self, timeout: float) -> tuple[int, Message | Ended] | None:
        """Return what a driver said and its lane, or None if none says anything for so long."""
        with suppress(Empty):
            return self._said.get(timeout=timeout)
        return None

    def close(self) -> None:
        """End all drivers at once; their children end with them."""
        self._stop.set()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(job: Job, hear: Callable[[Message], None], stop: threading.Event) -> str:
    """Do a job in a driver of its own and pass on what it says; return why it ended early, if so.

    The driver leads a process group: a Ctrl-C in the terminal is for the campaign alone, and
    nothing outlives it.
    """
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
    overdue = time.monotonic() + job.plan.seconds + driver.SHRINK_S + FAR * LIMIT_S + 2 * GRACE_S
    try:
        ours.send(job)
        while not stop.is_set():
            if ours.poll(TICK_S):
                hear(ours.recv())
            if (used := _memory(process.pid)) > MEMORY:
                return f"used {used >> 20} MiB of memory, more than {MEMORY >> 20}, and was ended"
            if time.monotonic() > overdue:
                return "did not end in time and was ended"
        return "stopped"
    except (EOFError, ConnectionError):
        return _reason(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ours.close()


def _reason(process: subprocess.Popen[bytes]) -> str:
    """Say why a driver that hung up did so; empty if it was done."""
    try:
        code = process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return "did not end in time and was ended"
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}" if code else ""


def _memory(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def serve() -> None:
    """Do the job that comes through the pipe named on the command line; the body of a driver."""
    outbox = Connection(int(sys.argv[1]))
    os.set_inheritable(outbox.fileno(), False)
    job = outbox.recv()
    threading.Thread(target=_end_with_parent, args=(outbox,), daemon=True).start()
    driver.drive(job, outbox)


def _end_with_parent(inbox: Connection) -> None:
    """End this process and its children when who started it is gone, also amid a judgement."""
    with suppress(EOFError, OSError):
        inbox.recv()
    os.killpg(0, signal.SIGKILL)
