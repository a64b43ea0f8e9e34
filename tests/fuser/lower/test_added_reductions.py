"""CTAs that share a tile of a reduction, and have TMA add up what they have of it, in turns."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from conftest import Golden
from device_checks import repeated
from judged import complaints
from reductions import DIMS, kernel, program, reduced, without
from sample import covering, some

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.runtime.executable import Executable
from fuser.schedule.params import ReductionParams
from fuzz.cases.case import Case, Kind
from fuzz.crosscheck.judge import explore
from fuzz.kernels.reduction import REDUCTIONS
from oracles.prover import prove
from oracles.verdict import Status

DIRECT = ReductionParams((4, 128), 8, 4, None, "direct", "direct", splits=3, meet="tma")
RING = replace(DIRECT, load="tma", stages=3, prefetch=2)
SCHEDULES = {
    "direct": DIRECT,
    "pipelined": RING,
    "one stage": replace(RING, stages=1, prefetch=0),
    "twelve parts of a row": replace(DIRECT, tile=(4, 96), vector=1),
    "a row of eight warps": replace(DIRECT, tile=(1, 256), vector=1, warps=8),
    "no vectors": replace(DIRECT, tile=(2, 128), vector=1),
    "no lane has a neighbour": replace(DIRECT, tile=(8, 32)),
}
OPS = {"sum": "sum", "mean": "mean"}


def moments(dims: tuple[int, ...] = (1,), dtype: str = "bf16") -> Fusion:
    """Mean and mean square of a matrix, as norms have them."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], dtype)
    fd.add_output(fd.ops.mean(x, list(dims)))
    fd.add_output(fd.ops.mean(fd.ops.mul(x, x), list(dims)))
    return fd.fusion()


@pytest.mark.parametrize("dims", ["rows", "columns"])
def test_a_reduction_that_tma_adds_up_reads_like_this(golden: Golden, dims: str) -> None:
    """Staged before the turn; stored in the first, added in others, finished by the last CTA."""
    golden.check(text(kernel(DIRECT, reduced(dims=DIMS[dims]))))


@pytest.mark.parametrize(("name", "dims", "op"), covering(2, SCHEDULES, DIMS, OPS))
def test_all_judges_pass_every_schedule(name: str, dims: str, op: str) -> None:
    """Sums of integers, so that the values are those of one CTA, bit by bit; means of reals."""
    kind: Kind = "integers" if op == "sum" else "reals"
    case = Case(reduced(op, DIMS[dims]), SCHEDULES[name], {"m": 9, "n": 520}, kind, 0)
    made = kernel(SCHEDULES[name], case.fusion)
    assert any(isinstance(stmt, kir.TmaReduce) for stmt in made.walk())
    assert not complaints(case)


@pytest.mark.parametrize(
    ("params", "splits", "extents"),
    covering(2, [DIRECT, RING], [1, 2, 5, 16], [(1, 8), (6, 136), (5, 1160)]),
)
def test_all_judges_pass_every_count_of_ctas(
    params: ReductionParams, splits: int, extents: tuple[int, int]
) -> None:
    """There may be fewer steps than CTAs are asked for, and as few as one."""
    given = dict(zip(("m", "n"), extents, strict=True))
    for dims in ((0,), (1,)):
        case = Case(reduced(dims=dims), replace(params, splits=splits), given, "integers", 0)
        assert not complaints(case)


@pytest.mark.parametrize("extents", [(0, 8), (5, 0), (0, 0)])
@pytest.mark.parametrize("dims", DIMS)
def test_nothing_is_added_where_an_extent_is_0(dims: str, extents: tuple[int, int]) -> None:
    """No CTA waits for one that is not there."""
    given = dict(zip(("m", "n"), extents, strict=True))
    assert not complaints(Case(reduced(dims=DIMS[dims]), DIRECT, given, "integers", 0))


@pytest.mark.parametrize("dims", DIMS)
def test_one_cta_a_tile_has_nothing_to_add(dims: str) -> None:
    """Text, byte for byte, is that of the other way to meet."""
    fusion = reduced(dims=DIMS[dims])
    alone = replace(DIRECT, splits=1)
    assert text(kernel(alone, fusion)) == text(kernel(replace(alone, meet="vectorized"), fusion))


@pytest.mark.parametrize(
    ("dtype", "held"),
    [
        ("bf16", DType.F32),
        ("f16", DType.F32),
        ("f32", DType.F32),
        ("bool", DType.I64),
        ("i32", DType.I64),
        ("i64", DType.I64),
    ],
)
@pytest.mark.parametrize("dims", [(0,), (1,)], ids=["columns", "rows"])
def test_tma_adds_in_the_type_of_the_sums(dtype: str, held: DType, dims: tuple[int, ...]) -> None:
    """Rows of 16 bytes or more: four parts of a row, or as many columns as a tile has."""
    params, fusion = replace(DIRECT, vector=2), reduced(dims=dims, dtype=dtype)
    made = kernel(params, fusion)
    (workspace,) = (t for t in made.tensors if t.name in made.workspaces)
    assert workspace.dtype is held
    assert workspace.extents[-1] == (4 if dims == (1,) else 128)
    assert not complaints(Case(fusion, params, {"m": 9, "n": 520}, "integers", 1))


