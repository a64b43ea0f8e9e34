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
from collections import Counter, deque
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
from fuzz.campaign.driver import Job, Message, Round
from fuzz.campaign.record import Cell

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


class Drawn:
    """How often drivers have drawn each cell, so that all of them ask for what is rare."""

    def __init__(self) -> None:
        self._counts: dict[int, Counter[Cell]] = {}
        self._lock = threading.Lock()

    def told(self, worker: int, counts: Counter[Cell]) -> Counter[Cell]:
        """Keep what a driver has drawn so far, and return what the others have."""
        with self._lock:
            self._counts[worker] = counts
            others = Counter[Cell]()
            for other, drawn in self._counts.items():
                if other != worker:
                    others.update(drawn)
            return others


class Local:
    """A pool of processes on this machine."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes or len(os.sched_getaffinity(0))
        self.gpu = device_present()
        self._said = SimpleQueue[tuple[int, Message | Ended]]()
        self._stop, self._drawn = threading.Event(), Drawn()
        self._threads = ThreadPoolExecutor(self.lanes)

    def start(self, lane: int, job: Job) -> None:
        """Start a driver in a lane that has none."""

        def ended(future: Future[str]) -> None:
            error = future.exception()
            self._said.put((lane, Ended(repr(error) if error else future.result())))

        def hear(message: Message) -> None:
            self._said.put((lane, message))

        self._threads.submit(run, job, hear, self._stop, self._drawn).add_done_callback(ended)

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


def run(
    job: Job, hear: Callable[[Message], None], stop: threading.Event, drawn: Drawn | None = None
) -> str:
    """Do a job in a driver of its own and pass on what it says; return why it ended early, if so.

    After each round it hears what those have drawn that have the same `drawn`.

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
                message = ours.recv()
                hear(message)
                if isinstance(message, Round) and message.complete and drawn is not None:
                    with suppress(ConnectionError):  # it has died: what it said is still to be read
                        ours.send(drawn.told(job.worker, message.counts))
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
    told = deque([Counter[Cell]()], maxlen=1)
    threading.Thread(target=_listen, args=(outbox, told), daemon=True).start()
    driver.drive(job, outbox, lambda: told[0])


def _listen(inbox: Connection, told: deque[Counter[Cell]]) -> None:
    """Keep what others have drawn; end this process and its children with who started it."""
    with suppress(EOFError, OSError):
        while True:
            told.append(inbox.recv())
    os.killpg(0, signal.SIGKILL)
