"""What the heuristic chooses: tiles, and how many CTAs share one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from reductions import PARAMS, reduced, segment

from fuser.arch import SM_90A
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.pipeline import Launch, build
from fuser.runtime.classify import classify
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams
from fuser.schedule.reduction_heuristic import _work, default_reduction_params
from fuser.schedule.segment import Segment
from fuser.schedule.shape_class import Params
from fuzz.campaign.judge import CPU_ORACLES, POLICY, judge
from fuzz.cases.case import Case, by_default, specs
from oracles.prover.prove import prove
from oracles.verdict import Status

BF16_ROW = 2
"""Bytes of an element."""


def chosen(
    shape: tuple[int, int], dims: tuple[int, ...], op: str = "sum", dtype: str = "bf16"
) -> PointwiseParams:
    """The default of a call."""
    fusion = reduced(op, dims, dtype)
    case = Case(fusion, PARAMS, dict(zip(("m", "n"), shape, strict=True)), "reals", 0)
    (params,) = classify(fusion, None, specs(case)).schedules
    assert isinstance(params, PointwiseParams)
    return params


@pytest.mark.parametrize("shape", [(66349, 4312), (379, 792), (100_000, 200), (12_000, 20_000)])
def test_short_rows_are_read_whole_without_much_beside_them(shape: tuple[int, int]) -> None:
    """By as many threads as have at most 64 elements each; or by parts, where these are as fast."""
    params = chosen(shape, (1,))
    if isinstance(params, NormParams):
        assert shape[1] <= params.columns < shape[1] * 1.5
        assert not params.slide
    else:
        assert params.tile[1] < shape[1]


@pytest.mark.parametrize("shape", [(31_777, 183), (40_000, 1001), (9000, 15_001), (300, 60_001)])
def test_odd_rows_slide(shape: tuple[int, int]) -> None:
    """Not where what is reduced is changed by zeros."""
    params = chosen(shape, (1,))
    assert isinstance(params, NormParams)
    assert (params.slide, params.vector) == (True, 8)
    assert not getattr(chosen(shape, (1,), "min"), "slide", False)


@pytest.mark.parametrize(("shape", "op"), [((871, 79_179), "sum"), ((871, 9001), "max")])
def test_odd_rows_that_do_not_slide_come_by_words(shape: tuple[int, int], op: str) -> None:
    """Two a vector: rows too long to be had whole, or what zeros beside them change."""
    params = chosen(shape, (1,), op)
    assert not isinstance(params, NormParams)
    assert (params.tile[0], params.vector) == (1, 8)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(0, 64), (1, 1), (0, 183), (1, 183)])
def test_nothing_has_a_schedule_as_well(shape: tuple[int, int], dims: tuple[int, ...]) -> None:
    """No rows, or one."""
    assert chosen(shape, dims).warps > 0


@pytest.mark.parametrize("shape", [(818, 95_317), (3000, 50_000), (16, 1 << 22)])
def test_long_rows_are_walked_by_parts(shape: tuple[int, int]) -> None:
    """By as many CTAs as SMs have room for."""
    params = chosen(shape, (1,))
    assert not isinstance(params, NormParams)
    assert shape[0] * getattr(params, "splits", 1) >= SM_90A.sms


@pytest.mark.parametrize(
    ("shape", "dims", "tile", "splits"),
    [
        ((32_768, 16_384), (0, 1), (1, 16_384), 264),
        ((16, 1 << 22), (1,), (1, 4096), 49),
        ((1, 1_058_576), (1,), (1, 8192), 130),
        ((134, 5118), (0, 1), (1, 8192), 84),
    ],
)
def test_ctas_that_share_rows_are_as_those_measured(
    shape: tuple[int, int], dims: tuple[int, ...], tile: tuple[int, int], splits: int
) -> None:
    """As many as run at once, also more than 256; of small matrices some elements a thread each."""
    params = chosen(shape, dims)
    assert (params.tile, getattr(params, "splits", 1)) == (tile, splits)


@pytest.mark.parametrize("shape", [(50, 1_500_002), (19, 2_439_877), (201, 3_344_953)])
def test_threads_put_two_vectors_together_of_words_at_once(shape: tuple[int, int]) -> None:
    """Where rows begin anywhere; four were slower."""
    params = chosen(shape, (1,))
    assert params.vector == 8
    assert params.tile[1] == 32 * params.warps * 2 * params.vector


def test_few_bytes_on_their_way_take_memory_longer() -> None:
    """By the model: more CTAs at once, and wider loads, until there are enough."""
    one = segment(2, [0, 1])
    params = PointwiseParams((1, 4096), 4, 4, None, "direct", "direct")
    work = _work(one.domain, [1, 1 << 28], params)
    times = [work._memory_us(132 * many) for many in (1, 2, 3, 4)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.1 * times[-1]
    narrow = _work(one.domain, [1, 1 << 28], replace(params, vector=1))
    assert narrow._memory_us(264) > 1.1 * work._memory_us(264)
    small = _work(one.domain, [1, 1 << 20], params)
    assert small._memory_us(1) == small._memory_us(132)


@pytest.mark.parametrize(
    "shape", [(32_768, 8192), (73_411, 216), (110_722, 16), (1 << 20, 64), (4096, 4096)]
)
def test_columns_are_spread_over_the_gpu(shape: tuple[int, int]) -> None:
    """One CTA an SM, at least, whose threads load 64 bytes of rows or more side by side."""
    params = chosen(shape, (0,))
    tiles = -(-shape[1] // params.tile[1])
    assert tiles * getattr(params, "splits", 1) >= 0.75 * SM_90A.sms
    assert min(params.tile[1], shape[1]) * BF16_ROW >= 32


@pytest.mark.parametrize("shape", [(96, 141), (47, 16), (22, 223), (202, 16)])
def test_small_columns_have_one_cta_a_tile(shape: tuple[int, int]) -> None:
    """Another would take longer to arrive than this one to read all."""
    params = chosen(shape, (0,))
    assert getattr(params, "splits", 1) == 1
    assert params.tile[0] * 2 > shape[0]


@pytest.mark.parametrize(
    ("shape", "tile", "splits"),
    [
        ((485, 34_392), (128, 64), 1),
        ((1007, 7336), (256, 64), 1),
        ((88, 32_797), (128, 128), 1),
        ((30_903, 67), (256, 32), 121),
        ((41_516, 40), (1024, 16), 41),
    ],
)
def test_columns_are_as_those_measured(
    shape: tuple[int, int], tile: tuple[int, int], splits: int
) -> None:
    """Few rows have no CTAs that share a tile and a wide part of it; many rows have one step."""
    params = chosen(shape, (0,))
    assert (params.tile, getattr(params, "splits", 1)) == (tile, splits)


@pytest.mark.parametrize("shape", [(32_768, 8192), (1 << 20, 64), (4096, 4096)])
def test_large_matrices_keep_what_was_measured_on_an_h200(shape: tuple[int, int]) -> None:
    """They are those of the bench."""
    tile = (256, 64) if shape[1] == 64 else (64, 128)
    assert chosen(shape, (0,)).tile == tile


def test_results_asked_for_in_turns_are_of_columns_that_threads_have_whole() -> None:
    """And are shared, whatever that takes."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    total = fd.ops.sum(x, [0], dtype="f32")
    total.request_serial_grid_reduction(method="vectorized")
    fd.add_output(total)
    case = Case(fd.fusion(), PARAMS, {"m": 4096, "n": 512}, "reals", 0)
    (params,) = classify(case.fusion, None, specs(case)).schedules
    assert isinstance(params, ReductionParams)
    assert params.meet == "vectorized"
    assert params.splits > 1
    assert (params.warps, params.tile[1]) == (1, 32 * params.vector)


