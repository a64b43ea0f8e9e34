"""What timings say of predictions: where kernels like one were timed, and nothing elsewhere."""

from __future__ import annotations

from dataclasses import replace
from math import exp, isfinite, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from product_work import work

from fuser.schedule.products import choose, residual
from fuser.schedule.products.cost import whole
from fuser.schedule.products.residual import (
    FEATURES,
    Process,
    Residuals,
    applies,
    features,
    load,
    residuals,
    way,
)
from fuser.schedule.products.tiles import PARTED, Fit, TileKind
from fuzz.bench.fit.timings import matched, read

COOPERATIVE = TileKind(128, 256, "cooperative", 2)
RULES = choose.Rules(shared=True, resident=True, unit=8, transposed=8)


def process(*points: tuple[float, float]) -> Process:
    """Weights at places on a line."""
    places = np.array([[place] for place, _ in points], np.float32)
    return Process(np.ones(1, np.float32), places, np.array([w for _, w in points], np.float32))


def test_the_mean_is_that_of_what_is_near() -> None:
    """At a point its weight, at two scales a seventh of it (Matern of 3/2), nothing far away."""
    known = process((0.0, 0.1), (100.0, -0.2))
    asked = np.array([[0.0], [2.0], [50.0], [100.0]], np.float32)
    want = [0.1, 0.1 * (1 + sqrt(12)) * exp(-sqrt(12)), 0.0, -0.2]
    assert known.mean(asked).tolist() == pytest.approx(want, abs=1e-6)


def test_a_way_that_was_not_timed_stays_as_predicted() -> None:
    """Others are corrected, each by its own process."""
    known = Residuals("d", "s", {"a": process((0.0, 0.1)), "b": process((0.0, -0.1))})
    found = known.factors(["b", "none", "a"], [(0.0,), (0.0,), (0.0,)])
    assert found == pytest.approx([exp(-0.1), 1.0, exp(0.1)])
    assert known.factors([], []) == []


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Ways, device and what it says of itself; points are rounded to 16 bits."""
    known = Residuals("NVIDIA H200", "some timings", {"a": process((0.5, 0.1), (2.0, -0.3))})
    known.save(tmp_path / "table.npz")
    again = load(tmp_path / "table.npz")
    assert (again.device, again.says) == (known.device, known.says)
    told = [(0.25,), (1.75,)]
    assert again.factors(["a", "a"], told) == pytest.approx(known.factors(["a", "a"], told))


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 20_000))
def test_every_kernel_is_told_by_as_many_numbers(m: int, n: int, k: int) -> None:
    """Finite ones, whatever the shape; a wave is full in part, and tiles at most."""
    some = work(m, n, k)
    for kind in (*whole(some, 8), *PARTED):
        told = dict(zip(FEATURES, features(some, kind, Fit(4, 8, 2), 3), strict=True))
        assert all(map(isfinite, told.values()))
        assert 0 < told["last wave"] <= 1
        assert 0 < told["rows filled"] <= 1
        assert 0 < told["columns filled"] <= 1


def test_transposed_tiles_see_rows_as_columns() -> None:
    """But the result's rows lie as they do."""
    turned = replace(COOPERATIVE, transpose=True)
    some = work(1000, 4104, 512, pitches=(1032, 1024))
    told, other = (
        dict(zip(FEATURES, features(some, kind, Fit(4, 64, 2), 1), strict=True))
        for kind in (COOPERATIVE, turned)
    )
    assert (told["log m"], told["log n"]) == (other["log n"], other["log m"])
    assert (told["pitch of a"], told["pitch of b"]) == (other["pitch of b"], other["pitch of a"])
    assert told["pitch of results"] == other["pitch of results"] == 2


@pytest.mark.parametrize(("pitch", "off"), [(1024, 0), (1056, 1), (1040, 2), (1026, 3)])
def test_where_rows_begin(pitch: int, off: float) -> None:
    """In lines of the L2, in its sectors, within these, and within 16 bytes."""
    some = work(4096, 4096, 512, pitches=(pitch, pitch), result_pitch=pitch)
    told = dict(zip(FEATURES, features(some, COOPERATIVE, Fit(4, 64, 2), 1), strict=True))
    assert [told[f"pitch of {name}"] for name in ("a", "b", "results")] == [off] * 3


@pytest.mark.parametrize(
    "other",
    [
        {"around": 2},
        {"parts": True},
        {"computed_us": 0.1},
        {"m": 0},
    ],
)
def test_only_loops_that_were_timed_are_corrected(other: dict[str, Any]) -> None:
    """Batches and operands that are computed stay as predicted; not what follows a product."""
    plain = work(512, 512, 512)
    assert applies(plain, 132)
    assert applies(replace(plain, many=2, costly=3, read=1, vectors=1), 132)
    assert not applies(plain, 114)
    assert not applies(replace(plain, **other), 132)


def test_several_products_are_told_as_one_of_all_columns() -> None:
    """Their loop is that of as many columns together."""
    one, two = work(512, 1024, 512), replace(work(512, 512, 512), many=2)
    kind, fit = TileKind(128, 128, "ping_pong", 2), Fit(5, 64, 2)
    told = [dict(zip(FEATURES, features(some, kind, fit, 1), strict=True)) for some in (one, two)]
    same = ("log n", "log2 columns", "columns filled", "log2 waves")
    assert [told[0][name] for name in same] == [told[1][name] for name in same]


def test_choices_say_what_kernels_like_them_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are near the fastest, which another one may become."""
    some = work(4000, 4000, 4000)
    monkeypatch.setattr(residual, "residuals", lambda: Residuals("", "", {}))
    plain = choose.ranked.__wrapped__(some, RULES)
    assert all(one.takes.timed == 1 for one in plain)
    names = {way(one.kind, one.sharing) for one in plain}
    slow, *others = (way(plain[0].kind, ""), *(names - {way(plain[0].kind, "")}))
    told = features(some, plain[0].kind, plain[0].fit, 1)
    far = Process(
        np.full(len(told), 1e6, np.float32),
        np.array([told], np.float32),
        np.array([log(1.3)], np.float32),
    )
    monkeypatch.setattr(residual, "residuals", lambda: Residuals("", "", {slow: far}))
    found = choose.ranked.__wrapped__(some, RULES)
    assert way(found[0].kind, "") in others
    near = [one for one in found if one.takes.timed != 1]
    assert near
    assert all(one.takes.timed == pytest.approx(1.3, rel=1e-3) for one in near)
    assert {way(one.kind, one.sharing) for one in near} == {slow}
    assert "kernels like it took +30 %" in str(near[0])
    assert [one.takes.us for one in found] == sorted(one.takes.us for one in found)


def test_the_table_belongs_to_the_model() -> None:
    """Whoever changes constants fits it again (`python -m fuzz.bench.fit`).

    With it, predictions of kept timings are off by less than two thirds of what they are without.
    """
    table = read()
    shapes = table[["m", "n", "k"]].drop_duplicates().iloc[::40]
    some = [*matched(table.merge(shapes))]
    assert len(some) > 400
    known = residuals()
    assert "left out" in known.says
    off = np.array([log(one.us / one.modelled_us) for one in some])
    factors = known.factors([one.way for one in some], [one.features for one in some])
    left = off - np.log(factors)
    for directly in (False, True):
        mine = np.array([one.where_they_lie is directly for one in some])
        assert mine.sum() > 50
        assert np.sqrt((left[mine] ** 2).mean()) < np.sqrt((off[mine] ** 2).mean()) * 2 / 3
