"""Numbers in CUDA C++: exact literals, cheap divisions, conditions without division."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuser.codegen.expr import (
    condition,
    divisor,
    divisors,
    fixed_lets,
    less,
    literal,
    reciprocal,
    spell,
)
from fuser.dtype import DType
from fuser.expr import Var, ceildiv, minimum
from fuser.kernel import ir as kir

MOST = 2**31 - 1
NEAR = st.builds(
    lambda bit, off: min(max((1 << bit) + off, 1), MOST), st.integers(0, 31), st.integers(-3, 3)
)
"""Divisors around powers of 2."""

k, n, p, trips = Var("k"), Var("n"), Var("p"), Var("trips")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, DType.F32, "(float)0x1.999999999999ap-4"),
        (float("-inf"), DType.F32, "-math::infinity<float>()"),
        (float("nan"), DType.F64, "math::nan<double>()"),
        (True, DType.BOOL, "true"),
        (-(2**63), DType.I64, "(int64)(-9223372036854775807ll - 1)"),
        (2**31, DType.I32, "(int)(-2147483647ll - 1)"),
        (-7, DType.I32, "(int)-7ll"),
    ],
)
def test_literals_are_exact(value: float, dtype: DType, text: str) -> None:
    """Floats as hexadecimal, integers wrapped, infinities by name."""
    assert literal(value, dtype) == text


def test_slots_and_parities_are_unsigned() -> None:
    """A signed remainder by 4 costs four instructions, an unsigned one a mask."""
    assert spell(p % 4) == "math::modulo(p, 4)"
    assert spell(p // 4 % 2) == "math::modulo(math::quotient(p, 4), 2)"


def test_what_divides_a_number_is_known_from_tensors() -> None:
    """The last extent of one that is aligned, not of one that is ragged, nor what it divides by."""
    even = kir.Tensor("X", DType.BF16, (p, n), (n, 1), 8)
    odd = kir.Tensor("Y", DType.BF16, (n, k), (k, 1), 4, ragged=True)
    kernel = kir.Kernel("any", (p, n, k), (even, odd), (), (), (), 32, ())
    assert divisor(n - kir.RANK * 16384, kernel) == 8
    assert divisor(n * 3 + 12, kernel) == 12
    assert divisor(0, kernel) == 0
    assert [divisor(e, kernel) for e in (p, k, n - k, n // 8, n + 1)] == [1] * 5


def test_what_cuda_names_itself_gets_an_underscore() -> None:
    """`blockIdx` is a structure there."""
    assert spell(minimum(kir.BLOCK, kir.RANK + n)) == (
        "math::minimum(blockIdx_, (clusterRank_ + n))"
    )


def test_a_loop_to_a_quotient_divides_nothing() -> None:
    """Where the divisor is unknown; a known one is a shift before the loop."""
    lets = {trips: ceildiv(n, kir.GRID)}
    assert less(k, trips, lets) == "int64(k) * gridDim_ < n"
    assert less(k, trips, {trips: ceildiv(n, 16)}) == "k < trips"
    assert condition(k < trips, lets) == "int64(k) * gridDim_ < n"


def test_a_let_that_changes_is_no_quotient_for_ever() -> None:
    """Neither its own value nor one made from it may be put in its place."""
    body = (
        kir.Let(p, n),
        kir.Let(trips, ceildiv(p, kir.GRID)),
        kir.Let(k, ceildiv(n, kir.GRID)),
        kir.Assign(p, p + 1),
    )
    kernel = kir.Kernel("k", (n,), (), (), (), (), 32, body)
    assert fixed_lets(kernel) == {k: ceildiv(n, kir.GRID)}


def quotient_by(x: int, by: int) -> int:
    """Divide as `math::quotient_by` does, in 32 bits."""
    shift, m = by >> 32, by & 0xFFFF_FFFF
    assert by < 2**63
    assert shift < 32
    return ((2 * x & 0xFFFF_FFFF) * m >> 32) >> shift


@given(NEAR | st.integers(1, MOST), st.integers(0, MOST), st.integers(0, MOST))
@example(1, MOST, MOST)
@example(MOST, MOST, 1)
@example(2**30 + 1, MOST, 1)
def test_a_reciprocal_divides_all_that_is_not_negative(divisor: int, x: int, q: int) -> None:
    """Also next to the multiples of a divisor, where a rounding would be seen first."""
    by = reciprocal(divisor)
    near = {divisor * (q % (MOST // divisor + 1)) + off for off in (-1, 0, 1)}
    for value in {x, 0, MOST, MOST - MOST % divisor, *near}:
        if 0 <= value <= MOST:
            assert quotient_by(value, by) == value // divisor


@pytest.mark.parametrize("divisor", [*range(1, 70), 127, 128, 129, 65535, 65536, 65537, MOST])
def test_a_reciprocal_divides_around_each_multiple(divisor: int) -> None:
    """The last multiples are where what it is too large by counts most."""
    by, most = reciprocal(divisor), MOST // divisor
    for q in {*range(min(most, 500) + 1), *range(max(most - 500, 0), most + 1)}:
        for value in (q * divisor - 1, q * divisor, q * divisor + 1):
            if 0 <= value <= MOST:
                assert quotient_by(value, by) == value // divisor


def test_what_a_launch_knows_divides_by_its_reciprocal() -> None:
    """Also where it is computed of parameters; not what changes from CTA to CTA, or a number."""
    each = ceildiv(n, 16)
    body = (
        kir.Let(k, kir.BLOCK // p % each),
        kir.Let(trips, kir.BLOCK // 4 + p // k + p % kir.GRID),
    )
    kernel = kir.Kernel("k", (n, p), (), (), (), (), 32, body)
    by = divisors(kernel)
    assert by == {p: Var("by_p"), each: Var("by_1")}
    quotient = "math::quotient_by(blockIdx_, by_p)"
    assert spell(body[0].value, by) == (
        f"math::modulo_by({quotient}, math::quotient((n + 15), 16), by_1)"
    )
    assert spell(body[1].value, by) == spell(body[1].value)
