"""The model machine on kernels of a few statements: one rule each."""

from __future__ import annotations

from dataclasses import replace

import kernels
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import NBYTES, T0, T1, WARPS, X, Y, add, box

from fuser.dtype import DType
from fuser.expr import Kind, Op, Var
from fuser.kernel import ir as kir
from oracles.simulator.simulate import Launch, search
from oracles.simulator.unroll import BadExpression, compile_expr
from oracles.verdict import Status, Verdict

TILE = kir.Buffer("S0", DType.F32, (4, 64), 1, 0)
FULL = kir.MBarrier("full", 1, 1)
ALL = 32 * WARPS
ONE = kir.Per.ROLE
OUT = (add(), kir.Store(box(T1, 0), Y, 4))


def judge(
    body: list[kir.Stmt],
    *,
    buffers: tuple[kir.Buffer, ...] = (TILE,),
    barriers: tuple[kir.MBarrier, ...] = (FULL,),
    threads: int = ALL,
    tiles: int = 1,
) -> Verdict:
    """Run statements under every strategy, on a tensor of one row of tiles."""
    made = kernels.kernel("small", body, buffers=buffers, barriers=barriers, threads=threads)
    params = {"R": 4, "C": 64 * tiles, "pitch": 64 * tiles}
    return search(made, Launch(1, params), schedules=6)


def kinds(verdict: Verdict) -> set[str]:
    """Return the kinds of its errors; empty exactly where it passes."""
    errors = {f.kind for f in verdict.findings if f.severity == "error"}
    assert bool(errors) == (verdict.status is Status.FAIL), verdict
    return errors


def init(*barriers: kir.MBarrier, sync: bool = True) -> list[kir.Stmt]:
    """Begin the life of barriers."""
    one = kir.Elect(ONE, tuple(kir.MBarrierInit(b) for b in barriers))
    return [one, kir.BlockSync(0, ALL)] if sync else [one]


def fetch(buffer: kir.Buffer = TILE, barrier: kir.MBarrier = FULL, k: int = 0) -> kir.Stmt:
    """Load tile k by one thread."""
    return kir.Elect(
        ONE,
        (
            kir.MBarrierArriveExpectTx(barrier, 0, NBYTES),
            kir.TmaLoad(kir.Slot(buffer, 0), box(T0, k), barrier, 0),
        ),
    )


def wait(parity: int = 0, barrier: kir.MBarrier = FULL) -> kir.Stmt:
    """Wait by every thread."""
    return kir.MBarrierWaitParity(barrier, 0, parity)


def read(buffer: kir.Buffer = TILE) -> list[kir.Stmt]:
    """Use a tile."""
    return [kir.Load(X, kir.Slot(buffer, 0), 4), *(replace(s) for s in OUT)]


def sync(number: int = 0, threads: int = ALL) -> kir.Stmt:
    """Return a new BlockSync."""
    return kir.BlockSync(number, threads)


def roles(*bodies: list[kir.Stmt]) -> list[kir.Stmt]:
    """Give each body two warps."""
    return [kir.Role(f"r{i}", 2 * i, 2, tuple(body)) for i, body in enumerate(bodies)]


def test_a_load_waited_for_by_all_is_right() -> None:
    """The base of the tests below."""
    assert not kinds(judge([*init(FULL), fetch(), wait(), *read()]))


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("offset", [512, 1024])
def test_buffers_that_share_bytes_conflict(offset: int, order: bool) -> None:
    """S1 begins inside S0, or after it; a load into it must wait for the readers of S0."""
    second = kir.MBarrier("second", 1, 1)
    other = kir.Buffer("S1", DType.F32, (4, 64), 1, offset)
    between: list[kir.Stmt] = [sync()] if order else []
    body: list[kir.Stmt] = [
        *init(FULL, second),
        fetch(),
        wait(),
        kir.Load(X, kir.Slot(TILE, 0), 4),
        *between,
    ]
    body += [fetch(other, second), wait(0, second), *read(other)]
    verdict = judge(body, buffers=(TILE, other), barriers=(FULL, second))
    assert kinds(verdict) == (set() if order or offset == 1024 else {"WAR"}), verdict


