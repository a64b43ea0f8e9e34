"""One child process with a limit of CPU time, replaced after a crash or a hang.

A machine that is busy makes a case slow, not longer: what is limited first is the time that the
child's threads have computed.  A child that waits forever computes nothing, so there is a far
limit by the clock as well.  A child computes in one thread: where there are as many children as
cores and each has as many threads, these wait for each other (16 cores: eleven times as long).
The child says on the way who is at work (`at_work`), and keeps account of the CPU time of each.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

R = TypeVar("R")

LIMIT_S = 240.0
"""CPU seconds of one case.  Right ones with many threads and stages take up to 21 s alone
(measured), several times that where all cores are busy; the largest compiles take a second."""
FAR = 10.0
"""Wall seconds for each CPU second of a limit, where no wall limit is given."""
START_S = 300.0
"""Wall seconds in which a child starts: it may have torch to load."""
TICK_S = 0.1
"""Wall seconds between two looks at the CPU time of a child."""
MEMORY = 2_000 << 20
"""Bytes of memory of a child, at most.  A judge has some 0.5 GiB, 1.0 where it simulates a cluster
of eight CTAs for ten rounds, and 0.4 more where torch has CUDA (measured); one that allocates as
fast as it can gets a little further until it is seen."""
RESTING = 0.35
"""Share of these with which a child is not asked again: what it has kept of calls before would be
taken for the next one's.  A new one starts in milliseconds."""
COLLECTED = 20_000, 10, 10
"""Thresholds of the garbage collector (`gc.set_threshold`): those that Python has take a tenth of
the CPU time of a case (measured), mostly to look through torch and the harness."""
PRELOAD = ("torch", "z3", "numpy", "fuzz.campaign.judge", "fuzz.campaign.mutants")
"""Modules that the fork server loads once, so that a new child starts in milliseconds."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What is left of a call whose child did not come back: it died, or was ended at a limit.

    The reason names the signal, the exit code or the limit, and who was at work; `judge` is empty
    if nobody said so.
    """

    kind: Literal["crash", "hang", "memory"]
    reason: str
    judge: str = ""


@dataclass(frozen=True, slots=True)
class _AtWork:
    """From the child: it is ready, or somebody begins."""

    judge: str = ""
    subject: str = ""

    def __str__(self) -> str:
        on = f" on {self.subject}" if self.subject else ""
        return f" while the {self.judge} was at work{on}" if self.judge else ""


@dataclass(frozen=True, slots=True)
class _Answer(Generic[R]):
    value: R
    spent: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


