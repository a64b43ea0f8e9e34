"""The tiles that schedules are chosen from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.arch import SM_90A
from fuser.schedule.products.tiles import (
    BARRIERS,
    BROAD,
    COUNTS,
    ENDED,
    HELD,
    MANNERS,
    PARTED,
    RESIDENT,
    SPAN,
    TRANSPOSED,
    TRANSPOSED_PARTED,
    WAVES,
    WHOLE,
    Ends,
    Fit,
    TileKind,
    counts,
    deeper,
    fitting,
    parted,
    tiles,
)

EVERY = (*WHOLE, *RESIDENT, *PARTED, *BROAD)
ENDS: tuple[Ends, ...] = ("bare", "values", "tiles")


@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_every_kind_is_timed_and_fits(kind: TileKind) -> None:
    """With two stages or more, and staging whose columns divide the tile."""
    assert kind.manner in MANNERS.values()
    span = SPAN * (kind.rows + kind.cols)
    step = span * kind.deep
    stages, columns, staging = kind.stages(kind.cols, span, 2)
    assert stages >= 2
    assert kind.cols % columns == 0
    if kind.resident == 1:
        roles = 2 if kind.split == "ping_pong" else 1
        staged = roles * min(staging, kind.cols // columns) * 2 * kind.rows * columns
        assert stages * step + staged + BARRIERS <= SM_90A.smem_bytes
    assert kind.resident * stages * step + BARRIERS <= SM_90A.smem_bytes


def test_tall_tiles_store_fewer_columns_at_a_time() -> None:
    """A stage more is worth that, but not columns of 16."""
    assert TileKind(256, 128, "cooperative", 2).stages(128, SPAN * 384, 2) == Fit(4, 32, 2)
    assert TileKind(256, 160, "cooperative", 2).stages(160, SPAN * 416, 2) == Fit(3, 32, 3)
    assert TileKind(128, 256, "cooperative", 2).stages(256, SPAN * 384, 2) == Fit(4, 64, 2)


def test_a_ring_of_four_is_worth_fewer_columns() -> None:
    """Of 96 there would be three stages, in ping-pong."""
    tall = TileKind(128, 192, "ping_pong", 2, transpose=True)
    assert tall.stages(192, SPAN * 320, 2) == Fit(4, 64, 2)


def test_three_slots_where_nobody_multiplies_meanwhile() -> None:
    """For three parts or more, unless that costs a stage."""
    assert TileKind(128, 192, "cooperative", 2).stages(192, SPAN * 320, 2) == Fit(4, 64, 3)
    assert TileKind(128, 192, "ping_pong", 2).stages(192, SPAN * 320, 2) == Fit(4, 64, 2)
    assert TileKind(128, 128, "cooperative", 2).stages(128, SPAN * 256, 2) == Fit(6, 64, 2)


@pytest.mark.parametrize("kind", BROAD, ids=str)
def test_rows_of_broad_tiles_lie_in_different_banks(kind: TileKind) -> None:
    """All columns are a part, and eight of its rows begin at eight places of 128 bytes."""
    fit = kind.stages(kind.cols, SPAN * (kind.rows + kind.cols), 2, 2 * 1000)
    assert fit.columns == kind.cols
    assert len({2 * kind.cols * row % 128 for row in range(8)}) == 8


@given(st.integers(0, 20_000), st.sampled_from((8, 16)))
def test_transposed_tiles_fit_the_rows_of_a_result(rows: int, unit: int) -> None:
    """Less than a unit of columns too many for each tile, and shared memory for two stages."""
    for kind in (*fitting(rows, TRANSPOSED, unit), *fitting(rows, TRANSPOSED_PARTED, unit)):
        assert kind.manner in MANNERS.values()
        assert kind.transpose
        many = -(-rows // kind.cols)
        assert many * kind.cols - rows < unit * max(many, 1)
        assert kind.cols % unit == 0
        stages, columns, _ = kind.stages(kind.cols, SPAN * (kind.rows + kind.cols), 2)
        assert stages >= 2
        assert kind.cols % columns == 0
    assert any(kind.warpgroups == 2 for kind in fitting(rows, TRANSPOSED, unit))


def test_longer_steps_have_fewer_slots() -> None:
    """Of four spans only 64 rows; a kind that has them already has no others."""
    short, tall = (TileKind(rows, 64, "cooperative", rows // 64) for rows in (64, 128))
    assert [kind.deep for kind in deeper(short)] == [2, 4]
    assert [kind.deep for kind in deeper(tall)] == [2]
    assert deeper(deeper(tall)[0]) == ()
    stages = [kind.stages(64, SPAN * 128, 2).stages for kind in (short, *deeper(short))]
    assert stages == [8, 6, 3]


def test_ctas_that_compute_an_operand_share_an_sm() -> None:
    """While one waits for its products; transposed tiles are those of so many rows."""
    plain, computed = ([*parted(48, unit, computed=True)] for unit in (0, 8))
    more = [kind for kind in computed if kind.resident > 1]
    assert {kind.transpose for kind in more} == {False, True}
    assert not any(kind.transpose for kind in plain)
    assert not any(kind.resident > 1 for kind in parted(48, 8, computed=False))


def test_threads_that_store_results_hold_few_columns() -> None:
    """Beside 192 sums 8, which rows of the result fill only where tiles are transposed."""
    tall = TileKind(128, 192, "ping_pong", 2)
    assert tall.stages(192, SPAN * 320, 2)[1] == 64
    assert tall.stages(192, SPAN * 320, 2, 2 * 1000)[1] == 64  # TMA stores these
    assert tall.stages(192, SPAN * 320, 2, 2 * 1001)[0] == 0
    across = TileKind(128, 192, "ping_pong", 2, transpose=True)
    assert across.stages(192, SPAN * 320, 2, 2 * 1001)[1] == 8


def test_epilogues_that_hold_values_take_fewer_columns() -> None:
    """Of ping-pong's 192 sums a thread; elements of tiles that lie across come one by one."""
    tall, short = (TileKind(128, cols, "ping_pong", 2) for cols in (192, 128))
    assert [tall.stages(192, SPAN * 320, 2, 0, ends).columns for ends in ENDS] == [64, 32, 32]
    assert [short.stages(128, SPAN * 256, 2, 0, ends).columns for ends in ENDS] == [64, 64, 64]
    across = TileKind(128, 192, "ping_pong", 2, transpose=True)
    bare, values, tiles_ = (across.stages(192, SPAN * 320, 2, 0, ends).columns for ends in ENDS)
    assert bare > values > tiles_
    assert 192 + values <= ENDED
    assert 192 + 2 * tiles_ <= HELD
    pair = tall.stages(96, SPAN * 320, 2, 0, "values", 2)  # two products of 96 columns each
    assert 2 * (96 + pair.columns) <= ENDED


