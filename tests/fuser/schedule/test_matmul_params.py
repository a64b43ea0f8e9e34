"""A schedule of products that cannot be is refused, with a way out that works."""

from __future__ import annotations

import ast
import re
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.arch import launch_registers
from fuser.errors import ScheduleError
from fuser.schedule.matmul_params import MatmulParams, nearest_registers

GOOD = MatmulParams((128, 64, 64), 2, "cooperative", 4, 2, persistent=True)

REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no int": ({"stages": 2.0}, "stages must be an int"),
    "a bool": ({"raster": True}, "raster must be an int"),
    "two numbers": ({"tile": (128, 64)}, "need three positive ints"),
    "a list": ({"tile": [128, 64, 64]}, "need three positive ints"),
    "no rows": ({"tile": (0, 64, 64)}, "need three positive ints"),
    "no warpgroup": ({"warpgroups": 0}, "need 1..3; use warpgroups=2"),
    "four warpgroups": ({"warpgroups": 4}, "need 1..3; use warpgroups=2"),
    "odd rows": ({"tile": (100, 64, 64)}, "multiples of 64, up to 256 in all: use 128 rows"),
    "too many rows": ({"tile": (512, 64, 64)}, "use 256 rows"),
    "rows of three": ({"tile": (256, 64, 64), "warpgroups": 3}, "use 192 rows"),
    "odd columns": ({"tile": (128, 20, 64)}, "use 24 columns"),
    "too many columns": ({"tile": (128, 264, 64)}, "use 256 columns"),
    "an odd depth": ({"tile": (128, 64, 40)}, "K steps of 40; use 64"),
    "too deep": ({"tile": (128, 64, 272)}, "K steps of 272; use 64"),
    "no columns": ({"columns": 0}, "divides 64; use columns=64"),
    "columns across": ({"columns": 24}, "divides 64; use columns=64"),
    "half a core": ({"tile": (128, 16, 64), "columns": 4}, "use columns=16"),
    "a full house": (
        {"tile": (256, 256, 64)},
        "256 accumulators per thread, of its 168 registers at most 136",
    ),
    "no such split": ({"split": "alone"}, 'use "pipelined", "cooperative" or "ping_pong"'),
    "one of a pair": ({"split": "ping_pong", "warpgroups": 1}, "use warpgroups=2, persistent=True"),
    "a short game": ({"split": "ping_pong", "persistent": False}, "persistent=True"),
    "no such store": ({"store": "none"}, 'unknown mechanism; use "direct" or "tma"'),
    "no stage": ({"stages": 0, "prefetch": 0}, "1..8 stages; use stages=1"),
    "nine stages": ({"stages": 9}, "1..8 stages; use stages=8"),
    "too far ahead": ({"prefetch": 4}, "prefetch must be 0..3; use prefetch=2"),
    "behind": ({"prefetch": -1}, "prefetch must be 0..3; use prefetch=2"),
    "no raster": ({"raster": 0}, "need 1 or more; use 8"),
    "a cluster of three": ({"cluster": (3, 1)}, "use cluster=(2, 1)"),
    "a square cluster": ({"cluster": (2, 2)}, "use cluster=(2, 1)"),
    "a cluster without a load role": (
        {"cluster": (2, 1), "split": "pipelined"},
        'use split="cooperative"',
    ),
    "roles in one": ({"split": "pipelined", "registers": (40, 232)}, "use registers=None"),
    "no pair": ({"registers": (40,)}, "need two ints"),
    "a number": ({"registers": 232}, "need two ints"),
    "in between": ({"registers": (36, 232)}, "need multiples of 8 in 24..240"),
    "too few": ({"registers": (16, 232)}, "need multiples of 8 in 24..240"),
    "too many": ({"registers": (40, 248)}, "need multiples of 8 in 24..240"),
    "alone": (
        {"tile": (64, 64, 64), "warpgroups": 1, "registers": (40, 240)},
        "256 threads get 248 each, as many as they can use; use registers=None",
    ),
    "a greedy load": ({"registers": (176, 184)}, "use registers=(40, 232)"),
    "nothing more": ({"registers": (40, 168)}, "384 threads get 168 each"),
    "more than there are": ({"registers": (56, 240)}, "use registers=(40, 232)"),
    "a crowd": ({"resident": 5, "registers": None}, "use resident=1"),
    "two that want all": (
        {"resident": 2, "registers": (40, 232)},
        "use registers=None, or resident=1",
    ),
    "two that are too large": (
        {"resident": 2, "registers": None, "tile": (128, 128, 64), "columns": 64},
        "use 96 columns, or fewer warpgroups",
    ),
    "no CTAs": ({"splits": 0}, "1..64 CTAs share a tile; use splits=4"),
    "too many CTAs": ({"splits": 65}, "splits=65): 1..64 CTAs share a tile; use splits=4"),
    "clusters that share many tiles": (
        {"splits": 2, "meet": "cluster"},
        'MatmulParams(splits=2, meet="cluster", persistent=True): CTAs with one tile each '
        'share it; use meet="scatter", or persistent=False',
    ),
    "two roles that meet": (
        {"splits": 2, "split": "ping_pong"},
        'MatmulParams(splits=2, split="ping_pong"): one role of each CTA puts sums together, and '
        'here two take its tiles in turn; use split="cooperative", or splits=1',
    ),
    "tiles for all that share them": (
        {"splits": 2, "inputs": "tma"},
        'MatmulParams(splits=2, inputs="tma"): whole tiles are brought to CTAs of which one goes '
        'on, or each with some columns; use inputs="direct", or splits=1',
    ),
    "no such sums": ({"partial": "f8"}, 'unknown; use "f32", "f16" or "bf16"'),
    "sums that stay": (
        {"partial": "bf16"},
        'MatmulParams(partial="bf16", splits=1): one CTA hands no sums on; use splits=2, or '
        'partial="f32"',
    ),
    "three of them": (
        {"tile": (192, 64, 64), "warpgroups": 3, "registers": (40, 232)},
        "512 threads get 128 each",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_a_reason(name: str) -> None:
    """The caller must learn which number is wrong, and what would be right."""
    changes, words = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(words)) as error:
        replace(GOOD, **changes)  # type: ignore[arg-type]  # wrong on purpose
    assert str(error.value).startswith("MatmulParams(")


