"""Drivers on the machines of a Dask cluster, behind the same function as those of this one."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
import uuid
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

import click
import distributed

from fuser.runtime.executable import device_present
from fuzz.campaign.child import START_S
from fuzz.campaign.driver import Job, Message, Round
from fuzz.campaign.environment import versions
from fuzz.exit_code import USAGE
from fuzz.workers.local import Drawn, Ended, run

CONNECT_S = 30.0
"""Seconds in which the scheduler must answer, and have a worker."""
LOOK_S = 5.0
"""Seconds between two looks at who is there, when nobody says anything."""

_stops: dict[str, threading.Event] = {}
"""On a worker: what ends the drivers of a campaign."""
_drawn: dict[str, Drawn] = {}
"""On a worker: what its drivers of a campaign have drawn."""


class ClusterError(click.ClickException):
    """There is no such scheduler, it has no workers, or they have another program."""

    exit_code = USAGE


class Cluster:
    """A pool of the threads of a cluster's workers, a lane each."""

    def __init__(self, address: str, lanes: int = 0) -> None:
        try:
            self._client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(
                f"--scheduler {address}: {error}; start one with `dask scheduler`, and workers "
                "with `dask worker ADDRESS --nthreads 1`"
            ) from error
        ours, theirs = program(), self._client.run(program, on_error="return")
        for worker, said in theirs.items():
            if said != ours:
                raise ClusterError(
                    f"--scheduler {address}: worker {worker} has another program "
                    f"({said}, here {ours}); install the same there"
                )
        self.lanes = lanes or sum(self._client.nthreads().values())
        self.gpu = all(self._client.run(device_present).values())
        self._topic = uuid.uuid4().hex
        self._heard = Counter[str]()
        self._futures: dict[int, distributed.Future] = {}
        self._looked = 0.0
        self._said = SimpleQueue[tuple[int, Message | Ended]]()
        self._client.subscribe_topic(self._topic, self._hear)

    def start(self, lane: int, job: Job) -> None:
        """Start a driver in a lane that has none."""
        until = time.time() + START_S + job.plan.seconds
        future = self._client.submit(run_there, job, self._topic, lane, until, pure=False)
        self._futures[lane] = future
        future.add_done_callback(lambda done: self._ended(lane, done))

    def _hear(self, event: tuple[float, tuple[int, str, int, bytes]]) -> None:
        """Take what a driver says; after a gap its rounds are no longer whole."""
        lane, attempt, number, said = event[1]
        message = pickle.loads(said)
        whole = self._heard[attempt] == number
        self._heard[attempt] += whole
        if whole or not isinstance(message, Round):
            self._said.put((lane, message))

    def _ended(self, lane: int, done: distributed.Future) -> None:
        if self._futures.pop(lane, None) is None:
            return
        if done.status != "finished":
            error = done.exception() if done.status == "error" else "its worker is gone"
            self._said.put((lane, Ended(f"was lost: {error}")))
            return
        attempt, said, early = done.result()
        lost = said - self._heard[attempt]
        self._said.put((lane, Ended(early or (f"lost {lost} messages on the way" if lost else ""))))

    def heard(self, timeout: float) -> tuple[int, Message | Ended] | None:
        """Return what a driver said and its lane, or None if none says anything for so long."""
        try:
            return self._said.get(timeout=timeout)
        except Empty:
            self._look()
        return None

    def _look(self) -> None:
        """End all lanes where no worker is left: Dask would wait for one for ever."""
        if time.monotonic() < self._looked + LOOK_S:
            return
        self._looked = time.monotonic()
        try:
            gone = "" if self._client.nthreads() else "no worker is left"
        except (OSError, TimeoutError) as error:
            gone = f"the scheduler is gone: {error}"
        for lane in list(self._futures) if gone else ():
            del self._futures[lane]
            self._said.put((lane, Ended(gone)))

    def close(self) -> None:
        """End all drivers at once; their children end with them."""
        if self._client.status == "running":
            self._client.run(stop, self._topic)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def program() -> str:
    """Return what identifies this program: a digest of its sources, and of its packages."""
    digest = hashlib.sha256(repr(sorted(versions().items())).encode())
    root = Path(__file__).parents[2]
    for room in ("fuser", "oracles", "fuzz"):
        for path in sorted((root / room).rglob("*.*")):
            if path.suffix in (".py", ".cuh"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def run_there(job: Job, topic: str, lane: int, until: float) -> tuple[str, int, str]:
    """Do a job on a worker until a time.

    Returns who spoke (Dask does a job again whose worker died), how much was said, and why it ended
    early, if it did.
    """
    worker, attempt, numbers = distributed.get_worker(), uuid.uuid4().hex, count()

    def hear(message: Message) -> None:
        worker.log_event(topic, (lane, attempt, next(numbers), pickle.dumps(message)))

    left = max(min(job.plan.seconds, until - time.time()), 1.0)
    asked = replace(job, plan=replace(job.plan, seconds=left))
    stops, drawn = _stops.setdefault(topic, threading.Event()), _drawn.setdefault(topic, Drawn())
    early = run(asked, hear, stops, drawn)
    return attempt, next(numbers), early


def stop(topic: str) -> None:
    """End the drivers of a campaign on this worker."""
    _stops.setdefault(topic, threading.Event()).set()
