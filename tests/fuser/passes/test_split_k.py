"""CTAs that share a tile of a product: whose turn it is, and who goes on with the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conftest import Golden
from device_checks import repeated
from product_kernels import COOPERATIVE, GROUPS, PIPELINED, compiled, gated, kernel, linear, specs
from sample import covering
from split_products import (
    AMPERE_SCATTER,
    BY_TMA,
    ROLES,
    SCATTER,
    SMALL,
    SMALL_AMPERE,
    WIDE,
    WIDE_SCATTER,
    integers,
)

from fuser.errors import ScheduleError
from fuser.fusion.definition import FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import problems
from fuser.passes.split_k import serialize_split_k, sync_ctas
from fuser.pipeline import build
from fuser.runtime.binding import bind
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.campaign.judge import judge
from fuzz.cases.case import Case
from fuzz.crosscheck.judge import explore
from fuzz.kernels.matmul import MATMULS
from oracles.prover import prove
from oracles.verdict import Status

SPLIT: dict[str, MatmulParams | AmpereParams] = {
    "hopper": SMALL,
    "ampere": SMALL_AMPERE,
    "tma": BY_TMA,
}
ROLES_AMPERE = replace(SMALL_AMPERE, observe="mbarriers", prefetch=0)
ALL: dict[str, MatmulParams | AmpereParams] = SPLIT | {
    "scatter": SCATTER,
    "roles": ROLES,
    "roles, tma": replace(ROLES, meet="tma", residency="ticket"),
    "roles, scatter": replace(ROLES, meet="scatter", columns=8),
    "roles of ampere": ROLES_AMPERE,
}
WALKS: dict[str, MatmulParams | AmpereParams] = {
    "turns": replace(SMALL, persistent=True),
    "tma": replace(BY_TMA, split="cooperative", columns=8, persistent=True),
    "scatter": replace(SCATTER, persistent=True),
    "neighbours": replace(ROLES, persistent=True),
    "ampere": replace(SMALL_AMPERE, persistent=True),
    "roles of ampere": replace(ROLES_AMPERE, persistent=True),
}
"""Those whose CTAs take several tiles, each group of them the same."""


def test_a_split_kernel_reads_like_this(golden: Golden) -> None:
    """One meeting: wait, add what is there, go on or write, join, release."""
    golden.check(text(kernel(replace(SMALL, store="direct"))))


def test_a_kernel_split_by_tma_reads_like_this(golden: Golden) -> None:
    """Staged before its turn; stored or added by the engine, drained, then released."""
    golden.check(text(kernel(replace(BY_TMA, store="direct", columns=8))))


@pytest.mark.parametrize("params", [PIPELINED, COOPERATIVE, GROUPS])
def test_other_kernels_are_left_alone(params: MatmulParams | AmpereParams) -> None:
    """Nobody meets where a tile has one CTA."""
    made = kernel(params)
    assert serialize_split_k(made) == made
    assert (made.semaphores, made.workspaces, made.residency) == ((), (), "any")


@pytest.mark.parametrize("params", SPLIT.values(), ids=SPLIT)
def test_the_first_reads_nothing_and_the_last_writes_no_sums(
    params: MatmulParams | AmpereParams,
) -> None:
    """One branch for those behind the first, and two for the last and the others."""
    made = kernel(params)
    wait = next(n for n, s in enumerate(made.body) if isinstance(s, kir.BlockSerializeWait))
    reset, *middle, ends = (s for s in made.body[wait + 1 :] if isinstance(s, kir.IfThenElse))
    later = middle[0] if middle else ends.then[0]
    assert isinstance(later, kir.IfThenElse)
    assert str(later.condition) == "(1 <= split)"
    assert {str(reset.condition), str(ends.condition)} == {"((split + 1) == splits)"}
    assert [type(s) for s in later.then] == [kir.Load, kir.Compute]
    sums = [s for s in kir.walk(ends.orelse) if isinstance(s, kir.Store | kir.TmaStore)]
    assert [s.dst.tensor.name for s in sums if isinstance(s.dst, kir.Box)] == ["W_acc"]
    outputs = {s.dst.tensor.name for s in kir.walk(ends.then) if isinstance(s, kir.TmaStore)}
    outputs |= {
        s.dst.tensor.name
        for s in kir.walk(ends.then)
        if isinstance(s, kir.Store) and isinstance(s.dst, kir.Box)
    }
    assert outputs == set(made.outputs)


def test_a_role_meets_by_a_barrier_of_its_own() -> None:
    """The load role is not asked: it has nothing to do with the sums."""
    scattered = replace(ROLES, meet="scatter", columns=8)
    for params, sync in ((ROLES, kir.BlockSerializeWait), (scattered, kir.GridSync)):
        (load, compute) = (s for s in kernel(params).body if isinstance(s, kir.Role))
        assert not [s for s in kir.walk(load.body) if isinstance(s, sync)]
        (met,) = (s for s in kir.walk(compute.body) if isinstance(s, sync))
        joins = {s.barrier for s in kir.walk(compute.body) if isinstance(s, kir.BlockSync)}
        assert met.barrier == 2
        assert joins <= {2}


def test_neighbours_share_a_part_of_k() -> None:
    """All CTAs of one part follow one another; with tickets those of one tile do."""
    tiles = "(((n0 + 63) // 64) * ((n1 + 15) // 16))"
    for params, residency, split, tile in (
        (ROLES, "co-resident", f"(blockIdx // {tiles})", f"(blockIdx % {tiles})"),
        (SMALL, "ticket", "(blockIdx % splits)", "(blockIdx // splits)"),
    ):
        made = kernel(params)
        lets = {s.var.name: str(s.value) for s in made.body if isinstance(s, kir.Let)}
        assert made.residency == residency
        assert (lets["split"], lets["tile"]) == (split, tile)


def test_a_grid_larger_than_the_device_is_not_split_so_far() -> None:
    """As many CTAs share a tile as all of the grid runs at once; else tickets are the way out."""
    params = replace(ROLES, splits=16)
    for rows, sms, splits in ((64, 132, 16), (640, 132, 13), (6400, 132, 1), (0, 132, 16)):
        spec = specs(linear(), {"i0": rows, "i1": 4096, "i2": 16})
        program = build(linear(), params, classify(linear(), params, spec))
        (bound,) = bind(program, spec, sms=sms)
        assert bound.params["splits"] == splits


def test_a_kernel_of_groups_that_walk_reads_like_this(golden: Golden) -> None:
    """The loop over tiles has the meeting in it, on an integer of each tile."""
    golden.check(text(kernel(replace(SMALL, persistent=True, store="direct"))))


@pytest.mark.parametrize("params", WALKS.values(), ids=WALKS)
def test_a_cta_has_one_part_of_k_for_all_its_tiles(params: MatmulParams | AmpereParams) -> None:
    """Its place in its group; the group's number is where its tiles begin."""
    made = kernel(params)
    first, place = "(blockIdx // splits)", "(blockIdx % splits)"
    if params.residency == "co-resident":
        first, place = "(blockIdx % groups)", "(blockIdx // groups)"
    elif params.meet == "scatter":
        first, place = "(blockIdx // 3)", "(blockIdx % 3)"
    outside = {s.var.name: str(s.value) for s in made.body if isinstance(s, kir.Let)}
    inside = {s.var.name: str(s.value) for s in made.walk() if isinstance(s, kir.Let)}
    assert outside["split"] == place
    assert inside["tile"] == f"({first} + (t * groups))"
    many = "3" if params.meet == "scatter" else "splits"
    assert f"(gridDim == (groups * {many}))" in {str(one) for one in made.requires}
    found = {s.index for s in made.walk() if isinstance(s, kir.BlockSerializeWait | kir.GridSync)}
    assert {str(index) for index in found} == {"tile"}


