"""CTAs that share a tile of a product: whose turn it is, and who goes on with the sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conftest import Golden
from device_checks import repeated
from judged import complaints
from product_kernels import (
    CLUSTER,
    COOPERATIVE,
    GROUPS,
    PIPELINED,
    compiled,
    gated,
    kernel,
    linear,
    specs,
)
from sample import covering, some
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

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.expr import Var
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import problems
from fuser.passes.split_k import serialize_split_k, sync_clusters, sync_ctas
from fuser.pipeline import build
from fuser.runtime.binding import bind
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
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
    ("name", "shape"),
    covering(1, some(tuple(WALKS), *[*WALKS][::2]), [(2, 72, 40), (3, 72, 200), (5, 72, 8)]),
)
def test_all_judges_pass_groups_that_walk(name: str, shape: tuple[int, int, int]) -> None:
    """With several tiles for each group on a small device, and with fewer tiles than groups."""
    splits, rows, k = shape
    extents = {"i0": rows, "i1": k, "i2": 24}
    case = Case(linear(), replace(WALKS[name], splits=splits), extents, "integers", 0)
    assert not complaints(case)


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


@pytest.mark.parametrize("name", some(tuple(NAMES), *NAMES[::8]))
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


@pytest.mark.parametrize(("name", "splits", "k"), covering(1, ALL, [1, 2, 5], [8, 200]))
def test_all_judges_pass_every_count_of_ctas(name: str, splits: int, k: int) -> None:
    """On integers the sums are exact, so all counts give equal bits; K may have fewer steps."""
    extents = {"i0": 72, "i1": k, "i2": 24}
    case = Case(linear(), replace(ALL[name], splits=splits), extents, "integers", 0)
    assert not complaints(case)


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


@pytest.mark.parametrize(
    ("tile", "slots"), [((128, 256, 64), 2), ((128, 192, 64), 2), ((128, 192, 64), 1)]
)
def test_sums_that_do_not_fit_take_slots_in_turn(tile: tuple[int, int, int], slots: int) -> None:
    """A slot is written again when the engine has read it."""
    params = replace(BY_TMA, tile=tile, warpgroups=2, columns=64, stages=2, staging=slots)
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


# --- CTAs that share a tile of a product as a cluster, by reading each other's shared memory ------


PAIR = MatmulParams(
    (64, 16, 16), 1, "pipelined", 2, 1, persistent=False, columns=8, splits=2, meet="cluster"
)
JOINS = kir.ClusterArrive | kir.ClusterWait | kir.BlockSync


def test_a_kernel_of_clusters_reads_like_this(golden: Golden) -> None:
    """Stored, met, read from all ranks in turn, added up, met again before anybody leaves."""
    golden.check(text(kernel(replace(PAIR, splits=4))))


@pytest.mark.parametrize("params", [PIPELINED, CLUSTER])
def test_kernels_that_read_no_slot_of_a_peer_are_left_alone(params: MatmulParams) -> None:
    """TMA fills slots of others; nobody reads them there."""
    made = kernel(params)
    assert sync_clusters(made) is made


def test_one_meeting_of_a_cluster_does_for_two_products() -> None:
    """Behind all stores, before the first read from a peer; another one at the end."""
    for stacked in (False, True):
        body = kernel(replace(PAIR, stacked=stacked), gated()).body
        meetings = [n for n, s in enumerate(body) if isinstance(s, kir.ClusterArrive)]
        stores = [n for n, s in enumerate(body) if isinstance(s, kir.Store)]
        (loop,) = (n for n, s in enumerate(body) if isinstance(s, kir.ForLoop) and reads_peers(s))
        assert max(stores) < meetings[0] < loop < meetings[1]
        assert meetings == [loop - 2, len(body) - 2]


def reads_peers(stmt: kir.Stmt) -> bool:
    """Whether a statement has loads from slots of other CTAs in it."""
    loads = (s.src for s in kir.walk((stmt,)) if isinstance(s, kir.Load))
    return any(isinstance(src, kir.Slot) and src.cta is not None for src in loads)


def test_a_slot_is_not_stored_again_while_a_peer_may_read_it() -> None:
    """Nor without a meeting read again then."""
    buffer = kir.Buffer("S", DType.F32, (8, 8), 1, 0)
    tile = kir.Fragment("x", DType.F32, kir.Layout((8, 8), 2, 32))
    put, get = kir.Store(kir.Slot(buffer, 0), tile, 2), kir.Load(tile, kir.Slot(buffer, 0, 1), 2)
    home = kir.Load(tile, kir.Slot(buffer, 0), 2)
    made = replace(kernel(PAIR), body=(put, home, get, get, put, put, get))
    met = (kir.ClusterArrive(), kir.ClusterWait())
    want = (put, home, *met, get, get, *met, put, put, *met, get)
    assert sync_clusters(made).body == want


@pytest.mark.parametrize("splits", [2, 4, 8])
def test_the_launch_knows_clusters_and_no_scratch_memory(splits: int) -> None:
    """No semaphore, no ticket, no parameter: the hardware runs a cluster at once."""
    params = replace(PAIR, splits=splits)
    made = kernel(params)
    assert (made.cluster, made.residency, made.together) == (splits, "any", 1)
    assert (made.workspaces, made.semaphores) == ((), ())
    assert Var("splits") not in made.params
    spec = specs(linear(), {"i0": 100, "i1": 16, "i2": 24})
    (bound,) = bind(build(linear(), params, classify(linear(), params, spec)), spec, sms=132)
    assert bound.grid == 2 * 2 * splits


CLUSTERED = [n for n in MATMULS if n.startswith("split_cluster")]


@pytest.mark.parametrize("name", CLUSTERED)
def test_each_join_is_needed(name: str) -> None:
    """With all of them both judges pass the kernel; without any one they both refuse it."""
    pattern = MATMULS[name].template()
    starts = pattern.at(3)  # with one step nothing else joins what initialises and what waits
    whole = pattern.kernel
    assert prove.prove(whole).status is Status.PASS
    assert {explore(whole, start).status for start in starts} == {Status.PASS}
    joins = [s for s in whole.walk() if isinstance(s, JOINS)]
    assert [type(s) for s in joins].count(kir.ClusterWait) == 2
    for one in joins:
        without = whole.rewrite(drop(one))
        assert prove.prove(without).status is Status.FAIL, one
        assert Status.FAIL in {explore(without, start).status for start in starts}, one


@pytest.mark.parametrize("name", CLUSTERED)
def test_arrivals_that_release_nothing_are_refused(name: str) -> None:
    """The first one hands on what was stored; the last one the end of what was read."""
    pattern = MATMULS[name].template()
    start = pattern.at(3)[0]
    first = next(s for s in pattern.kernel.walk() if isinstance(s, kir.ClusterArrive))
    weak: list[kir.Stmt] = [kir.ClusterArrive(relaxed=True)]
    made = pattern.kernel.rewrite(lambda stmt: weak if stmt is first else None)
    for verdict in (prove.prove(made), explore(made, start)):
        assert verdict.status is Status.FAIL
        assert {f.kind for f in verdict.findings} & {"scope", "RAW"}


@pytest.mark.parametrize(("splits", "k"), covering(1, [1, 2, 4, 8], [8, 24, 40, 200]))
def test_all_judges_pass_every_size_of_clusters(splits: int, k: int) -> None:
    """On integers the sums are exact; K may have fewer steps than the cluster has CTAs."""
    extents = {"i0": 72, "i1": k, "i2": 24}
    case = Case(linear(), replace(PAIR, splits=splits), extents, "integers", 0)
    assert not complaints(case)


def two_depths() -> Fusion:
    """`relu(a @ b) + relu(c @ d)`: two loops, of other lengths."""
    fd = FusionDefinition()
    a, b, c, d = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(4))
    fd.add_output(fd.ops.add(fd.ops.relu(fd.ops.matmul(a, b)), fd.ops.relu(fd.ops.matmul(c, d))))
    return fd.fusion()


def shifted() -> Fusion:
    """`(x + 1) @ w`: not 0 where x is, so that steps beyond K must be kept out."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.matmul(fd.ops.cast(fd.ops.add(x, 1.0), "bf16"), w))
    return fd.fusion()


