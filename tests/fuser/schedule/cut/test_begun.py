"""Reductions of all rows, begun by the kernel that has whole ones and ended by another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from judged import complaints
from norms import SCHEDULES, launches, of_rows
from sample import covering

from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.pipeline import Launch
from fuser.runtime.classify import classify
from fuser.runtime.explain import Explanation, explain
from fuser.schedule.params import NormParams
from fuzz.cases.case import Case

Define = Callable[[FusionDefinition, TensorView, TensorView], list[TensorView]]


def fusion(define: Define, *, rank: int = 2, dtype: str = "bf16") -> Fusion:
    """Results of two inputs with the same rows, of `n` elements."""
    fd = FusionDefinition()
    axes: list[str | int] = [*"bmn"[3 - rank :]]
    x, dy = (fd.define_tensor(axes, dtype) for _ in range(2))
    for tv in define(fd, x, dy):
        fd.add_output(tv)
    return fd.fusion()


def backward(fd: FusionDefinition, x: TensorView, dy: TensorView) -> list[TensorView]:
    """Of layer norm, with the gradients of weight and bias."""
    weight = fd.define_tensor(["n"], "bf16")
    _, mean, scale = fd.ops.native_layer_norm(x, [-1], weight, None, eps=1e-5)
    return [*fd.ops.layer_norm_backward(dy, x, mean, scale, [-1], weight)]


def centred(fd: FusionDefinition, x: TensorView) -> TensorView:
    """What has whole rows: each element less the mean of its row."""
    return fd.ops.sub(x, fd.ops.mean(x, [1], keepdim=True))


def begun(found: tuple[Launch, ...]) -> list[str]:
    """The reductions of which kernels leave parts."""
    return [access.tv.held for one in found for access in one.tiling.domain.begun]


def said(made: Fusion, rows: int, columns: int, rank: int = 2) -> Explanation:
    """What is said of a fusion of two matrices, and a weight, by default."""
    matrix = (rows, columns) if rank == 2 else (4, rows // 4, columns)
    return explain(made, matrix, matrix, *[(columns,)] * (len(made.inputs) - 2))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize(
    ("rows", "columns", "most"),
    [
        (16384, 4096, 1.05), (8192, 16384, 1.03), (32768, 1024, 1.08), (20000, 999, 1.16),
        (50000, 300, 1.17),
    ],
)  # fmt: skip
def test_gradients_of_weights_are_begun_where_their_rows_are(
    rank: int, rows: int, columns: int, most: float
) -> None:
    """Rows are read once; besides there are parts, more where rows are short."""
    found = said(fusion(backward, rank=rank), rows, columns, rank)
    assert len(found.parts) == 2
    assert found.nbytes <= most * found.least


@pytest.mark.parametrize(
    ("rows", "columns", "lanes", "ctas"),
    [(16384, 4096, 256, 2), (32768, 1024, 64, 6), (12000, 6144, 256, 1), (100_000, 512, 32, 12)],
)
def test_rows_of_which_sums_are_begun_come_by_rings_of_bulk_copies(
    rows: int, columns: int, lanes: int, ctas: int
) -> None:
    """Some 72 kB of an SM are on their way, 96 kB where a CTA has one for itself."""
    params = said(fusion(backward), rows, columns).parts[0].params
    assert isinstance(params, NormParams)
    assert (params.load, params.lanes, params.ctas_per_sm) == ("bulk", lanes, ctas)
    nbytes = 2 * 2 * columns * params.stages * ctas
    assert 60_000 <= nbytes <= 100_000


def bias_gradient(fd: FusionDefinition, x: TensorView, dy: TensorView) -> list[TensorView]:
    """Behind silu(x)."""
    one = fd.ops.sigmoid(x)
    rest = fd.ops.add(fd.ops.mul(x, fd.ops.sub(1.0, one)), 1.0)
    made = fd.ops.mul(fd.ops.mul(dy, one), rest)
    return [fd.ops.cast(made, "bf16"), fd.ops.sum(made, [0])]


@pytest.mark.parametrize(
    ("rows", "columns", "most"),
    [(16384, 4096, 1.03), (8192, 14336, 1.03), (16384, 1001, 1.67), (2048, 300_000, 1.67)],
)
def test_gradients_of_a_bias_are_begun_by_who_computes_what_they_add_up(
    rows: int, columns: int, most: float
) -> None:
    """Unless rows begin anywhere, or no cluster holds one: then two kernels read all."""
    found = said(fusion(bias_gradient), rows, columns)
    assert found.nbytes <= most * found.least


def test_few_rows_are_read_again() -> None:
    """Their parts would be no less."""
    found = said(fusion(backward), 256, 4096)
    assert not any("_parts" in name for part in found.parts for name in part.writes)


@pytest.mark.parametrize(
    ("rows", "columns", "dealt"),
    [
        (30_000, 1025, (32, 4, 2)),
        (8000, 2049, (64, 2, 3)),
        (16_000, 4097, (128, 1, 3)),
        (3000, 15_001, (512, 1, 1)),
    ],
)
def test_sums_of_rows_that_begin_anywhere_are_begun(
    rows: int, columns: int, dealt: tuple[int, int, int]
) -> None:
    """By several CTAs an SM; a cluster of 8 took twice as long."""
    made = fusion(backward)
    (first, *_) = classify(made, None, of_rows(made, rows, columns)).schedules
    assert isinstance(first, NormParams)
    assert (first.lanes, first.tile[0], first.resident) == dealt
    assert first.tiles_per_cta > 1
    assert first.cluster == 1


def asks(fd: FusionDefinition, x: TensorView, dy: TensorView) -> list[TensorView]:
    """CTAs are asked to put together what they have."""
    total = fd.ops.sum(x, [0])
    total.request_serial_grid_reduction(method="vectorized")
    return [centred(fd, fd.ops.add(x, dy)), total]


WAYS: dict[str, tuple[Define, list[str]]] = {
    "what the kernel reads": (lambda fd, x, _: [centred(fd, x), fd.ops.sum(x, [0])], ["T5"]),
    "what it computes": (
        lambda fd, x, _: [centred(fd, x), fd.ops.max(centred(fd, x), [0])],
        ["T8"],
    ),
    "means, of several": (
        lambda fd, x, dy: [
            centred(fd, fd.ops.add(x, dy)), fd.ops.mean(dy, [0]), fd.ops.prod(x, [0])
        ],
        ["T6", "T7"],
    ),
    "what it does not read": (lambda fd, x, dy: [centred(fd, x), fd.ops.sum(dy, [0])], []),
    "what only another reads": (
        lambda fd, x, dy: [centred(fd, x), fd.ops.sum(fd.ops.mul(x, dy), [0])],
        [],
    ),
    "no rows are reduced": (lambda fd, x, dy: [fd.ops.add(x, dy), fd.ops.sum(x, [0])], ["T3"]),
    "columns are reduced": (lambda fd, x, dy: [fd.ops.add(x, dy), fd.ops.sum(x, [1])], []),
    "all of it": (lambda fd, x, _: [centred(fd, x), fd.ops.sum(x, [0, 1])], []),
    "all of what has no rows": (lambda fd, x, _: [fd.ops.neg(x), fd.ops.sum(x, [0, 1])], []),
    "turns": (asks, []),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_what_is_begun(name: str) -> None:
    """Reductions of exactly the rows, of what is on its way."""
    define, wanted = WAYS[name]
    params = replace(SCHEDULES["a warp a row"], tiles_per_cta=2)
    assert begun(launches(fusion(define), params, rows=4, columns=60)) == wanted


def test_rows_by_rings_of_bulk_copies_do_not_stay_in_the_l2() -> None:
    """Of what begins sums: the hint makes them slower there, and loads faster."""
    made = fusion(lambda fd, x, _: [centred(fd, x), fd.ops.sum(x, [0])])
    for name, kept in (("rows in bulk", False), ("a warp a row", True)):
        params = replace(SCHEDULES[name], tiles_per_cta=2)
        first, *_ = launches(made, params, rows=4, columns=200)
        assert any(tensor.kept for tensor in first.kernel.tensors) is kept


def test_what_waits_for_a_sum_has_a_kernel_of_its_own() -> None:
    """Two kernels have the same rows, the second of what the first has begun."""

    def define(fd: FusionDefinition, x: TensorView, dy: TensorView) -> list[TensorView]:
        first = centred(fd, fd.ops.add(x, dy))
        total = fd.ops.sum(first, [0], keepdim=True)
        second = centred(fd, fd.ops.mul(first, total))
        return [first, second, fd.ops.sum(second, [0])]

    made = fusion(define, dtype="f32")
    params = replace(SCHEDULES["a warp a row"], tiles_per_cta=2)
    assert not complaints(Case(made, params, {"m": 9, "n": 40}, "reals", 2))


@pytest.mark.parametrize(("name", "rows", "each"), covering(2, SCHEDULES, [1, 9, 22], [1, 2, 5]))
def test_every_schedule_begins(name: str, rows: int, each: int) -> None:
    """Rows that fill no tile, CTAs that have one; all judges."""
    params = SCHEDULES[name]
    step = params.lanes * params.vector
    wide = -(-200 // (step * params.cluster)) * step
    params = replace(params, tile=(params.tile[0], wide), tiles_per_cta=each)
    made = fusion(backward)
    assert not complaints(Case(made, params, {"m": rows, "n": 200}, "reals", 1))


@pytest.mark.parametrize(
    ("name", "rows", "columns"), covering(2, SCHEDULES, [1, 9, 40], [200, 131, 0])
)
def test_rows_that_nothing_is_reduced_along(name: str, rows: int, columns: int) -> None:
    """A kernel has them for the sums of all rows; of none it has nothing to do."""
    params = SCHEDULES[name]
    if columns % {"cp_async": 2, "bulk": 8}.get(params.load, 1):
        params = replace(params, load="direct", stages=1, prefetch=0, reload=False)
    step = params.lanes * params.vector * params.cluster
    wide = (params.tile[0], -(-200 // step) * step // params.cluster)
    params = replace(params, tile=wide, tiles_per_cta=2)
    made = fusion(bias_gradient)
    assert not complaints(Case(made, params, {"m": rows, "n": columns}, "reals", 1))


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "min"])
def test_rows_that_are_not_there_change_nothing(op: str) -> None:
    """One is added to each element, so that those behind the last row are no zeros."""

    def define(fd: FusionDefinition, x: TensorView, _: TensorView) -> list[TensorView]:
        return [centred(fd, x), getattr(fd.ops, op)(fd.ops.add(x, 1.0), [0])]

    params = NormParams((8, 128), 4, 2, None, "direct", "direct", lanes=32, tiles_per_cta=2)
    made = fusion(define, dtype="f32")
    assert begun(launches(made, params, columns=100)) == ["T6"]
    for rows in (1, 17):
        assert not complaints(Case(made, params, {"m": rows, "n": 100}, "reals", rows))


def test_axes_around_are_reduced_together_in_any_order() -> None:
    """Results are permuted, so that loops are, and none of the axes merge."""

    def define(fd: FusionDefinition, x: TensorView, dy: TensorView) -> list[TensorView]:
        made = fd.ops.sub(x, fd.ops.mean(fd.ops.add(x, dy), [2], keepdim=True))
        return [fd.ops.permute(made, [1, 0, 2]), fd.ops.sum(dy, [0, 1]), fd.ops.mean(x, [1, 0])]

    made = fusion(define, rank=3, dtype="f32")
    for b, m in ((1, 5), (5, 1), (3, 4)):
        params = NormParams((2, 128), 4, 1, 2, "direct", "direct", lanes=32, tiles_per_cta=2)
        assert not complaints(Case(made, params, {"b": b, "m": m, "n": 84}, "reals", 3, offset=1))


def test_a_cta_has_a_tile_at_least() -> None:
    """The way out is in the message."""
    with pytest.raises(ScheduleError, match=r"tiles_per_cta=0.*use tiles_per_cta=1"):
        replace(SCHEDULES["a ring"], tiles_per_cta=0)
