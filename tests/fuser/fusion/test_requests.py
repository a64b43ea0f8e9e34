"""What users ask of a tensor: that several CTAs share its tiles, and meet in turns."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import judged
import pytest
import torch

from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView, to_python
from fuser.kernel import ir as kir
from fuser.pipeline import Launch, build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuzz.campaign.judge import CPU_ORACLES
from fuzz.cases.case import Case, Kind

Shape = tuple[int, ...]
OTHER_KIND = MatmulParams((64, 16, 16), 1, "pipelined", 1, 0, persistent=False, columns=16)
"""Params that no kernel of a reduction takes: it gets those of the heuristic."""
ANY = PointwiseParams((1, 1024), 8, 4, None, "direct", "direct")
"""Params that no kernel of a product takes."""


ONLY = "TMA adds only, in f32 and i64"


def launches(fusion: Fusion, *shapes: Shape) -> tuple[Launch, ...]:
    """What the heuristics make of a fusion for dense inputs of these shapes."""
    specs = {}
    for place, (tv, shape) in enumerate(zip(fusion.inputs, shapes, strict=True), start=1):
        strides = tuple(prod(shape[n + 1 :]) for n in range(len(shape)))
        specs[tv.name] = Spec(shape, strides, place << 32, tv.dtype)
    return build(fusion, None, classify(fusion, None, specs)).launches


def splits(made: Launch) -> int:
    """CTAs that share a tile."""
    return made.params.splits if isinstance(made.params, ReductionParams | MatmulParams) else 1


def total(
    *,
    asked: bool,
    keepdim: bool = False,
    method: str = "vectorized",
    dims: tuple[int, ...] = (1,),
) -> Fusion:
    """The sum of rows, or over other axes."""
    fd = FusionDefinition()
    tv = fd.ops.sum(fd.define_tensor([-1, -1], "bf16"), list(dims), keepdim=keepdim)
    if asked:
        tv.request_serial_grid_reduction(method)
    fd.add_output(fd.ops.relu(tv))
    return fd.fusion()


def linear(*, asked: bool, bias: bool = True, method: str = "vectorized") -> Fusion:
    """`relu(x @ w + bias)`, asked of what `linear` gives."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
    y = fd.ops.linear(x, w, fd.define_tensor([-1], "bf16") if bias else None)
    if asked:
        y.request_serial_grid_reduction(method=method)
    fd.add_output(fd.ops.relu(y))
    return fd.fusion()


def layernorm(method: str = "vectorized") -> Fusion:
    """Rows less their mean, by their deviation: two statistics, each asked for."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    mean = fd.ops.mean(x, [1], keepdim=True)
    left = fd.ops.sub(x, mean)
    var = fd.ops.mean(fd.ops.mul(left, left), [1], keepdim=True)
    for tv in (mean, var):
        tv.request_serial_grid_reduction(method)
    fd.add_output(fd.ops.mul(left, fd.ops.rsqrt(fd.ops.add(var, 1e-5))))
    return fd.fusion()


def rmsnorm() -> Fusion:
    """Rows by the root of their mean square, scaled."""
    fd = FusionDefinition()
    x, scale = fd.define_tensor([-1, -1], "f32"), fd.define_tensor([-1], "f32")
    square = fd.ops.mean(fd.ops.mul(x, x), [1], keepdim=True)
    square.request_serial_grid_reduction()
    wide = fd.ops.broadcast(scale, [True, False])
    fd.add_output(fd.ops.mul(fd.ops.mul(x, fd.ops.rsqrt(fd.ops.add(square, 1e-5))), wide))
    return fd.fusion()


def softmax() -> Fusion:
    """Exponentials less the maximum of their row, by their sum."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], "bf16")
    most = fd.ops.max(x, [1], keepdim=True)
    grown = fd.ops.exp(fd.ops.sub(x, most))
    whole = fd.ops.sum(grown, [1], keepdim=True)
    for tv in (most, whole):
        tv.request_serial_grid_reduction()
    fd.add_output(fd.ops.div(grown, whole))
    return fd.fusion()


