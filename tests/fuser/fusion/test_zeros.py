"""Which reductions zeros change that stand in for elements beyond the end of an axis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.fusion.definition import FusionDefinition, TensorView
from fuser.fusion.zeros import unchanged_by_zeros

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
