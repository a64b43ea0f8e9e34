"""The simulator's arithmetic against torch, special values first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from random_words import philox

from fuser.dtype import DType
from fuser.fusion.ops import OPS, Form
from oracles.simulator.memory import ops

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.3, -7.75, 1e-3, 100.0, 88.0, -104.0]
SPECIAL = [*FLOATS, 1e-40, 3e38, -3e38, 2**24 + 2, INF, -INF, NAN]
INTS: list[float] = [0, 1, -1, 2, -2, 3, 7, -7, 31, 2**31 - 1, -(2**31)]


def order(x: torch.Tensor) -> torch.Tensor:
    """Return the number of f32 steps from 0 to x, one more below 0; NaN last, both zeros one."""
    if not x.is_floating_point():
        return x.to(torch.int64)
    steps = x.abs().view(torch.int32).to(torch.int64)
    return torch.where(x.isnan(), 2**31 - 1, torch.where(x < 0, ~steps, steps))


def nibble(x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """Return the signed number that the lower, or upper, four bits of a byte are."""
    bits = torch.where(which % 2 == 0, x, x >> 4) & 15
    return bits - 16 * (bits > 7).to(x.dtype)


TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "nibble": nibble,
    "neg": torch.neg,
    "order": order,
    "philox": philox,
    "set": lambda x: x.clone(),
    "round": torch.round,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "floor_div": torch.floor_divide,
    "addcmul": lambda x, a, b, v: torch.addcmul(x, a, b, value=v.flatten()[0].item()),
}
"""Ops whose torch name differs; the others are `torch.<name>`."""
INEXACT = {
    "exp", "exp2", "log", "log2", "rsqrt", "sin", "cos", "tanh", "sigmoid", "silu", "gelu",
    "gelu_tanh", "erf", "pow", "lerp", "addcmul", "sqrt", "expm1", "log1p", "log10", "tan", "asin",
    "acos", "atan", "atan2", "sinh", "cosh", "erfc",
}  # fmt: skip
"""Ops that torch computes in another way, so that last bits may differ."""
MILD = {"gelu", "lerp", "addcmul", "remainder"}
"""Ops of which torch's CPU form is wrong or contracted where values overflow or are subnormal."""
RULES: dict[DType, list[float]] = {
    DType.F32: SPECIAL,
    DType.F64: SPECIAL,
    DType.I32: INTS,
    DType.I64: INTS,
}


def pairs(values: list[float], dtype: DType, arity: int) -> list[ops.Array]:
    """Every combination of two values (or a cyclic choice of more), as registers."""
    first = np.repeat(values, len(values))
    columns = [first, np.tile(values, len(values)), np.roll(first, 5), np.full(len(first), 3)]
    return [c.astype(ops.REGISTER[dtype]) for c in columns[:arity]]


FORMS = (
    Form.SHAPE,
    Form.VIEW,
    Form.GATHER,
    Form.FACTORY,
    Form.MMA,
    Form.REDUCTION,
    Form.SCAN,
)
"""What is lowered to statements of its own, or to none."""


@pytest.mark.parametrize("op", [n for n, s in OPS.items() if s.pointwise and n != "cast"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.I32, DType.I64, DType.BOOL])
def test_every_op_agrees_with_torch(op: str, dtype: DType) -> None:
    """Special values included; only the last bits of approximated functions may differ."""
    spec = OPS[op]
    takes_floats = spec.rule.value == "float"
    if dtype not in spec.allowed or (takes_floats and not dtype.is_float):
        return
    values = RULES.get(dtype, [0, 1])
    if op in MILD and dtype.is_float:
        values = [*FLOATS, NAN]
    args = pairs(values, dtype, spec.arity)
    if op == "where":
        args[0] = args[0] != 0
    if op in ("floor_div", "remainder") and dtype.is_int:
        args[1] = np.where(args[1] == 0, 3, args[1]).astype(args[1].dtype)
        args[0] = np.where(args[1] == -1, 5, args[0]).astype(args[0].dtype)
    if op == "pow" and dtype.is_int:
        args[1] = np.abs(args[1] % 5)
    call = TORCH.get(op) or getattr(torch, op)
    tensors = [torch.from_numpy(a.copy()) for a in args]
    want = call(*tensors).numpy()
    with np.errstate(all="ignore"):
        result = DType.of(str(want.dtype))
        got = ops.evaluate(op, result, args)
    assert got.dtype == want.dtype
    if op not in INEXACT or dtype.is_int:
        np.testing.assert_array_equal(got, want)
        return
    tiny = 1e-6 if dtype is DType.F32 else 1e-14
    np.testing.assert_allclose(got, want, rtol=4 * tiny, atol=tiny * 1e-2)