def test_threads_that_store_several_products_hold_the_sums_of_all() -> None:
    """8369 x 6094 x 3403, gated, by 128 x 96 each in ping-pong spilled 288 bytes."""
    tall = TileKind(128, 192, "ping_pong", 2)
    assert tall.stages(96, SPAN * 320, 2, 2 * 3001).stages >= 2
    assert tall.stages(96, SPAN * 320, 2, 2 * 3001, "values", 2).stages == 0


def test_threads_of_three_warpgroups_store_single_elements_of_fewer_columns() -> None:
    """They have 160 registers each; pairs of elements, and whole lines, take less."""
    wide, step = TileKind(192, 192, "cooperative", 3), SPAN * 128  # no ring asks for fewer
    assert wide.stages(192, step, 2, 2 * 1001).columns == 32
    assert wide.stages(192, step, 2, 2 * 1002).columns == 64
    assert wide.stages(192, step, 2).columns == 64


def test_what_does_not_fit_has_no_stages() -> None:
    """Results of 8 bytes leave no room for a ring."""
    assert TileKind(256, 160, "cooperative", 2).stages(160, SPAN * 416 * 4, 8)[0] <= 1


def test_ctas_share_a_tile_as_often_as_they_fill_the_device() -> None:
    """A part has one step, and there are few waves."""
    found = [*counts(10, 1000, 132)]
    assert 13 in found
    assert {*found} <= {*COUNTS, 13}
    assert max(found) * 10 <= WAVES * 132
    assert [*counts(10, 3, 132)] == [2, 3]
    assert [*counts(400, 100, 132)] == []


def test_tiles_are_counted_with_their_tails() -> None:
    """Every result has one more that is not full."""
    assert tiles(3, 129, 1, 128, 8) == 6
    assert tiles(3, 0, 1, 128, 8) == 0
