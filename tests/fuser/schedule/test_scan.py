"""Which axes a kernel with scans has, and what it gets where the user names no schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scanned import PLAIN, scan

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.params import ScanParams
from fuser.schedule.scan import scan_tiling, scans_rows
from fuser.schedule.segment import segments


def chosen(dim: int, rows: int, columns: int, *, stride: int | None = None) -> ScanParams:
    """Return the default schedule of a cumsum of a matrix of bf16."""
    spec = Spec((rows, columns), (stride or columns, 1), 0, DType.BF16)
    fd = FusionDefinition()
    fd.add_output(fd.ops.cumsum(fd.define_tensor(["m", "n"], "bf16", [False, True]), dim))
    (schedule,) = classify(fd.fusion(), None, {"T0": spec}).schedules
    assert isinstance(schedule, ScanParams)
    return schedule


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("inputs", [1, 5, 12, 30])
def test_rings_of_many_inputs_have_room(inputs: int, dim: int) -> None:
    """Fewer slots, or none; such a default schedule was refused."""
    fd = FusionDefinition()
    total, *more = (fd.define_tensor(["m", "n"], "f64") for _ in range(inputs))
    for one in more:
        total = fd.ops.add(total, one)
    fd.add_output(fd.ops.cumsum(total, dim))
    fusion = fd.fusion()
    specs = {tv.name: Spec((8000, 8000), (8000, 1), 0, DType.F64) for tv in fusion.inputs}
    shapes = classify(fusion, None, specs)
    (launch,) = build(fusion, None, shapes).launches
    assert launch.kernel.smem_bytes <= SM_90A.smem_bytes
    (schedule,) = shapes.schedules
    assert schedule.stages > 1 or inputs > 5


@pytest.mark.parametrize(("dim", "rows"), [(1, True), (0, False)])
def test_rows_run_along_what_has_its_neighbours_there(dim: int, rows: bool) -> None:
    """Else columns of a tile are scanned, which the result has its neighbours across."""
    (segment,) = segments(scan(dim))
    assert scans_rows(segment.domain) is rows
    tiles = scan_tiling(segment.domain, PLAIN)
    assert tiles.along is rows
    assert [tiles.axes_of[axis] for axis in tiles.reduced] == [(dim,)]


def test_axes_around_are_walked_and_what_is_scanned_is_no_part_of_another() -> None:
    """Of a tensor of four axes the two slowest are one, and the two behind what is scanned."""
    fd = FusionDefinition()
    x = fd.define_tensor(["a", "b", "c", "d", "e"], "f32")
    fd.add_output(fd.ops.cumsum(x, 2))
    (segment,) = segments(fd.fusion())
    assert segment.domain.merged == ((0, 1), (2,), (3, 4))


def test_columns_take_as_many_elements_of_a_tile_as_rows() -> None:
    """A thread has whole columns; a TMA box has 256 at most."""
    wide = replace(PLAIN, tile=(8, 256))
    assert (wide.down.tile, wide.down.lanes) == ((2, 1024), 128)
    by_tma = replace(wide, load="tma").down
    assert (by_tma.tile, by_tma.vector) == ((8, 256), 2)


@pytest.mark.parametrize(
    ("shape", "lanes", "family"),
    [
        ((4096, 24), 4, "scan-direct/direct"),
        ((4096, 1024), 128, "scan-direct/direct"),
        ((4096, 16384), 256, "scan-cp_async-pipelined/direct"),
        ((4096, 16383), 256, "scan-direct/direct"),
        ((16, 1 << 20), 512, "scan-cp_async-pipelined/direct"),
    ],
)
def test_enough_threads_share_a_row(shape: tuple[int, int], lanes: int, family: str) -> None:
    """That it is one tile, up to some warps; tiles of long rows are copied ahead, if aligned."""
    schedule = chosen(1, *shape)
    assert (schedule.lanes, schedule.family) == (lanes, family)


@pytest.mark.parametrize(
    ("rows", "family"),
    [(40, "scan-direct/direct"), (8192, "scan-cp_async-pipelined/direct")],
)
def test_few_columns_are_copied_ahead(rows: int, family: str) -> None:
    """By CTAs of one warp, as there are no more threads than columns."""
    schedule = chosen(0, rows, 8192)
    assert (schedule.warps, schedule.family) == (1, family)
    assert chosen(0, rows, 8192, stride=8193).family == "scan-direct/direct"
