"""`python -m fuzz.bench.sweep` times every schedule of products drawn at random (needs a GPU).

A cost model is fitted to the lines that it writes, and checked on those of shapes that were left
out: one JSON object for each shape, with its M, N and K, microseconds of torch, of the default
schedule and of each schedule that was tried, by the text of its params.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import ceil, gcd
from multiprocessing import get_context
from typing import IO

import click
import torch
from pebble import ProcessPool

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.ir import Fusion
from fuser.pipeline import build
from fuser.runtime.call import Spec, extents_of, loops_of
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable, device_present
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.products.choose import candidates
from fuser.schedule.products.unaligned import ranked
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Params
from fuzz.bench.products import Product, plain
from fuzz.bench.row import L2_BYTES, Tensors, fastest_us, together
from fuzz.bench.shapes import rows
from fuzz.campaign.conduct import shard as one_of
from fuzz.campaign.record import DEFAULT
from fuzz.exit_code import HARNESS, Command

MOST_WORSE = 4.0
"""Schedules whose tiles multiply so many times what there is are not timed, beyond the least."""


def schedules(
    m: int, n: int, k: int, sms: int = SM_90A.sms
) -> Iterator[MatmulParams | AmpereParams]:
    """Yield schedules for a product of 16-bit operands, all that may be the fastest for a shape.

    They are those that the default is chosen from, and where no engine copies operands, those by
    which these are read where they lie.
    """
    fusion = plain("", (m, n, k)).fusion()
    (segment,) = segments(fusion)
    loops = loops_of(segment.domain, extents_of(fusion, specs(fusion, (m, n, k))))
    if k % 8:
        yield from (one.params for one in ranked(segment.domain, loops, (gcd(k, 8),) * 2, sms))
    yield from candidates(fusion, segment.domain, loops, sms)


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
@click.option("--random", "count", type=click.IntRange(min=1), default=100, help="Shapes drawn.")
@click.option("--seed", default=0, help="Seed of the shapes.")
@click.option(
    "--shard", default="1/1", callback=one_of, help="Part of parts: each has other shapes."
)
@click.option("--workers", default=1, help="Processes that compile before anything is timed.")
@click.option("--default", "only", is_flag=True, help="Time torch and the default schedule only.")
@click.argument("out", type=click.File("w", lazy=False))
def main(
    *, count: int, seed: int, shard: tuple[int, int], workers: int, only: bool, out: IO[str]
) -> None:
    """Time every schedule of products drawn at random; lines of JSON go to OUT."""
    if not device_present():
        click.echo("sweep: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    part, parts = shard
    known: dict[Params | None, Executable] = {}
    every = [row for row in rows(count, seed) if isinstance(row, Product)][part - 1 :: parts]
    ways = [[None] if only else [None, *worthwhile(*row.shape)] for row in every]
    if workers > 1:
        compile_ahead(every, ways, workers)
    for row, tried in zip(every, ways, strict=True):
        out.write(json.dumps(timed(row, tried, known)) + "\n")
        out.flush()
        torch.cuda.empty_cache()


def compile_ahead(
    rows: Sequence[Product], ways: Sequence[Sequence[Params | None]], workers: int
) -> None:
    """Fill the cache on disk with the kernels of all that will be timed."""
    tried: dict[object, tuple[tuple[int, int, int], Params | None]] = {}
    for row, schedules in zip(rows, ways, strict=True):
        for params in schedules:  # kernels serve all shapes alike, a default is of one
            _, n, k = row.shape
            of = row.shape if params is None else (n % 8 == 0, k % 8 == 0)
            tried.setdefault((params, of), (row.shape, params))
    with ProcessPool(workers, context=get_context("spawn")) as pool:
        chunk = max(1, len(tried) // (8 * workers))
        for done in pool.map(_compile, tried.values(), chunksize=chunk).result():
            assert done is None, "it has no result"


def _compile(tried: tuple[tuple[int, int, int], Params | None]) -> None:
    (m, n, k), params = tried
    fusion = plain("", (m, n, k)).fusion()
    with suppress(ScheduleError):
        of = classify(fusion, params, specs(fusion, (m, n, k)))
        for launch in build(fusion, params, of).launches:
            compile_cubin(launch.source)


def specs(fusion: Fusion, shape: tuple[int, int, int]) -> dict[str, Spec]:
    """Return the dense tensors of a product of such a shape, by name."""
    m, n, k = shape
    forms = ((m, k), (n, k), (m, n))
    return {
        tv.name: Spec(form, (form[1], 1), 0, DType.BF16)
        for tv, form in zip((*fusion.inputs, *fusion.outputs), forms, strict=True)
    }


def timed(
    row: Product, tried: Sequence[Params | None], known: dict[Params | None, Executable]
) -> dict[str, object]:
    """Return the microseconds of torch, and of each schedule of a product; None is the default.

    `known` has the programs of schedules, for they serve many shapes.
    """
    fusion: Fusion = row.fusion()
    sets = [row.inputs() for _ in range(max(2, min(8, 2 * L2_BYTES // row.nbytes + 1)))]
    outs = together(row.form(*sets[0]))
    taken: dict[str, float] = {"torch": fastest_us(row.form, sets)}
    wrong = []
    for params in tried:
        run = known.setdefault(params, Executable(fusion, params))
        name = DEFAULT if params is None else str(params)
        with suppress(ScheduleError):
            taken[name] = _taken(run, sets, outs)
            if row.error(sets[0], outs) > row.tolerance:
                wrong.append(name)
    return {"shape": row.shape, "us": taken, "wrong": wrong}


def _taken(run: Executable, sets: list[Tensors], outs: Tensors) -> float:
    run(*sets[0], out=outs)
    us = fastest_us(lambda *given: run(*given, out=outs), sets)
    run(*sets[0], out=outs)
    return us


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench.sweep")
