"""One driver: a Hypothesis engine in its own process, with a judge child of its own.

It judges what has failed before and one case of every schedule family; then it draws cases round
after round until the time is over, and sends every record through a pipe.  Of cases that fail for
one cause it makes the first as small as it can be, at once, and goes on drawing.
"""

from __future__ import annotations

import hashlib
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, reject, seed, settings

from fuzz.budget import LARGE_CASES, LARGE_SHARE, Budget, proof_s
from fuzz.campaign import gpu
from fuzz.campaign.child import (
    DRAWING,
    LIMIT_S,
    OVERHEAD,
    Child,
    Lost,
    account,
    add,
    seldom_collected,
)
from fuzz.campaign.judge import request
from fuzz.campaign.mutants import REFUSED, judge_family, representative, taken
from fuzz.campaign.record import FAILED, SKIPPED, Cell, Record, failures, signature
from fuzz.campaign.recorder import BY_DEFAULT, blank_record
from fuzz.cases.calls import called
from fuzz.cases.case import Case, from_text, to_text
from fuzz.cases.features import ROUND, WISHES, Coverage
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases
from fuzz.failures.identity import scheduler
from fuzz.failures.judge import LEAST, STEP, judge_text
from fuzz.failures.shrink import SEEDED_STEPS, STEPS, least
from oracles.verdict import HANGING

SHRINK_S = 90.0
"""Time in which one failure is made smaller, at most, also where the campaign ends in it."""
CORPUS_SHARE = 0.2
"""Part of the time in which cases of the corpus begin."""
MUTANT_SHARE = 0.1
"""Part of the time in which mutants begin, in a driver that is asked for them."""
DRAWN_SHARE = 0.6
"""Part of the time that is left for cases to be drawn in, however long the others have taken."""

FRESH = ("operation", "schedule", "sharing")
"""Parts of the table of cells that each judge is to meet early, whatever its share of the time."""

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
    (which part of how many, counted from 1), number of workers and `most` draw the same cases:
    what the time allows differs, and so does what is rare.
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
    scheduler: str = ""

    @property
    def repros(self) -> Path:
        """Folder of the scripts of failures."""
        return self.ledger.parent / "repros"


@dataclass(frozen=True, slots=True)
class Job:
    """What one driver is to do of a plan.

    Texts of the `corpus`, by name, are judged first, then the cases `bases`
    (`fuzz.campaign.mutants.representative`), then mutants of every family for a part of the time,
    if they are asked for; an interrupted run has finished the rounds that are `done`.
    """

    plan: Plan
    worker: int
    corpus: dict[str, str]
    bases: tuple[str, ...]
    mutants: bool
    done: frozenset[int]


@dataclass(frozen=True, slots=True)
class Judged:
    """Records of one case, with its text; of a drawn one, the cells of the table that it is in."""

    records: list[Record]
    text: str
    cells: frozenset[Cell] = frozenset()


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
    """A round is over; `complete` unless the time ran out in it; how often each cell was drawn."""

    number: int
    complete: bool
    counts: Counter[Cell] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Ready:
    """The judge is loaded and the time begins."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The driver itself failed."""

    trace: str


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds by part, of a driver and its children, at its end; of these for large cases."""

    seconds: dict[str, float]
    large_s: float = 0.0


Message = Ready | Judged | Shrunk | Skipped | Round | Broken | Spent


class TimeOver(KeyboardInterrupt):
    """The campaign is over, or the search for a smaller case; Hypothesis lets it pass."""


def drive(job: Job, outbox: Connection, others: Callable[[], Counter[Cell]] = Counter) -> None:
    """Do a job; the body of a process.  What `others` have drawn this driver asks for less."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seldom_collected()
    try:
        with ExitStack() as stack:
            timed = partial(judge_text, proof_s=proof_s(job.plan.seconds))
            judge = stack.enter_context(Child(timed))
            device = stack.enter_context(gpu.Device(job.worker)) if job.plan.gpu else None
            engine = Engine(job, outbox.send, judge.call, device, judge.spent, others)
            engine.run()
            add(judge.spent, account.close())
            outbox.send(Spent(judge.spent, engine.large_s))
    except BrokenPipeError:
        return
    except BaseException as error:
        outbox.send(Broken("".join(traceback.format_exception(error))))
    finally:
        outbox.close()


