"""All operations of a type at once."""

from __future__ import annotations

import pytest

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from fuser.fusion.ops import OPS, Form
from fuzz.campaign.mutants import OPERATIONS, representative
from fuzz.kernels.fusions import every_operation, every_sum


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "bf16"])
def test_every_pointwise_operation_of_a_type_is_an_output(dtype: str) -> None:
    """But for casts, the words of random numbers, and what turns integers into floats first."""
    made = {tv.op for tv in every_operation(dtype).outputs}
    left = {name for name, row in OPS.items() if row.pointwise and DType.of(dtype) in row.allowed}
    floats = {"exp", "sqrt", "sin", "erf", "atan2", "div"}
    assert left - made >= {"cast"}
    if dtype == "i32":
        assert not floats & made
    else:
        assert left - made == {"cast"}


def test_every_operation_of_one_operand_is_summed() -> None:
    """All that stay f32: behind a row's end `exp`, `cos` and `sigmoid` must not add 1 or a half."""
    sources = (tv.args[0] for tv in every_sum("f32").outputs)
    summed = {tv.op for tv in sources if isinstance(tv, TensorView)}
    floats = {n for n, row in OPS.items() if row.form is Form.UNARY and DType.F32 in row.allowed}
    assert {"exp", "cos", "sigmoid", "rsqrt"} <= summed
    truths = {"isnan", "isinf", "isfinite", "logical_not", "order"}
    assert floats - summed == {"cast", "set"} | truths


def test_the_cases_have_a_name_each() -> None:
    """And are of the families that have no ring."""
    assert len({str(representative(name).fusion) for name in OPERATIONS}) == len(OPERATIONS)
    families = {representative(name).params.family for name in OPERATIONS}
    assert families == {"direct/direct", "norm-direct/direct"}
