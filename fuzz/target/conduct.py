"""A search for failures of `torch.compile`: one Hypothesis engine, one child, one ledger.

Cases are those of a campaign, as far as they are fusions: schedules mean nothing here.  Of cases
that fail for one cause the first is made as small as it goes, and written as a script; the others
are counted.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import click
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from rich.console import Console

from fuser.schedule.params import PointwiseParams
from fuzz.campaign.child import Child, Lost
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.ledger import Fact, Ledger
from fuzz.campaign.record import Record, signature
from fuzz.campaign.summary import covered
from fuzz.cases.case import Case, case_id, to_text
from fuzz.cases.features import WISHES, Coverage, legal, live, operations, pairs
from fuzz.cases.strategies import cases
from fuzz.exit_code import CLEAN, FAILED, HARNESS, INTERRUPTED, Command, writing
from fuzz.failures import shrink
from fuzz.target.judge import FUSED, Answer, blank_record, calls, judge_text, request
from fuzz.target.script import EAGER, Target, script

PARTS = ("operation", "pair")
"""Parts of the coverage table that are about fusions, whatever their schedule."""
ROUND = 150
"""Cases that an engine draws before it asks for other cells."""
SHRINK_S = 60.0
"""Time in which one failure is made smaller, at most, also where the search ends in it."""
LIMIT_S, WALL_S = 240.0, 480.0
"""CPU seconds, and seconds by the clock, of one case.  The first one compiles the headers of
inductor, and takes up to 30 s; the others take one or two (measured)."""
MEMORY = 6 << 30
"""Bytes of memory of the child, at most."""
PRELOAD = ("torch", "torch._inductor.compile_fx", "fuzz.target.judge")
"""What the fork server loads once."""
FUSED_MOST = 6
"""Failures that no operation is to blame for, of which the least cases are looked for."""
REPLAY_S = 120.0
"""Seconds in which a script that was written must show its failure again."""
SHARE = 0.9
"""Share of the answers about the target that must be a pass or a fail in a green search."""
SPARE = 2
"""Cases that may fall short of it in any search."""
STATUS_S = 30.0
"""Seconds between two lines of progress."""
PLAIN = PointwiseParams((1, 256), 4, 2, None, "direct", "direct")
"""The schedule in the text of every case: a case has one, and nobody here looks at it."""


def plain_inputs(case: Case) -> Iterator[Case]:
    """Take reals alone, where the first call passes; no gaps, no offset, and the first seed."""
    if case.kind == "integers":
        yield replace(case, kind="reals", seed=case.seed + 1)
    yield replace(case, gap=0)
    yield replace(case, offset=0)
    yield replace(case, seed=0)


STEPS: tuple[shrink.Step, ...] = (
    shrink.one_output,
    shrink.given,
    shrink.left_out,
    plain_inputs,
    shrink.shorter,
    shrink.plain_operations,
    shrink.fewer_axes,
    shrink.plain_types,
)
"""What is tried on the way to a least case: what is not about kernels of ours."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for; the same seed draws the same cases."""

    seconds: float
    most: int | None
    seed: int
    backend: str
    device: str
    ledger: Path


class _TimeOver(KeyboardInterrupt):
    """The search is over, or that for a smaller case; Hypothesis lets it pass."""


