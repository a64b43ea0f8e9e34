"""What the reference computes for every operation: one row of ROWS each.

The error arithmetic is in `estimate`; the ulp bounds of the float functions are ULPS below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch.nn import functional

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from oracles.reference.estimate import (
    EPS,
    NONE,
    TINY,
    ZERO,
    Estimate,
    approximated,
    contractible,
    convert,
    corners,
    cut_to_8_bits,
    keep_signs,
    knows_least,
    near_zero,
    nearest,
    no_negative_zero,
    rounded,
    steps,
    unsure,
    wrap,
)
from oracles.reference.products import multiply_sum
from oracles.reference.sums import REDUCTIONS, Args, Row

ULPS: dict[str, tuple[float, float]] = {
    "exp": (3, 3),
    "exp2": (3, 3),
    "expm1": (2, 3),
    "log": (2, 3),
    "log1p": (2, 3),
    "log2": (2, 3),
    "log10": (3, 3),
    "rsqrt": (3, 3),
    "sin": (3, 4),
    "cos": (3, 4),
    "tan": (5, 4),
    "asin": (3, 4),
    "acos": (3, 4),
    "atan": (3, 4),
    "atan2": (4, 4),
    "sinh": (4, 4),
    "cosh": (3, 4),
    "tanh": (3, 4),
    "erf": (3, 4),
    "erfc": (5, 7),
    "pow": (6, 6),
    "sigmoid": (8, 8),
    "silu": (10, 10),
    "gelu": (16, 16),
    "gelu_tanh": (16, 16),
}
"""Error of each function in units in the last place, when computed in f32 and in f64.

One more than the CUDA C++ Programming Guide, mathematical functions, states; f64 also pays for
our own evaluation.  add, sub, mul, div, sqrt and reciprocal are not here: they round correctly, but
for quotients in 16 bits.  The last four are compositions; see `_absolute` for what they may lose
besides.
"""

_COMPOSED = ("sigmoid", "silu", "gelu", "gelu_tanh")
"""Functions that are compositions of others."""

Shape = tuple[int, ...]
Function = Callable[..., torch.Tensor]


# --- division, right for every operand ------------------------------------------------------
#
# torch's own float versions give NaN on the CPU where the quotient overflows (their fmod is
# vectorised); its integer versions raise or trap at zero and at the least integer over -1.


def fmod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the exact remainder with the sign of a; NaN where b is 0 or a is inf."""
    with np.errstate(all="ignore"):
        part = np.fmod(a.numpy(), b.numpy())
    return torch.as_tensor(part, dtype=a.dtype)


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a - b * floor(a / b) of floats, with the sign of b."""
    part = fmod(a, b)
    return torch.where((part != 0) & ((b < 0) != (part < 0)), part + b, part)


def floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return floor(a / b) of floats, of the exact quotient while it fits the mantissa."""
    part = fmod(a, b)
    quotient = (a - part) / b
    quotient = torch.where((part != 0) & ((b < 0) != (part < 0)), quotient - 1, quotient)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    whole = torch.where(quotient == 0, torch.copysign(whole, a / b), whole)
    return torch.where(b == 0, a / b, whole)


def int_floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return floor(a / b) of integers; wraps for b = -1, and is some number for b = 0."""
    plain = torch.where((b == 0) | (b == -1), 1, b)
    return torch.where(b == -1, -a, torch.floor_divide(a, plain))


def int_remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the remainder of integers with the sign of b; some number for b = 0."""
    plain = torch.where((b == 0) | (b == -1), 1, b)
    return torch.where(b == -1, 0, torch.remainder(a, plain))


def square_root(x: torch.Tensor) -> torch.Tensor:
    """Return the correctly rounded square root; torch's is 1 ulp off for 1 in 100 f64 numbers."""
    with np.errstate(invalid="ignore"):
        root = np.sqrt(x.numpy())
    return torch.as_tensor(root, dtype=x.dtype)