class Child(Generic[R]):
    """A process that runs one call of `work` at a time.

    Parameters
    ----------
    work : callable
        Takes one argument; both it and its result can be pickled.
    limit_s, wall_s : float
        CPU seconds of a call, all threads together, and wall seconds (`FAR` times as many where
        none are given); then the process is killed and a new one started for the next call.
    memory : int, optional
        Bytes of resident memory; then likewise.
    spawn : bool
        Start from a fresh interpreter (for CUDA) and not from the fork server, which loads
        `preload` if this is the first child of the process.
    """

    def __init__(
        self,
        work: Callable[[str], R],
        *,
        limit_s: float = LIMIT_S,
        wall_s: float | None = None,
        memory: int | None = MEMORY,
        spawn: bool = False,
        preload: Sequence[str] = PRELOAD,
    ) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded there, or its server
        self._work = work
        self._limit_s = limit_s
        self._wall_s = FAR * limit_s if wall_s is None else wall_s
        self._memory = memory
        self._context: ForkServerContext | SpawnContext = multiprocessing.get_context("spawn")
        if not spawn:
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload(list(preload))
        self._worker: _Worker | None = None
        self.spent: dict[str, float] = {}
        """CPU seconds by part, of all calls that were answered; see `at_work`."""
        self._calling = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a call that another thread waits for is lost, and so is a later one."""
        self._closed = True
        if self._worker is not None:
            self._worker.process.kill()
        with self._calling:
            self._drop()

    def call(self, argument: str) -> R | Lost:
        """Run `work(argument)`; exceptions of `work` are raised here."""
        with self._calling:
            try:
                answer = self._asked(argument)
            except BaseException:  # Ctrl-C: what the child says later answers no other call
                self._drop()
                raise
            if isinstance(answer, Lost):
                self._drop()
                return answer
            if self._memory and self._worker and self._worker.nbytes() > RESTING * self._memory:
                self._drop()
        if isinstance(answer, _Raised):
            raise answer.error
        add(self.spent, answer.spent)
        return answer.value

    def _asked(self, argument: str) -> _Answer[R] | _Raised | Lost:
        if self._worker is None and not self._closed:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(self._work, theirs), daemon=True)
            process.start()
            theirs.close()
            self._worker = _Worker(process, ours, self._memory)
            if lost := self._worker.started():
                return lost
        if self._worker is None or self._closed:
            return Lost("crash", "the child was closed")
        return self._worker.asked(argument, self._limit_s, self._wall_s)

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class Probed(Child[R]):
    """A GPU behind a child; each new one has to answer a request `probe` so that it `passes`."""

    def __init__(
        self,
        work: Callable[[str], R],
        probe: str,
        passes: Callable[[R], bool],
        *,
        limit_s: float = LIMIT_S,
        wall_s: float | None = None,
    ) -> None:
        # CUDA's libraries alone are resident with more than a judge may have.
        super().__init__(work, limit_s=limit_s, wall_s=wall_s, memory=None, spawn=True)
        self._probe, self._passes = probe, passes

    def restart(self, what: str) -> None:
        """Start a new child after a crash, a hang or a CUDA error.

        RuntimeError if not even the probe comes back, which is `what`.
        """
        with self._calling:
            self._drop()
        answer = self.call(self._probe)
        if isinstance(answer, Lost) or not self._passes(answer):
            raise RuntimeError(f"the GPU does not run {what} any more: {answer}")


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that serves, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection
    memory: int | None

    def started(self) -> Lost | None:
        end = time.monotonic() + START_S
        while not self._stirs():
            if time.monotonic() > end:
                return Lost("hang", f"the process did not start within {START_S:g} s")
        heard = self._heard()
        return Lost("crash", f"{self._death()} while it started") if heard is None else None

    def asked(self, argument: str, limit_s: float, wall_s: float) -> _Answer[Any] | _Raised | Lost:
        """Ask, and wait for an answer until one of the limits."""
        begin, used, at = time.monotonic(), self._cpu_s(), _AtWork()
        try:
            self.pipe.send(argument)
        except OSError:
            return Lost("crash", str(self._death()))
        while True:
            if self._stirs():
                heard = self._heard()
                if heard is None:
                    return Lost("crash", f"{self._death()}{at}", at.judge)
                if isinstance(heard, _Answer | _Raised):
                    return heard
                assert isinstance(heard, _AtWork), f"a child says {heard!r}"
                at = heard
            if self.memory is not None and (has := self.nbytes()) > self.memory:
                reason = f"{has >> 20} MiB of memory, {self.memory >> 20} are allowed{at}"
                return Lost("memory", reason, at.judge)
            wall, cpu = time.monotonic() - begin, self._cpu_s() - used
            if cpu > limit_s or wall > wall_s:
                reason = f"{wall_s:g} s by the clock ({cpu:.1f} s of CPU time)"
                if cpu > limit_s:
                    reason = f"{limit_s:g} s of CPU time ({wall:.1f} s by the clock)"
                return Lost("hang", f"no answer within {reason}{at}", at.judge)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _stirs(self) -> bool:
        """Wait a moment for a word from the process, or its end."""
        return bool(wait([self.pipe, self.process.sentinel], TICK_S))

    def _heard(self) -> object:
        """Return what it says, or None if it is dead."""
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None

    def _death(self) -> str:
        self.process.join(TICK_S)
        self.process.kill()  # it may have closed its pipe alone
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"the process ended with exit code {code}"

    def nbytes(self) -> int:
        """Return the resident memory of the process.  Source: proc(5), /proc/pid/statm, field 2."""
        try:
            text = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="utf-8")
        except OSError:
            return 0
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _cpu_s(self) -> float:
        """Return what all threads of the process, and its children that ended, have computed.

        Source: proc(5), /proc/pid/stat, fields 14 to 17.
        """
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return 0.0
        return sum(map(int, text.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


_parent: Connection | None = None
"""In a child, the pipe to its parent."""

DRAWING = "drawing"
"""The part of the CPU time in which Hypothesis makes cases, or smaller ones, and other calls of
their programs are sought."""
OVERHEAD = "overhead"
"""The part of all that nobody else is at work on: texts of cases, pipes, the ledger."""


def add(spent: dict[str, float], more: Mapping[str, float]) -> None:
    """Add CPU seconds by part."""
    for part, seconds in more.items():
        spent[part] = spent.get(part, 0.0) + seconds


@dataclass(slots=True)
class Account:
    """CPU seconds of this process, by the part that it was at work on."""

    part: str = OVERHEAD
    since: float = field(default_factory=time.process_time)
    spent: dict[str, float] = field(default_factory=dict)

    def turn(self, part: str) -> None:
        """Begin another part."""
        now = time.process_time()
        add(self.spent, {self.part: now - self.since})
        self.part, self.since = part, now

    def close(self) -> dict[str, float]:
        """Return what was spent since this was last asked, and begin with the overhead."""
        self.turn(OVERHEAD)
        spent, self.spent = self.spent, {}
        return spent


account = Account()
"""That of this process."""


def at_work(judge: str, subject: str = "", *, part: str = "") -> None:
    """Tell the parent, if this process is a child, who begins and on what.

    CPU time counts from here on for that `part`, the judge if it has no other name.
    """
    account.turn(part or judge)
    if _parent is not None:
        _parent.send(_AtWork(judge, subject))


def seldom_collected() -> None:
    """Let garbage be looked for seldom, and never in what is loaded by now, which stays."""
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def _serve(work: Callable[[str], R], pipe: Connection) -> None:
    """Work for a parent until it is gone; the body of a child."""
    global _parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _parent = pipe
    seldom_collected()
    with suppress(EOFError, OSError):  # the parent is gone
        account.close()
        pipe.send(_AtWork())
        while True:
            argument = pipe.recv()
            try:
                answer = work(argument)
                pipe.send(_Answer(answer, account.close()))
            except Exception as error:
                pipe.send(_Raised(_sendable(error)))


def _end_with_parent() -> None:
    """End this process when its parent dies, also in the middle of a judgement."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a child has a parent"
    wait([parent.sentinel])
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """Return an exception with its traceback as a note, or what is left of it in a pipe."""
    trace = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(f"in the child:\n{trace}")
    return copy  # type: ignore[no-any-return]  # of the same type
