"""From a call to the integers of a launch: every promise is checked, in the documented form."""

from dataclasses import replace

import product_kernels
import pytest
from fusions import DIRECT, PIPELINED, bias_relu, bias_specs, compiled, row_major
from hypothesis import given, settings
from sample import often

from fuser.dtype import DType
from fuser.errors import FusionError, ScheduleError
from fuser.expr import Var
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.kernel.tensor_map import maps_of
from fuser.pipeline import build
from fuser.runtime.binding import bind
from fuser.runtime.call import Spec, extents_of
from fuser.runtime.classify import classify
from fuser.schedule.params import Meet, PointwiseParams, Residency
from fuzz.cases.case import Case
from fuzz.cases.case import specs as case_specs
from fuzz.cases.strategies import cases


def unary(shape: list[int], dtype: str = "bf16", **kwargs: list[bool] | list[int]) -> Fusion:
    """Relu of one input of that form."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=shape, dtype=dtype, **kwargs)  # type: ignore[arg-type] # as the user's
    fd.add_output(fd.ops.relu(x))
    return fd.fusion()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("T0", {"dtype": DType.F32}, r"call\(T0\): got f32, the fusion says bf16; cast the tensor"),
        ("T0", {"shape": (10,), "strides": (1,)}, r"call\(T0\): got 1 axes .* says 2; reshape"),
        ("T1", {"shape": (9, 256)}, r"call\(T1\): axis 0 has 9 elements, but i0 is 10 as given"),
        ("T2", {"shape": (255,)}, r"call\(T2\): axis 0 has 255 elements, but i1 is 256"),
        ("T0", {"strides": (512, 2)}, r"call\(T0\): axis 1 has stride 2, .* promises 1"),
        ("T0", {"strides": (300, 1)}, r"axis 0 has stride 300, .* promises 256 .*contiguous\(\)"),
        ("T0", {"strides": (1, 10)}, r"axis 1 has stride 10, the fusion promises 1"),
    ],
)
def test_broken_promises(name: str, change: dict[str, object], message: str) -> None:
    """Shapes, dtypes and strides that the definition excludes."""
    specs = bias_specs()
    specs[name] = replace(specs[name], **change)  # type: ignore[arg-type] # fields by name
    program = compiled(DIRECT)
    with pytest.raises(FusionError, match=message):
        bind(program, specs, sms=132)


def test_pinned_extents_are_checked() -> None:
    """A number in the definition is a promise."""
    fusion = unary([4, -1])
    with pytest.raises(FusionError, match="axis 0 has 5 elements, the fusion says 4; .* with -1"):
        extents_of(fusion, {"T0": row_major((5, 8), DType.BF16)})


def test_extents_past_32_bits_are_refused() -> None:
    """Coordinates are signed 32-bit numbers; a second row of the tile is the way out."""
    fusion = unary([-1, -1])
    specs = {"T0": row_major((1 << 16, 1 << 16), DType.BF16)}
    one_row = PointwiseParams((1, 2048), 8, 4, None, "direct", "direct")
    with pytest.raises(ScheduleError, match="4294967296 elements, .* use a tile of 2 or more rows"):
        bind(compiled(one_row, fusion, specs), specs, sms=132)
    rows = PointwiseParams((4, 512), 8, 4, None, "direct", "direct")
    (binding,) = bind(compiled(rows, fusion, specs), specs, sms=132)
    assert binding.params["n0"] * binding.params["n1"] == 1 << 32


@pytest.mark.parametrize(
    ("shape", "strides", "address", "aligned", "tma"),
    [
        ((10, 256), (256, 1), 1024, 8, True),
        ((10, 256), (256, 1), 1026, 1, False),
        ((10, 252), (252, 1), 1024, 4, False),
        ((10, 251), (251, 1), 1024, 1, False),
        ((1, 251), (251, 1), 1024, 8, True),
        ((10, 251), (256, 1), 1024, 8, True),
        ((10, 256), (264, 1), 1024, 8, True),
        ((10, 256), (260, 1), 1024, 4, False),
    ],
)
def test_alignment_classes(
    shape: tuple[int, ...], strides: tuple[int, ...], address: int, aligned: int, tma: bool
) -> None:
    """Address and row pitch decide the width of accesses and TMA; rows may end anywhere."""
    fusion = unary([-1, -1], contiguity=[False, True])
    spec = Spec(shape, strides, address, DType.BF16)
    (shapes,) = classify(fusion, PIPELINED, {"T0": spec}).kernels
    assert shapes.elements("T0") == aligned
    assert ("T0" in shapes.tma) is tma
    assert ("T0" in shapes.ragged) is (aligned > 1 and shape[-1] % aligned > 0)


@pytest.mark.parametrize("params", [None, PIPELINED], ids=["flat", "rows"])
@pytest.mark.parametrize(("step", "far"), [(2**31 - 1, False), (2**31, True)])
def test_strides_that_fit_no_int_are_far(
    step: int, far: bool, params: PointwiseParams | None
) -> None:
    """Their kernels take strides of 64 bits, all others of 32."""
    fusion = unary([-1, -1], contiguity=[False, True])
    spec = Spec((3, 8), (step, 1), 1024, DType.BF16)
    (shapes,) = classify(fusion, params, {"T0": spec}).kernels
    assert ("T0" in shapes.far) is far
    assert "T1" not in shapes.far


@pytest.mark.parametrize("shape", [(0, 256), (10, 0)])
def test_nothing_to_compute_is_no_launch(shape: tuple[int, int]) -> None:
    """Extents of 0 give a grid of 0."""
    specs = bias_specs(*shape)
    (binding,) = bind(compiled(DIRECT, specs=specs), specs, sms=132)
    assert binding.grid == 0


def test_persistent_grids_are_no_larger_than_the_work() -> None:
    """2 CTAs per SM, but only 6 tiles."""
    specs = bias_specs(10, 256)
    (binding,) = bind(compiled(PIPELINED), specs, sms=132)
    assert binding.grid == 6
    (large,) = bind(compiled(PIPELINED), bias_specs(10_000, 256), sms=132)
    assert large.grid == 264


def test_one_axis_is_seen_as_rows_of_the_tile() -> None:
    """A multiple of the columns becomes rows and columns, anything else one row."""
    fusion = unary([-1])
    for n, extents in ((1280, (10, 128)), (1281, (1, 1281))):
        specs = {"T0": row_major((n,), DType.BF16)}
        (binding,) = bind(compiled(PIPELINED, fusion, specs), specs, sms=132)
        assert (binding.params["n0"], binding.params["n1"]) == extents


def test_strides_of_axes_of_one_element_do_not_matter() -> None:
    """Torch leaves them arbitrary."""
    fusion = bias_relu()
    specs = bias_specs(1, 256)
    specs["T0"] = replace(specs["T0"], strides=(12345, 1))
    program = compiled(DIRECT, fusion, specs)
    (binding,) = bind(program, specs, sms=132)
    assert binding.params["T0_s0"] % 16 == 0


def test_every_kernel_has_a_class_of_its_own() -> None:
    """One tensor in two kernels: rows of 8 for one, merged with its outer axis for the other."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, 3, 8], dtype="bf16")
    flags = fd.define_tensor(shape=[-1, 1, 8], dtype="bool")
    fd.add_output(fd.ops.where(flags, x, 0.0))
    fd.add_output(fd.ops.logical_not(flags))
    fusion = fd.fusion()
    specs = {
        "T0": row_major((64, 3, 8), DType.BF16),
        "T1": Spec((64, 1, 8), (8, 8, 1), 1024, DType.BOOL),
    }
    first, second = classify(fusion, DIRECT, specs).kernels
    assert (first.elements("T1"), second.elements("T1")) == (8, 16)


