"""How long proofs take: every recipe of the cookbook, 2 to 8 stages, 1 to 3 consumers; and matmuls.

With `--drawn` those of drawn cases, by family (`fuzz.bench.drawn`).

The matmuls are the compiler's own, for a linear layer, in every split.  Nothing is remembered from
one proof to the next but what a second look at the same kernel shows.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import click
from rich.console import Console
from rich.table import Table

from fuser.cookbook import recipes as cookbook
from fuser.kernel import ir as kir
from fuser.schedule.ampere_params import AmpereParams
from fuzz.bench import drawn
from fuzz.exit_code import CLEAN, FAILED, HARNESS, Command
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import Params, compiled, hopper
from fuzz.mutation.operators import LATE, mutants
from oracles.prover import prove
from oracles.verdict import Status, Verdict

STAGES = range(2, 9)
CONSUMERS = (1, 2, 3)
LATE_SYNCS = 6
"""Syncs of a recipe that are left out, at most."""
LATE_STAGES = 3
"""Stages of the kernels that lack a sync."""
MANY = ("specialized_ring", "wgmma_ring")
"""Recipes that take a number of consumers."""
DEPTHS = (2, 4, 8)
"""Stages of the matmuls."""


def matmuls(stages: int) -> dict[str, Params]:
    """Return schedules of the compiler's matmuls with so many stages."""
    flying, full = max(stages - 2, 0), stages - 1
    ampere = (32, 16, 16)
    return {
        "matmul pipelined": hopper("pipelined", stages, flying),
        "matmul pipelined, tiles": hopper("pipelined", stages, flying, persistent=True),
        "matmul pipelined, tiles, prolog": hopper("pipelined", stages, full, persistent=True),
        "matmul cooperative": hopper("cooperative", stages, flying, groups=2),
        "matmul cooperative, tiles": hopper(
            "cooperative", stages, flying, persistent=True, groups=2
        ),
        "matmul cooperative, chunks": hopper(
            "cooperative", stages, full, persistent=True, groups=2, columns=8
        ),
        "matmul ping-pong": hopper("ping_pong", stages, flying),
        "matmul ping-pong, chunks": hopper("ping_pong", stages, full, columns=8),
        "matmul groups": AmpereParams(ampere, 2, "groups", stages, full, False, columns=16),
        "matmul groups, tiles": AmpereParams(ampere, 2, "groups", stages, full, True, columns=16),
        "matmul mbarriers": AmpereParams(ampere, 2, "mbarriers", stages, 0, False, columns=16),
        "matmul mbarriers, tiles": AmpereParams(ampere, 2, "mbarriers", stages, 0, True, columns=8),
    }


@dataclass(frozen=True, slots=True)
class Timed:
    """One proof: of which kernel, what it said, and milliseconds for a first and a second look."""

    recipe: str
    stages: int
    consumers: int
    verdict: Verdict
    first_ms: float
    again_ms: float


def kernels() -> Iterator[tuple[str, int, int, Callable[[], kir.Kernel]]]:
    """Yield recipe, stages, consumers and builder of every kernel of the table."""
    for name in cookbook.RECIPES:
        recipe = getattr(cookbook, name)
        for stages in STAGES:
            for consumers in CONSUMERS if name in MANY else (1,):
                more = {"consumers": consumers} if name in MANY else {}
                yield name, stages, consumers, partial(recipe, stages=stages, **more)
    for stages in DEPTHS:
        for name, params in matmuls(stages).items():
            yield name, stages, 1, partial(compiled, linear(), params)


def timed(
    name: str, stages: int, consumers: int, build: Callable[[], kir.Kernel], policy: str
) -> Timed:
    """Prove one kernel, and the same once more."""
    kernel, same = build(), build()
    verdict, first_ms = clocked(kernel, policy)
    return Timed(name, stages, consumers, verdict, first_ms, clocked(same, policy)[1])


