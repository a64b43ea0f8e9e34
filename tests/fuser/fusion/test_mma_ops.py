"""Products: torch's shapes and types, two spellings of one thing, and everything they refuse."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fuser.errors import FusionError
from fuser.fusion.definition import Fusion, FusionDefinition, IterType, TensorView, call, to_python
from fuser.fusion.mma_axes import AxisRole, roles

SHAPES = [
    *((4,), (1,), (3, 4), (4, 5), (1, 4), (4, 1), (1, 1), (0, 4), (4, 0)),
    *((2, 3, 4), (1, 3, 4), (2, 4, 5), (1, 4, 5), (6, 2, 3, 4), (6, 1, 4, 5), (1, 1, 4, 4)),
]


def rebuilt(fusion: Fusion) -> Fusion:
    """Run the Python text of a fusion."""
    names: dict[str, Any] = {}
    exec(to_python(fusion), names)
    result = names["fusion"]
    assert isinstance(result, Fusion)
    return result


def facts(tv: TensorView) -> tuple[object, ...]:
    """Return what a product means."""
    kinds = tuple(axis.iter_type for axis in tv.logical)
    return (tv.op, tv.args, tv.attrs, tv.shape, kinds, tv.dtype)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(SHAPES, SHAPES)))
def test_matmul_has_torchs_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Vectors, batches and extents of 0 and 1; what torch refuses is refused."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(left, "bf16"), fd.define_tensor(right, "bf16")
    try:
        want = torch.matmul(torch.empty(left), torch.empty(right)).shape
    except RuntimeError:
        with pytest.raises(FusionError, match=r"matmul\(T0, T1\): .*; "):
            fd.ops.matmul(a, b)
        return
    product = fd.ops.matmul(a, b)
    assert product.shape == tuple(want)
    assert [axis.role for axis in roles(product)].count(AxisRole.K) == 1
    assert product.dtype is a.dtype


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[-1] == 4])
def test_linear_has_torchs_shapes(shape: tuple[int, ...]) -> None:
    """The weight is [N, K]; the bias lies along the last axis of the result."""
    for rows in (1, 5):
        fd = FusionDefinition()
        x, w = fd.define_tensor(shape, "f16"), fd.define_tensor([rows, 4], "f16")
        total = fd.ops.linear(x, w, fd.define_tensor([rows], "f16"))
        want = functional.linear(torch.empty(shape), torch.empty(rows, 4), torch.empty(rows))
        assert total.shape == tuple(want.shape)
        assert (total.op, total.dtype) == ("add", x.dtype)
        assert fd.ops.linear(x, w).shape == total.shape


def test_the_two_forms_mean_the_same() -> None:
    """Broadcast operands without a mapping, and the mapping that says so."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, 1, "k"], "bf16"), fd.define_tensor([1, -1, "k"], "bf16")
    old = fd.ops.fused_multiply_sum(a, b, axes=[-1])
    for mapping in (((0, 1, 2), (0, 1, 2)), ((0, -1, 2), (-1, 1, 2))):
        new = fd.ops.fused_multiply_sum(a, b, axes=[2], axis_mapping=mapping)
        assert facts(new) == facts(old)
    assert dict(old.attrs)["a_axes"] == (0, -1, 2)


def test_matmul_is_the_sum_that_it_is_translated_to() -> None:
    """The issue's own example: a [M, K], b [K, N], and no broadcast in the graph."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1, -1], "bf16")
    mapping = ((0, -1, 1), (-1, 1, 0))
    product = fd.ops.matmul(a, b)
    same = fd.ops.fused_multiply_sum(a, b, axes=(-1,), axis_mapping=mapping, dtype="bf16")
    assert facts(product) == facts(same)
    assert fd.ops.fused_multiply_sum(a, b, None, mapping).dtype.name == "f32"
    fd.add_output(product)
    assert str(fd.fusion()).splitlines()[1:4] == [
        "T0: bf16[i0, i1] = input()",
        "T1: bf16[i1, i2] = input()",
        "T2: bf16[i0, i2] = fused_multiply_sum(T0, T1, axes=[2], "
        'axis_mapping=[[0, -1, 1], [-1, 1, 0]], dtype="bf16")',
    ]


def test_extents_that_meet_in_a_product_become_one() -> None:
    """K and batch extents are equal from then on; M and N stay apart."""
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, -1, -1], "bf16"), fd.define_tensor([-1, 64, -1], "bf16")
    product = fd.ops.matmul(a, b)
    fd.add_output(product)
    fusion = fd.fusion()
    assert [str(tv.shape) for tv in fusion.tensors] == [
        "(i0, i1, 64)",
        "(i0, 64, i2)",
        "(i0, i1, i2)",
    ]
    assert all(axis.iter_type is IterType.ITERATION for axis in fusion.outputs[0].logical)


def test_a_product_of_a_tensor_with_itself() -> None:
    """A Gram matrix: the operands are one tensor, their axes are not."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, "k"], "f32")
    mapping = ((0, -1, 1), (-1, 0, 1))
    gram = fd.ops.fused_multiply_sum(x, x, axis_mapping=mapping, precision="tf32")
    assert gram.shape == (x.shape[0], x.shape[0])
    assert call(gram).endswith('dtype="f32", precision="tf32")')


