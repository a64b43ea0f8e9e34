"""Where threads and CTAs wait: mbarriers, named barriers, semaphores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import (
    BULK,
    CP_ASYNC,
    NBYTES,
    X1,
    XN,
    Y1,
    YN,
    Body,
    box,
    elect,
    fragment,
    init,
    k,
    kernel,
    load,
    n,
    single,
    slots,
    store,
    tensor,
    wait,
    zero,
)
from litmus.sums import reversed_turns
from litmus.turnstiles import TURNS, by_engine, turnstile

from fuser.cookbook import recipes
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.ctas import MANY, group_of, largest, readings
from oracles.prover.reachability.fixpoint import Closed, judge
from oracles.prover.reachability.rules import Rule

BAR = kir.MBarrier("bar", 1, 1)
TILE = fragment("x")
RING = slots("S")
WORK = (load(TILE, box(X1)),) * 4


def kinds(closed: Closed, rule: Rule | None = None) -> set[str]:
    """Kinds of the errors, or of those of a rule."""
    return {v.kind for v in closed.violations if rule in (None, v.rule)}


def filled(fill: Body, *, joined: bool, threads: int = 64) -> kir.Kernel:
    """Let one warp fill a slot, and another make the only arrival of the phase that says so."""
    meet: Body = (kir.BlockSync(1, 64),) if joined else ()
    take = elect(kir.MBarrierArrive(BAR, 0)), wait(BAR, 0, 0), load(TILE, kir.Slot(RING, 0))
    body: Body = (
        init(BAR),
        kir.BlockSync(0, threads),
        kir.Role("fills", 0, 1, (*fill, *meet)),
        kir.Role("takes", 1, 1, (*WORK, *meet, *take, store(box(Y1), TILE))),
    )
    return single(body, threads=threads, buffers=(RING,), barriers=(BAR,))


@pytest.mark.parametrize(
    ("fill", "kind"),
    [
        (
            (
                elect(
                    kir.MBarrierExpectTx(BAR, 0, NBYTES),
                    kir.TmaLoad(kir.Slot(RING, 0), box(X1), BAR, 0),
                ),
            ),
            "bytes",
        ),
        (
            (
                kir.CpAsync(kir.Slot(RING, 0), box(X1), TILE.layout, 4),
                kir.CpAsyncMBarrierArrive(BAR, 0, noinc=False),
            ),
            "arrivals",
        ),
    ],
    ids=["expected bytes", "an arrival more"],
)
def test_what_a_phase_waits_for_is_known_before_its_last_arrival(fill: Body, kind: str) -> None:
    """The arrival may come first, and then the phase is over before the copy is known of."""
    assert not kinds(judge(filled(fill, joined=True)))
    assert kinds(judge(filled(fill, joined=False)), Rule.PHASE_EARLY) == {kind}


@pytest.mark.parametrize("ends", [(), (kir.MBarrierInvalidate(BAR),)], ids=["exit", "invalidated"])
def test_bytes_are_not_expected_for_nothing(ends: Body) -> None:
    """Nobody waits for them, and no copy brings them: the phase can never be complete."""
    last = kir.WarpSync(), load(TILE, box(X1)), store(box(Y1), TILE)
    expect = init(BAR), kir.WarpSync(), elect(kir.MBarrierExpectTx(BAR, 0, NBYTES), *ends)
    assert kinds(judge(single((*expect, *last), barriers=(BAR,)))) == {"init" if ends else "bytes"}
    begun = init(BAR), kir.WarpSync(), elect(*ends)
    assert not kinds(judge(single((*begun, *last), barriers=(BAR,))))


def arriving(bar: kir.MBarrier, *step: kir.Stmt, waits: bool = True) -> kir.Kernel:
    """Arrive in every round at a barrier, and wait for it only in the last."""
    last: Body = (kir.IfThenElse(n <= k + 1, (wait(bar, 0, k),)),) if waits else ()
    body: Body = (
        init(bar),
        kir.BlockSync(0, 32),
        kir.ForLoop(k, n, (load(TILE, box(XN, k)), *step, *last, store(box(YN, k), TILE))),
        kir.AsyncAwait(CP_ASYNC, 0),
    )
    return kernel(body, barriers=(bar,), buffers=(slots("S", 8),))


@pytest.mark.parametrize("arrivals", [1, 2])
def test_a_phase_of_ones_own_arrivals_is_over_without_a_wait(arrivals: int) -> None:
    """One thread makes all of them, one after the other: it need not ask whether they are in."""
    bar = kir.MBarrier("bar", arrivals, 1)
    step = elect(*(kir.MBarrierArrive(bar, 0),) * arrivals)
    assert not kinds(judge(arriving(bar, step, kir.WarpSync())))


def test_a_phase_with_other_threads_arrivals_is_not() -> None:
    """A thread may be back before another has arrived, and take that one's place."""
    bar = kir.MBarrier("bar", 32, 1)
    step = kir.MBarrierArrive(bar, 0)
    assert kinds(judge(arriving(bar, step))) == {"parity"}
    assert not kinds(judge(arriving(bar, step, kir.WarpSync())))