@pytest.mark.parametrize(
    ("name", "shape"), covering(1, WALKS, [(2, 200, 40), (3, 72, 200), (5, 130, 8)])
)
def test_all_judges_pass_groups_that_walk(name: str, shape: tuple[int, int, int]) -> None:
    """With several tiles for each group on a small device, and with fewer tiles than groups."""
    splits, rows, k = shape
    extents = {"i0": rows, "i1": k, "i2": 24}
    case = Case(linear(), replace(WALKS[name], splits=splits), extents, "integers", 0)
    assert not [r for r in judge(case) if r.status != "pass"]


def syncs(made: kir.Kernel) -> list[kir.Stmt]:
    """The syncs from the wait for a turn, or the meeting, on."""
    begin = kir.BlockSerializeWait | kir.GridSync
    inner = (s.body for s in made.walk() if isinstance(s, kir.Role | kir.ForLoop))
    bodies = [made.body, *inner]
    tail = next(
        list(kir.walk(body[n:]))
        for body in bodies
        for n, s in enumerate(body)
        if isinstance(s, begin)
    )
    kinds = begin | kir.BlockSync | kir.BlockSerializeRelease
    return [s for s in tail if isinstance(s, kinds)]


NAMES = [n for n in MATMULS if n.startswith("split") and not {"cluster", "last"} & {*n.split("_")}]


