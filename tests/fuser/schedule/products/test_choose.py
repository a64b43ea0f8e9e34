"""What is chosen where the user names no schedule."""

from __future__ import annotations

import pytest

from fuser.arch import SM_90A
from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams
from fuser.schedule.shape_class import CallClass

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


def classified(of: Fusion, shape: Shape) -> CallClass:
    """The class of a call with dense tensors."""
    m, n, k = shape
    specs = {}
    for at, tv in enumerate(of.inputs):
        rows = n if at else m
        specs[tv.name] = Spec((rows, k), (k, 1), at << 32, TYPES[tv.dtype.name])
    return classify(of, None, specs)


def chosen(of: Fusion, shape: Shape) -> MatmulParams:
    """The schedule of the one kernel of a fusion."""
    (params,) = classified(of, shape).schedules
    assert isinstance(params, MatmulParams)
    return params


@pytest.mark.parametrize(
    ("shape", "act", "resident"),
    [
        ((2048, 2048, 2048), "", 2),  # 256 tiles of 128 x 128
        ((792, 4664, 320), "relu", 2),  # 259
        ((2048, 2048, 2048), "gelu_tanh", 2),
        ((1936, 1216, 896), "gelu_tanh", 2),  # 160: less to compute for each thread
        ((1224, 1944, 1792), "", 1),  # 160: some SMs have one alone
        ((2048, 4096, 1024), "", 1),  # 512
    ],
)
def test_tiles_run_in_pairs_where_all_run_at_once(shape: Shape, act: str, resident: int) -> None:
    """Two CTAs an SM fit, as results are staged in the rings."""
    params = chosen(fusion(act=act), shape)
    assert params.resident == resident
    if resident == 2:
        assert (params.split, params.persistent, params.stages) == ("pipelined", False, 3)
        program = build(fusion(act=act), params, classified(fusion(act=act), shape))
        (launch,) = program.launches
        assert 2 * (launch.kernel.smem_bytes + 1024) <= SM_90A.smem_bytes + 1024


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((8192, 8192, 8192), (128, 192, 64)),  # many waves: the fastest tile
        ((4096, 4096, 4096), (128, 256, 64)),  # four waves of it against five
        ((512, 28672, 8192), (64, 256, 64)),  # few rows
        ((1024, 1024, 1024), (64, 128, 64)),  # a tile for each SM
        ((128, 7168, 16384), (64, 128, 64)),
        ((64, 18944, 3584), (64, 144, 64)),  # one of 132 for each SM
    ],
)
def test_the_tile_follows_the_shape(shape: Shape, tile: Shape) -> None:
    """Those of the benchmark table, as measured there."""
    assert chosen(fusion(), shape).tile == tile


@pytest.mark.parametrize("shape", [(0, 128, 16384), (128, 0, 16384)])
def test_nothing_to_compute_has_a_schedule(shape: Shape) -> None:
    """No CTA shares a tile where there is none."""
    assert chosen(fusion(), shape).splits == 1


def test_an_epilogue_that_costs_is_hidden_behind_the_other_tile() -> None:
    """Where one is computed for each tile of a wave, and there are several waves."""
    assert chosen(fusion(act="gelu"), (8192, 4096, 4096)).split == "ping_pong"
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


def test_parts_of_reductions_keep_no_products_in_flight() -> None:
    """So two warpgroups in turn are no match for two side by side."""
    shape = (4096, 14336, 4096)
    first, second = classified(statistics(), shape).schedules
    assert isinstance(first, MatmulParams)
    assert first.split == "cooperative"
    assert chosen(fusion(), shape).split == "ping_pong"
    assert isinstance(second, PointwiseParams)


@pytest.mark.parametrize(
    ("products", "shape", "stacked"),
    [
        (1, (8192, 8192, 8192), False),
        (2, (128, 14336, 4096), False),  # two of 128 columns, as fast as one of 256
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


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((9, 2137, 2395), (16, 32, 64)),
        ((30, 2137, 23953), (32, 64, 64)),
        ((64, 512, 513), (64, 64, 64)),
        ((113, 17675, 6313), (128, 128, 32)),
        ((9, 64, 1 << 17 | 1), (16, 32, 64)),
    ],
)
def test_threads_load_odd_rows_of_small_products(shape: Shape, tile: Shape) -> None:
    """No kernel copies operands first; CTAs share tiles where few would run."""
    shapes = classified(fusion(), shape)
    (params,) = shapes.schedules
    assert isinstance(params, AmpereParams)
    assert (params.observe, params.tile) == ("threads", tile)
    assert (params.splits > 1) == (shape[1] * shape[0] < 1 << 18 and shape[2] > 2048)
    assert build(fusion(), None, shapes).launches


@pytest.mark.parametrize("shape", [(4096, 4096, 4097), (300, 512, 513), (64, 512, 512)])
def test_engines_copy_what_is_multiplied_often_or_lies_well(shape: Shape) -> None:
    """Of many rows a copy costs little, and wgmma multiplies twice as much a second."""
    assert isinstance(classified(fusion(), shape).schedules[-1], MatmulParams)
