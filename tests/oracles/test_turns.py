"""What explorer and simulator say of CTAs that hand tiles on by flags and by turns that return."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import (
    CP_ASYNC,
    TILE,
    W1,
    X1,
    XN,
    Y1,
    YN,
    Body,
    box,
    elect,
    fragment,
    k,
    kernel,
    load,
    n,
    single,
    slots,
    store,
    tensor,
    zero,
)

from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from oracles.explorer import explore
from oracles.simulator import simulate

FLAG, FLAGS = kir.Semaphore("flag", 1), kir.Semaphore("flags", n)
WN, Y2 = tensor("W", n), tensor("Y", 2)
X_TILE, BACK = fragment("x", 64), fragment("y", 64)


def pair(put: Body, get: Body, *tensors: kir.Tensor, flag: kir.Semaphore = FLAG) -> kir.Kernel:
    """Let CTA 0 do one thing and CTA 1 another, both at once."""
    body = (kir.IfThenElse(eq(kir.BLOCK, 0), put, get),)
    requires = (eq(kir.GRID, 2),)
    made = kernel(body, threads=64, tensors=tensors, workspaces=("W",), requires=requires)
    return replace(made, semaphores=(flag,), residency="co-resident")


def tell(turn: int, flag: kir.Semaphore = FLAG, at: Expr = 0) -> Body:
    """Set a flag, when all threads are done."""
    return kir.BlockSync(0, 64), elect(kir.BlockSerializeRelease(flag, at, turn))


def cleared_after_the_loop(*, joined: bool = True) -> kir.Kernel:
    """One CTA sets a flag when all tiles are there; the other clears it when it has read them."""
    put = (kir.ForLoop(k, n, (load(X_TILE, box(XN, k)), store(box(WN, k), X_TILE))), *tell(1))
    reads = kir.ForLoop(k, n, (load(BACK, box(WN, k)), store(box(YN, k), BACK)))
    get = (kir.BlockSerializeWait(FLAG, 0, 1), reads, *tell(0))
    return pair(put if joined else (put[0], put[2]), get, XN, WN, YN)


def flag_for_each(*, all_cleared: bool = True) -> kir.Kernel:
    """There is a flag for each tile, and a loop that clears them when all tiles are read."""
    tiles = (load(X_TILE, box(XN, k)), store(box(WN, k), X_TILE), *tell(1, FLAGS, k))
    wait = kir.BlockSerializeWait(FLAGS, k, 1)
    reads = kir.ForLoop(k, n, (wait, load(BACK, box(WN, k)), store(box(YN, k), BACK)))
    ends = kir.ForLoop(k, n if all_cleared else n - 1, tell(0, FLAGS, k))
    return pair((kir.ForLoop(k, n, tiles),), (reads, ends), XN, WN, YN, flag=FLAGS)


def back_and_forth(*, joined: bool = True) -> kir.Kernel:
    """A flag is set and cleared for each tile, all of which have the same place."""
    room = kir.BlockSerializeWait(FLAG, 0, 0)
    put = (load(X_TILE, box(XN, k)), room, store(box(W1), X_TILE), *tell(1)[0 if joined else 1 :])
    get = (
        kir.BlockSerializeWait(FLAG, 0, 1),
        load(BACK, box(W1)),
        *tell(0),
        store(box(YN, k), BACK),
    )
    return pair((kir.ForLoop(k, n, put),), (kir.ForLoop(k, n, get),), XN, W1, YN)


def taking_turns(*, joined: bool = True) -> kir.Kernel:
    """Two CTAs have turns 0 and 1 in every round, and each stores over the other's tile."""
    first = kir.IfThenElse(
        eq(k + kir.BLOCK, 0),
        (kir.Compute(BACK, "cast", (X_TILE,)),),
        (load(fragment("y", 64), box(W1)),),
    )
    turn = kir.BlockSerializeWait(FLAG, 0, kir.BLOCK)
    give = kir.BlockSync(0, 64), elect(kir.BlockSerializeRelease(FLAG, 0, (kir.BLOCK + 1) % 2))
    work = (turn, first, store(box(W1), BACK), *give[0 if joined else 1 :])
    body = (load(X_TILE, box(X1)), kir.ForLoop(k, n, work), store(box(Y2, kir.BLOCK), X_TILE))
    made = pair((), (), X1, W1, Y2)
    return replace(made, body=body)


def source_overwritten(*, awaited: bool = True) -> kir.Kernel:
    """Each lane overwrites the global source of its own cp.async."""
    lanes = kir.Layout(TILE, 4, 32)
    tile, none, back = (kir.Fragment(name, DType.F32, lanes) for name in "xzy")
    slot, wait = kir.Slot(slots("S"), 0), kir.AsyncAwait(CP_ASYNC, 0)
    ahead, behind = ((wait,), ()) if awaited else ((), (wait,))
    body = (
        load(tile, box(X1)),
        store(box(W1), tile),
        kir.CpAsync(slot, box(W1), lanes, 4),
        kir.AsyncCommit(CP_ASYNC),
        *ahead,
        zero(none),
        store(box(W1), none),
        *behind,
        load(back, slot),
        store(box(Y1), back),
    )
    return single(body, buffers=(slots("S"),), tensors=(X1, W1, Y1), workspaces=("W",))


RIGHT = {
    "cleared after the loop": cleared_after_the_loop(),
    "a flag for each": flag_for_each(),
    "back and forth": back_and_forth(),
    "turns that return": taking_turns(),
    "the source of its own copy": source_overwritten(),
}
WRONG = {
    "set before all have stored": (cleared_after_the_loop(joined=False), {"RAW", "WAR"}),
    "one flag is not cleared": (flag_for_each(all_cleared=False), {"semaphore"}),
    "set before all have stored it": (back_and_forth(joined=False), {"RAW", "WAR"}),
    "turns given before all have stored": (taking_turns(joined=False), {"RAW", "WAR", "WAW"}),
    "the source of a copy in flight": (source_overwritten(awaited=False), {"WAR"}),
}


def found(made: kir.Kernel, judge: str) -> set[str]:
    """Return the kinds of errors in a small launch."""
    params = {p.name: 3 for p in made.params}
    grid = 2 if made.semaphores else 1
    if judge == "explorer":
        verdict = explore.explore(made, explore.Launch(grid, params))
    else:
        verdict = simulate.search(made, simulate.Launch(grid, params), schedules=12)
    return {f.kind for f in verdict.findings if f.severity == "error"} or {verdict.status.value}


@pytest.mark.parametrize("judge", ["explorer", "simulator"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_handover_passes(name: str, judge: str) -> None:
    """Flags that another CTA clears, turns of the same number again, sources of one's own copy."""
    assert found(RIGHT[name], judge) == {"pass"}


@pytest.mark.parametrize("judge", ["explorer", "simulator"])
@pytest.mark.parametrize("name", WRONG)
def test_a_handover_without_its_sync_is_refuted(name: str, judge: str) -> None:
    """The same with a barrier, an await or a reset left out."""
    made, kinds = WRONG[name]
    assert found(made, judge) & kinds


@pytest.mark.parametrize("together", [1, 2])
def test_a_cta_may_wait_for_one_that_runs_beside_it(together: int) -> None:
    """With tickets the next CTA is sure to run where so many do at once."""
    made = replace(taking_turns(), residency="ticket", together=together)
    assert found(made, "explorer") == ({"pass"} if together == 2 else {"residency"})