def _reshapes(
    function: Callable[[TensorView, torch.Tensor, Shape], torch.Tensor],
    tv: TensorView,
    args: Args,
    shape: Shape,
) -> Estimate:
    """Move elements; all parts of the estimate go the same way."""
    (x,) = args
    full = x.value.shape
    return Estimate(
        x.dtype,
        function(tv, x.value, shape),
        function(tv, x.error.expand(full), shape),
        function(tv, x.undecided.expand(full), shape),
        function(tv, x.least.expand(full), shape) if knows_least(x) else NONE,
        x.signed,
    )


def _sliced(tv: TensorView, x: torch.Tensor, shape: Shape) -> torch.Tensor:
    (axis,), (start,), (step,) = (map(int, value) for _, value in tv.attrs)
    index = start + step * torch.arange(shape[axis])
    return x.index_select(axis, index)


def _cat(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Join elements; all parts of the estimates go the same way."""
    ((axis,),) = (map(int, value) for _, value in tv.attrs)
    full = [arg.value.shape for arg in args]
    errors = [arg.error.expand(n) for arg, n in zip(args, full, strict=True)]
    doubts = [arg.undecided.expand(n) for arg, n in zip(args, full, strict=True)]
    return Estimate(
        args[0].dtype,
        torch.cat([arg.value for arg in args], axis),
        torch.cat(errors, axis),
        torch.cat(doubts, axis),
        signed=all(arg.signed for arg in args),
    )


def _gather(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Take elements; all parts of the estimate go the same way."""
    x, index = args
    ((axis,),) = (map(int, value) for _, value in tv.attrs)
    many = x.value.shape[axis]
    full = (*shape[:axis], many, *shape[axis + 1 :])
    outside = ((index.value < 0) | (index.value >= many)).expand(shape)
    where = index.value.expand(shape).clamp(0, max(many - 1, 0))

    def taken(part: torch.Tensor) -> torch.Tensor:
        whole = part.expand(x.value.shape).expand(full)
        return whole.gather(axis, where) if many else torch.zeros(shape, dtype=part.dtype)

    doubt = taken(x.undecided) | outside | index.open
    return Estimate(x.dtype, taken(x.value), taken(x.error), doubt, signed=x.signed)


def _full(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    (x,) = args
    return Estimate(x.dtype, x.value.expand(shape), x.error, x.undecided, signed=x.signed)


# --- rows: (tensor, converted operands, its shape) -> estimate ------------------------------


def _exactly(function: Function, args: Args, dtype: DType | None = None) -> Estimate:
    """Evaluate on integers or bool."""
    dtype = dtype or args[0].dtype
    value = function(*(arg.value for arg in args))
    if dtype is DType.BOOL:  # false or true, whatever the operands may be
        return Estimate(dtype, value.to(torch.bool), unsure(args).to(torch.float64))
    return Estimate(dtype, wrap(value, dtype), undecided=unsure(args))


def _selects(
    function: Function, tv: TensorView, args: Args, shape: Shape, on_bool: Function | None = None
) -> Estimate:
    """Functions that return an operand or its negative: nothing to round."""
    if args[0].dtype.is_float:
        made, (x, *more) = corners(function, *args), args
        if tv.op == "abs":
            return replace(made, least=ZERO, signed=True)
        # Of 0.0 and -0.0 the maximum may be either, and so may relu of -0.0.
        chooses = bool(more) or tv.op == "relu"
        made = replace(made, signed=no_negative_zero(*args) if chooses else x.signed)
        if tv.op == "relu":
            return replace(made, least=torch.where((x.high() < 0) | (x.low() > 0), ZERO, NONE))
        return made
    use = on_bool if on_bool and args[0].dtype is DType.BOOL else function
    return _exactly(use, args)


def _nibble(x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """Return the lower or upper four bits of bytes, of which the highest has the value -8."""
    bits = torch.where(which % 2 == 1, torch.div(x % 256, 16, rounding_mode="floor"), x % 16)
    return torch.where(bits < 8, bits, bits - 16)


def _rounds(function: Function, tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Functions that are rounded correctly and monotone in each operand."""
    dtype = args[0].dtype
    return rounded(corners(function, *args), dtype) if dtype.is_float else _exactly(function, args)


def _pole(divisor: Estimate) -> torch.Tensor:
    """Tell where a divisor may be 0 of a sign that is open."""
    near = near_zero(divisor)
    return near if divisor.signed else near | ((divisor.value == 0) & (divisor.least < 0))


def _nan_quotient(args: Args) -> torch.Tensor:
    """Tell where a quotient of two is NaN, whatever sign its 0 has: 0 / 0, and that of NaN."""
    dividend, divisor = args
    zero = (dividend.value == 0) & (divisor.value == 0) & (divisor.error == 0)
    return (zero | dividend.value.isnan()) & (dividend.error == 0)


_LEAST_NORMAL = torch.finfo(torch.float32).smallest_normal


def _divides(function: Function, tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Correctly rounded, with a pole where the last operand is 0.

    A quotient of tensors that the fusion has in 16 bits may be the product with a reciprocal, off
    by two units in the last place of f32, also where f32 is kept of it.  Subnormal ones in f32 are
    off by the least one: a quotient may be rounded before it is mended (Markstein's theorem asks
    for normal ones).
    """
    exact, dtype = corners(function, *args), args[0].dtype
    of_tensors = tv.op == "div" and isinstance(tv.args[-1], TensorView)
    if of_tensors and dtype is DType.F32:
        subnormal = (exact.value != 0) & (exact.value.abs() < _LEAST_NORMAL)
        exact = replace(exact, error=exact.error + torch.where(subnormal, TINY[dtype], ZERO))
    rough = of_tensors and tv.dtype in (DType.F16, DType.BF16)
    found = approximated(exact, dtype, ulps=2) if rough else rounded(exact, dtype)
    pole = _pole(args[-1])
    return found.doubt(pole & ~_nan_quotient(args) if tv.op == "div" else pole)


def _monotone(function: Function, tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Float functions of one operand that only rise or only fall, or are even and convex (cosh)."""
    (x,) = args
    ulps, lost = _ulps(tv.op, x.dtype), _absolute(tv, x)
    exact = corners(function, x)
    result = _certain(tv, x, approximated(exact, x.dtype, ulps=ulps, absolute=lost))
    if tv.op in ("exp", "exp2"):
        end = Estimate(x.dtype, x.low())
        lost = _absolute(tv, end)
        end = approximated(corners(function, end), x.dtype, ulps=ulps, absolute=lost)
        return replace(result, least=end.low().clamp(min=0))
    if tv.op in ("asin", "acos"):  # NaN on both sides of what they are defined for
        return result.doubt((x.value.abs() > 1) & (x.low() < 1) & (x.high() > -1))
    if tv.op == "cosh":  # inf at both ends, and not between
        return result.doubt(result.value.isinf() & (x.low() < 0) & (x.high() > 0))
    return result.doubt(_pole(x)) if tv.op == "rsqrt" else result


def _smooth(
    function: Function, tv: TensorView, args: Args, shape: Shape, *, slope: float
) -> Estimate:
    """Float functions of one operand whose derivative is at most `slope` in magnitude."""
    (x,) = args
    value = function(x.value)
    error = torch.where(value.isfinite(), x.error * slope, ZERO)
    if tv.op in ("sin", "cos"):
        error = error.clamp(max=2.0)
    exact = Estimate(x.dtype, value, error, x.undecided)
    ulps, lost = _ulps(tv.op, x.dtype), _absolute(tv, x)
    return _certain(tv, x, approximated(exact, x.dtype, ulps=ulps, absolute=lost))


def _tan(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Tangent: it rises from pole to pole."""
    (x,) = args
    over = (x.error >= 1.5) | (torch.tan(x.high()) < torch.tan(x.low()))
    exact = corners(torch.tan, x).doubt((x.error > 0) & over)
    return approximated(exact, x.dtype, ulps=_ulps("tan", x.dtype))


def _atan2(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Return the angle of a point: it jumps where a is 0 and b is not above."""
    a, b = args
    jumps = (_pole(a) & (b.low() <= 0)) | ((a.value == 0) & _pole(b))
    exact = corners(torch.atan2, a, b).doubt(jumps)
    return approximated(exact, a.dtype, ulps=_ulps("atan2", a.dtype))


def _certain(tv: TensorView, x: Estimate, result: Estimate) -> Estimate:
    """Let functions of 0 and of infinities that are 0, 1 or -1 have no error.

    Source: CUDA Math API, single and double precision mathematical functions, the special values of
    each; PTX ISA, ex2.approx.  Of compositions that is sure of a product with 0 only.
    """
    whole = result.value == 0
    end = x.value == 0
    if tv.op not in _COMPOSED:
        whole, end = whole | (result.value.abs() == 1), end | x.value.isinf()
    return replace(result, error=torch.where((x.error == 0) & end & whole, ZERO, result.error))


def _ulps(op: str, dtype: DType) -> float:
    return ULPS[op][0 if dtype is DType.F32 else 1]


def _absolute(tv: TensorView, x: Estimate) -> torch.Tensor:
    """Return what a function may lose besides its ulps.

    In 16 bits exp(x) is a power of 2, whose exponent is rounded to f32, and may vanish early.
    exp(-x) overflows before sigmoid and silu vanish, so they may vanish early, at the least
    normal number; the two gelus cancel, and lose a little of abs(x).
    """
    size = torch.where(x.value.isfinite(), x.value.abs() + x.error, ZERO)
    least = 2.0**-126 if x.dtype is DType.F32 else 2.0**-1022
    match tv.op:
        case "exp" if tv.dtype in (DType.F16, DType.BF16):
            lost = x.value.exp() * size * EPS[DType.F32]
            return least + torch.where(lost.isfinite(), lost, ZERO)
        case "sigmoid":
            return torch.full_like(size, least)
        case "silu":
            return size * least
        case "gelu" | "gelu_tanh":
            return size * (3e-6 if x.dtype is DType.F32 else 64 * EPS[DType.F64])
        case _:
            return ZERO


def _stepwise(function: Function, tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Floor and its like: exact, with jumps."""
    if not args[0].dtype.is_float:
        return _exactly(function, args)
    made = steps(function, args[0])
    return replace(made, signed=False) if tv.op == "sign" else made


def _compares(function: Function, tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Comparisons: either where the operands come too close."""
    a, b = args
    result = _exactly(function, args, DType.BOOL)
    if not a.dtype.is_float:
        return result
    meet = (a.low() <= b.high()) & (b.low() <= a.high()) & ((a.error > 0) | (b.error > 0))
    return replace(result, error=torch.maximum(result.error, meet.to(torch.float64)))


def order(x: torch.Tensor) -> torch.Tensor:
    """Return integers of 32 bits that order like numbers of an f32: NaN above all."""
    if not x.is_floating_point():
        return x.to(torch.int64)
    bits = (x + 0.0).to(torch.float32).view(torch.int32).to(torch.int64)
    return torch.where(x.isnan(), 2**31 - 1, torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits))


def _order(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    (x,) = args
    made = _exactly(order, args, DType.I64)
    apart = torch.maximum(order(x.high()) - made.value, made.value - order(x.low()))
    return replace(made, error=torch.where(x.error > 0, apart.to(torch.float64), ZERO))


def _asks(function: Function, tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Questions about each operand alone; `logical_*` first make bool of it."""
    if tv.op.startswith("logical"):
        args = tuple(convert(arg, DType.BOOL) for arg in args)
    return _exactly(function, args, DType.BOOL)


def times(a: Estimate, b: Estimate) -> Estimate:
    """Multiply; the product may stay unrounded until the add that uses it."""
    if a.dtype is DType.BOOL:
        return _exactly(torch.logical_and, (a, b))
    if not a.dtype.is_float:
        return _exactly(torch.mul, (a, b))
    whole = (a.value == a.value.trunc()) & (b.value == b.value.trunc())
    exact = replace(corners(torch.mul, a, b), signed=keep_signs(a, b))
    product = contractible(exact, a.dtype, whole)
    if a.dtype is DType.F64:
        return product.doubt(product.value.isinf() & a.value.isfinite() & b.value.isfinite())
    return product


def plus(a: Estimate, b: Estimate) -> Estimate:
    """Add."""
    if not a.dtype.is_float:
        return _exactly(torch.add, (a, b))
    made = rounded(corners(torch.add, a, b), a.dtype)
    if not knows_least(a) and not knows_least(b):
        return made
    end = torch.nextafter(a.low() + b.low(), NONE)
    return replace(made, least=nearest(end, a.dtype))


def _add(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Add; of bool, or."""
    return _exactly(torch.logical_or, args) if args[0].dtype is DType.BOOL else plus(*args)


def _mul(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Multiply; a square is not negative."""
    made = times(*args)
    square = tv.args[0] is tv.args[1] and made.dtype.is_float
    return replace(made, least=ZERO) if square else made


def minus(a: Estimate, b: Estimate) -> Estimate:
    """Subtract."""
    return rounded(corners(torch.sub, a, b), a.dtype)


def _pow(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    a, b = args
    if not a.dtype.is_float:
        return _exactly(torch.pow, args)
    exact = corners(torch.pow, a, b)
    # Of a number below 0 only whole exponents have a power.
    below, above = b.low(), b.high()
    fraction = (below.floor() == above.floor()) & (below != below.floor())
    never = (a.high() < 0) & fraction & above.isfinite()
    risky = ((a.error > 0) | (b.error > 0)) & (a.low() <= 0) & ~never
    whole = (b.error == 0) & (b.value == b.value.floor())
    straddles = risky & (a.high() >= 0)
    valley = (torch.zeros_like(a.value).pow(b.value) - exact.value).abs()
    error = torch.where(straddles & (b.value >= 0), valley.nan_to_num(0.0, 0.0, 0.0), ZERO)
    fine = whole & ((b.value >= 0) | ~straddles)
    # Of NaN the power 0 is 1, and so is any power of 1, NaN too.
    no_exponent = a.value.isnan() & (b.error > 0) & (b.low() <= 0) & (b.high() >= 0)
    no_base = b.value.isnan() & (a.error > 0) & (a.low() <= 1) & (a.high() >= 1)
    exact = replace(exact, error=torch.maximum(exact.error, error)).doubt(
        risky & ~fine | _pole(a) & (b.value < 0) | no_exponent | no_base
    )
    return approximated(exact, a.dtype, ulps=_ulps("pow", a.dtype))


def _floor_div(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    a, b = args
    if not a.dtype.is_float:
        return _exactly(int_floor_divide, args).doubt(b.value == 0)
    exact = corners(floor_divide, a, b)
    # The remainder repairs the quotient to an integer; a quotient this large needs no integer.
    large = (exact.value.abs() >= 0.25 / EPS[a.dtype]) & exact.value.isfinite()
    slack = torch.where(large, 3 * EPS[a.dtype] * exact.value.abs() + 1, ZERO)
    return rounded(replace(exact, error=exact.error + slack), a.dtype).doubt(_pole(b))


def _remainder(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    a, b = args
    if not a.dtype.is_float:
        return _exactly(int_remainder, args).doubt(b.value == 0)
    turns = corners(floor_divide, a, b)
    torn = (turns.error > 0) | turns.undecided | ((b.error > 0) & (b.value.abs() <= b.error))
    value = remainder(a.value, b.value)
    error = a.error + (turns.value.abs() * b.error).nan_to_num(0.0, 0.0, 0.0)
    error = torch.where(value.isfinite(), error, ZERO)
    return rounded(Estimate(a.dtype, value, error, unsure(args)), a.dtype).doubt(torn)


def pick(condition: Estimate, a: Estimate, b: Estimate) -> Estimate:
    """Choose by condition; where that is open, both branches are right, and what lies between."""
    value = torch.where(condition.value, a.value, b.value)
    error = torch.where(condition.value, a.error, b.error)
    undecided = torch.where(condition.value, a.undecided, b.undecided)
    apart = (a.value.to(torch.float64) - b.value.to(torch.float64)).abs()
    gap = torch.where(a.value == b.value, 0.0, apart)
    error = torch.where(condition.open, gap + torch.maximum(a.error, b.error), error)
    torn = ~gap.isfinite() & ~(a.value.isnan() & b.value.isnan())
    open_ = condition.open & (torn | a.undecided | b.undecided)
    error = torch.where(error.isfinite(), error, ZERO)
    signed = a.signed and b.signed and not bool(condition.open.any())
    return Estimate(a.dtype, value, error, (undecided & ~condition.open) | open_, signed=signed)


def _clamp(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    def clamp(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        return torch.minimum(torch.maximum(x, low), high)

    if not args[0].dtype.is_float:
        return _exactly(clamp, args)
    return replace(corners(clamp, *args), signed=no_negative_zero(*args))


def _lerp(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    a, b, weight = args
    dtype = weight.dtype
    half = Estimate(dtype, torch.tensor(0.5, dtype=torch.float64))
    one = Estimate(dtype, torch.tensor(1.0, dtype=torch.float64))
    size = corners(torch.abs, weight)
    near = _compares(torch.lt, tv, (size, half), shape)
    gap = minus(b, a)
    return pick(near, plus(a, times(weight, gap)), minus(b, times(gap, minus(one, weight))))


def _philox(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    """Ten rounds on words of 32 bits, held in 64: products wrap, their bits are right."""

    def words(seed: torch.Tensor, stream: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        def low(x: torch.Tensor) -> torch.Tensor:
            return x & 0xFFFFFFFF

        def high(x: torch.Tensor) -> torch.Tensor:
            return low(x >> 32)

        count = (place >> 2) & 0x3FFFFFFFFFFFFFFF
        k, c = (low(seed), high(seed)), (low(count), high(count), low(stream), high(stream))
        for _ in range(10):
            a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = (high(b) ^ c[1] ^ k[0], low(b), high(a) ^ c[3] ^ k[1], low(a))
            k = (low(k[0] + 0x9E3779B9), low(k[1] + 0xBB67AE85))
        every = torch.stack(torch.broadcast_tensors(*c, place)[:4])
        return every.gather(0, (place & 3).expand(every.shape[1:])[None])[0]

    return _exactly(words, args, DType.I64)


def _addcmul(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    x, a, b, value = args
    return plus(x, times(value, times(a, b)))


def _cast(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    (x,) = args
    if tv.dtype in (DType.F16, DType.BF16) and x.dtype is DType.F32:
        least = nearest(x.least, tv.dtype) if knows_least(x) else NONE
        return replace(rounded(x, tv.dtype), dtype=DType.F32, least=least)
    if tv.dtype.is_f8:
        return cut_to_8_bits(x, tv.dtype)
    return convert(x, tv.dtype)


def _iota(tv: TensorView, args: Args, shape: Shape) -> Estimate:
    start, step = args
    index = Estimate(DType.I64, torch.arange(shape[0], dtype=torch.int64))
    return plus(start, times(convert(index, start.dtype), step))


ROWS: dict[str, Row] = {
    "abs": partial(_selects, torch.abs),
    "neg": partial(_selects, torch.neg),
    "relu": partial(_selects, torch.relu),
    "set": partial(_selects, torch.clone),
    "sign": partial(_stepwise, torch.sign),
    "floor": partial(_stepwise, torch.floor),
    "ceil": partial(_stepwise, torch.ceil),
    "round": partial(_stepwise, torch.round),
    "trunc": partial(_stepwise, torch.trunc),
    "exp": partial(_monotone, torch.exp),
    "exp2": partial(_monotone, torch.exp2),
    "expm1": partial(_monotone, torch.expm1),
    "log": partial(_monotone, torch.log),
    "log1p": partial(_monotone, torch.log1p),
    "log2": partial(_monotone, torch.log2),
    "log10": partial(_monotone, torch.log10),
    "rsqrt": partial(_monotone, torch.rsqrt),
    "tan": _tan,
    "asin": partial(_monotone, torch.asin),
    "acos": partial(_monotone, torch.acos),
    "atan": partial(_monotone, torch.atan),
    "sinh": partial(_monotone, torch.sinh),
    "cosh": partial(_monotone, torch.cosh),
    "tanh": partial(_monotone, torch.tanh),
    "erf": partial(_monotone, torch.erf),
    "erfc": partial(_monotone, torch.erfc),
    "sigmoid": partial(_monotone, torch.sigmoid),
    "sqrt": partial(_rounds, square_root),
    "reciprocal": partial(_divides, torch.reciprocal),
    "sin": partial(_smooth, torch.sin, slope=1.0),
    "cos": partial(_smooth, torch.cos, slope=1.0),
    "silu": partial(_smooth, functional.silu, slope=1.1),
    "gelu": partial(_smooth, functional.gelu, slope=1.13),
    "gelu_tanh": partial(_smooth, lambda x: functional.gelu(x, approximate="tanh"), slope=1.13),
    "isnan": partial(_asks, torch.isnan),
    "isinf": partial(_asks, torch.isinf),
    "isfinite": partial(_asks, torch.isfinite),
    "logical_not": partial(_asks, torch.logical_not),
    "order": _order,
    "bitwise_not": partial(_selects, torch.bitwise_not),
    "cast": _cast,
    "add": _add,
    "sub": partial(_rounds, torch.sub),
    "mul": _mul,
    "div": partial(_divides, torch.div),
    "atan2": _atan2,
    "floor_div": _floor_div,
    "remainder": _remainder,
    "pow": _pow,
    "maximum": partial(_selects, torch.maximum, on_bool=torch.logical_or),
    "minimum": partial(_selects, torch.minimum, on_bool=torch.logical_and),
    "eq": partial(_compares, torch.eq),
    "ne": partial(_compares, torch.ne),
    "lt": partial(_compares, torch.lt),
    "le": partial(_compares, torch.le),
    "gt": partial(_compares, torch.gt),
    "ge": partial(_compares, torch.ge),
    "logical_and": partial(_asks, torch.logical_and),
    "logical_or": partial(_asks, torch.logical_or),
    "logical_xor": partial(_asks, torch.logical_xor),
    "bitwise_and": partial(_selects, torch.bitwise_and),
    "bitwise_or": partial(_selects, torch.bitwise_or),
    "bitwise_xor": partial(_selects, torch.bitwise_xor),
    "nibble": partial(_selects, _nibble),
    "where": lambda tv, args, shape: pick(*args),
    "clamp": _clamp,
    "lerp": _lerp,
    "philox": _philox,
    "addcmul": _addcmul,
    "mma": multiply_sum,
    **REDUCTIONS,
    "broadcast": partial(_reshapes, lambda tv, x, shape: x.reshape(shape)),
    "expand": partial(_reshapes, lambda tv, x, shape: x.expand(shape)),
    "squeeze": partial(_reshapes, lambda tv, x, shape: x.reshape(shape)),
    "permute": partial(
        _reshapes, lambda tv, x, shape: x.permute(*map(int, dict(tv.attrs)["dims"]))
    ),
    "slice": partial(_reshapes, _sliced),
    "flatten": partial(_reshapes, lambda tv, x, shape: x.reshape(shape)),
    "unflatten": partial(_reshapes, lambda tv, x, shape: x.reshape(shape)),
    "cat": _cat,
    "gather": _gather,
    "full": _full,
    "iota": _iota,
}
"""What every operation of `fuser.fusion.ops.OPS` does."""
