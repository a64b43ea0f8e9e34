"""Tensor cores: values, fences, groups, and registers that are in use until they are awaited."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from fuser.cookbook.recipes import double_wgmma, wgmma_ring
from fuser.dtype import DType
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status, Verdict

M, N, K = Var("M"), Var("N"), Var("K")
WGMMA = kir.AsyncKind.WGMMA
T = TypeVar("T")
RNG = np.random.default_rng(0)


def kinds(verdict: Verdict, severity: str = "error") -> set[str]:
    """Return the kinds of its findings."""
    return {f.kind for f in verdict.findings if f.severity == severity}


def direct(
    rows: int = 64,
    *,
    registers: bool = False,
    transposed: bool = False,
    a_transposed: bool = False,
    batch: bool = False,
    proxy_fence: bool = True,
    fence: bool = True,
    late_write: bool = False,
    sync: bool = True,
    roles: tuple[tuple[int, int], ...] | None = None,
    elect: bool = False,
) -> kir.Kernel:
    """D = A @ B^T for one tile of `rows` x 8 x 16, staged through shared memory by threads.

    With `registers`, A is a fragment; with `late_write` it is written again before the await; with
    `batch` everything has an axis of extent 1 in front.
    """
    threads = 2 * rows
    warps = threads // 32
    strips = kir.Deal.STRIPS
    shape_a = batched(batch, *((16, rows) if a_transposed else (rows, 16)))
    shape_b = batched(batch, *((16, 8) if transposed else (8, 16)))
    shape_d = batched(batch, rows, 8)
    acc = kir.Fragment("acc", DType.F32, kir.Layout(shape_d, 2, threads, strips))
    held = kir.Layout(shape_a, 2, threads) if a_transposed else None
    ra = kir.Fragment("ra", DType.BF16, held or kir.Layout(shape_a, 2, threads, strips))
    rb = kir.Fragment("rb", DType.BF16, kir.Layout(shape_b, 1, 128))
    a = dense("A", DType.BF16, *batched(batch, *((K, M) if a_transposed else (M, K))))
    b = dense("B", DType.BF16, *batched(batch, *((K, N) if transposed else (N, K))))
    d = dense("D", DType.F32, *batched(batch, M, N))
    origin = (0,) * len(shape_d)
    sa = kir.Buffer("SA", DType.BF16, shape_a, 1, 0)
    sb = kir.Buffer("SB", DType.BF16, shape_b, 1, sa.end)
    whole_b = kir.Box(b, origin, shape_b, b.extents)
    load_a = kir.Load(ra, kir.Box(a, origin, shape_a, a.extents), 2)
    stage: list[kir.Stmt] = [load_a, kir.Load(rb, whole_b, 1), kir.Store(kir.Slot(sb, 0), rb, 1)]
    if not registers:
        stage.append(kir.Store(kir.Slot(sa, 0), ra, 2))
    stage += [kir.FenceAsyncProxy(kir.Space.SHARED)] * proxy_fence
    stage += [kir.BlockSync(0, threads)] * sync
    multiply: list[kir.Stmt] = [kir.WgmmaFence()] * fence
    left: kir.Slot | kir.Fragment = ra if registers else kir.Slot(sa, 0)
    multiply.append(kir.Wgmma(acc, left, kir.Slot(sb, 0), 0, transposed, a_transposed))
    multiply.append(kir.AsyncCommit(WGMMA))
    if late_write:
        multiply.append(kir.Compute(ra, "cast", (kir.Literal(0.0, DType.F32),)))
    multiply.append(kir.AsyncAwait(WGMMA, 0))
    store = kir.Store(kir.Box(d, origin, shape_d, d.extents), acc, 2)
    body: tuple[kir.Stmt, ...] = (*multiply, store)
    if elect:
        body = (kir.Elect(kir.Per.WARP, body),)
    groups = ((0, warps),) if roles is None else roles
    parts = [kir.Role(f"r{i}", first, n, body) for i, (first, n) in enumerate(groups)]
    return kir.Kernel(
        "direct", (M, N, K), (a, b, d), (), (sa, sb), (), threads, (*stage, *parts), ("D",)
    )


def batched(batch: bool, *shape: T) -> tuple[T | int, ...]:
    """Put an axis of extent 1 in front, where there is a batch."""
    return (1, *shape) if batch else shape


def dense(name: str, dtype: DType, *extents: Expr) -> kir.Tensor:
    """Return a matrix, or a batch of one."""
    ones = (0,) * (len(extents) - 2)
    return kir.Tensor(name, dtype, extents, (*ones, extents[-1], 1), 4)


def judge(kernel: kir.Kernel, rows: int = 64, *, policy: str = "default") -> Verdict:
    """Run a kernel on one tile and compare its values where it passes."""
    (wgmma,) = {s for s in kernel.walk() if isinstance(s, kir.Wgmma)}
    a, b = (RNG.integers(-4, 5, (n, 16)).astype(np.float32) for n in (rows, 8))
    left, right = a.T if wgmma.a_transposed else a, b.T if wgmma.b_transposed else b
    ones = (1,) * (len(wgmma.acc.layout.shape) - 2)
    verdict = None
    for seed in range(6):
        d = np.full((rows, 8), np.nan, np.float32)
        tensors = {
            n: x.reshape(*ones, *x.shape) for n, x in zip("ABD", (left, right, d), strict=True)
        }
        tensors = {n: np.ascontiguousarray(x) for n, x in tensors.items()}
        launch = Launch(1, {"M": rows, "N": 8, "K": 16})
        verdict = simulate(kernel, launch, tensors, seed=seed, policy=policy)
        if verdict.status is not Status.PASS:
            return verdict
        np.testing.assert_array_equal(d, a @ b.T)
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("a", ["rows", "columns", "registers"])
@pytest.mark.parametrize("batch", [True, False])
def test_products_are_right(rows: int, a: str, transposed: bool, batch: bool) -> None:
    """From shared memory or registers, operands in either order, one or two warpgroups."""
    kernel = direct(
        rows,
        registers=a == "registers",
        a_transposed=a == "columns",
        transposed=transposed,
        batch=batch,
    )
    validate(kernel, final=True)
    verdict = judge(kernel, rows)
    assert verdict.status is Status.PASS, verdict


def test_each_step_before_a_wgmma_is_needed() -> None:
    """The fence of the proxy, the block sync, the fence of the registers."""
    assert kinds(judge(direct(proxy_fence=False))) == {"proxy"}
    assert kinds(judge(direct(sync=False))) == {"RAW"}
    assert kinds(judge(direct(fence=False))) == {"fence"}
    assert kinds(judge(direct(registers=True, fence=False))) == {"fence"}


def test_operands_in_registers_are_in_use_until_the_await() -> None:
    """Writing A again under a wgmma is a race of registers."""
    assert kinds(judge(direct(registers=True, late_write=True))) == {"WAR"}
    assert not kinds(judge(direct(late_write=True)))


@pytest.mark.parametrize(
    "kernel",
    [direct(roles=((0, 2), (2, 2))), direct(elect=True), direct(128, roles=((0, 6), (6, 2)))],
)
def test_wgmma_is_for_whole_warpgroups(kernel: kir.Kernel) -> None:
    """Half a warpgroup, single lanes, one and a half warpgroups."""
    rows = kernel.threads // 2
    assert kinds(judge(kernel, rows)) == {"collective"}


@pytest.mark.parametrize("lane", [True, False])
def test_groups_are_awaited_by_whole_warps(lane: bool) -> None:
    """A warp that has no wgmma in flight may commit and await nothing; one lane may not."""
    nothing: tuple[kir.Stmt, ...] = (kir.AsyncCommit(WGMMA), kir.AsyncAwait(WGMMA, 0))
    body = (kir.Elect(kir.Per.ROLE, nothing),) if lane else nothing
    kernel = direct()
    more = replace(kernel, body=(*kernel.body, kir.Role("one", 1, 1, body)))
    assert kinds(judge(more)) == ({"collective"} if lane else set())


@pytest.mark.parametrize("policy", ["default", "strict"])
def test_one_arrival_for_four_warps_is_disputed(policy: str) -> None:
    """Shared memory is free when every warp has waited, unless one may arrive for all."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Elect(kir.Per.WARP):
                return [replace(stmt, per=kir.Per.ROLE)]
            case _:
                return None

    kernel = double_wgmma()
    full, empty = kernel.barriers
    single = replace(empty, arrivals=1)

    def swap(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierInit(m) | kir.MBarrierArrive(m) | kir.MBarrierWaitParity(m):
                return [replace(stmt, barrier=single)] if m == empty else None
            case _:
                return None

    kernel = replace(kernel.rewrite(rule).rewrite(swap), barriers=(full, single))
    launch = Launch(1, {"M": 64, "N": 8, "K": 16 * 7})
    synced = kernel.rewrite(
        lambda s: [s, kir.BlockSync(1, 128)] if s == kir.AsyncAwait(WGMMA, 0) else None
    )
    assert not kinds(search(synced, launch, schedules=6, policy=policy))
    bare = search(kernel, launch, schedules=6, policy=policy)
    if policy == "strict":
        assert kinds(bare) <= {"WAR", "parity"}
        assert kinds(bare)
    else:
        assert bare.status is Status.PASS, bare
        assert kinds(bare, "warning") == {"WAR"}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_groups_in_flight_keep_their_slots(depth: int) -> None:
    """Waiting for one group less than the release claims is a race with the refill."""
    launch = Launch(1, {"M": 64, "N": 8, "K": 16 * 9})
    assert not kinds(search(wgmma_ring(4, depth), launch, schedules=6))
    shallow = wgmma_ring(4, depth).rewrite(
        lambda s: (
            [replace(s, keep=s.keep + 1)]
            if isinstance(s, kir.AsyncAwait) and s.keep == depth
            else None
        )
    )
    assert kinds(search(shallow, launch, schedules=6)) == {"WAR"}
