"""One driver: a Hypothesis engine in its own process, with a judge child of its own.

It judges what has failed before and one case of every schedule family; then it draws cases round
after round until the time is over, sends every record through a pipe, and lets Hypothesis shrink
what fails without slipping from one failure to another.
"""

from __future__ import annotations

import hashlib
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky

from fuzz.campaign import gpu
from fuzz.campaign.child import DRAWING, LIMIT_S, OVERHEAD, Child, Lost, account, add
from fuzz.campaign.judge import judge_text, request
from fuzz.campaign.mutants import REFUSED, judge_family, representative, taken
from fuzz.campaign.record import TITLES, Record, signature
from fuzz.campaign.recorder import blank_record
from fuzz.campaign.repro import FAILED
from fuzz.cases.case import Case, case_id, from_text, to_text
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases

ROUND = 150
"""Cases that an engine draws before it begins anew with another seed."""
SHRINK_S = 45.0
"""Time after the end, at most, in which a failure found before it may still be shrunk."""
CORPUS_SHARE = 0.2
"""Part of the time in which cases of the corpus begin."""
MUTANT_SHARE = 0.2
"""Part of the time in which mutants begin, in a driver that is asked for them."""
DRAWN_SHARE = 0.6
"""Part of the time that is left for cases to be drawn in, however long the others have taken."""

NEEDS: dict[str, tuple[str, ...]] = {
    "agreement": ("prover", "simulator", "agreement"),
    "build": (),
    "gpu": (),
}
"""What must be asked again while a failure of an oracle is shrunk, if not that oracle alone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for, an option of `main` each.

    Cases begin for so many seconds; a driver ends before that after `most`.  The same seed, shard
    (which part of how many, counted from 1) and number of workers draw the same cases.
    """

    seconds: float
    most: int | None
    seed: int
    oracles: tuple[str, ...]
    workers: int
    shard: tuple[int, int]
    ledger: Path
    gpu: bool
    mutants: bool
    resume: bool

    @property
    def repros(self) -> Path:
        """Folder of the scripts of failures."""
        return self.ledger.parent / "repros"


