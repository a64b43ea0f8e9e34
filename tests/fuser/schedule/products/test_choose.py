"""What is chosen where the user names no schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.fusion.ir import TensorView
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams
from fuser.schedule.products import choose
from fuser.schedule.products.choose import best, candidates
from fuser.schedule.segment import segments
from fuser.schedule.shape_class import CallClass, Choices, Params
from fuzz.bench.matmul.products import ended
from fuzz.bench.sweep import lying

Shape = tuple[int, int, int]
TYPES = {dtype.name: dtype for dtype in DType}


def fusion(dtype: str = "bf16", *, products: int = 1, act: str = "") -> Fusion:
    """The product of as many layers, behind an activation."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype)
    made = [fd.ops.linear(x, fd.define_tensor([-1, -1], dtype)) for _ in range(products)]
    y = fd.ops.mul(*made) if products == 2 else made[0]
    fd.add_output(getattr(fd.ops, act)(y) if act else y)
    return fd.fusion()


def classified(of: Fusion, shape: Shape, params: Params | None = None) -> CallClass:
    """The class of a call with dense tensors."""
    m, n, k = shape
    specs = {}
    for at, tv in enumerate(of.inputs):
        rows = n if at else m
        specs[tv.name] = Spec((rows, k), (k, 1), at << 32, TYPES[tv.dtype.name])
    return classify(of, params, specs)


def chosen(of: Fusion, shape: Shape) -> MatmulParams:
    """The schedule of the one kernel of a fusion."""
    (params,) = classified(of, shape).schedules
    assert isinstance(params, MatmulParams)
    return params


@pytest.mark.parametrize("shape", [(160, 1920, 64), (8, 10048, 192)])
def test_an_sm_has_several_ctas_where_sums_are_short(shape: Shape) -> None:
    """Their epilogues lie in their rings; others took 1.17 and 1.15 times as long (H200)."""
    params = chosen(fusion(), shape)
    assert params.resident > 1
    assert (params.split, params.persistent) == ("pipelined", False)
    program = build(fusion(), params, classified(fusion(), shape))
    (launch,) = program.launches
    assert params.resident * (launch.kernel.smem_bytes + 1024) <= SM_90A.smem_bytes + 1024


@pytest.mark.parametrize(
    ("shape", "tile", "splits"),
    [
        ((8192, 8192, 8192), (128, 192, 64), 1),
        ((4096, 4096, 4096), (128, 256, 64), 1),
        ((1024, 1024, 1024), (64, 128, 64), 1),
        ((64, 18944, 3584), (64, 144, 64), 1),  # 132 tiles: one whole wave
        ((512, 512, 16384), (128, 64, 64), 4),
        ((256, 256, 32768), (128, 64, 64), 16),
        ((128, 1536, 7168), (128, 64, 64), 4),
        ((64, 2112, 7168), (64, 64, 64), 4),
    ],
)
def test_the_tile_follows_the_shape(shape: Shape, tile: Shape, splits: int) -> None:
    """Each was among the fastest where it was measured."""
    params = chosen(fusion(), shape)
    assert (params.tile, params.splits) == (tile, splits)


def test_few_rows_of_a_result_are_columns_of_tiles() -> None:
    """272 are two tiles of 136, and three of 128 not: 42 us, of 52 (H100)."""
    params = chosen(fusion(), (272, 7552, 5760))
    assert (params.transpose, params.tile) == (True, (128, 136, 64))
    assert not chosen(fusion(), (8192, 8192, 8192)).transpose
    assert not chosen(fusion(products=2), (272, 7552, 5760)).transpose


@pytest.mark.parametrize(
    ("shape", "persistent"),
    [((1024, 1024, 1024), False), ((64, 18944, 3584), False), ((4096, 4096, 4096), True)],
)
def test_tiles_that_all_run_at_once_are_in_no_loop(shape: Shape, *, persistent: bool) -> None:
    """A CTA takes tiles in turn where there are more of them than SMs."""
    params = chosen(fusion(), shape)
    (m, n, _), (rows, cols, _) = shape, params.tile
    assert params.split == "cooperative"
    assert (-(-m // rows) * -(-n // cols) > SM_90A.sms) == params.persistent == persistent


@pytest.mark.parametrize("shape", [(0, 128, 16384), (128, 0, 16384)])
def test_nothing_to_compute_has_a_schedule(shape: Shape) -> None:
    """No CTA shares a tile where there is none."""
    assert chosen(fusion(), shape).splits == 1


def test_an_epilogue_that_costs_is_hidden_behind_the_other_tile() -> None:
    """Where one is computed for each tile of a wave, and there are several waves."""
    assert chosen(fusion(act="gelu"), (16384, 4096, 1024)).split == "ping_pong"
    assert chosen(fusion(act="relu"), (4096, 4096, 4096)).split == "cooperative"


def test_products_in_one_loop_share_the_columns() -> None:
    """So that their accumulators fit."""
    assert chosen(fusion(products=2), (8192, 14336, 4096)).tile[1] == 96


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8", "f8e4m3"])
@pytest.mark.parametrize("products", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 4096, 64), (300, 200, 4096), (8192, 512, 128)])
def test_whatever_is_chosen_fits(dtype: str, products: int, shape: Shape) -> None:
    """Shared memory and registers, with as many stages as there is room for."""
    of = fusion(dtype, products=products)
    program = build(of, None, classified(of, shape))
    for launch in program.launches:
        assert launch.kernel.smem_bytes <= SM_90A.smem_bytes
        if isinstance(launch.params, MatmulParams):
            assert launch.params.stages >= 2


