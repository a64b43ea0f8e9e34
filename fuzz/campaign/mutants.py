"""How strong the judges are: mutants of one kernel per schedule family, killed or survived.

A mutant that both judges kill is a `pass` of the oracle `mutant`.  A survivor is either a redundant
sync (the prover proves the kernel without it, and the stated search of the simulator finds
nothing), also a `pass`, or a blind judge, a `fail`.  Killing says something only where the kernel
itself, judged in the same way, is alive: it is judged first, and without a pass none of its mutants
is.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.pipeline import Launch
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import (
    ARRIVAL,
    NormParams,
    PointwiseParams,
    ReductionParams,
    ScanParams,
)
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.judge import POLICY, programs
from fuzz.campaign.launches import trip_counts, with_trips
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import Record
from fuzz.campaign.recorder import Recorder
from fuzz.cases.case import Case, Kind, to_text
from fuzz.cases.norms import NORM_FAMILIES
from fuzz.cases.params import FAMILIES, SCAN_FAMILIES
from fuzz.cases.schedules import MATMUL_FAMILIES, OBSERVES, SPLITS
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.kernels.fusions import every_operation, every_reduction, every_sum, less_extremes, linear
from fuzz.mutation.fate import Fate, fate
from fuzz.mutation.operators import Mutant, drop_each_sync
from oracles.prover.prove import prove, witness_trips
from oracles.simulator import simulate
from oracles.verdict import Finding, Status, Verdict

OPERATIONS = (
    "operations f32",
    "operations f64",
    "operations bf16",
    "operations i32",
    "reductions f32",
    "sums f32",
    "norms f32",
)
"""Cases beside those of families: all operations of a type, so that none is left to chance."""
REFUSED = "refused"
"""Kind of failure of a representative that the compiler does not take."""
SCHEDULES = 24
"""Schedules per trip count of the simulator's search: each of its six strategies four times."""


@dataclass(frozen=True, slots=True)
class Kills:
    """What became of the mutants of a family, with the text of the case whose kernels they are of.

    Records are those of the kernels as they are, then three per mutant: prover, simulator, what
    follows.  `left` were not judged: the time was over, or the kernel itself does not pass.
    """

    text: str
    records: list[Record]
    left: int


@dataclass(frozen=True, slots=True)
class Searched:
    """The outcome of a search of the simulator, and its extent in words."""

    verdict: Verdict
    extent: str


def representative(family: str) -> Case:
    """Return the case whose kernel stands for a schedule family, or is one of `OPERATIONS`.

    That is relu(x + y) in f32; x - max(x) of rows in bf16; relu(cumsum(x)) of rows in f32; or
    relu(linear(x, w, bias)) in bf16, by small tiles, a ring of three slots, and several tiles.
    """
    schedule: PointwiseParams | MatmulParams | AmpereParams
    if family in OPERATIONS:
        return _of_type(*family.split())
    if family in NORM_FAMILIES:
        schedule = NormParams((1, 256), 4, 2, 1, "direct", "direct", lanes=64)
        if family == "norm-cp_async/direct":
            schedule = replace(schedule, load="cp_async", stages=3, prefetch=2)
        if family == "norm-bulk/direct":
            schedule = replace(schedule, load="bulk", stages=3, prefetch=2)
        if family == "norm-cluster/direct":
            schedule = replace(
                schedule, tile=(1, 128), vector=2, cluster=2, load="bulk", stages=2, prefetch=1
            )
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], "bf16", contiguity=[False, True])
        most = fd.ops.max(x, [1])
        fd.add_output(fd.ops.sub(x, fd.ops.broadcast(most, [False, True])))
        return Case(fd.fusion(), schedule, {"i0": 5, "i1": 200}, "integers", 0)
    if family in SCAN_FAMILIES:
        loads = family.removeprefix("scan-").removesuffix("/direct")
        ring = loads != "direct"
        schedule = ScanParams(
            (1, 128),
            2,
            2,
            1,
            next(word for word in ARRIVAL if loads.startswith(word)),
            "direct",
            3 if ring else 1,
            2 if loads.endswith("pipelined") else 0,
            warp_specialized=loads.endswith("specialized"),
            lanes=64,
        )
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], "f32", contiguity=[False, True])
        fd.add_output(fd.ops.relu(fd.ops.cumsum(x, 1)))
        return Case(fd.fusion(), schedule, {"i0": 3, "i1": 520}, "integers", 0)
    if family in MATMUL_FAMILIES:
        tile = (64, 32, 32)
        if observe := OBSERVES.get(family):
            ahead, slots = 2 if observe == "groups" else 0, 1 if observe == "threads" else 3
            schedule = AmpereParams(tile, 2, observe, slots, ahead, persistent=False, columns=32)
        else:
            split, pairs = SPLITS[family], SPLITS[family] == "ping_pong"
            schedule = MatmulParams(tile, 1 + pairs, split, 3, 1, persistent=pairs, columns=32)
        return Case(linear(), schedule, {"i0": 72, "i1": 104, "i2": 24}, "integers", 0)
    loads, stores = family.split("/")
    bulk = loads.startswith("bulk")
    schedule = PointwiseParams(
        tile=(1, 256) if bulk else (4, 64),
        vector=4,
        warps=2,
        ctas_per_sm=1,
        load=next(word for word in ARRIVAL if loads.startswith(word)),
        store="tma" if stores == "tma" else "direct",
        stages=1 if loads == "direct" else 3,
        prefetch=2 if loads.endswith("pipelined") else 0,
        warp_specialized=loads.endswith("specialized"),
    )
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], "f32", contiguity=[bulk, True]) for _ in range(2))
    fd.add_output(fd.ops.relu(fd.ops.add(x, y)))
    return Case(fd.fusion(), schedule, {"i0": 30, "i1": 64}, "integers", 0)