@dataclass(frozen=True, slots=True)
class Job:
    """What one driver is to do of a plan.

    Texts of the `corpus`, by name, are judged first, then the representatives of the families
    `bases`, then mutants of every family for a part of the time, if they are asked for; an
    interrupted run has finished the rounds that are `done`.
    """

    plan: Plan
    worker: int
    corpus: dict[str, str]
    bases: tuple[str, ...]
    mutants: bool
    done: frozenset[int]


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
class Skipped:
    """What was to be judged and was not."""

    count: int
    what: str
    why: str


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


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds by part, of a driver and its children, at its end."""

    seconds: dict[str, float]


Message = Ready | Judged | Shrunk | Skipped | Round | Broken | Spent


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
            device = stack.enter_context(gpu.Device()) if job.plan.gpu else None
            Engine(job, outbox.send, judge.call, device).run()
            add(judge.spent, account.close())
            outbox.send(Spent(judge.spent))
    except BrokenPipeError:
        return
    except BaseException as error:
        outbox.send(Broken("".join(traceback.format_exception(error))))
    finally:
        outbox.close()


def failures(records: Sequence[Record]) -> list[Record]:
    """Return the failures of a case, one per signature, in the order of `TITLES`.

    Where prover and simulator both refute a kernel they agree about it, also if the simulator finds
    nothing at the trip counts that the prover names: that is no failure of its own.
    """
    refuted = {
        (r.oracle, r.subject.split()[0]) for r in records if r.status == "fail" and r.subject
    }
    found: dict[str, Record] = {}
    for record in records:
        both = {("prover", record.subject), ("simulator", record.subject)} <= refuted
        if record.status in FAILED and not (record.oracle == "agreement" and both):
            found.setdefault(signature(record), record)
    return sorted(found.values(), key=lambda record: TITLES.index(record.oracle))


class Engine:
    """The work of one driver: `judge` judges elsewhere, `send` takes what is to be written."""

    def __init__(
        self,
        job: Job,
        send: Callable[[Message], None],
        judge: Callable[[str], list[Record] | Lost],
        device: gpu.Device | None,
    ) -> None:
        self._job, self._plan = job, job.plan
        self._send = send
        self._judge = judge
        self._device = device
        self._known: set[str] = set()
        self._seen: dict[tuple[str, str], list[Record]] = {}
        self._deadline = float("inf")
        self._drawn = 0
        self._wanted: Record | None = None
        self._least: tuple[Record, str] | None = None

    def run(self) -> None:
        """Judge the corpus, the bases and their mutants, then cases until the time is over."""
        self._judge(request(gpu.PROBE, ()))
        account.close()
        self._send(Ready())
        start, seconds = time.time(), self._plan.seconds
        self.replay(start + CORPUS_SHARE * seconds)
        self.judge_bases()
        if self._job.mutants:
            self._mutants(time.time() + MUTANT_SHARE * seconds)
        self._deadline = max(start + seconds, time.time() + DRAWN_SHARE * seconds)
        for number in count():
            if number not in self._job.done and not self._round(number):
                return

    def replay(self, until: float) -> None:
        """Judge the corpus; say what is no case any more, and what there is no time for."""
        for number, (name, text) in enumerate(self._job.corpus.items()):
            if time.time() > until:
                left = len(self._job.corpus) - number
                self._send(Skipped(left, "of the corpus", "no time left"))
                return
            try:
                case = from_text(text)
            except Exception as error:
                why = f"{name} is no case any more: {type(error).__name__}: {error}"
                self._send(Skipped(1, "of the corpus", why))
                continue
            # As small as it can be: what fails in the same way need not be found again.
            self._known |= {signature(record) for record in self._given(case, "corpus")}

    def judge_bases(self) -> None:
        """Judge the representatives, so that no family is left to chance."""
        for family in self._job.bases:
            self._given(representative(family), "base")

    def _given(self, case: Case, phase: str) -> list[Record]:
        """Judge a case that nobody drew; report, and return, its failures."""
        text = to_text(case)
        bad = failures(self._ask(case, text, self._plan.oracles, phase))
        for record in bad:
            if record.kind != REFUSED:  # which no script of the case alone can show
                self._send(Shrunk(record, text))
        return bad

    def _mutants(self, until: float) -> None:
        with Child(judge_family) as child:
            # Which family comes first differs, for those that short campaigns reach.
            first = self._plan.seed % len(FAMILIES)
            for position, family in enumerate(FAMILIES[first:] + FAMILIES[:first]):
                left = max(until - time.time(), 0.0)
                result = child.call(f"{family} {left / (len(FAMILIES) - position):.3f}")
                if isinstance(result, Lost):
                    case = representative(family)
                    text = to_text(case)
                    lost = replace(_lost(case, text, result), oracle="mutant", phase="base")
                    self._send(Judged([lost], text))
                    continue
                self._send(Judged(result.records, result.text))
                if any(r.status != "pass" for r in result.records if not r.mutant):
                    why = f"the kernel of {family} itself does not pass"
                    self._send(Skipped(1, "family of mutants", why))
                elif result.left:
                    self._send(Skipped(result.left, "mutants", "no time left"))
            add(account.spent, {"mutants": sum(child.spent.values())})

    def _round(self, number: int) -> bool:
        """Draw a round of cases; tell whether there is time for another."""
        self._wanted = self._least = None
        test = settings(
            max_examples=ROUND,
            deadline=None,
            database=None,  # it holds nothing for seeded tests; see `fuzz.campaign.corpus`
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            print_blob=False,
            # Shared cores make drawing slow now and then; that is no fault of a strategy.
            suppress_health_check=(HealthCheck.too_slow,),
        )(given(cases())(self.check))
        in_time = True
        account.turn(DRAWING)
        try:
            seed(self._seed(number))(test)()
        except (Failure, Flaky):
            pass
        except TimeOver:
            in_time = False
        account.turn(OVERHEAD)
        if self._least is not None:
            record, text = self._least
            self._known.add(signature(record))
            self._send(Shrunk(record, text))
        self._send(Round(number, in_time))
        return in_time

    def check(self, case: Case) -> None:
        """Judge one drawn case; raise where it fails in a new way, or in the one being shrunk."""
        account.turn(OVERHEAD)
        try:
            self._check(case)
        finally:
            account.turn(DRAWING)

    def _check(self, case: Case) -> None:
        wanted = self._wanted
        grace = min(SHRINK_S, self._plan.seconds) if wanted else 0.0
        enough = self._plan.most is not None and self._drawn >= self._plan.most
        if time.time() > self._deadline + grace or (enough and not wanted):
            raise TimeOver
        text = to_text(case)
        bad = {signature(record): record for record in failures(self._judged(case, text))}
        for hung in [name for name, record in bad.items() if record.kind == "hang"]:
            self._keep_whole(hung, bad.pop(hung), text)
        fresh = (name for name in bad if name not in self._known)
        name = signature(wanted) if wanted else next(fresh, None)
        if name is None or name not in bad:
            return
        self._wanted, self._least = wanted or bad[name], (bad[name], text)
        raise failure_class(name)(bad[name].reason)

    def _keep_whole(self, name: str, record: Record, text: str) -> None:
        """Report a hang as it was found: each step of shrinking it would last to the limit."""
        if name not in self._known:
            self._known.add(name)
            self._send(Shrunk(record, text))

    def _judged(self, case: Case, text: str) -> list[Record]:
        """Judge a text once; while shrinking, ask only what the failure is of."""
        wanted = self._wanted
        key = (case_id(text), signature(wanted) if wanted else "")
        if key not in self._seen:
            self._drawn += not wanted
            oracles = needed(wanted, self._plan.oracles) if wanted else self._plan.oracles
            phase = "shrink" if wanted else "generate"
            self._seen[key] = self._ask(case, text, oracles, phase)
        return self._seen[key]

    def _ask(self, case: Case, text: str, oracles: Sequence[str], phase: str) -> list[Record]:
        """Judge a case, and report it; the death of a judge is a record like any other."""
        device = self._device if self._wanted is None or self._wanted.oracle == "gpu" else None
        answer = self._judge(request(text, oracles))
        if isinstance(answer, Lost):
            answer = [_lost(case, text, answer)]
        elif device is not None and _was_built(answer):
            answer = answer + device.judge(case, text)
        answer = [replace(record, phase=phase) for record in answer]
        answer = taken(answer) if phase == "base" else answer
        self._send(Judged(answer, text))
        return answer

    def _seed(self, number: int) -> int:
        words = f"{self._plan.seed}/{self._plan.shard[0]}/{self._job.worker}/{number}"
        return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8])


def needed(wanted: Record, every: Sequence[str]) -> Sequence[str]:
    """Return which oracles must be asked again to see a failure again."""
    if wanted.kind == "crash" or (wanted.oracle == "build" and wanted.subject):
        return every  # any of them may be to blame, or only some of them launch anything
    return NEEDS.get(wanted.oracle, (wanted.oracle,))


def _was_built(records: list[Record]) -> bool:
    return all(record.status == "pass" for record in records if record.oracle == "build")


def _lost(case: Case, text: str, lost: Lost) -> Record:
    return replace(
        blank_record(case, text),
        status="error",
        kind=lost.kind,
        reason=lost.reason,
        seconds=LIMIT_S if lost.kind == "hang" else 0.0,
    )
