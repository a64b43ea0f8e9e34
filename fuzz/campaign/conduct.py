"""A campaign: drivers in processes of their own, one ledger, a summary and a report.

The parent draws nothing and judges nothing; it writes records, so that neither a crash nor a
Ctrl-C loses any.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fuzz import floor
from fuzz.buckets import added_up
from fuzz.campaign import corpus, driver, repro, summary
from fuzz.campaign.child import account, add
from fuzz.campaign.driver import Broken, Judged, Message, Ready, Round, Shrunk, Skipped, Spent
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.judge import CPU_ORACLES
from fuzz.campaign.ledger import Fact, Ledger, ledger_option
from fuzz.campaign.mutants import OPERATIONS
from fuzz.campaign.record import CPU_S, LARGE_S, LEFT, PHASES, SHORT, Record, signature
from fuzz.campaign.record import FAILED as FAILURES
from fuzz.cases.features import legal
from fuzz.cases.params import FAMILIES
from fuzz.exit_code import CLEAN, FAILED, HARNESS, INTERRUPTED, Command, writing
from fuzz.workers.local import Ended, Local, Pool

REPLACED = 3
"""Drivers of a lane that may die before it is given up."""
STATUS_S = 10.0
"""Seconds between status lines where the output is no terminal."""


@dataclass
class Campaign:
    """A run in progress: what came in, and what to show of it."""

    plan: driver.Plan
    book: Ledger
    run: str
    console: Console
    records: list[Record] = field(default_factory=list)
    cases: dict[str, set[str]] = field(default_factory=lambda: {phase: set() for phase in PHASES})
    repros: dict[str, Path] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    bad: set[str] = field(default_factory=set)
    spent: dict[str, float] = field(default_factory=dict)
    large_s: float = 0.0
    start: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the first driver was ready."""
        return time.time() - self.start if self.start else 0.0

    def hear(self, worker: int, message: Message) -> None:
        """Write down what a driver says."""
        match message:
            case Ready():
                if not self.start:
                    account.close()  # what it took to start is no part of a campaign
                self.start = self.start or time.time()
            case Judged(records, text, cells):
                self.book.append(self.run, records, text=text, cells=cells)
                self.records += records
                for r in records:
                    if not r.mutant:
                        self.cases[r.phase].add(r.case)
                for r in summary.ordinary(records):
                    self.passed[r.oracle] += r.status == "pass"
                    self.bad |= {r.case} if r.status in FAILURES else set()
            case Shrunk(record, text):
                failure = signature(record)
                if len(text) >= self.least.get(failure, len(text) + 1):
                    return
                path = repro.write(record, text, folder=self.plan.repros)
                if record.phase in ("generate", "shrink"):
                    corpus.add(self.plan.ledger, record, text)
                self.book.add_repro(self.run, failure, record.case, str(path))
                self.repros[failure], self.least[failure] = path, len(text)
                self.console.print(f"{failure}: {path}")
            case Skipped(count, what, why):
                self.skipped[what, why] += count
            case Round(number, complete, _):
                if complete:
                    self.book.finish_round(self.run, worker, number)
            case Spent(seconds, large_s):
                add(self.spent, seconds)
                self.large_s += large_s
            case Broken(trace):
                self.broken.append(trace)

    @property
    def drawn(self) -> int:
        """Cases that were drawn: neither given ones nor steps of shrinking."""
        return len(self.cases["generate"])

    @property
    def asked(self) -> tuple[str, ...]:
        """Oracles that were asked."""
        return (*self.plan.oracles, *(["gpu"] if self.plan.gpu else []))

    def brief(self) -> str:
        """Return what fits beside a bar."""
        given = len(self.cases["corpus"]) + len(self.cases["base"])
        speed = self.drawn / max(self.elapsed, 1e-9)
        return f"{given} given and {self.drawn} drawn cases, {speed:.1f}/s, {len(self.bad)} bad"

    def line(self) -> str:
        """Return one line of progress."""
        per_oracle = ", ".join(f"{oracle} {self.passed[oracle]}" for oracle in self.plan.oracles)
        steps = len(self.cases["shrink"])
        says = f", {steps} steps of shrinking" if steps else ""
        return f"{self.brief()}{says} ({per_oracle} passed)"

    def exit_code(self) -> int:
        """Return the exit code that the records so far ask for."""
        statuses = {r.status for r in self.records if not r.mutant}
        blind = any(r.oracle == "mutant" and r.status == "fail" for r in self.records)
        if "fail" in statuses or blind:
            return FAILED
        broken = self.broken or any(r.status == "error" for r in self.records)
        short = any(floor.shortfalls(self.records, self.asked))
        return HARNESS if broken or short or not self.drawn else CLEAN


