"""The reference is torch, and its bounds let every right kernel pass."""

import itertools
import random
from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np
import pytest
import torch
from random_words import philox
from sample import often
from torch.nn import functional

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.definition import (
    Constant,
    Fusion,
    FusionDefinition,
    Scalar,
    Symbol,
    TensorView,
    to_python,
)
from fuser.fusion.ops import CASTS, OPS, operand_dtypes
from fuser.fusion.promotion import arithmetic
from oracles.differential import compare
from oracles.reference.estimate import TORCH, Estimate, convert
from oracles.reference.evaluate import Expected, evaluate
from oracles.reference.rows import ROWS
from oracles.verdict import Status

F64, F32, BOOL = torch.float64, torch.float32, torch.bool
NAN, INF = torch.nan, torch.inf


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return torch's remainder; its vectorised f32 form gives NaN for quotients above f32."""
    if not a.is_floating_point():
        return torch.remainder(a, b)
    with np.errstate(all="ignore"):
        part = torch.as_tensor(np.fmod(a.numpy(), b.numpy()), dtype=a.dtype)
    return torch.where((part != 0) & ((b < 0) != (part < 0)), part + b, part)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Return torch's gelu; its vectorised f32 form gives NaN at inf."""
    return x * 0.5 * (1 + torch.erf(x * 0.5**0.5))


def sqrt(x: torch.Tensor) -> torch.Tensor:
    """Return the correctly rounded root; torch's vectorised f32 form is an ulp off at times."""
    with np.errstate(invalid="ignore"):
        return torch.as_tensor(np.sqrt(x.to(F64).numpy())).to(x.dtype)


def order(x: torch.Tensor) -> torch.Tensor:
    """Return the number of f32 steps from 0 to x, one more below 0; NaN last, both zeros one."""
    if not x.is_floating_point():
        return x.to(torch.int64)
    bits = x.to(torch.float32).abs().view(torch.int32).to(torch.int64)
    return torch.where(x.isnan(), 2**31 - 1, torch.where(x < 0, ~bits, bits))


