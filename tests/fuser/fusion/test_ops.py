"""The table of operations agrees with the methods and with torch's type promotion."""

import itertools

import pytest
import torch

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition, IterType, TensorView
from fuser.fusion.ops import (
    ALL,
    COMPOSITIONS,
    FLOATS,
    METHODS,
    OPS,
    Form,
    Rule,
    named_axes,
    operand_dtypes,
    producer_axes,
)
from fuser.fusion.promotion import promote

TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
NAMES = {
    "set": "clone",
    "floor_div": "floor_divide",
    "silu": "nn.functional.silu",
    "gelu": "nn.functional.gelu",
}
OURS = ("gelu_tanh", "lerp", "nibble", "order", "philox")
"""What torch has not, or not for these operands."""
POINTWISE = sorted(name for name, spec in OPS.items() if spec.pointwise and name != "cast")


def torch_function(op: str) -> object:
    """Return torch's function of that operation."""
    function: object = torch
    for part in NAMES.get(op, op).split("."):
        function = getattr(function, part)
    return function


def test_every_row_has_a_method_and_every_method_a_row() -> None:
    """The table is the single source; four methods share the row of mma, some record several."""
    ops = FusionDefinition().ops
    methods = {name for name in dir(type(ops)) if not name.startswith("_")}
    assert methods == set(METHODS)
    products = {"fused_multiply_sum", "matmul", "grouped_matmul", "linear"}
    assert set(METHODS) - products - {*COMPOSITIONS} == set(OPS) - {"mma"}


def test_promotion_of_two_tensors_is_torchs() -> None:
    """All 64 pairs; torch promotes no float of 8 bits."""
    for a, b in itertools.product([d for d in DType if not d.is_f8], repeat=2):
        want = torch.result_type(torch.ones(2, dtype=TORCH[a]), torch.ones(2, dtype=TORCH[b]))
        assert TORCH[promote([a, b], [])] == want, (a, b)


@pytest.mark.parametrize(("number", "dtype"), [(True, "bool"), (2, "i64"), (2.5, "f64")])
def test_promotion_with_a_python_number_is_torchs(number: float, dtype: str) -> None:
    """Numbers are weak: only their kind counts."""
    for tensor in DType:
        want = torch.result_type(torch.ones(2, dtype=TORCH[tensor]), number)
        assert TORCH[promote([tensor], [DType.of(dtype)])] == want, tensor


@pytest.mark.parametrize("op", [op for op in POINTWISE if op not in OURS])
def test_result_dtype_is_torchs(op: str) -> None:
    """Every legal combination of operand types that torch also knows on the CPU."""
    arity = {"addcmul": 3}.get(op, OPS[op].arity)
    known = 0
    for dtypes in itertools.product([d for d in DType if d in ALL], repeat=min(arity, 2)):
        dtypes = dtypes + dtypes[-1:] * (arity - len(dtypes))
        if op == "where":
            dtypes = (DType.BOOL, *dtypes[1:])
        fd = FusionDefinition()
        tensors = [fd.define_tensor([4], dtype) for dtype in dtypes]
        try:
            result = torch_function(op)(*(torch.ones(4, dtype=TORCH[d]) for d in dtypes))  # type: ignore[operator]
        except (RuntimeError, NotImplementedError):
            continue
        known += 1
        assert TORCH[getattr(fd.ops, op)(*tensors).dtype] == result.dtype, dtypes
    assert known >= 3


