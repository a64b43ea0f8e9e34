"""Operators record what ``fd.ops`` records under their names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.errors import FusionError
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import TensorView, call

Form = Callable[[TensorView, TensorView], object]

MEANT: dict[str, Form] = {
    "add(T0, T1)": lambda x, y: x + y,
    "add(2, T0)": lambda x, y: 2 + x,
    "sub(T0, 1)": lambda x, y: x - 1,
    "sub(1, T0)": lambda x, y: 1 - x,
    "mul(T0, T1)": lambda x, y: x * y,
    "mul(2, T0)": lambda x, y: 2 * x,
    "div(T0, T1)": lambda x, y: x / y,
    "div(1.0, T0)": lambda x, y: 1.0 / x,
    "floor_div(T0, 3)": lambda x, y: x // 3,
    "floor_div(3, T0)": lambda x, y: 3 // x,
    "remainder(T0, 3)": lambda x, y: x % 3,
    "remainder(3, T0)": lambda x, y: 3 % x,
    "pow(T0, 2)": lambda x, y: x**2,
    "pow(2, T0)": lambda x, y: 2**x,
    "lt(T0, T1)": lambda x, y: x < y,
    "le(T0, 0)": lambda x, y: x <= 0,
    "gt(T0, 0)": lambda x, y: x > 0,
    "ge(T0, T1)": lambda x, y: x >= y,
    "neg(T0)": lambda x, y: -x,
    "abs(T0)": lambda x, y: abs(x),
    "bitwise_not(T0)": lambda x, y: ~x,
    "bitwise_and(T0, T1)": lambda x, y: x & y,
    "bitwise_and(1, T0)": lambda x, y: 1 & x,
    "bitwise_or(T0, T1)": lambda x, y: x | y,
    "bitwise_or(1, T0)": lambda x, y: 1 | x,
    "bitwise_xor(T0, T1)": lambda x, y: x ^ y,
    "bitwise_xor(1, T0)": lambda x, y: 1 ^ x,
    'sum(T0, dtype="i64", dims=[0, 1])': lambda x, y: x.sum(),
    'sum(T0, dtype="i64", dims=[1])': lambda x, y: x.sum(-1),
    'prod(T0, dtype="i64", dims=[0])': lambda x, y: x.prod([0]),
    "max(T0, dims=[0, 1])": lambda x, y: x.max((0, 1)),
    "min(T0, dims=[0])": lambda x, y: x.min(0),
}


def pair(dtype: str = "i32") -> tuple[FusionDefinition, TensorView, TensorView]:
    """Return a definition with two inputs of one shape."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor(shape=["n", "n"], dtype=dtype) for _ in range(2))
    return fd, x, y


@pytest.mark.parametrize("said", MEANT)
def test_an_operator_records_its_operation(said: str) -> None:
    """An exchanged operand would subtract the wrong way round."""
    _, x, y = pair()
    made = MEANT[said](x, y)
    assert isinstance(made, TensorView)
    assert call(made) == said


def test_floats_have_mean_and_products() -> None:
    """Of integers there is neither."""
    _, x, y = pair("bf16")
    assert call(x.mean(0)) == "mean(T0, dims=[0])"
    assert (x @ y).op == "mma"
    assert x.sum(1, keepdim=True, dtype="f32").rank == 2


def test_equality_stays_identity() -> None:
    """Tensors are keys of dicts; element by element it is fd.ops.eq."""
    _, x, y = pair()
    assert (x == x, x == y, x != y, len({x, y})) == (True, False, True, 2)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (lambda x, y: x and y, r"bool\(T0\): .* at launch only; choose .* by fd.ops.where"),
        (lambda x, y: 0 < x < y, r"bool\(T2\): .* combine conditions by & and \|"),
        (lambda x, y: x + "1", r"add\(T0, '1'\): '1' is neither a tensor nor a number"),
        (lambda x, y: x + x.sum(0), r"broadcast\(T2, is_broadcast_dim=\[True, False\]\)"),
        (lambda x, y: x.sum(2), r"sum\(T0, dims=\[2\].*none is axis 2; pick one in 0..1"),
    ],
)
def test_what_is_no_operation_says_what_to_write(form: Form, says: str) -> None:
    """`a < b < c` asks for the truth of a tensor, which would silently be the second half."""
    _, x, y = pair()
    with pytest.raises(FusionError, match=says):
        form(x, y)


def test_a_finished_fusion_computes_nothing_more() -> None:
    """Its tensors are no part of any definition."""
    fd, x, y = pair()
    fd.add_output(x + y)
    with pytest.raises(FusionError, match=r"neg\(T2\): the fusion is finished"):
        -fd.fusion().outputs[0]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rellu", r"ops.rellu: no such operation; did you mean relu or "),
        ("soft_max", r"ops.soft_max: no such operation; did you mean softmax"),
        ("xyzzy", r"ops.xyzzy: no such operation; use one of abs, neg"),
    ],
)
def test_a_misspelled_operation_is_guessed(name: str, says: str) -> None:
    """A list of 130 names is no help where one letter is wrong."""
    with pytest.raises(FusionError, match=says):
        getattr(FusionDefinition().ops, name)


def test_operations_are_looked_for_in_ops() -> None:
    """A first try is often fd.relu(x)."""
    with pytest.raises(FusionError, match=r"fd.relu: operations are methods of ops; use fd.ops"):
        FusionDefinition().relu  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(AttributeError, match="no add_outputs; did you mean add_output"):
        FusionDefinition().add_outputs  # type: ignore[attr-defined] # noqa: B018