def clocked(kernel: kir.Kernel, policy: str) -> tuple[Verdict, float]:
    """Prove a kernel; return the verdict and milliseconds."""
    gc.collect()
    start = time.perf_counter()
    verdict = prove.prove(kernel, policy=policy)
    return verdict, 1e3 * (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Late:
    """Refutations of kernels that lack a sync: milliseconds from the start, and from `LATE` on."""

    recipe: str
    pairs: tuple[tuple[float, float], ...]


def late(name: str, stages: int, policy: str) -> Late:
    """Refute kernels that lack a sync of a loop, and those that lack the same one late only."""
    kernel = getattr(cookbook, name)(stages=stages)
    always = {m.change.removeprefix("drop "): m for m in mutants(kernel, "drop")}
    pairs: list[tuple[float, float]] = []
    for mutant in mutants(kernel, "stages"):
        same = always.get(mutant.change.removeprefix(f"not from {LATE} on "))
        if same is not None and len(pairs) < LATE_SYNCS:
            (one, first_ms), (two, late_ms) = (clocked(m.kernel, policy) for m in (same, mutant))
            if one.status is two.status is Status.FAIL:
                pairs.append((first_ms, late_ms))
    return Late(name, tuple(pairs))


def late_table(rows: list[Late]) -> Table:
    """Return one line per recipe whose syncs stand in loops."""
    out = Table(
        title=f"a sync that is missing: milliseconds to the witness (median), {LATE_STAGES} stages"
    )
    out.add_column("recipe")
    for words in ("syncs", "from k=0 on", f"from k={LATE} on", "slowest", f"slowest from k={LATE}"):
        out.add_column(words, justify="right")
    for row in rows:
        if row.pairs:
            first, then = zip(*row.pairs, strict=True)
            times = (median(first), median(then), max(first), max(then))
            out.add_row(row.recipe, str(len(row.pairs)), *(f"{ms:.0f}" for ms in times))
    return out


def summary(rows: list[Timed]) -> str:
    """Say in one line how long the proofs took."""
    times = [row.first_ms for row in rows]
    slow = quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
    proved = sum(row.verdict.status is Status.PASS for row in rows)
    again = median(row.again_ms for row in rows)
    return (
        f"{proved} of {len(rows)} proved for all trip counts; first look: median "
        f"{median(times):.0f} ms, 95 % within {slow:.0f} ms, at most {max(times):.0f} ms; "
        f"second look at the same kernel: median {again:.2f} ms"
    )


def table(rows: list[Timed]) -> Table:
    """Return one line per recipe and consumers, one column per number of stages."""
    out = Table(title="proof of all trip counts: milliseconds (claims)")
    out.add_column("recipe")
    out.add_column("consumers", justify="right")
    for stages in STAGES:
        out.add_column(f"S={stages}", justify="right")
    groups = dict.fromkeys((row.recipe, row.consumers) for row in rows)
    for recipe, consumers in groups:
        cells = {
            row.stages: _cell(row)
            for row in rows
            if (row.recipe, row.consumers) == (recipe, consumers)
        }
        out.add_row(recipe, str(consumers), *(cells.get(stages, "") for stages in STAGES))
    return out


def _cell(row: Timed) -> str:
    if row.verdict.status is not Status.PASS:
        return str(row.verdict.status.value)
    return f"{row.first_ms:.0f} ({row.verdict.checked})"


@click.command(cls=Command)
@click.option("--policy", default="default", show_default=True, help="default or strict.")
@click.option("--only", default="", help="Part of a recipe's name.")
@click.option("--drawn", "each", type=click.IntRange(min=1), help="Draw so many cases a family.")
@click.option("--seed", default=0, show_default=True, help="Seed of the cases that are drawn.")
@click.option("--workers", default=1, show_default=True, help="Processes that prove drawn cases.")
@click.option("--out", type=click.Path(path_type=Path), help="Write drawn cases here as JSON.")
def main(
    policy: str, only: str, each: int | None, seed: int, workers: int, out: Path | None
) -> None:
    """Time the proofs of the recipes, and of the compiler's matmuls, or of drawn cases."""
    if each is not None:
        sys.exit(_drawn(drawn.Drawn(each, seed), workers, out))
    rows = [timed(*one, policy) for one in kernels() if only in one[0]]
    if not rows:
        raise click.UsageError(f"--only {only}: no such recipe; pick one of {[*cookbook.RECIPES]}")
    console = Console(width=140)
    console.print(table(rows))
    console.print(summary(rows))
    recipes = [name for name in cookbook.RECIPES if only in name]
    if recipes:
        console.print(late_table([late(name, LATE_STAGES, policy) for name in recipes]))
    said = {row.verdict.status for row in rows}
    sys.exit(FAILED if Status.FAIL in said else CLEAN if said == {Status.PASS} else HARNESS)


def _drawn(those: drawn.Drawn, workers: int, out: Path | None) -> int:
    """Prove drawn cases, show the table, and return the exit code."""
    proofs = list(those.proofs(workers))
    if out is not None:
        drawn.write(out, those, proofs)
    console = Console(width=140)
    console.print(drawn.table(proofs))
    for complaint in drawn.complaints(proofs):
        console.print(complaint, markup=False, highlight=False)
    failed = any(proof.status == "fail" for proof in proofs)
    whole = all(proof.confirmed or proof.status == drawn.REFUSED for proof in proofs)
    return FAILED if failed else CLEAN if whole else HARNESS


if __name__ == "__main__":
    main()