def test_sixteen_bit_operands_are_computed_in_f32() -> None:
    """The numeric contract: 16 bits exist only in memory and at casts."""
    fd = FusionDefinition()
    x, flag = fd.define_tensor([4], "bf16"), fd.define_tensor([4], "bool")
    number = fd.define_tensor([4], "i32")
    f32 = DType.F32
    assert operand_dtypes(x) == ()
    assert operand_dtypes(fd.ops.add(x, 1.0)) == (f32, f32)
    assert operand_dtypes(fd.ops.lt(x, number)) == (f32, f32)
    assert operand_dtypes(fd.ops.lt(number, number)) == (DType.I32, DType.I32)
    assert operand_dtypes(fd.ops.where(flag, x, 0)) == (DType.BOOL, f32, f32)
    assert operand_dtypes(fd.ops.logical_and(flag, x)) == (DType.BOOL, f32)
    assert operand_dtypes(fd.ops.div(number, 2)) == (f32, f32)
    assert operand_dtypes(fd.ops.cast(x, "i64")) == (f32,)
    assert operand_dtypes(fd.ops.full([4], 1, "f16")) == (f32,)
    assert operand_dtypes(fd.ops.iota(4)) == (DType.I64, DType.I64)


def test_operands_of_products_keep_their_sixteen_bits() -> None:
    """Tensor cores take 16 bits, so that is what a prologue kept in f32 is rounded to."""
    fd = FusionDefinition()
    x = fd.define_tensor([4, 4], "bf16")
    assert operand_dtypes(fd.ops.matmul(fd.ops.exp(x), x)) == (DType.BF16, DType.BF16)


def test_producer_axes_of_products() -> None:
    """An operand has no place for the axes of the other, and the result none for K."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1, -1], "bf16"), fd.define_tensor([-1, -1], "bf16")
    product = fd.ops.linear(x, w)
    assert producer_axes(product, 0) == (0, 1, None)
    assert producer_axes(product, 1) == (None, None, 0)
    square = fd.ops.matmul(w, fd.ops.permute(w, [1, 0]))
    assert [producer_axes(square, n) for n in (0, 1)] == [(0, None), (None, 1)]


def test_producer_axes_of_shape_operations() -> None:
    """Lowering finds every index through this map."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 1], "f32")
    wide = fd.ops.broadcast(x, [True, False, False])
    assert producer_axes(wide, 0) == (None, 0, 1)
    stretched = fd.ops.expand(wide, [5, -1, "n"])
    assert producer_axes(stretched, 0) == (None, 1, None)
    assert producer_axes(fd.ops.permute(stretched, [2, 0, 1]), 0) == (2, 0, 1)
    assert producer_axes(fd.ops.squeeze(wide, [-1, 0]), 0) == (1,)
    assert producer_axes(fd.ops.full([3, 4], 1.0, "f32"), 0) == (None, None)


def test_producer_axes_of_pointwise_operations() -> None:
    """A stretched axis keeps its place; its IterType tells that it stretches."""
    fd = FusionDefinition()
    row, x = fd.define_tensor([1, -1], "f32"), fd.define_tensor([-1, -1], "f32")
    total: TensorView = fd.ops.addcmul(x, row, 2.0)
    assert [producer_axes(total, n) for n in range(4)] == [(0, 1), (0, 1), (None,) * 2, (None,) * 2]
    assert row.logical[0].iter_type is IterType.BROADCAST
    assert total.logical[0].iter_type is IterType.ITERATION


def test_axes_that_a_view_names() -> None:
    """One, or the first and the last that are joined, which may be the same."""
    fd = FusionDefinition()
    x = fd.define_tensor([4, 6, 8], "f32")
    assert named_axes(fd.ops.flatten(x, 1, 2)) == (1, 2)
    assert named_axes(fd.ops.flatten(x, 0, 2)) == (0, 2)
    assert named_axes(fd.ops.unflatten(x, 2, [2, 4])) == (2,)
    assert named_axes(fd.ops.slice(x, 1, 2, 5)) == (1,)


def test_the_table_is_consistent() -> None:
    """Rooms that iterate over the table rely on these."""
    for name, spec in OPS.items():
        assert spec.name == name
        assert spec.allowed
        assert (spec.rule is Rule.KEEP) == (
            spec.form in (Form.SHAPE, Form.VIEW, Form.GATHER) or name in ("max", "min")
        )
        some = (
            name.startswith("bitwise")
            or name in ("nibble", "order", "philox")
            or spec.form is Form.MMA
        )
        assert spec.allowed >= FLOATS or some