@pytest.mark.parametrize("params", [DIRECT, RING], ids=["direct", "pipelined"])
def test_several_reductions_meet_at_once(params: ReductionParams) -> None:
    """One wait, one group of copies in the first turn and one in those that follow."""
    for fusion in (moments(), moments((0,)), several()):
        made = kernel(params, fusion)
        kinds = [kir.BlockSerializeWait, kir.BlockSerializeRelease, kir.AsyncCommit]
        assert [sum(isinstance(s, kind) for s in made.walk()) for kind in kinds] == [1, 2, 2]
        copies = [kir.TmaStore, kir.TmaReduce]
        many = len(made.workspaces)
        assert many >= 2
        assert [sum(isinstance(s, kind) for s in made.walk()) for kind in copies] == [many, many]
        assert not complaints(Case(fusion, params, {"m": 9, "n": 520}, "reals", 0))


def several() -> Fusion:
    """Sums in f32 and in i64 of the same rows, whose parts are equally many."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "f32")
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.sum(fd.ops.gt(x, 0.0), [1]))
    return fd.fusion()


@pytest.mark.parametrize("dims", ["rows", "columns"])
def test_a_nan_of_any_cta_is_the_result(dims: str) -> None:
    """Reals hold NaNs and infinities, in the part of some CTA only."""
    for seed in range(3):
        case = Case(reduced("sum", DIMS[dims]), DIRECT, {"m": 40, "n": 392}, "reals", seed)
        assert not complaints(case)


def test_a_norm_has_its_statistics_added_up() -> None:
    """The kernel behind them takes what it knows."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    fd.add_output(fd.ops.sub(x, fd.ops.mean(x, [1], keepdim=True)))
    first, second = program(fd.fusion(), DIRECT, {"m": 9, "n": 520}).launches
    assert first.params == DIRECT
    assert second.params == DIRECT.pointwise()
    assert not complaints(Case(fd.fusion(), DIRECT, {"m": 9, "n": 520}, "reals", 0))