@st.composite
def products(draw: st.DrawFn) -> tuple[Fusion, TensorView]:
    """Products with any number of axes of every role in any order, some of extent 1.

    Shrinks towards a dot product of two vectors of extent 1.
    """
    fd = FusionDefinition()
    names = draw(
        st.lists(st.sampled_from([AxisRole.M, AxisRole.N, AxisRole.BATCH, AxisRole.K]), max_size=5)
    )
    order = draw(st.permutations([AxisRole.K, *names]))
    sizes = st.sampled_from([1, 2, 7, "e", "g"])
    shapes: tuple[list[Any], list[Any]] = ([], [])
    positions: tuple[list[int], list[int]] = ([], [])
    for role in order:
        extent = draw(sizes)
        here = {AxisRole.M: (True, False), AxisRole.N: (False, True)}.get(role, (True, True))
        for side in (0, 1):
            positions[side].append(len(shapes[side]) if here[side] else -1)
            shapes[side].extend([extent] * here[side])
            if not here[side] and draw(st.booleans()):
                positions[side][-1] = len(shapes[side])
                shapes[side].append(1)
    mapping: list[list[int]] = []
    for side in (0, 1):
        turn = draw(st.permutations(range(len(shapes[side]))))
        mapping.append([turn[n] if n >= 0 else -1 for n in positions[side]])
        moved = [1] * len(turn)
        for n, at in enumerate(turn):
            moved[at] = shapes[side][n]
        shapes[side][:] = moved
    kind = draw(st.sampled_from(["bf16", "f16", "f32"]))
    a, b = fd.define_tensor(shapes[0], kind), fd.define_tensor(shapes[1], kind)
    product = fd.ops.fused_multiply_sum(
        a,
        b,
        axes=[n for n, role in enumerate(order) if role is AxisRole.K],
        axis_mapping=mapping,
        dtype=draw(st.sampled_from([None, kind])),
        precision="tf32" if kind == "f32" else None,
    )
    fd.add_output(product)
    return fd.fusion(), product


@settings(max_examples=150, deadline=None)
@given(products())
def test_products_survive_their_text(drawn: tuple[Fusion, TensorView]) -> None:
    """Bugs are kept as Python text; the mapping is part of it."""
    fusion, _ = drawn
    again = rebuilt(fusion)
    assert str(again) == str(fusion)
    old, new = fusion.outputs[0], again.outputs[0]
    assert (old.op, old.attrs, old.dtype, old.shape) == (new.op, new.attrs, new.dtype, new.shape)
    assert roles(old) == roles(new)


@settings(max_examples=150, deadline=None)
@given(products())
def test_every_axis_of_an_operand_has_one_place(drawn: tuple[Fusion, TensorView]) -> None:
    """Only axes of extent 1 may stand nowhere, and every result axis is someone's."""
    product = drawn[0].outputs[0]
    axes = roles(product)
    assert [axis.result for axis in axes if axis.role is not AxisRole.K] == list(
        range(product.rank)
    )
    for arg, places in zip(product.args, ([x.a for x in axes], [x.b for x in axes]), strict=True):
        assert isinstance(arg, TensorView)
        for n, extent in enumerate(arg.shape):
            assert places.count(n) == 1 or (places.count(n) == 0 and extent == 1)
    for axis in axes:
        assert (axis.a is None, axis.b is None) == {
            AxisRole.M: (False, True),
            AxisRole.N: (True, False),
        }.get(axis.role, (False, False))
        if axis.result is not None:
            assert product.shape[axis.result] == axis.extent


Call = Callable[[FusionDefinition, Any, Any], object]
MAP = ((0, -1, 1), (-1, 0, 1))

