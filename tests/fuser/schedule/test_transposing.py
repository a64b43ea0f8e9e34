"""Kernels whose tensors lie in different orders: which two axes a tile covers, and when."""

from __future__ import annotations

from itertools import permutations

import judged
import pytest
from fusions import row_major

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.schedule.domain import Domain, domains
from fuser.schedule.params import PointwiseParams
from fuser.schedule.pointwise import default_transposing, tiling
from fuzz.cases.case import Case, by_default, specs

PLAIN = PointwiseParams((16, 32), 4, 4, None, "direct", "direct", transpose=True)


def moved(order: tuple[int, ...], dtype: str = "bf16", *, beside: bool = False) -> Fusion:
    """Permute an input, and add one that lies as the result does."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1] * len(order), dtype=dtype)
    turned = fd.ops.permute(x, list(order))
    if beside:
        turned = fd.ops.add(turned, fd.define_tensor(shape=[-1] * len(order), dtype=dtype))
    fd.add_output(fd.ops.set(turned))
    return fd.fusion()


def domain(fusion: Fusion) -> Domain:
    """The one kernel of a fusion."""
    (found,) = domains(fusion)
    return found


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_tile_covers_the_fastest_axes_of_both_orders(order: tuple[int, ...]) -> None:
    """Columns are neighbours in the result, rows in the input; whatever else there is comes first.

    Axes that are neighbours in both are one.
    """
    tiles = tiling(domain(moved(order)), PLAIN)
    (read,), (write,) = tiles.domain.reads, tiles.domain.writes
    assert tiles.unit(write, tiles.rank - 1)
    assert not tiles.turned(write)
    assert tiles.turned(read) is (order[-1] != 2)
    if tiles.turned(read):
        assert tiles.unit(read, tiles.rank - 2)
        assert tiles.axes(read)[-2:] == (tiles.rank - 1, tiles.rank - 2)
        assert tiles.tma_shape(read)[-2:] == (32, 16)
        assert tiles.tma_refusal(read) is None
    assert tiles.tile[:-2] == (1,) * (tiles.rank - 2)


def test_only_params_that_ask_for_it_see_other_axes() -> None:
    """Other schedules, and what they print, are as they were."""
    plain = PointwiseParams((16, 32), 4, 4, None, "direct", "direct")
    tiles = tiling(domain(moved((2, 1, 0))), plain)
    assert tiles.groups == ((0,), (1,), (2,))
    assert not any(tiles.turned(access) for access in tiles.domain.reads)


def test_results_of_different_orders_share_a_kernel() -> None:
    """One of them is put across its slot and got along."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=[-1, -1], dtype="f32") for _ in range(2))
    both = fd.ops.add(x, y)
    fd.add_output(both)
    fd.add_output(fd.ops.permute(both, [1, 0]))
    tiles = tiling(domain(fd.fusion()), PLAIN)
    assert [tiles.turned(access) for access in tiles.domain.writes] == [False, True]
    assert not any(tiles.turned(access) for access in tiles.domain.reads)


