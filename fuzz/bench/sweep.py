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
from itertools import product
from math import ceil
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
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable, device_present
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_heuristic import BARRIERS, columns_of_share
from fuser.schedule.matmul_params import MatmulParams, Split, nearest_registers
from fuser.schedule.params import MAX_SPLITS, MAX_STAGES, Meet
from fuser.schedule.shape_class import Params
from fuzz.bench.products import Product, plain
from fuzz.bench.row import L2_BYTES, Tensors, fastest_us, together
from fuzz.bench.shapes import rows
from fuzz.campaign.record import DEFAULT
from fuzz.exit_code import HARNESS, Command

STEP = 64
"""Elements of 16 bits along K in 128 bytes, of which a swizzle is."""
WHOLE: tuple[tuple[Split, int, int, tuple[int, ...]], ...] = (
    ("cooperative", 2, 128, (256, 224, 192, 160, 128)),
    ("cooperative", 2, 256, (128, 96)),
    ("cooperative", 3, 192, (192, 160, 128)),
    ("ping_pong", 2, 128, (192, 160, 128, 96, 64)),
    ("ping_pong", 2, 64, (256, 192, 128)),
    ("cooperative", 1, 64, (256, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32)),
)
"""Tiles that a CTA of an SM computes alone: how, warpgroups, rows, and columns."""
PAIRED: tuple[tuple[int, int, int, int], ...] = (
    (128, 128, 2, 2),
    (128, 64, 2, 2),
    (64, 128, 1, 2),
    (64, 64, 1, 3),
    (64, 32, 1, 4),
)
"""Rows, columns, warpgroups of CTAs, and how many an SM has at once."""
PARTED = ((128, 128), (128, 64), (64, 256), (64, 128), (64, 64), (64, 32), (64, 16))
"""Rows and columns of tiles that CTAs share."""
COUNTS = (2, 3, 4, 5, 6, 8, 11, 16, 22, 32, 44, 64)
"""How many share one."""
BY_THREADS = (
    (16, 32, 64, 1),
    (16, 64, 32, 1),
    (32, 32, 64, 2),
    (32, 64, 64, 2),
    (64, 32, 64, 4),
    (64, 64, 64, 4),
    (64, 64, 32, 4),
    (128, 64, 32, 8),
    (128, 128, 32, 8),
)
"""Rows, columns, depth and warps of tiles whose operands threads load, as no engine can."""
CTAS_PER_SM = (1, 2, 3, 4, 6, 8, 12)
"""How many of these an SM is to have, by CTAs that share a tile."""
MOST_AT_ONCE, WAVES = 32, 4
"""How many do where all wait for each other; and the waves of CTAs that share tiles, at most."""
MOST_WORSE = 4.0
"""Schedules whose tiles multiply so many times what there is are not timed, beyond the least."""


def schedules(
    m: int, n: int, k: int, sms: int = SM_90A.sms
) -> Iterator[MatmulParams | AmpereParams]:
    """Yield schedules for a product of 16-bit operands, all that may be the fastest for a shape."""
    if k % 8:
        yield from _by_threads(m, n, k, sms)
    for split, groups, high, widths in WHOLE:
        for wide in widths:
            yield from _alone(split, groups, high, wide)
    for high, wide, groups, resident in PAIRED:
        yield from _paired(high, wide, groups, resident)
    for high, wide in PARTED:
        tiles, steps = ceil(m / high) * ceil(n / wide), ceil(k / STEP)
        for count in COUNTS:
            ctas = tiles * count
            if not 1 < count <= min(steps, MAX_SPLITS) or ctas > WAVES * sms:
                continue
            yield from _parted(high, wide, count, "last")
            if ctas <= sms and count <= MOST_AT_ONCE:
                yield from _parted(high, wide, count, "scatter")


