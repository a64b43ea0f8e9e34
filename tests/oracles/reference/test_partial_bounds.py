"""Partial sums of 16 bits in the reference: right kernels pass, however CTAs meet; wrong ones fail.

What a GPU does is emulated in torch: CTAs take steps of K in turn, add up in f32, hand sums on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from reference_products import drawn, product

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.judge import compared, partials
from fuzz.cases.case import Case
from oracles.differential import compare
from oracles.reference.estimate import TORCH
from oracles.reference.evaluate import Expected, evaluate
from oracles.reference.sums import Partials
from oracles.verdict import Status

F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16
HALVES = (DType.F16, DType.BF16)
UNIT = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8}
"""Half the distance from 1 to the next number."""
Parts = list[torch.Tensor]


def shares(a: torch.Tensor, b: torch.Tensor, many: int, step: int = 16) -> Parts:
    """The f32 sum of each CTA: every `many`-th step of K."""
    a, b = a.to(F32), b.to(F32)
    steps = range(-(-a.shape[1] // step))
    products = [a[:, k * step :][:, :step] @ b[k * step :][:step] for k in steps]
    zero = torch.zeros(a.shape[0], b.shape[1])
    return [sum(products[cta::many], zero) for cta in range(many)]


def in_turns(parts: Parts, kind: torch.dtype) -> torch.Tensor:
    """All but the last CTA store the sum so far."""
    total = parts[0]
    for part in parts[1:]:
        total = total.to(kind).to(F32) + part
    return total


def by_tma(parts: Parts, kind: torch.dtype) -> torch.Tensor:
    """The first stores its sum, the engine adds those of others, the last adds its own in f32."""
    total = parts[0].to(kind)
    for part in parts[1:-1]:
        total = (total.to(F32) + part.to(kind).to(F32)).to(kind)
    return total.to(F32) + parts[-1]


def scattered(parts: Parts, kind: torch.dtype) -> torch.Tensor:
    """Each stores its sum once."""
    first, *others = (part.to(kind).to(F32) for part in parts)
    return sum(others, first)


WAYS: tuple[Callable[[Parts, torch.dtype], torch.Tensor], ...] = (in_turns, by_tma, scattered)


def one(
    fusion: Fusion, a: torch.Tensor, b: torch.Tensor, handed: Partials | None = None
) -> Expected:
    """Evaluate a fusion of one output."""
    (want,) = evaluate(fusion, [a, b], handed)
    return want


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("data", ["normal", "positive", "wild"])
def test_right_kernels_pass_where_sums_are_rounded(dtype: DType, data: str) -> None:
    """Each way of meeting is within the bound, and not within that of f32."""
    torch.manual_seed(1)
    beyond = set()
    for many, k in itertools.product((2, 3, 7, 16), (40, 300, 1000)):
        a, b = drawn("bf16", data, k)
        plain = one(product(), a, b)
        want = one(product(), a, b, Partials(dtype, many))
        assert torch.equal(want.value, plain.value)
        for way in WAYS:
            got = way(shares(a, b, many), TORCH[dtype])
            verdict = compare([want], [got], exact=False)
            assert verdict.status is Status.PASS, f"{way.__name__}, {many}, K={k}: {verdict}"
            # Wild sums of f16 may overflow: those hang on the order.
            assert verdict.checked >= (25 if (data, dtype) == ("wild", DType.F16) else 30)
            if compare([plain], [got], exact=False).status is Status.FAIL:
                beyond.add(way)
    assert beyond == set(WAYS)


def test_the_bound_is_nearly_reached() -> None:
    """1 and 63 times 2^-8: in turns of bf16 each but the last is lost, to nearest even."""
    a = torch.ones(1, 64 * 16).to(BF16)
    b = torch.zeros(64 * 16, 1).to(BF16)
    b[::16], b[0] = 2.0**-8, 1.0
    got = in_turns(shares(a, b, 64), BF16)
    assert got.item() == 1 + 2.0**-8
    want = one(product(), a, b, Partials(DType.BF16, 64))
    error, bound = (got - want.value).abs().item(), want.bound.item()
    assert error == 62 * 2.0**-8
    assert error <= bound <= 1.5 * error
    assert compare([one(product(), a, b)], [got], exact=False).status is Status.FAIL


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("many", [2, 3, 64])
def test_the_bound_is_that_of_its_derivation(dtype: DType, many: int) -> None:
    """One less than CTAs in a row, each by half an ulp of the sum of magnitudes."""
    torch.manual_seed(2)
    a, b = drawn("bf16", "normal", 2000)
    sizes = a.to(F64).abs() @ b.to(F64).abs()
    plain = one(product(), a, b).bound
    more = one(product(), a, b, Partials(dtype, many)).bound - plain
    grown = (1 + UNIT[dtype]) ** (many - 1)
    assert torch.all(more >= (grown - 1) * sizes)
    assert torch.all(more <= (grown - 1) * (sizes + plain) * 1.001 + many * grown * 2.0**-24)


@pytest.mark.parametrize("dtype", HALVES)
def test_wrong_kernels_fail_where_sums_are_rounded(dtype: DType) -> None:
    """The sum of one CTA is lost, or added twice."""
    torch.manual_seed(3)
    a, b = drawn("bf16", "positive", 512)
    want = one(product(), a, b, Partials(dtype, 4))
    parts = shares(a, b, 4)
    for way in WAYS:
        for wrong in ([*parts[:2], parts[3]], [*parts[:2], *parts[1:]]):
            got = way(wrong, TORCH[dtype])
            assert compare([want], [got], exact=False).status is Status.FAIL


@pytest.mark.parametrize(
    ("dtype", "size", "exact"),
    [
        (DType.BF16, 255, True),
        (DType.BF16, 257, False),
        (DType.F16, 2047, True),
        (DType.F16, 2049, False),
    ],
)
def test_integers_that_fit_are_exact(dtype: DType, size: int, *, exact: bool) -> None:
    """Equality is demanded where every partial sum has few enough bits, a bound elsewhere."""
    for scale in (1.0, 2.0**-20):
        a = torch.ones(1, size).to(BF16)
        b = torch.full((size, 1), scale).to(BF16)
        want = one(product(), a, b, Partials(dtype, 3))
        assert bool(want.bound == 0) is exact
        assert not want.undecided.any()
        for way in WAYS:
            got = way(shares(a, b, 3), TORCH[dtype])
            assert compare([want], [got], exact=False).status is Status.PASS
            assert not exact or torch.equal(got.to(F64), want.value)


def test_sums_below_the_least_of_f16_have_an_absolute_bound() -> None:
    """Half of 2^-24 for each rounding: 5 times 2^-26 becomes 2^-24."""
    a = torch.ones(1, 48).to(BF16)
    b = torch.zeros(48, 1).to(BF16)
    b[::16] = 5 * 2.0**-26
    want = one(product(), a, b, Partials(DType.F16, 3))
    got = scattered(shares(a, b, 3), torch.float16)
    assert got.item() == 3 * 2.0**-24
    assert 0 < (got - want.value).abs().item() <= want.bound.item() <= 8 * 2.0**-24


def test_partial_sums_that_may_overflow_are_undecided() -> None:
    """Where magnitudes add up to more than 65504, some order of CTAs gives inf, or NaN."""
    a = torch.tensor([[240.0, 240.0, -240.0], [240.0, 1.0, -1.0]]).half()
    b = torch.full((3, 1), 256.0).half()
    half = one(product("f16"), a, b, Partials(DType.F16, 3))
    assert half.undecided.flatten().tolist() == [True, False]
    assert not one(product("f16"), a, b, Partials(DType.BF16, 3)).undecided.any()


@pytest.mark.parametrize("kind", ["i8", "f16"])
def test_other_sums_are_not_handed_on_in_16_bits(kind: str) -> None:
    """Those in i32, and those in f16, which no CTAs share."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor([-1, -1], kind) for _ in range(2))
    fd.add_output(fd.ops.matmul(a, b, accumulate="f16") if kind == "f16" else fd.ops.matmul(a, b))
    torch.manual_seed(4)
    given = [torch.randint(-9, 10, shape).to(TORCH[DType.of(kind)]) for shape in ((3, 90), (90, 4))]
    plain = one(fd.fusion(), given[0], given[1])
    with_partials = one(fd.fusion(), given[0], given[1], Partials(DType.BF16, 8))
    assert torch.equal(plain.bound, with_partials.bound)
    assert torch.equal(plain.value, with_partials.value)


def test_a_case_is_compared_as_its_schedule_rounds() -> None:
    """Rounded sums of integers are bounded, never skipped; those in f32 are equal."""
    params = MatmulParams((64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=16)
    split = MatmulParams(
        (64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=16, splits=3, partial="bf16"
    )
    assert partials(params) is None
    assert partials(split) == Partials(DType.BF16, 3)
    fusion = product()
    case = Case(fusion, split, {"i0": 5, "i1": 400, "i2": 6}, "integers", 0)
    torch.manual_seed(5)
    a = torch.randint(1, 4, (5, 400)).to(BF16)
    b = torch.randint(1, 4, (400, 6)).to(BF16)
    got = in_turns(shares(a, b, 3), BF16)
    assert not torch.equal(got.to(F64), a.to(F64) @ b.to(F64))
    verdict = compared(case, [a, b], [got])
    assert (verdict.status, verdict.checked) == (Status.PASS, 30)
    assert compared(case, [a, b], [got * 1.1]).status is Status.FAIL
    strict = Case(fusion, params, case.extents, "integers", 0)
    assert compared(strict, [a, b], [got]).status is Status.FAIL
