"""Sums of products in f64, with a bound for every order of their additions.

An `mma` reads its axis mapping by itself, not by the compiler query, so that a wrong role there
shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product as product_of
from math import prod

import torch

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from fuser.fusion.ops import accumulator
from oracles.reference.estimate import EPS, NONE, SURE, TINY, TORCH, ZERO, Estimate, wrap
from oracles.reference.sums import count_along, grain_along, sizes, spread

CUT, F8_CUT = 2.0**-25, 2.0**-13
"""What a step cuts off an addend at most, relative to the largest, of 8-bit floats the second.

The addends are the products of a step and the sum so far.  All are cut below one power of two: so
many bits below the exponent of the largest, where that of a product is the sum of those of its
operands.  Their sum is cut, too, after 24 bits, of 8-bit floats after 14.

Not in the PTX ISA.  Source: F. Khattak, M. Mikaitis, "Accurate models of NVIDIA tensor cores",
2025.  Measured on an H200: this gives what wgmma and mma return, to the last bit, of bf16, f16,
tf32 and 8-bit floats, K from 2 to 512, seven kinds of data, and of one large product beside small
ones (`tests/oracles/reference/test_products.py` keeps watch).
"""

HALF = 2.0**-11
"""What rounding to f16 loses at most: sums in f16 are rounded to nearest after each step."""

STEP = {DType.F32: 8, DType.F16: 16, DType.BF16: 16, DType.F8E4M3: 32, DType.F8E5M2: 32}
"""Products that are added at once: K of one instruction, 32 bytes.

Source: PTX ISA, "wgmma.mma_async", "mma.m16n8k16", "mma.m16n8k8".
"""

SEEN, F8_SEEN = 2.0**-22, 2.0**-10
"""What a step of many loses, relative to the sum of all magnitudes, of 8-bit floats the second.

Measured on an H200 by wgmma, K up to 16384, uniform, positive and wildly scaled data: at most 0.42
of the first, 0.56 of the second.
"""

MORE = 8
"""Steps that lose as much as all that adds up partial sums, of tiles and of split-K, at most.

Of n steps there are n partial sums at most, whose additions in f32 lose a quarter of `SEEN` each.
"""

FEW = 1 << 22
"""Products that are looked at one by one, at most."""

TF32 = 2.0**-10
"""What an f32 operand may lose as tf32, relative to itself: 13 bits cut off, or rounded.

Source: PTX ISA, alternate floating-point data formats (tf32 has 10 fraction bits).
"""

_CUT_BITS = 13
_CUT_LEAST = 2.0**-136
"""The same for subnormals, absolute: 13 bits above the last of f32."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """How sums are held; `tiny` and `largest` are the least and the largest of these numbers.

    A `step` adds so many products.  It may lose the part `cut` of the largest of each, and the part
    `kept` of the sum; a step of many loses no more than `seen` of all magnitudes.  Every integer
    up to `whole` is held.
    """

    cut: float
    kept: float
    seen: float
    step: int
    whole: float
    tiny: float
    largest: float


@dataclass(frozen=True, slots=True)
class Partials:
    """How f32 sums go from one CTA to another where `many` at most share a tile: in F16 or BF16."""

    dtype: DType
    many: int


_LOST = 16 * 2.0**-126
"""What a step may lose besides: products below the least normal number of f32 may become 0.

