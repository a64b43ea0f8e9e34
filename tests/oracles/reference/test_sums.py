"""The bounds of reductions hold for every order of additions, and are sharp where they can be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuser.fusion.definition import FusionDefinition
from oracles.reference.evaluate import Expected, evaluate

N = 1000


def reference(op: str, x: torch.Tensor, dtype: str, dims: list[int]) -> Expected:
    """What a kernel may give."""
    fd = FusionDefinition()
    given = fd.define_tensor([-1] * x.dim(), dtype)
    fd.add_output(getattr(fd.ops, op)(given, dims))
    (expected,) = evaluate(fd.fusion(), [x])
    return expected


def added(values: np.ndarray[tuple[int], np.dtype[np.float32]], how: int) -> float:
    """Add up in f32: from the front, from the back, in pairs, in a drawn order."""
    order = np.random.default_rng(how).permutation(values.size) if how > 2 else np.arange(N)
    if how == 1:
        order = order[::-1]
    if how == 2:
        while values.size > 1:
            odd = values[values.size // 2 * 2 :]
            values = np.concatenate([values[: values.size // 2 * 2].reshape(-1, 2).sum(1), odd])
        return float(values[0])
    total = np.float32(0)
    for value in values[order]:
        total = np.float32(total + value)
    return float(total)


@pytest.mark.parametrize("kind", ["normal", "positive", "wild"])
def test_every_order_is_within_the_bound(kind: str) -> None:
    """And the bound is not much more than the worst that was seen."""
    draw = np.random.default_rng(7)
    values = draw.standard_normal(N).astype(np.float32)
    if kind == "positive":
        values = np.abs(values)
    if kind == "wild":
        values = values * np.float32(2.0) ** draw.integers(-20, 20, N).astype(np.float32)
    expected = reference("sum", torch.tensor(values), "f32", [0])
    value, bound = float(expected.value), float(expected.bound)
    errors = [abs(added(values, how) - value) for how in range(12)]
    assert 0 < max(errors) <= bound
    assert bound <= N * 2.0**-23 * np.abs(values).sum()


def test_integers_are_exact() -> None:
    """As long as no order could lose a bit."""
    x = torch.randint(-8, 9, (4, N)).float()
    for op in ("sum", "max", "min"):
        expected = reference(op, x, "f32", [1])
        assert not expected.bound.any()
    assert reference("sum", x * 2.0**-30, "f32", [1]).bound.max() == 0
    assert reference("sum", x * 2.0**-20 + 1, "f32", [1]).bound.max() > 0
    assert reference("sum", torch.full((4, 2), 2**62), "i64", [1]).value.tolist() == [-(2**63)] * 4


def test_infinities_and_nan_are_what_they_are() -> None:
    """In every order; what could overflow in some order may be anything."""
    inf, nan = float("inf"), float("nan")
    rows = [[1, inf, 2], [inf, 1, -inf], [nan, 1, 2], [1, 2, 3], [3e38, 3e38, -3e38]]
    expected = reference("sum", torch.tensor(rows), "f32", [1])
    assert expected.value[0] == inf
    assert expected.value[1:3].isnan().all()
    assert expected.undecided.tolist() == [False, False, False, False, True]
    largest = reference("max", torch.tensor(rows), "f32", [1]).value
    assert largest[0] == inf
    assert largest[2].isnan()


@pytest.mark.parametrize(
    ("op", "dtype", "nothing"),
    [
        ("sum", "f32", 0.0), ("mean", "f32", float("nan")), ("max", "f32", -float("inf")),
        ("min", "f64", float("inf")), ("sum", "bool", 0), ("max", "i32", -(2**31)),
        ("min", "i32", 2**31 - 1), ("max", "i64", -(2**63)), ("min", "i64", 2**63 - 1),
    ],
)  # fmt: skip
def test_of_no_elements(op: str, dtype: str, nothing: float) -> None:
    """What changes nothing when it is put to something else; NaN is no mean."""
    types = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}
    expected = reference(op, torch.zeros(2, 0, dtype=types.get(dtype, torch.bool)), dtype, [1])
    for value in expected.value.tolist():
        assert value == nothing or (op == "mean" and value != value)


def test_a_mean_is_a_sum_divided() -> None:
    """With the error of both."""
    x = torch.randn(3, N)
    total, mean = (reference(op, x, "f32", [1]) for op in ("sum", "mean"))
    assert torch.allclose(mean.value, total.value / N, rtol=1e-15)
    assert (mean.bound >= total.bound / N * (1 - 1e-4)).all()
