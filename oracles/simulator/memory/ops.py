"""What each op of a `Compute` does to numbers: one numpy row per op, as torch defines them.

It also knows how each element type looks in a register and in memory.  It reads no kernel.

Notes
-----
f16 and bf16 live in registers as f32, unrounded; only `cast` and `round_to` round them.  Floats of
8 bits live there as their bit patterns, as they are only moved and multiplied.  The
functions that the hardware approximates are computed in f64 and rounded once to f32, so the
simulator's numbers are at least as good as any correct kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuser.dtype import DType

Array = NDArray[Any]
"""Elements of one register or of memory; Any, as numpy types no operators on unknown elements."""

_NUMPY: dict[DType, tuple[type[np.generic], type[np.generic]]] = {
    DType.F64: (np.float64, np.float64),
    DType.F32: (np.float32, np.float32),
    DType.F16: (np.float32, np.float16),
    DType.BF16: (np.float32, np.uint16),
    DType.I32: (np.int32, np.int32),
    DType.I64: (np.int64, np.int64),
    DType.BOOL: (np.bool_, np.uint8),
    DType.I8: (np.int8, np.int8),
    DType.F8E4M3: (np.uint8, np.uint8),
    DType.F8E5M2: (np.uint8, np.uint8),
}

REGISTER = {dtype: held for dtype, (held, _) in _NUMPY.items()}
"""numpy type that holds a register of each element type, and a global tensor outside the GPU."""
MEMORY = {dtype: stored for dtype, (_, stored) in _NUMPY.items()}
"""numpy type with the same bytes as one element in shared memory (bf16 as its bit pattern)."""


def _e4m3() -> Array:
    """Return the numbers behind all bit patterns: 4 bits of exponent, 3 of fraction, no inf."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    size[bits & 127 == 127] = np.nan
    return np.where(bits > 127, -size, size).astype(np.float32)