Seen on an H200: in bf16, 1e-40 times 0.2 beside 1e-40 times 3e4 had no effect.
"""

_F32 = _LOST, torch.finfo(torch.float32).max
_F16 = TINY[DType.F16], torch.finfo(torch.float16).max

Sum = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def multiply_sum(
    tv: TensorView,
    args: tuple[Estimate, ...],
    shape: tuple[int, ...],
    partials: Partials | None = None,
    longest: int | None = None,
) -> Estimate:
    """Return the sum of products that `tv` names, with a bound for every order of its additions.

    `partials` say how parts of the sum are handed on, if that rounds them; sums in i32 or f16
    never are.  `longest` is how many additions a number goes through outside of tensor cores.

    Notes
    -----
    A rounding to nearest turns x into x (1 + d) + t, where abs(d) is at most u, half the distance
    from 1 to the next number, and abs(t) half the least subnormal.  On its way every product is
    part of at most n = many - 1 rounded numbers, one after the other: in turns, of the sum so far
    of all CTAs but the last; with TMA of its CTA's own sum and of those that the engine makes from
    the second turn on, n again; where each CTA stores its sum and f32 adds up, of one.  So it is
    multiplied by (1 + u)**n at most, and a sum of magnitudes S is off by ((1 + u)**n - 1) S, where
    S holds what it may have been off before.  There are fewer than 2 many roundings, each of which
    may add t, and this grows as products do.
    """
    a, b = (spread(arg) for arg in args)
    added, (a_summed, b_summed) = _contraction(tv)
    if accumulator(tv) is DType.I32:
        value = wrap(added(a.value, b.value), DType.I32)
        return Estimate(DType.I32, value, undecided=_doubt(a, b, added))
    sums, handed = _sums(tv, partials), _handed_on(tv, partials)
    count = count_along(a, a_summed)
    if count == 0:
        return Estimate(DType.F32, torch.zeros(shape, dtype=torch.float64))
    value = added(a.value, b.value)
    cut, torn = ZERO, SURE
    if tv.args[0].dtype is DType.F32:
        a, b = _loosened(a), _loosened(b)
        for one, other in product_of(_cuts(a), _cuts(b)):
            moved = added(one, other)
            cut = torch.maximum(cut, (moved - value).abs().nan_to_num(0.0, 0.0, 0.0))
            torn = torn | (moved.isfinite() != value.isfinite())
    size_a, size_b = sizes(a), sizes(b)
    size = added(size_a, size_b)
    inherited = ZERO
    if bool((a.error > 0).any()) or bool((b.error > 0).any()):
        inherited = added(a.error, size_b) + added(size_a + a.error, b.error)
    steps = _steps([a.value.shape[axis] for axis in a_summed if axis >= 0], count, sums.step)
    aligned = _aligned(a, tv.args[0].dtype), _aligned(b, tv.args[1].dtype)
    held = added(*aligned)
    # What is added up lies between the products below and those above 0: half of both and the sum.
    either = torch.where(value.isfinite(), (held + value.abs()) / 2, held)
    wider = (1 + TF32) ** 2 if tv.args[0].dtype is DType.F32 else 1.0
    largest = added(_largest(aligned[0], a_summed), _largest(aligned[1], b_summed))
    every = None
    if longest is not None and wider == 1.0 and not bool((inherited > 0).any()):
        every = _every(tv, size_a, size_b)
        if (
            every is not None
            and torch.equal(aligned[0], size_a)
            and torch.equal(aligned[1], size_b)
        ):
            largest = every.amax(-1)
    whole, most, largest = (one * wider + inherited for one in (held, either, largest))
    many = _Many(count, steps, whole, most, largest, every)
    lost = _lost(sums, many, longest) + (steps + MORE) * sums.tiny
    grain = added(grain_along(size_a, a_summed), grain_along(size_b, b_summed))
    least = sums.tiny
    if handed is not None:
        lost = lost + handed.grows * (size + inherited + lost) + handed.adds
        least = max(least, handed.least)
    exact = (inherited == 0) & (held < sums.whole * grain) & (grain >= least)
    if handed is not None:  # what is rounded there are sums, not products that are aligned
        exact &= size < handed.whole * grain
    error = torch.where(value.isfinite(), cut + torch.where(exact, ZERO, inherited + lost), ZERO)
    overflows = size + inherited + lost > sums.largest
    doubt = ((overflows | torn) & ~value.isnan()) | _doubt(a, b, added)
    return Estimate(DType.F32, value, error, doubt)


@dataclass(frozen=True, eq=False, slots=True)
class _Many:
    """The products of each sum: how many, in how many steps at most, the sum of their magnitudes.

    With the most that is a part of it, the largest, and all one by one, along the last axis, where
    they are known and few.
    """

    count: int
    steps: int
    held: torch.Tensor
    most: torch.Tensor
    largest: torch.Tensor
    every: torch.Tensor | None


def _lost(sums: _Sums, made: _Many, longest: int | None) -> torch.Tensor:
    """Return what sums may lose, whichever products a step adds, and whichever steps a CTA.

    Notes
    -----
    In the first step the largest addend is a product, later it may be the sum so far; that is at
    most all products below 0 or all above, and what these may have lost.  Of what is cut off there
    a number loses what it has, and no more below a smaller power of two.

    A kernel that is not known may use other units for sums in f32: it obeys the contract.
    """
    fewest, steps = -(-made.count // sums.step), made.steps
    in_f32 = sums.seen == SEEN
    several = min(MORE, 2 + fewest / 4) if in_f32 else MORE
    seen = (fewest + several) * sums.seen * made.held
    rate = steps * ((sums.step + 1) * sums.cut + sums.kept)
    if (longest is None and in_f32) or rate >= 1 / 2:
        return seen
    most = made.most / (1 - rate)
    top = made.largest if steps == 1 else torch.maximum(made.largest, most)
    below = torch.ldexp(torch.ones_like(top), torch.frexp(top)[1] - 1) * sums.cut
    gone = (made.count - 1) * below
    if made.every is not None:
        gone = torch.where(below > 0, (made.every % below[..., None]).sum(-1), ZERO)
    # A product may be rounded before it is added.
    more = MORE * SEEN if longest is None else (longest + 1) * EPS[DType.F32] / 2
    sure = gone + (steps - 1) * below + steps * sums.kept * most + more * made.held
    return torch.minimum(sure * (1 + 2.0**-40), seen)


def _steps(extents: list[int], count: int, step: int) -> int:
    """Return in how many steps products are added at most: a step may stay within one axis."""
    return max((count // n * -(-n // step) for n in extents if n > 1), default=1)


def _every(tv: TensorView, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    """Return the products of two operands, summed axes last and as one; None of too many."""
    attrs = {key: [int(axis) for axis in value] for key, value in tv.attrs}
    reduced, rank = attrs["reduced"], len(attrs["a_axes"])

    def full(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
        has = [axis for axis in axes if axis >= 0]
        rest = [axis for axis in range(x.dim()) if axis not in has]  # of extent 1
        return x.permute(*has, *rest)[
            tuple(slice(None) if axis >= 0 else None for axis in axes) + (0,) * len(rest)
        ]

    one, other = full(a, attrs["a_axes"]), full(b, attrs["b_axes"])
    shape = torch.broadcast_shapes(one.shape, other.shape)
    if prod(shape) > FEW:
        return None
    kept = [axis for axis in range(rank) if axis not in reduced]
    made = (one * other).permute(*kept, *reduced)
    return made.reshape(*made.shape[: len(kept)], prod(made.shape[len(kept) :]))


def _largest(size: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Return the largest number along some axes, which stay."""
    for axis in dims:
        size = size.amax(axis, keepdim=True)
    return size


