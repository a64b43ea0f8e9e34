"""Reductions in f64 of the elements of one operand, with a bound for every order of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log1p, prod

import torch

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from oracles.reference.estimate import (
    EPS,
    NONE,
    TINY,
    TORCH,
    ZERO,
    Estimate,
    corners,
    knows_least,
    nearest,
    no_negative_zero,
    rounded,
    wrap,
)

Args = tuple[Estimate, ...]
Row = Callable[[TensorView, Args, tuple[int, ...]], Estimate]

WHOLE = {DType.F32: 2.0**24, DType.F64: 2.0**53}
"""A float holds every integer up to this one."""
LEAST = {DType.F32: 2.0**-126, DType.F64: 2.0**-1022}
"""The least normal number."""
_LESS = 1 - 2.0**-40
"""Allowance for what our own sums of numbers that are not negative lose."""

LARGEST = {dtype: torch.finfo(TORCH[dtype]).max for dtype in WHOLE}
_INT_RANGE = {DType.I32: (-(2**31), 2**31 - 1), DType.I64: (-(2**63), 2**63 - 1)}


def total(
    tv: TensorView, args: Args, shape: tuple[int, ...], longest: int | None = None
) -> Estimate:
    """Return the sum of the axes `dims` of one operand, in the type in which it is added up.

    `longest` is how many additions a number goes through, if that is known.

    Notes
    -----
    Of n numbers an order makes n - 1 sums, which are rounded to nearest: each is off by half of an
    ulp.  The j-th longest of these is of at most n - j + 1 numbers: it lies between the sums of the
    so many least that are negative and of the so many largest that are positive.
    """
    x, dims = _operand(tv, args)
    count = count_along(x, dims)
    undecided = _unsure(x, dims, shape)
    if not x.dtype.is_float:
        return Estimate(x.dtype, wrap(x.value.sum(dims).reshape(shape), x.dtype), ZERO, undecided)
    size = sizes(x)
    inherited = x.error.sum(dims).reshape(shape)
    magnitude = size.sum(dims).reshape(shape) + inherited
    value = x.value.sum(dims).reshape(shape)
    # Rounded to nearest at each of count - 1 additions; in f64 ours are no better.
    unit = EPS[x.dtype] / 2 * (2 if x.dtype is DType.F64 else 1)
    grown = max(count - 1, 0) * unit
    wider = 1 / (1 - grown) if grown < 1 else torch.inf
    lost = _roundings(torch.where(x.value < 0, -size, size), dims, inherited, wider, x.dtype)
    if longest is not None and longest * unit < 1 / 2:
        # Those that are as many additions from the end are sums of numbers that no other has.
        most = longest * unit / (1 - longest * unit) * magnitude
        lost = torch.minimum(lost, most * (1 + 2.0**-20))
    grain = grain_along(size, dims).reshape(shape)
    exact = (inherited == 0) & (magnitude < WHOLE[x.dtype] * grain)
    error = torch.where(exact | ~value.isfinite(), ZERO, inherited + lost)
    finite = x.value.isfinite().all(dims[0], keepdim=True) if dims else x.value.isfinite()
    for axis in dims[1:]:
        finite = finite.all(axis, keepdim=True)
    overflows = finite.reshape(shape) & (magnitude + lost > LARGEST[x.dtype])
    made = Estimate(x.dtype, value, error, undecided | overflows)
    if not knows_least(x) or grown >= 1:
        return made
    least = torch.where(x.least >= 0, x.least, NONE).expand(x.value.shape)
    return replace(made, least=least.sum(dims).reshape(shape) * (1 - grown) * _LESS)


def _roundings(
    numbers: torch.Tensor, dims: list[int], inherited: torch.Tensor, wider: float, dtype: DType
) -> torch.Tensor:
    """Return what the roundings of a sum may lose, in any order.

    `wider` is by what part sums may be larger for the roundings before; `inherited` is by how much
    for the errors of the numbers.  A little is added: ties reach the bound, and our own sums are
    rounded, too.
    """
    stay = [axis for axis in range(numbers.dim()) if axis not in dims]
    many = prod(numbers.shape[axis] for axis in dims)
    rows = numbers.permute(*stay, *dims).reshape(inherited.numel(), many).sort(-1).values
    above = rows.clamp(min=0).flip(-1).cumsum(-1)[:, 1:]
    below = rows.clamp(max=0).neg().cumsum(-1)[:, 1:]
    most = (torch.maximum(above, below) + inherited.reshape(-1, 1)) * (wider * (1 + 2.0**-40))
    ulp = torch.ldexp(torch.ones_like(most), torch.frexp(most)[1] - 1) * EPS[dtype]
    ulp = torch.where(most.isfinite(), ulp.clamp(min=TINY[dtype]), torch.inf)
    lost = (ulp * (most > 0)).sum(-1).reshape(inherited.shape) * (1 + 2.0**-20)
    return lost if dtype is DType.F64 else lost / 2  # in f64 ours are no better


def mean(
    tv: TensorView, args: Args, shape: tuple[int, ...], longest: int | None = None
) -> Estimate:
    """Return the sum divided by how many elements it has, less the correction."""
    x, dims = _operand(tv, args)
    (less,) = dict(tv.attrs).get("correction", (0,))
    many = float(max(count_along(x, dims) - less, 0))
    count = Estimate(x.dtype, torch.tensor(many, dtype=torch.float64))
    if x.dtype is DType.F32:
        count = rounded(count, DType.F32)
        count = replace(count, error=ZERO)
    added = total(tv, args, shape, longest)
    made = rounded(corners(torch.div, added, count), x.dtype)
    if not knows_least(added) or many == 0:
        return made
    return replace(made, least=nearest(added.least / count.value * _LESS, x.dtype))


def product(tv: TensorView, args: Args, shape: tuple[int, ...]) -> Estimate:
    """Return the product of the axes `dims` of one operand, in the type it is multiplied in.

    Notes
    -----
    n numbers, each off by the part r of itself, and n - 1 roundings by u: off by
    (1 + r_1) ... (1 + r_n) (1 + u)**(n - 1) - 1 of itself; by logarithms, for beside 1 most of a
    small r is lost, and a little more for what these lose.  Products on the way lie between those
    of all magnitudes above 1 and of all below.  One that is subnormal loses half of the least
    number besides, which grows by the magnitudes above 1 at most.  Where none is, a product of all
    beyond the range is infinite in every order.
    """
    x, dims = _operand(tv, args)
    undecided = _unsure(x, dims, shape)

    def every(numbers: torch.Tensor) -> torch.Tensor:
        for axis in dims:
            numbers = numbers.prod(axis, keepdim=True)
        return numbers.reshape(shape)

    value = every(x.value)
    if not x.dtype.is_float:
        return Estimate(x.dtype, wrap(value, x.dtype), ZERO, undecided)
    size = torch.where(x.value.isfinite() & (x.value != 0), x.value.abs(), 1.0)
    unit = EPS[x.dtype] * max(count_along(x, dims) - 1, 0)
    grown = torch.log1p(x.error / size)
    for axis in dims:
        grown = grown.sum(axis, keepdim=True)
    grown = torch.expm1(grown.reshape(shape) + log1p(2 * unit)) * (1 + 2.0**-40)
    low = (size - x.error).clamp(min=0)
    most, least = every(size.clamp(min=1)) * (1 + grown), every(low.clamp(max=1))
    whole = ((x.value == x.value.trunc()) & (x.error == 0)).to(torch.int32)
    exact = (every(whole) > 0) & (most < WHOLE[x.dtype])
    under = torch.where(least < LEAST[x.dtype], count_along(x, dims) * TINY[x.dtype] * most, ZERO)
    beyond = (every(low) * (1 - 2 * unit) > 2 * LARGEST[x.dtype]) & (under == 0) & (value != 0)
    value = torch.where(beyond, value.sign() * torch.inf, value)
    error = torch.where(exact | ~value.isfinite(), ZERO, value.abs() * grown + under)
    torn = (most > LARGEST[x.dtype]) | (unit > 2.0**-6) | ((under > 0) & ~value.isfinite())
    torn &= ~beyond
    zero = (x.value == 0) & (x.error > 0)
    open_ = (torn | _any(zero, dims, shape)) & ~_surely_nan(x, dims, shape)
    return Estimate(x.dtype, value, error, undecided | open_)


def extreme(tv: TensorView, args: Args, shape: tuple[int, ...]) -> Estimate:
    """Return the largest or the least element."""
    x, dims = _operand(tv, args)
    undecided = _unsure(x, dims, shape)
    if count_along(x, dims) == 0:
        return Estimate(x.dtype, _nothing(tv, x.dtype, shape), ZERO, undecided)
    value = _picked(tv.op, x.value, dims).reshape(shape)
    if not x.dtype.is_float:
        return Estimate(x.dtype, value, ZERO, undecided)
    # Each element may be off by its own error: compare the two ends.
    low = _picked(tv.op, x.low(), dims).reshape(shape)
    high = _picked(tv.op, x.high(), dims).reshape(shape)
    error = torch.maximum(value - low, high - value).nan_to_num(0.0, 0.0, 0.0)
    error = torch.where(value.isfinite(), error, ZERO)
    made = Estimate(x.dtype, value, error, undecided, signed=no_negative_zero(x))
    if not knows_least(x):
        return made
    # Of the maximum, too: of two zeros it may be the one with a sign.
    return replace(made, least=x.least.expand(x.value.shape).amin(dims).reshape(shape))


def running(tv: TensorView, args: Args, shape: tuple[int, ...]) -> Estimate:
    """Return the sums of all elements along the axis `dim` up to each, added up in any order.

    Notes
    -----
    What is said of a sum is said of each: the k-th is off by k - 1 roundings of the magnitudes up
    to there, and exact where no addition of these could lose a bit.
    """
    x = spread(args[0])
    (axis,) = (int(n) for n in dict(tv.attrs)["dim"])
    sure_nan = (x.value.isnan() & ~x.undecided).cummax(axis).values
    undecided = x.open.cummax(axis).values & ~sure_nan
    value = x.value.cumsum(axis)
    if not x.dtype.is_float:
        return Estimate(x.dtype, wrap(value, x.dtype), ZERO, undecided)
    size = sizes(x)
    inherited = x.error.cumsum(axis)
    magnitude = size.cumsum(axis) + inherited
    unit = EPS[x.dtype] / 2 * (2 if x.dtype is DType.F64 else 1)
    count = torch.ones_like(value).cumsum(axis)
    grown = (count - 1) * unit
    lost = magnitude * torch.where(grown < 1, grown / (1 - grown), torch.inf)
    grain = _powers(size).cummin(axis).values
    exact = (inherited == 0) & (magnitude < WHOLE[x.dtype] * grain)
    error = torch.where(exact | ~value.isfinite(), ZERO, inherited + lost)
    finite = ~(~x.value.isfinite()).cummax(axis).values
    overflows = finite & (magnitude + lost > LARGEST[x.dtype])
    return Estimate(x.dtype, value, error, undecided | overflows)


def _operand(tv: TensorView, args: Args) -> tuple[Estimate, list[int]]:
    (x,) = args
    return spread(x), [int(axis) for axis in dict(tv.attrs)["dims"]]


def count_along(x: Estimate, dims: list[int]) -> int:
    """Return how many elements some axes have together."""
    return prod(x.value.shape[axis] for axis in dims)


def _any(flags: torch.Tensor, dims: list[int], shape: tuple[int, ...]) -> torch.Tensor:
    for axis in dims:
        flags = flags.any(axis, keepdim=True)
    return flags.reshape(shape)


def _surely_nan(x: Estimate, dims: list[int], shape: tuple[int, ...]) -> torch.Tensor:
    """Tell where one of the elements is NaN beyond doubt: then so is every reduction of them."""
    return _any(x.value.isnan() & ~x.undecided, dims, shape)


def _unsure(x: Estimate, dims: list[int], shape: tuple[int, ...]) -> torch.Tensor:
    """Tell where a reduction hangs on an element that is open."""
    return _any(x.open, dims, shape) & ~_surely_nan(x, dims, shape)


def _picked(op: str, value: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return value.amax(dims) if op == "max" else value.amin(dims)


def _nothing(tv: TensorView, dtype: DType, shape: tuple[int, ...]) -> torch.Tensor:
    """Return what stands for the extreme of no elements."""
    if dtype is DType.BOOL:
        return torch.full(shape, tv.op == "min")
    if dtype.is_float:
        end = -torch.inf if tv.op == "max" else torch.inf
        return torch.full(shape, end, dtype=torch.float64)
    least, most = _INT_RANGE[dtype]
    return torch.full(shape, least if tv.op == "max" else most, dtype=torch.int64)


def grain_along(size: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Return the largest power of two that divides all numbers along some axes, inf of none.

    Where the products are multiples of one power of two, and few enough, f32 adds them exactly.
    """
    power = _powers(size)
    for axis in dims:
        if power.shape[axis] == 0:
            keep = [1 if n == axis else m for n, m in enumerate(power.shape)]
            power = torch.full(keep, torch.inf, dtype=torch.float64)
        else:
            power = power.amin(axis, keepdim=True)
    return power


def _powers(size: torch.Tensor) -> torch.Tensor:
    """Return the largest power of two that divides each number, inf of 0."""
    mantissa, _ = torch.frexp(size)
    digits = (mantissa * 2.0**53).to(torch.int64)
    lowest = (digits & -digits).to(torch.float64) / 2.0**53
    return torch.where(digits == 0, torch.inf, lowest * (size / mantissa))


def spread(arg: Estimate) -> Estimate:
    """Give every part the full shape."""
    full = arg.value.shape
    return replace(arg, error=arg.error.expand(full), undecided=arg.undecided.expand(full))


def sizes(arg: Estimate) -> torch.Tensor:
    """Return the magnitudes, 0 for inf and NaN: where those count, the result has no error."""
    return torch.where(arg.value.isfinite(), arg.value.abs(), ZERO)


SUMS = {"sum": total, "mean": mean}
"""Those that it helps to know how many additions a number goes through."""
REDUCTIONS: dict[str, Row] = {
    **SUMS, "prod": product, "max": extreme, "min": extreme, "cumsum": running
}  # fmt: skip
"""Rows of the table of operations."""