def test_phases_that_nobody_waits_for_are_told_apart_all_the_same() -> None:
    """All judges agree on it: an arrival counts for its own phase, whoever looks."""
    bar = kir.MBarrier("bar", 32, 1)
    step = kir.MBarrierArrive(bar, 0)
    assert kinds(judge(arriving(bar, step, waits=False))) == {"parity"}
    assert not kinds(judge(arriving(bar, step, kir.WarpSync(), waits=False)))


def test_copies_that_arrive_at_a_barrier_stay_in_their_group() -> None:
    """Their thread may await the group all the same, and then nothing is in flight at the end."""
    copy = kir.CpAsync(kir.Slot(RING, 0), box(X1), TILE.layout, 4)
    late = kir.CpAsyncMBarrierArrive(BAR, 0, noinc=False)
    last = load(TILE, box(X1)), store(box(Y1), TILE)
    done = kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0)
    for ends, found in (((), {"exit"}), (done, set())):
        body = init(BAR), kir.WarpSync(), copy, late, *ends, *last
        assert kinds(judge(single(body, buffers=(RING,), barriers=(BAR,)))) == found


def test_an_arrival_that_copies_make_comes_when_they_are_done() -> None:
    """The thread goes on before it: in the next round it may still be to come."""
    ring = slots("S", 8)
    whole = kir.Layout(TILE.layout.shape, 4, 1)
    copy = kir.CpAsync(kir.Slot(ring, k % 8), box(XN, k), whole, 4), kir.AsyncCommit(CP_ASYNC)
    late = *copy, kir.CpAsyncMBarrierArrive(BAR, 0, noinc=True), kir.AsyncAwait(CP_ASYNC, 1)
    done = *copy, kir.AsyncAwait(CP_ASYNC, 0), kir.MBarrierArrive(BAR, 0)
    assert kinds(judge(arriving(BAR, elect(*late), kir.WarpSync()))) == {"parity"}
    assert not kinds(judge(arriving(BAR, elect(*done), kir.WarpSync())))


# --- named barriers: a generation is over, for all who arrive, before they arrive for the next ----


SLOT = kir.Slot(slots("S"), 0)
MINE, YOURS = fragment("x"), fragment("z", vector=1)


def handed(arrivals: int) -> kir.Kernel:
    """Hand tiles over; the giver arrives so many times at the barrier that says full."""
    give: Body = (
        load(MINE, box(XN, k)),
        store(SLOT, MINE),
        *(kir.NamedArrive(1, 64) for _ in range(arrivals)),
        kir.BlockSync(2, 64),
    )
    take: Body = (
        kir.BlockSync(1, 64),
        load(YOURS, SLOT),
        kir.NamedArrive(2, 64),
        store(box(YN, k), YOURS),
    )
    roles = (
        kir.Role("give", 0, 1, (kir.ForLoop(k, n, give),)),
        kir.Role("take", 1, 1, (kir.ForLoop(k, n, take),)),
    )
    return kernel(roles, threads=64, buffers=(SLOT.buffer,))


