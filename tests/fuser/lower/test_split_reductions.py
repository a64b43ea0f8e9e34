"""CTAs that share a tile of a reduction: each walks a part, and their results meet in turns."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import cast

import pytest
import torch
from conftest import Golden
from device_checks import repeated
from judged import complaints
from reductions import DIMS, DIRECT, OPS, TMA, kernel, program, reduced, without
from sample import covering, often

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.runtime.binding import bind
from fuser.runtime.executable import Executable
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuzz.cases.case import Case, specs
from fuzz.crosscheck.judge import explore
from fuzz.kernels.reduction import REDUCTIONS
from oracles.prover import prove
from oracles.verdict import Status

SCHEDULES = {
    "direct": DIRECT,
    "pipelined": TMA,
    "one stage": replace(TMA, stages=1, prefetch=0),
    "three parts of a row": replace(DIRECT, tile=(4, 96)),
    "a row of several warps": replace(DIRECT, tile=(1, 512), vector=2, warps=8),
    "no vectors": replace(DIRECT, tile=(2, 128), vector=1),
}


def test_a_shared_reduction_reads_like_this(golden: Golden) -> None:
    """Each CTA takes every third step; one meeting of the rows' results."""
    golden.check(text(kernel(replace(TMA, tile=(4, 64), warps=1))))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("dims", DIMS)
def test_one_cta_a_tile_is_the_kernel_that_pointwise_params_make(name: str, dims: str) -> None:
    """Text and CUDA, byte for byte: who does not share has nothing to meet for."""
    alone = replace(SCHEDULES[name], splits=1)
    given = {field.name: getattr(alone, field.name) for field in fields(PointwiseParams)}
    fusion, extents = reduced(dims=DIMS[dims]), {"m": 9, "n": 520}
    made = [program(fusion, p, extents) for p in (alone, PointwiseParams(**given))]
    first, second = (one.launches[0] for one in made)
    assert text(first.kernel) == text(second.kernel)
    assert first.source == second.source
    assert (first.kernel.semaphores, first.kernel.residency) == ((), "any")


@pytest.mark.parametrize(("name", "dims", "op"), covering(2, SCHEDULES, DIMS, ["sum", "max"]))
def test_all_judges_pass_every_schedule(name: str, dims: str, op: str) -> None:
    """On integers, so that the values are those of one CTA, bit by bit."""
    case = Case(reduced(op, DIMS[dims]), SCHEDULES[name], {"m": 9, "n": 520}, "integers", 0)
    assert not complaints(case)


@pytest.mark.parametrize(
    ("params", "splits", "extents"),
    covering(2, [DIRECT, TMA], [1, 2, 5, 16], [(1, 8), (3, 128), (6, 136), (5, 1160)]),
)
def test_all_judges_pass_every_count_of_ctas(
    params: ReductionParams, splits: int, extents: tuple[int, int]
) -> None:
    """There may be fewer steps than CTAs are asked for, and as few as one."""
    given = dict(zip(("m", "n"), extents, strict=True))
    assert not complaints(Case(reduced(), replace(params, splits=splits), given, "integers", 0))


@pytest.mark.parametrize("extents", [(0, 8), (5, 0), (0, 0)])
@pytest.mark.parametrize("dims", DIMS)
def test_nothing_is_reduced_or_given_where_an_extent_is_0(
    dims: str, extents: tuple[int, int]
) -> None:
    """No CTA waits for one that is not there."""
    given = dict(zip(("m", "n"), extents, strict=True))
    assert not complaints(Case(reduced(dims=DIMS[dims]), DIRECT, given, "integers", 0))


@pytest.mark.parametrize("op", ["max", "min", "mean", "sum"])
@pytest.mark.parametrize("dims", ["rows", "columns"])
def test_a_nan_of_any_cta_is_the_result(op: str, dims: str) -> None:
    """Reals hold NaNs and infinities, in the part of some CTA only."""
    for seed in range(often(3, 1)):
        case = Case(reduced(op, DIMS[dims]), DIRECT, {"m": 40, "n": 392}, "reals", seed)
        assert not complaints(case)


@pytest.mark.parametrize(
    ("dtype", "op", "held"),
    [
        ("bf16", "sum", DType.F32),
        ("f16", "mean", DType.F32),
        ("f32", "sum", DType.F32),
        ("f64", "sum", DType.F64),
        ("i32", "sum", DType.I64),
        ("i64", "max", DType.I64),
        ("i32", "min", DType.I32),
    ],
)
def test_results_meet_in_the_type_in_which_they_are_put_together(
    dtype: str, op: str, held: DType
) -> None:
    """Rounded once, by the last CTA."""
    params = replace(DIRECT, vector=2)
    made = kernel(params, reduced(op, dtype=dtype))
    (workspace,) = (t for t in made.tensors if t.name in made.workspaces)
    assert workspace.dtype is held
    assert not complaints(Case(reduced(op, dtype=dtype), params, {"m": 5, "n": 520}, "integers", 1))