@pytest.mark.parametrize("name", NAMES)
def test_each_sync_of_a_meeting_is_needed(name: str) -> None:
    """With all of them both judges pass the kernel; without any one they both refuse it."""
    pattern = MATMULS[name].template()
    start = pattern.at(3)[1 if "persistent" in name else 0]
    whole = pattern.kernel
    assert prove.prove(whole).status is Status.PASS
    assert explore(whole, start).status is Status.PASS
    assert len(syncs(whole)) >= (1 if "scatter" in name else 3)
    for one in syncs(whole):
        without = whole.rewrite(drop(one))
        assert prove.prove(without).status is Status.FAIL, one
        assert explore(without, start).status is Status.FAIL, one


def drop(one: kir.Stmt) -> Callable[[kir.Stmt], list[kir.Stmt] | None]:
    """What leaves one statement out."""
    return lambda stmt: [] if stmt is one else None


@pytest.mark.parametrize(("name", "splits", "k"), covering(2, ALL, [1, 2, 5], [8, 200]))
def test_all_judges_pass_every_count_of_ctas(name: str, splits: int, k: int) -> None:
    """On integers the sums are exact, so all counts give equal bits; K may have fewer steps."""
    extents = {"i0": 72, "i1": k, "i2": 24}
    case = Case(linear(), replace(ALL[name], splits=splits), extents, "integers", 0)
    assert not [r for r in judge(case) if r.status != "pass"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"splits": 65}, r"AmpereParams\(splits=65\): 1\.\.64 CTAs share a tile; use splits=4"),
        ({"splits": True}, r"AmpereParams\(splits=True\): 1\.\.64 CTAs"),
        (
            {"persistent": True, "meet": "cluster"},
            'splits=3, meet="cluster", persistent=True.*use meet="scatter", or persistent=False',
        ),
        ({"residency": "any"}, 'unknown; use "ticket" or "co-resident"'),
    ],
)
def test_what_ctas_cannot_share_is_refused(changes: dict[str, object], says: str) -> None:
    """On Ampere as on Hopper (`test_matmul_params`)."""
    with pytest.raises(ScheduleError, match=says):
        replace(SMALL_AMPERE, **changes)  # type: ignore[arg-type]  # wrong on purpose


def test_two_products_of_a_loop_meet_at_once() -> None:
    """One wait for both of them, and one release of the last turn and of any other."""
    for params in (SMALL, BY_TMA):
        made = kernel(params, gated())
        assert len(made.workspaces) == 2
        assert sum(isinstance(s, kir.BlockSerializeWait) for s in made.walk()) == 1
        released = [s.turn for s in made.walk() if isinstance(s, kir.BlockSerializeRelease)]
        assert [str(turn) for turn in released] == ["0", "(split + 1)"]