@settings(max_examples=often(150, 32))
@given(cases())
def test_bindings_keep_what_the_kernel_relies_on(case: Case) -> None:
    """`Tensor.aligned` and the strides of copied tensors, for every kernel of every case."""
    given = case_specs(case)
    try:
        program = build(case.fusion, case.params, classify(case.fusion, case.params, given))
    except ScheduleError:
        return
    for binding in bind(program, given, sms=2):
        copied = {m.tensor.name for m in maps_of(binding.launch.kernel)}
        for tensor in binding.launch.kernel.tensors:
            extents, strides = binding.view(tensor.name)
            if tensor.name in binding.launch.kernel.workspaces:
                *pitches, last = strides
                assert last == (1 if tensor.extents[-1] != 1 else 0)
                assert all(n % tensor.aligned == 0 for n in (*pitches, extents[-1]))
                continue
            steps = [s for e, s in zip(tensor.strides, strides, strict=True) if e != 1]
            assert all(s % tensor.aligned == 0 for s in steps)
            whole = extents[-1] % tensor.aligned == 0
            assert tensor.extents[-1] == 1 or whole != tensor.ragged
            if tensor.name in copied:
                walked = zip(extents[:-1], strides[:-1], strict=True)
                assert all(s * tensor.dtype.nbytes % 16 == 0 for n, s in walked if n > 1)


