"""Torch functions with bounds: torch's own f32 results lie inside, a little more does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from fuser.dtype import DType
from oracles.reference.functions import (
    Arithmetic,
    Unbounded,
    evaluate_function,
    evaluate_plainly,
)
from oracles.reference.products import Partials

Function = Callable[..., Any]
X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
W = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))


def bounds(
    function: Function,
    *given: torch.Tensor,
    dtype: DType = DType.F32,
    how: Arithmetic | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how far torch is off, and how far it may be."""
    own = function(*given)
    outputs = {"Y": (dtype, tuple(own.shape))}
    made = evaluate_function(function, given, outputs, ["Y"], how or Arithmetic())["Y"]
    assert not bool(made.undecided.any())
    return (made.value.to(torch.float64) - own.to(torch.float64)).abs(), made.bound


def in_place(x: torch.Tensor) -> torch.Tensor:
    """Write rows, one after the other, then add to a column."""
    out = torch.empty_like(x)
    for row in range(len(x)):
        out[row, :8] = x[row, 8:]
        out[row, 8:] = x[row, :8] * 2
    out[:, 3] += 0.1
    return out


ROUNDED: dict[str, Function] = {
    "scaled": lambda x: 2.5 * x - 1.1,
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: functional.layer_norm(x, (16,), torch.full((16,), 1.5)),
    "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5),
    "attention": lambda x: (x @ x.T / 4).softmax(-1) @ x,
    "variance": lambda x: x.var(-1),
    "sum": lambda x: x.sum(-1),
    "gelu": functional.gelu,
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "product": lambda x: torch.einsum("ij,kj->ik", x, x),
    "linear": lambda x: functional.linear(x, W, torch.ones(4)),
}
EXACT: dict[str, Function] = {
    "added": lambda x: x + x,
    "turned": lambda x: x.t().reshape(4, 32)[..., ::2],
    "joined": lambda x: torch.cat([x[:, 8:], x[:, :8]], 1),
    "masked": lambda x: torch.where((x > 0) & (x < 1), x, 0.0).masked_fill(x == 0, 1.0),
    "clamped": lambda x: x.clamp(min=-0.5).clamp(max=0.5),
    "largest": lambda x: x.max(1).values + x.amax(1),
    "to_bf16": lambda x: x.bfloat16().float(),
    "of_integers": lambda x: x.argmax(-1).float() + torch.arange(8),
    "in_place": in_place,
    "by_index": lambda x: x[torch.arange(7, -1, -1)].flip(1),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_torch_is_within_the_bound_and_the_bound_is_small(name: str) -> None:
    """Torch rounds as a kernel does; a part in ten thousand is far outside."""
    error, bound = bounds(ROUNDED[name], X)
    assert bool((error <= bound).all())
    assert 0 < float(bound.max()) < 1e-4


@pytest.mark.parametrize("name", EXACT)
def test_what_needs_no_rounding_is_exact(name: str) -> None:
    """Elements that are moved or chosen, and sums of a number with itself."""
    error, bound = bounds(EXACT[name], X)
    assert float(error.max()) == float(bound.max()) == 0


def test_small_integers_are_multiplied_exactly() -> None:
    """Whatever the tensor cores do."""
    a, b = (torch.randint(-4, 5, shape).bfloat16() for shape in ((6, 32), (5, 32)))
    error, bound = bounds(lambda a, b: a.float() @ b.float().T, a, b, how=Arithmetic(DType.BF16))
    assert float(error.max()) == float(bound.max()) == 0


def test_the_bound_is_that_of_what_the_kernel_multiplies() -> None:
    """Of tf32 it is wide, of bf16 in f32 narrow, of parts in bf16 wide again."""

    def most(how: Arithmetic, x: torch.Tensor, w: torch.Tensor) -> float:
        error, bound = bounds(lambda a, b: a.float() @ b.float().T, x, w, how=how)
        assert bool((error <= bound).all())
        return float(bound.max())

    x, w = X.bfloat16(), W.bfloat16()
    threads, cores = most(Arithmetic(), x, w), most(Arithmetic(DType.BF16), x, w)
    assert 0 < threads < 2 * cores < 1e-3
    assert most(Arithmetic(DType.F32), X, W) > 100 * cores
    assert most(Arithmetic(DType.BF16, partials=Partials(DType.BF16, 4)), x, w) > 100 * cores


def test_f64_is_exact_mathematics_to_a_kernel_of_f32() -> None:
    """Its own sums are as rounded as before; a kernel of f64 has to do better."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.double() @ b.double().T).float()

    _, plain = bounds(lambda a, b: a @ b.T, X, W)
    _, exact = bounds(product, X, W)
    assert torch.equal(plain, exact)
    _, double = bounds(lambda a, b: a @ b.T, X.double(), W.double(), dtype=DType.F64,
                       how=Arithmetic(double=True))  # fmt: skip
    assert 0 < float(double.max()) < 1e-6 * float(plain.max())


def test_a_result_of_16_bits_may_be_rounded_on_the_way_or_not() -> None:
    """A kernel keeps it in f32; a cast that the function writes is a rounding."""
    x = X.bfloat16()

    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 1.125 + 0.25

    _, bound = bounds(twice, x, dtype=DType.BF16)
    kept = twice(x.float()).bfloat16().double()
    off = (kept - twice(x).double()).abs()
    assert float(off.max()) > 0
    made = evaluate_function(twice, (x,), {"Y": (DType.BF16, (8, 16))}, ["Y"], Arithmetic())["Y"]
    for right in (kept, twice(x).double()):
        assert bool(((right - made.value).abs() <= bound).all())


@pytest.mark.parametrize(
    ("function", "names"),
    [(lambda x: torch.special.i0(x), "i0"), (lambda x: (x * 1.1).argmax(-1), "argmax")],
)
def test_an_operation_without_a_bound_is_named(function: Function, names: str) -> None:
    """Unknown is not a guess."""
    with pytest.raises(Unbounded, match=names):
        bounds(function, X)


def test_a_tolerance_can_be_given_instead() -> None:
    """Then torch computes as it does."""
    made = evaluate_plainly(torch.special.i0, (X,), {"Y": (DType.F32, (8, 16))}, ["Y"], 0.5, 1.0)
    assert torch.equal(made["Y"].value, torch.special.i0(X).double())
    assert torch.equal(made["Y"].bound, 1.0 + 0.5 * made["Y"].value.abs())


def test_a_comparison_that_hangs_on_rounding_is_open() -> None:
    """A kernel may see either side."""
    made = evaluate_function(
        lambda x: torch.where(x * 1.1 * (1 / 1.1) > x, 1.0, 0.0),
        (X,), {"Y": (DType.F32, (8, 16))}, ["Y"], Arithmetic(),
    )["Y"]  # fmt: skip
    assert set(made.bound.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x[:1], r"shape \[1, 16\] is returned for Y, which has \[8, 16\]"),
        (lambda x: (x, x), "2 tensors are returned for Y"),
        (lambda x: {"Z": x}, "Z is returned; the outputs are Y"),
        (lambda x: 3, "a int is returned, no tensor for each output"),
    ],
)
def test_what_does_not_fit_the_outputs_is_refused(function: Function, says: str) -> None:
    """With what was returned."""
    with pytest.raises(ValueError, match=says):
        evaluate_function(function, (X,), {"Y": (DType.F32, (8, 16))}, ["Y"], Arithmetic())