def _sums(tv: TensorView, partials: Partials | None) -> _Sums:
    """Return how sums are held: what is exact and in range is so on the way, too."""
    dtype = tv.args[0].dtype
    if accumulator(tv) is DType.F16:
        return _Sums(CUT, HALF, HALF, STEP[dtype], 2.0**11, *_F16)
    made = _Sums(CUT, EPS[DType.F32], SEEN, STEP[dtype], 2.0**24, *_F32)
    if dtype.is_f8:
        made = _Sums(F8_CUT, F8_CUT, F8_SEEN, STEP[dtype], 2.0**13, *_F32)
    if partials is None:
        return made
    largest = min(made.largest, torch.finfo(TORCH[partials.dtype]).max)
    return replace(made, largest=largest)


@dataclass(frozen=True, slots=True)
class _HandedOn:
    """What roundings on the way do to a sum: a share of its magnitudes, and a number.

    Every integer up to `whole` is held.
    """

    whole: float
    grows: float
    adds: float
    least: float


def _handed_on(tv: TensorView, partials: Partials | None) -> _HandedOn | None:
    if partials is None or accumulator(tv) is not DType.F32:
        return None
    dtype, many = partials.dtype, partials.many
    grown = (1 + EPS[dtype] / 2) ** max(many - 1, 1)
    return _HandedOn(2 / EPS[dtype], grown - 1, 2 * many * grown * TINY[dtype] / 2, TINY[dtype])


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