NORMS = {"layernorm": layernorm, "rmsnorm": rmsnorm, "softmax": softmax}
ASKED: dict[str, Callable[[], Fusion]] = {
    "sum": lambda: total(asked=True),
    "keepdim": lambda: total(asked=True, keepdim=True),
    "linear": lambda: linear(asked=True),
    "by tma": lambda: linear(asked=True, method="tma"),
    "sum by tma": lambda: total(asked=True, method="tma"),
    "layernorm by tma": lambda: layernorm("tma"),
    "no bias": lambda: linear(asked=True, bias=False),
    **NORMS,
}


@pytest.mark.parametrize("name", ASKED)
def test_a_request_is_text_that_makes_it_again(name: str) -> None:
    """As Python and as the canonical text, of the tensor that is reduced itself."""
    fusion = ASKED[name]()
    asked = [tv for tv in fusion.tensors if tv.meet is not None]
    assert asked
    assert all(tv.op in ("sum", "mean", "max", "mma") for tv in asked)
    names: dict[str, Fusion] = {}
    exec(to_python(fusion), names)
    assert str(names["fusion"]) == str(fusion)
    for tv in asked:
        assert f'{tv}.request_serial_grid_reduction(method="{tv.meet}")' in str(fusion)


def test_without_a_request_texts_are_as_they_were() -> None:
    """Nothing is written where nothing is asked."""
    assert "request" not in str(total(asked=False)) + to_python(total(asked=False))
    assert str(total(asked=False)) != str(total(asked=True))


def test_reductions_of_many_rows_are_shared_where_that_is_asked() -> None:
    """The heuristic would not; rows of one step cannot be."""
    many, short = (1 << 15, 8192), (1 << 15, 100)
    assert [splits(one) for one in launches(total(asked=False), many)] == [1]
    (made,) = launches(total(asked=True), many)
    assert splits(made) >= 2
    assert [splits(one) for one in launches(total(asked=True), short)] == [1]


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)], ids=["columns", "rows", "all"])
@pytest.mark.parametrize("shape", [(1 << 15, 8192), (4096, 4096), (3, 1 << 20), (1 << 20, 3)])
def test_reductions_meet_by_tma_where_that_is_asked(
    shape: tuple[int, int], dims: tuple[int, ...]
) -> None:
    """Also where the heuristic would not share tiles; without a request TMA adds up none."""
    (made,) = launches(total(asked=True, method="tma", dims=dims), shape)
    (plain,) = launches(total(asked=True, dims=dims), shape)
    (alone,) = launches(total(asked=False, dims=dims), shape)
    assert (splits(made) >= 2) == (splits(plain) >= 2)
    meets = [one.params.meet if splits(one) > 1 else None for one in (made, plain)]  # type: ignore[union-attr]  # shared
    assert meets in (["tma", "vectorized"], [None, None])
    assert any(isinstance(s, kir.TmaReduce) for s in made.kernel.walk()) == (splits(made) > 1)
    assert not any(isinstance(s, kir.TmaReduce) for s in alone.kernel.walk())


@pytest.mark.parametrize("dtype", ["bf16", "f32", "i32", "i64", "bool"])
def test_the_default_tiles_suit_tma(dtype: str) -> None:
    """However few elements a row has, where several axes are reduced."""
    for dims in ([0, 2], [0], [1], [2]):
        fd = FusionDefinition()
        tv = fd.ops.sum(fd.define_tensor([-1, -1, -1], dtype), dims)
        tv.request_serial_grid_reduction("tma")
        fd.add_output(tv)
        fusion = fd.fusion()
        for last in (1, 3, 8, 40, 300):
            (made,) = launches(fusion, (5000, 40, last))
            if splits(made) > 1:
                assert isinstance(made.params, ReductionParams)
                assert made.params.meet == "tma"


def test_what_is_reduced_beside_a_sum_is_not_added() -> None:
    """One way for all of a kernel: refused where TMA cannot, by threads where one asks for that."""

    def made(other: str | None) -> tuple[Launch, ...]:
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], "bf16")
        whole, most = fd.ops.sum(x, [1]), fd.ops.max(x, [1])
        whole.request_serial_grid_reduction("tma")
        if other is not None:
            most.request_serial_grid_reduction(other)
        fd.add_output(whole)
        fd.add_output(most)
        return launches(fd.fusion(), (300, 40_000))

    says = (
        r'^T1\.request_serial_grid_reduction\(method="tma"\): TMA adds only, in f32 and i64, and '
        r'T2 is a max in f32, which is reduced in the same kernel; use method="vectorized"'
    )
    with pytest.raises(ScheduleError, match=says):
        made(None)
    (one,) = made("vectorized")
    assert isinstance(one.params, ReductionParams)
    assert one.params.meet == "vectorized"


