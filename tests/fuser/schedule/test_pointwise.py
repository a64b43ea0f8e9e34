"""From params to the axes of a kernel, and the default heuristic."""

import judged
import pytest
from fusions import DIRECT, bias_relu, row_major

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.runtime.classify import classify
from fuser.schedule.domain import Domain, domains
from fuser.schedule.params import PointwiseParams
from fuser.schedule.pointwise import default_direct, default_params, tiling
from fuser.schedule.segment import segments
from fuzz.cases.case import Case, specs


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


def test_narrow_rows_fill_tiles() -> None:
    """The two numbers of a byte are a row of two."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.unpack(fd.define_tensor([4096, 512], "i8")))
    (segment,) = segments(fd.fusion())
    params = default_direct(segment.domain, [4096, 512, 2])
    assert (params.tile[1], params.vector) == (2, 2)


def test_a_bias_does_not_vary_along_rows() -> None:
    """Its tile is one row."""
    tiles = tiling(domains(bias_relu())[0], DIRECT)
    bias = next(a for a in tiles.domain.reads if a.tv.rank == 1)
    assert tiles.tma_shape(bias) == (1, 128)
    assert row_major((3, 4), DType.F32).strides == (4, 1)


def sums(*inputs: tuple[tuple[str, ...], str]) -> Fusion:
    """Add up inputs of these axes and types; a missing one stretches."""
    fd = FusionDefinition()
    made = None
    for axes, dtype in inputs:
        shape = [name if name in axes else 1 for name in ("R", "C")]
        x = fd.ops.cast(fd.define_tensor(shape=shape, dtype=dtype), "f32")
        made = x if made is None else fd.ops.add(made, x)
    assert made is not None
    fd.add_output(fd.ops.cast(made, inputs[0][1]))
    return fd.fusion()


WHOLE, ROW, COLUMN = ("R", "C"), ("C",), ("R",)
EQUAL = sums((WHOLE, "bf16"), (ROW, "bf16"), (WHOLE, "bf16"))
MIXED = sums((WHOLE, "bf16"), (WHOLE, "f32"))
BROAD = sums((WHOLE, "bf16"), (COLUMN, "f32"))


@pytest.mark.parametrize(
    ("fusion", "sizes", "tile", "vector"),
    [
        (EQUAL, (8192, 8192), (1, 2048), 8),
        (EQUAL, (1000, 1000), (1, 1024), 8),
        (EQUAL, (10, 1000), (1, 256), 2),
        (EQUAL, (8191, 8191), (1, 2048), 8),
        (MIXED, (8192, 8192), (1, 1024), 4),
        (BROAD, (8192, 8192), (1, 2048), 8),
        (BROAD, (1 << 17, 512), (4, 512), 8),
    ],
)
def test_the_widest_whole_tensor_and_the_size_decide(
    fusion: Fusion, sizes: tuple[int, int], tile: tuple[int, int], vector: int
) -> None:
    """16 bytes of it; two vectors a thread where there are enough, fewer and narrower for less."""
    params = default_direct(domains(fusion)[0], sizes)
    assert (params.tile, params.vector) == (tile, vector)


@pytest.mark.parametrize("small", [(3, 40), (5, 293), (9, 2056)])
@pytest.mark.parametrize("large", [(4096, 4096), (4001, 4003), (64, 16)])
@pytest.mark.parametrize("fusion", [EQUAL, MIXED, BROAD], ids=["equal", "mixed", "broad"])
def test_defaults_are_right_at_other_sizes_too(
    fusion: Fusion, large: tuple[int, int], small: tuple[int, int]
) -> None:
    """The schedule of one call is proved, and run, with tails of another one."""
    asked = Case(fusion, DIRECT, dict(zip("RC", large, strict=True)), "integers", seed=0)
    (params,) = classify(fusion, None, specs(asked)).schedules
    called = Case(fusion, params, dict(zip("RC", small, strict=True)), "integers", seed=1)
    records = judged.records(called)
    assert {record.status for record in records} == {"pass"}
