"""Timings of products that are kept: one row each, of a shape, a schedule and microseconds."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, gcd
from pathlib import Path
from typing import Any

import pandas as pd

from fuser.arch import SM_90A
from fuser.runtime.call import extents_of, loops_of
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.domain import Domain
from fuser.schedule.matmul import sizes
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import largest_divisor
from fuser.schedule.products import residual, unaligned
from fuser.schedule.products.choose import scheduled, work_of
from fuser.schedule.products.tiles import SPAN
from fuser.schedule.segment import Segment, segments
from fuzz.bench.matmul.products import plain
from fuzz.bench.sweep import lying

KEPT = Path(__file__).with_name("nvidia_h200.csv.xz")
"""Timings on an H200."""
SCHEDULE = (
    *("rows", "columns", "split", "warpgroups", "stages", "part", "staging", "persistent"),
    *("raster", "down", "along", "splits", "meet", "transpose", "resident", "deep"),
)
"""What a schedule is told by; the rest is the same for all of one kind, or follows from these.

Of those that read operands where they lie `split` is how they see the end of copies, and there are
warps in place of warpgroups.
"""
COLUMNS = ("m", "n", "k", *SCHEDULE, "us", "sweep")
"""Of a table; those of one `sweep` were timed on one card."""

Shape = tuple[int, int, int]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of a kernel, timed and by the model, and what tells it from others.

    `features` are those of `residual`, or of `unaligned` if it reads operands `where_they_lie`.
    """

    sweep: int
    shape: Shape
    us: float
    modelled_us: float
    way: str
    features: tuple[float, ...]
    where_they_lie: bool = False


def read(path: Path = KEPT) -> pd.DataFrame:
    """Return the timings that are kept."""
    return pd.read_csv(path, keep_default_na=False)


def keep(lines: Iterable[str], sweep: int) -> pd.DataFrame:
    """Return the timings of products of `fuzz.bench.sweep`, from its lines of JSON."""
    rows = []
    for line in map(json.loads, lines):
        for text, us in line["us"].items():
            params = _params(text)
            # where K is no multiple of 8 others copy operands first
            if isinstance(params, AmpereParams if line["shape"][2] % 8 else MatmulParams):
                told = schedule_of(params)
                rows.append((*line["shape"], *told, float(f"{us:.4g}"), sweep))
    found = pd.DataFrame(rows, columns=COLUMNS)
    return found.drop_duplicates(["m", "n", "k", *SCHEDULE], ignore_index=True)


def _params(text: str) -> AmpereParams | MatmulParams | None:
    """Return params from how they print; None if it is the name of something else."""
    for kind in (AmpereParams, MatmulParams):
        if text.startswith(kind.__name__):
            return kind(**_arguments(text))
    return None


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of params, from how they print."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call), text
    return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}


def schedule_of(params: AmpereParams | MatmulParams) -> Key:
    """Return what params are told by, in the order of `SCHEDULE`."""
    rows, columns, depth = params.tile
    if isinstance(params, AmpereParams):
        return (
            *(rows, columns, params.observe, params.warps, params.stages, params.columns),
            *(1, int(params.persistent), params.raster, 1, 1, params.splits),
            *(params.meet if params.splits > 1 else "", 0, 1, 1),
        )
    parts = columns // params.columns
    return (
        *(rows, columns, params.split, params.warpgroups, params.stages, params.columns),
        *(min(params.staging, parts) if params.splits == 1 else 1, int(params.persistent)),
        *(params.raster, *params.cluster, params.splits),
        *(params.meet if params.splits > 1 else "", int(params.transpose), params.resident),
        depth * 2 // SPAN,
    )


def matched(table: pd.DataFrame, sms: int = SM_90A.sms) -> Iterator[Timing]:
    """Yield the timings of schedules that a default may be chosen from today; others are not."""
    for _, some in table.groupby(["m", "n", "k"], sort=False):
        m, n, k = shape = _shape(some)
        row = plain("", shape)
        fusion = row.fusion()
        (segment,) = segments(fusion)
        loops = loops_of(segment.domain, extents_of(fusion, lying(row)))
        every = _directly(segment.domain, loops, sms) if k % 8 else _by_tiles(segment, loops, sms)
        able = {_walked(schedule_of(told[0]), m, n): told for told in every}
        rest = (some[name].tolist() for name in ("us", "sweep"))
        for key, us, sweep in zip(some[[*SCHEDULE]].itertuples(index=False), *rest, strict=True):
            told = able.get(_walked(tuple(key), m, n))
            if told is not None:
                _, modelled, way, features = told
                yield Timing(sweep, shape, us, modelled, way, features, k % 8 > 0)


def _shape(some: pd.DataFrame) -> Shape:
    m, n, k = (int(some[name].iloc[0]) for name in "mnk")
    return m, n, k


Modelled = tuple[AmpereParams | MatmulParams, float, str, tuple[float, ...]]
"""A schedule, its microseconds by the model, its way and features."""


def _by_tiles(segment: Segment, loops: Sequence[int], sms: int) -> Iterator[Modelled]:
    """Yield schedules of tiles that TMA brings."""
    work = work_of(segment.fusion, segment.domain, loops)
    for one, params in scheduled(segment.fusion, segment.domain, loops, sms):
        told = residual.features(work, one.kind, one.fit, one.count, sms)
        yield params, one.takes.modelled_us, residual.way(one.kind, one.sharing), told


def _directly(domain: Domain, loops: Sequence[int], sms: int) -> Iterator[Modelled]:
    """Yield schedules that read operands where they lie, in rows without a gap."""
    extents, (depth,) = sizes(domain, loops)
    vectors = (gcd(depth, 8),) * 2
    for one in unaligned.ranked(domain, loops, unaligned.Lying(vectors), sms):
        told = unaligned.features(extents, depth, vectors, one.params, sms)
        yield one.params, one.modelled_us, unaligned.way(one.params), told


def _walked(told: Key, m: int, n: int) -> Key:
    """Return what a schedule is told by, with the group of rows that its raster comes to.

    A third slot of an epilogue is worth less than timings differ by.
    """
    by = dict(zip(SCHEDULE, told, strict=True))
    high = int(str(by["rows"])) * int(str(by["down"]))
    lines = ceil((n if by["transpose"] else m) / high)
    group = largest_divisor(lines, int(str(by["raster"])))
    return tuple((by | {"raster": group, "staging": min(int(str(by["staging"])), 2)}).values())