@dataclass
class Search:
    """A run in progress."""

    plan: Plan
    child: Child[Answer]
    book: Ledger
    run: str
    console: Console
    records: list[Record] = field(default_factory=list)
    found: dict[str, Path] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    seen: set[str] = field(default_factory=set)
    start: float = field(default_factory=time.monotonic)
    said: float = 0.0

    def draw(self) -> None:
        """Draw rounds of cases until the time is over."""
        with suppress(_TimeOver):
            for number in count():
                words = f"{self.plan.seed}/{number}"
                first = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8])
                rarest = self.coverage.rarest(len(legal()), first)
                wishes = tuple(cell for cell in rarest if cell[0] in PARTS)
                test = settings(
                    max_examples=ROUND,
                    deadline=None,
                    database=None,
                    phases=(Phase.generate,),
                    print_blob=False,
                    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
                )(given(cases(wishes=wishes[:WISHES]))(self.check))
                seed(first)(test)()

    def check(self, drawn: Case) -> None:
        """Judge one drawn case, unless it differs from an earlier one in its schedule alone."""
        case = replace(drawn, params=PLAIN)
        text = to_text(case)
        lasted = time.monotonic() - self.start
        enough = self.plan.most is not None and len(self.seen) >= self.plan.most
        if lasted > self.plan.seconds or enough:
            raise _TimeOver
        if text in self.seen:
            return
        if lasted - self.said > STATUS_S:
            self.said = lasted
            self.console.print(f"{lasted:4.0f} s: {self.line()}")
        self.seen.add(text)
        answer = self.ask(case, "generate")
        failed = [record for record in answer.records if record.status == "fail"]
        for name, record in {signature(record): record for record in reversed(failed)}.items():
            self.report(case, name, record, answer)

    def ask(self, case: Case, phase: str) -> Answer:
        """Judge a case in the child, whose end is a record like any other, and write it down."""
        target = self.target(case)
        answer: Answer | Lost
        try:
            answer = self.child.call(request(target, case))
        except Exception as error:  # of the judge itself
            blank = blank_record(case, self.plan.backend)
            says = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            answer = Answer([replace(blank, status="error", kind="judge", reason=says)])
        if isinstance(answer, Lost):
            # Eager torch comes first: of a child that ends in the target, it has run.
            subject = answer.judge or self.plan.backend
            how = re.sub(r" while .*| within .*|[0-9]+ MiB.*", "", answer.reason)
            lost = replace(
                blank_record(case, subject),
                status="fail" if answer.judge else "error",
                kind=answer.kind,
                reason=answer.reason,
                cause=f"{subject} {how}".strip(),
            )
            text = script(target, [*calls(target, case)], subject, answer.reason, ends=True)
            answer = Answer([lost], {subject: text})
        said = [replace(record, phase=phase) for record in answer.records]
        cells = operations(case.fusion) | pairs(case.fusion) if phase == "generate" else set()
        self.coverage.counts.update(cells)
        self.book.append(self.run, said, text=to_text(case), cells=cells)
        if phase == "generate":
            self.records += said
        return Answer(said, answer.scripts)

    def report(self, case: Case, name: str, wanted: Record, answer: Answer) -> None:
        """Count a failure by its signature; of a new one write the script of its least case.

        One that no operation is to blame for is called by the operations of its least case.
        """
        self.times[name] += 1
        fused = name.endswith(FUSED)
        if self.times[name] > (FUSED_MOST if fused else 1):
            return
        least = {to_text(case): (case, wanted, answer)}
        end = time.monotonic() + min(SHRINK_S, self.plan.seconds)

        def fails(smaller: Case) -> bool:
            if time.monotonic() > end:
                raise _TimeOver
            again = self.ask(smaller, "shrink")
            alike = [record for record in again.records if signature(record) == name]
            least.update({to_text(smaller): (smaller, record, again) for record in alike[:1]})
            return bool(alike)

        if wanted.kind != "hang":  # each step would last to the limit
            with suppress(_TimeOver):
                shrink.least(case, fails, STEPS)
        case, wanted, answer = [*least.values()][-1]
        text = to_text(case)
        if fused:
            name += f": {' '.join(sorted({tv.op for tv in live(case.fusion)} - {'input'}))}"
            if name in self.found:
                return
        words = re.sub(r"[^a-z0-9]+", "_", name.lower())[:60].strip("_")
        path = self.plan.ledger.parent / "repros" / f"{words}_{case_id(text)}.py"
        with writing(f"repro {str(path)!r}", path, "name another --ledger"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(answer.scripts[wanted.subject], encoding="utf-8")
        self.book.add_repro(self.run, name, wanted.case, str(path))
        self.found[name] = path
        again = "" if shown_alone(path) else " (passes when it runs alone: look at the ledger)"
        self.console.print(f"{name}: {path}{again}", markup=False)

    def target(self, case: Case) -> Target:
        """Return who is asked about a case: one in two with extents left open.

        The lowest bit of the seed says whether reals have special values, which both are to meet.
        """
        return Target(self.plan.backend, self.plan.device, dynamic=bool(case.seed // 2 % 2))

    def line(self) -> str:
        """Return one line of progress."""
        lasted = time.monotonic() - self.start
        speed = len(self.seen) / max(lasted, 1e-9)
        return f"{len(self.seen)} cases, {speed:.2f} per second; {len(self.times)} causes"

    def statuses(self, subject: str) -> Counter[str]:
        """Count what was said of a subject."""
        return Counter(record.status for record in self.records if record.subject == subject)

    def shortfalls(self) -> Iterator[str]:
        """Say what was asked and not judged."""
        said = self.statuses(self.plan.backend)
        judged, asked = said["pass"] + said["fail"], len(self.seen)
        if not judged or (asked - judged > SPARE and judged < SHARE * asked):
            yield (
                f"{judged} of {asked} cases are judged before {self.plan.backend}, "
                f"at least {100 * SHARE:g} % are to be"
            )
        if broken := sum(record.status == "error" for record in self.records):
            yield f"{broken} cases broke the judge"

    def summary(self) -> Iterator[str]:
        """Yield the last lines."""
        for subject in (EAGER, self.plan.backend):
            said = self.statuses(subject)
            names = ("pass", "fail", "unknown", "unsupported")
            checked = sum(r.checked for r in self.records if r.subject == subject)
            counts = ", ".join(f"{said[name]} {name}" for name in names)
            yield f"{subject}: {counts}; {checked} elements checked"
        refused = Counter(
            f"{record.subject} {record.status}: {re.sub('[0-9]+', '#', line)[:120]}"
            for record in self.records
            if record.status in ("unsupported", "unknown", "error")
            for line in (record.reason or "nothing").splitlines()[:1]
        )
        yield from (f"  {many} x {what}" for what, many in refused.most_common())
        yield covered(self.book.cells(self.run))
        yield self.line()
        for name, many in self.times.most_common():
            scripts = [str(path) for of, path in self.found.items() if of.startswith(name)]
            yield f"{name}: {many} cases; {', '.join(scripts)}"

    def exit_code(self) -> int:
        """Return the exit code that the records so far ask for."""
        if self.times:
            return FAILED
        return HARNESS if any(self.shortfalls()) else CLEAN


def shown_alone(path: Path) -> bool:
    """Tell whether a script still fails in a process of its own."""
    try:
        words = [sys.executable, str(path)]
        done = subprocess.run(words, capture_output=True, timeout=REPLAY_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode == FAILED


def conduct(plan: Plan, console: Console) -> int:
    """Run a search and return its exit code."""
    with (
        Ledger(plan.ledger) as book,
        tempfile.TemporaryDirectory() as cache,
    ):
        # Of this run alone, and inherited by the child: what an earlier one compiled is not asked.
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        facts: dict[str, Fact] = {"seed": plan.seed, "target": plan.backend, "device": plan.device}
        run = book.start(f"{plan.backend}-seed{plan.seed}", facts | versions() | machine())
        book.expect(run, (cell for cell in legal() if cell[0] in PARTS))
        console.print(
            f"fuzz.target: run {run}, {plan.seconds:g} s, torch {torch.__version__}, "
            f"backend {plan.backend} on {plan.device}",
            markup=False,
        )
        interrupted = False
        cuda = plan.device != "cpu"  # which no process can use that was forked from one with it
        with Child(
            judge_text,
            limit_s=LIMIT_S,
            wall_s=WALL_S,
            memory=None if cuda else MEMORY,
            spawn=cuda,
            preload=PRELOAD,
        ) as child:
            search = Search(plan, child, book, run, console)
            try:
                search.draw()
            except KeyboardInterrupt:
                interrupted = True
        book.note(run, {"elapsed_s": time.monotonic() - search.start})
        for text in search.summary():
            console.print(text, markup=False)
    for text in search.shortfalls():
        console.print(f"not enough was judged: {text}", markup=False, style="red")
    code = INTERRUPTED if interrupted else search.exit_code()
    console.print(f"{'green' if code == CLEAN else 'not green'}; exit code {code}")
    return code


@click.command(cls=Command)
@click.option(
    "--seconds",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Time in which cases begin.",
)
@click.option("--cases", "most", type=click.IntRange(min=1), help="Cases, at most.")
@click.option("--seed", default=0, show_default=True, help="The same seed draws the same cases.")
@click.option(
    "--backend",
    default="inductor",
    show_default=True,
    help="Of torch.compile: a name of torch's, or MODULE:FUNCTION.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=lambda _, __, value: (
        value if value != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    ),
    help="cpu, cuda, or whatever there is.",
)
@click.option(
    "--ledger",
    default=Path("reports", "out", "target", "ledger.sqlite"),
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where records go, apart from those of campaigns; scripts lie beside it.",
)
@click.pass_context
def main(context: click.Context, /, **_: object) -> None:
    """Draw fusions, compile each by torch.compile as a torch function, and judge its results."""
    sys.exit(conduct(Plan(**context.params), Console(soft_wrap=True, highlight=False)))
