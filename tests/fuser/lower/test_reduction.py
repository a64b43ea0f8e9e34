"""Kernels that reduce: what is masked, where parts meet, and every schedule against all judges."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import Golden
from judged import complaints
from reductions import OPS, reduced
from sample import covering

from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.runtime.executable import Executable
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuzz.cases.case import Case, compiled

DIRECT = PointwiseParams((4, 256), 8, 4, None, "direct", "direct")
TMA = replace(DIRECT, load="tma", ctas_per_sm=2, stages=3, prefetch=2)
SCHEDULES = {
    "direct": DIRECT,
    "persistent": replace(DIRECT, ctas_per_sm=1),
    "pipelined": TMA,
    "specialized": replace(TMA, prefetch=0, warp_specialized=True),
    "one stage": replace(TMA, stages=1, prefetch=0),
    "three parts of a row": replace(DIRECT, tile=(4, 96)),
    "a row of several warps": replace(DIRECT, tile=(1, 2048), warps=8),
    "no vectors": replace(DIRECT, tile=(2, 128), vector=1),
    "a row of one warp's half": replace(DIRECT, tile=(8, 128)),
}


def kernels(of: Case) -> list[kir.Kernel]:
    """The kernels of a case."""
    made = compiled(of)
    return [launch.kernel for launch in made.launches]


@pytest.mark.parametrize(("name", "op", "dims"), covering(2, SCHEDULES, OPS, [(1,), (0,), (0, 1)]))
def test_every_schedule_reduces_whatever_is_asked(
    name: str, op: str, dims: tuple[int, ...]
) -> None:
    """Tails of rows and columns, and several turns of a ring."""
    kind = "reals" if op == "mean" else "integers"
    of = Case(reduced(op, dims), SCHEDULES[name], {"m": 9, "n": 1032}, kind, 0)  # type: ignore[arg-type]
    assert not complaints(of)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i32", "i64", "bool"])
def test_every_type_is_reduced(dtype: str) -> None:
    """Each in the registers in which it is added up."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    fd.add_output(fd.ops.sum(x, [1]))
    if dtype != "bool":
        fd.add_output(fd.ops.max(x, [1]))
        fd.add_output(fd.ops.min(x, [1]))
    params = replace(DIRECT, vector=2)
    assert not complaints(Case(fd.fusion(), params, {"m": 5, "n": 70}, "integers", 0))


@pytest.mark.parametrize("extents", [{"m": 0, "n": 5}, {"m": 3, "n": 0}, {"m": 1, "n": 1}])
@pytest.mark.parametrize("op", OPS)
def test_of_nothing_and_of_one(op: str, extents: dict[str, int]) -> None:
    """No rows: nothing is written; no columns: what a reduction of nothing is."""
    assert not complaints(Case(reduced(op), DIRECT, extents, "reals", 0))


def test_axes_that_lie_apart_are_walked_in_turn() -> None:
    """A tensor of four axes, every other one reduced."""
    fd = FusionDefinition()
    x = fd.define_tensor(["a", "b", "c", "d"], "f32")
    fd.add_output(fd.ops.mean(x, [0, 2]))
    fd.add_output(fd.ops.max(x, [0, 2]))
    params = replace(DIRECT, tile=(2, 32), vector=1, warps=1)
    of = Case(fd.fusion(), params, {"a": 3, "b": 2, "c": 5, "d": 33}, "reals", 0)
    assert len(kernels(of)) == 1
    assert not complaints(of)


# --- what is masked ---------------------------------------------------------------------------


def masks(fusion: Fusion, params: PointwiseParams = DIRECT) -> int:
    """How often a kernel replaces what lies beyond the end of a row."""
    (kernel,) = kernels(Case(fusion, params, {"m": 4, "n": 40}, "reals", 0))
    return sum(isinstance(s, kir.Compute) and s.op == "where" for s in kernel.walk())


