"""Timings are kept by what schedules are told by, and found again among those of today."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.params import largest_divisor
from fuser.schedule.products import unaligned
from fuser.schedule.shape_class import Params
from fuzz.bench import sweep
from fuzz.bench.fit import timings

SHAPE = (500, 304, 1024)


def line(shape: tuple[int, int, int] = SHAPE, every: Iterable[Params] = ()) -> str:
    """A line of a sweep: schedules, by default a dozen, take 1, 2, 3 ... us."""
    tried = every or islice(sweep.schedules(*shape), 12)
    us = {str(params): float(n) for n, params in enumerate(tried, 1)}
    return json.dumps({"shape": shape, "us": {"torch": 9.0, **us}})


def test_what_a_sweep_timed_is_found_again(tmp_path: Path) -> None:
    """Each schedule by its own choice, also from a file."""
    table = timings.keep([line()], 7)
    assert len(table) == 12
    table.to_csv(tmp_path / "kept.csv.xz", index=False)
    found = [*timings.matched(timings.read(tmp_path / "kept.csv.xz"))]
    assert [one.us for one in found] == [float(n) for n in range(1, 13)]
    assert {(one.shape, one.sweep) for one in found} == {(SHAPE, 7)}
    assert len({(one.way, one.features) for one in found}) == 12
    assert not any(one.where_they_lie for one in found)


@pytest.mark.parametrize("k", [100, 101])
def test_operands_read_where_they_lie_are_found_again(tmp_path: Path, k: int) -> None:
    """Where K is no multiple of 8; products behind copies of operands are not kept."""
    shape = (64, 304, k)
    every = [*sweep.schedules(*shape)]
    table = timings.keep([line(shape, every)], 1)
    directly = [params for params in every if isinstance(params, AmpereParams)]
    assert len(every) > len(table) == len(directly) > 4
    table.to_csv(tmp_path / "kept.csv.xz", index=False)
    found = [*timings.matched(timings.read(tmp_path / "kept.csv.xz"))]
    assert [one.us for one in found] == [float(n) for n in range(1, len(directly) + 1)]
    assert all(one.where_they_lie for one in found)
    assert {one.way for one in found} == {unaligned.way(directly[0])}
    assert len({one.features for one in found}) == len(found)


@pytest.mark.parametrize(("name", "value"), [("rows", 96), ("stages", 99), ("columns", 7)])
def test_schedules_that_none_is_chosen_from_are_not_matched(name: str, value: int) -> None:
    """Nor taken for one that is."""
    table = timings.keep([line()], 1)
    table[name] = value
    assert not [*timings.matched(table)]


def test_a_raster_is_what_it_comes_to() -> None:
    """Params name the most rows of a group; a divisor of the rows is taken."""
    table = timings.keep([line((512, 304, 1024))], 1)
    assert len([*timings.matched(table)]) == len(table)
    first = table[(table["transpose"] == 0) & (table["down"] == 1)].iloc[[0]].copy()
    lines = -(-512 // int(first["rows"].iloc[0]))
    group = largest_divisor(lines, int(first["raster"].iloc[0]))
    same = [most for most in range(1, 9) if largest_divisor(lines, most) == group]
    assert len(same) < 8
    for most in range(1, 9):
        first["raster"] = most
        assert len([*timings.matched(first)]) == (most in same)


def test_kept_timings_are_of_products_that_were_drawn() -> None:
    """Thousands, none of them twice for a schedule in one sweep, none that took no time."""
    table = timings.read()
    assert list(table.columns) == [*timings.COLUMNS]
    assert len(table) > 20_000
    assert (table["us"] > 0.5).all()
    directly = table["k"] % 8 > 0
    assert 1000 < directly.sum() < len(table) / 2
    assert (table["split"].isin(["groups", "threads"]) == directly).all()
    by = ["m", "n", "k", "sweep", *timings.SCHEDULE]
    assert not table.duplicated(by).any()