def statistics() -> Fusion:
    """A layer, and the largest of each row of its result."""
    fd = FusionDefinition()
    y = fd.ops.linear(fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1, -1], "bf16"))
    fd.add_output(y)
    fd.add_output(fd.ops.max(y, [1]))
    return fd.fusion()


def test_results_that_threads_store_keep_no_products_in_flight() -> None:
    """8192 x 10001 x 8192 by ping-pong 2051 us, by 128 x 224 in the other order 1701."""
    of = fusion()
    (segment,) = segments(of)
    odd, even = (best(of, segment.domain, (8192, n, 8192), 40) for n in (10_001, 10_000))
    assert "ping_pong" not in {
        one.kind.split for one in odd if one.takes.us < 1.1 * odd[0].takes.us
    }
    assert "ping_pong" in {one.kind.split for one in even if one.takes.us < 1.02 * even[0].takes.us}


def test_parts_of_reductions_keep_no_products_in_flight() -> None:
    """So two warpgroups in turn are no match for two side by side."""
    shape = (4096, 14336, 4096)
    first, second = classified(statistics(), shape).schedules
    assert isinstance(first, MatmulParams)
    assert first.split == "cooperative"
    assert isinstance(second, PointwiseParams)


@pytest.mark.parametrize(
    ("dtype", "op", "shape", "slots", "ahead"),
    [
        ("f32", "relu", (8192, 512, 4096), 3, 2),
        ("bf16", "relu", (8192, 512, 4096), 4, 2),
        ("bf16", "silu", (8192, 256, 4096), 4, 2),  # there is room for five
        ("bf16", "relu", (1752, 896, 1776), 6, 4),
    ],
)
def test_rings_of_what_is_computed_in_registers(
    dtype: str, op: str, shape: Shape, slots: int, ahead: int
) -> None:
    """Few slots are all loaded ahead but one; of more there are even numbers."""
    m, n, k = shape
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], dtype), fd.define_tensor([-1, -1], "bf16")
    fd.add_output(fd.ops.linear(fd.ops.cast(getattr(fd.ops, op)(x), "bf16"), w))
    specs = {
        x.name: Spec((m, k), (k, 1), 1 << 32, TYPES[dtype]),
        w.name: Spec((n, k), (k, 1), 2 << 32, DType.BF16),
    }
    (params,) = classify(fd.fusion(), None, specs).schedules
    assert isinstance(params, MatmulParams)
    assert (params.stages, params.prefetch) == (slots, ahead)


def weights(dtype: str, op: str) -> Fusion:
    """A layer of weights that go through an operation, from their type."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1, -1], dtype)
    made = fd.ops.cast(w, "bf16") if op == "cast" else getattr(fd.ops, op)(w)
    fd.add_output(fd.ops.linear(x, made))
    return fd.fusion()


@pytest.mark.parametrize(
    ("dtype", "op", "shape", "kernels"),
    [
        ("i8", "cast", (16, 4096, 4096), 1),  # 9.4 us, 21 with the weights stored (H200)
        ("i8", "cast", (64, 28672, 8192), 1),
        ("i8", "cast", (256, 14336, 4096), 1),
        ("i8", "cast", (1392, 1600, 3648), 2),  # each of eight rows of tiles would compute them
        ("bf16", "relu", (32, 8192, 8192), 1),
    ],
)
def test_weights_are_computed_where_they_are_multiplied_by_few_rows(
    dtype: str, op: str, shape: Shape, kernels: int
) -> None:
    """By transposed tiles, of which they have the rows; of many rows a kernel stores them first."""
    found = classified(weights(dtype, op), shape).schedules
    assert len(found) == kernels
    assert isinstance(found[-1], MatmulParams)
    assert kernels > 1 or found[-1].transpose


def test_weights_of_products_that_ctas_share_in_turns_are_stored() -> None:
    """These have no transposed tiles."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1, -1], "i8")
    y = fd.ops.linear(x, fd.ops.cast(w, "bf16"))
    y.request_serial_grid_reduction()
    fd.add_output(y)
    found = classified(fd.fusion(), (16, 512, 4096)).schedules
    assert len(found) == 2
    assert isinstance(found[-1], MatmulParams)
    assert found[-1].splits > 1