def _of_type(what: str, dtype: str) -> Case:
    """Return all operations of a type; rows are so short that what fills a tile decides them."""
    if what == "operations":
        schedule = PointwiseParams((1, 64), 1, 2, None, "direct", "direct")
        kind: Kind = "integers" if DType.of(dtype).is_int else "reals"
        return Case(every_operation(dtype), schedule, {"i0": 100}, kind, 0)
    if what == "norms":
        norm = NormParams((2, 64), 2, 2, 1, "direct", "direct", lanes=32)
        return Case(less_extremes(dtype), norm, {"i0": 30, "i1": 2}, "reals", 0)
    rows = ReductionParams((4, 32), 1, 1, None, "direct", "direct")
    fusion = every_sum(dtype) if what == "sums" else every_reduction(dtype)
    return Case(fusion, rows, {"i0": 30, "i1": 3}, "reals", 0)


def taken(records: list[Record]) -> list[Record]:
    """Return the records of a representative, whose params are legal: no refusal is the user's."""
    return [
        replace(r, status="fail", kind=REFUSED) if r.status == "invalid" else r for r in records
    ]


def judge_family(words: str) -> Kills:
    """Judge the mutants of a family, given as `family seconds`, until the seconds are over."""
    family, seconds = words.split()
    return judge_mutants(family, seconds=float(seconds))


def judge_mutants(family: str, *, seconds: float = 1e9, schedules: int = SCHEDULES) -> Kills:
    """Judge the kernel of a family of `FAMILIES`, and every mutant of it, by prover and simulator.

    After so many seconds no further mutant is judged; with 0 none is, nor a kernel, else at least
    one. `schedules` are per trip count of the simulator's searches.
    """
    end = time.perf_counter() + seconds
    case = representative(family)
    recorder = Recorder(case, to_text(case), phase="base")
    left = 0
    for launch in (one for program in programs(recorder, case) for one in program.launches):
        both = judge_both(recorder, launch, None, schedules) if seconds > 0 else None
        alive = both and both[0].status is both[1].verdict.status is Status.PASS
        for number, mutant in enumerate(drop_each_sync(launch.kernel)):
            if not alive or (number and time.perf_counter() > end):
                left += 1
            elif both := judge_both(recorder, launch, mutant, schedules):
                said = partial(conclude, *both)
                recorder.ask("mutant", launch.kernel.name, said, mutant=mutant.change)
    return Kills(to_text(case), taken(recorder.records), left)