@pytest.mark.parametrize("arrivals", [2, 3])
def test_arriving_again_before_the_turn_is_over_is_an_error(arrivals: int) -> None:
    """Three arrivals add up to two turns, but which of them ends the taker's turn is chance."""
    assert not judge(handed(1)).violations
    again = judge(handed(arrivals)).violations
    assert Rule.SYNC_APART in {v.rule for v in again}
    assert {v.kind for v in again} == {"collective"}


# --- CTAs that take turns -------------------------------------------------------------------------


s, t = Var("s"), Var("t")
WAIT = kir.BlockSerializeWait


def across(kernel: kir.Kernel) -> kir.Kernel:
    """Let `t` tiles share the grid the other way: CTAs of one tile are `t` apart."""
    tile, turn, count = kir.BLOCK % t, kir.BLOCK // t, (kir.BLOCK // t + 1) % s

    def placed(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Load(_, kir.Box(tensor) as box) if tensor.name == "W":
                return [replace(stmt, src=replace(box, origin=(tile * 8, 0)))]
            case kir.Store(kir.Box(tensor) as box) if tensor.name in ("W", "Y"):
                return [replace(stmt, dst=replace(box, origin=(tile * 8, 0)))]
            case _:
                return None

    def turned(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.BlockSerializeWait():
                return [replace(stmt, index=tile, turn=turn)]
            case kir.BlockSerializeRelease():
                return [replace(stmt, index=tile, turn=count)]
            case kir.IfThenElse(test) if test == eq(kir.BLOCK, 0):
                return [replace(stmt, condition=eq(turn, 0))]
            case kir.IfThenElse():
                return [replace(stmt, condition=turn + 1 < s)]
            case _:
                return None

    return replace(
        kernel.rewrite(placed).rewrite(turned),
        params=(s, t),
        requires=(t >= 1, s >= 1, eq(kir.GRID, t * s)),
        semaphores=(kir.Semaphore("turns", t),),
    )


@pytest.mark.parametrize(
    "kernel",
    [recipes.split_k(), recipes.split_k_tma(), turnstile(), by_engine(), across(turnstile())],
    ids=["split_k", "split_k_tma", "one tile", "by engine", "tiles next to each other"],
)
def test_right_turns_are_proved(kernel: kir.Kernel) -> None:
    """Whichever way CTAs are dealt to tiles."""
    closed = judge(kernel)
    assert not closed.violations
    assert not closed.reason


def test_neighbouring_tiles_still_need_their_turns() -> None:
    """The group of `BLOCK % t` is judged as strictly as that of `BLOCK // s`."""
    made = across(turnstile("add join release"))
    assert kinds(judge(made)) & {"RAW", "WAW", "semaphore"}


def test_a_guard_far_out_is_reached() -> None:
    """A CTA with a number of its own is followed: the sizes go beyond what places are compared to.

    The third CTA releases without the barrier that collects the other warp's writes.
    """
    join = kir.IfThenElse(eq(kir.BLOCK, 3), (), (kir.BlockSync(0, 64),))
    made = turnstile("turn add maybe release", maybe=join)
    assert largest(made, group_of(made)) >= 5
    assert kinds(judge(made)) & {"RAW", "WAW", "WAR"}


def test_a_guard_too_far_out_is_not_answered() -> None:
    """More CTAs than can be followed are no proof."""
    join = kir.IfThenElse(eq(kir.BLOCK, MANY), (), (kir.BlockSync(0, 64),))
    with pytest.raises(UnsupportedError, match="at most"):
        judge(turnstile("turn add maybe release", maybe=join))


def test_a_release_in_a_turn_that_is_not_its_own() -> None:
    """Whoever has not waited may overwrite a value that nobody has seen yet."""
    assert "semaphore" in kinds(judge(turnstile("add join release")))


def test_what_the_last_turn_reads_needs_no_barrier() -> None:
    """Nobody writes the workspace again: the kernel's end orders it before the next launch."""
    kernel = recipes.split_k_tma()
    last = [i for i, stmt in enumerate(kernel.body) if stmt == kir.BlockSync(0, 128)][-1]
    assert not judge(
        replace(kernel, body=(*kernel.body[:last], *kernel.body[last + 1 :]))
    ).violations


def test_turns_run_down_only_where_all_ctas_run() -> None:
    """A ticket says that smaller numbers have started, not larger ones."""
    assert not judge(reversed_turns("co-resident")).violations
    assert kinds(judge(reversed_turns("ticket"))) == {"residency"}
    assert "residency" in kinds(judge(turnstile(residency="any")))


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (turnstile("turn add join relaxed"), "scope"),
        (turnstile("turn add join narrow"), "scope"),
        (turnstile("turn_cta add join release"), "scope"),
        (by_engine("store commit read"), "drain"),
        (by_engine(later="add commit done"), "proxy"),
        (turnstile(to=kir.BLOCK + 1), "semaphore"),
        (turnstile("turn add join"), "deadlock"),
        (turnstile("turn add join release", turn=kir.BLOCK + 1), "deadlock"),
    ],
)
def test_the_kind_says_what_is_wrong(kernel: kir.Kernel, kind: str) -> None:
    """A reader acts on the kind."""
    assert kind in kinds(judge(kernel))


