"""Which axes of a kernel are kept and reduced, and which two of them make tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reductions import PARAMS, segment

from fuser.fusion.definition import FusionDefinition
from fuser.schedule.params import ReductionParams
from fuser.schedule.reduction import (
    ReductionTiling,
    crowd,
    how_split,
    lanes_together,
    not_added,
    reduction_tiling,
    results_at_once,
    split_refusal,
)
from fuser.schedule.segment import segments


def tiles(
    rank: int, dims: list[int], order: list[int] | None = None, gaps: list[bool] | None = None
) -> ReductionTiling:
    """The axes of that kernel."""
    return reduction_tiling(segment(rank, dims, order, gaps).domain, PARAMS)


def test_rows_are_reduced_where_neighbours_lie_along_them() -> None:
    """The last axis of the kernel is the reduced one."""
    found = tiles(2, [1])
    assert (found.along, found.walked, found.reduced, found.tile) == (True, (0,), (1,), (4, 64))
    assert found.groups == ((0,), (1,))


def test_columns_are_reduced_where_neighbours_are_kept() -> None:
    """The kept axis comes last, and has the columns of the tile."""
    found = tiles(2, [0])
    assert (found.along, found.walked, found.reduced) == (False, (1,), (0,))
    assert found.groups == ((1,), (0,))


def test_the_order_in_memory_decides_not_the_order_of_axes() -> None:
    """A transposed tensor is reduced the other way around."""
    assert not tiles(2, [1], order=[0, 1]).along
    assert tiles(2, [0], order=[0, 1]).along


def test_neighbouring_axes_are_one() -> None:
    """Kept ones and reduced ones, but never one of each."""
    assert tiles(4, [2, 3]).groups == ((0, 1), (2, 3))
    assert [len(group) for group in tiles(3, [0, 1]).groups] == [2, 1]


def test_axes_that_do_not_merge_are_walked_one_by_one() -> None:
    """Outer axes have tiles of one element; those reduced are counted by the loop."""
    found = tiles(4, [0, 2])
    assert found.tile == (1, 1, 4, 64)
    assert found.walked == (0, 3)
    assert found.reduced == (1, 2)
    found = tiles(4, [1, 3])
    assert (found.along, found.walked, found.reduced) == (True, (0, 2), (1, 3))


def test_everything_reduced_leaves_one_element() -> None:
    """The kept axis is one of extent 1."""
    found = tiles(2, [0, 1])
    assert found.groups == ((), (0, 1))
    (write,) = found.domain.writes
    (read,) = found.domain.reads
    assert found.varies(write, 0)
    assert not found.varies(read, 0)
    assert not found.unit(write, 0)


def test_without_neighbours_rows_are_reduced() -> None:
    """Any order is as good."""
    assert tiles(2, [1], gaps=[False, False]).along


SHARED = ReductionParams((4, 64), 4, 2, None, "direct", "direct", splits=2)


def test_tma_is_asked_for_where_somebody_is_to_be_met() -> None:
    """One CTA a tile meets nobody, and threads add up what they are to."""
    asked = replace(SHARED, meet="tma")
    assert how_split(asked) == "tma"
    assert "tma" not in map(how_split, (PARAMS, SHARED, replace(asked, splits=1)))


def test_lanes_leave_parts_for_tma() -> None:
    """A power of two of them, 32 at most; to TMA they leave a multiple of four parts."""
    asked = replace(SHARED, meet="tma")
    vectors = (1, 2, 3, 4, 6, 12, 16, 96, 128, 2048)
    assert [lanes_together(n, SHARED) for n in vectors] == [1, 2, 1, 4, 2, 4, 16, 32, 32, 32]
    found = [lanes_together(n, asked) for n in vectors]
    assert found == [0, 0, 0, 1, 0, 1, 4, 8, 32, 32]
    assert all(n // lanes % 4 == 0 for n, lanes in zip(vectors, found, strict=True) if lanes)


def test_only_sums_are_added() -> None:
    """By the type in which they are added up, not that of the result."""
    assert not_added(segment(2, [1]).domain) is None
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f16")
    fd.add_output(fd.ops.mean(x, [1]))
    fd.add_output(fd.ops.sum(fd.ops.cast(x, "f64"), [1]))
    (one,) = segments(fd.fusion())
    says = not_added(one.domain)
    assert says is not None
    assert says.endswith("is a sum in f64")


def test_a_box_bounds_the_results_of_a_tile() -> None:
    """256 columns of them, or rows."""
    for dims, tile, larger in (([0], (1, 256), (1, 512)), ([1], (256, 16), (512, 16))):
        params = replace(SHARED, meet="tma", tile=tile, warps=16)
        wide = replace(params, tile=larger)
        domain = segment(2, dims).domain
        assert split_refusal(reduction_tiling(domain, params), params) is None
        says = split_refusal(reduction_tiling(domain, wide), wide)
        assert says is not None
        assert "a TMA box has 256" in says


@pytest.mark.parametrize(
    ("tile", "warps", "lanes"),
    [((1, 4096), 8, 8), ((16, 64), 4, 8), ((32, 64), 4, 4), ((24, 64), 4, 4), ((256, 8), 4, 1)],
)
def test_lanes_load_results_of_several_ctas_for_a_row(
    tile: tuple[int, int], warps: int, lanes: int
) -> None:
    """As many as there are threads for each row: a power of two, at most eight."""
    params = replace(PARAMS, tile=tile, warps=warps)
    assert crowd(params, along=True) == lanes
    assert crowd(params, along=False) == 8


@pytest.mark.parametrize(
    ("tile", "warps", "nbytes", "along", "most"),
    [
        ((1, 4096), 8, 4, True, 256),
        ((1, 4096), 8, 8, True, 128),
        ((256, 8), 4, 4, True, 16),
        ((64, 32), 4, 4, False, 128),
        ((1, 4096), 8, 4, False, 8),
        ((1, 4096), 4, 8, False, 8),
    ],
)
def test_a_thread_has_so_many_results_on_their_way(
    tile: tuple[int, int], warps: int, nbytes: int, along: bool, most: int
) -> None:
    """32 of 4 bytes, at most; at least those of one step."""
    params = replace(PARAMS, tile=tile, warps=warps)
    assert results_at_once(params, nbytes, along=along) == most