@pytest.mark.parametrize("fusion", [gated, two_depths, shifted])
def test_ctas_beyond_the_end_of_k_add_nothing(fusion: Callable[[], Fusion]) -> None:
    """One step for the first of four CTAs, for one loop or another; zeros for the others."""
    params = replace(PAIR, splits=4, prologue="registers")
    extents = {f"i{n}": 16 for n in range(6)} | {"i0": 64, "i1": 8}
    case = Case(fusion(), params, extents, "integers", 0)
    assert not complaints(case)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"splits": 3}, r'splits=3, meet="cluster"\): .* of 2, 4 or 8; use splits=2, or meet'),
        ({"splits": 16}, r"of 2, 4 or 8; use splits=8"),
        ({"split": "cooperative"}, 'a load role has no sums; use split="pipelined"'),
        ({"residency": "co-resident"}, 'run at once anyway; use residency="ticket"'),
        ({"persistent": True}, 'use meet="scatter", or persistent=False'),
        ({"split": "cooperative", "meet": "scatter", "cluster": (2, 1)}, r"use cluster=\(1, 1\)"),
    ],
)
def test_what_a_cluster_cannot_share_is_refused(changes: dict[str, object], says: str) -> None:
    """With what to do instead."""
    with pytest.raises(ScheduleError, match=says):
        replace(PAIR, **changes)  # type: ignore[arg-type]  # wrong on purpose


