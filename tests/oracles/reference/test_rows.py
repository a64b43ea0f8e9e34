"""Division by rational arithmetic, where floats give up."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ops import OPS, Form
from oracles.differential import compare
from oracles.reference import rows as division
from oracles.reference.estimate import TORCH, Estimate
from oracles.reference.evaluate import evaluate
from oracles.verdict import Status

F64 = torch.float64


@pytest.mark.parametrize("reach", [3, 40, 1000])
def test_floats_agree_with_rational_numbers(reach: int) -> None:
    """The quotient may be far beyond f64; the remainder is exact all the same."""
    rng = random.Random(reach)
    for _ in range(500):
        a, b = (math.ldexp(rng.uniform(-2, 2) or 1, rng.randint(-reach, reach)) for _ in range(2))
        pair = torch.tensor(a, dtype=F64), torch.tensor(b, dtype=F64)
        turns = Fraction(a) // Fraction(b)
        rest = Fraction(a) - turns * Fraction(b)
        got = Fraction(division.remainder(*pair).item())
        assert abs(got - rest) <= abs(rest) / 2**52 + Fraction(1, 2**1074)
        quotient = division.floor_divide(*pair).item()
        if math.isfinite(quotient):
            assert abs(Fraction(quotient) - turns) <= abs(turns) / 2**51
        else:
            assert abs(turns) > 1e308


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_special_floats_agree_with_torch(name: str) -> None:
    """Inf, NaN and zeros follow torch."""
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 5.5, -5.5]
    pairs = torch.tensor(list(itertools.product(special, repeat=2)), dtype=F64)
    got = getattr(division, name)(pairs[:, 0], pairs[:, 1])
    want = getattr(torch, name)(pairs[:, 0], pairs[:, 1])
    assert torch.equal(got.nan_to_num(77.0), want.nan_to_num(77.0))
    zeros = (want == 0) & (pairs[:, 1] != 0)
    assert torch.equal(got.signbit()[zeros], want.signbit()[zeros])


def test_integers_agree_with_python() -> None:
    """Every sign, and the least integer over -1, which wraps."""
    values = [0, 1, -1, 2, -2, 7, -7, 2**63 - 1, -(2**63)]
    for a, b in itertools.product(values, [n for n in values if n]):
        pair = torch.tensor(a), torch.tensor(b)
        want = (a // b + 2**63) % 2**64 - 2**63
        assert division.int_floor_divide(*pair).item() == want
        assert division.int_remainder(*pair).item() == a % b


def test_square_roots_round_correctly() -> None:
    """Squared in exact arithmetic, the neighbours of the root straddle the number."""
    torch.manual_seed(0)
    x = torch.rand(2000, dtype=torch.float64)
    for number, root in zip(x.tolist(), division.square_root(x).tolist(), strict=True):
        exact, half = Fraction(number), Fraction(math.ulp(root)) / 2
        assert (Fraction(root) - half) ** 2 <= exact <= (Fraction(root) + half) ** 2


@pytest.mark.parametrize(("dtype", "right"), [("bf16", True), ("f32", False)])
def test_quotients_in_16_bits_may_be_products_with_reciprocals(dtype: str, *, right: bool) -> None:
    """A sum of one lies between two numbers of f32: found by a campaign of layer norms."""
    fd = FusionDefinition()
    a, b, c = (fd.define_tensor([1], dtype) for _ in range(3))
    fd.add_output(fd.ops.add(fd.ops.cast(fd.ops.div(a, b), "f32"), c))
    given = [torch.tensor([x]).to(TORCH[DType.of(dtype)]) for x in (4.125, -6.21875, -2.390625)]
    (want,) = evaluate(fd.fusion(), given)
    verdict = compare([want], [torch.tensor([-3.053941488265991])], exact=False)
    assert (verdict.status is Status.PASS) is right


def test_subnormal_quotients_may_be_rounded_twice() -> None:
    """As by `math::div_by` for many numerators: found by a night on an H200, of a row's least."""
    rng = np.random.default_rng(1)
    b = np.exp2(rng.uniform(-60, 60, 100_000)).astype(np.float32)
    a = (b * np.exp2(rng.uniform(-149, -126, b.size))).astype(np.float32)
    a, b = a[a != 0], b[a != 0]
    wide = a.astype(np.float64), b.astype(np.float64)
    once = (a * (np.float32(1) / b)).astype(np.float64)
    left = (wide[0] - once * wide[1]).astype(np.float32).astype(np.float64)
    twice = (left * (np.float32(1) / b) + once).astype(np.float32)
    fd = FusionDefinition()
    x, y = (fd.define_tensor(["n"], "f32") for _ in range(2))
    fd.add_output(fd.ops.div(x, y))
    (want,) = evaluate(fd.fusion(), [torch.from_numpy(a), torch.from_numpy(b)])
    assert compare([want], [torch.from_numpy(twice)], exact=False).status is Status.PASS
    assert (twice != (wide[0] / wide[1]).astype(np.float32)).any(), "else nothing is shown"
    further = np.where(np.abs(twice) < 2.0**-130, twice + np.float32(2.0**-147), twice)
    assert compare([want], [torch.from_numpy(further)], exact=False).status is Status.FAIL


