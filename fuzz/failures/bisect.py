"""Which pass a failure comes from: the prover's answer after lowering and after every pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.kernel import ir as kir
from fuser.passes.circular_buffer import forget_requests
from fuser.passes.sync import init_barriers, sync_threads
from fuser.pipeline import Made
from fuzz.campaign.judge import POLICY
from fuzz.campaign.record import Record
from fuzz.cases.case import Case, compiled
from fuzz.failures.identity import cause
from oracles.prover.prove import prove
from oracles.verdict import Status

CLOSING = (forget_requests, init_barriers, sync_threads)
"""The last passes: what every kernel needs, whatever it does."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the prover says of a kernel after a pass that changed it."""

    name: str
    says: str


def stages(case: Case, record: Record) -> list[Stage]:
    """Ask the prover about the kernel that a record refutes, after every pass that changed it.

    One that is not finished is given what the last passes add: its barriers are initialised and its
    threads joined.  It may still lack syncs, and so fail, or have statements that nobody judges.
    """
    seen: list[tuple[str, Made]] = []
    compiled(case, lambda name, made: seen.append((name, made)))
    out: list[Stage] = []
    before: kir.Kernel | None = None
    for name, kernel in seen:
        if not isinstance(kernel, kir.Kernel):
            continue
        if kernel.name == record.subject.split(" ")[0] and kernel != before:
            out.append(Stage(name, _answer(name, kernel, record)))
            before = kernel
    return out


def culprit(found: list[Stage]) -> str:
    """Return the stage since which the prover says what it says in the end."""
    since = found[-1].name
    for stage in reversed(found):
        if stage.says != found[-1].says:
            break
        since = stage.name
    return since


def _answer(name: str, kernel: kir.Kernel, record: Record) -> str:
    last = [run_pass.__name__ for run_pass in CLOSING]
    try:
        for run_pass in CLOSING[last.index(name) + 1 if name in last else 0 :]:
            kernel = run_pass(kernel)
        verdict = prove(kernel, policy=POLICY)
    except Exception as error:  # of statements that only a finished kernel has not
        return f"not judged: {type(error).__name__}"
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    if verdict.status is not Status.FAIL:
        return str(verdict.status.value)
    told = replace(record, lines=" ".join(map(str, errors[0].lines)))
    return f"{errors[0].kind} {cause(told, kernel)}"