def default_reduction_params_of(one: Segment, loops: Sequence[int]) -> PointwiseParams:
    """The heuristic for loops in the order of the domain."""
    return default_reduction_params(one.fusion, one.domain, loops)


@pytest.mark.parametrize(
    ("dims", "shape", "least"),
    [
        ([0], (32768, 8192), 3),  # 384 CTAs
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


@pytest.mark.parametrize(("dtype", "ops"), [("bf16", 1), ("f32", 1), ("bf16", 4), ("f64", 4)])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((4, 1 << 20), 1), ((1 << 20, 64), 0), ((4096, 9001), 1), ((64, 1 << 18), 1), ((200, 99), 0)],
)
def test_what_is_chosen_spills_next_to_nothing(
    dtype: str, ops: int, shape: tuple[int, int], dim: int
) -> None:
    """As many elements a thread as its registers hold, read and added, of four reductions, too.

    (One of 20 spills a word: four results in f64 of rows that two CTAs share.)
    """
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype)
    for op in ("sum", "max", "min", "mean")[:ops]:
        fd.add_output(getattr(fd.ops, op)(x, [dim]))
    case = Case(fd.fusion(), PARAMS, dict(zip(("i0", "i1"), shape, strict=True)), "reals", 0)
    (launch,) = build(case.fusion, None, classify(case.fusion, None, specs(case))).launches
    spilled = re.findall(r"(\d+) bytes spill stores", compile_cubin(launch.source).log)
    assert max(map(int, spilled)) <= 4


