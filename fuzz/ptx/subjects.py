"""Kernels of other compilers before the judge of PTX, and a table of what it said.

Each is executed as it is, in several orders, its values compared; then without each of the
synchronising instructions that its launch executes, or with one weakened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
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


def table(subjects: Iterable[Any], console: Console, *, mutate: bool = True) -> bool:
    """Judge subjects, print a line for each, and tell whether all of them pass.

    A subject has `name`, `text`, `reached` and `judged(text, seed)`, as `Subject` has.
    """
    made = Table(
        "kernel", "instructions", "verdict", "CPU s", "mutants killed", "not executed", "survive"
    )
    good = True
    for one in subjects:
        start = time.process_time()
        said = [one.judged(one.text, seed) for seed in ORDERS]
        seconds = (time.process_time() - start) / len(ORDERS)
        worst = next((v for v in said if v.status is not Status.PASS), said[0])
        good &= worst.status is Status.PASS
        alive, many, idle = _survivors(one) if mutate else ([], 0, 0)
        entry = getattr(getattr(one, "launch", None), "entry", "")
        size = len(prepare(one.text, entry).instructions())
        cells = (one.name, str(size), _spelled(worst), f"{seconds:.2f}")
        made.add_row(*cells, f"{many - len(alive)} of {many}", str(idle), "; ".join(alive))
    console.print(made)
    return good


def _spelled(verdict: Verdict) -> str:
    return str(verdict) if verdict.status is not Status.PASS or verdict.findings else "pass"


def _survivors(one: Any) -> tuple[list[str], int, int]:
    """Return the mutants that pass, how many were judged, and how many are never executed."""
    alive, many, idle, reached = [], 0, 0, one.reached
    for mutant in mutants(one.text):
        if mutant.line not in reached:
            idle += 1
            continue
        many += 1
        if all(one.judged(mutant.text, seed).status is Status.PASS for seed in ORDERS):
            alive.append(f"{mutant.change} {mutant.opcode}, line {mutant.line}")
    return alive, many, idle
