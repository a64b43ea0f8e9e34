"""Which reductions zeros change that stand in for elements beyond the end of an axis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.fusion.definition import FusionDefinition, TensorView
from fuser.fusion.zeros import least_is_nothing, unchanged_by_zeros

CASES: list[tuple[str, Callable[[FusionDefinition, TensorView], TensorView], bool]] = [
    ("sum", lambda fd, x: fd.ops.silu(x), True),
    ("sum", lambda fd, x: fd.ops.exp(x), False),
    ("mean", lambda fd, x: fd.ops.mul(x, x), True),
    ("prod", lambda fd, x: fd.ops.abs(x), False),
    ("min", lambda fd, x: fd.ops.abs(x), False),
    ("max", lambda fd, x: fd.ops.abs(x), True),
    ("max", lambda fd, x: fd.ops.neg(x), False),
    ("max", lambda fd, x: fd.ops.abs(fd.ops.add(x, 1.0)), False),
]


@pytest.mark.parametrize(("op", "form", "unchanged"), CASES)
def test_sums_of_zeros_and_maxima_of_what_is_never_negative(
    op: str, form: Callable[[FusionDefinition, TensorView], TensorView], *, unchanged: bool
) -> None:
    """As long as what is computed of a zero is one."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    source = form(fd, x)
    made = getattr(fd.ops, op)(source, [1])
    assert unchanged_by_zeros(made, source, {x}) == unchanged


def test_the_largest_of_integers_may_be_negative() -> None:
    """The magnitude of the least of them is itself."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "i32")
    source = fd.ops.abs(x)
    assert not unchanged_by_zeros(fd.ops.max(source, [1]), source, {x})


@pytest.mark.parametrize(
    ("of", "through", "found"),
    [
        ("f32", "f32", True),
        ("f16", "f32", True),
        ("f32", "bf16", True),
        ("f8e4m3", "f32", False),  # registers hold bits, and there is no infinity
        ("f8e5m2", "f32", False),  # registers hold bits
        ("f32", "f8e4m3", False),  # infinities are 448: a row may have nothing but -448
        ("i32", "f32", False),
        ("f32", "i32", False),
    ],
)
def test_minus_infinity_is_less_where_types_have_it(of: str, through: str, *, found: bool) -> None:
    """In maxima, and in sums of powers of how far below them elements are."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], of)
    y = fd.ops.cast(fd.ops.cast(x, through), "f32")
    most = fd.ops.max(y, [1])
    power = fd.ops.exp(fd.ops.sub(y, fd.ops.broadcast(most, [False, True])))
    assert least_is_nothing(most, y) is (x if found else None)
    assert least_is_nothing(fd.ops.sum(power, [1]), power) is (x if found else None)
