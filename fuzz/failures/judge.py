"""Judging for the sake of failures: their causes; and quick steps on the way to a least case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

from fuser.errors import CompileError
from fuser.kernel.text import text as kernel_text
from fuser.pipeline import Launch
from fuser.runtime.nvrtc import compile_ptx
from fuzz.campaign import judge as judges
from fuzz.campaign.record import FAILED, Record
from fuzz.campaign.recorder import DRAWN, Recorder
from fuzz.cases.case import Case, compiled, from_text, to_text
from fuzz.failures.identity import cause, cause_in_ptx, identified, skeleton
from oracles.prover.prove import LIMIT_S, prove
from oracles.ptx.judge import NAME as PTX
from oracles.verdict import Status

STEP, LEAST = "# step of: ", "# least of: "
"""How requests begin that are about one failure: a smaller case, and the least that was found."""


def judge_text(asked: str, *, proof_s: float = LIMIT_S) -> list[Record]:
    """Judge what `request` asks in `fuzz.campaign.judge`, or about one failure; for any process.

    Failures of a case come with their causes, without witnesses; a least case with its kernel,
    witness and identity.
    """
    head, text = asked.split("\n", 1)
    drawn = DRAWN.set(head.startswith(LEAST))
    try:
        if head.startswith(STEP):
            case, names = from_text(text), head.removeprefix(STEP).split(", ")
            records = _by_prover(case) if names == ["prover"] else _quickly(case, names)
        else:
            seconds = inf if head.startswith(LEAST) else judges.OTHERS_S
            head = head.replace(LEAST, "# oracles: ")
            records = judges.judge_text(f"{head}\n{text}", seconds=seconds, proof_s=proof_s)
        if not any(record.status in FAILED for record in records):
            return records
        case = from_text(text)
        launches = _launches(case)
        records = [_with_cause(record, launches) for record in records]
        return [_named(r, case, launches) for r in records] if DRAWN.get() else records
    finally:
        DRAWN.reset(drawn)


def _quickly(case: Case, names: Sequence[str]) -> list[Record]:
    """Judge a smaller case, most of which do not fail."""
    return judges.judge(case, names, seconds=4 * judges.OTHERS_S)


def judge_failure(text: str) -> list[Record]:
    """Judge a case by all oracles that need no GPU: failures with kernel, witness and identity."""
    return judge_text(f"{LEAST}{', '.join(judges.CPU_ORACLES)}\n{text}")


def _by_prover(case: Case) -> list[Record]:
    """Prove the kernels of a case until one fails."""
    recorder = Recorder(case, to_text(case))
    for program in judges.programs(recorder, case):
        for launch in program.launches:
            proof = partial(prove, launch.kernel, policy=judges.POLICY)
            found = recorder.ask("prover", launch.kernel.name, proof)
            if found is None or found.status is Status.FAIL:
                return recorder.records
    return recorder.records


def _launches(case: Case) -> dict[str, Launch]:
    """Return the kernels of a case, by name; none where the compiler makes none."""
    try:
        return {launch.kernel.name: launch for launch in compiled(case).launches}
    except Exception:
        return {}


def _with_cause(record: Record, launches: dict[str, Launch]) -> Record:
    if record.status not in FAILED:
        return record
    launch = launches.get(record.subject.split(" ")[0])
    if launch is not None and record.oracle == PTX:
        return replace(record, cause=cause_in_ptx(record, _ptx(launch)))
    return replace(record, cause=cause(record, launch.kernel if launch else None))


def _named(record: Record, case: Case, launches: dict[str, Launch]) -> Record:
    """Give the record of a failure its kernel and its identity."""
    if record.status not in FAILED:
        return record
    name = record.subject.split(" ")[0]
    mine = [launches[name]] if name in launches else [*launches.values()]
    shown = _ptx if record.oracle == PTX else _text
    said = replace(
        record,
        skeleton="; ".join(skeleton(one.kernel) for one in mine),
        kernel="\n".join(map(shown, mine)),
    )
    return replace(said, failure=identified(said, case).id)


def _text(launch: Launch) -> str:
    return kernel_text(launch.kernel)


def _ptx(launch: Launch) -> str:
    """Return the PTX of a kernel; what the printer made where there is none."""
    try:
        return compile_ptx(launch.source)
    except CompileError:
        return launch.source
