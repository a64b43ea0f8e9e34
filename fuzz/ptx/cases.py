"""A case before the judge of PTX: each kernel compiled, executed and judged; then its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fuser.pipeline import Program
from fuser.runtime.binding import bind
from fuser.runtime.nvrtc import DEVICE, compile_ptx
from fuzz.campaign.judge import compared
from fuzz.campaign.launches import calls
from fuzz.cases.case import Case, compiled, inputs, specs
from fuzz.ptx.launches import launch_of, left_over
from oracles.ptx.judge import NAME, run
from oracles.ptx.launch import Buffer
from oracles.verdict import Finding, Status, Verdict

Rewrite = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of a case: of the order in each kernel, and of its values."""

    kernels: tuple[Verdict, ...]
    values: Verdict
    approximate: tuple[str, ...] = ()
    reached: tuple[frozenset[int], ...] = ()
    """Lines of the synchronising instructions that were executed, by kernel."""

    @property
    def status(self) -> Status:
        """The worst of all answers; a failure before what is unsupported or unknown."""
        every = [one.status for one in (*self.kernels, self.values)]
        order = (Status.FAIL, Status.UNSUPPORTED, Status.UNKNOWN)
        return next((one for one in order if one in every), Status.PASS)


def judge_case(
    case: Case,
    *,
    program: Program | None = None,
    cuda: Rewrite = str,
    ptx: Rewrite = str,
    device: Path = DEVICE,
    seed: int = 0,
    sms: int | None = None,
) -> Judged:
    """Compile a case's kernels to PTX, execute its launches, compare what they leave.

    `cuda` and `ptx` change the text on the way, and `device` is another folder of device functions,
    to plant faults.  Under one seed of three as few CTAs run at once as a kernel allows.
    """
    program = program or compiled(case)
    given = inputs(case)
    bindings = bind(program, specs(case), sms=sms or 1 + case.seed % 4)
    launches, memory = calls(case, given, program, bindings)
    counters: dict[str, Buffer] = {}
    verdicts, approximate = [], set()
    reached: list[frozenset[int]] = []
    for call, launch in zip(launches, program.launches, strict=True):
        if call.launch is None:
            reached.append(frozenset())
            continue
        text = ptx(compile_ptx(cuda(launch.source), device=device))
        outcome = run(text, launch_of(call, counters, few=seed % 3 == 2), seed=seed)
        drawn = frozenset(f"{call.kernel.name}.{name}" for name in call.kernel.counters)
        verdicts.append(_with_counters(outcome.verdict, left_over(counters, drawn)))
        approximate |= {*outcome.approximate}
        reached.append(outcome.reached)
        if outcome.verdict.status is not Status.PASS:
            break
    if any(one.status is not Status.PASS for one in verdicts):
        reason = "not compared: a kernel is not passed"
        values = Verdict("differential", Status.UNKNOWN, 0, reason=reason)
    else:
        outputs = [memory[tv.name] for tv in case.fusion.outputs]
        values = compared(case, given, [x for x in outputs if isinstance(x, torch.Tensor)])
    return Judged(tuple(verdicts), values, tuple(sorted(approximate)), tuple(reached))


def _with_counters(verdict: Verdict, left: list[str]) -> Verdict:
    """Fail a launch that leaves semaphores as the next one does not expect them."""
    if verdict.status is not Status.PASS or not left:
        return verdict
    found = tuple(Finding("semaphore", "the end of the launch", one) for one in left)
    return replace(verdict, oracle=NAME, status=Status.FAIL, findings=found)