E4M3 = _e4m3()
"""What f8e4m3 means, by bit pattern.  Source: PTX ISA, "alternate floating-point data formats"."""
E5M2 = (np.arange(256, dtype=np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
"""What f8e5m2 means: the upper half of an f16."""


def bf16_bits(x: Array) -> Array:
    """Round f32 to bf16, to nearest even, and return the bit patterns.

    Adding 0x7FFF plus the last kept bit carries into the kept half exactly when it must; NaNs are
    kept quiet and apart, because the carry could turn them into inf.
    """
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nans = np.isnan(x)
    if np.count_nonzero(nans):
        rounded = np.where(nans, (bits >> np.uint32(16)) | np.uint32(0x40), rounded)
    return rounded.astype(np.uint16)


def encode(dtype: DType, x: Array) -> Array:
    """Round registers to `dtype` and return them as memory holds them."""
    if dtype is DType.BF16:
        return bf16_bits(x)
    return x.astype(MEMORY[dtype], copy=False)


def decode(dtype: DType, raw: Array) -> Array:
    """Return the registers that a load of these memory elements fills."""
    if dtype is DType.BF16:
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype is DType.BOOL:
        return np.asarray(raw != 0)
    return raw.astype(REGISTER[dtype], copy=False)


def f8_bits(dtype: DType, x: Array) -> Array:
    """Round numbers to a float of 8 bits, to nearest even, and return the bit patterns.

    Beyond the largest number lies inf, or where there is no inf, nothing.
    Source: PTX ISA, "cvt" (.satfinite), whose saturation of f8e5m2 a `cast` does not have.
    """
    numbers = (E4M3 if dtype is DType.F8E4M3 else E5M2)[:128]
    numbers = numbers[np.isfinite(numbers)].astype(np.float64)
    count = numbers.size
    numbers = np.append(numbers, 2 * numbers[count - 1] - numbers[count - 2])
    size = np.abs(np.asarray(x, np.float64))
    if dtype is DType.F8E4M3:
        size = np.minimum(size, numbers[count - 1])
    above = np.clip(np.searchsorted(numbers, size), 1, count)
    low, high = numbers[above - 1], numbers[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    bits = np.where(size >= high, above, np.where(up, above, above - 1))
    bits = np.where(np.isnan(size), 127, bits)
    return (bits + np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def round_to(dtype: DType, x: Array) -> Array:
    """Round registers to what a store to memory of `dtype` keeps, still in register form."""
    if dtype in (DType.F16, DType.BF16):
        return decode(dtype, encode(dtype, x))
    return x.astype(REGISTER[dtype], copy=False)


def factor(dtype: DType, x: Array) -> Array:
    """Return the numbers that a tensor core multiplies, given registers.

    Of f32 it takes tf32: the lower 13 bits are cut off.  Registers of 16-bit types are packed in
    front of it, which rounds them.
    """
    match dtype:
        case DType.F32:
            bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
            return (bits & np.uint32(0xFFFFE000)).view(np.float32)
        case DType.I8:
            return x.astype(np.float64)
        case DType.F8E4M3:
            return np.asarray(E4M3[x])
        case DType.F8E5M2:
            return np.asarray(E5M2[x])
        case _:
            return round_to(dtype, x)


def multiplied(a: Array, b: Array) -> Array:
    """Return a product of matrices in f64: a tensor core rounds sums of products, not each."""
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def total(dtype: DType, product: Array, before: Array | None) -> Array:
    """Return an accumulator of `dtype` after a product was added to what it held before, if so."""
    if dtype is DType.I32:
        product = product.astype(np.int64).astype(np.int32)
    return round_to(dtype, product if before is None else before + product)


def evaluate(op: str, dtype: DType, args: Sequence[Array]) -> Array:
    """Return a `known` `op(*args)` as registers of `dtype`; a number is an array of no axes."""
    row = OPS.get(op)
    if row is not None:
        return _to_register(dtype, np.asarray(row(*args)))
    if op == "cast" and dtype.is_f8:
        return f8_bits(dtype, args[0])
    if op == "cast":
        return round_to(dtype, _to_register(dtype, args[0]))
    return _to_register(dtype, args[0])


def folded(op: str, dtype: DType, rows: Array) -> Array:
    """Return all rows put together one after the other, from the first on, as registers of `dtype`.

    A ufunc goes through them by itself, in this order and in this type ("ufunc.accumulate").
    """
    row = OPS[op]
    if isinstance(row, np.ufunc) and rows.dtype == REGISTER[dtype]:
        return np.asarray(row.accumulate(rows, axis=0, dtype=rows.dtype)[-1])
    out, *others = rows
    for other in others:
        out = evaluate(op, dtype, [out, other])
    return np.asarray(out)


def known(op: str) -> bool:
    """Whether `evaluate` has a row for `op`."""
    return op in OPS or op in ("cast", "promote")


_IN_REGISTER = {dtype: np.dtype(held) for dtype, held in REGISTER.items()}


def _to_register(dtype: DType, x: Array) -> Array:
    if x.dtype is _IN_REGISTER[dtype]:
        return x
    if dtype is DType.BOOL and x.dtype != np.bool_:
        return np.asarray(x != 0)
    return x.astype(REGISTER[dtype], copy=False)


Row = Callable[..., Array]


def _wide(row: Row) -> Row:
    """Compute a row in f64 and round once, for the functions the hardware approximates."""

    def in_f64(*args: Array) -> Array:
        wide = row(*(np.asarray(a).astype(np.float64) for a in args))
        narrow = np.result_type(np.float32, *args) == np.float32
        return wide.astype(np.float32) if narrow else wide

    return in_f64


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.ravel().tolist()], np.float64).reshape(x.shape)


def _erfc(x: Array) -> Array:
    return np.array([math.erfc(v) for v in x.ravel().tolist()], np.float64).reshape(x.shape)


def _gelu_tanh(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def _is_float(x: Array) -> bool:
    return bool(np.issubdtype(np.asarray(x).dtype, np.floating))


def _whole(row: Row) -> Row:
    """Apply a rounding row to floats; integers stay."""
    return lambda x: row(x) if _is_float(x) else x


def _sign(x: Array) -> Array:
    if x.dtype == np.bool_:
        return x
    return np.where(np.isnan(x), np.zeros_like(x), np.sign(x)) if _is_float(x) else np.sign(x)


def _order(x: Array) -> Array:
    """Turn the lower bits of negative floats; NaN is the largest integer of 32 bits."""
    if not _is_float(x):
        return x.astype(np.int64)
    bits = np.ascontiguousarray(x + np.float32(0)).view(np.int32).astype(np.int64)
    return np.where(np.isnan(x), 2**31 - 1, np.where(bits < 0, bits ^ 0x7FFFFFFF, bits))


def _remainder(a: Array, b: Array) -> Array:
    """Remainder with the sign of the divisor; an integer divisor of 0 gives 0."""
    if not _is_float(a):
        return np.asarray(np.remainder(a, b))
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _floor_div(a: Array, b: Array) -> Array:
    """Floor of the quotient, by torch's formula, which is exact where `floor(a / b)` is not."""
    if not _is_float(a):
        return np.asarray(np.floor_divide(a, b))
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = np.floor(quotient)
    whole = np.where(quotient - whole > 0.5, whole + 1, whole)
    whole = np.where(quotient == 0, np.copysign(np.zeros_like(whole), a / b), whole)
    return np.where(b == 0, a / b, whole)


def _pow(a: Array, b: Array) -> Array:
    """Power as in C: NumPy takes square roots for one exponent of 0.5, of -inf and -0.0, too."""
    if _is_float(a):
        shape = np.broadcast_shapes(a.shape, b.shape)
        return _wide(np.power)(a, np.full(shape or (1,), b)).reshape(shape)
    power = np.power(a, np.where(b < 0, np.zeros_like(b), b))
    minus = np.where(b % 2 == 1, a, np.ones_like(a))
    unit = np.where(a == 1, a, np.where(a == -1, minus, np.zeros_like(a)))
    return np.where(b < 0, unit, power)


def _philox(seed: Array, stream: Array, place: Array) -> Array:
    """Philox 4x32-10 in unsigned words of 64 bits, of which the lower halves are looked at."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    wide = [np.asarray(x).astype(np.uint64) for x in np.broadcast_arrays(seed, stream, place)]
    key = [wide[0] & low, wide[0] >> half]
    count = wide[2] >> np.uint64(2)
    words = [count & low, count >> half, wide[1] & low, wide[1] >> half]
    for _ in range(10):
        first = words[0] * np.uint64(0xD2511F53)
        second = words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> half) ^ words[1] ^ key[0], second & low,
            (first >> half) ^ words[3] ^ key[1], first & low,
        ]  # fmt: skip
        bumps = (0x9E3779B9, 0xBB67AE85)
        key = [(k + np.uint64(bump)) & low for k, bump in zip(key, bumps, strict=True)]
    return np.choose(np.asarray(wide[2] & np.uint64(3), np.int64), words).astype(np.int64)


def _lerp(a: Array, b: Array, w: Array) -> Array:
    near_a, near_b = a + w * (b - a), b - (b - a) * (1 - w)
    return np.asarray(np.where(np.abs(w) < 0.5, near_a, near_b))


OPS: dict[str, Row] = {
    "set": lambda x: x,
    "abs": np.abs,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "round": _whole(np.rint),
    "trunc": _whole(np.trunc),
    "sign": _sign,
    "exp": _wide(np.exp),
    "exp2": _wide(np.exp2),
    "expm1": _wide(np.expm1),
    "log": _wide(np.log),
    "log1p": _wide(np.log1p),
    "log2": _wide(np.log2),
    "log10": _wide(np.log10),
    "sqrt": np.sqrt,
    "rsqrt": _wide(lambda x: 1 / np.sqrt(x)),
    "reciprocal": lambda x: np.ones((), x.dtype) / x,
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "tan": _wide(np.tan),
    "asin": _wide(np.arcsin),
    "acos": _wide(np.arccos),
    "atan": _wide(np.arctan),
    "sinh": _wide(np.sinh),
    "cosh": _wide(np.cosh),
    "tanh": _wide(np.tanh),
    "sigmoid": _wide(lambda x: 1 / (1 + np.exp(-x))),
    "silu": _wide(lambda x: x / (1 + np.exp(-x))),
    "gelu": _wide(lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    "gelu_tanh": _wide(_gelu_tanh),
    "erf": _wide(_erf),
    "erfc": _wide(_erfc),
    "isnan": lambda x: np.isnan(x) if _is_float(x) else np.zeros_like(x, np.bool_),
    "isinf": lambda x: np.isinf(x) if _is_float(x) else np.zeros_like(x, np.bool_),
    "isfinite": lambda x: np.isfinite(x) if _is_float(x) else np.ones_like(x, np.bool_),
    "logical_not": np.logical_not,
    "order": _order,
    "bitwise_not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "atan2": _wide(np.arctan2),
    "floor_div": _floor_div,
    "remainder": _remainder,
    "pow": _pow,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "nibble": lambda x, i: ((x >> 4 * (i & 1) & 15) ^ 8) - 8,
    "where": np.where,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "lerp": _lerp,
    "philox": _philox,
    "addcmul": lambda x, a, b, value: x + value * a * b,
}
"""One row per op; `cast` and `promote` need the result's type and stand in `evaluate`."""
