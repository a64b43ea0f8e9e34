"""Kernels of other compilers before the judge of PTX, and a table of what it said.

Each is executed as it is, in several orders, its values compared; then without each of the
synchronising instructions that its launch executes, or with one weakened.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from oracles.ptx.judge import run
from oracles.ptx.launch import Launch
from oracles.ptx.text.mutants import mutants
from oracles.ptx.text.program import prepare
from oracles.verdict import Finding, Status, Verdict

ORDERS = range(3)

Memory = Mapping[str, npt.NDArray[np.uint8]]
"""The bytes of each buffer."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A launch of a kernel.

    Parameters
    ----------
    name : str
        Its name in the table.
    text : str
        PTX; `launch.entry` names the kernel where there are several.
    launch : Launch
        Grid, arguments and memory before it.
    wrong : function
        Takes the memory that a launch has left and says what is wrong with its values; "" if
        nothing is.
    """

    name: str
    text: str
    launch: Launch
    wrong: Callable[[Memory], str]

    @property
    def reached(self) -> frozenset[int]:
        """Lines of synchronising instructions that its launch executes."""
        with _kept(self.launch):
            return run(self.text, self.launch).reached

    def judged(self, text: str, seed: int) -> Verdict:
        """Execute a text on fresh memory; a value that is wrong is a failure like any other."""
        with _kept(self.launch):
            verdict = run(text, self.launch, seed=seed).verdict
            left = {name: one.data for name, one in self.launch.buffers.items()}
            says = self.wrong(left) if verdict.status is Status.PASS else ""
            if says:
                found = (*verdict.findings, Finding("value", self.name, says))
                return replace(verdict, status=Status.FAIL, findings=found)
            return verdict


@contextmanager
def _kept(launch: Launch) -> Iterator[None]:
    """Restore the memory of a launch afterwards."""
    before = {name: one.data.copy() for name, one in launch.buffers.items()}
    try:
        yield
    finally:
        for name, one in launch.buffers.items():
            one.data[:] = before[name]


@dataclass(frozen=True, slots=True)
class Row:
    """What the judge said of a subject.

    Parameters
    ----------
    name : str
        Its name.
    instructions : int
        Of its PTX.
    verdict : Verdict
        Of the first order in which it did not pass, or of the first.
    seconds : float
        CPU seconds of one order, in the mean.
    killed : int
        Mutants that some order refutes.
    survive, open : tuple of str
        Mutants that pass, and those that are neither refuted nor pass.
    idle : int
        Mutants whose instruction the launch does not execute; they are not judged.
    left : int
        Mutants that were not asked about.
    """

    name: str
    instructions: int
    verdict: Verdict
    seconds: float
    killed: int = 0
    survive: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    idle: int = 0
    left: int = 0

    @property
    def asked(self) -> int:
        """Mutants that were judged."""
        return self.killed + len(self.survive) + len(self.open)

    @property
    def says(self) -> str:
        """The verdict's status, and its findings by kind."""
        found = Counter((one.severity, one.kind) for one in self.verdict.findings)
        kinds = (
            f"{severity} {kind}{f' x{many}' if many > 1 else ''}"
            for (severity, kind), many in sorted(found.items())
        )
        return ", ".join((self.verdict.status.value, *kinds, *filter(None, (self.verdict.reason,))))

    def record(self) -> dict[str, Any]:
        """Return it with all findings, as JSON has it."""
        mutants = {"asked": self.asked, "killed": self.killed, "survive": [*self.survive]}
        mutants |= {"open": [*self.open], "not executed": self.idle, "not asked": self.left}
        return {
            "kernel": self.name,
            "instructions": self.instructions,
            "status": self.verdict.status.value,
            "reason": self.verdict.reason,
            "findings": [asdict(one) for one in self.verdict.findings],
            "CPU seconds": round(self.seconds, 2),
            "mutants": mutants,
        }


def judged_row(one: Any, *, mutate: bool = True, every: int = 1) -> Row:
    """Judge a subject in several orders and, if it passes, every n-th of its mutants."""
    start = time.process_time()
    said = [one.judged(one.text, seed) for seed in ORDERS]
    seconds = (time.process_time() - start) / len(ORDERS)
    worst = next((v for v in said if v.status is not Status.PASS), said[0])
    entry = getattr(getattr(one, "launch", None), "entry", "")
    size = len(prepare(one.text, entry).instructions())
    if not mutate or worst.status is not Status.PASS:
        return Row(one.name, size, worst, seconds)
    reached = one.reached
    all_ = [*mutants(one.text)]
    live = [mutant for mutant in all_ if mutant.line in reached]
    killed, alive, unclear = 0, list[str](), list[str]()
    for mutant in live[::every]:
        name = f"{mutant.change} {mutant.opcode}, line {mutant.line}"
        match _fate(one, mutant.text):
            case Status.FAIL:
                killed += 1
            case Status.PASS:
                alive.append(name)
            case _:
                unclear.append(name)
    asked = killed + len(alive) + len(unclear)
    idle, left = len(all_) - len(live), len(live) - asked
    return Row(one.name, size, worst, seconds, killed, tuple(alive), tuple(unclear), idle, left)


def _fate(one: Any, text: str) -> Status:
    """Return FAIL if some order refutes a mutant, PASS if it passes in all."""
    worst = Status.PASS
    for seed in ORDERS:
        status = one.judged(text, seed).status
        if status is Status.FAIL:
            return status
        worst = worst if status is Status.PASS else status
    return worst


def table(subjects: Iterable[Any], console: Console, *, mutate: bool = True) -> bool:
    """Judge subjects, print a line for each, and tell whether all of them pass.

    A subject has `name`, `text`, `reached` and `judged(text, seed)`, as `Subject` has.
    """
    rows = [judged_row(one, mutate=mutate) for one in subjects]
    show(rows, console)
    return all(row.verdict.status is Status.PASS for row in rows)


def _grouped(mutants: Iterable[str]) -> Iterator[str]:
    """Yield mutants of one change of one opcode together: the change, then its lines."""
    lines: dict[str, list[str]] = {}
    for change, _, line in (one.partition(", line ") for one in mutants):
        lines.setdefault(change, []).append(line)
    for change, all_ in lines.items():
        yield f"{change}, line{'s' if len(all_) > 1 else ''} {', '.join(all_)}"


def show(rows: Iterable[Row], console: Console) -> None:
    """Print a line for each."""
    made = Table(
        "kernel", "instructions", "verdict", "CPU s", "mutants killed", "not executed", "survive"
    )
    for row in rows:
        asked = f"{row.killed} of {row.asked}" + (f", {row.left} not asked" if row.left else "")
        alive = "; ".join((*_grouped(row.survive), *(f"open: {one}" for one in row.open)))
        cells = (row.name, str(row.instructions), row.says, f"{row.seconds:.2f}", asked)
        made.add_row(*cells, str(row.idle), alive)
    console.print(made)