@pytest.mark.parametrize(
    ("rule", "kernel"),
    [
        (Rule.TURN_VALUES, turnstile(to=kir.BLOCK + 1)),
        (Rule.SCOPE, turnstile("turn add join relaxed")),
        (Rule.DRAIN, by_engine("store commit read")),
        (Rule.RESIDENCY, turnstile(residency="any")),
    ],
)
def test_a_rule_taken_away_says_nothing(rule: Rule, kernel: kir.Kernel) -> None:
    """Each obligation about turns is asked under its own name."""
    assert rule in {v.rule for v in judge(kernel).violations}
    assert rule not in {v.rule for v in judge(kernel, without=frozenset({rule})).violations}


def test_without_its_axiom_no_turn_is_proved() -> None:
    """What a wait acquires is all that CTAs know of each other."""
    assert kinds(judge(turnstile(), without=frozenset({Rule.TURN_ACQUIRES})))


def test_ctas_of_one_semaphore_must_be_known() -> None:
    """An index that no reading explains is no proof, and neither is a second index."""
    other = turnstile(turn=kir.BLOCK % 3, to=0)
    moved = other.rewrite(
        lambda stmt: [replace(stmt, index=kir.BLOCK % 5)] if isinstance(stmt, WAIT) else None
    )
    with pytest.raises(UnsupportedError):
        list(readings(moved))
    assert moved.semaphores == (TURNS,)


def test_a_slot_that_only_far_turns_use_is_reached() -> None:
    """Places are followed until they have reached every slot: the fifth one does not exist."""
    tile, buffer = fragment("x", 64), slots("S", 4)
    put = store(kir.Slot(buffer, kir.BLOCK % 5), tile)
    made = turnstile("put turn add join release", put=put)
    assert kinds(judge(replace(made, buffers=(buffer,)))) == {"bounds"}


def test_places_that_a_loop_needs_are_told_one_by_one() -> None:
    """A CTA alone is read without its place first; where a slot depends on it, with each place."""
    tile, again, buffer = fragment("x", 64), fragment("x", 64, 1), slots("S", 2)
    slot = kir.Slot(buffer, kir.BLOCK % 2)
    body = (store(slot, tile), kir.BlockSync(2, 64), load(again, slot), kir.BlockSync(3, 64))
    n = Var("n")
    right = replace(
        turnstile("loop turn add join release", loop=kir.ForLoop(Var("k"), n, body)),
        buffers=(buffer,),
        params=(s, n),
    )
    assert not judge(right).violations
    assert not judge(right).reason
    bare = (body[0], *body[2:])
    wrong = turnstile("loop turn add join release", loop=kir.ForLoop(Var("k"), n, bare))
    assert kinds(judge(replace(wrong, buffers=(buffer,), params=(s, n)))) == {"RAW"}


