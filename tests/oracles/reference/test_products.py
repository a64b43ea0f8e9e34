"""The reference's sums of products against tensor cores, in every order that they may take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_products import TORCH_OF, drawn, product, torn

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.runtime.executable import Executable
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case
from fuzz.values import compared, partials
from oracles.differential import compare
from oracles.ptx.sums import Core
from oracles.reference.estimate import TORCH
from oracles.reference.evaluate import Expected, evaluate
from oracles.reference.products import SEEN, STEP, Partials
from oracles.verdict import Status

# --- partial sums of 16 bits ----------------------------------------------------------------------
# What a GPU does is emulated in torch: CTAs take steps of K in turn, add up in f32, hand sums on.


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


@pytest.mark.parametrize(("size", "exact"), [(2047, True), (2049, False)])
def test_sums_of_subnormals_are_handed_on_as_they_are(size: int, *, exact: bool) -> None:
    """Tensor cores align 2^-24 as 2^-14; what is rounded on its way is the sum of such."""
    a, b = torch.ones(1, size).half(), torch.full((size, 1), 2.0**-24).half()
    want = one(product("f16"), a, b, Partials(DType.F16, 3))
    assert bool(want.bound == 0) is exact


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


# --- sums in tensor cores -------------------------------------------------------------------------


NAN, INF = torch.nan, torch.inf
KINDS = ("bf16", "f16", "f32")
DATA = ("normal", "positive", "wild")


def reference_of(fusion: Fusion, *inputs: torch.Tensor) -> Expected:
    """Evaluate a fusion of one output."""
    (want,) = evaluate(fusion, inputs)
    return want


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Cut off what tf32 does not hold."""
    return (x.view(torch.int32) & ~0x1FFF).view(F32)


def cores(a: torch.Tensor, b: torch.Tensor, *, block: int = 8) -> torch.Tensor:
    """Multiply as tensor cores do: align a block and the sum to the largest, cut, add, cut.

    Addends keep two bits more than the sum, about what an H200 shows.
    """
    terms = (a.to(F64).unsqueeze(-2) * b.to(F64).mT.unsqueeze(-3)).split(block, dim=-1)
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=F64)
    for part in terms:
        addends = torch.cat([part, total.unsqueeze(-1)], dim=-1)
        _, exponent = torch.frexp(addends.abs().amax(dim=-1, keepdim=True))
        unit = torch.ldexp(torch.ones(exponent.shape, dtype=F64), exponent - 26)
        total = cut((addends / unit).trunc().mul(unit).sum(dim=-1))
    return total.to(F32)


def cut(x: torch.Tensor) -> torch.Tensor:
    """Cut f64 numbers off after the 24 bits of f32."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2.0**24).trunc(), exponent - 24)


CORES = {"bf16": "bf16", "f16": "f16", "f32": "tf32", "f8e4m3": "e4m3", "f8e5m2": "e5m2"}
"""Operands of tensor cores, and their names in PTX."""


def steps(kind: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply as an H200 does, an instruction after the other."""
    if kind == "f32":
        a, b = tf32(a), tf32(b)
    left, right = a.to(F64).numpy(), b.to(F64).numpy()
    many = STEP[DType[kind.upper()]]
    total = np.zeros((a.shape[0], b.shape[1]))
    for k in range(0, a.shape[1], many):
        parts = left[:, k : k + many], right[k : k + many]
        total = Core()(*parts, total, CORES[kind], "f32")
    return torch.from_numpy(total)


