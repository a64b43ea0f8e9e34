"""Timings of products that are kept: one row each, of a shape, a schedule and microseconds."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd

from fuser.arch import SM_90A
from fuser.runtime.call import extents_of, loops_of
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import largest_divisor
from fuser.schedule.products.choose import Choice, scheduled, work_of
from fuser.schedule.products.cost import Work
from fuser.schedule.segment import segments
from fuzz.bench.products import plain
from fuzz.bench.sweep import lying

KEPT = Path(__file__).with_name("nvidia_h200.csv.xz")
"""Timings on an H200."""
SCHEDULE = (
    *("rows", "columns", "split", "warpgroups", "stages", "part", "staging", "persistent"),
    *("raster", "down", "along", "splits", "meet", "transpose", "resident"),
)
"""What a schedule is told by; the rest is the same for all of one kind, or follows from these."""
COLUMNS = ("m", "n", "k", *SCHEDULE, "us", "sweep")
"""Of a table; those of one `sweep` were timed on one card."""

Shape = tuple[int, int, int]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of a kernel, what it computes, and the choice that asks for it."""

    sweep: int
    shape: Shape
    work: Work
    choice: Choice
    us: float


def read(path: Path = KEPT) -> pd.DataFrame:
    """Return the timings that are kept."""
    return pd.read_csv(path, keep_default_na=False)


def keep(lines: Iterable[str], sweep: int) -> pd.DataFrame:
    """Return the timings of products of `fuzz.bench.sweep`, from its lines of JSON."""
    rows = []
    for line in map(json.loads, lines):
        if line["shape"][2] % 8:
            continue  # operands are copied first, or read by threads: other kernels
        for text, us in line["us"].items():
            if text.startswith(MatmulParams.__name__):
                told = schedule_of(MatmulParams(**_arguments(text)))
                rows.append((*line["shape"], *told, float(f"{us:.4g}"), sweep))
    found = pd.DataFrame(rows, columns=COLUMNS)
    return found.drop_duplicates(["m", "n", "k", *SCHEDULE], ignore_index=True)


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of params, from how they print."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call), text
    return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}


def schedule_of(params: MatmulParams) -> Key:
    """Return what params are told by, in the order of `SCHEDULE`."""
    rows, columns, _ = params.tile
    parts = columns // params.columns
    return (
        *(rows, columns, params.split, params.warpgroups, params.stages, params.columns),
        *(min(params.staging, parts) if params.splits == 1 else 1, int(params.persistent)),
        *(params.raster, *params.cluster, params.splits),
        *(params.meet if params.splits > 1 else "", int(params.transpose), params.resident),
    )


def matched(table: pd.DataFrame, sms: int = SM_90A.sms) -> Iterator[Timing]:
    """Yield the timings of schedules that a default may be chosen from today; others are not."""
    for _, some in table.groupby(["m", "n", "k"], sort=False):
        m, n, k = (int(some[name].iloc[0]) for name in "mnk")
        row = plain("", (m, n, k))
        fusion = row.fusion()
        (segment,) = segments(fusion)
        loops = loops_of(segment.domain, extents_of(fusion, lying(row)))
        work = work_of(fusion, segment.domain, loops)
        able = {
            _walked(schedule_of(params), m, n): choice
            for choice, params in scheduled(fusion, segment.domain, loops, sms)
        }
        rest = (some[name].tolist() for name in ("us", "sweep"))
        for told, us, sweep in zip(some[[*SCHEDULE]].itertuples(index=False), *rest, strict=True):
            choice = able.get(_walked(tuple(told), m, n))
            if choice is not None:
                yield Timing(sweep, (m, n, k), work, choice, us)


def _walked(told: Key, m: int, n: int) -> Key:
    """Return what a schedule is told by, with the group of rows that its raster comes to.

    A third slot of an epilogue is worth less than timings differ by.
    """
    by = dict(zip(SCHEDULE, told, strict=True))
    high = int(str(by["rows"])) * int(str(by["down"]))
    lines = ceil((n if by["transpose"] else m) / high)
    group = largest_divisor(lines, int(str(by["raster"])))
    return tuple((by | {"raster": group, "staging": min(int(str(by["staging"])), 2)}).values())