def test_rows_that_are_reduced_lie_in_one_cta() -> None:
    """Who adds up some columns cannot reduce a row of them."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.sum(fd.ops.matmul(a, b), dims=[1]))
    with pytest.raises(ScheduleError, match=r'meet="cluster"\): .*use meet="vectorized"'):
        compiled(fd.fusion(), PAIR)


def test_clusters_refuse_sums_of_f16() -> None:
    """They would be rounded once for each CTA."""
    fd = FusionDefinition()
    a, b = (fd.define_tensor(shape=[-1, -1], dtype="f16") for _ in range(2))
    fd.add_output(fd.ops.matmul(a, b, accumulate="f16"))
    with pytest.raises(ScheduleError, match=r"MatmulParams\(splits=2\): sums of f16 .* splits=1"):
        kernel(PAIR, fd.fusion())


def test_the_slots_of_the_sums_are_in_addition_to_the_rings_or_in_them() -> None:
    """They are behind the rings where these may not be overlaid; they may be too many in any."""
    large = replace(PAIR, tile=(128, 256, 64), warpgroups=2, columns=16, stages=3)
    with pytest.raises(ScheduleError, match=r"needs 278\d\d\d bytes of shared memory.* stages=2"):
        kernel(replace(large, overlay=False))
    assert kernel(replace(large, stages=2, overlay=False)).smem_bytes > 128 * 256 * 4
    assert kernel(large).smem_bytes < 3 * (128 + 256) * 64 * 2 + 1024


# --- on a GPU -----------------------------------------------------------------------------------

WIDE_PAIR = replace(PAIR, tile=(128, 128, 64), warpgroups=2, stages=3, prefetch=1, columns=16)
LOW = replace(PAIR, tile=(64, 64, 64), stages=6, prefetch=4, columns=8)


@pytest.mark.gpu
@pytest.mark.parametrize("params", [PAIR, WIDE_PAIR, LOW, replace(WIDE_PAIR, columns=32)])
@pytest.mark.parametrize("splits", [2, 4, 8])
def test_the_gpu_computes_the_same_for_every_size(params: MatmulParams, splits: int) -> None:
    """Three times in a row, and captured; one step of K and many, tiles that end beyond M and N."""
    run = Executable(linear(), replace(params, splits=splits), poison=True)
    for m, k, n in [(64, 2048, 96), (200, 1000, 136), (1, 4096, 8), (300, 64, 256), (70, 8, 24)]:
        shapes = [(m, k), (n, k), (n,)]
        given = [torch.randint(-3, 4, shape, device="cuda").bfloat16() for shape in shapes]
        x, w, bias = (tensor.double() for tensor in given)
        want = (x @ w.T + bias).relu().bfloat16()
        assert all(torch.equal(one, want) for one in repeated(run, *given))


@pytest.mark.gpu
@pytest.mark.parametrize("stacked", [False, True])
def test_the_gpu_adds_up_two_products(stacked: bool) -> None:
    """Each has slots of its own, or columns of one."""
    params = replace(LOW, splits=4, stacked=stacked)
    run = Executable(gated(), params, poison=True)
    shapes = [(130, 1000), (72, 1000), (72, 1000)]
    given = [torch.randint(-3, 4, shape, device="cuda").bfloat16() for shape in shapes]
    x, gate, up = (tensor.double() for tensor in given)
    want = ((x @ gate.T).float() * (x @ up.T).float()).bfloat16()
    assert torch.equal(run(*given)[0], want)


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [2, 8])
def test_the_order_of_ranks_makes_bits_repeat(splits: int) -> None:
    """The same sums 200 times, whichever CTA of a cluster is the first to store its own."""
    run = Executable(linear(), replace(WIDE_PAIR, splits=splits))
    given = [torch.randn(shape, device="cuda").bfloat16() for shape in [(96, 4096), (160, 4096)]]
    given.append(torch.randn(160, device="cuda").bfloat16())
    first = run(*given)[0]
    assert all(torch.equal(run(*given)[0], first) for _ in range(200))
