"""What the reference computes for an `mma`: a sum of products in f64, and how far one may be off.

It reads the axis mapping by itself, not by the compiler's query, so that a wrong role there shows.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from fuser.dtype import DType
from fuser.fusion_ir import TensorView
from oracles.estimate import TINY, ZERO, Estimate

ADDITION = 2.0**-22
"""What one addition may lose, relative to the sum of the magnitudes added up: 2 ulp of f32.

Tensor cores align the addends of a step to the largest and cut off what hangs over; how many bits
they keep is not in the PTX ISA.  Measured on an H200 with wgmma on bf16 and f16, K from 16 to
16384, uniform, positive and wildly scaled data: at most 0.96 * 2**-22 in a step of 16, and at most
0.42 * 2**-22 a step over many (`tests/test_kernel_launch.py` keeps watch).
"""

STEP = {DType.F32: 8, DType.F16: 16, DType.BF16: 16}
"""Products that are added at once: K of one instruction, 32 bytes.

Source: PTX ISA, "wgmma.mma_async", "mma.m16n8k16", "mma.m16n8k8".
"""

MORE = 8
"""Additions beyond one per step: starting value, partial sums of tiles and of split-K."""

TF32 = 2.0**-10
"""What an f32 operand may lose as tf32, relative to itself: 13 bits cut off, or rounded.

Source: PTX ISA, alternate floating-point data formats (tf32 has 10 fraction bits).
"""

_CUT_LEAST = 2.0**-136
"""The same for subnormals, absolute: 13 bits above the last of f32."""

_WHOLE = 2.0**24
"""f32 holds every integer up to this one."""

_LARGEST = torch.finfo(torch.float32).max

Sum = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def multiply_sum(tv: TensorView, args: tuple[Estimate, ...], shape: tuple[int, ...]) -> Estimate:
    """Return the sum of products that `tv` names, with a bound for every order of its additions.

    Parameters
    ----------
    tv : TensorView
        With op ``"mma"``.
    args : tuple of Estimate
        The operands, rounded to their 16 bits.
    shape : tuple of int
        Of the result.
    """
    a, b = (_spread(arg) for arg in args)
    if tv.args[0].dtype is DType.F32:
        a, b = _cut(a), _cut(b)
    added, (a_summed, b_summed) = _contraction(tv)
    count = 1
    for axis in a_summed:
        count *= a.value.shape[axis]
    if count == 0:
        return Estimate(DType.F32, torch.zeros(shape, dtype=torch.float64))
    value = added(a.value, b.value)
    size_a, size_b = _size(a), _size(b)
    size = added(size_a, size_b)
    inherited = ZERO
    if bool((a.error > 0).any()) or bool((b.error > 0).any()):
        inherited = added(a.error, size_b) + added(size_a + a.error, b.error)
    additions = -(-count // STEP[tv.args[0].dtype]) + MORE
    lost = additions * (ADDITION * (size + inherited) + TINY[DType.F32])
    grain = added(_grain(a, a_summed), _grain(b, b_summed))
    exact = (inherited == 0) & (size < _WHOLE * grain) & (grain >= TINY[DType.F32])
    error = torch.where(exact | ~value.isfinite(), ZERO, inherited + lost)
    overflows = size + inherited + lost > _LARGEST
    doubt = (overflows & ~value.isnan()) | _doubt(a, b, added)
    return Estimate(DType.F32, value, error, doubt)


def _contraction(tv: TensorView) -> tuple[Sum, tuple[list[int], list[int]]]:
    """Return how two tensors are multiplied and summed, and the summed axes of each operand."""
    attrs = dict(tv.attrs)
    a_axes, b_axes, reduced = (
        [int(axis) for axis in attrs[key]] for key in ("a_axes", "b_axes", "reduced")
    )
    # An axis of extent 1 that stands nowhere gets a letter of its own, to be summed over.
    unused = iter(range(len(a_axes), len(a_axes) + 128))
    letters = [
        [axes.index(axis) if axis in axes else next(unused) for axis in range(arg.rank)]
        for arg, axes in zip(tv.args, (a_axes, b_axes), strict=True)
        if isinstance(arg, TensorView)
    ]
    kept = [axis for axis in range(len(a_axes)) if axis not in reduced]

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.einsum(x, letters[0], y, letters[1], kept)
        return result

    return added, ([a_axes[axis] for axis in reduced], [b_axes[axis] for axis in reduced])


def _spread(arg: Estimate) -> Estimate:
    """Give every part the full shape."""
    full = arg.value.shape
    return replace(arg, error=arg.error.expand(full), undecided=arg.undecided.expand(full))


def _cut(arg: Estimate) -> Estimate:
    """Let f32 operands lose what tf32 does not hold."""
    mantissa, _ = torch.frexp(arg.value)
    whole = [mantissa * 2.0**11, arg.value / _CUT_LEAST]
    fits = (arg.error == 0) & (whole[0] == whole[0].trunc()) & (whole[1] == whole[1].trunc())
    size = arg.value.abs() + arg.error
    lost = torch.clamp(size * TF32, min=_CUT_LEAST)
    lost = torch.where(fits | ~arg.value.isfinite(), ZERO, lost)
    return replace(arg, error=arg.error + lost).doubt((lost > 0) & (size + lost > _LARGEST))


def _size(arg: Estimate) -> torch.Tensor:
    """Return the magnitudes, 0 for inf and NaN: where those count, the result has no error."""
    return torch.where(arg.value.isfinite(), arg.value.abs(), ZERO)


def _grain(arg: Estimate, summed: list[int]) -> torch.Tensor:
    """Return the largest power of two that divides all numbers along the summed axes.

    Where the products are multiples of one power of two, and few enough, f32 adds them exactly.
    """
    size = _size(arg)
    mantissa, _ = torch.frexp(size)
    digits = (mantissa * 2.0**53).to(torch.int64)
    lowest = (digits & -digits).to(torch.float64) / 2.0**53
    power = torch.where(digits == 0, torch.inf, lowest * (size / mantissa))
    return power.amin(dim=summed, keepdim=True)


def _doubt(a: Estimate, b: Estimate, added: Sum) -> torch.Tensor:
    """Return where an operand is undecided, or may be 0 where the other is infinite."""
    doubt = torch.zeros((), dtype=torch.bool)
    for one, other in ((a, b), (b, a)):
        touches = (one.error > 0) & (one.value.abs() <= one.error)
        for here, there in (
            (one.undecided, torch.ones_like(other.undecided)),
            (touches, other.value.isinf()),
        ):
            if bool(here.any()) and bool(there.any()):
                mine, yours = here.to(torch.float64), there.to(torch.float64)
                met = added(mine, yours) if one is a else added(yours, mine)
                doubt = doubt | (met > 0)
    return doubt