def _loosened(arg: Estimate) -> Estimate:
    """Let f32 operands that are not known to the bit lose what tf32 may not hold."""
    size = arg.value.abs() + arg.error
    lost = torch.where(arg.error > 0, torch.clamp(size * TF32, min=_CUT_LEAST), ZERO)
    torn = (lost > 0) & (size + lost > _F32[1])
    return replace(arg, error=arg.error + lost, least=NONE).doubt(torn)


def _cuts(arg: Estimate) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return known f32 operands as tf32: cut, and rounded to nearest, ties to even or away."""
    bits = arg.value.to(torch.float32).view(torch.int32)
    half, last = 1 << (_CUT_BITS - 1), (bits >> _CUT_BITS) & 1
    made = []
    for more in (0, half - 1 + last, half):
        held = ((bits + more) >> _CUT_BITS) << _CUT_BITS
        value = held.view(torch.float32).to(torch.float64)
        known = (arg.error == 0) & arg.value.isfinite()
        made.append(torch.where(known, value, arg.value))
    return made[0], made[1], made[2]


def _aligned(arg: Estimate, dtype: DType) -> torch.Tensor:
    """Return the magnitudes that tensor cores align: subnormals are as large as the least normal.

    The exponent of a product is the sum of those of its operands, and a subnormal has that of the
    least normal number.  Seen on an H100: in 8 bits -2**-9 * (2.5 + 0.1875 + 1.25 - 0.0625 - 2 +
    2**-10 + 0.75 - 0.5) without the 2**-10, whose product lies 11 bits below the largest; in f16,
    by wgmma and by mma, 2**-24 + 2**-24 * 2**-15 is exact, with 2**-16 it is 2**-24.
    """
    size = sizes(arg)
    least = torch.finfo(TORCH[dtype]).smallest_normal
    return torch.where(size > 0, size.clamp(min=least), ZERO)


def _doubt(a: Estimate, b: Estimate, added: Sum) -> torch.Tensor:
    """Return where an operand is open, or may be 0 where the other is infinite.

    A product with an operand that is NaN beyond doubt decides the sum.
    """
    doubt = torch.zeros((), dtype=torch.bool)
    for one, other in ((a, b), (b, a)):
        touches = (one.error > 0) & (one.value.abs() <= one.error)
        for here, there in (
            (one.open, torch.ones_like(other.open)),
            (touches, other.value.isinf()),
        ):
            if bool(here.any()) and bool(there.any()):
                mine, yours = here.to(torch.float64), there.to(torch.float64)
                met = added(mine, yours) if one is a else added(yours, mine)
                doubt = doubt | (met > 0)
    if bool(doubt.any()):
        nan_a, nan_b = ((one.value.isnan() & ~one.undecided).to(torch.float64) for one in (a, b))
        nans = added(nan_a, torch.ones_like(nan_b)) + added(torch.ones_like(nan_a), nan_b)
        doubt = doubt & (nans == 0)
    return doubt
