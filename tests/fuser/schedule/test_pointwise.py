"""From params to the axes of a kernel, and the default heuristic."""

import pytest
from fusions import DIRECT, bias_relu, row_major

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.schedule.domain import Domain, domains
from fuser.schedule.params import PointwiseParams
from fuser.schedule.pointwise import default_params, tiling


def flat(dtype: str = "bf16") -> Domain:
    """One merged axis."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.neg(fd.define_tensor(shape=[-1, -1], dtype=dtype)))
    return domains(fd.fusion())[0]


def test_one_axis_and_one_row_stay_one_axis() -> None:
    """No division per tile where none is needed."""
    params = PointwiseParams((1, 2048), 8, 4, None, "direct", "direct")
    assert tiling(flat(), params).tile == (2048,)


def test_one_axis_and_many_rows_are_split() -> None:
    """TMA boxes have at most 256 columns, so long axes become rows."""
    tiles = tiling(flat(), DIRECT)
    assert (tiles.split, tiles.tile) == (True, (4, 128))


def test_outer_axes_have_tiles_of_one() -> None:
    """Only the last two axes are tiled."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, -1, -1], dtype="bf16", contiguity=[False, False, True])
    fd.add_output(fd.ops.neg(x))
    assert tiling(domains(fd.fusion())[0], DIRECT).tile == (1, 4, 128)


@pytest.mark.parametrize(("dtype", "vector"), [("f64", 2), ("f32", 4), ("bf16", 8), ("bool", 8)])
def test_default_vectors_are_16_bytes_of_the_narrowest_type(dtype: str, vector: int) -> None:
    """At most 8 elements: wider types then take two accesses."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.set(fd.define_tensor(shape=[-1], dtype=dtype)))
    params = default_params(fd.fusion())
    assert params.vector == vector
    assert params.family == "direct/direct"


@pytest.mark.parametrize(
    ("cols", "dtype", "reason"),
    [
        (4, "bf16", "a row of the tile is 8 bytes"),
        (8, "bf16", "a tile of T0 is 64 bytes, slots for TMA are multiples of 128"),
    ],
)
def test_tma_refusals_say_the_bytes(cols: int, dtype: str, reason: str) -> None:
    """Rows of 16-byte multiples, slots of 128-byte multiples."""
    params = PointwiseParams((4, cols), 1, 1, None, "tma", "direct")
    tiles = tiling(flat(dtype), params)
    refusal = tiles.tma_refusal(tiles.domain.reads[0])
    assert refusal is not None
    assert reason in refusal


def test_a_bias_does_not_vary_along_rows() -> None:
    """Its tile is one row."""
    tiles = tiling(domains(bias_relu())[0], DIRECT)
    bias = next(a for a in tiles.domain.reads if a.tv.rank == 1)
    assert tiles.tma_shape(bias) == (1, 128)
    assert row_major((3, 4), DType.F32).strides == (4, 1)
