"""A case before the judge of PTX: each kernel compiled, executed and judged; then its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from fuser.expr import Expr
from fuser.pipeline import Program
from fuser.runtime.binding import bind
from fuser.runtime.kernel_launch import values_of
from fuser.runtime.nvrtc import DEVICE, compile_ptx
from fuzz.campaign.launches import Call, calls
from fuzz.cases.case import Case, compiled, inputs, specs
from fuzz.ptx.launches import launch_of, left_over
from fuzz.ptx.refinement import refines
from fuzz.values import compared
from oracles.ptx.judge import NAME, Outcome, run
from oracles.ptx.launch import Buffer
from oracles.ptx.machine import WORK
from oracles.verdict import Finding, Status, Verdict

Rewrite = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Planted:
    """What is changed between the Kernel IR and the PTX: printed text, PTX, device functions."""

    cuda: Rewrite = str
    ptx: Rewrite = str
    device: Path = DEVICE


NOTHING = Planted()


@dataclass(frozen=True, slots=True)
class Run:
    """A kernel that is launched: what executes and judges it, and what compares its events then."""

    name: str
    order: Callable[[], Outcome]
    refinement: Callable[[], Verdict]


class Execution:
    """A call of a case: its launches, one after the other, over one memory.

    Parameters
    ----------
    case, program : Case, Program
        Extents and data, and the kernels that serve them.
    seed : int
        Of the order (`oracles.ptx.judge`); under one of three as few CTAs run at once as a kernel
        allows.
    work : int
        What a launch may take, or else is unknown.
    refined : bool
        Whether the events of its threads are to be compared with the Kernel IR.
    planted : Planted
        Faults.
    """

    def __init__(
        self,
        case: Case,
        program: Program,
        *,
        seed: int = 0,
        work: int = WORK,
        refined: bool = True,
        planted: Planted = NOTHING,
    ) -> None:
        self._case, self._program, self._seed = case, program, seed
        self._work, self._planted = work, planted
        self._refined = refined
        self._given = inputs(case)
        bindings = bind(program, specs(case), sms=1 + case.seed % 4)
        made, self._memory = calls(case, self._given, program, bindings)
        self._launches = list(zip(made, (one.source for one in program.launches), strict=True))
        self._counters: dict[str, Buffer] = {}

    def launches(self) -> Iterator[Run]:
        """Yield the kernels that are launched, each to be executed before the next."""
        for call, source in self._launches:
            if call.launch is not None:
                yield Run(call.kernel.name, partial(self._order, call, source), self._refinement)

    def _order(self, call: Call, source: str) -> Outcome:
        planted = self._planted
        text = planted.ptx(compile_ptx(planted.cuda(source), device=planted.device))
        launch = launch_of(call, self._counters, few=self._seed % 3 == 2)
        outcome = run(text, launch, seed=self._seed, work=self._work, logged=self._refined)
        self._latest = call, outcome.log
        drawn = frozenset(f"{call.kernel.name}.{name}" for name in call.kernel.counters)
        verdict = with_counters(outcome.verdict, left_over(self._counters, drawn))
        return replace(outcome, verdict=verdict)

    def _refinement(self) -> Verdict:
        call, log = self._latest
        assert call.launch is not None, "launches of nothing are left out"
        if log is None:
            return Verdict(NAME, Status.UNSUPPORTED, 0, reason="the PTX is not modelled")
        values = values_of(call.kernel, call.launch.grid, call.launch.params)
        return refines(call.kernel, {var: _number(n) for var, n in values.items()}, log)

    def values(self) -> Verdict:
        """Compare what all launches have left with the reference."""
        outputs = [self._memory[tv.name] for tv in self._case.fusion.outputs]
        got = [x for x in outputs if isinstance(x, torch.Tensor)]
        return replace(compared(self._case, self._given, got, self._program), oracle=NAME)


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of a case: of the order and the events of each kernel, and of its values."""

    kernels: tuple[Verdict, ...]
    values: Verdict
    approximate: tuple[str, ...] = ()
    reached: tuple[frozenset[int], ...] = ()
    """Lines of the synchronising instructions that were executed, by kernel that is launched."""

    @property
    def status(self) -> Status:
        """The worst of all answers; a failure before what is unsupported or unknown."""
        every = [one.status for one in (*self.kernels, self.values)]
        order = (Status.FAIL, Status.UNSUPPORTED, Status.UNKNOWN)
        return next((one for one in order if one in every), Status.PASS)


def judge_case(
    case: Case, *, program: Program | None = None, seed: int = 0, planted: Planted = NOTHING
) -> Judged:
    """Compile a case's kernels to PTX, execute its launches, compare what they leave."""
    execution = Execution(case, program or compiled(case), seed=seed, planted=planted)
    outcomes: list[Outcome] = []
    verdicts: list[Verdict] = []
    for one in execution.launches():
        outcomes.append(one.order())
        verdicts.append(outcomes[-1].verdict)
        if verdicts[-1].status is not Status.PASS:
            break
        verdicts.append(one.refinement())
    if any(one.status is not Status.PASS for one in verdicts):
        reason = "not compared: a kernel is not passed"
        values = Verdict(NAME, Status.UNKNOWN, 0, reason=reason)
    else:
        values = execution.values()
    approximate = sorted({name for one in outcomes for name in one.approximate})
    reached = tuple(one.reached for one in outcomes)
    return Judged(tuple(verdicts), values, tuple(approximate), reached)


def _number(value: Expr) -> int:
    assert isinstance(value, int), f"{value} is no number"
    return value


def with_counters(verdict: Verdict, left: list[str]) -> Verdict:
    """Fail a launch that leaves semaphores as the next one does not expect them."""
    if verdict.status is not Status.PASS or not left:
        return verdict
    found = tuple(Finding("semaphore", "the end of the launch", one) for one in left)
    return replace(verdict, oracle=NAME, status=Status.FAIL, findings=found)
