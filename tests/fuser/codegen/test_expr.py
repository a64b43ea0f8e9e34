"""Numbers in CUDA C++: exact literals, cheap divisions, conditions without division."""

import pytest

from fuser.codegen.expr import condition, fixed_lets, less, literal, spell
from fuser.dtype import DType
from fuser.expr import Var, ceildiv, minimum
from fuser.kernel import ir as kir

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
