"""The twelve recipes of the cookbook: right values, and each of their syncs is needed."""

from __future__ import annotations

import kernels
import numpy as np
import pytest
from kernels import T0, T1, WARPS, X, Y, add, box
from litmus.distributed import shared

from fuser.cookbook.recipes import RECIPES
from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuzz.mutation.operators import drop_each_sync
from oracles.simulator.memory.ops import Array, round_to
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import KINDS, Status, Verdict

STAGES = {"wgmma_ring": 4, "store_ring": 2, "split_k": 2, "split_k_tma": 2, "cluster_multicast": 2}
"""Slots of a ring, where they are not 3."""
SUMS = ("tma_ring", "specialized_ring", "store_ring")


def launch(name: str, m: int, n: int, k: int, splits: int = 3) -> Launch:
    """Return a launch of a matmul on one CTA per tile, or two for all."""
    tiles = -(-m // 64) * -(-n // 8)
    if name.startswith("split"):
        return Launch(tiles * splits, {"M": m, "N": n, "K": k, "splits": splits})
    if name == "cluster_multicast":
        tiles = 2 * -(-m // 128) * -(-n // 8)
    return Launch(2 if name in ("persistent", "ping_pong") else tiles, {"M": m, "N": n, "K": k})


def matmul(name: str, where: Launch) -> tuple[dict[str, Array], Array]:
    """Return tensors of small integers, and the product."""
    generator = np.random.default_rng(1)
    m, n, k = (where.params[x] for x in "MNK")
    a, b, b2 = (
        round_to(DType.BF16, generator.integers(-3, 4, (rows, k)).astype(np.float32))
        for rows in (m, n, n)
    )
    tensors = {"A": a, "B": b, "D": np.full((m, n), np.nan, np.float32)}
    if name != "double_wgmma":
        return tensors, a @ b.T
    return {**tensors, "B2": b2}, (a @ b.T) * (a @ b2.T)


@pytest.mark.parametrize(
    ("name", "k"),
    [
        (name, k)
        for name in RECIPES
        for k in (0, 8, 40, 112)
        if name not in SUMS and (k or name != "ping_pong")  # whose empty tiles stand below
    ],
)
def test_matmuls_are_right(name: str, k: int) -> None:
    """Every trip count from none to more than a turn of the ring, with a tail."""
    where = launch(name, 128, 8, k)
    for seed in range(k % 5, k % 5 + 2):
        tensors, expected = matmul(name, where)
        verdict = simulate(RECIPES[name](), where, tensors, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(tensors["D"], expected)


@pytest.mark.parametrize("joined", [True, False])
def test_an_elected_arrival_releases_for_its_lane_only(joined: bool) -> None:
    """With no step along K nothing joins the lanes of a warp between a wait and the arrival.

    Another lane may then find the barrier two phases on, and waits forever.
    """
    kernel = RECIPES["ping_pong"]().rewrite(lambda s: [] if isinstance(s, kir.WarpSync) else None)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Elect(_, (kir.MBarrierArrive(barrier),)) if barrier.name == "order":
                return [kir.WarpSync(), stmt] if joined else None
            case _:
                return None

    verdict = search(kernel.rewrite(rule), Launch(1, {"M": 64, "N": 40, "K": 0}), schedules=6)
    assert (verdict.status is Status.PASS) == joined, verdict
    assert joined or {f.kind for f in verdict.findings} == {"parity"}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize(("grid", "rows", "columns"), [(1, 4, 448), (2, 7, 100), (3, 0, 64)])
def test_sums_are_right(name: str, grid: int, rows: int, columns: int) -> None:
    """Whole tiles and tails, over several CTAs."""
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    for seed in range(3):
        y = np.full_like(x, np.nan)
        where = Launch(grid, {"R": rows, "C": columns})
        verdict = simulate(RECIPES[name](), where, {"X": x, "Y": y}, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(y, x + x)


def missed(name: str, kernel: kir.Kernel) -> bool:
    """Whether a kernel passes a few schedules of the trip counts that tell.

    Of persistent kernels these are many steps a tile, and none: then no wgmma joins a warp.
    """
    stages = STAGES.get(name, 3)
    for trips in (2 * stages + 1, 1):
        if name in SUMS:
            where = Launch(1, {"R": 4, "C": 64 * trips})
        elif name in ("persistent", "ping_pong"):
            where = Launch(1, {"M": 64, "N": 40, "K": 16 * trips * (trips > 1)})
        else:
            m = 128 if name == "cluster_multicast" else 64
            where = launch(name, m, 8, 16 * trips * (3 if name.startswith("split") else 1))
        verdict: Verdict = search(kernel, where, schedules=3)
        if verdict.status is Status.FAIL:
            assert {f.kind for f in verdict.findings} <= KINDS.keys()
            return False
    return True


@pytest.mark.parametrize("name", RECIPES)
def test_each_sync_of_a_recipe_is_needed(name: str) -> None:
    """Of one CTA, the fence of the inits is free; so is a collection of no writes at all.

    The last turn of `split_k_tma` only reads what it joins before it gives the semaphore back.
    Whether one thread of a warpgroup may arrive for its wgmmas without a block sync is disputed;
    that ordinary reads are fenced before a refill only the strict policy demands.
    """
    kernel = RECIPES[name]()
    alive = [m.change for m in drop_each_sync(kernel) if missed(name, m.kernel)]
    free = {
        "tma_ring": ["fence_mbarrier_init()", "fence_async_proxy(shared)"],
        "specialized_ring": ["fence_mbarrier_init()", "fence_async_proxy(shared)"],
        "store_ring": [],
        "cp_async_ring": [],
        "cluster_multicast": ["block_sync(1, 128)"],
        "split_k_tma": ["fence_mbarrier_init()", "block_sync(0, 128)"],
    }
    assert [change.split(": ")[1] for change in alive] == free.get(name, ["fence_mbarrier_init()"])


# --- what is left when no thread can move any more ------------------------------------------------


LAUNCH = Launch(1, {"R": 4, "C": 64, "pitch": 64})


@pytest.mark.parametrize(("arrivals", "warned"), [(1, {"arrivals"}), (2, set())])
def test_a_phase_that_is_left_unfinished_is_a_warning(arrivals: int, warned: set[str]) -> None:
    """Nobody waits for it any more, so nobody is confused; but it may be a count gone wrong."""
    bar = kir.MBarrier("bar", 2, 1)
    arrive = kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(bar, 0),))
    body: list[kir.Stmt] = [
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar),)),
        kir.BlockSync(0, 32 * WARPS),
        *[arrive] * arrivals,
        kir.Load(X, box(T0, 0), 4),
        add(),
        kir.Store(box(T1, 0), Y, 4),
    ]
    verdict = search(kernels.kernel("small", body, barriers=(bar,)), LAUNCH, schedules=6)
    assert verdict.status is Status.PASS
    assert {finding.kind for finding in verdict.findings} == warned


@pytest.mark.parametrize(
    ("leave", "kinds"),
    [("relaxed2", {"exit"}), ("fence_cta relaxed2", {"exit"}), ("fence relaxed2", set())],
)
def test_a_peers_tile_is_read_before_the_peer_is_let_go(leave: str, kinds: set[str]) -> None:
    """A relaxed arrival says that a thread came by, not that its read of the peer is over."""
    verdict = search(shared(f"put arrive wait get {leave} wait2 out"), Launch(2, {}), schedules=6)
    assert {finding.kind for finding in verdict.findings} == kinds