@pytest.mark.parametrize(("many", "dtype"), [(8, "i64"), (24, "bf16")])
@pytest.mark.parametrize("axes", [[1], [0], [0, 1]], ids=str)
def test_many_results_have_a_default(many: int, dtype: str, axes: list[int]) -> None:
    """Threads have registers for sums of all of them: fewer elements each, shorter vectors."""
    fd = FusionDefinition()
    for _ in range(many):
        fd.add_output(fd.ops.sum(fd.define_tensor(shape=["i0", "i1"], dtype=dtype), axes))
    plain = PointwiseParams((1, 128), 1, 4, None, "direct", "direct")
    case = Case(fd.fusion(), plain, {"i0": 256, "i1": 2048}, "reals", 0)
    assert by_default(case).launches


@pytest.mark.parametrize("dtype", ["bool", "bf16"])
@pytest.mark.parametrize("columns", [4095, 4097, 20_003])
def test_odd_columns_in_turns_have_a_default(dtype: str, columns: int) -> None:
    """A row of a tile has as many bytes as threads reach, if these are few."""
    fd = FusionDefinition()
    total = fd.ops.max(fd.define_tensor(shape=["i0", "i1"], dtype=dtype), [0])
    total.request_serial_grid_reduction(method="vectorized")
    fd.add_output(total)
    case = Case(fd.fusion(), PARAMS, {"i0": 512, "i1": columns}, "reals", 0)
    assert by_default(case).launches