def of(make: str) -> Fusion:
    """A sum or a maximum of something computed."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    y = fd.define_tensor(["m"], "f32")
    wide = fd.ops.broadcast(y, [False, True])
    made: dict[str, TensorView] = {
        "squares": fd.ops.sum(fd.ops.mul(x, x), [1]),
        "magnitudes": fd.ops.sum(fd.ops.abs(x), [1]),
        "exponentials": fd.ops.sum(fd.ops.exp(x), [1]),
        "shifted": fd.ops.sum(fd.ops.sub(x, wide), [1]),
        "largest": fd.ops.max(x, [1]),
    }
    fd.add_output(made[make])
    return fd.fusion()


@pytest.mark.parametrize(
    ("make", "count"),
    [("squares", 0), ("magnitudes", 0), ("exponentials", 1), ("shifted", 1), ("largest", 1)],
)
def test_only_what_is_not_zero_beyond_the_end_is_masked(make: str, count: int) -> None:
    """Loads give zeros there; a row's factor is no zero."""
    assert masks(of(make)) == count


def test_each_reduction_has_its_own_mask() -> None:
    """A maximum and a minimum of one tensor once shared one, and the maximum was inf."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    fd.add_output(fd.ops.max(x, [1]))
    fd.add_output(fd.ops.min(x, [1]))
    case = Case(fd.fusion(), DIRECT, {"m": 3, "n": 7}, "reals", 0)
    (kernel,) = kernels(case)
    compared = [s for s in kernel.walk() if isinstance(s, kir.Compute) and s.op == "lt"]
    assert len(compared) == 1
    assert not complaints(case)


# --- several kernels ----------------------------------------------------------------------------


def rms_norm() -> Fusion:
    """`x / sqrt(mean(x * x) + eps)`."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    mean = fd.ops.mean(fd.ops.mul(x, x), [1], keepdim=True)
    fd.add_output(fd.ops.mul(x, fd.ops.rsqrt(fd.ops.add(mean, 1e-5))))
    return fd.fusion()


def softmax() -> Fusion:
    """`exp(x - max) / sum(exp(x - max))`: a reduction of a reduction."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
    fd.add_output(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)))
    return fd.fusion()


def scaled_product() -> Fusion:
    """The mean of each row of a product, and the product over its maximum."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    y = fd.ops.linear(x, w)
    fd.add_output(fd.ops.mean(fd.ops.relu(y), [1]))
    fd.add_output(fd.ops.div(y, fd.ops.max(fd.ops.abs(y), [1], keepdim=True)))
    return fd.fusion()


def normalised_operand() -> Fusion:
    """A product of rows over their sums."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], "bf16"), fd.define_tensor(["n", "k"], "bf16")
    total = fd.ops.sum(fd.ops.abs(x), [1], keepdim=True)
    fd.add_output(fd.ops.linear(fd.ops.cast(fd.ops.div(x, total), "bf16"), w))
    return fd.fusion()


def two_ways() -> Fusion:
    """Sums along rows and along columns of one matrix: results of different axes."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    fd.add_output(fd.ops.sum(x, [0]))
    fd.add_output(fd.ops.sum(x, [1]))
    return fd.fusion()


def two_lengths() -> Fusion:
    """Results of the same axes, reductions of others."""
    fd = FusionDefinition()
    x, z = fd.define_tensor(["m", "n"], "f32"), fd.define_tensor(["m", "k"], "f32")
    fd.add_output(fd.ops.add(fd.ops.sum(x, [1]), fd.ops.max(z, [1])))
    return fd.fusion()


@pytest.mark.parametrize(
    ("fusion", "count"),
    [
        (rms_norm(), 2), (softmax(), 3), (scaled_product(), 4), (normalised_operand(), 3),
        (two_ways(), 2), (two_lengths(), 2),
    ],
    ids=["rms_norm", "softmax", "scaled_product", "normalised_operand", "two_ways", "two_lengths"],
)  # fmt: skip
def test_what_would_be_repeated_is_stored_first(fusion: Fusion, count: int) -> None:
    """A reduction whose result is broadcast, or reduced again, has a kernel before."""
    case = Case(fusion, DIRECT, {"m": 9, "n": 72, "k": 40}, "reals", 0)
    case = replace(case, extents={n: v for n, v in case.extents.items() if n in str(fusion)})
    assert len(kernels(case)) == count
    assert not complaints(case)


