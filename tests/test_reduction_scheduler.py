"""Which axes of a kernel are kept and reduced, and which two of them make tiles."""

from __future__ import annotations

from fuser.fusion_ir import FusionDefinition
from fuser.params import PointwiseParams
from fuser.reduction_scheduler import (
    ReductionTiling,
    reduction_tiling,
)
from fuser.segment import Segment, segments

PARAMS = PointwiseParams((4, 64), 4, 2, None, "direct", "direct")


def segment(
    rank: int, dims: list[int], order: list[int] | None = None, gaps: list[bool] | None = None
) -> Segment:
    """The kernel that adds up axes of a tensor."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * rank, "f32", gaps, order)
    fd.add_output(fd.ops.sum(x, dims))
    (one,) = segments(fd.fusion())
    return one


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
