"""Arithmetic to the bit, against exact fractions, torch and Python's integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles.ptx.text import arithmetic as A

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # as the machine has it

F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
F64 = st.floats(min_value=-1e200, max_value=1e200, allow_nan=False)
WORD = st.integers(0, 2**32 - 1)
LONG = st.integers(0, 2**64 - 1)


def exactly(exact: Fraction, kind: Any, mode: str) -> Any:
    """Round a fraction to a float type, by looking at its neighbours."""
    if exact == 0:
        return kind(0)
    near = kind(float(exact)) if kind is np.float64 else np.float32(float(exact))
    around = [np.nextafter(near, kind(-np.inf)), near, np.nextafter(near, kind(np.inf))]
    around = [x for x in around if np.isfinite(x)]
    if mode == "rz":
        mode = "rm" if exact > 0 else "rp"
    if mode == "rm":
        return max(x for x in around if Fraction(float(x)) <= exact)
    if mode == "rp":
        return min(x for x in around if Fraction(float(x)) >= exact)
    gaps = [abs(Fraction(float(x)) - exact) for x in around]
    best = [x for x, gap in zip(around, gaps, strict=True) if gap == min(gaps)]
    bits = {np.float32: np.uint32, np.float64: np.uint64}[kind]
    return next((x for x in best if len(best) == 1 or not int(x.view(bits)) & 1), best[0])


@given(F32, F32, F32, st.sampled_from(["rn", "rz", "rm", "rp"]))
def test_fma_of_f32_is_rounded_once(a: float, b: float, c: float, mode: str) -> None:
    """In every direction."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not 2.0**-140 < abs(exact) < 2.0**126:
        return
    x, y, z = (np.array([v], np.float32) for v in (a, b, c))
    assert A.fma(x, y, z, mode)[0] == exactly(exact, np.float32, mode)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_all_threads_share_stays_one_number(kind: Any, mode: str) -> None:
    """A branch on it is taken by all: an array of one would be asked about each thread."""
    a, b, c = kind(1.5), kind(0.1), kind(3.25)
    assert np.ndim(A.fma(a, b, c, mode)) == 0
    for name in ("add", "sub", "mul", "div"):
        assert np.ndim(A.binary(name, a, b, mode)) == 0
    assert A.fma(np.stack([a]), b, c, mode).shape == (1,)
    assert A.binary("div", np.stack([a, b]), c, mode).shape == (2,)


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60),  # a tie in f64, but for the sum's last bit
        (1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-60)),
        (2.0**-70, 2.0**-70, 1.0),
        (3.0, 1 / 3, -1.0),
    ],
)
def test_fma_does_not_round_twice(a: float, b: float, c: float) -> None:
    """Where the sum of two doubles would."""
    x, y, z = (np.array([v], np.float32) for v in (a, b, c))
    exact = Fraction(float(x[0])) * Fraction(float(y[0])) + Fraction(float(z[0]))
    assert A.fma(x, y, z)[0] == exactly(exact, np.float32, "rn")


