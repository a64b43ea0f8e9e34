"""What the heuristic chooses: tiles, and how many CTAs share one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from reductions import PARAMS, segment

from fuser.fusion.definition import FusionDefinition
from fuser.pipeline import build
from fuser.runtime.classify import classify
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuser.schedule.reduction import reduces_rows
from fuser.schedule.reduction_heuristic import default_reduction_params
from fuser.schedule.segment import Segment, segments
from fuzz.cases.case import Case, specs
from oracles.assembler import judge_log
from oracles.verdict import Status


@pytest.mark.parametrize(
    ("dims", "loops", "tile"),
    [
        ([1], (4096, 8192), (2, 1024)),
        ([1], (4096, 100), (16, 128)),
        ([1], (4096, 1), (512, 4)),
        ([0], (64, 1000000), (16, 128)),
        ([0], (32, 40000), (16, 128)),
    ],
)
def test_the_heuristic_takes_8_kib_and_spreads_columns_over_the_gpu(
    dims: list[int], loops: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Rows as long as they are, up to 1024; of columns, a warp for each few."""
    one = segment(2, dims)
    kept = loops[::-1] if dims == [0] else loops
    params = default_reduction_params_of(one, kept)
    assert params.tile == tile
    assert not isinstance(params, ReductionParams)
    assert reduces_rows(one.domain) == (dims == [1])


def default_reduction_params_of(one: Segment, loops: Sequence[int]) -> PointwiseParams:
    """The heuristic for loops in the order of the domain."""
    return default_reduction_params(one.fusion, one.domain, loops)


def test_what_is_wide_has_fewer_elements_a_thread() -> None:
    """Four reductions of f64 at once would spill."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f64")
    for op in ("sum", "mean", "max", "min"):
        fd.add_output(getattr(fd.ops, op)(x, [1]))
    (one,) = segments(fd.fusion())
    assert default_reduction_params_of(one, (4096, 100)).tile == (4, 128)


@pytest.mark.parametrize(
    ("dims", "shape", "least"),
    [
        ([0], (32768, 8192), 4),
        ([0], (1024, 64), 2),
        ([0, 1], (32768, 16384), 64),
        ([1], (16, 1 << 22), 4),
    ],
)
def test_where_few_tiles_are_long_ctas_share_them(
    dims: list[int], shape: tuple[int, int], least: int
) -> None:
    """Columns of a large matrix, a full sum, few long rows."""
    one = segment(2, dims)
    extents = dict(zip(("i0", "i1"), shape, strict=True))
    params = default_reduction_params_of(one, [extents[str(e)] for e in one.domain.extents])
    assert isinstance(params, ReductionParams)
    assert params.splits >= least


def test_few_rows_that_are_not_long_have_one_cta_of_more_threads() -> None:
    """A turn costs as much as a step of a tile that is eight times as wide."""
    params = default_reduction_params_of(segment(2, [1]), [4, 5000])
    assert isinstance(params, ReductionParams)
    assert (params.tile, params.warps, params.splits) == ((1, 8192), 8, 1)


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("shape", [(4, 1 << 20), (1 << 20, 64)])
def test_what_is_chosen_for_few_tiles_spills_nothing(
    dtype: str, op: str, shape: tuple[int, int]
) -> None:
    """As many elements a thread as its registers hold, read and added."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype)
    fd.add_output(getattr(fd.ops, op)(x, [1 if shape[0] < shape[1] else 0]))
    case = Case(fd.fusion(), PARAMS, dict(zip(("i0", "i1"), shape, strict=True)), "reals", 0)
    (launch,) = build(case.fusion, None, classify(case.fusion, None, specs(case))).launches
    assert isinstance(launch.params, ReductionParams)
    verdict = judge_log(compile_cubin(launch.source).log)
    assert (verdict.status, verdict.findings) == (Status.PASS, ())