def test_few_tiles_of_gated_layers_are_shared() -> None:
    """34 x 576 x 12352: 28.8 us where each tile had one CTA, torch 24.1 (H200)."""
    params = chosen(fusion(products=2), (34, 576, 12352))
    assert params.splits > 1
    assert chosen(fusion(products=2), (8192, 14336, 4096)).splits == 1


def test_what_a_residual_is_added_to_may_be_transposed() -> None:
    """266 x 25280 x 22656 fills 2 tiles of 136 columns; by 3 of 128 rows 723 us, torch 433."""
    row = ended("", (266, 25280, 22656), "residual")
    (params,) = classify(row.fusion(), None, lying(row)).schedules
    assert isinstance(params, MatmulParams)
    assert params.transpose


def test_longer_steps_are_of_tiles_that_all_run_at_once() -> None:
    """4 x 28672 x 8192 117 us, by others 110; 16 x 4096 x 14336 29.7, by short ones 34.9 (H200)."""
    (segment,) = segments(fusion())
    for rows, some in ((28672, False), (4096, True)):
        every = [*candidates(fusion(), segment.domain, (16, rows, 8192))]
        deep = [one for one in every if one.tile[2] > 64]
        assert bool(deep) == some
        assert all(-(-rows // one.tile[0]) <= SM_90A.sms for one in deep if one.transpose)


def test_what_is_computed_is_so_in_longer_steps_by_ctas_that_share_tiles() -> None:
    """A step waits for all that it does; there are registers for what CTAs do that share a tile."""
    of = weights("i8", "cast")
    params = chosen(of, (8, 8192, 8192))
    assert params.tile[2] > 64
    assert params.splits > 1
    (segment,) = segments(of, Choices(registers="either"))
    every = [*candidates(of, segment.domain, (256, 4096, 14336))]
    assert all(one.transpose and one.computes(1, 1) for one in every)
    assert {one.tile[2] for one in every} == {64, 128}


@pytest.mark.parametrize(
    ("products", "shape", "stacked"),
    [
        (1, (8192, 8192, 8192), False),
        (2, (512, 8448, 16384), False),  # two of 128 columns, as fast as one of 256
        (2, (8192, 14336, 4096), True),
        (2, (512, 14336, 4096), True),
        (2, (64, 512, 4096), True),
    ],
)
def test_narrow_products_and_those_in_turn_are_stacked(
    products: int, shape: Shape, *, stacked: bool
) -> None:
    """One wgmma for both, where that was faster."""
    assert chosen(fusion(products=products), shape).stacked == stacked


@pytest.mark.parametrize("shape", [(4096, 4096, 4097), (300, 512, 513), (1000, 1000, 1004)])
def test_engines_copy_operands_whose_rows_lie_anywhere(shape: Shape) -> None:
    """Of large products, which sm_80's instructions take up to four times as long for (H100)."""
    *copies, product = classified(fusion(), shape).schedules
    assert isinstance(product, MatmulParams)
    assert len(copies) == 2


def test_candidates_are_what_is_chosen_from() -> None:
    """The first of them is chosen, none comes twice, and all can be built."""
    of, shape = fusion(), (300, 512, 4096)
    (segment,) = segments(of)
    every = [*candidates(segment.fusion, segment.domain, shape)]
    assert every[0] == chosen(of, shape)
    assert len({*every}) == len(every) > 20
    for params in every[::7]:
        assert build(of, params, classified(of, shape, params)).launches


def test_nothing_is_computed_twice_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shapes alike a choice is remembered: it takes a millisecond."""
    chosen(fusion(), (300, 512, 4096))
    monkeypatch.setattr(choose, "predicted", None)
    assert chosen(fusion(), (300, 512, 4096)).splits >= 1


def _layers(products: int, first: int, second: int) -> Fusion:
    """Layers of one input, of which an operand lies along K (0), or along its rows (1)."""
    fd = FusionDefinition()

    def operand(across: int) -> TensorView:
        tv = fd.define_tensor([-1, -1], "bf16")
        return fd.ops.permute(tv, [1, 0]) if across else tv

    x = operand(first)
    made = [fd.ops.linear(x, operand(second)) for _ in range(products)]
    fd.add_output(fd.ops.mul(*made) if products == 2 else made[0])
    return fd.fusion()


_EXTENTS = st.one_of(st.integers(1, 40), st.integers(1, 512).map(lambda n: 8 * n))


@given(st.sampled_from((1, 2)), st.integers(0, 1), st.integers(0, 1), st.tuples(*(_EXTENTS,) * 3))
def test_every_layout_has_a_default(products: int, first: int, second: int, shape: Shape) -> None:
    """Columns of tiles suit a swizzle where they lie along rows: of 24 there is none."""
    of, (m, n, k) = _layers(products, first, second), shape
    forms = [(k, m) if first else (m, k), *((k, n) if second else (n, k),) * products]
    specs = {
        tv.name: Spec(form, (form[1], 1), at << 32, DType.BF16)
        for at, (tv, form) in enumerate(zip(of.inputs, forms, strict=True))
    }
    assert build(of, None, classify(of, None, specs)).launches


def test_products_in_turns_have_columns_that_suit_a_swizzle() -> None:
    """Of 128 columns three would have 40, but B lies along its columns: found by a night."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    made = [fd.ops.matmul(x, fd.define_tensor([-1, -1], "bf16")) for _ in range(3)]
    made[0].request_serial_grid_reduction("vectorized")
    fd.add_output(fd.ops.add(fd.ops.add(made[0], made[1]), made[2]))
    of = fd.fusion()
    m, n, k = 12512, 640, 5760
    specs = {
        tv.name: Spec((k, n) if at else (m, k), (n if at else k, 1), at << 32, DType.BF16)
        for at, tv in enumerate(of.inputs)
    }
    (launch,) = build(of, None, classify(of, None, specs)).launches
    assert isinstance(launch.params, MatmulParams)
    assert launch.params.splits > 1
    assert launch.params.tile[1] % 16 == 0


@pytest.mark.parametrize(
    ("across", "apart", "many", "before"),
    [
        (False, False, 17, 0),
        (False, False, 33, 9),
        (False, True, 12, 0),
        (False, True, 16, 4),
        (True, False, 16, 0),
        (True, False, 17, 5),
        (True, True, 11, 0),
        (True, True, 12, 3),
    ],
)
def test_sums_of_many_products_have_a_default(
    many: int, before: int, *, across: bool, apart: bool
) -> None:
    """Where no tile has columns, or shared memory, for all, a quarter is stored before."""
    fd, total = FusionDefinition(), None
    m, n, k = 512, 640, 768
    x = fd.define_tensor([-1, -1], "bf16")
    for _ in range(many):
        a = fd.define_tensor([-1, -1], "bf16") if apart else x
        b = fd.define_tensor([-1, -1], "bf16")
        one = fd.ops.matmul(a, b) if across else fd.ops.linear(a, b)
        total = one if total is None else fd.ops.add(total, one)
    assert total is not None
    fd.add_output(total)
    of = fd.fusion()
    first = {x, *(tv.args[0] for tv in of.tensors if tv.op == "mma")}
    specs = {}
    for at, tv in enumerate(of.inputs):
        form = (m, k) if tv in first else (k, n) if across else (n, k)
        specs[tv.name] = Spec(form, (form[1], 1), at << 32, DType.BF16)
    assert len(build(of, None, classify(of, None, specs)).launches) == before + 1


@given(
    st.integers(1, 3), st.booleans(), st.sampled_from(["i32", "bf16"]), st.tuples(*[_EXTENTS] * 3)
)
def test_integers_have_a_default(many: int, turns: bool, made: str, shape: Shape) -> None:
    """Columns of a wgmma of i8 are a multiple of 16, also of transposed tiles and of several."""
    fd, (m, n, k) = FusionDefinition(), shape
    x, results = fd.define_tensor([-1, -1], "i8"), []
    for _ in range(many):
        w = fd.define_tensor([-1, -1], "i8")
        how = [[0, -1, 1], [-1, 0, 1]]
        results.append(fd.ops.fused_multiply_sum(x, w, axes=[2], axis_mapping=how, dtype="i32"))
    if turns:
        results[0].request_serial_grid_reduction("vectorized")
    total = results[0]
    for one in results[1:]:
        total = fd.ops.add(total, one)
    fd.add_output(fd.ops.cast(total, made))
    of = fd.fusion()
    specs = {
        tv.name: Spec((n if at else m, k), (k, 1), at << 32, DType.I8)
        for at, tv in enumerate(of.inputs)
    }
    assert build(of, None, classify(of, None, specs)).launches