@given(F64, F64, F64)
def test_fma_of_f64_is_rounded_once(a: float, b: float, c: float) -> None:
    """Also where the product alone is far too small or large to split."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = A.fma(np.float64(a), np.float64(b), np.float64(c))
    try:
        want = exact.numerator / exact.denominator
    except OverflowError:
        want = float("inf") if exact > 0 else float("-inf")
    assert got == want


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("a", "b", "c", "negative"),
    [
        (-0.0, 1.0, -0.0, True),
        (0.0, -3.0, -0.0, True),
        (-0.0, 1.0, 0.0, False),
        (0.0, 3.0, -0.0, False),
        (-2.0, 0.5, 1.0, False),
        (-1e-30, 1e-30, 0.0, True),
    ],
)
def test_an_exact_zero_has_its_sign(
    dtype: type[np.floating], a: float, b: float, c: float, *, negative: bool
) -> None:
    """Two zeros of one sign keep it, others sum up to +0; a product that underflows is none."""
    if dtype is np.float64 and a == -1e-30:
        a, b = -1e-300, 1e-300
    x, y, z = (np.array([number], dtype) for number in (a, b, c))
    got = A.fma(x, y, z)[0]
    assert got == 0
    assert np.signbit(got) == negative


@given(F32, F32, st.sampled_from(["add", "sub", "mul", "div"]), st.sampled_from(["rz", "rm", "rp"]))
def test_other_roundings(a: float, b: float, name: str, mode: str) -> None:
    """Sums, products and quotients of f32 in each direction."""
    if name == "div" and b == 0:
        return
    x, y = Fraction(a), Fraction(b)
    exact = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y if y else x}[name]
    if not 2.0**-120 < abs(exact) < 2.0**126:
        return
    got = A.binary(name, np.array([a], np.float32), np.array([b], np.float32), mode)[0]
    assert got == exactly(exact, np.float32, mode)


@given(st.floats(width=32))
def test_narrow_floats_are_those_of_torch(x: float) -> None:
    """bf16 and f16 to nearest even; 8 bits within their range."""
    value = np.array([x], np.float32)
    held = torch.from_numpy(value)
    assert_same(A.from_bf16(A.to_bf16(value)), held.to(torch.bfloat16).float().numpy())
    assert_same(A.from_f16(A.to_f16(value)), held.to(torch.float16).float().numpy())
    for kind, dtype, most in (
        ("e4m3", torch.float8_e4m3fn, 448),
        ("e5m2", torch.float8_e5m2, 57344),
    ):
        held = torch.from_numpy(np.clip(value, -most, most))
        got = A.F8_VALUES[kind][A.to_f8(value, kind).astype(int)]
        assert_same(got.astype(np.float32), held.to(dtype).float().numpy())


def assert_same(got: Any, want: Any) -> None:
    """Equal, NaN where NaN, and zeros of the same sign."""
    np.testing.assert_array_equal(got, want)
    keep = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[keep], np.signbit(want)[keep])


@given(LONG, LONG)
def test_upper_halves_of_products(a: int, b: int) -> None:
    """Of 64 bits, signed and unsigned, and of 32."""
    assert int(A.high(np.uint64(a), np.uint64(b))) == a * b >> 64
    x, y = (v - (1 << 64) if v >> 63 else v for v in (a, b))
    assert int(A.high(np.array(x, np.int64), np.array(y, np.int64))) == x * y >> 64
    low, other = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    assert int(A.high(np.uint32(low), np.uint32(other))) == low * other >> 32


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_division_is_towards_zero(a: int, b: int) -> None:
    """As in C."""
    if b == 0 or (a, b) == (-(2**31), -1):
        return
    q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert int(A.divide(np.int32(a), np.int32(b))) == q
    assert int(A.remainder(np.int32(a), np.int32(b))) == a - q * b


@given(WORD, st.integers(0, 80))
def test_shifts_by_too_much(a: int, n: int) -> None:
    """Give 0, or the sign."""
    assert int(A.shift_left(np.uint32(a), np.uint32(n))) == a << n & 0xFFFFFFFF
    assert int(A.shift_right(np.uint32(a), np.uint32(n))) == a >> n
    signed = a - (1 << 32) if a >> 31 else a
    assert int(A.shift_right(np.array(signed, np.int32), np.uint32(n))) == signed >> n


@given(WORD, WORD, st.integers(0, 40), st.booleans(), st.booleans())
def test_funnel_shifts(low: int, top: int, n: int, left: bool, wrap: bool) -> None:
    """Of two words, one is kept."""
    both, many = top << 32 | low, n % 32 if wrap else min(n, 32)
    want = both << many >> 32 & 0xFFFFFFFF if left else both >> many & 0xFFFFFFFF
    assert int(A.funnel(np.uint32(low), np.uint32(top), np.uint32(n), left, wrap)) == want


@given(WORD, WORD, st.integers(0, 31), st.integers(0, 32))
def test_bit_fields(a: int, b: int, start: int, many: int) -> None:
    """Taken out, with their sign or without, and put in."""
    pos, size = np.uint32(start), np.uint32(many)
    inside = min(many, 32 - start)
    mask = (1 << inside) - 1
    assert int(A.extract(np.uint32(a), pos, size)) == a >> start & mask
    want = b & ~(mask << start) & 0xFFFFFFFF | (a & mask) << start
    assert int(A.insert(np.uint32(a), np.uint32(b), pos, size)) == want
    if many and start + many <= 32:
        field = a >> start & mask
        signed = field - (1 << many) if field >> (many - 1) else field
        assert int(A.extract(np.array(a, np.uint32).view(np.int32), pos, size)) == signed


@given(WORD, WORD, WORD, st.integers(0, 255))
def test_functions_of_three_bits(a: int, b: int, c: int, lut: int) -> None:
    """Bit by bit."""
    want = sum(
        (lut >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32)
    )
    assert int(A.table(np.uint32(a), np.uint32(b), np.uint32(c), lut)) == want


@given(WORD, WORD, st.integers(0, 0xFFFF))
def test_bytes_are_picked(a: int, b: int, selector: int) -> None:
    """By a nibble each, whose upper bit spreads the sign."""
    pool = [*a.to_bytes(4, "little"), *b.to_bytes(4, "little")]
    want = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = pool[nibble & 7]
        want |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * i
    assert int(A.permute(np.uint32(a), np.uint32(b), np.uint32(selector))) == want


def test_extremes_and_their_zeros() -> None:
    """NaN loses, or wins by name; -0 is the smaller zero."""
    f = np.float32
    assert A.smaller(f("nan"), f(1)) == 1
    assert np.isnan(A.smaller(f("nan"), f(1), True))
    assert np.signbit(A.smaller(f(0.0), f(-0.0)))
    assert not np.signbit(A.larger(f(-0.0), f(0.0)))
    assert A.larger(f(-3), f(-2)) == -2


def test_floats_become_integers_as_the_isa_says() -> None:
    """Clamped; NaN is 0 for 32 bits, the least number for 64."""
    x = np.array([1e20, -1e20, np.nan, 2.5, -2.5, -0.5], np.float32)
    assert A.to_integer(x, np.int32, "rni").tolist() == [2**31 - 1, -(2**31), 0, 2, -2, 0]
    assert A.to_integer(x, np.uint32, "rzi").tolist() == [2**32 - 1, 0, 0, 2, 0, 0]
    assert A.to_integer(x, np.int64, "rmi").tolist() == [2**63 - 1, -(2**63), -(2**63), 2, -3, -1]


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["rn", "rz"]))
def test_integers_become_floats(n: int, mode: str) -> None:
    """Rounded once."""
    got = A.from_integer(np.array([n], np.int64), np.float32, mode)[0]
    assert got == exactly(Fraction(n), np.float32, mode)
