"""`python -m fuzz.bench.sweep` times schedules of shapes drawn at random (needs a GPU).

A cost model is fitted to the lines that it writes, and checked on those of shapes that were left
out: one JSON object for each shape (M, N and K of a product), microseconds of torch, of the default
schedule and of each schedule that was tried, by the text of its params.  Of products these are all
that may be the fastest, of others those that the model takes for the fastest.

Of many schedules the one that was timed as the fastest also was the luckiest: it is timed again,
with the next ones and the default, in turn, and the default is compared with what that says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import ceil, gcd
from multiprocessing import get_context
from statistics import geometric_mean, median
from typing import IO

import click
import torch
from pebble import ProcessPool
from rich.console import Console
from torch._subclasses.fake_tensor import FakeTensorMode

from fuser.arch import SM_90A
from fuser.errors import ScheduleError
from fuser.fusion.ir import TensorView
from fuser.pipeline import Program, build
from fuser.runtime.call import Spec, extents_of, loops_of
from fuser.runtime.classify import Alternatives, classify
from fuser.runtime.executable import Executable, device_present
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.products.choose import candidates
from fuser.schedule.products.unaligned import Lying, ranked
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Choices, Params
from fuzz.bench.matmul.batched import Batched
from fuzz.bench.matmul.grouped import Grouped
from fuzz.bench.matmul.layouts import Layout
from fuzz.bench.matmul.products import Product, plain
from fuzz.bench.matmul.quantized import Quantized
from fuzz.bench.matmul.scaled import Scaled
from fuzz.bench.row import L2_BYTES, SHORT_US, Row, fastest_us, side_by_side, together
from fuzz.bench.shapes import KINDS, rows, summary
from fuzz.campaign.conduct import shard as one_of
from fuzz.campaign.record import DEFAULT
from fuzz.exit_code import HARNESS, Command

AGAIN, TURNS, SAMPLES = 3, 9, 16
"""Fastest schedules of a shape that are timed again, how often, and how many are timed at first
where it is no product's."""
NEAR = 1.03
"""Time of a default, in times that of the fastest schedule, up to which it is as good."""
MOST_WORSE = 4.0
"""Schedules whose tiles multiply so many times what there is are not timed, beyond the least."""


def schedules(
    m: int, n: int, k: int, sms: int = SM_90A.sms
) -> Iterator[MatmulParams | AmpereParams]:
    """Yield schedules for a product of 16-bit operands, all that may be the fastest for a shape.

    They are those that the default is chosen from, and where no engine copies operands, those by
    which these are read where they lie.
    """
    row = plain("", (m, n, k))
    fusion = row.fusion()
    (segment,) = segments(fusion)
    loops = loops_of(segment.domain, extents_of(fusion, lying(row)))
    if k % 8:
        so = Lying((gcd(k, 8),) * 2)
        yield from (one.params for one in ranked(segment.domain, loops, so, sms))
    yield from candidates(fusion, segment.domain, loops, sms)


def in_registers(row: Row) -> Iterator[MatmulParams]:
    """Yield schedules by which an operand is computed where it is multiplied."""
    for params in multiplying(row, Choices(registers="either")):
        yield replace(params, prologue="registers")


def multiplying(row: Row, choices: Choices) -> Iterator[MatmulParams]:
    """Yield schedules for the last kernel of a row, a product, where it is cut so."""
    fusion = row.fusion()
    *_, segment = segments(fusion, choices)
    loops = loops_of(segment.domain, extents_of(fusion, lying(row)))
    yield from candidates(fusion, segment.domain, loops)


def worthwhile(m: int, n: int, k: int) -> list[MatmulParams | AmpereParams]:
    """Return the schedules that are timed: those that multiply much more than others are not."""
    every = [*schedules(m, n, k)]
    least = {
        kind: min((worth(p, m, n, k) for p in every if isinstance(p, kind)), default=0.0)
        for kind in (MatmulParams, AmpereParams)
    }
    return [p for p in every if worth(p, m, n, k) <= MOST_WORSE * least[type(p)]]


def worth(
    params: MatmulParams | AmpereParams, m: int, n: int, k: int, sms: int = SM_90A.sms
) -> float:
    """Return what the SMs multiply until the last is done, in multiples of tile times depth."""
    high, wide, _ = params.tile
    ctas = ceil(m / high) * ceil(n / wide) * params.splits
    return ceil(ctas / sms) * high * wide * ceil(k / params.splits)