@pytest.mark.parametrize("method", ["vectorized", "tma"])
@pytest.mark.parametrize("bias", [False, True])
def test_products_are_shared_where_that_is_asked(*, bias: bool, method: str) -> None:
    """By CTAs without roles and with a tile each; a K of one step cannot be."""
    more = [(512,)] * bias
    for k, want in ((64, False), (72, True), (8192, True)):
        (made,) = launches(linear(asked=True, bias=bias, method=method), (64, k), (512, k), *more)
        assert (splits(made) >= 2) == want
        assert isinstance(made.params, MatmulParams)
        if want:
            params = made.params
            assert (params.split, params.persistent, params.meet) == ("pipelined", False, method)
            assert made.kernel.semaphores
    wide = [(16384,)] * bias
    (alone,) = launches(linear(asked=False, bias=bias), (64, 8192), (16384, 8192), *wide)
    assert splits(alone) == 1


@pytest.mark.parametrize("name", NORMS)
def test_statistics_are_kernels_of_their_own_and_shared(name: str) -> None:
    """The rest is a kernel behind them, whose tiles nobody shares."""
    fusion = NORMS[name]()
    shapes = [(300, 40_000)] + [(40_000,)] * (name == "rmsnorm")
    *statistics, rest = launches(fusion, *shapes)
    assert len(statistics) == len([tv for tv in fusion.tensors if tv.meet])
    assert all(splits(one) >= 2 for one in statistics)
    assert not rest.tiling.domain.reductions
    assert splits(rest) == 1


def test_statistics_of_a_product_are_no_parts_of_its_tiles() -> None:
    """Its kernel begins them only where nobody asks for turns."""

    def rows(*, asked: bool) -> tuple[Launch, ...]:
        fd = FusionDefinition()
        x, w = (fd.define_tensor([-1, -1], "bf16") for _ in range(2))
        most = fd.ops.max(fd.ops.linear(x, w), [1])
        if asked:
            most.request_serial_grid_reduction()
        fd.add_output(most)
        return launches(fd.fusion(), (128, 64), (8192, 64))

    product, reduction = rows(asked=True)
    assert not any(access.tv.parts for access in product.tiling.domain.writes)
    assert splits(reduction) >= 2
    first, _ = rows(asked=False)
    assert any(access.tv.parts for access in first.tiling.domain.writes)


@pytest.mark.parametrize(
    ("name", "extents", "kind"),
    [
        ("sum", {"i0": 3, "i1": 5000}, "integers"),
        ("sum", {"i0": 3, "i1": 5000}, "reals"),
        ("sum by tma", {"i0": 3, "i1": 5000}, "integers"),
        ("sum by tma", {"i0": 300, "i1": 5000}, "reals"),
        ("layernorm by tma", {"i0": 2, "i1": 3000}, "reals"),
        ("layernorm", {"i0": 2, "i1": 3000}, "reals"),
        ("rmsnorm", {"i0": 2, "i1": 2056}, "reals"),
        ("softmax", {"i0": 1, "i1": 4096}, "reals"),
    ],
)
def test_all_judges_pass_what_is_asked(name: str, extents: dict[str, int], kind: Kind) -> None:
    """Kernels by the heuristic, as the params are of another kind."""
    case = Case(ASKED[name](), OTHER_KIND, extents, kind, 1)
    records = judged.records(case)
    assert any("splits=2" in r.reason or "splits=3" in r.reason for r in records)
    beyond = ("ptx", "unknown")  # 300 rows are more than the judge of PTX keeps apart
    assert not [r for r in records if r.status != "pass" and (r.oracle, r.status) != beyond]


@pytest.mark.parametrize("method", ["vectorized", "tma"])
def test_all_judges_pass_a_product_that_is_asked_for(method: str) -> None:
    """Its tiles are those of the heuristic, its K ends inside a step."""
    fusion = linear(asked=True, method=method)
    case = Case(fusion, ANY, {"i0": 40, "i1": 200, "i2": 24}, "integers", 0)
    asked = set(CPU_ORACLES) - {"schedules"}  # what is asked for has no other
    records = judged.records(case, asked)
    assert not [r for r in records if r.status != "pass"]
    assert any("splits=" in r.reason for r in records)