def test_a_kernel_without_turns_reads_like_this(golden: Golden) -> None:
    """All sums are stored, CTAs meet once, and each adds up every n-th group of columns."""
    golden.check(text(kernel(SCATTER)))


def test_one_meeting_does_for_two_products() -> None:
    """It stands before the first read of what others stored, behind all stores."""
    made = kernel(SCATTER, gated())
    (at,) = (n for n, s in enumerate(made.body) if isinstance(s, kir.GridSync))
    before = [s.dst for s in made.body[:at] if isinstance(s, kir.Store)]
    names = [box.tensor.name for box in before if isinstance(box, kir.Box)]
    assert list(dict.fromkeys(names)) == ["W_acc", "W_acc1"]
    assert (made.residency, made.together) == ("ticket", 3)
    assert sync_ctas(made) == made


def test_rows_that_are_reduced_are_not_scattered() -> None:
    """Who adds up some columns cannot reduce a row of them."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.sum(fd.ops.matmul(a, b), dims=[1]))
    with pytest.raises(
        ScheduleError, match=r'MatmulParams\(meet="scatter"\): .*use meet="vectorized"'
    ):
        compiled(fd.fusion(), SCATTER)


def test_bulk_writes_are_drained_before_their_turn_is_released() -> None:
    """In full, by the thread that issued them: reads of their source are not enough."""
    made = kernel(BY_TMA)
    ends = next(s for s in reversed(made.body) if isinstance(s, kir.IfThenElse))
    steps = [s for s in kir.walk(ends.orelse) if not kir.bodies(s)]
    await_all = kir.AsyncAwait(kir.AsyncKind.BULK, 0)
    assert [str(type(s).__name__) for s in steps] == [
        *("TmaStore", "AsyncCommit", "AsyncAwait"),
        *("FenceAsyncProxy", "TmaReduce", "AsyncCommit", "AsyncAwait"),
        "BlockSerializeRelease",
    ]
    assert [s for s in steps if isinstance(s, kir.AsyncAwait)] == [await_all, await_all]


@pytest.mark.parametrize(("columns", "slots"), [(64, 1), (32, 2), (8, 8)])
def test_sums_that_fit_are_staged_before_their_turn(columns: int, slots: int) -> None:
    """Each column of the epilogue has a slot; the turn is for the engine alone."""
    made = kernel(replace(BY_TMA, tile=(64, 64, 16), columns=columns))
    (staged,) = (b for b in made.buffers if b.name == "S_acc")
    assert staged.slots == slots
    wait = next(n for n, s in enumerate(made.body) if isinstance(s, kir.BlockSerializeWait))
    before = [s for s in kir.walk(made.body[:wait]) if isinstance(s, kir.Store)]
    assert [s.dst for s in before] == [kir.Slot(staged, n) for n in range(slots)]


@pytest.mark.parametrize(("tile", "slots"), [((128, 256, 64), 2), ((128, 192, 64), 1)])
def test_sums_that_do_not_fit_take_slots_in_turn(tile: tuple[int, int, int], slots: int) -> None:
    """A slot is written again when the engine has read it."""
    params = replace(BY_TMA, tile=tile, warpgroups=2, columns=64, stages=2)
    made = kernel(params)
    (staged,) = (b for b in made.buffers if b.name == "S_acc")
    assert staged.slots == slots
    reads = [s for s in made.walk() if isinstance(s, kir.AsyncAwait) and s.read_only]
    assert kir.AsyncAwait(kir.AsyncKind.BULK, slots - 1, read_only=True) in reads
    assert prove.prove(made).status is Status.PASS


def test_sums_of_f16_are_refused() -> None:
    """They would be rounded in every turn, which no bound covers."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="f16") for _ in range(2))
    fd.add_output(fd.ops.matmul(a, b, accumulate="f16"))
    with pytest.raises(ScheduleError, match=r"MatmulParams\(splits=3\): sums of f16 .* splits=1"):
        kernel(SMALL, fd.fusion())