def mixed() -> Fusion:
    """A sum and a maximum of the same rows."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", "n"], "bf16")
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.max(x, [1]))
    return fd.fusion()


@pytest.mark.parametrize(
    ("fusion", "says"),
    [
        (reduced("max"), "T1 is a max in f32"),
        (reduced("min", dtype="i32"), "T1 is a min in i32"),
        (reduced(dtype="f64"), "T1 is a sum in f64"),
        (reduced("mean", dtype="f64"), "T1 is a mean in f64"),
        (mixed(), "T2 is a max in f32"),
    ],
)
def test_what_tma_does_not_add_is_refused(fusion: Fusion, says: str) -> None:
    """With the way out; of several reductions one is enough."""
    want = rf'^ReductionParams\(.*meet="tma"\): TMA adds only, in f32 and i64, and {says}; use meet'
    params = replace(DIRECT, vector=2)
    with pytest.raises(ScheduleError, match=want):
        kernel(params, fusion)
    kernel(replace(params, meet="vectorized"), fusion)


@pytest.mark.parametrize(
    ("dims", "changes", "says"),
    [
        ((0,), {"tile": (4, 512)}, "512 columns of results, a TMA box has 256"),
        ((1,), {"tile": (512, 32), "warps": 16}, "512 rows of results, a TMA box has 256"),
        ((1,), {"tile": (4, 16)}, "4 parts of a row at a time, and 2 vectors of 8"),
        ((1,), {"tile": (4, 24), "vector": 4}, "4 parts of a row at a time, and 6 vectors of 4"),
        ((0, 1), {"tile": (1, 8)}, "4 parts of a row at a time, and 1 vectors of 8"),
    ],
)
def test_tiles_that_tma_does_not_move_are_refused(
    dims: tuple[int, ...], changes: dict[str, object], says: str
) -> None:
    """The message names a tile that it does."""
    wrong = replace(DIRECT, **changes)  # type: ignore[arg-type]  # names of fields
    with pytest.raises(ScheduleError, match=says) as error:
        kernel(wrong, reduced(dims=dims))
    found = re.search(r"use tile=\((\d+), (\d+)\), or meet=\"vectorized\"", str(error.value))
    assert found is not None
    right = replace(wrong, tile=(int(found[1]), int(found[2])))
    assert not complaints(Case(reduced(dims=dims), right, {"m": 9, "n": 520}, "integers", 0))


# --- syncs --------------------------------------------------------------------------------------

SYNCS = (
    kir.BlockSerializeWait
    | kir.BlockSync
    | kir.BlockSerializeRelease
    | kir.AsyncCommit
    | kir.FenceAsyncProxy
)


ADDED = [n for n in REDUCTIONS if n.startswith("added")]


@pytest.mark.parametrize("name", some(tuple(ADDED), *ADDED[::3]))
def test_each_sync_of_a_meeting_is_needed(name: str) -> None:
    """Without any one, commits, full awaits and fences too, both judges refuse the kernel."""
    pattern = REDUCTIONS[name].template()
    start, whole = pattern.at(1)[0], pattern.kernel
    assert prove.prove(whole).status is Status.PASS
    assert explore(whole, start).status is Status.PASS
    begin = next(n for n, s in enumerate(whole.body) if isinstance(s, kir.IfThenElse))
    needed = [
        s
        for s in kir.walk(whole.body[begin:])
        if isinstance(s, SYNCS) or (isinstance(s, kir.AsyncAwait) and not s.read_only)
    ]
    kinds = [type(one) for one in needed]
    assert kinds.count(kir.AsyncAwait) == kinds.count(kir.AsyncCommit) == 2
    assert kinds.count(kir.FenceAsyncProxy) == 2
    for one in needed:
        assert prove.prove(without(whole, one)).status is Status.FAIL, one
        assert explore(without(whole, one), start).status is Status.FAIL, one


# --- on a GPU -----------------------------------------------------------------------------------

WIDE = {
    "direct": replace(DIRECT, tile=(2, 256)),
    "ring": replace(DIRECT, tile=(16, 256), load="tma", stages=4, prefetch=3),
    "a row of many threads": replace(DIRECT, tile=(1, 8192), warps=8),
    "twelve parts": replace(DIRECT, tile=(4, 96), vector=1),
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
    params = replace(WIDE[name], splits=splits)
    if dims == "columns" and params.tile[1] > 256:
        params = replace(params, tile=(32, 256))
    run = Executable(reduced(op, DIMS[dims]), params, poison=True)
    for shape in ((300, 8200), (3000, 264), (2, 40_000), (1, 8)):
        x = torch.randint(-3, 4, shape, device="cuda").bfloat16()
        want = getattr(torch, OPS[op])(x.double(), DIMS[dims]).bfloat16()
        first = run(x)[0]
        assert torch.allclose(first, want, rtol=0 if op != "mean" else 1e-2, atol=0)
        assert all(torch.equal(one, first) for one in repeated(run, x))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f16", "f32", "i32", "i64", "bool"])
def test_the_gpu_adds_every_type(dtype: str) -> None:
    """Integers of 8 bytes carry and wrap."""
    kind = getattr(torch, DType.of(dtype).torch_name)
    for dim in (0, 1):
        x = torch.randint(-3, 4, (70, 5000), device="cuda").to(kind)
        if dtype == "i64":
            x += 1 << 61
        params = replace(DIRECT, vector=2, splits=7)
        run = Executable(reduced(dims=(dim,), dtype=dtype), params, poison=True)
        want = x.sum(dim) if not kind.is_floating_point else x.double().sum(dim).to(kind)
        for _ in range(3):
            (got,) = run(x)
            assert torch.equal(got.to(want.dtype), want)


@pytest.mark.gpu
def test_tma_keeps_subnormal_sums() -> None:
    """It rounds to nearest, as threads do; what is lost would break the contract of sums."""
    x = torch.full((4096, 64), 1e-42, device="cuda")
    want = x.double().sum(0).float()
    (got,) = Executable(reduced(dims=(0,), dtype="f32"), replace(DIRECT, tile=(4, 32), vector=1))(x)
    assert torch.equal(got, want)
    assert bool((got > 0).all())


@pytest.mark.gpu
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_the_gpu_computes_statistics(dtype: str, dims: str) -> None:
    """Several reductions of a kernel, with tails, three launches each."""
    kind = getattr(torch, DType.of(dtype).torch_name)
    for params in (DIRECT, RING):
        run = Executable(moments(DIMS[dims], dtype), replace(params, vector=4, splits=5))
        for shape in ((300, 5000), (2056, 72), (3, 10_008)):
            x = torch.randn(shape, device="cuda").to(kind)
            wide = x.double()
            for _ in range(3):
                mean, square = run(x)
                rounding = 1e-2 if dtype == "bf16" else 1e-5
                assert torch.allclose(
                    mean.double(), wide.mean(DIMS[dims]), rtol=rounding, atol=rounding * 1e-1
                )
                assert torch.allclose(
                    square.double(), wide.square().mean(DIMS[dims]), rtol=2 * rounding, atol=0
                )


@pytest.mark.gpu
@pytest.mark.parametrize("dims", ["rows", "columns"])
def test_the_order_of_turns_makes_bits_repeat(dims: str) -> None:
    """The same sums 200 times, in a random order of CTAs as the GPU has them."""
    x = torch.randn(4096, 700, device="cuda")
    params = replace(DIRECT, splits=16, vector=4, tile=(4, 32))
    run = Executable(reduced(dims=DIMS[dims], dtype="f32"), params)
    (first,) = run(x)
    assert all(torch.equal(run(x)[0], first) for _ in range(200))
