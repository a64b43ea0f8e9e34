"""Shared memory as threads access it: here `ldmatrix` and `stmatrix`, by any lane of a warp."""

from __future__ import annotations

from dataclasses import replace

import kernels
import numpy as np
import pytest
from kernels import NBYTES, T0, T1, WARPS, X, Y, add, box
from matrices import CASES, IMPOSSIBLE, SLOT, kernel, write

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.swizzle import address
from fuser.kernel.validate.legal import validate
from oracles.simulator.simulate import Launch, search, simulate
from oracles.verdict import Status, Verdict


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_instruction_moves_is_refuted(name: str) -> None:
    """In the first run; and validation refuses it."""
    with pytest.raises(ScheduleError):
        validate(IMPOSSIBLE[name], final=True)
    verdict = search(IMPOSSIBLE[name], Launch(1, {}), schedules=1)
    assert verdict.status is Status.FAIL
    assert {f.kind for f in verdict.findings} == {"bounds"}


@pytest.mark.parametrize("name", CASES)
def test_lanes_of_a_matrix_access_are_not_told_apart(name: str) -> None:
    """What one lane did before is ordered by a sync of its warp, or a wider one."""
    expected, subject = CASES[name]
    if not name.startswith("one lane"):
        validate(subject, final=True)
    verdict = search(subject, Launch(1, {}), schedules=6)
    assert {f.kind for f in verdict.findings if f.severity == "error"} == {expected} - {""}
    assert verdict.status is (Status.FAIL if expected else Status.PASS)