def test_a_meeting_that_no_pass_wrote_out_is_refused() -> None:
    """A finished kernel says in which turns it adds up."""
    made = kernel(SMALL)
    load = next(s for s in made.walk() if isinstance(s, kir.Load))
    assert isinstance(load.src, kir.Box)
    (semaphore,) = made.semaphores
    meeting = kir.GridSum(load.dst, load.src, semaphore, 0, 0, 1)
    found = list(problems(replace(made, body=(*made.body, meeting)), final=True))
    assert any("no pass said in which turns" in p for p in found)


# --- on a GPU -----------------------------------------------------------------------------------

WIDE_TMA = replace(WIDE, meet="tma")
WIDE_AMPERE = replace(SMALL_AMPERE, tile=(64, 64, 32), warps=4, columns=64, stages=3, prefetch=2)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "params",
    [SMALL, SMALL_AMPERE, WIDE, WIDE_AMPERE, BY_TMA, WIDE_TMA, WIDE_SCATTER, AMPERE_SCATTER],
)
@pytest.mark.parametrize("splits", [2, 3, 7, 16, 64])
def test_the_gpu_computes_the_same_for_every_count(
    params: MatmulParams | AmpereParams, splits: int
) -> None:
    """Three times in a row, on a stream of its own too, and captured; integers give equal bits."""
    run = Executable(linear(), replace(params, splits=splits), poison=True)
    for m, k, n in [(64, 2048, 96), (200, 1000, 136), (1, 4096, 8), (300, 64, 256)]:
        given = integers(m, k, n)
        x, w, bias = (tensor.double() for tensor in given)
        want = (x @ w.T + bias).relu().bfloat16()
        assert all(torch.equal(one, want) for one in repeated(run, *given))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "params",
    [
        *WALKS.values(),
        replace(WIDE, persistent=True),
        replace(WIDE_TMA, persistent=True),
        replace(WIDE_TMA, split="cooperative", persistent=True),
        replace(WIDE_SCATTER, split="cooperative", residency="co-resident", persistent=True),
        replace(WIDE_AMPERE, persistent=True),
        replace(AMPERE_SCATTER, persistent=True),
    ],
)
@pytest.mark.parametrize("splits", [2, 3, 16])
def test_the_gpu_computes_the_same_where_groups_walk(
    params: MatmulParams | AmpereParams, splits: int
) -> None:
    """Three times: one tile, fewer than groups, tails, few steps of K, several tiles for each."""
    run = Executable(linear(), replace(params, splits=splits), poison=True)
    shapes = [(1, 4096, 8), (64, 2048, 96), (300, 64, 256), (1000, 1000, 1040), (2048, 520, 2048)]
    for m, k, n in shapes:
        given = integers(m, k, n)
        x, w, bias = (tensor.double() for tensor in given)
        want = (x @ w.T + bias).relu().bfloat16()
        for _ in range(3):
            assert torch.equal(run(*given)[0], want), (m, k, n)


@pytest.mark.gpu
@pytest.mark.parametrize("params", [WIDE, WIDE_AMPERE, WIDE_TMA, WIDE_SCATTER, AMPERE_SCATTER])
def test_the_order_of_turns_makes_bits_repeat(params: MatmulParams | AmpereParams) -> None:
    """The same sums 200 times, in a random order of CTAs as the GPU has them."""
    run = Executable(linear(), replace(params, splits=8))
    given = [torch.randn(shape, device="cuda").bfloat16() for shape in [(96, 4096), (160, 4096)]]
    given.append(torch.randn(160, device="cuda").bfloat16())
    first = run(*given)[0]
    assert all(torch.equal(run(*given)[0], first) for _ in range(200))
