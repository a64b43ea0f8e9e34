"""How long the proofs of drawn cases take, and how much z3 confirms, by family of kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from time import process_time

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from pebble import ProcessPool
from rich.table import Table

from fuser.errors import ScheduleError
from fuser.pipeline import Launch
from fuser.schedule.matmul import MatmulTiling
from fuser.schedule.params import NormParams
from fuser.schedule.reduction import ReductionTiling
from fuzz.campaign.judge import POLICY
from fuzz.cases.case import Case, compiled, from_text, to_text
from fuzz.cases.params import FAMILIES
from fuzz.cases.strategies import cases
from oracles.prover import prove
from oracles.verdict import Status

LIMIT_S = 120
"""Seconds in which the kernels of a case are proved."""
SLOW_S, NEVER_S = 1.0, 10.0
"""At most one kernel in a hundred may take longer than the first, and none than the second."""
REFUSED = "refused"
"""Status of a case that no kernel can be made of: sm_80 multiplies no 8-bit floats, say."""
WORST = 8
"""Slowest kernels that are named."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof of one kernel of a case: CPU seconds, status, and whether z3 confirmed it all."""

    case: int
    kernel: str
    family: str
    seconds: float
    status: str
    confirmed: bool
    reason: str


def texts(every: SearchStrategy[Case], count: int, number: int) -> tuple[str, ...]:
    """Draw so many cases by a seed; return the texts of those that differ."""
    seen: dict[str, None] = {}

    def keep(case: Case) -> None:
        seen[to_text(case)] = None

    quiet = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=tuple(HealthCheck),
    )
    seed(number)(quiet(given(every)(keep)))()
    return tuple(seen)


@dataclass(frozen=True)
class Drawn:
    """So many cases of each schedule family, by their seed; equal ones count once."""

    each: int
    seed: int

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The cases, as text."""
        seen: dict[str, None] = {}
        for number, family in enumerate(FAMILIES):
            every = cases(families=(family,))
            seen |= dict.fromkeys(texts(every, self.each, self.seed * len(FAMILIES) + number))
        return tuple(seen)

    def proofs(self, workers: int) -> Iterator[Proof]:
        """Prove every kernel of every case, by so many processes, in order."""
        with ProcessPool(workers, context=get_context("spawn")) as pool:
            jobs = [
                pool.schedule(_proofs, (number, text), timeout=LIMIT_S)
                for number, text in enumerate(self.texts)
            ]
            for number, job in enumerate(jobs):
                if job.exception() is None:
                    yield from job.result()
                else:
                    lost = f"{type(job.exception()).__name__}: {job.exception()}"
                    yield Proof(number, "", "lost", LIMIT_S, "lost", False, lost)


def _proofs(number: int, text: str) -> list[Proof]:
    """Prove the kernels of one case."""
    try:
        launches = compiled(from_text(text)).launches
    except ScheduleError as error:
        return [Proof(number, "", "", 0.0, REFUSED, False, str(error))]
    result = []
    for launch in launches:
        start = process_time()
        said = prove.prove(launch.kernel, policy=POLICY)
        seconds, whole = process_time() - start, "order" in said.confirmed_by
        result.append(
            Proof(
                number,
                launch.kernel.name,
                family(launch),
                seconds,
                said.status.value,
                said.status is Status.PASS and whole,
                said.reason,
            )
        )
    return result


def family(launch: Launch) -> str:
    """Return the line of the table that a kernel belongs to."""
    params = launch.params
    if isinstance(launch.tiling, MatmulTiling):
        where = params.family
        where += ", clusters" if getattr(params, "cluster", (1, 1)) > (1, 1) else ""
    elif isinstance(params, NormParams):
        where = "whole rows"
    else:
        where = "reductions" if isinstance(launch.tiling, ReductionTiling) else "pointwise"
    return where + (", CTAs that share a tile" if getattr(params, "splits", 1) > 1 else "")


def table(proofs: Iterable[Proof]) -> Table:
    """Return one line a family, and one of all."""
    judged = (proof for proof in proofs if proof.status != REFUSED)
    rows = sorted(judged, key=lambda proof: proof.family)
    out = Table("kernels", title="proofs of drawn kernels")
    for words in ("number", "confirmed", "median, ms", "99 %, s", "most, s", "> 1 s", "> 10 s"):
        out.add_column(words, justify="right")
    for name, some in groupby(rows, lambda proof: proof.family):
        out.add_row(name, *_cells(list(some)))
    out.add_row("all", *_cells(rows))
    return out


def _cells(rows: list[Proof]) -> list[str]:
    times = [row.seconds for row in rows]
    late = quantiles(times, n=100, method="inclusive")[-1] if len(times) > 1 else max(times)
    return [
        str(len(rows)),
        str(sum(row.confirmed for row in rows)),
        f"{1e3 * median(times):.0f}",
        f"{late:.2f}",
        f"{max(times):.2f}",
        *(str(sum(time > limit for time in times)) for limit in (SLOW_S, NEVER_S)),
    ]


def complaints(proofs: Iterable[Proof]) -> Iterator[str]:
    """Say what is not confirmed, which kernels take longest, and how many cases have none."""
    rows = list(proofs)
    for row in rows:
        if not row.confirmed and row.status != REFUSED:
            yield f"case {row.case} {row.kernel}: {row.status}: {row.reason}"
    for row in sorted(rows, key=lambda row: -row.seconds)[:WORST]:
        yield f"case {row.case} {row.kernel} ({row.family}): {row.seconds:.2f} s"
    yield f"{sum(row.status == REFUSED for row in rows)} cases are refused by their schedules"


def write(path: Path, drawn: Drawn, proofs: Iterable[Proof]) -> None:
    """Write all cases and proofs to a file of JSON."""
    found = {"cases": drawn.texts, "proofs": [asdict(proof) for proof in proofs]}
    path.write_text(json.dumps(found), encoding="utf-8")