@pytest.mark.parametrize("waited", [True, False])
def test_a_tile_is_read_whoever_filled_it(waited: bool) -> None:
    """Half of S0 is filled again as S1: a wait for each copy covers all that is read."""
    second = kir.MBarrier("second", 1, 1)
    other = kir.Buffer("S1", DType.F32, (4, 64), 1, 512)
    body: list[kir.Stmt] = [
        *init(FULL, second),
        fetch(),
        wait(),
        fetch(other, second),
        *([wait(0, second)] if waited else []),
        *read(),
        *([] if waited else [wait(0, second)]),
    ]
    verdict = judge(body, buffers=(TILE, other), barriers=(FULL, second))
    assert bool(kinds(verdict) & {"RAW", "WAR"}) is not waited, verdict


def test_waiting_on_the_wrong_barrier_is_a_race() -> None:
    """Two loads, two barriers; the reader waits for the other one."""
    second = kir.MBarrier("second", 1, 1)
    other = kir.Buffer("S1", DType.F32, (4, 64), 1, 1024)
    for which, safe in ((second, True), (FULL, False)):
        body: list[kir.Stmt] = [
            *init(FULL, second),
            fetch(),
            fetch(other, second),
            wait(0, which),
            *read(other),
        ]
        body += [wait(0, FULL if safe else second)]
        verdict = judge(body, buffers=(TILE, other), barriers=(FULL, second))
        assert kinds(verdict) <= {"RAW"}
        assert (not kinds(verdict)) == safe, verdict


def test_two_loads_may_share_one_barrier() -> None:
    """One expect with the sum of the bytes; with less the phase ends too early."""
    other = kir.Buffer("S1", DType.F32, (4, 64), 1, 1024)
    for nbytes, safe in ((2 * NBYTES, True), (NBYTES, False)):
        both = kir.Elect(
            ONE,
            (
                kir.TmaLoad(kir.Slot(other, 0), box(T0, 0), FULL, 0),
                kir.MBarrierArriveExpectTx(FULL, 0, nbytes),
                kir.TmaLoad(kir.Slot(TILE, 0), box(T0, 0), FULL, 0),
            ),
        )
        verdict = judge([*init(FULL), both, wait(), *read(other)], buffers=(TILE, other))
        assert (not kinds(verdict)) == safe, verdict
        assert kinds(verdict) <= {"bytes", "RAW"}


def test_life_of_a_barrier() -> None:
    """Twice initialised, never initialised, used after its end, begun again after its end."""
    end = kir.Elect(ONE, (kir.MBarrierInvalidate(FULL),))
    whole = [*init(FULL), fetch(), wait(), *read()]
    assert kinds(judge([*init(FULL, sync=False), *whole])) == {"init"}
    assert kinds(judge([fetch(), wait(), *read()])) == {"init"}
    assert kinds(judge([*whole, end])) == {"init"}
    ended: list[kir.Stmt] = [*whole, sync(), end]
    assert not kinds(judge(ended))
    assert kinds(judge([*ended, sync(), wait(1)])) == {"init"}
    again = [*ended, *init(FULL), fetch(k=1), wait(), kir.Load(X, kir.Slot(TILE, 0), 4)]
    again += [add(), kir.Store(box(T1, 1), Y, 4)]
    assert not kinds(judge(again, tiles=2))


def test_arrivals_of_every_thread_are_counted() -> None:
    """All 128 threads arrive; one more or one fewer expected is wrong."""
    for count, safe in ((ALL, True), (ALL - 1, False), (ALL + 1, False)):
        ring = kir.MBarrier("ring", count, 1)
        body: list[kir.Stmt] = [
            *init(ring),
            kir.Load(X, box(T0, 0), 4),
            kir.Store(kir.Slot(TILE, 0), X, 4),
            kir.MBarrierArrive(ring, 0),
            wait(0, ring),
            *read(),
        ]
        verdict = judge(body, barriers=(ring,))
        assert (not kinds(verdict)) == safe, verdict
        assert kinds(verdict) <= {"arrivals", "deadlock"}


