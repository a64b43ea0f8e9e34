"""`python -m fuzz.bench.sweep` times schedules of shapes drawn at random (needs a GPU).

A cost model is fitted to the lines that it writes, and checked on those of shapes that were left
out: one JSON object for each shape (M, N and K of a product), microseconds of torch, of the default
schedule and of each schedule that was tried, by the text of its params.  Of products these are all
that may be the fastest, of others those that the model takes for the fastest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil, gcd
from multiprocessing import get_context
from typing import IO

import click
import torch
from pebble import ProcessPool
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
from fuser.schedule.products.unaligned import ranked
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import Params
from fuzz.bench.products import Product, plain
from fuzz.bench.row import L2_BYTES, Row, Tensors, fastest_us, together
from fuzz.bench.shapes import KINDS, rows
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
    row = plain("", (m, n, k))
    fusion = row.fusion()
    (segment,) = segments(fusion)
    loops = loops_of(segment.domain, extents_of(fusion, lying(row)))
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
@click.option("--kind", type=click.Choice([*KINDS]), default="product", help="Of what.")
@click.option("--random", "count", type=click.IntRange(min=1), default=100, help="Shapes drawn.")
@click.option("--most", default=16, help="Schedules of a shape, at most, where it is no product's.")
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
    most: int,
    seed: int,
    shard: tuple[int, int],
    workers: int,
    only: bool,
    out: IO[str],
) -> None:
    """Time schedules of shapes drawn at random; lines of JSON go to OUT."""
    if not device_present():
        click.echo("sweep: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    part, parts = shard
    known: dict[object, Executable] = {}
    every = drawn(kind, count, seed)[part - 1 :: parts]
    ways = [[None] if only else [None, *promising(row, most)] for row in every]
    if workers > 1:
        compile_ahead(every, ways, (kind, count, seed), workers)
    for row, tried in zip(every, ways, strict=True):
        out.write(json.dumps(timed(row, tried, known)) + "\n")
        out.flush()
        torch.cuda.empty_cache()


def drawn(kind: str, count: int, seed: int) -> list[Row]:
    """Return so many rows of a kind."""
    return [row for row in rows(count, seed) if row.name.rstrip("0123456789") == kind]


def promising(row: Row, most: int) -> list[Params]:
    """Return the schedules of a shape that are timed."""
    if isinstance(row, Product):
        return [*worthwhile(*row.shape)]
    found = Alternatives(row.fusion(), lying(row))
    alone = len(found.default.schedules) == 1  # params serve all kernels, or ask for another cut
    return [*islice(dict.fromkeys(found.candidates(0)), most)] if alone else []


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
        return params, n % 8 == 0, k % 8 == 0
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


def timed(
    row: Row, tried: Sequence[Params | None], known: dict[object, Executable]
) -> dict[str, object]:
    """Return the microseconds of torch, and of each schedule of a row; None is the default.

    `known` has the programs of schedules, for they serve many shapes.
    """
    fusion = row.fusion()
    sets = [row.inputs() for _ in range(max(2, min(8, 2 * L2_BYTES // row.nbytes + 1)))]
    outs = together(row.form(*sets[0]))
    taken: dict[str, float] = {"torch": fastest_us(row.form, sets)}
    wrong = []
    for params in tried:
        run = known.setdefault(_program(row, params), Executable(fusion, params))
        name = DEFAULT if params is None else str(params)
        with suppress(ScheduleError):
            taken[name] = _taken(run, sets, outs)
            if not row.error(sets[0], outs) <= row.tolerance:
                wrong.append(name)
    return {"shape": _shape(row), "us": taken, "wrong": wrong}


def _shape(row: Row) -> tuple[object, ...]:
    """Return M, N and K of a product; else the shapes of all inputs."""
    if isinstance(row, Product):
        return row.shape
    return tuple(spec.shape for spec in lying(row).values())


def _taken(run: Executable, sets: list[Tensors], outs: Tensors) -> float:
    run(*sets[0], out=outs)
    us = fastest_us(lambda *given: run(*given, out=outs), sets)
    run(*sets[0], out=outs)
    return us


if __name__ == "__main__":
    main(prog_name="python -m fuzz.bench.sweep")