FUNCTIONS = [
    op
    for op in OPS
    if OPS[op].form is Form.UNARY and op not in ("cast", "set") and DType.F32 in OPS[op].allowed
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_number_may_be_is_within_what_its_function_may_be(name: str) -> None:
    """Anywhere between the ends of its interval, not at these alone; or nothing is claimed."""
    fd = FusionDefinition()
    x = fd.define_tensor(["n"], "f32")
    tv = getattr(fd.ops, name)(x)
    value, error = (
        part.flatten()
        for part in torch.meshgrid(
            torch.tensor(
                [-8e6, -40, -2.5, -1.02, -1, -0.3, 0, 1e-3, 0.9, 1.5, 3, 80, 1e39], dtype=F64
            ),
            torch.tensor([0, 1e-3, 0.4, 2.1, 6, 300, 1e7, 2e39], dtype=F64),
            indexing="ij",
        )
    )
    row = division.ROWS[name]
    found = row(tv, (Estimate(DType.F32, value, error),), value.shape)
    known = ~found.undecided.expand(value.shape)
    for part in torch.linspace(-1, 1, 41, dtype=F64):
        at = Estimate(DType.F32, value + part * error)
        there = row(tv, (at,), value.shape)
        sure = known & ~there.undecided
        alike = (there.value == found.value) | (there.value.isnan() & found.value.isnan())
        apart = (there.value.double() - found.value.double()).abs()
        near = apart <= (found.error + there.error) * (1 + 1e-9)
        assert (alike | near)[sure].all(), (name, value[sure & ~(alike | near)])


@pytest.mark.parametrize(
    ("base", "exponent", "decided"),
    [(math.nan, -687.0, False), (math.nan, 687.0, True), (-687.0, math.nan, True)],
)
def test_a_power_of_nan_is_1_where_the_exponent_may_be_0(
    base: float, exponent: float, *, decided: bool
) -> None:
    """silu(-687) is -0.0 in f32: found with torch.compile as the target."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([1], "f32") for _ in range(2))
    fd.add_output(fd.ops.pow(a, fd.ops.silu(b)))
    given = [torch.tensor([x], dtype=torch.float32) for x in (base, exponent)]
    (want,) = evaluate(fd.fusion(), given)
    assert bool(want.undecided.item()) != decided
    passes = compare([want], [torch.ones(1)], exact=False).status is not Status.FAIL
    assert passes != decided


def test_a_power_of_1_is_1_where_the_base_may_be_it() -> None:
    """1 to the power of NaN is 1; of tanh(100), which is 1 by rounding, it may be."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([2], "f32") for _ in range(2))
    fd.add_output(fd.ops.pow(fd.ops.tanh(a), b))
    given = [torch.tensor([100.0, 0.5]), torch.tensor([math.nan, math.nan])]
    (want,) = evaluate(fd.fusion(), given)
    assert want.undecided.tolist() == [True, False]