def test_ctas_that_meet_are_as_many_as_the_kernel_says() -> None:
    """The number is part of the class of a call: fewer where K is short, or the device small."""
    params = replace(
        product_kernels.PIPELINED, splits=8, meet="scatter", columns=8, residency="co-resident"
    )
    fusion = product_kernels.linear()
    calls = ((4096, 64, 132, 8), (200, 64, 132, 4), (4096, 1280, 132, 6), (4096, 64, 3, 3))
    for k, rows, sms, splits in calls:
        given = product_kernels.specs(fusion, {"i0": rows, "i1": k, "i2": 32})
        program = build(fusion, params, classify(fusion, params, given, sms=sms))
        (binding,) = bind(program, given, sms=sms)
        (launch,) = program.launches
        assert launch.params == replace(params, splits=splits)
        assert Var("splits") not in launch.kernel.params
        assert binding.grid == -(-rows // 64) * splits


@pytest.mark.parametrize(
    ("splits", "k", "bound"), [(2, 64, 1), (2, 65, 2), (8, 1000, 8), (64, 200, 4)]
)
def test_no_cta_of_a_tile_has_nothing_to_do(splits: int, k: int, bound: int) -> None:
    """As many share a tile as K has steps of 64, at most."""
    program = product_kernels.compiled(
        product_kernels.linear(), replace(product_kernels.PIPELINED, splits=splits)
    )
    given = product_kernels.specs(program.fusion, {"i0": 130, "i1": -(-k // 8) * 8, "i2": 40})
    (binding,) = bind(program, given, sms=132)
    assert binding.params["splits"] == bound
    assert binding.grid == 3 * 2 * bound


@pytest.mark.parametrize(
    ("meet", "residency", "splits", "sms", "bound", "groups"),
    [
        ("vectorized", "ticket", 4, 132, 4, 12),
        ("vectorized", "ticket", 4, 26, 4, 6),
        ("tma", "ticket", 64, 26, 16, 1),
        ("scatter", "ticket", 5, 26, 5, 5),
        ("scatter", "co-resident", 16, 10, 10, 1),
        ("vectorized", "co-resident", 16, 26, 16, 1),
        ("vectorized", "co-resident", 32, 10, 10, 1),
    ],
)
def test_groups_of_ctas_that_walk_fit_the_device(
    meet: Meet, residency: Residency, splits: int, sms: int, bound: int, groups: int
) -> None:
    """The grid is a multiple of the CTAs of a group: one group at least, and at most all tiles."""
    params = replace(
        product_kernels.PIPELINED, persistent=True, splits=splits, meet=meet, residency=residency
    )
    fusion = product_kernels.linear()
    given = product_kernels.specs(fusion, {"i0": 200, "i1": 1000, "i2": 96})
    program = build(fusion, params, classify(fusion, params, given, sms=sms))
    (binding,) = bind(program, given, sms=sms)
    assert binding.params["groups"] == groups
    assert binding.grid == groups * bound