def test_the_order_of_the_most_bytes_is_read_as_it_lies() -> None:
    """The rest goes through shared memory: here the result, half as wide."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1], dtype="f32")
    fd.add_output(fd.ops.cast(fd.ops.permute(x, [1, 0]), "bf16"))
    tiles = tiling(domain(fd.fusion()), PLAIN)
    assert not tiles.turned(tiles.domain.reads[0])
    assert tiles.turned(tiles.domain.writes[0])


def test_vectors_divide_rows_and_columns() -> None:
    """A transposed tile is dealt by vectors along either."""
    with pytest.raises(ScheduleError, match="4 does not divide 6 rows; use 8 rows"):
        PointwiseParams((6, 32), 4, 4, None, "direct", "direct", transpose=True)


@pytest.mark.parametrize(
    ("dtype", "tile", "vector"),
    [("bf16", (64, 64), 8), ("f32", (64, 64), 4), ("f64", (32, 32), 2), ("i8", (64, 64), 8)],
)
def test_the_default_tile_has_lines_either_way(
    dtype: str, tile: tuple[int, int], vector: int
) -> None:
    """Of up to 256 bytes, and four vectors a thread."""
    params = default_transposing(domain(moved((1, 0), dtype)), (4096, 4096), by_tma=True)
    assert params is not None
    assert (params.tile, params.vector) == (tile, vector)
    assert tile[0] * tile[1] == 4 * vector * 32 * params.warps


@pytest.mark.parametrize(
    ("order", "shape"), [((1, 0), (8, 4096)), ((1, 0), (4096, 1)), ((1, 0, 2), (64, 64, 64))]
)
def test_short_axes_and_one_order_are_not_transposed(
    order: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """There nothing is gained by it."""
    assert default_transposing(domain(moved(order)), shape, by_tma=True) is None


def test_small_tensors_have_small_tiles() -> None:
    """So that most SMs have one."""
    params = default_transposing(domain(moved((1, 0))), (512, 512), by_tma=False)
    assert params is not None
    assert 512 * 512 // (params.tile[0] * params.tile[1]) >= 128


@pytest.mark.parametrize(
    ("rows", "cols", "load", "vector"),
    [
        (2048, 2048, "tma", 8),
        (512, 1024, "direct", 8),
        (2001, 2048, "direct", 8),
        (2048, 2001, "direct", 1),
        (333, 501, "direct", 1),
    ],
)
def test_rows_decide_between_tma_and_threads(rows: int, cols: int, load: str, vector: int) -> None:
    """TMA wants rows of multiples of 16 bytes, and enough tiles of whole lines.

    Vectors are as wide as the straight rows allow; without them a thread has 16 elements at most.
    """
    fusion = moved((1, 0), beside=True)
    first, second = (tv.name for tv in fusion.inputs)
    specs = {
        first: row_major((cols, rows), DType.BF16),
        second: Spec((rows, cols), (cols, 1), 1 << 32, DType.BF16),
    }
    program = build(fusion, None, classify(fusion, None, specs))
    params = program.launches[0].params
    assert isinstance(params, PointwiseParams)
    assert (params.transpose, params.load, params.vector) == (True, load, vector)
    assert params.tile[0] * params.tile[1] <= max(8 * vector, 16) * 32 * params.warps


def test_vectors_that_tma_cannot_move_are_loaded_directly() -> None:
    """A kernel that stretches vectors only, along the axis that TMA asks for in none of them."""
    fd = FusionDefinition()
    rows = fd.define_tensor(shape=["m", 1], dtype="bf16")
    cols = fd.define_tensor(shape=[1, "m"], dtype="bf16")
    fd.add_output(fd.ops.expand(rows, ["m", 4096]))
    fd.add_output(fd.ops.expand(cols, [4096, "m"]))
    case = Case(fd.fusion(), PLAIN, {"m": 4096}, "integers", seed=0)
    assert all(launch.params.load == "direct" for launch in by_default(case).launches)


@pytest.mark.parametrize(("dtype", "warps"), [("bf16", 4), ("f16", 4), ("f32", 8), ("i32", 8)])
def test_rows_that_begin_anywhere_have_a_tile_as_measured(dtype: str, warps: int) -> None:
    """32 x 64 elements, of which a thread loads 32 bytes, and 16 elements at most."""
    fusion = moved((1, 0), dtype, beside=True)
    names = [str(axis.extent) for axis in fusion.outputs[0].logical]
    case = Case(fusion, PLAIN, dict(zip(names, (8191, 8191), strict=True)), "integers", seed=0)
    (params,) = classify(fusion, None, specs(case)).schedules
    assert isinstance(params, PointwiseParams)
    assert (params.tile, params.vector, params.warps) == ((32, 64), 1, warps)


@pytest.mark.parametrize(
    ("large", "small"),
    [((2048, 2048), (72, 136)), ((512, 512), (40, 72)), ((2001, 2003), (37, 41))],
)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_defaults_are_right_at_other_sizes_too(
    dtype: str, large: tuple[int, int], small: tuple[int, int]
) -> None:
    """The schedule of one call, by TMA, by vectors and by elements, with tails of another one."""
    fusion = moved((1, 0), dtype, beside=True)
    names = [str(axis.extent) for axis in fusion.outputs[0].logical]
    asked = Case(fusion, PLAIN, dict(zip(names, large, strict=True)), "integers", seed=0)
    (params,) = classify(fusion, None, specs(asked)).schedules
    called = Case(fusion, params, dict(zip(names, small, strict=True)), "integers", seed=1)
    records = judged.records(called)
    assert {record.status for record in records} == {"pass"}


@pytest.mark.parametrize(("many", "dtype"), [(8, "f64"), (16, "bf16"), (30, "f64")])
def test_many_transposed_tensors_have_a_default(many: int, dtype: str) -> None:
    """Threads have registers for all that they load, and tiles shared memory."""
    fd = FusionDefinition()
    for _ in range(many):
        x = fd.define_tensor(shape=["i0", "i1"], dtype=dtype)
        fd.add_output(fd.ops.permute(fd.ops.relu(x), [1, 0]))
    plain = PointwiseParams((1, 128), 1, 4, None, "direct", "direct")
    case = Case(fd.fusion(), plain, {"i0": 256, "i1": 512}, "reals", 0)
    assert by_default(case).launches


@pytest.mark.parametrize("many", [20, 40])
@pytest.mark.parametrize("shape", [(4096, 4096), (4099, 6001)])
def test_one_result_of_many_transposed_tensors_has_a_default(
    many: int, shape: tuple[int, int]
) -> None:
    """Tiles are smaller where a thread has two elements: a CTA has 16 warps at most."""
    fd, total = FusionDefinition(), None
    for _ in range(many):
        x = fd.ops.permute(fd.define_tensor(shape=["i0", "i1"], dtype="bf16"), [1, 0])
        total = x if total is None else fd.ops.add(total, x)
    assert total is not None
    fd.add_output(fd.ops.neg(total))
    fd.add_output(total)
    case = Case(fd.fusion(), PLAIN, dict(zip(("i0", "i1"), shape, strict=True)), "reals", 0)
    assert by_default(case).launches