def test_a_matrix_access_stays_in_its_cta() -> None:
    """The instructions know no other shared memory."""
    far = kir.Store(kir.Slot(SLOT.buffer, 0, 0), write().src, 2, matrix=True)
    verdict = search(kernel(far), Launch(1, {}), schedules=1)
    assert {f.kind for f in verdict.findings} == {"bounds"}


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("shape", [(128, 64), (64, 32), (256, 8)])
def test_a_matrix_store_may_exchange_rows_and_columns(shape: tuple[int, int], swizzle: int) -> None:
    """Element (i, j) is put where (j, i) of the swizzled slot lies, and is found there again."""
    rows, cols = shape
    slot = kir.Buffer("S", DType.F16, shape[::-1], 1, 0, swizzle)
    bytes_of = kir.Buffer("R", DType.F16, shape[::-1], 1, 0)
    x, y, z = (
        kir.Tensor(name, DType.F16, of, (of[1], 1), 8)
        for name, of in (("X", shape), ("Y", shape[::-1]), ("Z", shape))
    )
    tile = kir.Fragment("x", DType.F16, kir.Layout(shape, 2, 128, kir.Deal.STRIPS))
    back = replace(tile, name="z")
    lines = kir.Fragment("y", DType.F16, kir.Layout(shape[::-1], 8, 128))
    body: list[kir.Stmt] = [
        kir.Load(tile, kir.Box(x, (0, 0), shape, x.extents), 2),
        kir.Store(kir.Slot(slot, 0), tile, 2, matrix=True, transposed=True),
        kir.BlockSync(0, 128),
        kir.Load(lines, kir.Slot(bytes_of, 0), 8),
        kir.Load(back, kir.Slot(slot, 0), 2, matrix=True, transposed=True),
        kir.Store(kir.Box(y, (0, 0), shape[::-1], y.extents), lines, 8),
        kir.Store(kir.Box(z, (0, 0), shape, z.extents), back, 2),
    ]
    made = kir.Kernel(
        "exchanged", (), (x, y, z), (), (slot, bytes_of), (), 128, tuple(body), ("Y", "Z")
    )
    validate(made, final=True)
    given = np.arange(rows * cols, dtype=np.float32).reshape(shape) % 2048
    out = {"X": given, "Y": np.zeros(shape[::-1], np.float32), "Z": np.zeros(shape, np.float32)}
    verdict = simulate(made, Launch(1, {}), out)
    assert verdict.status is Status.PASS, verdict
    np.testing.assert_array_equal(out["Z"], given)
    for j, i in np.ndindex(cols, rows):
        assert out["Y"].flat[address(slot, (j, i)) // 2] == given[i, j]


@pytest.mark.parametrize("transposed", [True, False])
def test_one_tile_of_a_square_is_told_from_its_transpose(transposed: bool) -> None:
    """One slot and one layout, gone to across, and come from along or across."""
    shape = (32, 32)
    x, y = (kir.Tensor(name, DType.F16, shape, (32, 1), 8) for name in "XY")
    tile = kir.Fragment("x", DType.F16, kir.Layout(shape, 2, 64, kir.Deal.STRIPS))
    slot = kir.Slot(kir.Buffer("S", DType.F16, shape, 1, 0, 64), 0)
    body: tuple[kir.Stmt, ...] = (
        kir.Load(tile, kir.Box(x, (0, 0), shape, x.extents), 2),
        kir.Store(slot, tile, 2, matrix=True, transposed=True),
        kir.BlockSync(0, 64),
        kir.Load(tile, slot, 2, matrix=True, transposed=transposed),
        kir.Store(kir.Box(y, (0, 0), shape, y.extents), tile, 2),
    )
    made = kir.Kernel("square", (), (x, y), (), (slot.buffer,), (), 64, body, ("Y",))
    given = np.arange(1024, dtype=np.float32).reshape(shape)
    out = {"X": given, "Y": np.zeros_like(given)}
    assert simulate(made, Launch(1, {}), out).status is Status.PASS
    np.testing.assert_array_equal(out["Y"], given if transposed else given.T)


# --- copies by threads and engines: cp.async, atomics, single tries, bytes expected alone ---------


ALL = 32 * WARPS
ONE = kir.Per.ROLE
TILE = kir.Buffer("S0", DType.F32, (4, 64), 1, 0)
FULL = kir.MBarrier("full", 1, 1)
CP_ASYNC, BULK = kir.AsyncKind.CP_ASYNC, kir.AsyncKind.BULK
OUT = (add(), kir.Store(box(T1, 0), Y, 4))
SHARED = kir.FenceAsyncProxy(kir.Space.SHARED)
LAUNCH = Launch(1, {"R": 4, "C": 64, "pitch": 64})


def kinds(verdict: Verdict, severity: str = "error") -> set[str]:
    """Return the kinds of its findings."""
    return {f.kind for f in verdict.findings if f.severity == severity}


def judge(
    body: list[kir.Stmt], *barriers: kir.MBarrier, policy: str = "default", threads: int = ALL
) -> Verdict:
    """Run statements under every strategy."""
    made = kernels.kernel("small", body, buffers=(TILE,), barriers=barriers, threads=threads)
    return search(made, LAUNCH, schedules=6, policy=policy)


def init(*barriers: kir.MBarrier) -> list[kir.Stmt]:
    """Begin the life of barriers."""
    one = kir.Elect(ONE, tuple(kir.MBarrierInit(b) for b in barriers))
    return [one, kir.BlockSync(0, ALL)]


def fetch() -> list[kir.Stmt]:
    """Copy the tile by cp.async."""
    return [kir.CpAsync(kir.Slot(TILE, 0), box(T0, 0), kernels.LAYOUT, 4)]


def send() -> list[kir.Stmt]:
    """Send the tile away by TMA; the values are those of T0, not their double."""
    store = kir.TmaStore(box(T1, 0), kir.Slot(TILE, 0))
    return [kir.Elect(ONE, (store, kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0, True)))]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("order", "kind"),
    [
        ("commit await fence sync", ""),
        ("commit fence await sync", "proxy"),
        ("commit await sync", "proxy"),
        ("commit await sync fence", "disputed"),
        ("commit fence sync", "RAW"),
        ("await fence sync", "RAW"),
    ],
)
def test_cp_async_data_crosses_the_proxy_after_its_await(
    order: str, kind: str, strict: bool
) -> None:
    """Fenced by the writer after its await; before it, a fence covers nothing."""
    made: dict[str, kir.Stmt] = {
        "commit": kir.AsyncCommit(CP_ASYNC),
        "await": kir.AsyncAwait(CP_ASYNC, 0),
        "fence": SHARED,
        "sync": kir.BlockSync(0, ALL),
    }
    body = [*fetch(), *(made[name] for name in order.split()), *send()]
    verdict = judge(body, policy="strict" if strict else "default")
    if kind == "disputed":
        assert kinds(verdict, "error" if strict else "warning") == {"proxy"}
    else:
        assert kinds(verdict) == ({kind} if kind else set()), verdict