def test_a_barrier_that_may_run_ahead_of_a_waiter_is_wrong() -> None:
    """Thread 0 runs phases 0 and 1 though warp 3 may still stand in its wait for phase 0."""
    steps: list[kir.Stmt] = [kir.Elect(ONE, (kir.MBarrierArrive(FULL, 0),)) for _ in range(2)]
    late: list[kir.Stmt] = [kir.Load(X, box(T0, 0), 4), replace(OUT[0]), replace(OUT[1])]
    safe = judge([*init(FULL), steps[0], wait(), sync(), steps[1], wait(1), *late])
    assert not kinds(safe)
    lapped = judge([*init(FULL), steps[0], wait(), steps[1], *late])
    assert kinds(lapped) == {"parity"}


def test_phases_that_a_waiter_skips_are_a_warning() -> None:
    """The block syncs keep it right; the waiter never looks at phase 1."""
    steps: list[kir.Stmt] = [kir.Elect(ONE, (kir.MBarrierArrive(FULL, 0),)) for _ in range(3)]
    body: list[kir.Stmt] = [*init(FULL), steps[0], wait(), sync()]
    first = kir.Elect(ONE, (kir.MBarrierArrive(FULL, 0), kir.MBarrierWaitParity(FULL, 0, 1)))
    body += [first, sync(), steps[2], wait(), kir.Load(X, box(T0, 0), 4), *OUT]
    verdict = judge(body)
    assert not kinds(verdict)
    assert {f.kind for f in verdict.findings} == {"parity"}


def test_two_roles_that_wait_for_each_other_stand_still() -> None:
    """The witness says who waits for what."""
    a, b = kir.MBarrier("a", 64, 1), kir.MBarrier("b", 64, 1)
    body = init(a, b)
    first: list[kir.Stmt] = [wait(0, a), kir.MBarrierArrive(b, 0)]
    second: list[kir.Stmt] = [wait(0, b), kir.MBarrierArrive(a, 0)]
    verdict = judge([*body, *roles(first, second)], barriers=(a, b))
    assert kinds(verdict) == {"deadlock"}
    witness = str(verdict)
    assert "r0 warp 0 lane 0" in witness
    assert "waits for phase 0 of a[0]" in witness


def test_block_syncs_count_threads() -> None:
    """A full barrier inside one role, a count that two turns share, two different counts."""
    for threads, safe in ((64, True), (128, False), (32, False)):
        body = roles([sync(1, threads)], [])
        whole = [*body, kir.Load(X, box(T0, 0), 4), *OUT]
        verdict = judge(whole)
        assert (not kinds(verdict)) == safe, (threads, verdict)
        assert kinds(verdict) <= {"deadlock", "collective"}
    unequal = [*roles([sync(1, 64)], [sync(1, 128)]), kir.Load(X, box(T0, 0), 4), *OUT]
    assert kinds(judge(unequal)) <= {"collective", "deadlock"}
    assert kinds(judge(unequal))


@pytest.mark.parametrize("back", [True, False])
def test_named_arrive_hands_over(back: bool) -> None:
    """A role fills a tile and goes on, the other reads it; the way back is needed too."""
    half = kir.Layout((4, 64), 4, 64)
    x = kir.Fragment("x", DType.F32, half)
    fill: list[kir.Stmt] = [kir.BlockSync(2, 128)] if back else []
    fill += [
        kir.Load(x, box(T0), 4), kir.Store(kir.Slot(TILE, 0), x, 4), kir.NamedArrive(1, 128)
    ]  # fmt: skip
    use: list[kir.Stmt] = [kir.NamedArrive(2, 128)] if back else []
    use += [kir.BlockSync(1, 128), kir.Load(x, kir.Slot(TILE, 0), 4), kir.Store(box(T1), x, 4)]
    body: list[kir.Stmt] = [kernels.trips()]
    loops = [kir.ForLoop(kernels.K, kernels.TRIPS, tuple(part)) for part in (fill, use)]
    verdict = judge([*body, *roles([loops[0]], [loops[1]])], tiles=3)
    assert (not kinds(verdict)) == back, verdict