def in_f64(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return torch's function, rounded once; its vectorised f32 form overflows too early."""
    return lambda x: function(x.to(F64)).to(x.dtype)


def nibble(x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """Return the signed number that the lower, or upper, four bits of a byte are."""
    bits = torch.where(which % 2 == 0, x, x >> 4) & 15
    return bits - 16 * (bits > 7).to(x.dtype)


KERNEL: dict[str, Callable[..., torch.Tensor]] = {
    "nibble": nibble,
    "set": torch.clone,
    "floor_div": torch.floor_divide,
    "silu": functional.silu,
    "remainder": remainder,
    "gelu": gelu,
    "sqrt": sqrt,
    "order": order,
    "philox": philox,
    "sinh": in_f64(torch.sinh),
    "cosh": in_f64(torch.cosh),
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "addcmul": lambda x, a, b, value: x + value * (a * b),
    "lerp": lambda a, b, w: torch.where(w.abs() < 0.5, a + w * (b - a), b - (b - a) * (1 - w)),
    "clamp": lambda x, low, high: torch.minimum(torch.maximum(x, low), high),
}
"""torch's own function for each pointwise operation whose name differs."""


def kernel_of(op: str) -> Callable[..., torch.Tensor]:
    """Return torch's function of that operation."""
    return KERNEL[op] if op in KERNEL else getattr(torch, op)


def emulate(fusion: Fusion, inputs: list[Any]) -> list[torch.Tensor]:
    """Run a fusion as a kernel would: f32 arithmetic, 16 bits only at outputs and casts."""
    known: dict[Any, torch.Tensor] = {}
    sizes: dict[Any, int] = {}
    for arg, given in zip(fusion.inputs, inputs, strict=True):
        known[arg] = torch.as_tensor(given, dtype=TORCH[arg.dtype])
        if isinstance(arg, TensorView):
            sizes.update(zip(arg.shape, given.shape, strict=True))
    for tv in fusion.tensors:
        if tv.op == "input":
            known[tv] = known[tv].to(TORCH[arithmetic(tv.dtype)])
            continue
        shape = [sizes[n] if isinstance(n, Symbol) else n for n in tv.shape]
        for number in tv.args:
            if isinstance(number, Constant):
                known[number] = torch.tensor(number.value, dtype=TORCH[number.dtype])
        pairs = zip(tv.args, operand_dtypes(tv), strict=True)
        args = [known[operand].to(TORCH[dtype]) for operand, dtype in pairs]
        held = TORCH[arithmetic(tv.dtype)]
        match tv.op:
            case "cast":
                known[tv] = args[0].to(TORCH[tv.dtype]).to(held)
            case "broadcast" | "squeeze":
                known[tv] = args[0].reshape(shape)
            case "expand" | "full":
                known[tv] = args[0].expand(shape)
            case "permute":
                known[tv] = args[0].permute(*map(int, dict(tv.attrs)["dims"]))
            case "iota":
                known[tv] = args[0] + torch.arange(shape[0]).to(held) * args[1]
            case "add" | "maximum" | "minimum" | "mul" if tv.dtype is DType.BOOL:
                both = torch.logical_and if tv.op in ("mul", "minimum") else torch.logical_or
                known[tv] = both(*args)
            case _:
                known[tv] = kernel_of(tv.op)(*args)
    return [known[tv].to(TORCH[tv.dtype]).contiguous() for tv in fusion.outputs]


def single(op: str, dtypes: list[str], *, count: int) -> Fusion:
    """Return a fusion of one pointwise operation on tensors of one axis."""
    fd = FusionDefinition()
    tensors = [fd.define_tensor([count], dtype) for dtype in dtypes]
    fd.add_output(getattr(fd.ops, op)(*tensors))
    return fd.fusion()


SPECIAL = [
    *(NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 7.0, -7.0),
    *(1e-40, -1e-40, 1e-20, 3e38, -3e38, 1e10, -1e10, 88.5, -90.0, 104.0, 0.1, -0.3, 1e-3),
]
WHOLE = [0, 1, -1, 2, -2, 3, 7, -7, 100, 2**31 - 1, -(2**31), 65537, 46341]


def operands(op: str, values: list[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Return all combinations of two values, and a third value beside them."""
    pairs = list(itertools.product(values, repeat=2))
    columns = [torch.tensor(column, dtype=dtype) for column in zip(*pairs, strict=True)]
    columns += [columns[0].flip(0), torch.ones_like(columns[0]) + columns[1]]
    return columns[: OPS[op].arity]


POINTWISE = sorted(name for name, spec in OPS.items() if spec.pointwise and name != "cast")


def test_every_operation_has_a_row() -> None:
    """A new operation without a row would be found only when it is drawn."""
    assert set(ROWS) == set(OPS)


FLOATING = [
    (op, dtype)
    for op in POINTWISE
    for dtype in ("f32", "f64")
    if DType.of(dtype) in OPS[op].allowed
]


@pytest.mark.parametrize(("op", "dtype"), FLOATING)
def test_floats_agree_with_torch_on_special_values(op: str, dtype: str) -> None:
    """NaN, inf, zeros, subnormals and large numbers: torch's answer must lie within the bound."""
    columns = operands(op, SPECIAL, TORCH[DType.of(dtype)])
    kinds = [dtype] * len(columns)
    if op == "where":
        columns[0], kinds[0] = columns[0] > 0, "bool"
    fusion = single(op, kinds, count=len(columns[0]))
    expected = evaluate(fusion, columns)
    verdict = compare(expected, emulate(fusion, columns), exact=False)
    assert verdict.status is Status.PASS, verdict
    assert verdict.checked >= (0.9 if op == "lerp" else 0.97) * len(columns[0]), verdict
    if OPS[op].allowed and not expected[0].dtype.is_float:
        assert verdict.checked == len(columns[0])


WHOLE_TYPES = [
    (op, dtype)
    for op in POINTWISE
    for dtype in ("i32", "i64")
    if DType.of(dtype) in OPS[op].allowed
]


@pytest.mark.parametrize(("op", "dtype"), WHOLE_TYPES)
def test_integers_agree_with_torch_and_wrap(op: str, dtype: str) -> None:
    """Integers are exact; only division by zero is left open."""
    columns = operands(op, WHOLE, TORCH[DType.of(dtype)])
    if op in ("floor_div", "remainder"):
        # torch raises at 0 and traps at the least integer by -1 on some machines.
        columns[1] = torch.where((columns[1] == 0) | (columns[1] == -1), 5, columns[1])
    kinds = [dtype] * len(columns)
    if op == "where":
        columns[0], kinds[0] = columns[0] > 0, "bool"
    fusion = single(op, kinds, count=len(columns[0]))
    exact = not evaluate(fusion, columns)[0].dtype.is_float
    verdict = compare(evaluate(fusion, columns), emulate(fusion, columns), exact=exact)
    assert (verdict.status, verdict.checked) == (Status.PASS, len(columns[0])), verdict


@pytest.mark.parametrize("op", [op for op in POINTWISE if DType.BOOL in OPS[op].allowed])
def test_bool_agrees_with_torch(op: str) -> None:
    """Bool logic is exact."""
    columns = operands(op, [True, False], BOOL)[: OPS[op].arity]
    columns = [column.to(BOOL) for column in columns]
    fusion = single(op, ["bool"] * len(columns), count=4)
    verdict = compare(evaluate(fusion, columns), emulate(fusion, columns), exact=False)
    assert (verdict.status, verdict.checked) == (Status.PASS, 4), verdict


def test_integer_division_by_zero_is_open_and_by_minus_one_wraps() -> None:
    """The hardware gives some number; no comparison may depend on it."""
    a = torch.tensor([7, -(2**31), 5], dtype=torch.int32)
    b = torch.tensor([0, -1, -1], dtype=torch.int32)
    for op, wants in (("floor_div", [-(2**31), -5]), ("remainder", [0, 0])):
        (got,) = evaluate(single(op, ["i32", "i32"], count=3), [a, b])
        assert got.undecided.tolist() == [True, False, False]
        assert got.value.tolist()[1:] == wants


@pytest.mark.parametrize("source", [dtype.name for dtype in DType if dtype in CASTS])
@pytest.mark.parametrize("target", [dtype.name for dtype in DType if dtype in CASTS])
def test_casts_agree_with_torch(source: str, target: str) -> None:
    """Every pair of dtypes; what an integer cannot hold is open."""
    values = [0.0, -0.0, 1.0, -1.9, 2.5, 255.7, 65519.0, 65520.0, 1e-7, 3e38, INF, -INF, NAN]
    if not DType.of(source).is_float:
        values = [0, 1, -1, 2049, 65537, 2**24 + 1, 2**31 - 1, -(2**31)]
    x = torch.tensor(values).to(TORCH[DType.of(source)])
    fd = FusionDefinition()
    fd.add_output(fd.ops.cast(fd.define_tensor([len(values)], source), target))
    (want,) = evaluate(fd.fusion(), [x])
    # Beyond the largest f8e4m3 torch has had that number since 2.12, and NaN before.
    large = target == "f8e4m3" and x.dtype.itemsize > 1
    cut = x.to(F64).clamp(-448, 448).to(x.dtype) if large else x
    verdict = compare([want], [cut.to(TORCH[DType.of(target)])], exact=True)
    assert verdict.status is Status.PASS, verdict
    if DType.of(source).is_float and DType.of(target).is_int:
        size = x.to(F64).abs()
        fits = size.isfinite() & (size < 2.0 ** (8 * DType.of(target).nbytes - 1))
        assert torch.equal(want.undecided, ~fits)
    else:
        assert not want.undecided.any()


def drawn(seed: int) -> tuple[Fusion, list[Any]]:
    """Return a random fusion of up to eight operations, and inputs for it."""
    rng = random.Random(seed)
    fd = FusionDefinition()
    floats = ["f32", "f32", "f16", "bf16", "f64"]
    kinds = [rng.choice([*floats, "i32", "bool"]) for _ in range(2)] + [rng.choice(floats)]
    live: list[TensorView] = [fd.define_tensor(["n", "m"], kind) for kind in kinds]
    scalar = fd.define_scalar("f64")
    names = [name for name, spec in OPS.items() if spec.pointwise]
    for _ in range(rng.randint(1, 8)):
        op = rng.choice(names)
        if op == "cast":
            live.append(fd.ops.cast(rng.choice(live), rng.choice([*floats, "i32"])))
            continue
        args = [rng.choice([*live, *live, scalar, 0.75, -2]) for _ in range(OPS[op].arity)]
        try:
            live.append(getattr(fd.ops, op)(*args))
        except FusionError:
            continue
    fd.add_output(live[-1] if live[-1].op != "input" else fd.ops.neg(live[-1]))
    torch.manual_seed(seed)
    spread = rng.choice([0.1, 1.0, 1.0, 10.0, 1000.0])
    inputs: list[Any] = []
    for kind in kinds:
        real = torch.randn(17, 33, dtype=F64) * spread
        whole = torch.randint(-9, 9, (17, 33))
        whole = torch.where(whole == 0, 1, whole)
        inputs.append((whole if kind == "i32" else real).to(TORCH[DType.of(kind)]))
        if kind == "bool":
            inputs[-1] = whole > 0
    return fd.fusion(), [*inputs, 1.3]


def safe(fusion: Fusion) -> bool:
    """Tell whether torch can run it: integer division may meet zero and stop the process."""
    risky = ("floor_div", "remainder")
    return not any(tv.op in risky and tv.dtype.is_int for tv in fusion.tensors)


def test_right_kernels_pass() -> None:
    """Correct must pass: f32 arithmetic of torch stays within the bound of every element."""
    decided = total = 0
    for seed in range(often(1200, 400)):
        fusion, inputs = drawn(seed)
        if not safe(fusion):
            continue
        try:
            got = emulate(fusion, inputs)
        except RuntimeError:  # integers to negative integer powers: a value, but not for torch
            continue
        verdict = compare(evaluate(fusion, inputs), got, exact=False)
        assert verdict.status is not Status.FAIL, f"seed {seed}: {verdict}\n{to_python(fusion)}"
        decided, total = decided + verdict.checked, total + got[0].numel()
    assert decided > 0.9 * total


@pytest.mark.parametrize(("dtype", "limit"), [("f32", 2e-6), ("bf16", 2.0**-7), ("f64", 1e-13)])
def test_bounds_of_simple_chains_are_tight(dtype: str, limit: float) -> None:
    """A wide bound would hide bugs: the allowance is a few roundings."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1], dtype), fd.define_tensor([-1], dtype)
    fd.add_output(fd.ops.tanh(fd.ops.div(fd.ops.add(fd.ops.mul(x, y), 1.0), 3.0)))
    inputs = [(torch.rand(1000, dtype=F64) + 0.1).to(TORCH[DType.of(dtype)]) for _ in range(2)]
    (want,) = evaluate(fd.fusion(), inputs)
    assert float((want.bound / want.value.abs()).max()) < limit
    assert not want.undecided.any()


def test_whole_numbers_have_no_error() -> None:
    """Integer valued chains are exact, so the exact comparison may be used."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1], "bf16"), fd.define_tensor([-1], "bf16")
    total = fd.ops.sub(fd.ops.mul(x, y), fd.ops.relu(x))
    fd.add_output(fd.ops.floor(fd.ops.div(total, 4)))
    inputs = [torch.randint(-8, 9, (500,)).to(torch.bfloat16) for _ in range(2)]
    (want,) = evaluate(fd.fusion(), inputs)
    assert float(want.bound.max()) == 0.0
    assert compare([want], emulate(fd.fusion(), inputs), exact=True).checked == 500


def test_a_product_that_our_rounding_makes_whole_is_not_exact() -> None:
    """In f64 there is nothing wider to see it in: 1.5707964 * 1e10 is no whole number."""
    (want,) = evaluate(
        single("addcmul", ["f64"] * 4, count=1),
        [torch.tensor([n], dtype=F64) for n in (1.5707964, 1.5707964, -1e10, 1.0)],
    )
    fused = -15707963998.429205  # what a GPU returns
    assert abs(fused - want.value.item()) <= want.bound.item()


def test_planted_errors_are_caught() -> None:
    """One wrong element of two ulps in f32, one of one ulp in bf16."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], "f32")
    fd.add_output(fd.ops.add(x, 0.1))
    data = [torch.rand(100)]
    got = emulate(fd.fusion(), data)[0]
    got[41] *= 1 + 2.0**-22
    verdict = compare(evaluate(fd.fusion(), data), [got], exact=False)
    assert verdict.status is Status.FAIL
    assert "1 of 100 elements wrong; worst at [41]" in str(verdict)


def test_straddled_steps_are_either() -> None:
    """Floor of a number within rounding of an integer may go either way; others may not."""
    fd = FusionDefinition()
    x = fd.define_tensor([4], "f32")
    warm = fd.ops.log(x)
    low, below = fd.ops.floor(warm), fd.ops.lt(warm, 0.0)
    fd.add_output(low)
    fd.add_output(fd.ops.cast(low, "i32"))
    fd.add_output(fd.ops.cast(below, "f32"))
    fd.add_output(fd.ops.where(below, 5.0, 3.0))
    fd.add_output(fd.ops.sign(warm))
    fd.add_output(below)
    *known, asked = evaluate(fd.fusion(), [torch.tensor([1.0, 2.0, 0.5, 100.0])])
    for want, off in zip(known, (1.0, 1.0, 1.0, 2.0, 1.0), strict=True):
        assert want.bound.tolist() == [off, 0.0, 0.0, 0.0]
        assert not want.undecided.any()
    assert asked.undecided.tolist() == [True, False, False, False]


EXACT = [
    ("exp", 0.0, 1.0), ("exp", -INF, 0.0), ("exp2", 0.0, 1.0), ("expm1", 0.0, 0.0),
    ("expm1", -INF, -1.0), ("log1p", 0.0, 0.0), ("rsqrt", INF, 0.0), ("sin", 0.0, 0.0),
    ("cos", 0.0, 1.0), ("tanh", -INF, -1.0), ("erf", INF, 1.0), ("erfc", 0.0, 1.0),
    ("cosh", 0.0, 1.0), ("gelu", 0.0, 0.0), ("silu", 0.0, 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("op", "at", "value"), EXACT)
def test_functions_of_0_and_of_infinities_are_exact(op: str, at: float, value: float) -> None:
    """Where that is 0, 1 or -1; elsewhere they have the error of the guide."""
    (want,) = evaluate(single(op, ["f32"], count=2), [torch.tensor([at, 0.75])])
    assert want.value[0] == value
    assert want.bound[0] == 0
    assert want.bound[1] > 0


def test_compositions_of_infinities_say_nothing() -> None:
    """exp(-x) may overflow before a sigmoid vanishes."""
    (want,) = evaluate(single("sigmoid", ["f32"], count=2), [torch.tensor([-INF, INF])])
    assert (want.bound > 0).all()


def test_a_zero_without_a_sign_is_no_pole() -> None:
    """Of bool, of a square, of an abs, of a relu; 0 / 0 is NaN whatever its sign."""
    fd = FusionDefinition()
    x = fd.define_tensor([3], "f32")
    fewer = fd.ops.sub(x, 1.0)  # -0.0 of some other arithmetic
    for zero in (
        fd.ops.lt(x, -9.0), fd.ops.mul(fewer, fewer), fd.ops.abs(fewer),
        fd.ops.relu(fd.ops.sub(x, 2.0)), fd.ops.sub(x, 1.0),
    ):  # fmt: skip
        fd.add_output(fd.ops.div(2.0, zero))
    fd.add_output(fd.ops.div(fewer, fewer))
    either = fd.ops.cat([fd.ops.mul(fewer, fewer), fewer], 0)
    fd.add_output(fd.ops.div(2.0, fd.ops.max(either, [0])))
    *sure, open_, same, largest = evaluate(fd.fusion(), [torch.ones(3)])
    assert largest.undecided.all()
    for want in sure:
        assert not want.undecided.any()
        assert torch.all(want.value == INF)
    assert open_.undecided.all()
    assert not same.undecided.any()
    assert same.value.isnan().all()


def test_a_zero_keeps_its_sign_where_nothing_is_rounded() -> None:
    """IEEE 754, 5.9 and 6.3: of integers of a format, of products, of negatives and copies."""
    fd = FusionDefinition()
    x = fd.define_tensor([2], "f32")
    down = fd.ops.ceil(x)
    known = (
        down, fd.ops.trunc(x), fd.ops.round(x), fd.ops.mul(down, 3.0), fd.ops.cast(down, "f16"),
        fd.ops.cat([down, down], 0), fd.ops.where(fd.ops.lt(x, -9.0), x, down),
        fd.ops.broadcast(down, [True, False]), fd.ops.neg(fd.ops.neg(down)),
        fd.ops.ceil(fd.ops.sub(x, 0.5)),
    )  # fmt: skip
    near = fd.ops.sub(fd.ops.cos(fd.ops.add(x, 1.0)), fd.ops.cos(fd.ops.add(x, 1.0)))
    open_ = (
        fd.ops.maximum(down, 0.0), fd.ops.relu(down), fd.ops.sign(down), fd.ops.add(down, 0.0),
        fd.ops.round(near), fd.ops.mul(fd.ops.floor(near), 0.0),
        fd.ops.minimum(fd.ops.abs(fd.ops.ceil(near)), fd.ops.mul(fd.ops.ceil(near), 0.0)),
    )  # fmt: skip
    for zero in (*known, *open_, fd.ops.maximum(fd.ops.abs(down), 0.0)):
        fd.add_output(fd.ops.atan2(zero, -1.0))
    fusion, given = fd.fusion(), [torch.tensor([-0.25, -0.0])]
    wants = evaluate(fusion, given)
    for want in wants[: len(known)]:
        assert not want.undecided.any()
        assert torch.all((want.value + pi).abs() < 1e-6)
    assert all(want.undecided.all() for want in wants[len(known) : -1])
    assert not wants[-1].undecided.any()
    assert torch.all((wants[-1].value - pi).abs() < 1e-6)
    for want in evaluate(fusion, given, stepwise=True)[:-1]:
        assert want.undecided.all()  # compilers of torch may have 0 - x for -x


def test_what_is_added_to_a_square_is_no_pole() -> None:
    """A variance that is lost in rounding, and its epsilon: the root is bounded."""
    fd = FusionDefinition()
    x = fd.define_tensor([1, 3], "f32")
    off = fd.ops.sub(x, fd.ops.broadcast(fd.ops.mean(x, [1]), [False, True]))
    fd.add_output(fd.ops.rsqrt(fd.ops.add(fd.ops.mean(fd.ops.mul(off, off), [1]), 1e-5)))
    (want,) = evaluate(fd.fusion(), [torch.tensor([[1e5, 1e5, 1e5 + 0.01]])])
    assert not want.undecided.any()
    assert float(want.bound) < 1e-5**-0.5


def test_powers_of_numbers_below_0_are_nan_but_whole_ones() -> None:
    """To a power that may be -1 or not they hang on rounding; between -1 and 0 they are NaN."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([2], "f32") for _ in range(2))
    fd.add_output(fd.ops.pow(fd.ops.sub(fd.ops.exp(x), 3.0), fd.ops.neg(fd.ops.exp(y))))
    given = [torch.tensor([0.1, 0.1]), torch.tensor([-1.0, 1.0]).mul(torch.tensor([1.0, 1e-9]))]
    (want,) = evaluate(fd.fusion(), given)
    assert want.undecided.tolist() == [False, True]
    assert bool(want.value[0].isnan())


def test_an_integer_that_is_a_few_off_is_as_far_off_as_its_neighbours_round() -> None:
    """Of f32 beyond 2**24, and of f64 beyond 2**53; others are as far off as they were."""
    value = torch.tensor([1014368570, 5, 2**62])
    known = Estimate(DType.I64, value, torch.tensor([30.0, 1.0, 1.0], dtype=F64))
    for dtype, bounds in ((DType.F32, [64.0, 1.0, 0.0]), (DType.F64, [30.0, 1.0, 1024.0])):
        made = convert(known, dtype)
        assert made.value.tolist() == value.to(TORCH[dtype]).tolist()
        assert made.error.tolist() == bounds


def test_order_of_rounded_numbers_has_a_bound() -> None:
    """Numbers that lie 3 ulps apart are 3 apart."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.order(fd.ops.exp(fd.define_tensor([2], "f32"))))
    (want,) = evaluate(fd.fusion(), [torch.tensor([0.0, 0.5])])
    assert want.bound[0] == 0
    assert 3 <= want.bound[1] <= 8
    assert not want.undecided.any()


def test_integers_that_hang_on_rounding_have_a_bound() -> None:
    """What is quantised may be one off, not two; what is computed of it in integers is open."""
    fd = FusionDefinition()
    x = fd.define_tensor([3], "f32")
    scaled = fd.ops.mul(fd.ops.exp(x), 0.5)
    whole = fd.ops.cast(fd.ops.round(scaled), "i8")
    fd.add_output(whole)
    fd.add_output(fd.ops.mul(fd.ops.cast(whole, "f32"), 2.0))
    fd.add_output(fd.ops.mul(fd.ops.cast(whole, "i32"), 3))
    fd.add_output(fd.ops.sum(fd.ops.cast(whole, "i32"), [0]))
    given = [torch.tensor([3.0, 20.0, 300.0]).log()]
    want, back, tripled, added = evaluate(fd.fusion(), given)
    assert want.value.tolist()[1:2] == [10]
    assert want.bound.tolist()[:2] == [1.0, 0.0]
    assert want.undecided.tolist() == [False, False, True]
    assert abs(back.bound[0] - 2.0) < 1e-5
    assert tripled.undecided.tolist() == [True, False, True]
    assert added.undecided
    for off in (0, 1, 2, -2):
        got = want.value.to(torch.int8)
        got[0] += off
        right = Status.PASS if abs(off) < 2 else Status.FAIL
        assert compare([want], [got], exact=False).status is right
        assert compare([want], [got], exact=True).status is (Status.FAIL if off else Status.PASS)


def test_where_forgives_doubt_between_equal_branches() -> None:
    """A relu written by hand stays decided at its kink."""
    fd = FusionDefinition()
    x = fd.define_tensor([3], "f32")
    moved = fd.ops.add(fd.ops.mul(x, 0.1), -0.1)
    fd.add_output(fd.ops.where(fd.ops.gt(moved, 0.0), moved, 0.0))
    (want,) = evaluate(fd.fusion(), [torch.tensor([1.0, 2.0, -2.0])])
    assert not want.undecided.any()
    assert float(want.bound.max()) < 1e-7


def test_overflow_of_the_output_dtype_is_inf() -> None:
    """65504 is f16's largest number; 65520 is the first that rounds to inf."""
    fd = FusionDefinition()
    x = fd.define_tensor([3], "f32")
    fd.add_output(fd.ops.cast(fd.ops.add(x, 0.0), "f16"))
    (want,) = evaluate(fd.fusion(), [torch.tensor([65519.0, 65520.0, -7e4])])
    assert want.value.tolist() == [65504.0, INF, -INF]


def test_shape_operations_move_elements_like_torch() -> None:
    """broadcast, expand, permute, squeeze, iota and full against torch's own."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 1, -1], "i64")
    wide = fd.ops.expand(fd.ops.permute(x, [2, 1, 0]), [-1, 4, -1])
    row = fd.ops.broadcast(fd.ops.iota(4, start=5, step=-2), [True, False, True])
    fd.add_output(fd.ops.mul(fd.ops.add(wide, row), fd.ops.full([1, 1, 1], 3, "i64")))
    fd.add_output(fd.ops.squeeze(x, [1]))
    data = torch.arange(6).reshape(3, 1, 2)
    first, second = evaluate(fd.fusion(), [data])
    rows = torch.tensor([5, 3, 1, -1]).reshape(1, 4, 1)
    assert torch.equal(first.value, (data.permute(2, 1, 0).expand(2, 4, 3) + rows) * 3)
    assert torch.equal(second.value, data.reshape(3, 2))


def test_empty_tensors_are_evaluated() -> None:
    """Extent 0 is a legal extent."""
    fusion = single("gelu", ["bf16"], count=0)
    (want,) = evaluate(fusion, [torch.empty(0, dtype=torch.bfloat16)])
    assert want.value.shape == (0,)


def test_inputs_that_do_not_fit_are_refused() -> None:
    """The reference is called by judges only; wrong calls are their bugs."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, 8], "f32"), fd.define_tensor([-1, 8], "f32")
    scalar: Scalar = fd.define_scalar("f32")
    fd.add_output(fd.ops.addcmul(x, y, scalar))
    fusion, good = fd.fusion(), torch.ones(3, 8)
    bad: list[tuple[list[Any], str]] = [
        ([good, good], "2 inputs given, the fusion has 3"),
        ([good, torch.ones(4, 8), 1.0], "T1 has extent i0 = 3, the tensor has 4"),
        ([good, torch.ones(3, 7), 1.0], "T1 has extent 8 = 8, the tensor has 7"),
        ([good, good.double(), 1.0], "T1 is a tensor of f32; pass one"),
        ([good, torch.ones(8), 1.0], "T1 has 2 axes, the tensor given has 1"),
        ([good, good, torch.ones(())], "S0 is a scalar; pass a Python number"),
    ]
    for inputs, says in bad:
        with pytest.raises(ValueError, match=says):
            evaluate(fusion, inputs)
    want: list[Expected] = evaluate(fusion, [good, good, 0.5])
    assert want[0].value.shape == (3, 8)


def test_a_tensor_beside_itself_is_known() -> None:
    """Whatever a tanh is rounded to, its quotient by itself is 1; where it may be 0, NaN.

    Two that are computed apart may differ: then the quotient is 1, or rounded down to 0.
    """
    fd = FusionDefinition()
    x = fd.define_tensor([-1], "f32")
    one, other = fd.ops.tanh(x), fd.ops.tanh(x)
    for op in ("sub", "div", "floor_div", "remainder", "lt", "ge"):
        fd.add_output(getattr(fd.ops, op)(one, one))
    fd.add_output(fd.ops.floor_div(one, other))
    scaled = fd.ops.mul(one, 3.0)
    fd.add_output(fd.ops.sub(scaled, scaled))
    *known, apart, gap = evaluate(fd.fusion(), [torch.tensor([0.5, -2.0, NAN, 1e-45])])
    for want, value in zip(known, (0.0, 1.0, 1.0, 0.0, 0.0, 1.0), strict=True):
        assert want.value[:2].to(F64).tolist() == [value] * 2
        assert not want.undecided[:3].any()
        assert not want.bound[:2].any()
    assert known[0].bound[3] == 0
    assert all(want.undecided[3] for want in known[1:])
    assert torch.all((apart.bound[:2] >= 1) & (apart.bound[:2] < 1.001))
    assert (gap.bound[:2] > 0).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_stepwise_admits_a_rounding_after_each_operation_and_none(dtype: str) -> None:
    """2**n + 1 - 2**n is 1 in f32, and 0 or 2 where 16 bits cannot hold it; not 3."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["i0"], dtype=dtype)
    large = 256.0 if dtype == "bf16" else 2048.0
    fd.add_output(fd.ops.sub(fd.ops.add(x, large), large))
    args = [torch.ones(1, dtype=TORCH[DType.of(dtype)])]
    got = {n: [torch.full((1,), float(n), dtype=args[0].dtype)] for n in range(4)}

    def right(*, stepwise: bool) -> list[int]:
        want = evaluate(fd.fusion(), args, stepwise=stepwise)
        return [n for n in got if compare(want, got[n], exact=False).status is Status.PASS]

    assert right(stepwise=False) == [1]
    assert right(stepwise=True) == [0, 1, 2]


def test_stepwise_leaves_casts_and_numbers_and_overflow_open() -> None:
    """A cast to 16 bits may be left out; a number beside 16 bits is one, or f32; inf is open."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape=["i0"], dtype="f32")
    fd.add_output(fd.ops.cast(fd.ops.cast(x, "f16"), "f32"))
    y = fd.define_tensor(shape=["i0"], dtype="bf16")
    fd.add_output(fd.ops.gt(fd.ops.mul(y, 0.1), y))
    args = [torch.tensor([1.0001, 1e5, 3.0]), torch.tensor([1.0, 0.0, 2.0]).to(torch.bfloat16)]
    cast, _ = evaluate(fd.fusion(), args, stepwise=True)
    assert cast.undecided.tolist() == [False, True, False]
    assert 1.0001 - 1 <= cast.bound[0].item() < 2e-4
    assert cast.bound[2].item() == 0
    (plain, _) = evaluate(fd.fusion(), args)
    assert plain.bound[0].item() == 0
    assert not plain.undecided.any()


@pytest.mark.parametrize("number", [-1077936129, 1077936129, (1 << 62) + (1 << 54) + 1])
def test_integers_just_beyond_a_tie_may_be_rounded_once_or_twice(number: int) -> None:
    """Straight to bf16 they go away from zero, by way of f32, as torch does, to even."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.cast(fd.define_tensor(["n"], "i64"), "bf16"))
    (out,) = evaluate(fd.fusion(), [torch.tensor([number])])
    once = torch.tensor([number]).to(torch.bfloat16).double()
    away = once + once.sign() * once.abs() * 2.0**-7
    assert bool(((out.value - once).abs() <= out.bound).all())
    assert bool(((out.value - away).abs() <= out.bound + away.abs() * 2.0**-9).all())