def spread() -> Fusion:
    """Mean and maximum of the rows of a matrix, plus a vector."""
    fd = FusionDefinition()
    x, y = fd.define_tensor(["m", "n"], "bf16"), fd.define_tensor(["m"], "bf16")
    fd.add_output(fd.ops.add(fd.ops.mean(x, [1]), y))
    fd.add_output(fd.ops.max(x, [1]))
    return fd.fusion()


def test_two_reductions_meet_at_once() -> None:
    """One wait; one release of the last turn, and of any other; the last CTA alone goes on."""
    made = kernel(DIRECT, spread())
    assert len(made.workspaces) == 2
    kinds = [kir.BlockSerializeWait, kir.BlockSerializeRelease]
    assert [sum(isinstance(s, kind) for s in made.walk()) for kind in kinds] == [1, 2]
    ends = made.body[-1]
    assert isinstance(ends, kir.IfThenElse)
    assert str(ends.condition) == "((split + 1) == splits)"
    sources = [s.src for s in ends.then if isinstance(s, kir.Load)]
    assert [box.tensor.name for box in sources if isinstance(box, kir.Box)] == ["T1"]
    assert not complaints(Case(spread(), DIRECT, {"m": 9, "n": 520}, "integers", 0))


@pytest.mark.parametrize(
    ("n", "ctas", "grid"), [(8, 1, 3), (129, 2, 6), (520, 3, 9), (10_000, 3, 9)]
)
def test_as_many_ctas_share_a_tile_as_there_are_steps(n: int, ctas: int, grid: int) -> None:
    """Three tiles of rows; the kernel is the same for all."""
    case = Case(reduced(), DIRECT, {"m": 9, "n": n}, "integers", 0)
    made = program(case.fusion, DIRECT, case.extents)
    (binding,) = bind(made, specs(case), sms=132)
    assert (binding.params["splits"], binding.grid) == (ctas, grid)


def test_no_grid_has_more_ctas_than_can_be_launched() -> None:
    """Tiles alone would fit."""
    params = replace(DIRECT, tile=(1, 128), splits=7)
    case = Case(reduced(), params, {"m": 1 << 29, "n": 8}, "integers", 0)
    made = program(case.fusion, params, {"m": 9, "n": 8})
    wide = {"m": 1 << 29, "n": 8 * 128}
    assert bind(made, specs(case), sms=132)[0].grid == 1 << 29
    with pytest.raises(ScheduleError, match=r"536870912 tiles, each by 7 CTAs, .* use splits=1"):
        bind(made, specs(replace(case, extents=wide)), sms=132)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"splits": 0}, r"splits=0\): 1\.\.1024 CTAs share a tile; use splits=4"),
        ({"splits": 1025}, r"splits=1025\): 1\.\.1024 CTAs"),
        ({"splits": True}, r"splits=True\): 1\.\.1024 CTAs"),
        ({"ctas_per_sm": 2}, r"splits=3, ctas_per_sm=2\).* use ctas_per_sm=None, or splits=1"),
        (
            {"load": "tma", "warp_specialized": True},
            r"splits=3, warp_specialized=True\).* use warp_specialized=False, or splits=1",
        ),
        ({"meet": "scatter"}, r'meet="scatter"\): .* use meet="vectorized"'),
        ({"meet": "mail"}, r'meet="mail"\): unknown; use'),
        ({"vector": 3}, r"vector=3\): need 1, 2, 4, 8 or 16"),
    ],
)
def test_what_ctas_cannot_share_is_refused(changes: dict[str, object], says: str) -> None:
    """Naming the class that the user wrote."""
    with pytest.raises(ScheduleError, match=rf"^ReductionParams\({says}"):
        replace(DIRECT, **changes)  # type: ignore[arg-type]  # wrong on purpose


