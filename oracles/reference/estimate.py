"""Arithmetic on numbers with errors: a value in f64, how far a right kernel may be off, and doubt.

This is running error analysis: every operation evaluates its function at the value and at the
ends of the intervals of its operands, then adds its own rounding.  It knows functions, not ops.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import torch

from fuser.dtype import DType

TORCH = {dtype: getattr(torch, dtype.torch_name) for dtype in DType}
"""torch's element type for each of ours."""

EPS = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
"""Distance from 1 to the next number; half of it is the relative error of one rounding."""

TINY = {DType.F64: 2.0**-1074, DType.F32: 2.0**-149, DType.F16: 2.0**-24, DType.BF16: 2.0**-133}
"""Least subnormal: an ulp is never smaller."""

_NOISE = 2.0**-51
"""Allowance for the rounding of our own f64 arithmetic, relative to the value."""

_WIDER = 1 + 2.0**-20
"""Allowance for the rounding of our own error terms."""

_BITS = {DType.I8: 8, DType.I32: 32, DType.I64: 64}

ZERO = torch.zeros((), dtype=torch.float64)
"""The error of exact numbers."""

SURE = torch.zeros((), dtype=torch.bool)
"""No doubt about any element."""

NONE = torch.tensor(-torch.inf, dtype=torch.float64)
"""The least of all numbers."""


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """A tensor as the reference knows it; the parts broadcast against each other.

    Parameters
    ----------
    dtype : DType
        Type in which a kernel holds it: f64, f32, i64, i32, i8 or bool (shorter floats as f32).
    value : torch.Tensor
        f64, i64 or bool.
    error : torch.Tensor
        f64: a kernel that obeys the contract is at most this far from `value`.  Integers and bool
        have one where a cast or a comparison hangs on rounding.
    undecided : torch.Tensor
        bool: where the kernel may be anything.
    least : torch.Tensor
        f64: what a kernel holds is at least this, also where `error` reaches further down; where it
        is not below 0, a zero has no sign.
    signed : bool
        Whether a zero without an error has the sign that it has in `value`.
    """

    dtype: DType
    value: torch.Tensor
    error: torch.Tensor = ZERO
    undecided: torch.Tensor = SURE
    least: torch.Tensor = NONE
    signed: bool = False

    @property
    def open(self) -> torch.Tensor:
        """Where nothing can be computed of it exactly: undecided, or no float and not known."""
        return self.undecided if self.dtype.is_float else self.undecided | (self.error > 0)

    def low(self) -> torch.Tensor:
        """Return the least value a right kernel may hold, rounded outwards."""
        return torch.maximum(self._end(-self.error, -torch.inf), self.least)

    def high(self) -> torch.Tensor:
        """Return the greatest value a right kernel may hold, rounded outwards."""
        return self._end(self.error, torch.inf)

    def _end(self, by: torch.Tensor, outwards: float) -> torch.Tensor:
        value = self.value.to(torch.float64)
        end = value + by
        moved = end - value
        exact = (value - (end - moved)) + (by - moved) == 0  # Knuth's two-sum
        out = torch.nextafter(end, torch.tensor(outwards, dtype=torch.float64))
        return torch.where(self.error > 0, torch.where(exact, end, out), value)

    def doubt(self, where: torch.Tensor) -> "Estimate":
        """Return the same estimate, undecided also in `where`."""
        return replace(self, undecided=self.undecided | where)


Function = Callable[..., torch.Tensor]