class Engine:
    """The work of one driver: `judge` judges elsewhere, `send` takes what is to be written.

    `spent` are the CPU seconds of the judges so far, by part; `others` says how often drivers
    beside this one have drawn each cell.
    """

    def __init__(
        self,
        job: Job,
        send: Callable[[Message], None],
        judge: Callable[[str], list[Record] | Lost],
        device: gpu.Device | None,
        spent: Mapping[str, float] | None = None,
        others: Callable[[], Counter[Cell]] = Counter,
    ) -> None:
        self._job, self._plan = job, job.plan
        self._send = send
        self._judge = judge
        self._device = device
        self._known: set[str] = set()
        self._seen: set[str] = set()
        self._deadline = float("inf")
        self._drawn = 0
        shard, shards = job.plan.shard
        self._coverage = Coverage((shard - 1, shards))
        self._others = others
        self._budget = Budget({} if spent is None else spent)

    @property
    def large_s(self) -> float:
        """CPU seconds of large cases."""
        return self._budget.large_s

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
            bad = self._given(case, "corpus")
            if bad and signature(bad[0]) not in self._known:
                self._report(case, text, bad)

    def judge_bases(self) -> None:
        """Judge the representatives, so that neither family nor operation is left to chance."""
        for family in self._job.bases:
            case = representative(family)
            # Of one that is refused no script of the case alone can show anything.
            bad = [r for r in self._given(case, "base") if r.kind != REFUSED]
            self._reduce(case, to_text(case), bad)

    def _given(self, case: Case, phase: str) -> list[Record]:
        """Judge a case that nobody drew, and return its failures."""
        return failures(self._ask(case, to_text(case), self._plan.oracles, phase))

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
        """Draw a round of cases; tell whether there is time for another.

        A campaign that ends by its number of cases draws the same ones each time, whatever others
        have drawn meanwhile.
        """
        if self._plan.most is None:
            self._coverage.others = self._others()
        wishes = self._coverage.rarest(WISHES, self._seed(number))
        test = settings(
            max_examples=ROUND,
            deadline=None,
            database=None,  # it holds nothing for seeded tests; see `fuzz.campaign.corpus`
            phases=(Phase.generate,),  # `fuzz.failures.shrink` makes cases smaller, drawn or not
            print_blob=False,
            # Shared cores make drawing slow now and then; that is no fault of a strategy.
            # Hypothesis likes to repeat itself, and is told each time.
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
        )(given(cases(wishes=wishes))(self.check_fresh))
        repeats, in_time = self._coverage.repeats, True
        account.turn(DRAWING)
        try:
            seed(self._seed(number))(test)()
        except TimeOver:
            in_time = False
        account.turn(OVERHEAD)
        repeats = self._coverage.repeats - repeats
        if repeats:
            why = "the same kernels at the same class of extents were judged before"
            self._send(Skipped(repeats, "repeats", why))
        self._send(Round(number, in_time, self._coverage.counts))
        return in_time

    def check_fresh(self, case: Case) -> None:
        """Judge one drawn case, if it is no repeat of another; see `check`."""
        if self._coverage.knows(case):
            reject()
        if self._plan.most is None and self._budget.leaves(self._coverage.size, self._features()):
            self._coverage.forget()
            why = f"they had more than {100 * LARGE_SHARE:.0f} % of the time"
            self._send(Skipped(1, LARGE_CASES, why))
            return
        self.check(case)

    def _features(self) -> list[Cell]:
        """Return what of the latest case each judge is to meet."""
        return [cell for cell in self._coverage.latest if cell[0] in FRESH]

    def check(self, case: Case) -> None:
        """Judge one drawn case; make it as small as it can be if it fails in a new way."""
        account.turn(OVERHEAD)
        try:
            self._check(case)
        finally:
            account.turn(DRAWING)

    def _check(self, case: Case) -> None:
        enough = self._plan.most is not None and self._drawn >= self._plan.most
        if time.time() > self._deadline or enough:
            raise TimeOver
        text = to_text(case)
        if text in self._seen:
            return
        self._seen.add(text)
        self._drawn += 1
        skipped = self._skipped()
        asked = [oracle for oracle in self._plan.oracles if oracle not in skipped]
        with self._budget.judging(self._coverage.size):
            records = self._ask(case, text, asked, "generate")
        if skipped:
            blank = replace(blank_record(case, text), status=SKIPPED)
            left = [replace(blank, oracle=name, reason=why) for name, why in skipped.items()]
            self._send(Judged(left, text))
        self._reduce(case, text, failures(records))

    def _skipped(self) -> dict[str, str]:
        """Return the oracles that the case drawn last does not go to, and why.

        A campaign that ends by its number of cases has time for all of them.
        """
        if self._plan.most is not None:
            return {}
        out = self._budget.skipped(self._features())
        return {name: out[name] for name in self._plan.oracles if name in out}

    def _reduce(self, case: Case, text: str, bad: list[Record]) -> None:
        """Make a failing case small, and report it; a hang as it was found.

        Each step of shrinking a hang would last to the limit.
        """
        fresh = [record for record in bad if signature(record) not in self._known]
        if not bad or bad[0] not in fresh:  # what follows from a known failure is none of its own
            return
        wanted = bad[0]
        if wanted.kind != "hang":
            case, text = self._least(case, wanted)
        self._report(case, text, bad)

    def _least(self, case: Case, wanted: Record) -> tuple[Case, str]:
        """Return the least case found in time that fails like `wanted`."""
        end = time.time() + min(SHRINK_S, self._plan.seconds)
        oracles = needed(wanted, self._plan.oracles)
        steps = SEEDED_STEPS if wanted.subject.startswith(BY_DEFAULT) else STEPS
        found = [case]

        def fails(smaller: Case) -> bool:
            if time.time() > end:
                raise TimeOver
            text = to_text(smaller)
            said = failures(self._ask(smaller, text, oracles, "shrink", head=STEP, like=wanted))
            # Without its cause what hangs on rounding would not be judged at all.
            open_ = HANGING in wanted.reason
            alike = any(_alike(r, wanted) and (open_ or HANGING not in r.reason) for r in said)
            found.extend([smaller] * alike)
            return alike

        with suppress(TimeOver):
            # The call that fails is a case, too, and has no other ones to be judged on the way.
            other = called(case, wanted.subject)
            least(other if other is not None and fails(other) else case, fails, steps)
        return found[-1], to_text(found[-1])

    def _report(self, case: Case, text: str, bad: list[Record]) -> None:
        """Report what a least case shows, with its kernel and witness; know all of it from now on.

        A failure that does not come back is reported as it was found.
        """
        if not bad:
            return
        wanted = bad[0]
        self._known.add(signature(wanted))
        if wanted.kind == "hang":
            self._send(Shrunk(wanted, text))
            return
        said = failures(
            self._ask(case, text, self._plan.oracles, "shrink", head=LEAST, like=wanted)
        )
        self._known |= {signature(record) for record in said}
        alike = [record for record in said if _alike(record, wanted)]
        self._send(Shrunk((alike or said or bad)[0], text))

    def _ask(
        self,
        case: Case,
        text: str,
        oracles: Sequence[str],
        phase: str,
        *,
        head: str = "# oracles: ",
        like: Record | None = None,
    ) -> list[Record]:
        """Judge a case, and report it; the death of a judge is a record like any other."""
        device = self._device if like is None or like.oracle == "gpu" else None
        answer = self._judge(f"{head}{', '.join(oracles)}\n{text}")
        if isinstance(answer, Lost):
            answer = [_lost(case, text, answer)]
        elif device is not None and _was_built(answer):
            answer = answer + [replace(r, cause=scheduler(r)) for r in device.judge(case, text)]
        answer = [replace(record, phase=phase) for record in answer]
        answer = taken(answer) if phase == "base" else answer
        if like is not None:  # whatever its last case names first, it is the same failure
            answer = [replace(r, cause=like.cause) if _alike(r, like) else r for r in answer]
        drawn = self._coverage.latest if phase == "generate" else frozenset()
        self._send(Judged(answer, text, drawn))
        return answer

    def _seed(self, number: int) -> int:
        words = f"{self._plan.seed}/{self._plan.shard[0]}/{self._job.worker}/{number}"
        return int.from_bytes(hashlib.sha256(words.encode()).digest()[:8])


def needed(wanted: Record, every: Sequence[str]) -> Sequence[str]:
    """Return which oracles must be asked again to see a failure again."""
    launched = wanted.subject and not wanted.subject.startswith(BY_DEFAULT)
    if wanted.kind in ("crash", "memory") or (wanted.oracle == "build" and launched):
        return every  # any of them may be to blame, or only some of them launch anything
    return NEEDS.get(wanted.oracle, (wanted.oracle,))


def _alike(record: Record, wanted: Record) -> bool:
    """Tell whether a record fails like another one."""
    return record.status in FAILED and (record.oracle, record.kind) == (wanted.oracle, wanted.kind)


def _was_built(records: list[Record]) -> bool:
    return all(record.status == "pass" for record in records if record.oracle == "build")


def _lost(case: Case, text: str, lost: Lost) -> Record:
    return replace(
        blank_record(case, text),
        status="error",
        kind=lost.kind,
        reason=lost.reason,
        cause=lost.judge,
        seconds=LIMIT_S if lost.kind == "hang" else 0.0,
    )