def conduct(plan: driver.Plan, console: Console) -> int:
    """Run a campaign and return its exit code."""
    with _pool(plan) as pool, Ledger(plan.ledger) as book:
        plan = replace(plan, workers=pool.lanes, gpu=plan.gpu and pool.gpu)
        name = f"seed{plan.seed}-{plan.shard[0]}of{plan.shard[1]}-{plan.workers}w"
        facts: dict[str, Fact] = {"seed": plan.seed, "shard": "/".join(map(str, plan.shard))}
        facts |= {**versions(), **machine(), "workers": plan.workers}
        run = book.resume(name) if plan.resume else None
        if run is None:
            run = book.start(name, facts)
        else:
            book.hold()
        book.expect(run, legal())
        before = float(book.facts(run).get("elapsed_s", 0.0))
        campaign = Campaign(plan, book, run, console)
        gpu = "on the device" if plan.gpu else "no device" if not pool.gpu else "off"
        gpu += "" if plan.gpu else ", 0 cases run"
        console.print(f"fuzz: run {run}, {plan.seconds:g} s, {plan.workers} workers; gpu: {gpu}")
        with writing(f"repros {str(plan.repros)!r}", plan.repros, "name another --ledger"):
            plan.repros.mkdir(exist_ok=True)
        interrupted = _listen(campaign, pool)
        judged = summary.rates(campaign.records, campaign.elapsed)
        add(campaign.spent, account.close())
        _note_times(campaign)
        campaign.records = book.records(run)  # with those from before it was resumed
        elapsed = max(campaign.elapsed, 1e-9)
        short = list(floor.shortfalls(campaign.records, campaign.asked))
        book.note(run, {"elapsed_s": before + elapsed, "gpu": gpu, SHORT: "; ".join(short)})
        heard = set().union(*(campaign.cases[phase] for phase in PHASES if phase != "shrink"))
        total, lost = added_up(campaign.records, campaign.asked, heard, book.texts(run))
        campaign.broken += lost
        campaign.repros = {key: Path(path) for key, path in book.repros(run).items()}
        for text in summary.lines(campaign.records):
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        for (what, why), count in campaign.skipped.items():
            console.print(f"not judged: {count} {what}: {why}", markup=False, soft_wrap=True)
        console.print(total, markup=False, soft_wrap=True)
        ran = len({r.case for r in campaign.records if r.oracle == "gpu"})
        console.print(f"gpu: {ran} cases run" if plan.gpu else f"gpu: {gpu}")
        drawn, steps = campaign.drawn, len(campaign.cases["shrink"])
        console.print(
            f"{elapsed:.1f} s, {drawn} cases drawn, {drawn / elapsed:.1f} per second; "
            f"{steps} steps of shrinking"
        )
        console.print(judged)
        console.print(summary.covered(book.cells(run)))
        console.print(summary.shares(campaign.spent))
        console.print(summary.kinds(campaign.spent, campaign.large_s))
    for trace in campaign.broken:
        console.print(trace, markup=False, style="red")
    for text in summary.failing(campaign.records, campaign.repros):
        console.print(text, markup=False, soft_wrap=True)
    for text in short:
        console.print(f"{SHORT}: {text}", markup=False, style="red")
    written = _report(plan.ledger, run, console)
    code = INTERRUPTED if interrupted else campaign.exit_code() if written else HARNESS
    good = f"green: no failure, each family judged by {', '.join(campaign.asked)}"
    console.print(f"{good if code == CLEAN else 'not green'}; exit code {code}")
    return code


def _note_times(campaign: Campaign) -> None:
    """Add to the facts of the run where its time went, and what there was none for."""
    was = campaign.book.facts(campaign.run)
    new: dict[str, float] = {f"{CPU_S} {part}": s for part, s in campaign.spent.items()}
    new |= {LARGE_S: campaign.large_s}
    new |= {f"{LEFT} {what}: {why}": n for (what, why), n in campaign.skipped.items()}
    noted = {name: round(float(was.get(name, 0.0)) + value, 3) for name, value in new.items()}
    campaign.book.note(campaign.run, noted)


def _pool(plan: driver.Plan) -> Pool:
    """Return where the drivers are to run."""
    if not plan.scheduler:
        return Local(plan.workers)
    try:
        cluster = import_module("fuzz.workers.cluster")  # Dask is an extra
    except ModuleNotFoundError as error:
        raise click.UsageError(f"--scheduler: {error}; pip install 'fuser[dask]'") from error
    pool: Pool = cluster.Cluster(plan.scheduler, plan.workers)
    return pool


def _listen(campaign: Campaign, pool: Pool) -> bool:
    """Start the drivers and write down what they say; tell whether the user interrupted."""
    bar = Progress(
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=campaign.console,
        transient=True,
        disable=not campaign.console.is_terminal,
    )
    try:
        with bar:
            _receive(campaign, pool, bar)
    except KeyboardInterrupt:
        campaign.console.print("interrupted; what was judged is in the ledger")
        return True
    except BaseException:
        judged = len(set().union(*campaign.cases.values()))
        campaign.console.print(f"ended early; {judged} judged cases are in the ledger")
        raise
    finally:
        pool.close()
    return False