def judge_both(
    recorder: Recorder, launch: Launch, mutant: Mutant | None, schedules: int
) -> tuple[Verdict, Searched] | None:
    """Prove and search a kernel, or a mutant of it on its launches; None if a judge broke."""
    name, kernel = launch.kernel.name, mutant.kernel if mutant else launch.kernel
    change = mutant.change if mutant else ""
    proof = recorder.ask("prover", name, lambda: prove(kernel, policy=POLICY), mutant=change)
    found: list[Searched] = []

    def search() -> Verdict:
        found.append(_searched(launch, kernel, proof, schedules=schedules))
        return found[0].verdict

    recorder.ask("simulator", name, search, mutant=change)
    return (proof, found[0]) if proof is not None and found else None


def conclude(proof: Verdict, found: Searched) -> Verdict:
    """Tell killed mutants, redundant syncs and blind judges apart."""
    match fate(proof.status.value, found.verdict.status.value):
        case Fate.BOTH:
            return Verdict("mutant", Status.PASS, 2, reason="killed by both")
        case Fate.REDUNDANT:
            reason = "redundant: the prover proves the kernel without it; the simulator finds "
            return Verdict("mutant", Status.PASS, 2, reason=f"{reason}nothing in {found.extent}")
        case Fate.PROVER | Fate.SEARCH as by:
            killer, blind = ("prover", "simulator")[:: 1 if by is Fate.PROVER else -1]
            witness = f"only the {killer} kills it ({found.extent})"
            finding = Finding(f"blind {blind}", "mutant", witness)
            return Verdict("mutant", Status.FAIL, 2, (finding,))
        case Fate.OPEN:
            reason = f"the prover says {proof.status.value}: {proof.reason}; "
            reason += f"the simulator {found.verdict.status.value} in {found.extent}"
            return Verdict("mutant", Status.UNKNOWN, 0, reason=reason)


def _searched(
    launch: Launch, kernel: kir.Kernel, proof: Verdict | None, *, schedules: int
) -> Searched:
    """Try every trip count until one fails, those of the prover's witnesses first.

    Not none of a kernel that is launched for its tiles alone: a witness without a loop names 0.
    """
    counts = trip_counts(launch)
    said = sorted(witness_trips(proof)) if proof is not None else []
    trips = list(dict.fromkeys([*(n for n in said if n >= counts[0]), *reversed(counts)]))
    checked = 0
    for count in trips:
        verdict = simulate.search(
            kernel, with_trips(launch, count), schedules=schedules, policy=POLICY
        )
        checked += verdict.checked
        if verdict.status is not Status.PASS:
            return Searched(verdict, f"trips={count}")
    extent = f"{schedules} schedules at each of trips {', '.join(map(str, sorted(trips)))}"
    return Searched(Verdict(simulate.ORACLE, Status.PASS, checked, reason=extent), extent)


@click.command(cls=Command)
@click.option("--ledger", type=click.Path(dir_okay=False, path_type=Path), help="Also write here.")
@click.option("--schedules", default=SCHEDULES, show_default=True, help="Per trip count.")
def main(ledger: Path | None, schedules: int) -> None:
    """Print the table of mutants: killed or survived, per judge."""
    judges = ("prover", "simulator")
    table = Table("family", "mutation", *judges, "status", "conclusion")
    everything = [judge_mutants(family, schedules=schedules) for family in FAMILIES]
    said: set[str] = set()
    for kills in everything:
        mutants = [r for r in kills.records if r.mutant]
        for change, some in groupby(mutants, key=lambda r: r.mutant):
            by = {r.oracle: r for r in some}
            said_by = [by[name].status.replace("fail", "killed") for name in judges]
            final = by.get("mutant", by["simulator"])  # which broke, where nothing follows
            said.add(final.status)
            table.add_row(final.family, change, *said_by, final.status, final.reason)
    Console(width=200).print(table)
    for r in (r for kills in everything for r in kills.records if not r.mutant):
        if r.status != "pass":
            said.add(r.status)
            print(f"{r.family}: without a change, {r.oracle} says {r.status}: {r.reason}")
    if ledger is not None:
        with Ledger(ledger) as book:
            run = book.start("mutants", {**versions(), **machine()})
            for kills in everything:
                book.append(run, kills.records, text=kills.text)
    sys.exit(FAILED if "fail" in said else CLEAN if said == {"pass"} else HARNESS)


if __name__ == "__main__":
    main()
