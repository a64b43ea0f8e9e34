"""One driver: a Hypothesis engine in its own process, with a judge child of its own.

It draws cases round after round until the time is over, sends every record through a pipe, and
lets Hypothesis shrink what fails without slipping from one failure to another.
"""

from __future__ import annotations

import hashlib
import signal
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from fuzz.campaign import gpu
from fuzz.campaign.child import LIMIT_S, Child, Lost
from fuzz.campaign.judge import judge_text, request
from fuzz.campaign.mutants import judge_family
from fuzz.campaign.record import Record, signature
from fuzz.campaign.recorder import blank_record
from fuzz.campaign.repro import FAILED
from fuzz.cases.case import Case, case_id, to_text
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases

ROUND = 150
"""Cases that an engine draws before it begins anew with another seed."""
SHRINK_S = 45.0
"""Time after the end, at most, in which a failure found before it may still be shrunk."""
MUTANT_SHARE = 0.2
"""Part of the time, at most, that a driver asked for it spends on mutants first."""


NEEDS: dict[str, tuple[str, ...]] = {
    "agreement": ("prover", "simulator", "agreement"),
    "build": (),
    "gpu": (),
}
"""What must be asked again while a failure of an oracle is shrunk, if not that oracle alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one driver is to do.

    Parameters
    ----------
    seed, shard, worker : int
        The seeds of its rounds follow from these.
    seconds : float
        From the moment when its judge is ready; then no further case begins.
    most : int or None
        Cases after which it ends before that time.
    oracles : tuple of str
        Of `fuzz.campaign.judge.CPU_ORACLES`.
    use_gpu : bool
        Run every case on the GPU too.
    mutants : bool
        Judge mutants first, for a part of the time.
    done : frozenset of int
        Rounds that an interrupted run has finished.
    database : Path
        Where Hypothesis keeps failing examples.
    """

    seed: int
    shard: int
    worker: int
    seconds: float
    most: int | None
    oracles: tuple[str, ...]
    use_gpu: bool
    mutants: bool
    done: frozenset[int]
    database: Path


@dataclass(frozen=True, slots=True)
class Judged:
    """Records of one case, with its text."""

    records: list[Record]
    text: str


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The least case found that fails with a signature."""

    record: Record
    text: str


@dataclass(frozen=True, slots=True)
class Round:
    """A round is over; `complete` unless the time ran out in it."""

    number: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """The judge is loaded and the time begins."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The driver itself failed."""

    trace: str


Message = Ready | Judged | Shrunk | Round | Broken


class Failure(Exception):
    """A case failed; each signature has a subclass, so that Hypothesis keeps them apart."""


@cache
def failure_class(name: str) -> type[Failure]:
    """Return the one subclass of a signature."""
    return type(name, (Failure,), {})


class TimeOver(KeyboardInterrupt):
    """The campaign is over; Hypothesis lets it pass."""