def _receive(campaign: Campaign, pool: Pool, bar: Progress) -> None:
    """Hear the drivers until all are done, replace those that die, and show how far they are."""
    seconds, console = campaign.plan.seconds, campaign.console
    running = dict.fromkeys(range(pool.lanes), REPLACED)
    for lane in running:
        pool.start(lane, _job(campaign, lane, seconds))
    following, task = STATUS_S, bar.add_task("starting the drivers", total=seconds)
    while running:
        match pool.heard(timeout=0.25):
            case (lane, Ended(early)):
                if early:
                    campaign.broken.append(f"driver {lane + 1} {early}")
                left = seconds - campaign.elapsed
                if early and running[lane] and left > 1:
                    running[lane] -= 1
                    console.print(f"driver {lane + 1} {early}; another goes on for {left:.0f} s")
                    pool.start(lane, _job(campaign, lane, left))
                else:
                    del running[lane]
            case (lane, message):
                campaign.hear(lane, message)
            case None:
                pass
        elapsed = campaign.elapsed
        if elapsed and not bar.disable:
            bar.update(task, completed=elapsed, description=campaign.brief())
        elif elapsed >= following:
            following += STATUS_S
            console.print(f"{elapsed:4.0f} s: {campaign.line()}")


def _job(campaign: Campaign, worker: int, seconds: float) -> driver.Job:
    plan = campaign.plan
    texts = list(corpus.texts(plan.ledger).items())
    return driver.Job(
        replace(plan, seconds=seconds),
        worker,
        corpus=dict(texts[worker :: plan.workers]),
        bases=(*FAMILIES, *OPERATIONS)[worker :: plan.workers],
        mutants=worker == 0 and plan.mutants,
        done=frozenset(campaign.book.rounds(campaign.run, worker)),
    )


def _report(ledger: Path, run: str, console: Console) -> bool:
    """Let the reports room write the page (it may not be imported here); tell whether it did."""
    done = subprocess.run(
        [sys.executable, "-m", "reports", str(ledger), "--run", run],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        console.print(f"the report failed:\n{done.stderr}", markup=False)
    else:
        console.print(f"report: {done.stdout.strip()}", soft_wrap=True)
    return not done.returncode


def shard(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int]:
    """Read a part of parts, 1/16 to 16/16; click.BadParameter if it is none."""
    try:
        part, parts = map(int, value.split("/"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not like 3/16") from None
    if not 1 <= part <= parts:
        raise click.BadParameter(f"{value!r}: the part must be 1..{parts}")
    return part, parts


def _oracles(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in CPU_ORACLES:
            raise click.BadParameter(f"no oracle {name!r}; pick from {', '.join(CPU_ORACLES)}")
    if not names:
        raise click.BadParameter(f"{value!r} asks nobody; pick from {', '.join(CPU_ORACLES)}")
    lacking = {"prover", "simulator"}.difference(names) if "agreement" in names else ()
    if lacking:
        raise click.BadParameter(f"agreement compares two; add {' and '.join(sorted(lacking))}")
    return names


@click.command(cls=Command)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Time in which cases begin.",
)
@click.option("--cases", "most", type=click.IntRange(min=1), help="Cases of a worker, at most.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="The same seed and number of --cases draw the same ones.",
)
@click.option(
    "--oracles",
    default=",".join(CPU_ORACLES),
    show_default=True,
    callback=_oracles,
    help="Who is asked; the compiler always is.",
)
@click.option(
    "--workers",
    default=0,
    show_default="cores, or threads of the scheduler's workers",
    type=click.IntRange(min=0),
    help="Drivers, each with a judge of its own.",
)
@click.option(
    "--scheduler",
    default="",
    metavar="ADDRESS",
    help="Run the drivers on the Dask cluster of this scheduler (pip install 'fuser[dask]').",
)
@click.option(
    "--shard",
    default="1/1",
    show_default=True,
    callback=shard,
    help="Part of parts: each draws other cases; `python -m fuzz.ledger merge` joins the ledgers.",
)
@ledger_option("Where records go; report, scripts and corpus lie beside it.")
@click.option(
    "--gpu",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "off"]),
    callback=lambda _, __, value: value == "auto",
    help="Run cases on the device, too, where there is one.",
)
@click.option(
    "--mutants/--no-mutants",
    default=True,
    show_default=True,
    help="Whether the judges must kill mutants of one kernel of each family.",
)
@click.option("--resume", is_flag=True, help="Go on with the newest run of the same name.")
@click.pass_context
def main(context: click.Context, /, **_: object) -> None:
    """Draw random fusions and schedules, judge them by every oracle, and write a report."""
    sys.exit(conduct(driver.Plan(**context.params), Console(soft_wrap=True, highlight=False)))
