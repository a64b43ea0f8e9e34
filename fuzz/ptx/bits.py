"""What the judge of PTX leaves in memory against what a GPU leaves, launch by launch, bit by bit.

Each launch begins, on both, with what the GPU has left before it, so that none is blamed for
another.  Both take what one compilation has made: PTX, and the cubin assembled from it.  Where bits
differ, what the ISA leaves open is decided, step by step:

- approximate instructions: the judge takes the GPU's results, each of which has to be as near as
  the ISA says, and all that follows from them has to have the same bits;
- products and sums without a named rounding, of which the assembler may make an fma: the GPU runs
  what is assembled without that;
- the order and the rounding of a tensor core's sums: the judge sums as Hopper's are known to
  (`oracles.ptx.sums`); what differs then is undecided, where inputs are reals.

NaNs are equal, whatever their payload.

Source: PTX ISA, "Floating Point Instructions" (payloads of NaNs), "add", "mul" (contraction),
"mma", "wgmma.mma_async" (accumulation).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from fuser.errors import FusionError, ScheduleError
from fuser.pipeline import Program
from fuser.runtime.binding import bind
from fuser.runtime.nvrtc import Cubin, compile_both
from fuzz.campaign.child import at_work
from fuzz.campaign.launches import Call, calls
from fuzz.cases.case import Case, compiled, from_text, inputs, specs
from fuzz.cases.draft import keeps_whole
from fuzz.ptx.hardware import Hardware, Memory, memory_of
from fuzz.ptx.launches import launch_of
from oracles.ptx.judge import Outcome, run
from oracles.ptx.launch import Buffer
from oracles.ptx.sums import Core, Sums, once
from oracles.ptx.text.approximate import Evaluate
from oracles.verdict import Status

OUTCOMES = (
    "equal",
    "inside",
    "summed",
    "fused",
    "undecided",
    "refused",
    "unsupported",
    "unknown",
    "different",
    "judged wrong",
)
"""What may come of a case, the worst of its launches: equal as it is; with the GPU's results of
approximate instructions; with sums as tensor cores make them; without fma of the assembler's;
different where a tensor core rounds sums; refused by the compiler; not modelled; too long for the
judge; different; a kernel that the judge refutes.
"""
CORES = (Core(), Core(bits=24), Core(parts=2), Core(bits=24, parts=2), Core(bits=23))
"""Tensor cores, the likeliest first."""
WRONG = ("different", "judged wrong")
SUMS = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync)\.\S*\.f(?:32|16)\.")
"""Products by a tensor core whose sums are rounded."""
SHOWN = 3
"""Elements that a reason names."""


@dataclass(slots=True)
class Told:
    """What is said of a case: its outcome, why it is no better, elements by outcome, seconds."""

    outcome: str = "equal"
    reason: str = ""
    launches: int = 0
    elements: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: str, many: int, reason: str = "") -> None:
        """Count elements of an outcome, if there are some."""
        if many > 0:
            self.elements[outcome] = self.elements.get(outcome, 0) + many
            self.end(outcome, reason)

    def end(self, outcome: str, reason: str) -> None:
        """Let the outcome be at least so bad."""
        if OUTCOMES.index(outcome) > OUTCOMES.index(self.outcome):
            self.outcome, self.reason = outcome, reason

    def spent(self, what: str, start: float) -> None:
        """Add the time since a start to that of a part."""
        self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - start


def compare(text: str, hardware: Hardware, work: int) -> Told:
    """Compare the launches of the case of a text; one may take so much `work` of the judge."""
    told = Told()
    case = from_text(text)
    try:
        at_work("compiler")
        for call, source in _launches(case, compiled(case)):
            if not _Launch(case, call, hardware, work, told).compare(source):
                break
    except (FusionError, ScheduleError) as error:
        told.end("refused", f"{type(error).__name__}: {error}")
    return told


def _launches(case: Case, program: Program) -> Iterator[tuple[Call, str]]:
    """Yield what is launched, over one memory, and its text."""
    bindings = bind(program, specs(case), sms=1 + case.seed % 4)
    made, _ = calls(case, inputs(case), program, bindings)
    for call, launch in zip(made, program.launches, strict=True):
        if call.launch is not None:
            yield call, launch.source


class _Launch:
    """One launch, on both."""

    def __init__(self, case: Case, call: Call, hardware: Hardware, work: int, told: Told) -> None:
        self._case, self._call, self._hardware = case, call, hardware
        self._work, self._told = work, told
        self._before = memory_of(call)

    def compare(self, source: str) -> bool:
        """Count elements by outcome, leave what the GPU has left; tell whether the case goes on."""
        told, kernel = self._told, self._call.kernel
        at_work("compiler", kernel.name)
        start = time.monotonic()
        cubin, text = compile_both(source)
        told.spent("compiler", start)
        outcome, mine = self._judged(text)
        if not self._answered(outcome):
            return False
        theirs = self._launched(cubin)
        told.launches += 1
        wrong = unequal(mine, theirs)
        elements = sum(self._call.views[name].numel() for name in kernel.outputs)
        told.add("equal", elements - _count(wrong))
        for sums in CORES if SUMS.search(text) else (once,) if outcome.approximate else ():
            if not (before := _count(wrong)):
                break
            outcome, mine = self._judged(text, self._hardware.evaluate, sums)
            if not self._answered(outcome):
                return False
            wrong = unequal(mine, theirs)
            kind = "inside" if sums is once else "summed"
            why = ", ".join(outcome.approximate) if sums is once else str(sums)
            told.add(kind, before - _count(wrong), why)
        if _count(wrong):
            before = _count(wrong)
            apart = unequal(mine, self._launched(compile_both(source, fused=False)[0]))
            wrong = {name: one & apart[name] for name, one in wrong.items()}
            told.add("fused", before - _count(wrong), "equal without fma of the assembler's")
        if _count(wrong):
            kind = "undecided" if self._rounds(text) else "different"
            told.add(kind, _count(wrong), f"{kernel.name}: {shown(wrong, mine, theirs)}")
        self._write(theirs)
        return told.outcome not in WRONG

    def _judged(
        self, text: str, evaluate: Evaluate | None = None, sums: Sums = once
    ) -> tuple[Outcome, Memory]:
        """Execute the launch on the CPU; return what is said, and what memory then holds."""
        at_work("judge", self._call.kernel.name)
        start = time.monotonic()
        self._write(self._before)
        counters: dict[str, Buffer] = {}
        launch = launch_of(self._call, counters)
        outcome = run(text, launch, work=self._work, evaluate=evaluate, sums=sums)
        left = {one.name: torch.from_numpy(one.data).view(torch.int32) for one in counters.values()}
        self._told.spent("judge", start)
        return outcome, memory_of(self._call) | left

    def _launched(self, cubin: Cubin) -> Memory:
        """Execute it on the GPU."""
        at_work("GPU", self._call.kernel.name)
        start = time.monotonic()
        self._write(self._before)
        left = self._hardware.launched(self._call, cubin)
        self._told.spent("GPU", start)
        return left

    def _write(self, memory: Memory) -> None:
        def put(flat: torch.Tensor, name: str) -> torch.Tensor:
            return flat.copy_(memory[name])

        memory_of(self._call, put)

    def _answered(self, outcome: Outcome) -> bool:
        """Note a verdict that is no PASS."""
        verdict = outcome.verdict
        if verdict.status is Status.PASS:
            return True
        kinds = {Status.FAIL: "judged wrong", Status.UNSUPPORTED: "unsupported"}
        reason = "; ".join(str(one) for one in verdict.findings[:SHOWN]) or verdict.reason
        kind = kinds.get(verdict.status, "unknown")
        self._told.end(kind, f"{self._call.kernel.name}: {reason}")
        return False

    def _rounds(self, text: str) -> bool:
        """Tell whether a tensor core rounds sums: of reals, or what is made of integers."""
        whole = self._case.kind == "integers" and keeps_whole(self._case.fusion)
        return bool(SUMS.search(text)) and not whole


def unequal(mine: Memory, theirs: Memory) -> Memory:
    """Tell which elements differ, each storage once."""
    found: Memory = {}
    seen = set()
    for name, one in mine.items():
        if id(one) not in seen:
            seen.add(id(one))
            found[name] = _unequal(one, theirs[name])
    return found


def _unequal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    apart = one.view(bits) != other.view(bits)
    if one.is_floating_point():
        none = [x.float() if x.element_size() < 4 else x for x in (one, other)]
        apart &= ~(none[0].isnan() & none[1].isnan())
    return apart


def _count(wrong: Memory) -> int:
    return sum(int(one.sum()) for one in wrong.values())


def shown(wrong: Memory, mine: Memory, theirs: Memory) -> str:
    """Name the first elements that differ, and how many do."""
    parts = []
    for name, one in wrong.items():
        at = one.nonzero().reshape(-1)[:SHOWN].tolist()
        pairs = (f"[{n}] {_spelled(mine[name][n])} and {_spelled(theirs[name][n])}" for n in at)
        if at:
            parts.append(f"{int(one.sum())} of {one.numel()} of {name}: {', '.join(pairs)}")
    return "; ".join(parts)


def _spelled(x: torch.Tensor) -> str:
    value = x.item()
    return value.hex() if isinstance(value, float) else str(value)
