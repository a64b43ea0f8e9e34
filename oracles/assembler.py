"""The assembler's log as a witness: what ptxas repaired, gave up on or spilled.

The words are matched, not the codes: C7519 means an injected fence in one version and a
serialisation in the next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oracles.verdict import Finding, Status, Verdict

_MESSAGE = re.compile(r"\((C7\d{3})\)\s+(?:Potential Performance Loss: )?(.*)")
_RESOURCES = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes: registers per thread, bytes of stack and of spills."""

    kernel: str
    stack_bytes: int
    spill_bytes: int
    registers: int


def resources(log: str) -> list[Resources]:
    """Read the resource report of every kernel in a log made with `-Xptxas -v`."""
    return [
        Resources(name, int(stack), int(stores) + int(loads), int(registers))
        for name, stack, stores, loads, registers in _RESOURCES.findall(log)
    ]


def judge_log(log: str) -> Verdict:
    """Judge a compile log.

    FAIL if wgmma was serialized, a sync was injected or setmaxnreg was ignored; a warning for every
    kernel that spills, which is slow but right: the schedule holds more than the register file;
    UNSUPPORTED if the log has no resource report, so that nothing was checked.  `checked` counts
    two claims a kernel: no message, no spill.
    """
    kernels = resources(log)
    findings = [
        Finding(_kind(text), code, text.strip())
        for code, text in _MESSAGE.findall(log)
        if _kind(text)
    ]
    findings += [
        Finding(
            "spill",
            k.kernel,
            f"{k.spill_bytes} bytes of spills, {k.stack_bytes} bytes of stack, "
            f"{k.registers} registers; use more warps or a smaller tile",
            severity="warning",
        )
        for k in kernels
        if k.spill_bytes
    ]
    if any(finding.severity == "error" for finding in findings):
        return Verdict("assembler", Status.FAIL, 2 * len(kernels), tuple(findings))
    if not kernels:
        reason = "the log has no resource report; compile with --ptxas-options=-v"
        return Verdict("assembler", Status.UNSUPPORTED, 0, (), reason)
    return Verdict("assembler", Status.PASS, 2 * len(kernels), tuple(findings))


def _kind(text: str) -> str:
    for word in ("serialized", "injected", "ignored"):
        if word in text:
            return word
    return ""