def test_elements_of_two_sizes_are_written_whole() -> None:
    """A ring of 4-byte and a ring of 8-byte elements, one vector each: all bytes count."""
    layout = kir.Layout((4, 64), 1, ALL)
    x = kir.Fragment("x", DType.F32, layout)
    d = kir.Fragment("d", DType.F64, layout)
    wide = kir.Buffer("S1", DType.F64, (4, 64), 1, 1024)
    t2 = kir.Tensor("T2", DType.F64, T1.extents, T1.strides, 2)
    out = (kir.TmaStore(box(t2, 0), kir.Slot(wide, 0)), kir.AsyncCommit(kir.AsyncKind.BULK))
    body: list[kir.Stmt] = [
        kir.Load(x, box(T0, 0), 1),
        kir.Store(kir.Slot(TILE, 0), x, 1),
        kir.Compute(d, "cast", (x,)),
        kir.Store(kir.Slot(wide, 0), d, 1),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        sync(),
        kir.Elect(ONE, (*out, kir.AsyncAwait(kir.AsyncKind.BULK, 0, True))),
        kir.Load(x, kir.Slot(TILE, 0), 1),
        kir.Store(box(T1, 0), x, 1),
    ]
    made = kernels.kernel("sizes", body, buffers=(TILE, wide))
    made = replace(made, tensors=(T0, T1, t2), outputs=("T1", "T2"))
    verdict = search(made, Launch(1, {"R": 4, "C": 60, "pitch": 60}), schedules=6)
    assert not kinds(verdict), verdict


@pytest.mark.parametrize("fence", [True, False])
def test_a_generic_write_before_a_tensor_load_needs_a_fence(fence: bool) -> None:
    """Zero-fill a slot, then load into it."""
    between: list[kir.Stmt] = [kir.FenceAsyncProxy(kir.Space.SHARED)] if fence else []
    body: list[kir.Stmt] = [
        *init(FULL),
        kir.Load(X, box(T0, 0), 4),
        kir.Store(kir.Slot(TILE, 0), X, 4),
        *between,
        sync(),
        fetch(),
        wait(),
        *read(),
    ]
    assert kinds(judge(body)) == (set() if fence else {"proxy"})


@pytest.mark.parametrize("space", [kir.Space.SHARED, kir.Space.GLOBAL, kir.Space.ALL])
def test_a_fence_covers_its_space_only(space: kir.Space) -> None:
    """A fence of global memory says nothing of shared memory."""
    send = (kir.TmaStore(box(T1, 0), kir.Slot(TILE, 0)), kir.AsyncCommit(kir.AsyncKind.BULK))
    body: list[kir.Stmt] = [
        kir.Load(X, box(T0, 0), 4),
        kir.Store(kir.Slot(TILE, 0), X, 4),
        kir.FenceAsyncProxy(space),
        sync(),
        kir.Elect(ONE, (*send, kir.AsyncAwait(kir.AsyncKind.BULK, 0, True))),
    ]
    assert kinds(judge(body)) == ({"proxy"} if space is kir.Space.GLOBAL else set())


@pytest.mark.parametrize("who", ["issuer", "another", "nobody"])
def test_bulk_groups_belong_to_their_thread(who: str) -> None:
    """An await by threads that committed nothing waits for nothing."""
    awaits = kir.AsyncAwait(kir.AsyncKind.BULK, 0, True)
    send = (kir.TmaStore(box(T1, 0), kir.Slot(TILE, 0)), kir.AsyncCommit(kir.AsyncKind.BULK))
    fill: list[kir.Stmt] = [
        kir.Load(X, box(T0, 0), 4),
        kir.Store(kir.Slot(TILE, 0), X, 4),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        sync(),
    ]
    if who == "another":
        fill += roles([kir.Elect(ONE, send)], [awaits])
    else:
        fill.append(kir.Elect(ONE, (*send, awaits) if who == "issuer" else send))
    assert kinds(judge(fill)) == (set() if who == "issuer" else {"exit"})