def test_every_pointwise_op_has_a_row() -> None:
    """A new op of the table is noticed here."""
    table = {n for n, s in OPS.items() if s.form not in FORMS}
    assert table == {*ops.OPS, "cast"}
    assert ops.known("cast")
    assert ops.known("promote")
    assert not ops.known("input")


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_power_of_a_half_is_no_square_root(shape: tuple[int, ...], dtype: DType) -> None:
    """C99, F.10.4.4: `pow(-inf, 0.5)` is inf and `pow(-0.0, 0.5)` is 0.0, however b is given."""
    bits = np.float32 if dtype is DType.F32 else np.float64
    for base, wanted in ((-np.inf, "inf"), (-0.0, "0.0")):
        a, half = np.full(shape, base, bits), np.asarray(0.5, bits)
        for b in (half, np.full(shape, half)):
            got = ops.evaluate("pow", dtype, [a, b])
            assert got.shape == shape
            assert {str(float(one)) for one in got.ravel()} == {wanted}


def test_negative_integer_powers_truncate() -> None:
    """As in C: only 1 and -1 have integer inverses."""
    base = np.array([1, -1, -1, 2, -3], np.int32)
    power = np.array([-1, -2, -3, -1, -2], np.int32)
    got = ops.evaluate("pow", DType.I32, [base, power])
    np.testing.assert_array_equal(got, [1, 1, -1, 0, 0])


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_rounding_to_16_bits_is_to_nearest_even(dtype: DType) -> None:
    """All bit patterns of the upper half with ties, neighbours of ties, inf and NaN."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    shift = 13 if dtype is DType.F16 else 16
    tie = np.uint32(1 << (shift - 1))
    bits = np.concatenate([high, high + tie, high + tie - 1, high + tie + 1])
    with np.errstate(all="ignore"):
        values = bits.view(np.float32)
        got = ops.round_to(dtype, values)
    target = torch.float16 if dtype is DType.F16 else torch.bfloat16
    want = torch.from_numpy(values).to(target).float().numpy()
    np.testing.assert_array_equal(got, want)
    real = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(want[real]))


@pytest.mark.parametrize("dtype", list(DType))
def test_memory_keeps_what_a_store_rounds_to(dtype: DType) -> None:
    """Bytes in shared memory decode to the rounded register."""
    values = np.array([0, 1, 0, 1, 1]) if dtype is DType.BOOL else np.array([0, 1, -3, 5, 77])
    registers = (values * (1.001 if dtype.is_float else 1)).astype(ops.REGISTER[dtype])
    raw = ops.encode(dtype, registers)
    assert raw.dtype.itemsize == dtype.nbytes
    np.testing.assert_array_equal(ops.decode(dtype, raw), ops.round_to(dtype, registers))


def test_cast_rounds_and_promote_does_not() -> None:
    """A cast to bf16 loses bits even though the register stays f32."""
    third = np.array([1 / 3], np.float32)
    assert ops.evaluate("promote", DType.BF16, [third])[0] == third[0]
    assert ops.evaluate("cast", DType.BF16, [third])[0] == np.float32(0.333984375)
    assert ops.evaluate("cast", DType.I32, [np.array([-2.7], np.float32)])[0] == -2
    assert ops.evaluate("cast", DType.BOOL, [np.array([NAN], np.float32)])[0]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_sums_of_products_are_rounded_once(dtype: DType) -> None:
    """Large products that cancel leave the small one, and a sum goes on from what is held."""
    a = np.asarray([[2.0**15, 2.0**-9, -(2.0**15)]], np.float32)
    b = np.asarray([[2.0**15], [2.0**-3], [2.0**15]], np.float32)
    first = ops.total(dtype, ops.multiplied(a, b), None)
    assert first == 2.0**-12
    assert first.dtype == np.float32
    assert (
        ops.total(dtype, ops.multiplied(a, b), np.asarray([[1.0]], np.float32))
        == {
            DType.F32: 1.0 + 2.0**-12,
            DType.F16: 1.0,
        }[dtype]
    )
