"""What each sync is for, as truth tables: the simulator fails exactly where one is missing."""

from __future__ import annotations

from dataclasses import replace

import kernels
import numpy as np
import pytest

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status, Verdict

SEEDS = 6
"""One schedule per strategy."""


def launch(tiles: int, *, grid: int = 1) -> Launch:
    """Return a launch in which one row of `tiles` tiles is shared by `grid` CTAs."""
    columns = kernels.COLS * tiles
    rows = kernels.ROWS if tiles else 0
    return Launch(grid, {"R": rows, "C": max(columns, kernels.COLS), "pitch": max(columns, 64)})


def judge(kernel: kir.Kernel, trips: int, *, policy: str = "default") -> Verdict:
    """Run a kernel for some trips under every strategy."""
    validate(kernel, final=True)
    return search(kernel, launch(trips), schedules=SEEDS, policy=policy)


def kinds(verdict: Verdict, severity: str = "error") -> set[str]:
    """Return the kinds of its findings."""
    return {f.kind for f in verdict.findings if f.severity == severity}


def trips_of(stages: int) -> list[int]:
    """Trip counts where real compilers break."""
    return sorted({0, 1, stages - 1, stages, 2 * stages + 1})


@pytest.mark.parametrize(("stages", "prefetch"), [(s, p) for s in (1, 2, 3, 4) for p in range(s)])
def test_a_pipelined_ring_is_safe_for_every_trip_count(stages: int, prefetch: int) -> None:
    """Trip counts below, at and past the prefetch distance are all legal."""
    for trips in trips_of(stages):
        verdict = judge(kernels.pipelined(stages, prefetch), trips)
        assert verdict.status is Status.PASS, verdict


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["specialized", "staged", "handed"])
def test_safe_kernels_pass_for_every_trip_count(name: str, stages: int) -> None:
    """No false alarm, from the empty loop to two turns of the ring and one more."""
    for trips in trips_of(stages):
        verdict = judge(getattr(kernels, name)(stages), trips)
        assert verdict.status is Status.PASS, verdict
        assert verdict.checked > 0