def nearest(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Round f64 values to a float dtype, to nearest even, overflow to inf; the result is f64.

    f8e4m3 has no inf, and its largest number in its place; torch before 2.12 has NaN there.
    """
    if dtype is DType.F8E4M3:
        value = value.clamp(-448.0, 448.0)
    if dtype in (DType.F16, DType.BF16):
        value = value.to(torch.float32)
    return value.to(TORCH[dtype]).to(torch.float64)


def unsure(args: tuple[Estimate, ...]) -> torch.Tensor:
    """Return where any of the operands is open."""
    result = SURE
    for arg in args:
        result = result | arg.open
    return result


def knows_least(arg: Estimate) -> bool:
    """Tell whether anything is known of what a number is at least, besides its error."""
    return arg.least is not NONE


def near_zero(arg: Estimate) -> torch.Tensor:
    """Return where a number that is not known may be 0, of whichever sign."""
    return (arg.error > 0) & (arg.low() <= 0) & (arg.high() >= 0)


def keep_signs(*args: Estimate) -> bool:
    """Tell whether all that may be 0 among these is a known zero of a known sign."""
    return all(arg.signed for arg in args) and not any(bool(near_zero(a).any()) for a in args)


def no_negative_zero(*args: Estimate) -> bool:
    """Tell whether all that may be 0 among these is surely +0.0."""
    negative = ((arg.value == 0) & arg.value.signbit() for arg in args)
    return keep_signs(*args) and not any(bool(some.any()) for some in negative)


def corners(function: Function, *args: Estimate) -> Estimate:
    """Evaluate a function that is monotone in each operand, before its own rounding.

    The error is the greatest distance of a corner of the operands' box; where a corner is of
    another class (inf, -inf, NaN, finite) than the value, the result is undecided.
    """
    value = function(*(arg.value for arg in args))
    error, undecided = ZERO, unsure(args)
    ends = [_ends(arg) for arg in args]
    if any(len(pair) > 1 for pair in ends):
        for corner in product(*ends):
            there = function(*corner)
            undecided = undecided | (_class(there) != _class(value))
            error = torch.maximum(error, (there - value).abs().nan_to_num(0.0, 0.0, 0.0))
    return Estimate(args[0].dtype, value, _finite_only(error, value), undecided)


def steps(function: Function, arg: Estimate) -> Estimate:
    """Evaluate a monotone step function; where the operand straddles steps, it is any of them."""
    value = function(arg.value)
    low, high = function(arg.low()), function(arg.high())
    straddles = torch.where(arg.error > 0, torch.maximum(high - value, value - low), ZERO)
    # A float this large is an integer already: rounding functions return it as it is.
    whole = (arg.value.abs() - arg.error >= 2 / EPS[arg.dtype]) & arg.value.isfinite()
    keeps = whole & (value.abs() > 1)
    value = torch.where(keeps, arg.value, value)
    error = torch.where(keeps, arg.error, torch.where(whole, ZERO, straddles))
    error = _finite_only(error, value)
    either = near_zero(arg) & (error == 0)
    if not arg.signed:
        either = either | ((arg.value == 0) & (arg.error == 0))
    return Estimate(arg.dtype, value, error, arg.undecided, signed=not bool(either.any()))


def rounded(exact: Estimate, dtype: DType) -> Estimate:
    """Round correctly to a float dtype (to nearest even); known operands give a known result."""
    value, spread = exact.value, exact.error
    known = spread == 0
    reach = torch.where(known, ZERO, spread * _WIDER + value.abs() * _NOISE)
    low, high = nearest(value - reach, dtype), nearest(value + reach, dtype)
    if dtype is DType.F64:
        reach = reach + torch.where(known, ZERO, value.abs() * EPS[dtype])
        low, high = value - reach, value + reach
    result = torch.where(known, nearest(value, dtype), value)
    error = torch.where(known, ZERO, torch.maximum(high - value, value - low))
    return _by_class(result, error, low, high, dtype, exact)


def contractible(exact: Estimate, dtype: DType, whole: torch.Tensor | None = None) -> Estimate:
    """Round a product that may or may not be rounded before it is added (FMA).

    `whole` tells where both factors are whole numbers: in f64 others are rounded here, too.
    """
    value, reach = exact.value, exact.error * _WIDER
    if dtype is DType.F64:
        small = (value.abs() <= 2.0**53) & (exact.error == 0)
        known = small & (value == 0 if whole is None else whole | (value == 0))
        half = torch.where(known, ZERO, value.abs() * EPS[dtype] + TINY[dtype])
        low, high = value - reach - half, value + reach + half
    else:
        low, high = nearest(value - reach, dtype), nearest(value + reach, dtype)
    error = torch.maximum(torch.maximum(high - value, value - low), reach)
    result = _by_class(value, error, low, high, dtype, exact)
    # A product that overflows alone may come back into range inside an FMA.
    biggest = torch.finfo(TORCH[dtype]).max
    return result.doubt(result.value.isinf() & (value.abs() < 3 * biggest))


def rounded_or_not(held: Estimate, dtype: DType) -> Estimate:
    """Hold a number that may have been rounded to a dtype of 16 bits on its way, or may not.

    Undecided where that dtype has inf in its place; other dtypes change nothing.
    """
    if dtype not in (DType.F16, DType.BF16):
        return held
    value, reach = held.value, held.error * _WIDER
    low, high = nearest(value - reach, dtype), nearest(value + reach, dtype)
    maybe = value.isfinite() & (low.isinf() | high.isinf())
    error = torch.maximum(torch.maximum(high - value, value - low), reach)
    error = torch.where(maybe, ZERO, _finite_only(error, value))
    return Estimate(held.dtype, value, error, held.undecided | maybe, signed=held.signed)


def approximated(
    exact: Estimate, dtype: DType, *, ulps: float, absolute: torch.Tensor = ZERO
) -> Estimate:
    """Add the error of a function that is right to `ulps` units in the last place."""
    reach = exact.error * _WIDER + absolute
    ulp = torch.clamp((exact.value.abs() + reach) * EPS[dtype], min=TINY[dtype])
    error = reach + ulps * ulp
    low, high = nearest(exact.value - error, dtype), nearest(exact.value + error, dtype)
    return _by_class(exact.value, error, low, high, dtype, exact)


def convert(arg: Estimate, dtype: DType) -> Estimate:
    """Convert to another dtype as a cast does; f16 and bf16 are held in f32."""
    if arg.dtype is dtype or dtype.is_f8:  # nothing is computed in those: they hold their numbers
        return arg
    if dtype is DType.BOOL:
        zero = (arg.error > 0) & (arg.value.to(torch.float64).abs() <= arg.error)
        return Estimate(dtype, arg.value != 0, zero.to(torch.float64), arg.undecided)
    if dtype.is_int:
        limit = 2.0 ** (_BITS[dtype] - 1)
        if not arg.dtype.is_float:
            value = wrap(arg.value.to(torch.int64), dtype)
            wraps = (arg.error > 0) & (arg.value.to(torch.float64).abs() + arg.error >= limit)
            return Estimate(dtype, value, arg.error, arg.undecided | wraps)
        whole, low, high = (end.trunc() for end in (arg.value, arg.low(), arg.high()))
        outside = ~((low >= -limit) & (high < limit))
        torn = (arg.error > 0) & (low != high) & ~outside
        value = torch.where(outside, 0.0, whole).to(torch.int64)
        error = torch.where(torn, torch.maximum(high - whole, whole - low), ZERO)
        return Estimate(dtype, value, error, arg.undecided | outside)
    held = DType.F64 if dtype is DType.F64 else DType.F32
    if not arg.dtype.is_float:
        first = held if dtype is held else DType.F64
        value = arg.value.to(TORCH[first]).to(torch.float64)
        lost = (first is not held) & (value.to(torch.int64) != arg.value)
        slack = torch.where(lost, (value.abs() + arg.error) * EPS[DType.F32], ZERO)
        # The integers beside it are rounded, too, and perhaps farther than this one.
        exact = arg.value.to(torch.float64)
        reach = arg.error + torch.where(exact.abs() >= 2.0**53, exact.abs() * EPS[DType.F64], ZERO)
        apart = torch.maximum(
            nearest(exact + reach, first) - value, value - nearest(exact - reach, first)
        )
        error = slack + torch.where(arg.error > 0, apart, ZERO)
        least = torch.where((arg.value >= 0) & (arg.error == 0), value - slack, NONE)
        if arg.dtype is DType.BOOL:
            least = ZERO
        arg = Estimate(first, value, error, arg.undecided, least, signed=True)
    if dtype is held and (arg.dtype is held or held is DType.F64):
        return replace(arg, dtype=held)
    if dtype is not held and arg.dtype is DType.F64:
        # Straight from 64 bits or by way of f32, which can round a tie twice: both are right.
        twice = nearest(arg.value, DType.F32) != arg.value
        slack = torch.where(twice & arg.value.isfinite(), arg.value.abs() * EPS[DType.F32], ZERO)
        arg = replace(arg, error=arg.error + slack)
    return replace(rounded(arg, dtype), dtype=held)


def cut_to_8_bits(arg: Estimate, dtype: DType) -> Estimate:
    """Round to a float of 8 bits, to nearest even; what lies beyond all numbers has no bound.

    The estimate holds the numbers in f32.  Where it is open whether a number lies beyond (inf in
    f8e5m2), the result is undecided.
    """
    source = arg if arg.dtype.is_float else convert(arg, DType.F64)
    # Straight from f64 or by way of f32, which can round a tie twice: both are right.
    twice = (nearest(source.value, DType.F32) != source.value) & source.value.isfinite()
    slack = torch.where(twice, source.value.abs() * EPS[DType.F32], ZERO)
    least = nearest(source.least, dtype) if knows_least(source) else NONE
    source = replace(source, error=source.error + slack, least=NONE)
    held = [nearest(end, dtype) for end in (source.value, source.low(), source.high())]
    value, low, high = held
    outside = [~end.isfinite() for end in held]
    open_ = source.value.isfinite() & ((outside[0] != outside[1]) | (outside[0] != outside[2]))
    error = torch.maximum((high - value).abs(), (low - value).abs())
    error = torch.where(value.isfinite() & ~open_, error, ZERO)
    return Estimate(DType.F32, value, error, arg.undecided | open_, least, arg.signed)


def wrap(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Reduce i64 values to the range of an integer dtype."""
    return value if dtype is DType.I64 else value.to(TORCH[dtype]).to(torch.int64)


def _by_class(
    value: torch.Tensor,
    error: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    dtype: DType,
    exact: Estimate,
) -> Estimate:
    """Turn what surely overflows into inf; what may or may not is undecided."""
    finite = exact.value.isfinite()
    both = low.isinf() & (low == high)
    result = torch.where(finite & both, low, value)
    maybe = finite & ~both & (low.isinf() | high.isinf())
    error = _finite_only(error, result)
    return Estimate(dtype, result, error, exact.undecided | maybe, signed=exact.signed)


def _ends(arg: Estimate) -> tuple[torch.Tensor, ...]:
    return (arg.low(), arg.high()) if bool((arg.error > 0).any()) else (arg.value,)


def _class(value: torch.Tensor) -> torch.Tensor:
    return torch.where(value.isnan(), 2, torch.where(value.isinf(), value.sign(), 0))


def _finite_only(error: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.where(value.isfinite(), error, ZERO)