def weighed(weights: str, rows: str = "bf16") -> Fusion:
    """A product of rows in bf16, or cast to it, with weights of some type."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([n, "k"], t) for n, t in (("m", rows), ("n", weights)))
    fd.add_output(fd.ops.linear(fd.ops.cast(x, "bf16"), fd.ops.cast(w, "bf16")))
    return fd.fusion()


def of_weights(
    shape: tuple[int, int, int], weights: str, rows: str = "bf16"
) -> tuple[Params, Launch]:
    """The default of a product, (M, N, K), as sums: one kernel; and that."""
    case = Case(weighed(weights, rows), PARAMS, dict(zip("mnk", shape, strict=True)), "reals", 0)
    found = classify(case.fusion, None, specs(case))
    assert found.choices.few
    (launch,) = build(case.fusion, None, found).launches
    return found.schedules[0], launch


def whole(
    tile: tuple[int, int], vector: int, lanes: int, *, warps: int = 4, resident: int = 1
) -> NormParams:
    """Whole rows, loaded by threads."""
    return NormParams(tile, vector, warps, None, "direct", "direct", lanes=lanes, resident=resident)


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        ((1, 8192, 8192), whole((2, 8192), 16, 128)),
        ((1, 4096, 14336), whole((1, 14336), 16, 128)),
        ((2, 1024, 4096), whole((2, 4096), 8, 64)),
    ],
)
def test_rows_of_bytes_are_read_as_those_measured(
    shape: tuple[int, int, int], params: NormParams
) -> None:
    """By 16 bytes, or as many as go with two accesses of x; two rows a thread, or one as long.

    The kernels are proved, and spill nothing.
    """
    found, launch = of_weights(shape, "i8")
    assert found == params
    assert prove(launch.kernel, policy=POLICY).status is Status.PASS
    assert set(re.findall(r"(\d+) bytes spill", compile_cubin(launch.source).log)) == {"0"}


@pytest.mark.parametrize(
    ("shape", "rows", "vector"),
    [
        ((1, 512, 4096), "bf16", 16),
        ((1, 512, 4096), "f32", 8),
        ((2, 512, 4096), "f32", 4),
        ((2, 512, 4096), "bf16", 8),
        ((4, 512, 4096), "bf16", 8),
        ((1, 512, 4104), "bf16", 8),  # rows begin at multiples of 8 bytes
        ((1, 512, 4100), "bf16", 4),
        ((1, 512, 4098), "bf16", 2),
    ],
)
@pytest.mark.parametrize("weights", ["i8", "f8e4m3"])
def test_vectors_of_bytes_go_with_two_accesses_of_what_is_wider(
    shape: tuple[int, int, int], rows: str, vector: int, weights: str
) -> None:
    """Where rows begin at multiples of as many; no vectors are shorter than elsewhere."""
    found, _ = of_weights(shape, weights, rows)
    assert isinstance(found, NormParams)
    assert found.vector == vector


@pytest.mark.parametrize("shape", [(1, 700, 4096), (2, 700, 4096), (3, 700, 4096), (4, 700, 4096)])
def test_threads_have_as_many_bytes_as_of_other_elements(shape: tuple[int, int, int]) -> None:
    """128, at most, of all rows; and registers for what they are multiplied by."""
    found, launch = of_weights(shape, "i8")
    assert isinstance(found, NormParams)
    rows, columns = found.tile
    assert rows * columns <= 128 * 32 * found.warps
    assert set(re.findall(r"(\d+) bytes spill", compile_cubin(launch.source).log)) == {"0"}


PARTS = PointwiseParams((1, 1024), 8, 2, None, "direct", "direct")


@pytest.mark.parametrize(
    ("shape", "weights", "rows", "params"),
    [
        ((1, 8192, 8192), "bf16", "bf16", PARTS),
        ((2, 8192, 8192), "bf16", "bf16", PARTS),
        ((1, 4096, 14336), "bf16", "f32", PARTS),
        ((1, 14336, 4096), "bf16", "bf16", whole((2, 4096), 8, 64, resident=5)),
        ((1, 1024, 4096), "bf16", "f32", whole((2, 4096), 4, 64, resident=4)),
        ((1, 1024, 4096), "f32", "bf16", whole((2, 4096), 4, 64, resident=4)),
        ((4, 512, 2048), "bf16", "bf16", whole((2, 2048), 8, 64, resident=4)),
    ],
)
def test_wider_weights_stay(
    shape: tuple[int, int, int], weights: str, rows: str, params: PointwiseParams
) -> None:
    """Elements of two bytes or four are not read by more than 16 bytes, nor two rows a thread."""
    assert of_weights(shape, weights, rows)[0] == params


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        ((1, 5, 512), whole((2, 512), 16, 32, warps=1)),
        ((2, 5, 256), whole((2, 256), 8, 32, warps=1)),
        ((1, 3, 1040), whole((4, 1536), 16, 32, warps=2)),
    ],
)
def test_rows_of_bytes_are_summed_right(shape: tuple[int, int, int], params: NormParams) -> None:
    """Two a thread, where the last tile has fewer, and vectors beyond the end of a row."""
    extents = dict(zip("mnk", shape, strict=True))
    case = Case(weighed("i8"), params, extents, "integers", 0)
    wanted = [one for one in CPU_ORACLES if one != "schedules"]
    found = judge(case, wanted, seconds=0.05)
    assert {one.status for one in found} == {"pass"}, [f for f in found if f.status != "pass"]


@pytest.mark.parametrize(("shape", "sums"), [((2, 2304, 4096), True), ((2, 2432, 4096), False)])
def test_two_rows_by_weights_of_bytes_are_sums_of_few(
    shape: tuple[int, int, int], sums: bool
) -> None:
    """Up to 9 MiB of weights; of bf16 however many."""
    for weights in ("i8", "bf16"):
        of = dict(zip("mnk", shape, strict=True))
        case = Case(weighed(weights), PARAMS, of, "reals", 0)
        found = classify(case.fusion, None, specs(case)).choices
        assert bool(found.few) == (sums or weights == "bf16")