@pytest.mark.parametrize("read_only", [True, False])
def test_reads_awaited_are_not_writes_performed(read_only: bool) -> None:
    """Read an output back after its tensor store was awaited."""
    send = (
        kir.TmaStore(box(T1, 0), kir.Slot(TILE, 0)),
        kir.AsyncCommit(kir.AsyncKind.BULK),
        kir.AsyncAwait(kir.AsyncKind.BULK, 0, read_only),
    )
    body: list[kir.Stmt] = [
        kir.Load(X, box(T0, 0), 4),
        kir.Store(kir.Slot(TILE, 0), X, 4),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        sync(),
        kir.Elect(ONE, send),
        sync(),
        kir.Load(Y, box(T1, 0), 4),
    ]
    assert kinds(judge(body)) == ({"RAW"} if read_only else set())


def test_copies_are_issued_once() -> None:
    """A copy by every thread, or by one lane of every warp, is one copy too many."""
    load = kir.TmaLoad(kir.Slot(TILE, 0), box(T0, 0), FULL, 0)
    expect = kir.Elect(ONE, (kir.MBarrierArriveExpectTx(FULL, 0, NBYTES),))
    for many in (load, kir.Elect(kir.Per.WARP, (load,))):
        assert kinds(judge([*init(FULL), expect, many, wait(), *read()])) == {"WAW"}


def test_a_tensor_copy_needs_aligned_places() -> None:
    """Slots of 192 bytes put the second one off the 128-byte grid."""
    tile = kir.Buffer("S0", DType.F32, (4, 12), 2, 0)
    small = kir.Box(T0, (0, 0), (4, 12), (kernels.R, kernels.C))
    load = (
        kir.MBarrierArriveExpectTx(FULL, 0, 192), kir.TmaLoad(kir.Slot(tile, 1), small, FULL, 0)
    )  # fmt: skip
    body: list[kir.Stmt] = [
        *init(FULL),
        kir.Elect(ONE, load),
        wait(),
        kir.Load(X, box(T0, 0), 4),
        *OUT,
    ]
    assert kinds(judge(body, buffers=(tile,))) == {"bounds"}


def test_slots_and_registers_must_exist() -> None:
    """A slot past the ring, a register that nobody wrote."""
    load = kir.Load(X, kir.Slot(TILE, 1), 4)
    assert kinds(judge([load, *OUT])) == {"bounds"}
    assert kinds(judge([replace(OUT[1])])) == {"RAW"}
    assert kinds(judge([kir.Load(X, kir.Slot(TILE, 0), 4), *OUT])) == {"RAW"}
    assert kinds(judge([kir.SetMaxNReg(20, False), kir.Load(X, box(T0, 0), 4), *OUT])) == {
        "registers"
    }


def test_expressions_stay_inside_their_contract() -> None:
    """Division by an extent of zero is a finding, not a crash."""
    loop = kir.ForLoop(kernels.K, 1 + Op(Kind.MOD, 1, kernels.R - 4), OUT)
    verdict = judge([kir.Load(X, box(T0, 0), 4), loop])
    assert kinds(verdict) == {"bounds"}


A, B = Var("a"), Var("b")
KINDS = [kind for kind in Kind if kind is not Kind.AND]
EXPRESSIONS = st.recursive(
    st.integers(0, 9) | st.sampled_from([A, B]),
    lambda inner: st.builds(Op, st.sampled_from(KINDS), inner, inner),
    max_leaves=12,
)


@given(EXPRESSIONS, st.integers(0, 20), st.integers(0, 20))
def test_expressions_mean_what_python_says(expr: int | Var | Op, a: int, b: int) -> None:
    """Printed and read by Python, an expression is the same number."""
    names = {"a": a, "b": b}
    try:
        got = compile_expr(expr)(names)
    except BadExpression:
        return
    assert got == int(eval(str(expr), {"min": min, "max": max}, names))


def test_both_is_short_circuited() -> None:
    """As in C++: what stands behind a false guard is not evaluated."""
    divides = Op(Kind.EQ, Op(Kind.MOD, 8, A), 0)
    guarded = compile_expr(Op(Kind.AND, Op(Kind.LT, 0, A), divides))
    assert [guarded({"a": a}) for a in (0, 3, 4)] == [0, 0, 1]
    with pytest.raises(BadExpression, match="8 % 0"):
        compile_expr(divides)({"a": 0})
