"""All rows of the benchmark, found by name; and their compilation ahead, by several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from multiprocessing import get_context

from pebble import ProcessPool

from fuzz.bench import norms, pointwise, reductions, shapes
from fuzz.bench.matmul import batched, grouped, layouts, products, quantized, scaled
from fuzz.bench.row import Row, warm, warm_peers

WARM_S = 300
"""Seconds in which all that a row needs is compiled."""


def rows(drawn: int | None, seed: int) -> list[Row]:
    """Return the rows of the tables, or so many `drawn` of each kind."""
    if drawn is not None:
        return list(shapes.rows(drawn, seed))
    tables = (
        pointwise, products, layouts, quantized, scaled, batched, grouped, reductions, norms
    )  # fmt: skip
    return [row for table in tables for row in table.rows()]


def compile_ahead(
    names: Sequence[str],
    drawn: int | None,
    seed: int,
    workers: int,
    *,
    tune: bool,
    compiled: bool,
) -> Iterator[str]:
    """Fill the caches on disk with what rows need, and yield what went wrong with any."""
    parts = -(-workers // len(names)) if tune else 1
    with ProcessPool(workers, context=get_context("spawn")) as pool:
        jobs = {
            (name, part): pool.schedule(
                _warm,
                (name, drawn, seed, compiled, tune, part, parts),
                timeout=WARM_S,
            )
            for name, part in product(names, range(parts))
        }
        for (name, _), job in jobs.items():
            if job.exception() is not None:
                yield f"{name} was not compiled ahead: {job.exception()}"


def _warm(
    name: str, drawn: int | None, seed: int, compiled: bool, tune: bool, part: int, parts: int
) -> None:
    """Compile a part of one row, found again by its name: what it computes cannot be sent."""
    row = next(row for row in rows(drawn, seed) if row.name == name)
    tried = [None, *(row.candidates().values() if tune else ())]
    if part == 0:
        warm_peers(row, compiled=compiled)
    warm(row, tried[part::parts])
