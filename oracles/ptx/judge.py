"""PTX text and a launch -> a verdict: values stand in the launch's buffers afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from oracles.ptx.clocks import LimitError
from oracles.ptx.gates import Gates, unsupported
from oracles.ptx.launch import Launch
from oracles.ptx.log import Log
from oracles.ptx.machine import WORK, Machine
from oracles.ptx.sums import Sums, once
from oracles.ptx.text.approximate import Evaluate
from oracles.ptx.text.grammar import PtxError
from oracles.ptx.text.program import prepare
from oracles.ptx.text.translate import UnsupportedError
from oracles.verdict import Status, Verdict

NAME = "ptx"
NOTHING = "no thread touches memory"
"""Why it is unknown whether a launch of nothing is right."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, and what it rests on.

    `approximate` names instructions whose results the ISA leaves open within a bound: values behind
    them are near, not exact.  `reached` has the lines of the synchronising instructions that some
    thread executed; `log` has the events of each thread, where they were asked for.
    """

    verdict: Verdict
    approximate: tuple[str, ...] = ()
    reached: frozenset[int] = frozenset()
    log: Log | None = None


def judge(text: str, launch: Launch, *, seed: int = 0) -> Verdict:
    """Execute a launch of a kernel given as PTX, and judge its order.

    Parameters
    ----------
    text : str
        PTX with one entry, or the one that `launch.entry` names.
    launch : Launch
        Grid, block, arguments and memory; its buffers hold what the kernel left, if it ended.
    seed : int
        0 lets engines finish only when no thread can go on; others draw when, and which threads
        go first.

    Returns
    -------
    Verdict
        PASS if every access was ordered and every wait ended, in this execution's order and all
        that have the same synchronisation; UNSUPPORTED with the names of the instructions that
        are not modelled; UNKNOWN if the launch is too long.
    """
    return run(text, launch, seed=seed).verdict


def run(
    text: str,
    launch: Launch,
    *,
    seed: int = 0,
    work: int = WORK,
    logged: bool = False,
    evaluate: Evaluate | None = None,
    sums: Sums = once,
) -> Outcome:
    """Return the verdict of `judge`, and what else is known of the values.

    A launch that takes more `work` (`machine.BLOCK`) is unknown; the same on every machine.  With
    `logged` the outcome has what each thread executed.  Approximate instructions give the nearest
    value, or what `evaluate` has for them: a finding, where that is farther off than the ISA says.
    Tensor cores sum as `sums` says.
    """
    try:
        program = prepare(text, launch.entry)
    except PtxError as error:
        return Outcome(Verdict(NAME, Status.UNSUPPORTED, 0, reason=f"not read: {error}"))
    missing = unsupported(program)
    if missing:
        return Outcome(Verdict(NAME, Status.UNSUPPORTED, 0, reason=", ".join(missing)))
    try:
        m = Machine(program, launch, seed)
    except LimitError as error:
        return Outcome(Verdict(NAME, Status.UNKNOWN, 0, reason=str(error)))
    m.log, m.evaluate, m.sums = Log() if logged else None, evaluate, sums
    gates = Gates(m)
    reason, stopped = "", Status.UNKNOWN
    try:
        m.run(gates, work)
        m.stuck()
    except LimitError as error:
        reason = str(error)
    except UnsupportedError as error:  # what operands ask for
        reason, stopped = str(error), Status.UNSUPPORTED
    gates.engines.finish()
    m.keep()
    m.close()
    findings = tuple(m.findings.values())
    checked = m.claims + m.shared.checked + m.glob.checked
    if not (checked or findings or reason):
        reason = NOTHING
    status = stopped if reason else Status.PASS
    if any(one.severity == "error" for one in findings):
        status = Status.FAIL
    verdict = Verdict(NAME, status, checked, findings, reason)
    return Outcome(verdict, tuple(sorted(program.approximate)), frozenset(m.reached), m.log)