@click.command(cls=Command)
@click.option("--kind", type=click.Choice([*KINDS]), default="product", help="Of what.")
@click.option("--random", "count", type=click.IntRange(min=1), default=100, help="Shapes drawn.")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    show_default=f"all of a product, {SAMPLES} of others",
    help="Schedules of a shape, at most: those that are predicted to be the fastest.",
)
@click.option("--seed", default=0, help="Seed of the shapes.")
@click.option(
    "--shard", default="1/1", callback=one_of, help="Part of parts: each has other shapes."
)
@click.option("--workers", default=1, help="Processes that compile before anything is timed.")
@click.option("--default", "only", is_flag=True, help="Time torch and the default schedule only.")
@click.argument("out", type=click.File("w", lazy=False))
def main(
    *,
    kind: str,
    count: int,
    most: int | None,
    seed: int,
    shard: tuple[int, int],
    workers: int,
    only: bool,
    out: IO[str],
) -> None:
    """Time schedules of shapes drawn at random; lines of JSON go to OUT.

    Then say how fast defaults are beside torch, and beside the fastest schedules.
    """
    if not device_present():
        click.echo("sweep: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    part, parts = shard
    known: dict[object, Executable] = {}
    every = drawn(kind, count, seed)[part - 1 :: parts]
    ways = [[None] if only else [None, *promising(row, most)] for row in every]
    if workers > 1:
        compile_ahead(every, ways, (kind, count, seed), workers)
    lines = dict[str, Line]()
    for row, tried in zip(every, ways, strict=True):
        lines[row.name] = timed(row, tried, known)
        out.write(json.dumps(asdict(lines[row.name])) + "\n")
        out.flush()
        torch.cuda.empty_cache()
    console = Console()
    peers = {
        name: {who: line.us[who] for who in ("torch", DEFAULT) if who in line.us}
        for name, line in lines.items()
    }
    console.print(summary(peers, every))
    console.print(chosen([*lines.values()]), highlight=False)


def drawn(kind: str, count: int, seed: int) -> list[Row]:
    """Return so many rows of a kind."""
    return [row for row in rows(count, seed) if row.name.rstrip("0123456789") == kind]


def chosen(lines: Sequence[Line]) -> str:
    """Say how many results were wrong, and what defaults take beside the fastest schedules."""
    says = f"{len(lines)} shapes, {sum(bool(line.wrong) for line in lines)} with a wrong result"
    refused = sum(DEFAULT not in line.us for line in lines)
    says += f", {refused} without a default" if refused else ""
    behind = [line.again[DEFAULT] / min(line.again.values()) for line in lines if line.again]
    if not behind:
        return says
    share = 100 * sum(ratio <= NEAR for ratio in behind) / len(behind)
    many = sum(len(line.us) - 2 for line in lines) / len(lines)
    late = 100 * geometric_mean(behind) - 100
    return (
        f"{says}; the default beside the fastest of {many:.0f} schedules, timed again in turn: "
        f"{late:.1f} % behind (geometric mean, {len(behind)} shapes), "
        f"within {100 * NEAR - 100:.0f} % of it for {share:.0f} %"
    )


def promising(row: Row, most: int | None) -> list[Params]:
    """Return the schedules of a shape that are timed."""
    if isinstance(row, Product) and row.prologue:
        stored, computed = schedules(*row.shape), in_registers(row)
        each = most or SAMPLES
        return [*islice(stored, each // 4), *islice(computed, each - each // 4)]
    if isinstance(row, Product) and not row.ends:
        return [*worthwhile(*row.shape)[:most]]
    if isinstance(row, Quantized):
        return [*islice(in_registers(row), most or SAMPLES)]
    if isinstance(row, Product | Grouped | Layout | Batched | Scaled):
        return [*islice(multiplying(row, Choices()), most or SAMPLES)]
    found = Alternatives(row.fusion(), lying(row))
    alone = len(found.default.schedules) == 1  # params serve all kernels, or ask for another cut
    return [*islice(dict.fromkeys(found.candidates(0)), most or SAMPLES)] if alone else []


def lying(row: Row) -> dict[str, Spec]:
    """Return how the inputs of a row lie in memory, by name; nothing is allocated."""
    tensors = [tv for tv in row.fusion().inputs if isinstance(tv, TensorView)]
    with FakeTensorMode():
        given = [(tuple(x.shape), x.stride()) for x in row.inputs()]
    return {
        tv.name: Spec(*form, number << 40, tv.dtype)
        for number, (tv, form) in enumerate(zip(tensors, given, strict=True), 1)
    }


def compile_ahead(
    rows: Sequence[Row],
    ways: Sequence[Sequence[Params | None]],
    draw: tuple[str, int, int],
    workers: int,
) -> None:
    """Fill the cache on disk with the kernels of all that will be timed.

    `draw` are the arguments of `drawn`, by which other processes find the rows.
    """
    tried: dict[object, tuple[tuple[str, int, int], str, Params | None]] = {}
    for row, schedules in zip(rows, ways, strict=True):
        for params in schedules:
            tried.setdefault(_program(row, params), (draw, row.name, params))
    with ProcessPool(workers, context=get_context("spawn")) as pool:
        chunk = max(1, len(tried) // (8 * workers))
        for done in pool.map(_compile, tried.values(), chunksize=chunk).result():
            assert done is None, "it has no result"


def _program(row: Row, params: Params | None) -> object:
    """Return what rows have alike that run the same program under a schedule."""
    if isinstance(row, Product) and params is not None:  # a default is of one shape
        _, n, k = row.shape
        return params, n % 8 == 0, k % 8 == 0, row.prologue, row.dtype, row.weights, row.ends
    return params, row.name


def _compile(tried: tuple[tuple[str, int, int], str, Params | None]) -> None:
    draw, name, params = tried
    row = next(row for row in drawn(*draw) if row.name == name)
    with suppress(ScheduleError):
        compiled(row, params)


def compiled(row: Row, params: Params | None) -> None:
    """Compile the kernels of a row under a schedule; None is the default."""
    for launch in built(row, params).launches:
        compile_cubin(launch.source)


def built(row: Row, params: Params | None) -> Program:
    """Return the kernels of a row under a schedule, in CUDA; None is the default."""
    fusion = row.fusion()
    return build(fusion, params, classify(fusion, params, lying(row)))


@dataclass(frozen=True, slots=True)
class Line:
    """What was timed of a shape: microseconds by who, then of the fastest schedules in turn.

    `wrong` are the schedules whose results were off.
    """

    shape: tuple[object, ...]
    us: dict[str, float]
    again: dict[str, float]
    wrong: list[str]


def timed(row: Row, tried: Sequence[Params | None], known: dict[object, Executable]) -> Line:
    """Time torch, and each schedule of a row; None is the default.

    `known` has the programs of schedules, for they serve many shapes.
    """
    fusion = row.fusion()
    sets = [row.inputs() for _ in range(max(2, min(8, 2 * L2_BYTES // row.nbytes + 1)))]
    outs = together(row.form(*sets[0]))
    peer = row.peers(outs, compiled=False)["torch"]
    taken: dict[str, float] = {"torch": fastest_us(peer, sets)}
    calls = dict[str, Callable[..., object]]()
    wrong = []
    for params in tried:
        run = known.setdefault(_program(row, params), Executable(fusion, params))
        name = DEFAULT if params is None else str(params)
        with suppress(ScheduleError):
            calls[name] = lambda *given, run=run: run(*given, out=outs)
            calls[name](*sets[0])
            taken[name] = fastest_us(calls[name], sets)
            calls[name](*sets[0])
            if not row.error(sets[0], outs) <= row.tolerance:
                wrong.append(name)
    ours = sorted((name for name in calls if name in taken), key=taken.__getitem__)
    again = dict[str, float]()
    if DEFAULT in ours and len(ours) > 1:
        finalists = {name: calls[name] for name in dict.fromkeys((*ours[:AGAIN], DEFAULT))}
        found = side_by_side(finalists, sets, TURNS, SHORT_US)
        again = {name: median(times) for name, times in found.items()}
    return Line(_shape(row), taken, again, wrong)


def _shape(row: Row) -> tuple[object, ...]:
    """Return M, N and K of a product, if nothing follows it; else the shapes of all inputs."""
    if isinstance(row, Product) and not row.ends:
        return row.shape
    return tuple(spec.shape for spec in lying(row).values())


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench.sweep")
