"""What a schedule is predicted to take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product_work import work

from fuser.schedule.matmul import Side
from fuser.schedule.params import largest_divisor
from fuser.schedule.products.cost import (
    Sharing,
    at_most,
    predicted,
    raster,
    read_by,
    walked,
    whole,
)
from fuser.schedule.products.tiles import PARTED, RESIDENT, WHOLE, TileKind

COOPERATIVE = TileKind(128, 256, "cooperative", 2)
PING_PONG = TileKind(128, 192, "ping_pong", 2)
Shape = tuple[int, int, int]
EXTENTS = st.integers(1, 20_000)


@given(EXTENTS, EXTENTS, EXTENTS, st.sampled_from((*WHOLE, *RESIDENT)))
def test_more_to_compute_takes_no_less(m: int, n: int, k: int, kind: TileKind) -> None:
    """Twice the results, or sums twice as long."""
    once = predicted(work(m, n, k), kind, 4, 64)
    assert 0 < once.filled <= 1
    assert predicted(work(2 * m, n, k), kind, 4, 64).loop_us >= once.loop_us
    assert predicted(work(m, n, 2 * k, pitches=(2 * k, 2 * k)), kind, 4, 64).us >= once.us


@pytest.mark.parametrize(
    ("shape", "kind", "stages", "us"),
    [  # measured on an H100
        ((4096, 4096, 4096), COOPERATIVE, 4, 174.5),
        ((7901, 8768, 512), PING_PONG, 4, 106.0),
        ((250, 7296, 3456), TileKind(128, 128, "cooperative", 2), 6, 25.5),
        ((6123, 512, 4672), COOPERATIVE, 4, 48.5),
        ((9631, 832, 512), PING_PONG, 4, 16.6),
    ],
)
def test_a_prediction_is_near(shape: Shape, kind: TileKind, stages: int, us: float) -> None:
    """By a quarter."""
    assert predicted(work(*shape), kind, stages, 64).us == pytest.approx(us, rel=0.25)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"pitches": (8208, 8208)}, COOPERATIVE),  # odd multiples of 16 bytes
        ({"pitches": (8256, 8256)}, COOPERATIVE),  # no whole lines
        ({"result_pitch": 8194}, COOPERATIVE),  # stored by threads
        ({"costly": 1}, COOPERATIVE),
        ({"read": 1}, COOPERATIVE),
        ({"parts": True}, PING_PONG),  # no products in flight
    ],
)
def test_what_costs_time(change: dict[str, Any], kind: TileKind) -> None:
    """Beside a plain product whose rows are whole lines."""
    plain = work(4096, 4096, 4096)
    assert predicted(replace(plain, **change), kind, 4, 64).us > predicted(plain, kind, 4, 64).us


def test_an_epilogue_computes_results_not_sums() -> None:
    """Of several products it has as many columns fewer; tiles that lie across cost more to read."""
    one = work(8192, 8192, 128)
    behind = [
        predicted(replace(one, many=many, costly=costly), COOPERATIVE, 4, 64).behind_us
        for many, costly in ((1, 0), (1, 2), (2, 0), (2, 2))
    ]
    waves = [predicted(replace(one, many=many), COOPERATIVE, 4, 64).waves for many in (1, 2)]
    per_wave = (behind[1] - behind[0]) / waves[0], (behind[3] - behind[2]) / waves[1]
    assert per_wave[0] == pytest.approx(2 * per_wave[1])
    across = replace(COOPERATIVE, transpose=True)
    read = replace(one, read=1)
    straight, turned = (
        predicted(read, kind, 4, 64).behind_us - predicted(one, kind, 4, 64).behind_us
        for kind in (COOPERATIVE, across)
    )
    assert turned == pytest.approx(2 * straight)
    vector = predicted(replace(one, vectors=1), COOPERATIVE, 4, 64).behind_us
    assert behind[0] < vector < behind[1]


def test_an_epilogue_is_hidden_behind_the_other_tile() -> None:
    """Two warpgroups in turn show that of the last tile only, where loops are as long."""
    shapes = (work(8192, 8192, 4096), work(8192, 8192, 4096, costly=2))
    plain, costly = (predicted(of, PING_PONG, 4, 64).behind_us for of in shapes)
    assert costly - plain < 10
    plain, costly = (predicted(of, COOPERATIVE, 4, 64).behind_us for of in shapes)
    assert costly - plain > 50
    short = (work(8192, 8192, 128), work(8192, 8192, 128, costly=2))
    plain, costly = (predicted(of, PING_PONG, 4, 64).behind_us for of in short)
    assert costly - plain > 50


@pytest.mark.parametrize("sharing", ["scatter", "last"])
def test_sharing_pays_where_few_tiles_have_long_sums(sharing: Sharing) -> None:
    """And nowhere else."""
    kind = TileKind(128, 128, "cooperative", 2)
    for shape, pays in (((512, 512, 16384), True), ((4096, 4096, 512), False)):
        alone = predicted(work(*shape), kind, 6, 64).us
        assert (predicted(work(*shape), kind, 6, 64, 8, sharing).us < alone) == pays


@pytest.mark.parametrize(
    ("rows", "across", "group"),
    [(13, 30, 13), (64, 64, 8), (16, 8, 4), (101, 73, 101), (65, 2, 1), (1, 40, 1), (0, 5, 1)],
)
def test_rows_of_tiles_are_walked_in_groups(rows: int, across: int, group: int) -> None:
    """By which neighbours, and all that run at once, read few rows and columns of tiles."""
    assert raster(rows, across, 128, 224) == group


@given(st.integers(1, 300), st.integers(1, 300))
def test_groups_divide_the_rows(rows: int, across: int) -> None:
    """As a kernel requires; of one column of tiles each is a group."""
    assert rows % raster(rows, across, 128, 128) == 0
    assert raster(rows, 1, 128, 128) == 1


@given(st.integers(1, 400), st.data())
def test_a_group_is_asked_for_by_a_power_of_two(rows: int, data: st.DataObject) -> None:
    """Where that gives it; by itself where a divisor of the rows lies between."""
    group = data.draw(st.sampled_from([n for n in range(1, rows + 1) if rows % n == 0]))
    most = at_most(group, rows)
    assert largest_divisor(rows, most) == group
    assert most == group or most.bit_count() == 1


@pytest.mark.parametrize(
    ("group", "rows", "most"), [(11, 11, 16), (6, 12, 8), (4, 12, 4), (3, 12, 3), (1, 7, 1)]
)
def test_what_is_asked_of_a_launch_for_a_group(group: int, rows: int, most: int) -> None:
    """Below 4 the largest divisor of 12 would be 4, not 3."""
    assert at_most(group, rows) == most


@pytest.mark.parametrize("ctas", [1, 2, 5, 12])
@pytest.mark.parametrize(
    ("group", "rows", "across"), [(4, 12, 10), (1, 7, 30), (2, 2, 3), (6, 6, 1)]
)
def test_what_neighbours_read_is_counted(ctas: int, group: int, rows: int, across: int) -> None:
    """Within a row and a column of what runs of so many CTAs read, on average."""
    tiles = [
        (n // (group * across) * group + n % group, n // group % across)
        for n in range(rows * across)
    ]
    runs = [tiles[n : n + ctas] for n in range(0, len(tiles) - ctas + 1)]
    ctas = min(ctas, len(tiles))
    down, along = read_by(ctas, group, rows, across)
    for got, side in ((down, 0), (along, 1)):
        seen = [len({tile[side] for tile in run}) for run in runs or [tiles]]
        assert got * ctas == pytest.approx(sum(seen) / len(seen), abs=1)


def test_an_sm_has_several_ctas_of_plain_products_only() -> None:
    """Parts of reductions and several products are computed by one."""
    plain = work(64, 64, 64)
    assert {*RESIDENT} < {*whole(plain, transposed=False)}
    for change in ({"many": 2}, {"parts": True}):
        assert not {*RESIDENT} & {*whole(replace(plain, **change), transposed=False)}


def test_transposed_tiles_see_rows_as_columns() -> None:
    """272 rows fill two tiles of 136 columns, and three of 128 rows not: less is multiplied."""
    few = work(272, 7552, 5760)
    wide = TileKind(128, 136, "ping_pong", 2, transpose=True)
    assert wide in {*whole(few, transposed=True)} - {*whole(few, transposed=False)}
    across, along = predicted(few, wide, 4, 136), predicted(few, PING_PONG, 4, 64)
    assert across.filled == 1
    assert along.filled < 0.75
    assert across.us < along.us
    assert predicted(replace(few, m=7552, n=272), wide, 4, 136).filled < 1


def test_nothing_takes_no_longer_than_a_launch() -> None:
    """Of no results."""
    for kind in (*WHOLE, *RESIDENT, *PARTED):
        assert predicted(work(0, 64, 64), kind, 4, 64).us == kind.manner.start_us


@pytest.mark.parametrize(
    ("wide", "lines"), [(64, 1), (256, 1), (160, 2), (96, 2), (144, 4), (16, 4)]
)
def test_narrow_rows_of_boxes_cost_as_many_lines(wide: int, lines: int) -> None:
    """Of B along N, by the swizzle of so many columns; of B along K all rows are lines."""
    kind = TileKind(64, wide, "cooperative", 1)
    plain, turned = work(64, wide, 1 << 16), work(64, wide, 1 << 16, turned=(False, True))
    along_k, along_n = (predicted(of, kind, 8, 16).loop_us for of in (plain, turned))
    assert along_n == along_k if lines == 1 else along_n > along_k
    assert predicted(replace(turned, turned=(True, False)), kind, 8, 16).loop_us == along_k


def test_matrices_that_are_shared_come_from_memory_once() -> None:
    """By blocks that follow each other; also where tiles are transposed."""
    apart = work(128, 14336, 4096, around=64)
    shared = replace(apart, shared="rows", matrices=8)
    for kind in (PING_PONG, TileKind(256, 128, "cooperative", 2, transpose=True)):
        whole, few = (predicted(of, kind, 4, 64).memory_us for of in (apart, shared))
        assert few < whole / 4
        most = replace(shared, matrices=64)
        assert few < predicted(most, kind, 4, 64).memory_us < whole * 1.01


@pytest.mark.parametrize(("blocks", "across"), [(64, 20), (3, 7), (1, 5)])
def test_blocks_that_share_matrices_are_walked_by_columns(blocks: int, across: int) -> None:
    """As one result with all rows would be, the other way around."""
    kind = TileKind(128, 128, "cooperative", 2)
    group, *others = walked("rows", blocks, 128, 128 * across, kind, 128)
    assert others == [across, blocks, True]
    assert group == raster(across, blocks, 128, 128)
    assert across % group == 0
    sides: tuple[Side, ...] = ("", "cols")
    for side in sides:
        assert walked(side, blocks, 128, 128 * across, kind, 128)[1:] == (1, blocks * across, False)