def drive(job: Job, outbox: Connection) -> None:
    """Do a job; the body of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ExitStack() as stack:
            judge = stack.enter_context(Child(judge_text))
            device = stack.enter_context(gpu.Device()) if job.use_gpu else None
            _Engine(job, outbox, judge, device).run()
    except BrokenPipeError:
        return
    except BaseException as error:
        outbox.send(Broken("".join(traceback.format_exception(error))))
    finally:
        outbox.close()


class _Engine:
    """The rounds of one driver."""

    def __init__(
        self,
        job: Job,
        outbox: Connection,
        judge: Child[list[Record]],
        device: gpu.Device | None,
    ) -> None:
        self._job = job
        self._outbox = outbox
        self._judge = judge
        self._device = device
        self._known: set[str] = set()
        self._seen: dict[tuple[str, str], list[Record]] = {}
        self._deadline = 0.0
        self._drawn = 0
        self._wanted: str | None = None
        self._least: tuple[Record, str] | None = None

    def run(self) -> None:
        """Judge mutants for a while, then cases until the time is over."""
        self._judge.call(request(gpu.PROBE, ()))
        self._outbox.send(Ready())
        self._deadline = time.time() + self._job.seconds
        if self._job.mutants:
            self._mutants(time.time() + MUTANT_SHARE * self._job.seconds)
            # Cases have their share, even where the first mutants alone took longer than theirs.
            rest = (1 - MUTANT_SHARE) * self._job.seconds
            self._deadline = max(self._deadline, time.time() + rest)
        for number in count():
            if number not in self._job.done and not self._round(number):
                return

    def _mutants(self, until: float) -> None:
        with Child(judge_family) as child:
            for position, family in enumerate(FAMILIES):
                left = max(until - time.time(), 0.1)
                result = child.call(f"{family} {left / (len(FAMILIES) - position):.3f}")
                if not isinstance(result, Lost):
                    for text, records in result:
                        self._outbox.send(Judged(records, text))

    def _round(self, number: int) -> bool:
        """Draw a round of cases; tell whether there is time for another."""
        self._wanted = self._least = None
        test = settings(
            max_examples=ROUND,
            deadline=None,
            database=DirectoryBasedExampleDatabase(self._job.database),
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            print_blob=False,
            # Shared cores make drawing slow now and then; that is no fault of a strategy.
            suppress_health_check=(HealthCheck.too_slow,),
        )(given(cases())(self._check))
        in_time = True
        try:
            seed(self._seed(number))(test)()
        except Failure:
            pass
        except TimeOver:
            in_time = False
        if self._least is not None:
            record, text = self._least
            self._known.add(signature(record))
            self._outbox.send(Shrunk(record, text))
        self._outbox.send(Round(number, in_time))
        return in_time

    def _check(self, case: Case) -> None:
        """Judge one drawn case; raise where it fails in a new way, or in the one being shrunk."""
        grace = min(SHRINK_S, self._job.seconds) if self._wanted else 0.0
        enough = self._job.most is not None and self._drawn >= self._job.most
        if time.time() > self._deadline + grace or (enough and not self._wanted):
            raise TimeOver
        text = to_text(case)
        records = self._judged(case, text)
        bad = {signature(r): r for r in reversed(records) if r.status in FAILED}
        for hung in [name for name, record in bad.items() if record.kind == "hang"]:
            self._keep_whole(hung, bad.pop(hung), text)
        fresh = [name for name in bad if name not in self._known]
        name = self._wanted if self._wanted else min(fresh, default=None)
        if name is None or name not in bad:
            return
        self._wanted, self._least = name, (bad[name], text)
        raise failure_class(name)(bad[name].reason)

    def _keep_whole(self, name: str, record: Record, text: str) -> None:
        """Report a hang as it was found: each step of shrinking it would last to the limit."""
        if name not in self._known:
            self._known.add(name)
            self._outbox.send(Shrunk(record, text))

    def _judged(self, case: Case, text: str) -> list[Record]:
        """Judge a text once; while shrinking, ask only the oracle that is being shrunk."""
        wanted = self._wanted.split()[0] if self._wanted else ""
        oracles = NEEDS.get(wanted, (wanted,)) if wanted else self._job.oracles
        if self._wanted and self._wanted.split()[1] == "crash":
            oracles = self._job.oracles  # any of them may be to blame
        key = (case_id(text), wanted)
        if key not in self._seen:
            self._drawn += not wanted
            answer = self._judge.call(request(text, oracles))
            if isinstance(answer, Lost):
                answer = [_lost(case, text, answer)]
            elif self._device is not None and wanted in ("", "gpu") and _was_built(answer):
                answer = answer + self._device.judge(case, text)
            phase = "shrink" if wanted else "generate"
            self._seen[key] = [replace(record, phase=phase) for record in answer]
            self._outbox.send(Judged(self._seen[key], text))
        return self._seen[key]

    def _seed(self, number: int) -> int:
        job = self._job
        words = f"{job.seed}/{job.shard}/{job.worker}/{number}"
        return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8])


def _was_built(records: list[Record]) -> bool:
    return all(record.status == "pass" for record in records if record.oracle == "build")


def _lost(case: Case, text: str, lost: Lost) -> Record:
    """Record that the judges themselves crashed or hung on a case."""
    return replace(
        blank_record(case, text),
        status="error",
        kind=lost.kind,
        reason=lost.reason,
        seconds=LIMIT_S if lost.kind == "hang" else 0.0,
    )
