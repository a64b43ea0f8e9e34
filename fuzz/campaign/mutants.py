"""How strong the judges are: mutants of one kernel per schedule family, killed or survived.

A mutant that both judges kill is a `pass` of the oracle `mutant`.  A survivor is either a redundant
sync (the prover proves the kernel without it, and the stated search of the simulator finds
nothing), also a `pass`, or a blind judge, a `fail`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.pipeline import Launch, build
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams
from fuzz.campaign.environment import machine, versions
from fuzz.campaign.launches import trip_counts, with_trips
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import Record
from fuzz.campaign.recorder import Clerk
from fuzz.cases.case import Case, specs, to_text
from fuzz.cases.params import FAMILIES
from fuzz.cases.schedules import MATMUL_FAMILIES, OBSERVES, SPLITS
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.mutation.fate import Fate, fate
from fuzz.mutation.operators import Mutant, drop_each_sync
from oracles.prover.prove import prove, witness_trips
from oracles.simulator import simulate
from oracles.verdict import Finding, Status, Verdict

SCHEDULES = 24
"""Schedules per trip count of the simulator's search: each of its six strategies four times."""

Table_ = tuple[str, list[Record]]


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search of the simulator came to, and its extent in words."""

    verdict: Verdict
    extent: str


def representative(family: str) -> Case:
    """Return the case whose kernel stands for a schedule family.

    That is relu(x + y) in f32, or relu(linear(x, w, bias)) in bf16.
    """
    if family in MATMUL_FAMILIES:
        return _representative_product(family)
    loads, stores = family.split("/")
    specialized = loads == "tma-specialized"
    stages = 1 if loads == "direct" else 3
    schedule = PointwiseParams(
        tile=(4, 64),
        vector=4,
        warps=2,
        ctas_per_sm=1,
        load="direct" if loads == "direct" else "tma",
        store="tma" if stores == "tma" else "direct",
        stages=stages,
        prefetch=2 if loads == "tma-pipelined" else 0,
        warp_specialized=specialized,
    )
    return Case(_relu_of_sum(), schedule, {"i0": 30, "i1": 64}, "integers", 0)


def judge_family(words: str) -> list[Table_]:
    """Judge the mutants of a family, given as `family seconds`, until the seconds are over."""
    family, seconds = words.split()
    return judge_mutants(family, seconds=float(seconds))


def judge_mutants(family: str, *, seconds: float = 1e9, schedules: int = SCHEDULES) -> list[Table_]:
    """Judge every mutant of a family's kernel by prover and simulator, at least the first.

    Returns
    -------
    list of (str, list of Record)
        The text of the case with three records per mutant: prover, simulator, and what follows.
    """
    end = time.perf_counter() + seconds
    case = representative(family)
    text = to_text(case)
    clerk = Clerk(case, text)
    program = build(case.fusion, case.params, classify(case.fusion, case.params, specs(case)))
    for launch in program.launches:
        for mutant in drop_each_sync(launch.kernel):
            if clerk.records and time.perf_counter() > end:
                return [(text, clerk.records)]
            judge_mutant(clerk, launch, mutant, schedules=schedules)
    return [(text, clerk.records)]


def judge_mutant(clerk: Clerk, launch: Launch, mutant: Mutant, *, schedules: int) -> None:
    """Judge one mutant and say which it is: killed by both, redundant, or past a blind judge."""
    name, kernel = launch.kernel.name, mutant.kernel
    proof = clerk.ask("prover", name, lambda: prove(kernel), mutant=mutant.change)
    found: list[Searched] = []

    def search() -> Verdict:
        found.append(_searched(launch, mutant, proof, schedules=schedules))
        return found[0].verdict

    clerk.ask("simulator", name, search, mutant=mutant.change)
    if proof is None or not found:
        return
    conclusion = conclude(proof, found[0])
    clerk.ask("mutant", name, lambda: conclusion, mutant=mutant.change)


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


def _searched(launch: Launch, mutant: Mutant, proof: Verdict | None, *, schedules: int) -> Searched:
    """Try every trip count until one fails, those of the prover's witnesses first."""
    said = sorted(witness_trips(proof)) if proof is not None else []
    trips = list(dict.fromkeys([*said, *reversed(trip_counts(launch))]))
    checked = 0
    for count in trips:
        verdict = simulate.search(mutant.kernel, with_trips(launch, count), schedules=schedules)
        checked += verdict.checked
        if verdict.status is not Status.PASS:
            return Searched(verdict, f"trips={count}")
    extent = f"{schedules} schedules at each of trips {', '.join(map(str, sorted(trips)))}"
    return Searched(Verdict(simulate.ORACLE, Status.PASS, checked, reason=extent), extent)


def _representative_product(family: str) -> Case:
    """Return a case of a small tile, a ring of three slots, and several tiles."""
    schedule: MatmulParams | AmpereParams
    if family in OBSERVES:
        schedule = AmpereParams(
            tile=(64, 32, 32),
            warps=2,
            observe=OBSERVES[family],
            stages=3,
            prefetch=2 if OBSERVES[family] == "groups" else 0,
            persistent=False,
            columns=32,
        )
    else:
        pairs = SPLITS[family] == "ping_pong"
        schedule = MatmulParams(
            tile=(64, 32, 32),
            warpgroups=2 if pairs else 1,
            split=SPLITS[family],
            stages=3,
            prefetch=1,
            persistent=pairs,
            columns=32,
        )
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    bias = fd.define_tensor([-1], "bf16")
    fd.add_output(fd.ops.relu(fd.ops.linear(x, w, bias)))
    return Case(fd.fusion(), schedule, {"i0": 72, "i1": 104, "i2": 24}, "integers", 0)


def _relu_of_sum() -> Fusion:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f32", contiguity=[False, True])
    y = fd.define_tensor([-1, -1], "f32", contiguity=[False, True])
    fd.add_output(fd.ops.relu(fd.ops.add(x, y)))
    return fd.fusion()


@click.command(cls=Command)
@click.option("--ledger", type=click.Path(dir_okay=False, path_type=Path), help="Also write here.")
@click.option("--schedules", default=SCHEDULES, show_default=True, help="Per trip count.")
def main(ledger: Path | None, schedules: int) -> None:
    """Print the table of mutants: killed or survived, per judge."""
    table = Table("family", "mutation", "prover", "simulator", "status", "conclusion")
    everything: list[Table_] = []
    for family in FAMILIES:
        everything += judge_mutants(family, schedules=schedules)
    said: set[str] = set()
    for _, records in everything:
        for start in range(0, len(records) - 2, 3):
            proof, search, final = records[start : start + 3]
            words = ["killed" if r.status == "fail" else r.status for r in (proof, search)]
            said.add(final.status)
            table.add_row(final.family, final.mutant, *words, final.status, final.reason)
    Console(width=200).print(table)
    if ledger is not None:
        with Ledger(ledger) as book:
            run = book.start("mutants", {**versions(), **machine()})
            for text, records in everything:
                book.append(run, records, text=text)
    sys.exit(FAILED if "fail" in said else CLEAN if said == {"pass"} else HARNESS)


if __name__ == "__main__":
    main()