def ask(make: Callable[[FusionDefinition, TensorView], TensorView], method: str) -> None:
    """Ask something of a tensor made of a matrix."""
    fd = FusionDefinition()
    make(fd, fd.define_tensor([-1, -1], "f16")).request_serial_grid_reduction(method)


@pytest.mark.parametrize(
    ("make", "method", "says"),
    [
        (lambda fd, x: x, "vectorized", r"^T0\.request_.*: T0 is an input, of which no CTA has"),
        (
            lambda fd, x: fd.ops.relu(x),
            "vectorized",
            r"^T1\.request_serial_grid_reduction\(method='vectorized'\): T1 is the result of relu, "
            "of which no CTA has a part; ask it of a sum, mean, max, min, matmul or linear",
        ),
        (
            lambda fd, x: fd.ops.sum(x, [1]),
            "mail",
            "method='mail'.*: there is no such method for sum; use method=\"vectorized\"",
        ),
        (
            lambda fd, x: fd.ops.max(x, [1]),
            "tma",
            f"method='tma'.*: {ONLY}: no max of f16; use method=\"vectorized\"",
        ),
        (
            lambda fd, x: fd.ops.sum(x, [1], dtype="f64"),
            "tma",
            f"method='tma'.*: {ONLY}: no sum of f64; use method=\"vectorized\"",
        ),
        *(
            (
                lambda fd, x: fd.ops.matmul(x, x),
                method,
                'no such method for mma; use method="vectorized" or "tma"',
            )
            for method in ("scatter", "cluster")
        ),
        (
            lambda fd, x: fd.ops.matmul(x, x, accumulate="f16"),
            "vectorized",
            "sums of f16 would be rounded in every turn; leave accumulate out",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_at_the_call(
    make: Callable[[FusionDefinition, TensorView], TensorView], method: str, says: str
) -> None:
    """Before any schedule is chosen."""
    with pytest.raises(FusionError, match=says):
        ask(make, method)


def test_a_finished_fusion_takes_no_requests() -> None:
    """It may have been compiled already."""
    (out,) = total(asked=False).outputs
    with pytest.raises(FusionError, match=r"the fusion is finished; ask before fusion\(\)"):
        out.request_serial_grid_reduction()


# --- on a GPU -----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["vectorized", "tma"])
def test_the_gpu_computes_what_is_asked(method: str) -> None:
    """Exact sums of integers, by shared tiles."""
    x, w = (torch.randint(-2, 3, s, device="cuda").bfloat16() for s in ((70, 4096), (136, 4096)))
    bias = torch.randint(-2, 3, (136,), device="cuda").bfloat16()
    run = Executable(linear(asked=True, method=method))
    want = (x.double() @ w.double().T + bias.double()).relu().bfloat16()
    assert all(torch.equal(run(x, w, bias)[0], want) for _ in range(3))
    rows = Executable(total(asked=True, method=method))
    assert all(torch.equal(rows(x)[0], x.double().sum(1).relu().bfloat16()) for _ in range(3))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4, 100_000), (300, 40_000)])
def test_the_gpu_normalises_long_rows(shape: tuple[int, int]) -> None:
    """Statistics by shared tiles, within what bf16 rounds."""
    x = torch.randn(shape, device="cuda").bfloat16()
    wide = x.double()
    want = {
        "layernorm": torch.nn.functional.layer_norm(wide, shape[1:]),
        "softmax": torch.softmax(wide, 1),
    }
    for name, expected in want.items():
        made = [NORMS[name]()] + [layernorm("tma")] * (name == "layernorm")
        for run in map(Executable, made):
            (got,) = run(x)
            assert torch.allclose(
                got.double(), expected, rtol=2e-2, atol=1e-6 if name == "softmax" else 1e-2
            )
            assert all(torch.equal(run(x)[0], got) for _ in range(3))
    scale = torch.randn(shape[1], device="cuda")
    (got,) = Executable(rmsnorm())(x.float(), scale)
    square = wide.square().mean(1, keepdim=True)
    assert torch.allclose(
        got.double(), wide * (square + 1e-5).rsqrt() * scale, rtol=1e-4, atol=1e-5
    )