@pytest.mark.parametrize(
    ("kernel", "least", "kind"),
    [
        (kernels.pipelined(3, 2, init_sync=False), 1, {"init"}),
        (kernels.pipelined(3, 2, expect=False), 1, {"deadlock", "bytes"}),
        (kernels.pipelined(3, 2, nbytes=kernels.NBYTES // 2), 1, {"bytes"}),
        (kernels.pipelined(3, 2, nbytes=kernels.NBYTES * 2), 1, {"deadlock", "bytes"}),
        (kernels.pipelined(3, 2, full=False), 1, {"RAW"}),
        (kernels.pipelined(3, 2, parity=1), 1, {"RAW"}),
        (kernels.pipelined(3, 2, war_sync=False), 4, {"WAR"}),
        (kernels.pipelined(3, 2, slots=2), 3, {"WAW", "WAR"}),
    ],
)
def test_each_sync_of_pipelined_is_needed(kernel: kir.Kernel, least: int, kind: set[str]) -> None:
    """From `least` trips on, each omission is seen, and not before."""
    for trips in (0, 1, 2, 3, 4, 7):
        verdict = judge(kernel, trips)
        assert (verdict.status is Status.FAIL) == (trips >= least), (trips, verdict)
        assert kinds(verdict) <= kind, (trips, verdict)


@pytest.mark.parametrize(
    ("kernel", "least", "kind"),
    [
        (kernels.specialized(3, init_sync=False), 1, {"init"}),
        (kernels.specialized(3, empty_wait=False), 4, {"arrivals", "WAW", "WAR"}),
        (kernels.specialized(3, empty_parity=0), 1, {"deadlock"}),
        (kernels.specialized(3, full=False), 1, {"RAW"}),
        (kernels.specialized(3, arrive=False), 4, {"deadlock"}),
        (kernels.specialized(3, warp_sync=False), 4, {"WAR"}),
        (kernels.specialized(3, arrive_early=True), 4, {"WAR"}),
        (kernels.specialized(3, nbytes=kernels.NBYTES // 2), 1, {"bytes"}),
        (kernels.specialized(3, nbytes=kernels.NBYTES * 2), 1, {"deadlock", "bytes"}),
        (kernels.specialized(3, arrivals=kernels.WARPS - 1), 1, {"arrivals", "WAR", "RAW"}),
        (kernels.specialized(3, arrivals=kernels.WARPS + 1), 4, {"deadlock"}),
        (kernels.specialized(3, extra_load=1), 0, {"exit"}),
    ],
)
def test_each_sync_of_specialized_is_needed(kernel: kir.Kernel, least: int, kind: set[str]) -> None:
    """The WarpSync before the arrive of one lane is needed like all the others."""
    for trips in (0, 1, 2, 3, 4, 7):
        verdict = judge(kernel, trips)
        assert (verdict.status is Status.FAIL) == (trips >= least), (trips, verdict)
        assert kinds(verdict) <= kind, (trips, verdict)


@pytest.mark.parametrize(
    ("kernel", "least", "kind"),
    [
        (kernels.staged(3, await_reads=False), 4, {"WAR"}),
        (kernels.staged(3, keep=3), 4, {"WAR"}),
        (kernels.staged(3, free_sync=False), 4, {"WAR"}),
        (kernels.staged(3, fence=False), 1, {"proxy"}),
        (kernels.staged(3, ready_sync=False), 1, {"RAW"}),
        (kernels.staged(3, commit=False), 1, {"group", "WAR"}),
        (kernels.staged(3, final_await=False), 1, {"exit"}),
        (kernels.staged(3, keep=0), 99, set()),
        (kernels.staged(3, fence_late=True), 99, set()),
    ],
)
def test_each_sync_of_staged_is_needed(kernel: kir.Kernel, least: int, kind: set[str]) -> None:
    """Waiting for more than needed is safe; waiting for less is not."""
    for trips in (0, 1, 2, 3, 4, 7):
        verdict = judge(kernel, trips)
        assert (verdict.status is Status.FAIL) == (trips >= least), (trips, verdict)
        assert kinds(verdict) <= kind, (trips, verdict)


@pytest.mark.parametrize("policy", ["default", "strict"])
@pytest.mark.parametrize("fence", ["writer", "late", "observer", "leader", "none"])
def test_who_must_fence(fence: str, policy: str) -> None:
    """Writers fence before they arrive; an observer's fence is disputed; a late one is none."""
    verdict = judge(kernels.handed(2, fence=fence), 5, policy=policy)
    disputed = fence in ("observer", "leader")
    safe = fence == "writer" or (disputed and policy == "default")
    assert (verdict.status is Status.PASS) == safe, verdict
    assert ("proxy" in kinds(verdict, "warning")) == (disputed and policy == "default"), verdict
    assert safe or kinds(verdict) == {"proxy"}


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.handed(2, ready=False),
        kernels.handed(2, free=False),
        kernels.handed(2, warp_sync=False),
        kernels.handed(2, final_await=False),
    ],
)
def test_each_sync_of_handed_is_needed(kernel: kir.Kernel) -> None:
    """A storing thread that frees a slot before its bytes were read races with the writers."""
    verdict = judge(kernel, 5)
    assert verdict.status is Status.FAIL, verdict


@pytest.mark.parametrize("name", ["staged", "specialized", "handed"])
def test_long_runs_reuse_the_clocks_of_copies(name: str) -> None:
    """Forty turns of a ring pass."""
    assert judge(getattr(kernels, name)(2), 81).status is Status.PASS


def test_a_race_in_the_last_of_many_turns_is_seen() -> None:
    """Clocks that are used again must not hide it."""
    deep = search(kernels.pipelined(24, 23), launch(49), schedules=2)
    assert deep.status is Status.PASS, deep
    late = kernels.specialized(3, extra_load=1)
    assert kinds(judge(late, 80)) == {"exit"}


@pytest.mark.parametrize("specialized", [True, False])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("store_slots", [1, 2])
def test_combined_rings_are_safe(stages: int, store_slots: int, specialized: bool) -> None:
    """Two inputs behind one barrier and a ring of stores, in one loop."""
    kernel = kernels.combined(stages, stages - 1, store_slots, specialized=specialized)
    for trips in (0, 1, stages, 2 * stages + 1):
        verdict = judge(kernel, trips)
        assert verdict.status is Status.PASS, (trips, verdict)


@pytest.mark.parametrize("specialized", [True, False])
def test_each_sync_of_combined_is_needed(specialized: bool) -> None:
    """One bad switch each, over enough turns to show."""
    bad = (
        kernels.combined(2, 1, 2, specialized=specialized, await_reads=False),
        kernels.combined(2, 1, 2, specialized=specialized, fence=False),
        kernels.combined(2, 1, 2, specialized=specialized, ready_sync=False),
        kernels.combined(2, 1, 2, specialized=specialized, nbytes=kernels.NBYTES),
    )
    for kernel in bad:
        verdict = judge(kernel, 5)
        assert verdict.status is Status.FAIL, verdict


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("sync", ["block", "warp", "none"])
def test_another_layout_needs_a_barrier(sync: str, same: bool) -> None:
    """A private round trip needs none; another layout meets other lanes and other warps."""
    verdict = judge(kernels.relaid(sync=sync, same=same), 2)
    assert (verdict.status is Status.PASS) == (same or sync == "block"), verdict


def test_lanes_of_one_warp_need_a_warp_sync() -> None:
    """The 31 lanes behind one clock are not in step with each other either."""
    one = kir.Layout((4, 64), 4, 32)
    other = kir.Layout((4, 64), 2, 32)
    x = kir.Fragment("x", DType.F32, one)
    z = kir.Fragment("z", DType.F32, other)
    tile = kir.Buffer("S0", DType.F32, (4, 64), 1, 0)
    for sync in (True, False):
        between = (kir.WarpSync(),) if sync else ()
        body: list[kir.Stmt] = [
            kir.Load(x, kernels.box(kernels.T0, 0), 4),
            kir.Store(kir.Slot(tile, 0), x, 4),
            *between,
            kir.Load(z, kir.Slot(tile, 0), 2),
            kir.Store(kernels.box(kernels.T1, 0), z, 2),
        ]
        verdict = judge(kernels.kernel("warp", body, buffers=(tile,), threads=32), 1)
        assert (verdict.status is Status.PASS) == sync, verdict
        assert sync or kinds(verdict) <= {"RAW"}


def test_a_generic_read_before_a_refill_is_disputed() -> None:
    """Without a proxy fence it is a warning; the strict policy calls it an error."""
    assert kinds(judge(kernels.specialized(2), 5), "warning") == {"proxy"}
    assert kinds(judge(kernels.specialized(2), 5, policy="strict")) == {"proxy"}


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("columns", [4, 64, 100])
@pytest.mark.parametrize("name", ["direct", "pipelined", "specialized", "staged", "handed"])
def test_values_are_right_in_tails(name: str, rows: int, columns: int) -> None:
    """Rows and columns that fill no tile, over three CTAs."""
    arguments = {"direct": (), "pipelined": (2, 1)}.get(name, (2,))
    kernel = getattr(kernels, name)(*arguments)
    source = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    out = np.full((rows, columns), np.nan, np.float32)
    params = {"R": rows, "C": columns, "pitch": columns + 4}
    for seed in range(3):
        verdict = simulate(kernel, Launch(3, params), {"T0": source, "T1": out}, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(out, source + source)


def test_the_same_seed_gives_the_same_run() -> None:
    """A witness can be replayed."""
    broken = kernels.specialized(3, warp_sync=False)
    for seed in range(SEEDS):
        verdicts = [simulate(broken, launch(9), seed=seed) for _ in range(2)]
        assert verdicts[0] == verdicts[1]
        assert verdicts[0].status is Status.FAIL


def test_a_witness_names_lines_lanes_and_iterations() -> None:
    """A reader finds both accesses, who made them, and the state of the barriers between."""
    (found,) = [
        f
        for f in simulate(kernels.specialized(3, arrive_early=True), launch(7)).findings
        if f.severity == "error"
    ]
    assert "load warp 0 lane 0, k=3" in found.where
    assert "line 18 `S0[(k % 3)] <~ tma_load" in found.where
    assert "x = load(S0[(k % 3)]" in found.where
    assert "phase 1, pending 0, bytes 1024" in found.witness


def test_an_empty_loop_is_judged_and_says_so() -> None:
    """Nothing moved, but exits, barriers and coverage of an empty output were checked."""
    verdict = simulate(kernels.specialized(3), launch(0))
    assert verdict.status is Status.PASS
    assert verdict.checked > 0
    assert "no memory was accessed" in verdict.reason


def test_elements_that_nobody_writes_are_found() -> None:
    """A loop that stops one tile early."""
    kernel = kernels.direct()
    loop = kernel.body[1]
    assert isinstance(loop, kir.ForLoop)
    short = replace(kernel, body=(kernel.body[0], replace(loop, stop=kernels.TRIPS - 1)))
    verdict = simulate(short, launch(3))
    assert kinds(verdict) == {"coverage"}
    assert "[0, 128]" in verdict.findings[0].witness
    some = replace(launch(3), blocks=(0,))
    assert "coverage not judged" in simulate(short, some).reason


def test_two_ctas_that_write_one_element_race() -> None:
    """The tile index forgets the CTA."""
    kernel = kernels.direct()
    load, add, store = (
        kir.Load(kernels.X, kernels.box(kernels.T0, 0), 4),
        kernels.add(),
        kir.Store(kir.Box(kernels.T1, (0, 0), (4, 64), (kernels.R, kernels.C)), kernels.Y, 4),
    )
    both = replace(kernel, body=(load, add, store))
    verdict = simulate(both, launch(2, grid=2))
    assert kinds(verdict) == {"WAW"}
    assert "CTA 0 and CTA 1" in verdict.findings[0].witness
    twice = replace(kernel, body=(load, add, store, kir.Store(store.dst, kernels.Y, 4)))
    assert kinds(simulate(twice, launch(1))) == {"coverage"}


def test_accesses_outside_or_askew_are_found() -> None:
    """A limit past the extent, a vector wider than the alignment, a row that is not a multiple."""
    wide = kir.Box(kernels.T0, (0, 0), (4, 64), (kernels.R, kernels.C + 4))
    store = kir.Store(kernels.box(kernels.T1, 0), kernels.X, 4)
    kernel = kernels.kernel("wide", [kir.Load(kernels.X, wide, 4), store])
    params = {"R": 4, "C": 60, "pitch": 64}
    assert kinds(simulate(kernel, Launch(1, params))) == {"bounds"}
    narrow = replace(kernels.T0, aligned=2)
    load = kir.Load(kernels.X, kernels.box(narrow, 0), 4)
    kernel = replace(kernels.kernel("askew", [load, store]), tensors=(narrow, kernels.T1))
    assert kinds(simulate(kernel, launch(1))) == {"bounds"}


def test_a_launch_that_breaks_a_precondition_is_not_judged() -> None:
    """The runtime refuses it; no verdict about the kernel follows."""
    verdict = simulate(kernels.direct(), Launch(1, {"R": 4, "C": 64, "pitch": 65}))
    assert verdict.status is Status.UNSUPPORTED
    assert "aligned=4" in verdict.reason


@pytest.mark.parametrize(
    "stmt",
    [
        kir.Copy(
            kir.Slot(kir.Buffer("S", DType.F32, (4, 64), 1, 0), 0),
            kernels.box(kernels.T0),
            kir.Engine.TMA,
        ),
        kir.Compute(kernels.Y, "no_such_op", (kernels.X,)),
    ],
)
def test_what_is_not_modelled_is_named_and_never_passes(stmt: kir.Stmt) -> None:
    """Unsupported is an answer of its own."""
    kernel = kernels.direct()
    verdict = simulate(replace(kernel, body=(*kernel.body, stmt)), launch(1))
    assert verdict.status is Status.UNSUPPORTED
    assert type(stmt).__name__ in verdict.reason


def test_search_says_how_many_schedules_it_tried() -> None:
    """A PASS is worth what was tried."""
    verdict = search(kernels.direct(), launch(2), schedules=12, seed=6)
    assert verdict.status is Status.PASS
    assert verdict.reason.startswith("12 schedules, seeds 6..17")


def test_wrong_arrays_are_refused() -> None:
    """The caller's mistake is not a verdict about the kernel."""
    out = np.zeros((4, 64), np.float32)
    with pytest.raises(ValueError, match=r"need float32\(4, 64\)"):
        simulate(kernels.direct(), launch(1), {"T0": np.zeros((4, 63), np.float32), "T1": out})
    with pytest.raises(ValueError, match="no value for"):
        simulate(kernels.direct(), Launch(1, {"R": 4}))


@pytest.mark.parametrize(("cols", "fine"), [(64, True), (68, True), (66, False), (2, False)])
def test_a_tensor_store_needs_rows_of_whole_chunks(cols: int, fine: bool) -> None:
    """The engine writes 16 bytes at a time: rows that end inside a chunk are overrun."""
    launch = Launch(grid=1, params={"R": 4, "C": cols, "pitch": 128})
    verdict = simulate(kernels.unaligned(kernels.staged(2)), launch)
    assert (verdict.status is Status.PASS) == fine, verdict
