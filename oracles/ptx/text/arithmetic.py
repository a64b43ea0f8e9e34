"""What arithmetic instructions compute, to the bit where the ISA says so; vectors of threads.

Source: PTX ISA, "Integer Arithmetic", "Floating Point", "Comparison and Selection", "Logic and
Shift", "Data Movement and Conversion" (cvt, prmt).  Single rounding of sums of products: S. Boldo,
G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Values = Any
"""An array with an element for each thread, or a NumPy scalar where all have the same."""

F4, F8, U2, U4, U8 = np.float32, np.float64, np.uint16, np.uint32, np.uint64
I4, I8 = np.int32, np.int64


def _array(x: Values) -> Values:
    return np.asarray(x)


# --- integers ------------------------------------------------------------------------------------


def divide(a: Values, b: Values) -> Values:
    """Quotient towards zero; all ones where the divisor is 0, which the ISA leaves open."""
    a, b = np.broadcast_arrays(a, b)
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    q = a // safe
    if a.dtype.kind == "i":
        r = a - q * safe
        q = q + ((r != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(zero, ~np.zeros_like(q), q)


def remainder(a: Values, b: Values) -> Values:
    """Remainder with the sign of the dividend; the dividend where the divisor is 0."""
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, a - divide(a, safe) * safe)


def high(a: Values, b: Values) -> Values:
    """Upper half of a product."""
    dtype = np.asarray(a).dtype
    if dtype.itemsize < 8:
        wide = {"u2": "u4", "i2": "i4", "u4": "u8", "i4": "i8"}[dtype.str[1:]]
        bits = U8(8 * dtype.itemsize) if dtype.kind == "u" else I8(8 * dtype.itemsize)
        return ((a.astype(wide) * b.astype(wide)) >> bits.astype(wide)).astype(dtype)
    ua, ub = a.view(U8), b.view(U8)
    mask, half = U8(0xFFFFFFFF), U8(32)
    al, ah, bl, bh = ua & mask, ua >> half, ub & mask, ub >> half
    low, mid1, mid2 = al * bl, ah * bl, al * bh
    carry = ((low >> half) + (mid1 & mask) + (mid2 & mask)) >> half
    top = ah * bh + (mid1 >> half) + (mid2 >> half) + carry
    if dtype.kind == "i":
        top = top - np.where(a < 0, ub, U8(0)) - np.where(b < 0, ua, U8(0))
    return top.view(dtype)


def carried(a: Values, b: Values, carry: Values) -> tuple[Values, Values]:
    """Sum of two unsigned integers and a carry, and the carry out of it."""
    s = a + b
    total = s + np.asarray(carry).astype(s.dtype)
    return total, (s < a) | (total < s)


def borrowed(a: Values, b: Values, borrow: Values) -> tuple[Values, Values]:
    """Difference of two unsigned integers less a borrow, and the borrow out of it."""
    d = a - b
    rest = d - np.asarray(borrow).astype(d.dtype)
    return rest, (a < b) | (rest > d)


def shift_left(a: Values, n: Values) -> Values:
    """Shift left; by more than there are bits gives 0."""
    bits = np.asarray(a).dtype.itemsize * 8
    n = np.asarray(n)
    many = np.minimum(n, n.dtype.type(bits - 1)).astype(np.asarray(a).dtype)
    return np.where(n >= bits, np.asarray(a).dtype.type(0), a << many)


def shift_right(a: Values, n: Values) -> Values:
    """Shift right, signed types with their sign; by more than there are bits is by all."""
    dtype = np.asarray(a).dtype
    n = np.asarray(n)
    bits = dtype.itemsize * 8
    many = np.minimum(n, n.dtype.type(bits - 1)).astype(dtype)
    shifted = a >> many
    return shifted if dtype.kind == "i" else np.where(n >= bits, dtype.type(0), shifted)


def funnel(low: Values, top: Values, n: Values, left: bool, wrap: bool) -> Values:
    """Shift 64 bits made of two words, and keep one word (shf)."""
    n = np.asarray(n)
    n = (n & U4(31)) if wrap else np.minimum(n, U4(32))
    both = (top.astype(U8) << U8(32)) | low.astype(U8)
    if left:
        return ((both << n.astype(U8)) >> U8(32)).astype(U4)
    return (both >> n.astype(U8)).astype(U4)


def extract(a: Values, start: Values, many: Values) -> Values:
    """Bit field of a value (bfe), with its sign for signed types."""
    dtype = np.asarray(a).dtype
    bits = dtype.itemsize * 8
    pos, size = np.broadcast_arrays(start & U4(255), many & U4(255))
    wide = a.astype(I8 if dtype.kind == "i" else U8)
    kind = wide.dtype
    size = np.minimum(size, np.maximum(bits - pos.astype(I8), 0))
    pos = np.minimum(pos, bits - 1)
    mask = np.where(size >= 64, ~U8(0), (U8(1) << size.astype(U8)) - U8(1)).astype(kind)
    found = (wide >> pos.astype(kind)) & mask
    if dtype.kind == "i":
        top = np.minimum(pos + np.maximum(size.astype(I8), 1) - 1, bits - 1)
        sign = (wide >> top.astype(kind)) & kind.type(1)
        found = np.where((sign != 0) & (size < bits), found | ~mask, found)
    return found.astype(dtype)


def insert(a: Values, b: Values, start: Values, many: Values) -> Values:
    """Bit field of `b` with bits of `a` in it (bfi)."""
    dtype = np.asarray(a).dtype
    pos, size = np.asarray(start & U4(255)), np.asarray(many & U4(255))
    mask = np.where(size >= 64, ~U8(0), (U8(1) << np.minimum(size, 63).astype(U8)) - U8(1))
    mask = np.where(pos >= 64, U8(0), mask << np.minimum(pos, 63).astype(U8)).astype(dtype)
    moved = np.where(pos >= 64, dtype.type(0), a << np.minimum(pos, 63).astype(dtype))
    return (b & ~mask) | (moved.astype(dtype) & mask)


def permute(a: Values, b: Values, selector: Values) -> Values:
    """Bytes picked from two words (prmt, default mode)."""
    both = (b.astype(U8) << U8(32)) | a.astype(U8)
    out: Values = U4(0)
    for i in range(4):
        pick = ((selector >> U4(4 * i)) & U4(15)).astype(U8)
        byte = ((both >> ((pick & U8(7)) * U8(8))) & U8(255)).astype(U4)
        spread = np.where(byte & U4(128), U4(255), U4(0))
        out = out | (np.where(pick & U8(8), spread, byte) << U4(8 * i))
    return out


def table(a: Values, b: Values, c: Values, lut: int) -> Values:
    """Any function of three bits, bit by bit (lop3)."""
    out: Values = U4(0)
    for i in range(8):
        if lut >> i & 1:
            term = a if i & 4 else ~a
            term = term & (b if i & 2 else ~b)
            out = out | (term & (c if i & 1 else ~c))
    return out


def count(a: Values) -> Values:
    """Bits that are set (popc)."""
    return np.bitwise_count(a).astype(U4)


def leading(a: Values) -> Values:
    """Zeros above the highest bit that is set (clz)."""
    dtype = np.asarray(a).dtype
    x = np.asarray(a)
    out = np.full(x.shape, dtype.itemsize * 8, U4)
    for bit in range(dtype.itemsize * 8):
        out = np.where(
            (x >> dtype.type(bit)) & dtype.type(1), U4(dtype.itemsize * 8 - 1 - bit), out
        )
    return out


def find(a: Values, amount: bool) -> Values:
    """Place of the highest bit that is not the sign (bfind), or how far to shift it to the top.

    All ones where there is none.
    """
    x = np.asarray(a)
    bits = x.dtype.itemsize * 8
    if x.dtype.kind == "i":
        x = np.where(x < 0, ~x, x).view(f"u{x.dtype.itemsize}")
    above = leading(x)
    place = above if amount else U4(bits - 1) - above
    return np.where(above == bits, ~U4(0), place)


def reverse(a: Values) -> Values:
    """Bits in the other order (brev)."""
    dtype = np.asarray(a).dtype
    bits = dtype.itemsize * 8
    out = np.zeros_like(a)
    for bit in range(bits):
        out = out | (((a >> dtype.type(bit)) & dtype.type(1)) << dtype.type(bits - 1 - bit))
    return out


# --- floats --------------------------------------------------------------------------------------


def flushed(x: Values) -> Values:
    """Subnormal f32 numbers become zeros of their sign (.ftz)."""
    small = np.abs(x) < F4(1.1754943508222875e-38)
    return np.where(small, np.copysign(F4(0), x), x)


def clamped(x: Values) -> Values:
    """Numbers into 0..1, NaN to 0 (.sat)."""
    one = np.asarray(x).dtype.type(1)
    zero = np.asarray(x).dtype.type(0)
    return np.where(x > zero, np.minimum(x, one), zero)


def smaller(a: Values, b: Values, nan: bool = False) -> Values:
    """Minimum: the number where one is NaN, or NaN (.NaN); -0 is less than +0."""
    a, b = np.broadcast_arrays(a, b)
    least = np.minimum(a, b) if nan else np.fmin(a, b)
    return np.where((a == b) & (np.signbit(a) | np.signbit(b)) & (a == 0), -np.abs(a), least)


def larger(a: Values, b: Values, nan: bool = False) -> Values:
    """Maximum, likewise."""
    a, b = np.broadcast_arrays(a, b)
    most = np.maximum(a, b) if nan else np.fmax(a, b)
    return np.where((a == b) & (a == 0) & ~(np.signbit(a) & np.signbit(b)), np.abs(a), most)


def _two_sum(a: Values, b: Values) -> tuple[Values, Values]:
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def fma(a: Values, b: Values, c: Values, mode: str = "rn") -> Values:
    """Product plus sum, rounded once."""
    if np.asarray(a).dtype == F8:
        return _fma_f64(a, b, c, mode)
    p = a.astype(F8) * b.astype(F8)  # exact: 48 bits
    s = _array(p + c.astype(F8))
    r = s.astype(F4)
    if mode == "rn":
        risky = (s.view(U8) & U8(0x0FFFFFFF)) == 0
        if not np.count_nonzero(risky):
            return r
    s, e = _two_sum(p, _array(c.astype(F8)))
    if mode == "rn" and (not np.count_nonzero(e) or not (np.isfinite(e) & (e != 0)).any()):
        return r
    return rounded(s, np.where(np.isfinite(e), e, 0.0), mode)


def rounded(s: Values, e: Values, mode: str) -> Values:
    """Round the sum of an f64 and a far smaller one to f32."""
    s, e = np.broadcast_arrays(np.asarray(s, F8), np.asarray(e, F8))
    if mode == "rn":
        bits = s.view(U8)
        away = (e > 0) == (s > 0)
        odd = np.where(away, bits | U8(1), np.where(bits & U8(1), bits, bits - U8(1)))
        fixed = np.where((e != 0) & np.isfinite(s), odd, bits).astype(U8)
        return fixed.view(F8).astype(F4)
    r = s.astype(F4)
    above = (r.astype(F8) - s) > e
    below = (r.astype(F8) - s) < e
    above = np.where(np.isinf(r) & np.isfinite(s), r > 0, above)
    below = np.where(np.isinf(r) & np.isfinite(s), r < 0, below)
    down, up = np.nextafter(r, F4(-np.inf)), np.nextafter(r, F4(np.inf))
    if mode == "rm":
        return np.where(above, down, r)
    if mode == "rp":
        return np.where(below, up, r)
    positive = (s > 0) | ((s == 0) & (e > 0))
    return np.where(positive & above, down, np.where(~positive & below, up, r))


def fma_half(a: Values, b: Values, c: Values) -> Values:
    """Product plus sum of f16 or bf16 numbers, held as f32: rounded to odd, to be rounded again.

    What is rounded to odd with two bits more than the result has is rounded to nearest rightly.
    """
    s, e = _two_sum(_array(a.astype(F8) * b.astype(F8)), _array(c.astype(F8)))
    e = np.where(np.isfinite(e), e, 0.0)
    cut = _array(rounded(s, e, "rz"))
    lost = np.isfinite(s) & ((cut.astype(F8) != s) | (e != 0))
    return (cut.view(U4) | lost.astype(U4)).view(F4)


def _split(a: Values) -> tuple[Values, Values]:
    t = F8(134217729.0) * a
    top = t - (t - a)
    return top, a - top


def _fma_f64(a: Values, b: Values, c: Values, mode: str) -> Values:
    shape = np.broadcast_shapes(*map(np.shape, (a, b, c)))
    a, b, c = (np.atleast_1d(x) for x in np.broadcast_arrays(a, b, c))
    uh = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    ul = ((ah * bh - uh) + ah * bl + al * bh) + al * bl
    th, tl = _two_sum(c, ul)
    vh, vl = _two_sum(uh, th)
    z, e = _two_sum(tl, vl)
    bits = z.view(U8)
    away = (e > 0) == (z > 0)
    odd = np.where(away, bits | U8(1), np.where(bits & U8(1), bits, bits - U8(1)))
    z = np.where((e != 0) & np.isfinite(z), odd, bits).astype(U8).view(F8)
    out = vh + z
    size = np.maximum(np.abs(a), np.abs(b))
    tame = (size < 1e290) & (np.abs(c) < 1e300) & (np.abs(uh) < 1e300)
    tame &= (np.abs(uh) > 1e-250) | (uh == 0) & ((a == 0) | (b == 0))
    plain = a * b + c
    odd_ones = ~tame & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    out = np.where(tame & (out != 0), out, plain)  # which has the sign of an exact zero
    for at in np.flatnonzero(odd_ones):
        exact = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
        if exact:
            out[at] = _nearest(exact)
    if mode != "rn":
        for at in np.arange(len(out)):
            if np.isfinite(a[at]) and np.isfinite(b[at]) and np.isfinite(c[at]):
                exact = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
                out[at] = directed(exact, float(out[at]), mode)
    return out.reshape(shape)[()]


def _nearest(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def directed(exact: Fraction, near: float, mode: str) -> float:
    """Round an exact number to f64 in a direction, given the nearest one."""
    if not np.isfinite(near):
        return near
    held = Fraction(near)
    if mode == "rz":
        mode = "rm" if exact > 0 else "rp"
    if mode == "rm" and held > exact:
        return float(np.nextafter(near, -np.inf))
    if mode == "rp" and held < exact:
        return float(np.nextafter(near, np.inf))
    return near


def binary(name: str, a: Values, b: Values, mode: str) -> Values:
    """Sum, difference, product or quotient with a rounding other than to nearest."""
    ops = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
    ops["div"] = lambda x, y: x / y
    if np.asarray(a).dtype == F4 and name in ("add", "sub", "mul"):
        s = ops[name](a.astype(F8), b.astype(F8))
        e: Values = F8(0)
        if name != "mul":
            s, e = _two_sum(a.astype(F8), b.astype(F8) if name == "add" else -b.astype(F8))
            e = np.where(np.isfinite(e), e, 0.0)
        return rounded(s, e, mode)
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    a, b = (np.atleast_1d(x) for x in np.broadcast_arrays(a, b))
    out = np.array(ops[name](a, b))
    for at in range(len(out)):
        x, y = float(a[at]), float(b[at])
        if np.isfinite(x) and np.isfinite(y) and (name != "div" or y):
            exact = {
                "add": lambda x=x, y=y: Fraction(x) + Fraction(y),
                "sub": lambda x=x, y=y: Fraction(x) - Fraction(y),
                "mul": lambda x=x, y=y: Fraction(x) * Fraction(y),
                "div": lambda x=x, y=y: Fraction(x) / Fraction(y),
            }[name]()
            if out.dtype == F8:
                out[at] = directed(exact, float(out[at]), mode)
            else:
                near = F4(out[at])
                up = mode == "rp" or (mode == "rz" and exact < 0)
                held = Fraction(float(near))
                if up and held < exact:
                    near = np.nextafter(near, F4(np.inf))
                elif not up and held > exact:
                    near = np.nextafter(near, F4(-np.inf))
                out[at] = near
    return out.reshape(shape)[()]


def quotient(a: Values, b: Values) -> Values:
    """Quotient to nearest; f32 by way of f64, which rounds the same."""
    return a / b


# --- conversions ---------------------------------------------------------------------------------


def to_integer(x: Values, dtype: Any, mode: str) -> Values:
    """Float to integer: rounded, clamped to what the type holds; NaN as the ISA says."""
    wide = np.asarray(x).astype(F8)
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](wide)
    info = np.iinfo(dtype)
    if np.dtype(dtype).itemsize == 8:
        top = F8(2.0**63 if np.dtype(dtype).kind == "i" else 2.0**64)
        inside = (whole < top) & (whole >= (-top if np.dtype(dtype).kind == "i" else 0))
        out = np.where(inside, whole, 0.0).astype(dtype)
        out = np.where(whole >= top, info.max, out)
        out = np.where(whole < (-top if np.dtype(dtype).kind == "i" else 0), info.min, out)
    else:
        out = np.clip(np.where(np.isnan(whole), 0.0, whole), info.min, info.max).astype(dtype)
    special = np.asarray(x).dtype == F8 or np.dtype(dtype).itemsize == 8
    odd = (1 << (8 * np.dtype(dtype).itemsize - 1)) if special else 0
    if odd and np.dtype(dtype).kind == "i":
        odd = int(info.min)
    return np.where(np.isnan(whole), np.array(odd, dtype), out).astype(dtype)


def whole(x: Values, mode: str) -> Values:
    """Float to an integer of the same type."""
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](x)


def from_integer(x: Values, dtype: Any, mode: str) -> Values:
    """Integer to float."""
    x = np.asarray(x)
    near = x.astype(dtype)
    if mode == "rn":
        return near
    held, exact = near.astype(np.longdouble), x.astype(np.longdouble)
    down = (mode == "rm") | ((mode == "rz") & (exact > 0))
    lower = np.nextafter(near, dtype(-np.inf))
    upper = np.nextafter(near, dtype(np.inf))
    return np.where(down & (held > exact), lower, np.where(~down & (held < exact), upper, near))


def narrow(x: Values, mode: str) -> Values:
    """f64 to f32."""
    if mode == "rn":
        return np.asarray(x).astype(F4)
    return rounded(x, 0.0, mode)


def to_bf16(x: Values, mode: str = "rn") -> Values:
    """f32 to the bits of bf16."""
    bits = np.asarray(x, F4).view(U4)
    extra = U4(0x7FFF) + ((bits >> U4(16)) & U4(1)) if mode == "rn" else U4(0)
    out = (bits + extra) >> U4(16)
    return np.where(np.isnan(x), U4(0x7FFF), out).astype(U2)


def to_tf32(x: Values, mode: str) -> Values:
    """f32 to the bits of tf32, the upper 19 of a word; `rna` takes ties away from zero."""
    bits = np.asarray(x, F4).view(U4)
    up: Values = {"rna": U4(0x1000), "rn": U4(0xFFF) + ((bits >> U4(13)) & U4(1)), "rz": U4(0)}[
        mode
    ]
    near = np.where(np.isinf(x), bits, bits + up) & U4(0xFFFFE000)
    return np.where(np.isnan(x), U4(0x7FFFFFFF), near)


def from_bf16(bits: Values) -> Values:
    """Bits of bf16 to f32."""
    return (np.asarray(bits).astype(U4) << U4(16)).view(F4)


def to_f16(x: Values, mode: str = "rn") -> Values:
    """f32 or f64 to the bits of f16."""
    near = np.asarray(x).astype(np.float16)
    if mode == "rz":
        far = np.abs(near.astype(F8)) > np.abs(np.asarray(x, F8))
        near = np.where(far, np.nextafter(near, np.float16(0)), near)
    return np.where(np.isnan(x), U2(0x7FFF), np.asarray(near).view(U2))


def from_f16(bits: Values) -> Values:
    """Bits of f16 to f32."""
    return np.asarray(bits).view(np.float16).astype(F4)


def both(high_half: Values, low_half: Values) -> Values:
    """Two 16-bit words as one."""
    return (high_half.astype(U4) << U4(16)) | low_half.astype(U4)


def halves(x: Values) -> tuple[Values, Values]:
    """Upper and lower 16 bits."""
    return (x >> U4(16)).astype(U2), (x & U4(0xFFFF)).astype(U2)


def _f8_table(exponent: int, mantissa: int) -> np.ndarray[Any, Any]:
    bias = (1 << (exponent - 1)) - 1
    out = np.zeros(256, F8)
    for bits in range(256):
        e = bits >> mantissa & ((1 << exponent) - 1)
        f = bits & ((1 << mantissa) - 1)
        value = (
            f * 2.0 ** (1 - bias - mantissa)
            if e == 0
            else (1 + f / (1 << mantissa)) * 2.0 ** (e - bias)
        )
        if exponent == 5 and e == 31:
            value = float("inf") if f == 0 else float("nan")
        if exponent == 4 and bits & 127 == 127:
            value = float("nan")
        out[bits] = -value if bits & 128 else value
    return out


F8_VALUES = {"e4m3": _f8_table(4, 3), "e5m2": _f8_table(5, 2)}
"""The number that each of 256 patterns stands for."""


def to_f8(x: Values, kind: str) -> Values:
    """f32 to 8 bits, to nearest even, clamped to the largest number (.satfinite)."""
    values = F8_VALUES[kind][:128]
    last = int(np.flatnonzero(np.isfinite(values))[-1])
    values = values[: last + 1]
    size = np.abs(np.asarray(x, F4).astype(F8))
    up = np.clip(np.searchsorted(values, size), 0, last)
    down = np.maximum(up - 1, 0)
    left, right = size - values[down], values[up] - size
    pick = np.where((left < right) | ((left == right) & (down % 2 == 0)), down, up)
    pick = np.where(size >= values[last], last, pick)
    pick = np.where(np.isnan(x), 127, pick)
    sign = np.where(np.signbit(x) & ~np.isnan(x), 128, 0)
    return (pick | sign).astype(U2)


def from_f8(bits: Values, kind: str) -> Values:
    """8 bits to the bits of f16, which holds every such number."""
    return F8_VALUES[kind][np.asarray(bits).astype(np.intp) & 255].astype(np.float16).view(U2)


def paired(op: Any, from_bits: Any, to_bits: Any, *args: Values) -> Values:
    """One operation on both halves of packed words."""
    tops, lows = zip(*(halves(a) for a in args), strict=True)
    return both(
        to_bits(op(*(from_bits(t) for t in tops))), to_bits(op(*(from_bits(x) for x in lows)))
    )
