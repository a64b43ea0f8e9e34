"""Kernels that the compiler makes, without one of their syncs, before the judge of PTX.

Each kernel of `fuzz.kernels.matmul` and each that lacks, exchanges or weakens a sync of its Kernel
IR is printed, compiled, and executed on its small launches, in several orders; values are those of
the whole kernel, of small integers, bit by bit.  A mutant that nothing shows must be one that the
prover passes: its sync is redundant.  One that is shown must not be.

    python -m fuzz.ptx.sync_mutants --operator drop
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import click
import torch
from pebble import ProcessPool
from rich.console import Console
from rich.table import Table

from fuser.codegen import cuda
from fuser.errors import CompileError
from fuser.kernel import ir as kir
from fuser.runtime.nvrtc import compile_ptx
from fuzz.campaign.judge import POLICY
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.kernels.draw import Subject
from fuzz.kernels.matmul import COMPILED, sync_mutants
from fuzz.kernels.semaphores import MEMBERS
from fuzz.kernels.subjects import find
from fuzz.kernels.tile import Start
from fuzz.mutation.operators import SYNC_OPERATORS
from fuzz.ptx.cases import with_counters
from fuzz.ptx.launches import launch_of, left_over
from fuzz.semaphores.workloads import integers
from oracles.prover.prove import prove
from oracles.ptx.judge import NAME, run
from oracles.ptx.launch import Buffer
from oracles.verdict import Finding, Status, Verdict

ORDERS = range(3)
"""Late engines, a drawn order, few CTAs at once."""
LIMIT_S = 300
"""Seconds of one subject."""
RIGHT, KILLED, REDUNDANT, SAME, STRICT = "right", "killed", "redundant", "same PTX", "strict"
MISSED, DISPUTED, OPEN = "missed", "disputed", "open"
FATES = (RIGHT, KILLED, REDUNDANT, SAME, STRICT, MISSED, DISPUTED, OPEN)
"""A whole kernel, passed by both; a mutant that is shown here, and refused by the prover; shown by
nobody; refused by the prover, and compiled to what it was before; by its strict policy alone;
by the prover; by the judge of PTX alone; without an answer of one of them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a subject; `says` is what showed it, or why there is no answer."""

    name: str
    fault: str
    fate: str
    says: str


def ptx_of(kernel: kir.Kernel) -> str:
    """Return the PTX of a kernel."""
    return compile_ptx(cuda.source(kernel))


def shown(subject: Subject) -> Verdict:
    """Execute a subject on its launches; return the first failure, or else what is unknown."""
    kernel = subject.kernel
    try:
        text = ptx_of(kernel)
    except CompileError as error:
        return Verdict(NAME, Status.UNKNOWN, 0, reason=str(error).splitlines()[0])
    checked, unknown = 0, None
    for grid, params in sorted(subject.launches, key=_size):
        for seed in ORDERS if grid else ():
            verdict, left = executed(kernel, text, grid, params, seed)
            checked += verdict.checked
            if verdict.status is Status.FAIL:
                return verdict
            if verdict.findings:  # warnings: the compiler owes more than the letter
                found = replace(verdict.findings[0], severity="error")
                return Verdict(NAME, Status.FAIL, checked, (found,))
            if verdict.status is not Status.PASS:
                unknown = verdict
            elif left != _whole(subject.base, grid, tuple(params.items()), seed):
                found = Finding("value", kernel.name, "bytes of an output differ")
                return Verdict(NAME, Status.FAIL, checked, (found,))
    return unknown or Verdict(NAME, Status.PASS, checked)


def _size(start: Start) -> int:
    grid, params = start
    return grid * sum(params.values())


def executed(
    kernel: kir.Kernel, text: str, grid: int, params: Mapping[str, int], seed: int
) -> tuple[Verdict, list[bytes]]:
    """Execute a launch on small integers; return the verdict, and the bytes of all outputs."""
    call, memory = integers(kernel, grid, dict(params), seed)
    counters: dict[str, Buffer] = {}
    verdict = run(text, launch_of(call, counters, few=seed % 3 == 2), seed=seed).verdict
    left = left_over(counters, frozenset(f"{kernel.name}.{name}" for name in kernel.counters))
    made = [memory[name].view(torch.uint8).numpy().tobytes() for name in kernel.outputs]
    return with_counters(verdict, left), made


@lru_cache(maxsize=512)  # all mutants of a kernel have its launches
def _whole(
    kernel: kir.Kernel, grid: int, params: tuple[tuple[str, int], ...], seed: int
) -> list[bytes]:
    """Return what the kernel without a fault leaves."""
    verdict, left = executed(kernel, ptx_of(kernel), grid, dict(params), seed)
    assert verdict.status is Status.PASS, f"the whole kernel: {verdict}"
    return left


def judged(name: str) -> Answer:
    """Ask both judges about a subject."""
    subject = find(name)
    here = shown(subject)
    there = prove(subject.kernel, policy=POLICY)
    kinds = ", ".join(dict.fromkeys(finding.kind for finding in here.findings)) or here.reason
    whole = not subject.faults
    match here.status, there.status:
        case Status.FAIL, Status.FAIL:
            fate, says = KILLED, kinds
        case Status.PASS, Status.PASS:
            fate, says = RIGHT if whole else REDUNDANT, ""
        case Status.PASS, Status.FAIL if _work(subject.kernel) == _work(subject.base):
            fate, says = SAME, ""
        case Status.PASS, Status.FAIL:
            passes = prove(subject.kernel).status is Status.PASS
            fate, says = STRICT if passes else MISSED, f"the prover: {there.findings[0]}"
        case Status.FAIL, Status.PASS:
            fate, says = DISPUTED, str(here.findings[0])
        case _:
            fate, says = OPEN, kinds or there.reason
    return Answer(name, "; ".join(subject.faults), fate, says)


def _work(kernel: kir.Kernel) -> list[str]:
    """Return the instructions of a kernel in order, without moves and the numbers of registers."""
    lines = (line.strip() for line in ptx_of(kernel).splitlines())
    return [
        re.sub(r"%([a-z]+)\d+", r"%\1", one) for one in lines if not one.startswith(("//", "mov"))
    ]


def subjects(operators: Sequence[str], only: str) -> list[str]:
    """Name every kernel and its mutants by some operators, then the semaphore mutants."""
    found = []
    for schedule in COMPILED:
        if only in schedule:
            found.append(f"matmul {schedule} 0")
            found += [
                f"matmul {schedule} {number}"
                for number, mutant in enumerate(sync_mutants(schedule), start=1)
                if mutant.operator in operators
            ]
    return found + [f"semaphore {key}" for key in MEMBERS if only in key]


def answers(names: Sequence[str], workers: int) -> Iterator[Answer]:
    """Judge subjects by so many processes, in order."""
    with ProcessPool(workers, context=get_context("spawn")) as pool:
        jobs = [(name, pool.schedule(judged, (name,), timeout=LIMIT_S)) for name in names]
        for name, job in jobs:
            error = job.exception()
            yield job.result() if error is None else Answer(name, "", OPEN, repr(error))


def table(found: Sequence[Answer]) -> Table:
    """Return a line for each family of kernels."""
    out = Table("kernels", *FATES)
    counts: dict[str, Counter[str]] = {}
    for one in found:
        family = one.name.split()[1].split("/")[0].split("_")[0]
        counts.setdefault(family, Counter())[one.fate] += 1
    counts["all"] = Counter(one.fate for one in found)
    for family, many in counts.items():
        out.add_row(family, *(str(many[fate]) for fate in FATES))
    return out


@click.command(cls=Command)
@click.option(
    "--operator",
    "operators",
    type=click.Choice(SYNC_OPERATORS),
    multiple=True,
    default=SYNC_OPERATORS,
    show_default="all",
    help="Mutants by this one; may be given several times.",
)
@click.option("--only", default="", help="Kernels whose names have this in them.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--out", type=click.Path(path_type=Path), help="Write all answers here as JSON.")
def main(operators: Sequence[str], only: str, workers: int, out: Path | None) -> None:
    """Judge compiled kernels and their sync mutants; exit code 1 if one is missed or disputed."""
    found = []
    for one in answers(subjects(operators, only), workers):
        found.append(one)
        if one.fate in (MISSED, DISPUTED, OPEN):
            print(f"{one.fate}: {one.name} ({one.fault}): {one.says}", flush=True)
    Console().print(table(found))
    if out:
        out.write_text(json.dumps([asdict(one) for one in found]), encoding="utf-8")
    fates = {one.fate for one in found}
    bad = fates & {MISSED, DISPUTED}
    sys.exit(FAILED if bad else HARNESS if OPEN in fates or not fates else CLEAN)


if __name__ == "__main__":
    main()