def operands(kind: str, data: str, k: int, rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a [rows, K] and b [K, rows + 2] of one kind of data."""
    made = []
    for shape in ((rows, k), (k, rows + 2)):
        x = torch.randn(shape)
        if data == "positive":
            x = x.abs()
        if data == "wild":
            x = x * torch.exp2(torch.randint(-6, 6, shape).float())
        if data == "one":
            x = torch.where(torch.rand(shape) < 0.1, x * 32, x.abs() * 0.02)
        made.append(x.clamp(-400, 400).to(TORCH[DType[kind.upper()]]))
    return made[0], made[1]


def of_kind(kind: str) -> Fusion:
    """Return the product of two matrices of a kind."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], kind) for _ in range(2))
    how = ((0, -1, 1), (-1, 1, 0))
    precision = "tf32" if kind == "f32" else None
    fd.add_output(fd.ops.fused_multiply_sum(x, y, [-1], how, "f32", precision))
    return fd.fusion()


@pytest.mark.parametrize("data", ["normal", "positive", "wild", "one"])
@pytest.mark.parametrize("kind", CORES)
def test_tensor_cores_are_within_the_bound_of_known_kernels(kind: str, data: str) -> None:
    """In whichever order they take products, by one CTA or by three; and use much of it."""
    torch.manual_seed(4)
    used = 0.0
    for k in (2, 16, 17, 40, 64, 200):
        a, b = operands(kind, data, k)
        fusion = of_kind(kind)
        (alone,), (shared,) = (evaluate(fusion, [a, b], None, many) for many in (0, 2))
        for order in (torch.arange(k), torch.arange(k).flip(0), torch.randperm(k)):
            mine, other = a[:, order], b[order]
            for want, got in (
                (alone, steps(kind, mine, other)),
                (shared, sum_of_three(kind, mine, other)),
            ):
                off = (got - want.value).abs()
                assert torch.all(off <= want.bound), f"K={k}"
                used = max(used, float((off / want.bound).nan_to_num(0.0).max()))
    assert used > 0.15


def sum_of_three(kind: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Add up in f32 what three CTAs have."""
    third = -(-a.shape[1] // 3)
    parts = [
        steps(kind, a[:, k : k + third], b[k : k + third]).to(F32)
        for k in range(0, a.shape[1], third)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.to(F64)


@pytest.mark.parametrize("kind", CORES)
def test_kernels_that_are_known_have_tighter_bounds(kind: str) -> None:
    """By half for those of 16 bits; an error that is beyond is found."""
    torch.manual_seed(5)
    a, b = operands(kind, "normal", 64)
    (open_,), (known,) = (evaluate(of_kind(kind), [a, b], None, many) for many in (None, 0))
    assert torch.all(known.bound <= open_.bound)
    if kind in ("bf16", "f16"):
        assert float((known.bound / open_.bound).median()) < 0.5
    off = torch.where(known.bound > 0, known.bound * 1.01, torch.ones_like(known.bound))
    for sign in (1, -1):
        wrong = [(known.value + sign * off).to(F64)]
        status = compare([replace(known, dtype=DType.F64)], wrong, exact=False).status
        assert status is Status.FAIL


@pytest.mark.gpu
@pytest.mark.parametrize("kind", CORES)
def test_tensor_cores_of_a_device_are_what_is_said(kind: str) -> None:
    """To the last bit, by the default schedule and by the narrowest."""
    torch.manual_seed(6)
    fusion = of_kind(kind)
    params = MatmulParams((64, 16, 64), 1, "pipelined", 2, 1, False, columns=16)
    for made in (Executable(fusion), Executable(fusion, params)):
        for k in (8, 16, 40, 64, 128):
            for data in ("normal", "positive", "wild", "one"):
                a, b = operands(kind, data, k, 64)
                (got,) = made(a.cuda(), b.cuda())
                assert torch.equal(got.cpu().to(F64), steps(kind, a, b)), f"K={k}, {data}"


@pytest.mark.parametrize(("kind", "data"), list(itertools.product(KINDS, DATA)))
def test_right_kernels_pass(kind: str, data: str) -> None:
    """Cut or rounded, in order, backwards, by halves: every legal device is within the bound."""
    torch.manual_seed(1)
    for k in (1, 2, 3, 16, 17, 100, 1000):
        a, b = drawn(kind, data, k)
        want = reference_of(product(kind), a, b)
        low = (tf32(a), tf32(b)) if kind == "f32" else (a, b)
        half = k // 2
        split = cores(low[0][:, :half], low[1][:half]), cores(low[0][:, half:], low[1][half:])
        kernels = {
            "blocks of 8": cores(*low),
            "blocks of 32": cores(*low, block=32),
            "backwards": cores(low[0].flip(1), low[1].flip(0)),
            "split": split[0] + split[1],
            "f32": a.to(F32) @ b.to(F32),
        }
        for name, got in kernels.items():
            verdict = compare([want], [got], exact=False)
            assert verdict.status is Status.PASS, f"{name}, K={k}: {verdict}"
            assert verdict.checked == 30


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_kernels_fail(kind: str) -> None:
    """A dropped term, a sum kept in bf16, and a tile of K read twice."""
    torch.manual_seed(2)
    a, b = drawn(kind, "positive", 512)
    want = reference_of(product(kind), a, b)
    dropped, stale = b.clone(), b.clone()
    dropped[300] = 0
    stale[64:128] = b[:64]
    wrong = [
        a.to(F32) @ dropped.to(F32),
        a.to(F32) @ stale.to(F32),
        (a.to(F32) @ b.to(F32)).to(BF16).to(F32),
    ]
    for got in wrong:
        assert compare([want], [got], exact=False).status is Status.FAIL


def test_the_bound_is_the_contracts() -> None:
    """A step of 16 (tf32: 8) loses 2 ulp of the sum of magnitudes, a few more do; tf32 2^-9.

    Of operands that are known it loses what they do when all are cut, or all rounded.
    """
    torch.manual_seed(3)
    for kind, more in (("bf16", 0.0), ("f32", 2.0**-9 + 2.0**-20)):
        a, b = drawn(kind, "normal", 100)
        want = reference_of(product(kind), a, b)
        sizes = a.to(F64).abs() @ b.to(F64).abs()
        lost = (13 + 5.25 if kind == "f32" else 7 + 3.75) * SEEN
        assert torch.all(want.bound <= (lost + more * (1 + lost)) * sizes * (1 + 1e-9))
        assert torch.all(want.bound >= lost * sizes)
        if kind == "f32":
            bits = [(x.float().view(torch.int32) >> 13 << 13).view(torch.float32) for x in (a, b)]
            gone = (bits[0].to(F64) @ bits[1].to(F64) - want.value).abs()
            assert torch.all(want.bound >= gone + lost * sizes)
            assert torch.all(want.bound <= gone * 2 + (lost + 2.0**-12) * sizes)


def test_any_mapping_is_the_sum_it_says() -> None:
    """Several K, batch in both, extents of 1, operands stored in any order of axes."""
    fd = FusionDefinition()
    a, b = (
        fd.define_tensor(["k", "m", "b", "j", 1], "f16"),
        fd.define_tensor([4, "j", "k", "b"], "f16"),
    )
    mapping = ((0, 1, 4, 2, 3), (2, -1, 0, 3, 1))
    fd.add_output(fd.ops.fused_multiply_sum(a, b, axes=[0, 4], axis_mapping=mapping))
    torch.manual_seed(4)
    x, y = torch.randn(3, 5, 2, 7, 1).half(), torch.randn(4, 7, 3, 2).half()
    want = reference_of(fd.fusion(), x, y)
    full = x.to(F64).permute(0, 1, 4, 2, 3) * y.to(F64).permute(2, 0, 3, 1).unsqueeze(1)
    torch.testing.assert_close(want.value, full.sum(dim=(0, 4)), rtol=1e-12, atol=1e-12)
    assert want.value.shape == (5, 4, 2)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4,)),
        ((4,), (4, 3)),
        ((2, 1, 5, 4), (3, 4, 2)),
        ((2, 0, 4), (4, 3)),
        ((5, 0), (0, 3)),
    ],
)
def test_matmul_is_torchs(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Vectors, stretched batches, no rows, no K."""
    fd = FusionDefinition()
    a, b = fd.define_tensor(left, "bf16"), fd.define_tensor(right, "bf16")
    fd.add_output(fd.ops.cast(fd.ops.matmul(a, b), "f32"))
    x, y = torch.randn(left).to(BF16), torch.randn(right).to(BF16)
    want = reference_of(fd.fusion(), x, y)
    torch.testing.assert_close(want.value, torch.matmul(x.to(F64), y.to(F64)))


def test_linear_adds_its_bias() -> None:
    """In f32: the product is rounded to bf16 only where it is stored."""
    fd = FusionDefinition()
    x, w, bias = (fd.define_tensor(s, "bf16") for s in ([2, 3], [4, 3], [4]))
    fd.add_output(fd.ops.linear(x, w, bias))
    torch.manual_seed(5)
    data = [torch.randint(-20, 20, shape).to(BF16) for shape in ((2, 3), (4, 3), (4,))]
    want = reference_of(fd.fusion(), *data)
    exact = torch.nn.functional.linear(*(tensor.to(F64) for tensor in data))
    assert torch.equal(want.value, exact.to(BF16).to(F64))
    assert not want.bound.any()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.sampled_from(KINDS), st.integers(-120, 10), st.integers(0, 9))
def test_sums_that_lose_no_bit_are_exact(k: int, kind: str, scale: int, seed: int) -> None:
    """Small integers, also times a power of two: equality is demanded of the kernel."""
    torch.manual_seed(seed)
    a = torch.randint(-100, 101, (3, k)).to(F64) * 2.0 ** (scale if kind != "f16" else 0)
    b = torch.randint(-100, 101, (k, 4)).to(F64)
    low = [x.to(TORCH_OF[kind]) for x in (a, b)]
    want = reference_of(product(kind), *low)
    assert not want.bound.any()
    assert not want.undecided.any()
    assert torch.equal(want.value, a @ b)
    assert compare([want], [cores(*low)], exact=True).status is Status.PASS


def test_sums_that_may_lose_a_bit_are_not_exact() -> None:
    """2^24 + 1 needs 25 bits, and so does a sum that only passes by there."""
    a = torch.tensor([[4096.0, 1.0, 0.0], [4096.0, 1.0, -4096.0], [2048.0, 1.0, 0.0]]).half()
    b = torch.tensor([[4096.0], [1.0], [4096.0]]).half()
    want = reference_of(product("f16"), a, b)
    assert (want.bound > 0).flatten().tolist() == [True, True, False]


def test_sums_of_8_bit_floats_cut_what_is_far_below_the_largest() -> None:
    """One large product and 31 that are cut to a half, as an H200 does; equal ones lose little."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], name) for name in ("f8e5m2", "f8e4m3"))
    fd.add_output(fd.ops.fused_multiply_sum(x, y, [-1], ((0, -1, 1), (-1, 1, 0)), "f32"))
    a = torch.full((1, 32), 0.875)
    a[0, 0] = 2.0**13
    b = torch.full((32, 1), 0.9375)
    (want,) = evaluate(fd.fusion(), [a.to(torch.float8_e5m2), b.to(torch.float8_e4m3fn)])
    assert float(want.value - (2.0**13 * 0.9375 + 31 * 0.5)) <= float(want.bound)
    assert float(want.value - 2.0**13 * 0.9375) > float(want.bound)
    equal = torch.full((1, 32), 1.75).to(torch.float8_e5m2), (b * 1.0).to(torch.float8_e4m3fn)
    (near,) = evaluate(fd.fusion(), list(equal))
    assert float(near.bound) <= 33 * 2.0**-13 * 1.75 * 0.9375 * 33


def test_subnormal_operands_of_8_bits_have_the_exponent_of_normal_ones() -> None:
    """An H100 leaves out 2**-19 beside 2**-8 * 1.25, which is 11 bits more."""
    a = torch.tensor([[2.5, 0.1875, 1.25, -0.0625, -2, 2.0**-10, 0.75, -0.5]])
    b = torch.full((8, 1), -(2.0**-9))
    given = [a.to(torch.float8_e5m2), b.to(torch.float8_e4m3fn)]
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], name) for name in ("f8e5m2", "f8e4m3"))
    fd.add_output(fd.ops.fused_multiply_sum(x, y, [-1], ((0, -1, 1), (-1, 1, 0)), "f32"))
    (sums,) = evaluate(fd.fusion(), given)
    off = (sums.value + 0.004150390625).abs()
    assert off == 2.0**-19
    assert off <= sums.bound <= 2.0**-9
    (normal,) = evaluate(fd.fusion(), [given[0], (b * 8).to(torch.float8_e4m3fn)])
    assert normal.bound == 0


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_subnormal_operands_of_16_bits_have_the_exponent_of_normal_ones(kind: str) -> None:
    """Of f16 an H100 leaves out the second product from 16 bits below the first on."""
    least = {"f16": 2.0**-24, "bf16": 2.0**-133}[kind]
    dtype = TORCH_OF[kind]
    for lost, exact in ((4, True), (20, False)):
        a = torch.tensor([[least, least]], dtype=torch.float64)
        b = torch.tensor([[1.0], [2.0**-lost]], dtype=torch.float64)
        if kind == "bf16":
            b *= 2.0**120  # else products are below what f32 holds
        want = reference_of(product(kind), a.to(dtype), b.to(dtype))
        assert (want.bound == 0) == exact
    normal = reference_of(product(kind), (a * 2**20).to(dtype), b.to(dtype))
    assert normal.bound == 0


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (1, 9), (9, 1), (40, 50)])
def test_inf_and_nan_are_ieees(shape: tuple[int, int]) -> None:
    """Inf times 0 and inf minus inf are NaN, in any order."""
    torch.manual_seed(6)
    pool = torch.tensor([0.0, 0.0, 1.0, 1.0, -2.0, 1.0, 3.0, INF, -INF, NAN], dtype=F64)
    m, n = shape
    for k, batch, rare in itertools.product((1, 2, 7, 40), (1, 3), (1, 8)):
        a, b = (
            pool[torch.randint(0, 10, size)].where(torch.rand(size) < 1 / rare, 1.0)
            for size in ((batch, m, k), (batch, k, n))
        )
        want = reference_of(product(rows=3), a.to(BF16), b.to(BF16))
        total = torch.zeros(batch, m, n, dtype=F64)
        for turn in range(k):
            total = total + a[:, :, turn, None] * b[:, turn, None, :]
        assert torch.equal(want.value.nan_to_num(nan=1e9), total.nan_to_num(nan=1e9))
        assert not want.undecided.any()


def test_sums_that_may_overflow_are_undecided() -> None:
    """Some orders give inf, and then perhaps NaN; a NaN among the products decides it."""
    huge = 3.0e38
    a = torch.tensor([[huge, -huge, 0.0], [1.0, 1.0, 1.0], [huge, huge, NAN], [-huge, -huge, INF]])
    b = torch.tensor([[1.0], [1.0], [1.0]])
    want = reference_of(product(), a.to(BF16), b.to(BF16))
    assert want.undecided.flatten().tolist() == [True, False, False, True]


def test_a_nan_decides_a_sum_of_products() -> None:
    """Beside a factor that hangs on rounding; only in the rows and columns that have one."""
    fd = FusionDefinition()
    x, a, b = (fd.define_tensor(shape, "bf16") for shape in ([-1, 1], [-1, 1], [2, -1]))
    fd.add_output(fd.ops.matmul(fd.ops.cat([torn(fd, x, "bf16"), a], 1), b))
    a_, b_ = torch.tensor([[NAN], [2.0]]), torch.tensor([[1, 1, 1], [1, NAN, 2]])
    want = reference_of(fd.fusion(), torch.ones(2, 1).to(BF16), a_.to(BF16), b_.to(BF16))
    assert want.undecided.tolist() == [[False] * 3, [True, False, True]]
    assert want.value.isnan().tolist() == [[True] * 3, [False, True, False]]


def test_a_prologue_is_rounded_to_the_operands_type() -> None:
    """129 * 3 = 387 has 9 bits, bf16 has 8: tensor cores see 388."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([1, 1], "bf16"), fd.define_tensor([1, 1], "bf16")
    fd.add_output(fd.ops.cast(fd.ops.matmul(fd.ops.mul(x, 3.0), w), "f32"))
    want = reference_of(fd.fusion(), torch.tensor([[129.0]]).to(BF16), torch.ones(1, 1).to(BF16))
    assert (float(want.value), float(want.bound)) == (388.0, 0.0)


def test_errors_of_a_prologue_reach_the_sum() -> None:
    """An exp may be 3 ulp off, which may round to either neighbour of 16 bits."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1, -1], "bf16")
    fd.add_output(
        fd.ops.fused_multiply_sum(fd.ops.exp(x), fd.ops.sin(w), [-1], ((0, -1, 1), (-1, 1, 0)))
    )
    torch.manual_seed(7)
    a, b = torch.randn(5, 64).to(BF16), torch.randn(64, 6).to(BF16)
    want = reference_of(fd.fusion(), a, b)
    low = a.to(F32).exp().to(BF16), b.to(F32).sin().to(BF16)
    assert compare([want], [cores(*low)], exact=False).status is Status.PASS
    sizes = low[0].to(F64).abs() @ low[1].to(F64).abs()
    assert torch.all(want.bound > 2.0**-10 * sizes)
    assert torch.all(want.bound < 2.0**-6 * sizes)


def test_a_product_of_a_product_rounds_what_lies_between() -> None:
    """The second product reads 16 bits; a sum near a tie may have gone to either side."""
    fd = FusionDefinition()
    x, v, w = (fd.define_tensor(shape, "bf16") for shape in ([-1, -1], [-1, -1], [-1, -1]))
    fd.add_output(fd.ops.cast(fd.ops.matmul(fd.ops.relu(fd.ops.matmul(x, v)), w), "f32"))
    torch.manual_seed(8)
    data = [torch.randn(shape).to(BF16) for shape in ((5, 40), (40, 30), (30, 6))]
    want = reference_of(fd.fusion(), *data)
    between = cores(data[0], data[1]).relu()
    right = cores(between.to(BF16), data[2])
    assert compare([want], [right], exact=False).status is Status.PASS
    assert compare([want], [right * (1 + 2.0**-4)], exact=False).status is Status.FAIL


def test_doubt_about_an_operand_reaches_its_row_only() -> None:
    """A pole of the prologue that may fall either way, and a zero of open sign times inf."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], "f16"), fd.define_tensor([-1, -1], "f16")
    zero = fd.ops.sub(fd.ops.exp(x), 2.718281828)
    pole = fd.ops.reciprocal(zero)
    for a, b in ((pole, w), (zero, w), (w, pole), (w, zero)):
        fd.add_output(fd.ops.matmul(a, b))
    given = torch.tensor([[1.0, 2.0], [2.0, 3.0]]), torch.tensor([[INF, 1.0], [1.0, 1.0]])
    doubts = [want.undecided.tolist() for want in evaluate(fd.fusion(), [x.half() for x in given])]
    assert doubts == [
        [[True, True], [False, False]],
        [[True, False], [False, False]],
        [[True, False], [True, False]],
        [[True, False], [False, False]],
    ]


def test_an_epilogue_of_inf_is_decided() -> None:
    """An infinite sum has no error that could lead it back."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], "bf16"), fd.define_tensor([-1, -1], "bf16")
    fd.add_output(fd.ops.neg(fd.ops.matmul(x, w)))
    want = reference_of(
        fd.fusion(), torch.tensor([[INF, 1e-9, 700.0]]).to(BF16), torch.rand(3, 5).to(BF16) + 1
    )
    assert want.value.flatten().tolist() == [-INF] * 5
    assert not want.undecided.any()


def test_tf32_loses_what_it_does_not_hold() -> None:
    """Eleven bits are exact, also far from 1; the twelfth, and subnormals, may be lost."""
    a = torch.tensor([[2047.0], [4095.0], [1.5 * 2.0**-100], [3 * 2.0**-149], [3.4e38]])
    want = reference_of(product("f32"), a, torch.ones(1, 1))
    assert (want.bound > 0).flatten().tolist() == [False, True, False, True, True]
    assert float(want.bound[1]) >= 1.0
    assert float(want.bound[3]) >= 3 * 2.0**-149
    assert want.undecided.flatten().tolist() == [False] * 5
    small = reference_of(product("f32"), a + 2e35, torch.full((1, 1), 2.0**-40))
    assert bool(small.undecided[4]), "3.402e38 may be rounded to the inf of tf32"


def test_tiny_sums_may_lose_their_last_bits() -> None:
    """Products below the subnormals of f32 vanish; that is right too."""
    tiny = torch.full((1, 3), 2.0**-100).to(BF16)
    want = reference_of(product(), tiny, tiny.reshape(3, 1))
    assert compare([want], [torch.zeros(1, 1)], exact=False).status is Status.PASS


# --- scans ----------------------------------------------------------------------------------------


def test_steps_stay_within_an_axis_where_axes_do_not_merge() -> None:
    """Of 8 x 5 products a kernel may make 8 steps, of 40 three."""
    torch.manual_seed(7)
    mapping = ((0, -1, 1, 2), (-1, 0, 1, 2))
    fd = FusionDefinition()
    a, b = fd.define_tensor([-1, -1, -1], "bf16"), fd.define_tensor([-1, -1, -1], "bf16")
    fd.add_output(fd.ops.fused_multiply_sum(a, b, [2, 3], mapping, "f32"))
    x, y = operands("bf16", "positive", 40)
    (apart,) = evaluate(fd.fusion(), [x.view(6, 8, 5), y.T.reshape(8, 8, 5)], None, 0)
    (merged,) = evaluate(of_kind("bf16"), [x, y], None, 0)
    assert torch.equal(apart.value, merged.value)
    sizes = x.to(F64) @ y.to(F64)
    assert torch.all(merged.bound < apart.bound)
    assert torch.all(apart.bound >= 8 * 2.0**-23 * sizes)
    total = torch.zeros(6, 8, dtype=F64)
    for k in range(0, 40, 5):
        left, right = x[:, k : k + 5].to(F64).numpy(), y[k : k + 5].to(F64).numpy()
        total = torch.from_numpy(Core()(left, right, total.numpy(), "bf16", "f32"))
    assert torch.all((total - apart.value).abs() <= apart.bound)