def mended(params: dict[str, object], message: str) -> dict[str, object] | None:
    """Do what a message advises; None where it asks for a choice."""
    advice = message.rsplit("use ", 1)[1]
    changes: dict[str, object] = {}
    for name, value in re.findall(r'(\w+)=(\([^)]*\)|"\w+"|\w+)', advice):
        changes[name] = ast.literal_eval(value)
    tile = params["tile"]
    assert isinstance(tile, tuple)
    m, n, k = map(int, tile)
    if found := re.match(r"(\d+) rows", advice):
        changes["tile"] = (int(found[1]), n, k)
    if found := re.match(r"(\d+) columns", advice):
        changes["tile"] = (m, int(found[1]), k)
    if advice.startswith("64, or another"):
        changes["tile"] = (m, n, 64)
    if re.fullmatch(r"\d+", advice):
        changes["raster"] = int(advice)
    return {**params, **changes} if changes else None


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "tile": st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300)),
            "warpgroups": st.integers(0, 5),
            "split": st.sampled_from(["pipelined", "cooperative", "ping_pong"]),
            "stages": st.integers(-1, 10),
            "prefetch": st.integers(-1, 10),
            "persistent": st.booleans(),
            "raster": st.integers(-1, 9),
            "columns": st.integers(-8, 80),
            "cluster": st.tuples(st.integers(0, 4), st.integers(0, 4)),
            "splits": st.integers(-1, 66),
            "partial": st.sampled_from(["f32", "f16", "bf16"]),
            "registers": st.none() | st.tuples(st.integers(0, 300), st.integers(0, 300)),
        }
    )
)
def test_advice_leads_to_params_that_are_accepted(drawn: dict[str, object]) -> None:
    """An advice that is refused in turn, forever, is none."""
    params: dict[str, object] | None = drawn
    for _ in range(len(fields(MatmulParams)) + 3):
        assert params is not None
        try:
            MatmulParams(**params)  # type: ignore[arg-type]  # drawn
        except ScheduleError as error:
            message = str(error)
        else:
            return
        if "accumulators" in message:  # it leaves a choice: the smallest tile is one
            assert "smaller tile" in message
            step = 64 * int(str(params["warpgroups"]))
            params = {**params, "tile": (step, 8, 16), "columns": 8}
            continue
        params = mended(params, message)
    raise AssertionError(f"no end of advice: {params}")


@pytest.mark.parametrize("warpgroups", [2, 3])
def test_the_nearest_registers_are_accepted_and_as_many_as_there_are(warpgroups: int) -> None:
    """One more step of 8 for every computing thread must not fit."""
    load, compute = nearest_registers(warpgroups)
    params = replace(GOOD, tile=(64 * warpgroups, 64, 64), warpgroups=warpgroups)
    assert replace(params, registers=(load, compute)).registers == (load, compute)
    have = launch_registers(params.threads) * (warpgroups + 1)
    assert load + (compute + 8) * warpgroups > have or compute == 240


def test_a_family_is_named_after_the_split() -> None:
    """Reports have a row for each."""
    assert GOOD.family == "hopper-cooperative"
    assert (GOOD.threads, GOOD.in_flight) == (384, 1)
    assert replace(GOOD, split="pipelined").threads == 256