@pytest.mark.parametrize("noinc", [True, False])
@pytest.mark.parametrize("count", [ALL, 1])
@pytest.mark.parametrize("fence", [True, False])
def test_copies_that_arrive_by_themselves(noinc: bool, count: int, fence: bool) -> None:
    """Only the consumer can fence; without `noinc` the arrivals bring their own count."""
    ring = kir.MBarrier("ring", count, 1)
    body: list[kir.Stmt] = [*init(ring), *fetch(), kir.CpAsyncMBarrierArrive(ring, 0, noinc)]
    if not noinc:
        body += [kir.BlockSync(0, ALL), kir.Elect(ONE, (kir.MBarrierArrive(ring, 0),))]
    body += [kir.MBarrierWaitParity(ring, 0, 0), *([SHARED] if fence else []), *send()]
    verdict = judge(body, ring, policy="strict")
    if (count == ALL) != noinc:
        assert kinds(verdict) & {"arrivals", "deadlock"}, verdict
    else:
        assert kinds(verdict) == (set() if fence else {"proxy"}), verdict


def test_copies_that_arrive_publish_no_ordinary_store() -> None:
    """A store before the arrival is not in it."""
    ring = kir.MBarrier("ring", ALL, 1)
    other = kir.Fragment("z", DType.F32, kir.Layout((4, 64), 2, ALL))
    body: list[kir.Stmt] = [
        *init(ring),
        kir.Load(X, box(T0, 0), 4),
        kir.Store(kir.Slot(TILE, 0), X, 4),
        kir.CpAsyncMBarrierArrive(ring, 0, noinc=True),
        kir.MBarrierWaitParity(ring, 0, 0),
        kir.Load(other, kir.Slot(TILE, 0), 2),
        kir.Store(box(T1, 0), other, 2),
    ]
    assert kinds(judge(body, ring)) == {"RAW"}


@pytest.mark.parametrize("sync", [True, False])
def test_an_await_covers_the_copies_of_its_own_lane(sync: bool) -> None:
    """One warp: each lane reads what other lanes copied."""
    one, other = kir.Layout((4, 64), 4, 32), kir.Layout((4, 64), 2, 32)
    z = kir.Fragment("z", DType.F32, other)
    body: list[kir.Stmt] = [
        kir.CpAsync(kir.Slot(TILE, 0), box(T0, 0), one, 4),
        kir.AsyncCommit(CP_ASYNC),
        kir.AsyncAwait(CP_ASYNC, 0),
        *([kir.WarpSync()] if sync else []),
        kir.Load(z, kir.Slot(TILE, 0), 2),
        kir.Store(box(T1, 0), z, 2),
    ]
    assert kinds(judge(body, threads=32)) == (set() if sync else {"RAW"})


def test_one_try_may_give_up() -> None:
    """A wait without retry orders nothing."""
    load = kir.Elect(
        ONE,
        (
            kir.MBarrierArriveExpectTx(FULL, 0, NBYTES),
            kir.TmaLoad(kir.Slot(TILE, 0), box(T0, 0), FULL, 0),
        ),
    )
    for retry in (True, False):
        wait = kir.MBarrierWaitParity(FULL, 0, 0, retry=retry)
        body: list[kir.Stmt] = [*init(FULL), load, wait, kir.Load(X, kir.Slot(TILE, 0), 4), *OUT]
        found = kinds(judge(body, FULL))
        assert bool(found) != retry
        assert found <= {"RAW"}


