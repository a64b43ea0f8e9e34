"""What the reference computes for a reduction, with a bound for every order of its additions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from oracles.reference.estimate import EPS, ZERO, Estimate, corners, rounded, wrap

Row = Callable[[TensorView, tuple[Estimate, ...], tuple[int, ...]], Estimate]

WHOLE = {DType.F32: 2.0**24, DType.F64: 2.0**53}
"""A float holds every integer up to this one."""
LARGEST = {
    DType.F32: torch.finfo(torch.float32).max,
    DType.F64: torch.finfo(torch.float64).max,
}
_INT_RANGE = {DType.I32: (-(2**31), 2**31 - 1), DType.I64: (-(2**63), 2**63 - 1)}


def total(tv: TensorView, args: tuple[Estimate, ...], shape: tuple[int, ...]) -> Estimate:
    """Return the sum of some axes.

    Parameters
    ----------
    tv : TensorView
        With an attribute `dims`.
    args : tuple of Estimate
        The one operand, converted to the type in which it is added up.
    shape : tuple of int
        Of the result.
    """
    x, dims = _operand(tv, args)
    count = _count(x, dims)
    undecided = _any(x.undecided, dims, shape)
    if not x.dtype.is_float:
        return Estimate(x.dtype, wrap(x.value.sum(dims).reshape(shape), x.dtype), ZERO, undecided)
    size = torch.where(x.value.isfinite(), x.value.abs(), ZERO)
    inherited = x.error.sum(dims).reshape(shape)
    magnitude = size.sum(dims).reshape(shape) + inherited
    value = x.value.sum(dims).reshape(shape)
    # Rounded to nearest at each of count - 1 additions; in f64 ours are no better.
    unit = EPS[x.dtype] / 2 * (2 if x.dtype is DType.F64 else 1)
    grown = max(count - 1, 0) * unit
    lost = magnitude * (grown / (1 - grown) if grown < 1 else torch.inf)
    grain = _grain(size, dims).reshape(shape)
    exact = (inherited == 0) & (magnitude < WHOLE[x.dtype] * grain)
    error = torch.where(exact | ~value.isfinite(), ZERO, inherited + lost)
    finite = x.value.isfinite().all(dims[0], keepdim=True) if dims else x.value.isfinite()
    for axis in dims[1:]:
        finite = finite.all(axis, keepdim=True)
    overflows = finite.reshape(shape) & (magnitude + lost > LARGEST[x.dtype])
    return Estimate(x.dtype, value, error, undecided | overflows)


def mean(tv: TensorView, args: tuple[Estimate, ...], shape: tuple[int, ...]) -> Estimate:
    """Return the sum divided by how many elements it has."""
    x, dims = _operand(tv, args)
    count = Estimate(x.dtype, torch.tensor(float(_count(x, dims)), dtype=torch.float64))
    if x.dtype is DType.F32:
        count = rounded(count, DType.F32)
        count = replace(count, error=ZERO)
    return rounded(corners(torch.div, total(tv, args, shape), count), x.dtype)


def extreme(tv: TensorView, args: tuple[Estimate, ...], shape: tuple[int, ...]) -> Estimate:
    """Return the largest or the least element."""
    x, dims = _operand(tv, args)
    undecided = _any(x.undecided, dims, shape)
    if _count(x, dims) == 0:
        return Estimate(x.dtype, _nothing(tv, x.dtype, shape), ZERO, undecided)
    value = _picked(tv.op, x.value, dims).reshape(shape)
    if not x.dtype.is_float:
        return Estimate(x.dtype, value, ZERO, undecided)
    # Each element may be off by its own error: compare the two ends.
    low = _picked(tv.op, x.low(), dims).reshape(shape)
    high = _picked(tv.op, x.high(), dims).reshape(shape)
    error = torch.maximum(value - low, high - value).nan_to_num(0.0, 0.0, 0.0)
    return Estimate(x.dtype, value, torch.where(value.isfinite(), error, ZERO), undecided)


def _operand(tv: TensorView, args: tuple[Estimate, ...]) -> tuple[Estimate, list[int]]:
    (x,) = args
    full = x.value.shape
    spread = replace(x, error=x.error.expand(full), undecided=x.undecided.expand(full))
    return spread, [int(axis) for axis in dict(tv.attrs)["dims"]]


def _count(x: Estimate, dims: list[int]) -> int:
    count = 1
    for axis in dims:
        count *= x.value.shape[axis]
    return count


def _any(flags: torch.Tensor, dims: list[int], shape: tuple[int, ...]) -> torch.Tensor:
    for axis in dims:
        flags = flags.any(axis, keepdim=True)
    return flags.reshape(shape)


def _picked(op: str, value: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return value.amax(dims) if op == "max" else value.amin(dims)


def _nothing(tv: TensorView, dtype: DType, shape: tuple[int, ...]) -> torch.Tensor:
    """Return what stands for the extreme of no elements."""
    if dtype.is_float:
        end = -torch.inf if tv.op == "max" else torch.inf
        return torch.full(shape, end, dtype=torch.float64)
    least, most = _INT_RANGE[dtype]
    return torch.full(shape, least if tv.op == "max" else most, dtype=torch.int64)


def _grain(size: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Return the largest power of two that divides all numbers along some axes, inf of none."""
    mantissa, _ = torch.frexp(size)
    digits = (mantissa * 2.0**53).to(torch.int64)
    lowest = (digits & -digits).to(torch.float64) / 2.0**53
    power = torch.where(digits == 0, torch.inf, lowest * (size / mantissa))
    for axis in dims:
        if power.shape[axis] == 0:
            keep = [1 if n == axis else m for n, m in enumerate(power.shape)]
            power = torch.full(keep, torch.inf, dtype=torch.float64)
        else:
            power = power.amin(axis, keepdim=True)
    return power


REDUCTIONS: dict[str, Row] = {"sum": total, "mean": mean, "max": extreme, "min": extreme}
"""Rows of the table of operations."""
