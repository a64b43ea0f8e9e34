"""Reductions of products: what a kernel that multiplies leaves of them, and who ends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from judged import complaints
from sample import some

from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.kernel import ir as kir
from fuser.runtime.binding import bind
from fuser.runtime.executable import Executable
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.cases.case import Case, compiled, specs

PARAMS = MatmulParams((64, 32, 16), 1, "cooperative", 2, 1, persistent=True, columns=16)
EXTENTS = {"m": 100, "n": 72, "k": 40}
SCHEDULES: dict[str, MatmulParams | AmpereParams] = {
    "cooperative": PARAMS,
    "pipelined": replace(PARAMS, split="pipelined", stages=3, persistent=False),
    "ping_pong": replace(PARAMS, split="ping_pong", warpgroups=2),
    "cluster along columns": replace(PARAMS, cluster=(1, 2)),
    "cluster along rows": replace(PARAMS, cluster=(2, 1)),
    "two warpgroups": replace(PARAMS, tile=(128, 64, 32), warpgroups=2, columns=64),
    "ampere, groups": AmpereParams((32, 16, 16), 2, "groups", 3, 2, False, columns=8),
    "ampere, mbarriers": AmpereParams((32, 16, 16), 2, "mbarriers", 2, 0, True, columns=16),
    "ampere, threads": AmpereParams((32, 16, 16), 2, "threads", 1, 0, True, columns=16),
}
Results = Callable[[FusionDefinition, TensorView], list[TensorView]]


def product(results: Results, dtype: str = "bf16") -> Fusion:
    """Results of a matrix product."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["m", "k"], dtype), fd.define_tensor(["n", "k"], dtype)
    for tv in results(fd, fd.ops.linear(x, w)):
        fd.add_output(tv)
    return fd.fusion()


def statistics() -> Fusion:
    """A product, and the sum, the largest magnitude and the root mean square of its rows."""

    def results(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
        squares = fd.ops.mean(fd.ops.mul(y, y), [1])
        return [
            y,
            fd.ops.sum(y, [1], dtype="f32"),
            fd.ops.max(fd.ops.abs(y), [1]),
            fd.ops.rsqrt(fd.ops.add(squares, 1e-5)),
        ]

    return product(results)


@pytest.mark.parametrize("name", some(tuple(SCHEDULES), *[*SCHEDULES][::2]))
def test_the_kernel_that_multiplies_begins_what_another_ends(name: str) -> None:
    """Two kernels: the first stores the product, and of each row what its tile has."""
    case = Case(statistics(), SCHEDULES[name], EXTENTS, "reals", 0)
    first, second = compiled(case).launches
    tensors = {tensor.name for tensor in first.kernel.tensors}
    assert tensors == {"T0", "T1", "T2", "T4_parts", "T5_parts", "T7_parts"}
    assert len(second.tiling.domain.reductions) == 3
    assert not complaints(case)


@pytest.mark.parametrize(
    "extents",
    [{"m": 1, "n": 1, "k": 1}, {"m": 3, "n": 5, "k": 0}, {"m": 3, "n": 0, "k": 5},
     {"m": 0, "n": 5, "k": 5}, {"m": 64, "n": 32, "k": 16}],
)  # fmt: skip
def test_whatever_the_extents(extents: dict[str, int]) -> None:
    """One tile, none, and products or rows of nothing."""
    assert not complaints(Case(statistics(), PARAMS, extents, "reals", 0))


def softmax(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
    """Results that reductions of the same product are broadcast into."""
    e = fd.ops.exp(fd.ops.sub(y, fd.ops.max(y, [1], keepdim=True)))
    return [fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True))]


