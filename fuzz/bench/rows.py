"""All rows of the benchmark, found by name; and their compilation ahead, by several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from multiprocessing import get_context

from pebble import ProcessPool

from fuzz.bench import norms, pointwise, products, reductions, shapes
from fuzz.bench.row import Row, warm

WARM_S = 120
"""Seconds in which all that a row needs is compiled."""


def rows(drawn: int | None, seed: int) -> list[Row]:
    """Return the rows of the tables, or so many `drawn` of each kind."""
    if drawn is not None:
        return list(shapes.rows(drawn, seed))
    return [*pointwise.rows(), *products.rows(), *reductions.rows(), *norms.rows()]


def compile_ahead(
    names: Sequence[str], drawn: int | None, seed: int, workers: int, *, compiled: bool
) -> Iterator[str]:
    """Fill the caches on disk with what rows need, and yield what went wrong with any."""
    with ProcessPool(workers, context=get_context("spawn")) as pool:
        jobs = {
            name: pool.schedule(_warm, (name, drawn, seed, compiled), timeout=WARM_S)
            for name in names
        }
        for name, job in jobs.items():
            if job.exception() is not None:
                yield f"{name} was not compiled ahead: {job.exception()}"


def _warm(name: str, drawn: int | None, seed: int, compiled: bool) -> None:
    """Compile one row, found again by its name: what it computes cannot be sent."""
    warm(next(row for row in rows(drawn, seed) if row.name == name), compiled=compiled)