@pytest.mark.parametrize("where", ["before", "after", "unordered"])
def test_bytes_are_expected_before_the_last_arrival(where: str) -> None:
    """Expected after it, the phase may end without them."""
    expect = kir.MBarrierExpectTx(FULL, 0, NBYTES)
    load = kir.TmaLoad(kir.Slot(TILE, 0), box(T0, 0), FULL, 0)
    arrive = kir.MBarrierArrive(FULL, 0)
    one: dict[str, list[kir.Stmt]] = {
        "before": [kir.Elect(ONE, (expect, load, arrive))],
        "after": [kir.Elect(ONE, (arrive, expect, load))],
        "unordered": [
            kir.Role("a", 0, 1, (kir.Elect(ONE, (expect, load)),)),
            kir.Role("b", 1, 1, (kir.Elect(ONE, (arrive,)),)),
        ],
    }
    wait = kir.MBarrierWaitParity(FULL, 0, 0)
    body = [*init(FULL), *one[where], wait, kir.Load(X, kir.Slot(TILE, 0), 4), *OUT]
    found = kinds(judge(body, FULL))
    assert bool(found) == (where != "before"), found
    assert found <= {"bytes", "RAW", "arrivals"}


@pytest.mark.parametrize("kind", ["unordered", "bitwise", "mixed"])
def test_atomics_are_atomic_among_themselves(kind: str) -> None:
    """Two CTAs add to one tile: legal where bits may vary; a race with an ordinary store."""
    whole = kir.Box(T1, (0, 0), (4, 64), (kernels.R, kernels.C))
    mine = kir.Box(T0, (0, 0), (4, 64), (kernels.R, kernels.C))
    write: list[kir.Stmt] = [kir.AtomicAdd(whole, X)]
    if kind == "mixed":
        write = [kir.IfThenElse(kir.BLOCK, tuple(write), (kir.Store(whole, X, 4),))]
    made = kernels.kernel("atomics", [kir.Load(X, mine, 4), *write])
    made = replace(made, determinism="bitwise" if kind == "bitwise" else "unordered")
    x = np.arange(256, dtype=np.float32).reshape(4, 64)
    out = np.zeros_like(x)
    verdict = simulate(made, replace(LAUNCH, grid=2), {"T0": x, "T1": out})
    if kind == "unordered":
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(out, 2 * x)
    else:
        assert kinds(verdict) == ({"determinism"} if kind == "bitwise" else {"WAW"})


@pytest.mark.parametrize("end", ["invalidated", "unordered", "live"])
def test_a_barrier_may_share_bytes_with_a_tile_of_another_time(end: str) -> None:
    """The barrier ends and all meet before its bytes hold a tile."""
    ring = kir.MBarrier("ring", ALL, 1, offset=512)
    late = kir.Elect(ONE, (kir.MBarrierInvalidate(ring),))
    over: dict[str, list[kir.Stmt]] = {
        "invalidated": [kir.BlockSync(0, ALL), late, kir.BlockSync(0, ALL)],
        "unordered": [kir.BlockSync(0, ALL), late],
        "live": [kir.BlockSync(0, ALL)],
    }
    scattered = kir.Fragment("x", DType.F32, kir.Layout((4, 64), 2, ALL))
    body: list[kir.Stmt] = [
        *init(ring),
        kir.MBarrierArrive(ring, 0),
        kir.MBarrierWaitParity(ring, 0, 0),
        kir.Load(scattered, box(T0, 0), 2),
        *over[end],
        kir.Role("last", 1, 3, (kir.BlockSync(1, 96),)),
        kir.Store(kir.Slot(TILE, 0), scattered, 2),
        kir.Store(box(T1, 0), scattered, 2),
    ]
    found = kinds(judge(body, ring))
    assert bool(found) == (end != "invalidated"), found
    assert found <= {"init", "WAW", "WAR"}