CUTS: dict[str, tuple[Fusion, list[str]]] = {
    "columns": (product(lambda fd, y: [fd.ops.sum(y, [0])]), ["matmul0", "reduction1"]),
    "everything": (product(lambda fd, y: [fd.ops.sum(y, [0, 1])]), ["matmul0", "reduction1"]),
    "rows and columns": (
        product(lambda fd, y: [fd.ops.max(y, [0]), fd.ops.max(y, [1])]),
        ["matmul0", "reduction1", "reduction2"],
    ),
    "broadcast back": (product(softmax), ["matmul0", "norm1"]),
    "integers": (
        product(lambda fd, y: [fd.ops.sum(y, [1]), fd.ops.min(y, [1])], "i8"),
        ["matmul0", "reduction1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_other_reductions_of_products(name: str) -> None:
    """Begun where the reduced axis is that of the columns of tiles; else the product is stored."""
    fusion, kernels = CUTS[name]
    params = replace(PARAMS, tile=(64, 32, 32))
    case = Case(fusion, params, {"m": 96, "n": 80, "k": 64}, "integers", 0)
    if name == "broadcast back":
        case = replace(case, kind="reals")
    assert [launch.kernel.name for launch in compiled(case).launches] == kernels
    assert not complaints(case)


def test_of_batches_and_of_one_extent_for_all_axes() -> None:
    """What tells axes apart is where they lie, not how long they are."""
    fd = FusionDefinition()
    x, w = fd.define_tensor(["b", "m", "k"], "bf16"), fd.define_tensor(["b", "k", "n"], "bf16")
    y = fd.ops.matmul(x, w)
    fd.add_output(fd.ops.max(y, [2]))
    fd.add_output(y)
    assert not complaints(Case(fd.fusion(), PARAMS, {**EXTENTS, "b": 3}, "integers", 0))
    fd = FusionDefinition()
    x, w = (fd.define_tensor(["m", "m"], "bf16") for _ in range(2))
    y = fd.ops.linear(x, w)
    for tv in (fd.ops.max(y, [1]), fd.ops.sum(y, [0]), y):
        fd.add_output(tv)
    assert not complaints(Case(fd.fusion(), PARAMS, {"m": 72}, "integers", 0))


def test_parts_have_an_element_for_each_tile() -> None:
    """As the launch sees them, and as they are allocated."""
    case = Case(statistics(), PARAMS, EXTENTS, "reals", 0)
    program = compiled(case)
    first, second = bind(program, specs(case), sms=2)
    assert first.view("T4_parts") == ((100, 3), (3, 1))
    assert second.view("T4_parts") == ((100, 3), (3, 1))
    assert second.params["T4_n0"] == 72


@pytest.mark.parametrize("op", ["sum", "exp", "max"], ids=["sum", "sum of exp", "max"])
def test_columns_beyond_the_end_change_nothing(op: str) -> None:
    """Not even sums of products are 0 there, beside an inf. Two parts a tile."""

    def results(fd: FusionDefinition, y: TensorView) -> list[TensorView]:
        if op == "exp":
            return [fd.ops.sum(fd.ops.exp(y), [1])]
        made: TensorView = getattr(fd.ops, op)(y, [1])
        return [made]

    kernel = compiled(Case(product(results), PARAMS, EXTENTS, "reals", 0)).launches[0].kernel
    wheres = [s for s in kernel.walk() if isinstance(s, kir.Compute) and s.op == "where"]
    assert len(wheres) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_device_agrees_with_torch(name: str) -> None:
    """Bit by bit where nothing is rounded."""
    run = Executable(statistics(), SCHEDULES[name])
    for m, n, k in ((1000, 520, 136), (65, 40, 8), (256, 512, 64)):
        x, w = (torch.randint(-2, 3, (rows, k), device="cuda").bfloat16() for rows in (m, n))
        y = x.double() @ w.double().t()
        for _ in range(3):
            product_, total, largest, root = run(x, w)
            assert torch.equal(product_, y.bfloat16())
            assert torch.equal(total, y.sum(1).float())
            assert torch.equal(largest, y.abs().amax(1).bfloat16())
            want = ((y * y).mean(1) + 1e-5).rsqrt()
            assert torch.allclose(root.double(), want, rtol=2**-7)