# --- what is refused, and what it looks like --------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "change", "says"),
    [
        ((0,), {"tile": (4, 48)}, "48 are no whole warps: use 64 columns"),
        (
            (1,),
            {"tile": (1, 2032), "vector": 1, "warps": 8},
            r"127 parts are left, at most 64 .*: use tile=\(1, 32\)",
        ),
        ((1,), {"load": "tma", "tile": (1, 8), "vector": 8}, "TMA can move no tensor"),
    ],
)
def test_a_tile_that_threads_cannot_put_together_is_refused(
    dims: tuple[int, ...], change: dict[str, object], says: str
) -> None:
    """With the nearest one that they can."""
    params = replace(DIRECT, **change)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=rf"^PointwiseParams\(.*{says}"):
        kernels(Case(reduced(dims=dims), params, {"m": 9, "n": 520}, "integers", 0))


GROUPS = {
    "one column a thread": replace(DIRECT, tile=(4, 64), vector=1, warps=2),
    "groups of a row": replace(DIRECT, tile=(16, 128), vector=4, warps=4),
    "several threads a column": replace(DIRECT, tile=(64, 16), vector=2, warps=4),
    "a row each": replace(DIRECT, tile=(16, 16), vector=2, warps=4),
    "of rings": replace(TMA, tile=(16, 64), vector=4, warps=4, ctas_per_sm=None),
    "of CTAs that share columns": ReductionParams.sharing(
        replace(DIRECT, tile=(16, 16), vector=2, warps=2), 11, "last"
    ),
    "in turns": ReductionParams.sharing(replace(DIRECT, tile=(4, 64)), 3, "vectorized"),
}


@pytest.mark.parametrize(("name", "op"), covering(2, GROUPS, OPS))
def test_groups_of_threads_reduce_columns(name: str, op: str) -> None:
    """Each some of the rows of a tile; then they put together what they have of each column."""
    kind = "reals" if op == "mean" else "integers"
    extents = {"m": 200, "n": 40}
    of = Case(reduced(op, (0,), "f16"), GROUPS[name], extents, kind, 0)  # type: ignore[arg-type]
    assert not complaints(of)


def test_columns_take_as_many_warps_and_vectors_as_are_asked_for() -> None:
    """Where CTAs put results together in turns, each thread has columns of its own."""
    for cols, meet, warps, vector in ((64, "last", 4, 8), (64, "vectorized", 2, 1)):
        plain = replace(DIRECT, tile=(16, cols))
        params = ReductionParams.sharing(plain, 2, meet)  # type: ignore[arg-type]
        (kernel,) = kernels(Case(reduced(dims=(0,)), params, {"m": 90, "n": 520}, "integers", 0))
        (load, *_) = (s for s in kernel.walk() if isinstance(s, kir.Load))
        assert (load.dst.layout.threads // 32, load.dst.layout.vector) == (warps, vector)


def test_a_fused_norm_reads_like_this(golden: Golden) -> None:
    """The kernel of a mean, and what threads must join for."""
    params = replace(SCHEDULES["specialized"], tile=(2, 96))
    made = kernels(Case(rms_norm(), params, {"m": 9, "n": 520}, "reals", 0))
    golden.check("\n".join(text(kernel) for kernel in made))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_device_agrees_with_torch(name: str, op: str, dim: int, dtype: str) -> None:
    """Bit by bit, on integers; thrice, so that a second launch is asked too."""
    kind = torch.float32 if dtype == "f32" else torch.bfloat16
    params = SCHEDULES[name]
    params = replace(params, vector=min(params.vector, 4)) if dtype == "f32" else params
    run = Executable(reduced(op, (dim,), dtype), params)
    for shape in ((1000, 2056), (3, 8), (257, 264)):
        x = torch.randint(-4, 5, shape, device="cuda").to(kind)
        want = getattr(torch, OPS[op])(x.double(), dim).to(kind)
        for _ in range(3):
            (got,) = run(x)
            assert torch.allclose(got, want, rtol=0 if op != "mean" else 1e-2, atol=0)
