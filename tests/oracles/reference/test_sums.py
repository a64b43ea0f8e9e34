"""The bounds of reductions hold for every order of additions, and are sharp where they can be."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from reference_products import torn

from fuser.fusion.definition import FusionDefinition
from oracles.reference.evaluate import Expected, evaluate

NAN, INF = torch.nan, torch.inf
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


@pytest.mark.parametrize("many", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["ties", "normal", "wild"])
def test_no_order_of_few_numbers_is_beyond_the_bound(many: int, kind: str) -> None:
    """All orders one by one, and in pairs; a tie of two numbers is off by all that is allowed."""
    draw = np.random.default_rng(many)
    values = draw.standard_normal((4000, many)).astype(np.float32)
    if kind == "ties":
        values = (draw.integers(-(2**25), 2**25, values.shape) * 2.0**-3).astype(np.float32)
    if kind == "wild":
        values *= np.float32(2.0) ** draw.integers(-26, 26, values.shape).astype(np.float32)
    want = reference("sum", torch.tensor(values), "f32", [1])
    worst = torch.zeros(4000, dtype=torch.float64)
    for order in itertools.permutations(range(many)):
        columns = [values[:, n] for n in order]
        pairs = [left + right for left, right in zip(columns[::2], columns[1::2], strict=False)]
        for parts in (columns, [*pairs, *columns[len(pairs) * 2 :]]):
            made = functools.reduce(np.add, parts)
            assert made.dtype == np.float32
            worst = torch.maximum(worst, (torch.tensor(made).to(torch.float64) - want.value).abs())
    assert torch.all(worst <= want.bound)
    assert float((worst / want.bound).nan_to_num(0.0).max()) > (0.999 if many == 2 else 0.3)


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


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "min"])
def test_a_nan_decides_a_reduction(op: str) -> None:
    """Whatever an element beside it hangs on, and whatever else could overflow."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, 1], "f32"), fd.define_tensor([-1, 3], "f32")
    fd.add_output(getattr(fd.ops, op)(fd.ops.cat([torn(fd, x, "f32"), y], 1), [1]))
    beside = torch.tensor([[NAN, 1, 1], [0.5, 0.25, 1], [3e38, 3e38, NAN], [INF, 1, NAN]])
    (want,) = evaluate(fd.fusion(), [torch.ones(4, 1), beside])
    assert want.undecided.tolist() == [False, True, False, False]
    assert want.value[[0, 2, 3]].isnan().all()


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


def test_products_that_underflow_or_overflow() -> None:
    """A subnormal on the way costs the least number; beyond the range, all are infinite alike."""
    mixed = [[1e-30, 1e20, 1e20], [1e30, 1e-30, 1e20]]
    rows = [[1e-20] * 3, [1e20, -1e20, 1.0], *mixed, [1e-44, 0, 2]]
    want = reference("prod", torch.tensor(rows), "f32", [1])
    assert want.undecided.tolist() == [False, False, True, True, False]
    assert 0 < float(want.bound[0]) < 2.0**-145
    assert want.value[1] == -float("inf")
    assert float(want.bound[4]) < 2.0**-145


def test_what_is_not_negative_stays_so_in_sums() -> None:
    """The logarithm of a sum of exponentials is decided where their errors are larger than they."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], "f8e5m2") for _ in range(2))
    scores = fd.ops.fused_multiply_sum(a, b, [-1], ((0, -1, 1), (-1, 1, 0)), "f32")
    most = fd.ops.broadcast(fd.ops.max(scores, [1]), [False, True])
    raised = fd.ops.exp(fd.ops.sub(scores, most))
    added = fd.ops.broadcast(fd.ops.sum(raised, [1]), [False, True])
    fd.add_output(fd.ops.log(added))
    fd.add_output(fd.ops.div(raised, added))
    squared = fd.ops.mean(fd.ops.mul(scores, scores), [1])
    fd.add_output(fd.ops.rsqrt(fd.ops.add(squared, 1e-6)))
    torch.manual_seed(1)
    given = [(4 * torch.randn(8, 64)).to(torch.float8_e5m2) for _ in range(2)]
    shifted, *_ = expected = evaluate(fd.fusion(), [given[0], given[1].T])
    assert (shifted.bound > shifted.value).any()
    for want in expected:
        assert not want.undecided.any()
        assert (want.bound > 0).all()
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "f32")
    signed = fd.ops.sum(fd.ops.mul(x, fd.ops.exp(x)), [1])
    fd.add_output(fd.ops.log(signed))
    (want,) = evaluate(fd.fusion(), [torch.tensor([[1e7, -1.0], [-1.0, -1.0]]) * 1e-7])
    assert want.value.isnan().tolist() == [False, True]


def test_a_mean_is_a_sum_divided() -> None:
    """With the error of both."""
    x = torch.randn(3, N)
    total, mean = (reference(op, x, "f32", [1]) for op in ("sum", "mean"))
    assert torch.allclose(mean.value, total.value / N, rtol=1e-15)
    assert (mean.bound >= total.bound / N * (1 - 1e-4)).all()


def _running(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    fd = FusionDefinition()
    names = {torch.float32: "f32", torch.float16: "f16", torch.int32: "i32", torch.bool: "bool"}
    fd.add_output(fd.ops.cumsum(fd.define_tensor([-1] * x.dim(), names[x.dtype]), dim))
    (made,) = evaluate(fd.fusion(), [x])
    return made.value, made.bound, made.undecided


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_scan_is_that_of_torch(dtype: torch.dtype, dim: int) -> None:
    """Within its bound, with the type that torch gives it."""
    torch.manual_seed(0)
    x = torch.randn(7, 33).mul(3).to(dtype)
    value, bound, undecided = _running(x, dim)
    want = x.cumsum(dim)
    assert want.dtype is (dtype if dtype.is_floating_point else torch.int64)
    assert not undecided.any()
    assert bool(((want.double() - value.double()).abs() <= bound + 1e-12).all())


def test_the_bound_of_a_scan_grows_along_it() -> None:
    """The first element is exact; each further one may lose what a sum of so many may."""
    _, bound, _ = _running(torch.full((1, 1000), 0.1), 1)
    assert bound[0, 0] == 0
    assert bool((bound[0, 1:] > bound[0, :-1]).all())
    assert bound[0, -1] <= 1.01 * 999 * 2**-24 * 100 + 2**-24 * 100


def test_a_scan_of_small_integers_is_exact() -> None:
    """No addition of them loses a bit, in any order; beyond 2**24 one may."""
    whole = torch.arange(-50, 50).float().reshape(1, -1)
    assert not _running(whole, 1)[1].any()
    _, bound, _ = _running(torch.tensor([[2.0**24, 1.0, 1.0]]), 1)
    assert (bound > 0).tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("x", "decided"),
    [
        ([1.0, float("inf"), 1.0, float("-inf")], [1.0, float("inf"), float("inf"), float("nan")]),
        ([float("nan"), 1.0], [float("nan"), float("nan")]),
    ],
)
def test_special_values_decide_what_stands_behind_them(
    x: list[float], decided: list[float]
) -> None:
    """And nothing before."""
    value, _, undecided = _running(torch.tensor([x]), 1)
    torch.testing.assert_close(value[0], torch.tensor(decided).double(), equal_nan=True)
    assert not undecided.any()


def test_a_scan_that_overflows_on_its_way_may_be_anything_from_there_on() -> None:
    """In another order of additions it would not."""
    _, _, undecided = _running(torch.tensor([[3e38, 3e38, -3e38]]), 1)
    assert undecided.tolist() == [[False, True, True]]