def _stages(high: int, wide: int, kept: int = 0, room: int = SM_90A.smem_bytes) -> int:
    return min(MAX_STAGES, (room - BARRIERS - kept) // ((high + wide) * 2 * STEP))


def _alone(split: Split, groups: int, high: int, wide: int) -> Iterator[MatmulParams]:
    columns = next(c for c in (64, 48, 32, 16) if wide % c == 0)
    slots = (2 if split == "ping_pong" else 1) * (2 if wide // columns % 2 == 0 else 1)
    stages = _stages(high, wide, 2 * slots * high * columns)
    registers = None if groups == 1 else nearest_registers(groups)
    with suppress(ScheduleError):
        yield MatmulParams(
            (high, wide, STEP), groups, split, stages, max(stages - 2, 0), persistent=True,
            columns=columns, registers=registers,
        )  # fmt: skip


def _paired(high: int, wide: int, groups: int, resident: int) -> Iterator[MatmulParams]:
    stages = _stages(high, wide, room=(SM_90A.smem_bytes + 1024) // resident - 1024)
    with suppress(ScheduleError):
        yield MatmulParams(
            (high, wide, STEP), groups, "pipelined", stages, max(stages - 2, 0), persistent=False,
            columns=min(wide, 64), resident=resident,
        )  # fmt: skip


def _by_threads(m: int, n: int, k: int, sms: int) -> Iterator[AmpereParams]:
    for high, wide, deep, warps in BY_THREADS:
        if high >= 2 * max(m, 8):
            continue
        tiles, steps = ceil(m / high) * ceil(n / wide), ceil(k / deep)
        counts = {max(1, min(many * sms // tiles, steps // 4, MAX_SPLITS)) for many in CTAS_PER_SM}
        for count, ahead in product(sorted(counts), (0, 1)):
            yield AmpereParams(
                (high, wide, deep), warps, "threads", 1, ahead, persistent=False,
                columns=min(wide, 64), splits=count, meet="last",
            )  # fmt: skip


def _parted(high: int, wide: int, count: int, meet: Meet) -> Iterator[MatmulParams]:
    stages = _stages(high, wide, 2 * high * min(wide, 64))
    scatter = meet == "scatter"
    with suppress(ScheduleError):
        yield MatmulParams(
            (high, wide, STEP), high // 64, "cooperative", stages, stages - 1, persistent=False,
            columns=columns_of_share(wide, count) if scatter else min(wide, 64),
            splits=count, meet=meet, residency="co-resident" if scatter else "ticket",
        )  # fmt: skip


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
@click.option("--shard", default="1/1", help="Part of parts: each has other shapes.")
@click.option("--workers", default=1, help="Processes that compile before anything is timed.")
@click.argument("out", type=click.File("w", lazy=False))
def main(count: int, seed: int, shard: str, workers: int, out: IO[str]) -> None:
    """Time every schedule of products drawn at random; lines of JSON go to OUT."""
    if not device_present():
        click.echo("sweep: no CUDA device; nothing was measured", err=True)
        sys.exit(HARNESS)
    part, parts = map(int, shard.split("/"))
    known: dict[Params | None, Executable] = {}
    every = [row for row in rows(count, seed) if isinstance(row, Product)][part - 1 :: parts]
    if workers > 1:
        compile_ahead(every, workers)
    for row in every:
        out.write(json.dumps(timed(row, known)) + "\n")
        out.flush()
        torch.cuda.empty_cache()


def compile_ahead(rows: Sequence[Product], workers: int) -> None:
    """Fill the cache on disk with the kernels of all that will be timed."""
    tried: dict[tuple[Params, bool, bool], tuple[tuple[int, int, int], Params]] = {}
    for row in rows:
        m, n, k = row.shape
        for params in worthwhile(m, n, k):
            tried.setdefault((params, n % 8 == 0, k % 8 == 0), (row.shape, params))
    with ProcessPool(workers, context=get_context("spawn")) as pool:
        chunk = max(1, len(tried) // (8 * workers))
        for done in pool.map(_compile, tried.values(), chunksize=chunk).result():
            assert done is None, "it has no result"


def _compile(tried: tuple[tuple[int, int, int], Params]) -> None:
    (m, n, k), params = tried
    fusion = plain("", (m, n, k)).fusion()
    forms = ((m, k), (n, k), (m, n))
    specs = {
        tv.name: Spec(form, (form[1], 1), 0, DType.BF16)
        for tv, form in zip((*fusion.inputs, *fusion.outputs), forms, strict=True)
    }
    with suppress(ScheduleError):
        for launch in build(fusion, params, classify(fusion, params, specs)).launches:
            compile_cubin(launch.source)


def timed(row: Product, known: dict[Params | None, Executable]) -> dict[str, object]:
    """Return the microseconds of torch, of the default, and of each schedule of a product.

    `known` has the programs of schedules, for they serve many shapes.
    """
    m, n, k = row.shape
    fusion: Fusion = row.fusion()
    sets = [row.inputs() for _ in range(max(2, min(8, 2 * L2_BYTES // row.nbytes + 1)))]
    outs = together(row.form(*sets[0]))
    taken: dict[str, float] = {"torch": fastest_us(row.form, sets)}
    wrong = []
    for params in (None, *worthwhile(m, n, k)):
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
