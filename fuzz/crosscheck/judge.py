"""Prover and explorer on one small kernel, and whether they agree.

The prover covers all trip counts, the explorer every interleaving of one launch.  So the
explorer is asked at the trip count of each witness of the prover first, then at the launches of the
subject.  What it finds refutes a proof; what it does not find at the witness refutes an alarm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuzz.campaign.child import at_work
from fuzz.kernels.cookbook import SEEDS
from fuzz.kernels.draw import Subject
from fuzz.kernels.matmul import COMPILED
from fuzz.kernels.subjects import find
from fuzz.kernels.tile import Start
from fuzz.mutation.operators import SYNC_OPERATORS
from oracles.explorer.explore import Launch as Exploration
from oracles.explorer.explore import explore as explore_launch
from oracles.launches.choose import choose
from oracles.prover.prove import prove, witness_trips
from oracles.simulator import simulate as simulator
from oracles.verdict import Status, Verdict

STATES = 5_000
"""States after which the explorer gives up on a launch."""
GIVEN_UP = 3
"""Launches that the explorer may give up on before it is asked no more about a kernel."""
SCHEDULES = 6
"""Schedules per launch of the simulator, one of each strategy."""
HARD_SCHEDULES = 120
"""Schedules of the simulator at the launch where the explorer finds a defect."""
SEARCHED = 12
"""Launches that the simulator is asked about at most, spread evenly over those of the kernel."""
PROOF_S = 10.0
"""CPU seconds of one proof: a small kernel that needs more is one that the prover leaves open."""
LAUNCHES = 30
"""Launches per kernel at most; those of witnesses come first."""

Prover = Callable[[kir.Kernel], Verdict]
Explorer = Callable[[kir.Kernel, Start], Verdict]
Simulator = Callable[[kir.Kernel, Start, int], Verdict]


class Bucket(StrEnum):
    """The outcome of a kernel; every kernel is in one."""

    SAFE = "agree: safe"
    UNSAFE = "agree: unsafe"
    LATER = "agree later: unsafe"
    """The explorer finds nothing at the witness of the prover, but at another launch."""
    FALSE_PROOF = "FALSE PROOF"
    FALSE_ALARM = "FALSE ALARM"
    BLIND = "EXPLORER BLIND"
    """The simulator shows a defect at a launch that the explorer passed."""
    PROVER_OPEN = "prover open"
    EXPLORER_OPEN = "explorer open"
    BROKEN = "BROKEN"
    """A judge raised, crashed or hung."""


JUDGES = ("prover", "explorer", "simulator")
"""Who is asked: the fields of `Outcome` that hold their answers."""
DISAGREE = (Bucket.FALSE_PROOF, Bucket.FALSE_ALARM, Bucket.BLIND)
OPEN = (Bucket.PROVER_OPEN, Bucket.EXPLORER_OPEN)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a judge said of a kernel, and its time over all launches.

    The status is one of `Status`, or ``"error"`` where the judge raised.  The reason is why it has
    no answer, or its first finding; kinds are those of its errors.  States are counted over all
    launches (0 for the prover), one of which, `launch`, decided it; checked are
    claims, states or events.
    """

    status: str
    kinds: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    states: int = 0
    launch: str = ""
    checked: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One kernel, judged: a line of the results."""

    subject: str
    family: str
    faults: tuple[str, ...]
    hazards: tuple[str, ...]
    bucket: Bucket
    prover: Answer
    explorer: Answer
    simulator: Answer | None = None


def explore(kernel: kir.Kernel, start: Start, states: int = STATES) -> Verdict:
    """Explore a launch."""
    grid, params = start
    at_work("explorer", f"grid {grid}, {params}")
    return explore_launch(kernel, Exploration(grid, params), states=states)


def simulate(kernel: kir.Kernel, start: Start, schedules: int = SCHEDULES) -> Verdict:
    """Search a launch by adversarial schedules."""
    grid, params = start
    at_work("simulator", f"grid {grid}, {params}")
    launch = simulator.Launch(grid, params)
    return simulator.search(kernel, launch, schedules=schedules)


def is_sync_mutant(family: str, faults: Sequence[str]) -> bool:
    """Tell whether a kernel is a seed or a matmul with one sync left out, exchanged or weakened."""
    claimed = family in SEEDS or family in COMPILED
    return claimed and any(f.split(":")[0] in SYNC_OPERATORS for f in faults)


def within_limit(kernel: kir.Kernel) -> Verdict:
    """Prove a kernel, or give up after some time."""
    return prove(kernel, limit=PROOF_S)


def settle(
    name: str,
    subject: Subject,
    *,
    prover: Prover = within_limit,
    explorer: Explorer = explore,
    search: Simulator | None = None,
    always: bool = False,
) -> Outcome:
    """Judge a kernel by prover and explorer.

    `search` is the simulator, with a number of schedules: asked where the explorer has no answer,
    and of sync mutants of the seeds, first and hard at the launch where the explorer finds a
    defect; `always`: wherever there is one.  It can find, but not clear.
    """
    proof, verdict = _proved(subject.kernel, prover)
    at_witness = witness_launches(subject, verdict) if verdict is not None else []
    rest = [start for start in subject.launches if start not in at_witness]
    starts = [*at_witness, *rest][:LAUNCHES]
    seen, clear, failing = _explored(subject.kernel, starts, explorer)
    if seen.status == "pass":
        seen, failing = _looked_further(subject.kernel, starts, seen, explorer)
    searched = None
    wanted = seen.status not in ("pass", "fail") or is_sync_mutant(subject.family, subject.faults)
    if search is not None and (always or wanted):
        searched = _searched(subject.kernel, starts, failing, search)
    found = searched is not None and searched.status == "fail"
    confirmed = bool(at_witness) and clear >= min(len(at_witness), len(starts))
    bucket = conclude(proof, seen, refuted=found or seen.status == "fail", cleared=confirmed)
    if found and seen.status == "pass" and bucket is not Bucket.BROKEN:
        bucket = Bucket.BLIND
    faults, hazards = subject.faults, subject.hazards
    return Outcome(name, subject.family, faults, hazards, bucket, proof, seen, searched)


def _looked_further(
    kernel: kir.Kernel, starts: list[Start], seen: Answer, explorer: Explorer
) -> tuple[Answer, Start | None]:
    """Explore launches that are chosen from the kernel itself, where those it came with pass."""
    chosen = [(one.grid, one.params) for one in choose(kernel).launches]
    more = [start for start in chosen if start not in starts]
    further, _, failing = _explored(kernel, more, explorer)
    if further.status in ("fail", "error"):
        return further, failing
    sums = {
        name: getattr(seen, name) + getattr(further, name)
        for name in ("seconds", "states", "checked")
    }
    return replace(seen, reason=f"{seen.reason}, {len(more)} chosen ones", **sums), None


def witness_launches(subject: Subject, verdict: Verdict) -> list[Start]:
    """Return the launches that the errors of a verdict name, or those with their trip counts."""
    wanted = {p.name for p in subject.kernel.params} | {kir.GRID.name}
    starts: list[Start] = []
    for finding in verdict.findings:
        named = dict(finding.launch)
        if finding.severity == "error" and wanted <= set(named):
            params = {p.name: named[p.name] for p in subject.kernel.params}
            starts.append((named[kir.GRID.name], params))
    if not starts:
        starts = [start for n in sorted(witness_trips(verdict)) for start in subject.at(n)]
    return [start for i, start in enumerate(starts) if start not in starts[:i]]


def conclude(proof: Answer, seen: Answer, *, refuted: bool, cleared: bool) -> Bucket:
    """Return the bucket of what prover and explorer say.

    `refuted`: some launch fails; `cleared`: every launch at a witness of the prover was explored
    completely and passed.
    """
    if "error" in (proof.status, seen.status):
        return Bucket.BROKEN
    if proof.status in ("unknown", "unsupported"):
        return Bucket.PROVER_OPEN
    if proof.status == "fail":
        if refuted:
            return Bucket.LATER if cleared else Bucket.UNSAFE
        return Bucket.FALSE_ALARM if seen.status == "pass" else Bucket.EXPLORER_OPEN
    if refuted:
        return Bucket.FALSE_PROOF
    return Bucket.SAFE if seen.status == "pass" else Bucket.EXPLORER_OPEN


def _proved(kernel: kir.Kernel, prover: Prover) -> tuple[Answer, Verdict | None]:
    at_work("prover", kernel.name)
    begin = time.perf_counter()
    try:
        verdict = prover(kernel)
    except Exception as error:
        return Answer("error", (), _said(error), time.perf_counter() - begin), None
    return _answer(verdict, begin), verdict


def _searched(
    kernel: kir.Kernel, starts: list[Start], failing: Start | None, search: Simulator
) -> Answer:
    """Ask the simulator about launches, first and longest about one that is said to fail."""

    def at(kernel: kir.Kernel, start: Start) -> Verdict:
        return search(kernel, start, HARD_SCHEDULES if start == failing else SCHEDULES)

    first = [] if failing is None else [failing]
    some = starts[:: -(-len(starts) // SEARCHED)]
    answer, _, _ = _explored(kernel, [*first, *(s for s in some if s != failing)], at)
    return answer


def _explored(
    kernel: kir.Kernel, starts: list[Start], explorer: Explorer
) -> tuple[Answer, int, Start | None]:
    """Explore launches until one fails; return how many passed before, and which failed."""
    begin, states, checked, clear, given_up = time.perf_counter(), 0, 0, 0, 0
    open_: Answer | None = None
    for number, start in enumerate(starts):
        words = f"grid {start[0]}, {', '.join(f'{n}={v}' for n, v in start[1].items())}"
        try:
            verdict = explorer(kernel, start)
        except Exception as error:
            gone = Answer("error", (), _said(error), time.perf_counter() - begin, 0, words)
            return gone, clear, None
        states += verdict.states
        checked += verdict.checked
        answer = _answer(verdict, begin, states, words)
        if verdict.status is Status.FAIL:
            return answer, clear, start
        if verdict.status is Status.PASS:
            clear += clear == number
        else:
            open_, given_up = open_ or answer, given_up + 1
        if verdict.status is Status.UNSUPPORTED or given_up == GIVEN_UP:
            break
    last = open_ or Answer("pass", (), f"{len(starts)} launches")
    seconds = time.perf_counter() - begin
    return replace(last, seconds=seconds, states=states, checked=checked), clear, None


def _answer(verdict: Verdict, begin: float, states: int = 0, launch: str = "") -> Answer:
    errors = [f for f in verdict.findings if f.severity == "error"]
    kinds = tuple(sorted({f.kind for f in errors}))
    reason = str(errors[0]) if errors else verdict.reason
    seconds, checked = time.perf_counter() - begin, verdict.checked
    return Answer(verdict.status.value, kinds, reason, seconds, states, launch, checked)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def lost(name: str, subject: Subject, proof: Answer | None, reason: str) -> Outcome:
    """Return the outcome of a kernel on which the process of a judge crashed or hung.

    `proof` is what the prover says when asked alone; None if it is the one that does not come back.
    """
    gone = Answer("error", (), reason)
    prover, seen = (gone, Answer("unknown", (), "not asked")) if proof is None else (proof, gone)
    faults, hazards = subject.faults, subject.hazards
    return Outcome(name, subject.family, faults, hazards, Bucket.BROKEN, prover, seen)


def request(subject: str, states: int, *, search: bool = False, prover_only: bool = False) -> str:
    """Return what `judge_request` is asked."""
    return json.dumps([subject, states, search, prover_only])


def judge_request(asked: str) -> Outcome:
    """Judge a subject: one string in, an outcome out, so that any process can do it."""
    subject, states, search, prover_only = json.loads(asked)
    if prover_only:
        return settle(subject, find(subject), explorer=_nothing)
    return settle_here(subject, states, search=search)


def settle_here(subject: str, states: int, *, search: bool = False) -> Outcome:
    """Judge a subject by the real judges."""
    explorer, searching = partial(explore, states=states), simulate if search else None
    return settle(subject, find(subject), explorer=explorer, search=searching)


def _nothing(kernel: kir.Kernel, start: Start) -> Verdict:
    return Verdict("nobody", Status.UNKNOWN, 0, reason=f"{kernel.name} was not explored")


def report(subject: Subject, outcome: Outcome) -> str:
    """Return a kernel and what was said of it, as text."""
    lines = [f"{outcome.subject}: {outcome.bucket} ({subject.family})"]
    lines += [f"fault: {fault}" for fault in subject.faults]
    lines += ["", text(subject.kernel)]
    for name in JUDGES:
        answer: Answer | None = getattr(outcome, name)
        if answer is not None:
            at = f" at {answer.launch}" if answer.launch else ""
            lines.append(
                f"{name}: {answer.status}{at}: {answer.reason} "
                f"({answer.seconds * 1e3:.0f} ms, {answer.states} states)"
            )
    return "\n".join(lines)