def two_tiles(sentence: str, index: Expr = 1) -> kir.Kernel:
    """One CTA sends two tiles by TMA and publishes each; another one reads them."""
    inputs, parts, outputs = tensor("X", 2), tensor("W", 2), tensor("Y", 2)
    flags, buffer, x = kir.Semaphore("flags", 2), slots("S", 2), fragment("x", 64)

    def sent(number: int) -> tuple[kir.Stmt, ...]:
        at = kir.Slot(buffer, number)
        stage = load(x, box(inputs, number)), store(at, x), kir.FenceAsyncProxy(kir.Space.SHARED)
        send = elect(kir.TmaStore(box(parts, number), at), kir.AsyncCommit(BULK))
        return *stage, kir.BlockSync(1, 64), send

    def taken(number: int) -> tuple[kir.Stmt, ...]:
        wait = kir.BlockSerializeWait(flags, number, 1)
        free = elect(kir.BlockSerializeRelease(flags, number, 0))
        moved = load(x, box(parts, number)), store(box(outputs, number), x)
        return wait, *moved, kir.BlockSync(0, 64), free

    words: dict[str, kir.Stmt] = {
        "first": kir.BlockSerializeRelease(flags, 0, 1),
        "second": kir.BlockSerializeRelease(flags, index, 1),
        "one": kir.AsyncAwait(BULK, 1),
        "all": kir.AsyncAwait(BULK, 0),
    }
    give = (*sent(0), *sent(1), elect(*(words[word] for word in sentence.split())))
    body = (kir.IfThenElse(eq(kir.BLOCK, 0), give, (*taken(0), *taken(1))),)
    made = kernel(
        body, threads=64, buffers=(buffer,), tensors=(inputs, parts, outputs), workspaces=("W",),
        params=(n,), requires=(eq(kir.GRID, 2),),
    )  # fmt: skip
    return replace(made, semaphores=(flags,), residency="co-resident")


def test_a_tile_is_published_while_the_next_one_is_sent() -> None:
    """The await of all groups but the latest is enough for the first tile, not for the second."""
    right = judge(two_tiles("one first all second"))
    assert not right.violations
    assert not right.reason
    assert kinds(judge(two_tiles("one first second all"))) & {"drain", "RAW", "WAW"}


def test_semaphores_that_may_be_one_integer_are_not_answered() -> None:
    """With n = 0 the second flag is the first."""
    with pytest.raises(UnsupportedError, match="another integer"):
        judge(two_tiles("one first all second", n))


def overwritten(vector: int, *, late: bool = True) -> kir.Kernel:
    """Threads copy a tile by cp.async, and overwrite its source in a layout of such vectors."""
    buffer, x, y = slots("S"), fragment("x"), fragment("x", 32, vector)
    copy = kir.CpAsync(kir.Slot(buffer, 0), box(X1), x.layout, 4), kir.AsyncCommit(CP_ASYNC)
    zeros = zero(y), store(box(X1), y)
    wait = kir.AsyncAwait(CP_ASYNC, 0)
    body = (*copy, *((wait, *zeros) if late else (*zeros, wait)))
    out = load(x, kir.Slot(buffer, 0)), store(box(Y1), x)
    return replace(single((*body, *out), buffers=(buffer,)), outputs=("X", "Y"))


def test_a_thread_may_overwrite_what_it_has_copied_itself() -> None:
    """Once its copy is awaited; another thread's copy may still read."""
    assert not judge(overwritten(4)).violations
    assert kinds(judge(overwritten(1))) == {"WAR"}
    assert kinds(judge(overwritten(4, late=False))) == {"WAR"}