REFUSALS: list[tuple[Call, str]] = [
    (lambda fd, x, w: fd.ops.matmul(x, 2.0), r"matmul\(T0, 2.0\): 2.0 is not a tensor; pass"),  # type: ignore[arg-type] # the mistake
    (
        lambda fd, x, w: fd.ops.matmul(x, fd.ops.cast(w, "f16")),
        r"T0 is bf16 and T2 is f16; cast them to one type",
    ),
    (
        lambda fd, x, w: fd.ops.matmul(fd.ops.cast(x, "f64"), fd.ops.cast(w, "f64")),
        r"operands are f64; cast them to bf16 or f16",
    ),
    (
        lambda fd, x, w: fd.ops.linear(fd.ops.cast(x, "f32"), fd.ops.cast(w, "f32")),
        r"operands are f32, which tensor cores.*; cast them to bf16 or f16, or say precision=",
    ),
    (lambda fd, x, w: fd.ops.linear(x, w, precision="tf32"), r"'tf32' is for f32 operands, not bf"),
    (
        lambda fd, x, w: fd.ops.linear(x, w, precision="ieee"),
        r"precision 'ieee' is unknown; use 't",
    ),
    (lambda fd, x, w: fd.ops.matmul(x, fd.define_tensor([], "bf16")), r"T2 has no axes to sum ove"),
    (lambda fd, x, w: fd.ops.linear(fd.define_tensor([], "bf16"), w), r"T2 has no axes to sum ove"),
    (
        lambda fd, x, w: fd.ops.linear(x, w),
        r"linear\(T0, T1\): shapes \(m, 8\) and \(n, 9\) differ: 8 meets 9; make those extents equ",
    ),
    (
        lambda fd, x, w: fd.ops.linear(x, fd.define_tensor([8], "bf16")),
        r"the weight T2 has shape \(8,\); give it the axes \(N, K\)",
    ),
    (
        lambda fd, x, w: fd.ops.linear(x, fd.define_tensor([5, 8], "bf16"), bias=x),
        r"linear\(T0, T2, bias=T0\): the bias T0 has shape \(m, 8\); give it the one axis",
    ),
    (
        lambda fd, x, w: fd.ops.linear(
            x, fd.define_tensor([5, 8], "bf16"), fd.define_tensor([6], "bf16")
        ),
        r"shapes \(m, 8\) and \(5, 8\) and \(6,\) differ: 5 meets 6; make those extents equal",
    ),
    (
        lambda fd, x, w: fd.ops.linear(
            x, fd.define_tensor([1, 8], "bf16"), fd.define_tensor([6], "bf16")
        ),
        r"the bias has extent 6 and axis 0 of T2 has 1; make them equal",
    ),
    (
        lambda fd, x, w: fd.ops.linear(
            x, fd.define_tensor([5, 8], "bf16"), fd.define_tensor([5], "f32")
        ),
        r"the bias T3 is f32 and T0 is bf16; cast it first",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axes=[]),
        r"no axis is summed over; name one",
    ),
    (lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axes=[2]), r"has 2 axes and none is axis 2"),
    (lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axes=[0, -2]), r"one axis twice; name each"),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, dtype="i32"),
        r"is f32 or bf16; cast it after",
    ),
    (lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, dtype="f8"), r"unknown dtype; use one of"),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, fd.define_tensor([8], "bf16")),
        r"shapes \(m, 8\) and \(8,\) differ in rank; give an axis_mapping",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, fd.define_tensor([1, 1], "bf16")),
        r"axis 1 is summed over, with extent 1 in T2 and 8 in T0; expand T2 first",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axes=[0], axis_mapping=MAP),
        r"axes=\[0\], axis_mapping=\(\(0, -1, 1\), \(-1, 0, 1\)\)\): axis 0 is summed over, "
        r"but only T0 has it; name in axes only what both have",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axis_mapping=((0, -1, 1), (0, -1, 1))),
        r"axis 1 of the full output is in neither operand; leave it out",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axis_mapping=((0, 0, 1), (0, -1, 1))),
        r"axis_mapping uses axis 0 of T0 2 times; use it once",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axis_mapping=((1,), (1,))),
        r"axis_mapping leaves out axis 0 of T0, of extent m; give it a place",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axis_mapping=((0, 1), (0, 1), (0, 1))),
        r"axis_mapping has 3 lists; give one for T0, one for T0",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, w, axis_mapping=((0, 1), (0, -1, 1))),
        r"axis_mapping names 2 axes for T0 and 3 for T1; write -1 where one has no axis",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axis_mapping=((0, 2), (0, 1))),
        r"T0 has 2 axes and none is axis 2; use 0..1, or -1 for none",
    ),
    (
        lambda fd, x, w: fd.ops.fused_multiply_sum(x, x, axis_mapping=((0, True), (0, 1))),
        r"axis True of T0 is not an integer; use -1 for no axis",
    ),
    (
        lambda fd, x, w: fd.ops.matmul(
            fd.define_tensor([2**31 - 1, 2**31 - 1, 1], "bf16"), fd.define_tensor([1, 9], "bf16")
        ),
        r"elements; use at most 2\*\*62",
    ),
    (lambda fd, x, w: fd.ops.mma(x, w), r"ops.mma: no such operation; .*matmul, linear"),  # type: ignore[attr-defined] # the mistake
]