def test_pointwise_kernels_take_what_they_know() -> None:
    """A norm: its statistics are shared, its rows are not."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    fd.add_output(fd.ops.sub(x, fd.ops.mean(x, [1], keepdim=True)))
    first, second = program(fd.fusion(), DIRECT, {"m": 9, "n": 520}).launches
    assert first.params == DIRECT
    assert type(second.params) is PointwiseParams
    assert second.params == DIRECT.pointwise()
    assert not complaints(Case(fd.fusion(), DIRECT, {"m": 9, "n": 520}, "integers", 0))


# --- syncs --------------------------------------------------------------------------------------

SYNCS = kir.BlockSerializeWait | kir.BlockSync | kir.BlockSerializeRelease


def meeting(made: kir.Kernel) -> list[kir.Stmt]:
    """The syncs from the wait for a turn on."""
    at = next(n for n, s in enumerate(made.body) if isinstance(s, kir.BlockSerializeWait))
    return [s for s in kir.walk(made.body[at:]) if isinstance(s, SYNCS)]


@pytest.mark.parametrize("name", [n for n in REDUCTIONS if n.startswith("shared")])
def test_each_sync_of_a_meeting_is_needed(name: str) -> None:
    """Without any one both judges refuse the kernel, if more than one thread holds results."""
    pattern = REDUCTIONS[name].template()
    start, whole = pattern.at(1)[0], pattern.kernel
    assert prove.prove(whole).status is Status.PASS
    assert explore(whole, start).status is Status.PASS
    assert len(meeting(whole)) == 4
    # The one thread that has stored a single row's result releases it, too.
    lonely = name in ("shared_ring", "shared_statistics")
    for one in meeting(whole):
        needless = lonely and isinstance(one, kir.BlockSync)
        want = Status.PASS if needless else Status.FAIL
        assert prove.prove(without(whole, one)).status is want, one
        assert explore(without(whole, one), start).status is want, one


# --- on a GPU -----------------------------------------------------------------------------------

WIDE = {
    "direct": replace(DIRECT, tile=(2, 1024)),
    "ring": replace(DIRECT, tile=(16, 256), load="tma", stages=4, prefetch=3),
    "a row of many threads": replace(DIRECT, tile=(1, 8192), warps=8),
    "three parts": replace(DIRECT, tile=(4, 96)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("splits", [2, 3, 7, 16])
@pytest.mark.parametrize("name", WIDE)
def test_the_gpu_computes_the_same_for_every_count(
    name: str, splits: int, dims: str, op: str
) -> None:
    """Three times in a row, on a stream of its own too, and captured; integers give equal bits."""
    run = Executable(reduced(op, DIMS[dims]), replace(WIDE[name], splits=splits), poison=True)
    for shape in ((300, 8200), (3000, 264), (2, 40_000), (1, 8)):
        x = torch.randint(-3, 4, shape, device="cuda").bfloat16()
        want = getattr(torch, OPS[op])(x.double(), DIMS[dims]).bfloat16()
        first = run(x)[0]
        assert torch.allclose(first, want, rtol=0 if op != "mean" else 1e-2, atol=0)
        assert all(torch.equal(one, first) for one in repeated(run, x))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_the_gpu_puts_every_type_together(dtype: str, op: str) -> None:
    """In the type of the sums, 8 bytes of it too."""
    kind = getattr(torch, DType.of(dtype).torch_name)
    x = torch.randint(-3, 4, (70, 5000), device="cuda").to(kind)
    for dim in (0, 1):
        run = Executable(reduced(op, (dim,), dtype), replace(DIRECT, vector=2, splits=7))
        want = x.double().sum(dim) if op == "sum" else x.double().amax(dim)
        (got,) = run(x)
        assert torch.equal(got.double(), want)


@pytest.mark.gpu
def test_the_order_of_turns_makes_bits_repeat() -> None:
    """The same sums 200 times, in a random order of CTAs as the GPU has them."""
    x = torch.randn(4096, 700, device="cuda")
    run = Executable(reduced(dims=(0,), dtype="f32"), replace(DIRECT, splits=16, vector=4))
    (first,) = run(x)
    assert all(torch.equal(run(x)[0], first) for _ in range(200))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "dims"), [((32768, 2048), "columns"), ((4, 1 << 20), "rows"), ((4096, 4096), "all")]
)
def test_the_default_of_few_long_tiles_shares_them(shape: tuple[int, int], dims: str) -> None:
    """More CTAs than tiles are launched, and the sums of integers are exact."""
    x = torch.randint(-1, 2, shape, device="cuda").bfloat16()
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], "bf16"), list(DIMS[dims]), dtype="f32"))
    run = Executable(fd.fusion())
    for _ in range(3):
        (got,) = run(x)
        assert torch.equal(got.double(), x.double().sum(DIMS[dims]))
    (made,) = run._programs.values()
    params = cast(ReductionParams, made.launches[0].params)
    assert params.splits > 1