@pytest.mark.parametrize(("call", "says"), REFUSALS, ids=[says[:40] for _, says in REFUSALS])
def test_mistakes_are_refused_with_a_way_out(call: Call, says: str) -> None:
    """The message names the call, what is wrong and what to do."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", 8], "bf16"), fd.define_tensor(["n", 9], "bf16")
    with pytest.raises(FusionError, match=says):
        call(fd, x, w)


def test_a_refused_product_changes_nothing() -> None:
    """Neither half a unification nor half a linear stays behind."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["b", "m", 8], "bf16"), fd.define_tensor(["c", 9, "n"], "bf16")
    v, bias = fd.define_tensor([5, "k"], "bf16"), fd.define_tensor([6], "bf16")
    with pytest.raises(FusionError, match="differ"):
        fd.ops.matmul(x, w)
    with pytest.raises(FusionError, match="differ"):
        fd.ops.linear(x, v, bias)
    for tv in (x, w, v, bias):
        fd.add_output(fd.ops.set(tv))
    fusion = fd.fusion()
    assert len(fusion.tensors) == 8
    assert [str(tv.shape) for tv in fusion.tensors[:3]] == ["(b, m, 8)", "(c, 9, n)", "(5, k)"]


@pytest.mark.parametrize("shape", [(6, 4, 8), (24, 8)])
def test_a_grouped_product_is_one_of_matrices_that_are_taken(shape: tuple[int, ...]) -> None:
    """Of blocks with an axis, or of rows of which they are parts; the result has the same axes."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(shape, "bf16"), fd.define_tensor([3, 8, 5], "bf16")
    made = fd.ops.grouped_matmul(a, b, fd.define_tensor([6], "i64"))
    assert made.shape == (*shape[:-1], 5)
    fd.add_output(made)
    assert [tv.op for tv in fd.fusion().tensors if tv.op in ("gather", "mma")] == ["gather", "mma"]
    assert str(rebuilt(fd.fusion())) == str(fd.fusion())


@pytest.mark.parametrize(
    ("a", "b", "groups", "dtype", "says"),
    [
        ([6, 4, 8], [3, 8, 5], [6], "f32", r"T2 is f32 with 1 axes; give \[T\] of i32 or i64"),
        ([6, 4, 8], [3, 8, 5], [6, 1], "i32", r"T2 is i32 with 2 axes; give \[T\] of i32 or i64"),
        ([6, 4, 8], [8, 5], [6], "i32", r"T0 has shape .*; give \[T, R, K\] or \[M, K\], and \[G"),
        ([8], [3, 8, 5], [6], "i32", r"T0 has shape .*; give \[T, R, K\] or \[M, K\], and \[G"),
        ([25, 8], [3, 8, 5], [6], "i32", r"T0 has 25 rows for the 6 blocks of T2; give numbers"),
        ([-1, 8], [3, 8, 5], [6], "i32", r"T0 has i0 rows for the 6 blocks of T2; give numbers"),
        ([6, 4, 8], [3, 7, 5], [6], "i32", r"8 .*7|7 .*8"),
        ([6, 4, 8], [3, 8, 5], [7], "i32", r"6 .*7|7 .*6"),
    ],
)
def test_what_no_grouped_product_is(
    a: list[int], b: list[int], groups: list[int], dtype: str, says: str
) -> None:
    """In the documented form, with the call as it was written."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(a, "bf16"), fd.define_tensor(b, "bf16")
    index = fd.define_tensor(groups, dtype)
    with pytest.raises(FusionError, match=says):
        fd.ops.grouped_matmul(x, w, index)
