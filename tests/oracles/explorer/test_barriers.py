"""Counters: what an arrival may land in, and what is left when all threads are done."""

from dataclasses import replace

import pytest
from arrived import MINE, MORE, OUT, PUT, SUM, TOTAL, by_role, by_roles, ctas_of
from litmus.arrivals import LITMUS, PAIR, arriving, by_engine, last
from litmus.meetings import SENT, WS
from litmus.parts import (
    BULK,
    CP_ASYNC,
    X1,
    Y1,
    Litmus,
    box,
    elect,
    fragment,
    init,
    load,
    s,
    single,
    slots,
    store,
    t,
    wait,
)
from litmus.turnstiles import SHARES, XS, grid

from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from oracles.explorer.explore import Launch, Rule, explore
from oracles.verdict import Status, Verdict

TILE = fragment("x")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))
BAR = kir.MBarrier("bar", 1, 1)
ARRIVE = kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(BAR, 0),))


def kinds(kernel: kir.Kernel, without: frozenset[Rule] = frozenset()) -> set[str]:
    """Kinds of errors of one launch."""
    return {
        f.kind
        for f in explore(replace(kernel, requires=()), Launch(1, {}), without=without).findings
    }


def roles(*bodies: tuple[kir.Stmt, ...]) -> kir.Kernel:
    """A kernel of one warp for each body, and one that writes the output."""
    threads = 32 * len(bodies) + 32
    warps = (*bodies, COPY)
    body: tuple[kir.Stmt, ...] = (
        init(BAR),
        kir.BlockSync(0, threads),
        *(kir.Role(f"r{i}", i, 1, each) for i, each in enumerate(warps)),
    )
    return single(body, threads=threads, barriers=(BAR,))


def counted(count: int, body: tuple[kir.Stmt, ...]) -> kir.Kernel:
    """A kernel of one warp for the body, whose barrier has another count."""
    bar = replace(BAR, arrivals=count)

    def again(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.MBarrierInit | kir.MBarrierArrive):
            return [replace(stmt, barrier=bar)]
        return None

    return replace(roles(body).rewrite(again), barriers=(bar,))


def test_threads_that_have_arrived_at_a_named_barrier_are_met() -> None:
    """What is left there is counted in the next turn of that barrier."""
    give, take = kir.NamedArrive(1, 64), kir.BlockSync(1, 64)
    assert kinds(roles((give,), (take,))) == set()
    assert kinds(roles((give, give), (take, take))) == {"collective"}
    assert kinds(roles((give,), ())) == {"collective"}
    assert kinds(roles((give,), ()), without=frozenset({Rule.COLLECTIVE})) == set()


def test_a_named_barrier_is_not_met_again_before_its_turn_is_over() -> None:
    """Which arrivals end the turn that the taker is in is else a matter of the schedule."""
    give, take, back = kir.NamedArrive(1, 64), kir.BlockSync(1, 64), kir.BlockSync(2, 64)
    assert kinds(roles((), (take,), (give, give, give))) == {"collective"}
    assert kinds(roles((), (take, back, take), (give, back, give))) == set()


def test_an_arrival_at_the_cluster_is_followed_by_a_wait() -> None:
    """Who leaves without it has not seen that its peers are done."""
    arrive, wait_ = kir.ClusterArrive(), kir.ClusterWait()
    assert kinds(single((*COPY, arrive), threads=32)) == {"collective"}
    assert kinds(single((*COPY, arrive, wait_), threads=32)) == set()


def test_an_arrival_that_nobody_waits_for_has_a_phase_all_the_same() -> None:
    """A phase may go unseen and unfinished, but which arrivals it counts is not left to chance."""
    assert kinds(roles((ARRIVE,), (ARRIVE,))) == {"parity"}
    assert kinds(roles((ARRIVE, kir.BlockSync(1, 64)), (kir.BlockSync(1, 64), ARRIVE))) == set()
    assert kinds(counted(2, (ARRIVE,))) == set()


def test_lanes_that_arrive_twice_do_not_share_a_phase() -> None:
    """Lane 0 arrives for the second time before lanes 1 to 31 have arrived once; nobody waits."""
    twice = (kir.MBarrierArrive(BAR, 0), kir.MBarrierArrive(BAR, 0))
    assert kinds(counted(32, twice)) & {"arrivals", "parity"}
    assert kinds(counted(32, (twice[0], kir.WarpSync(), twice[1]))) == set()


@pytest.mark.parametrize("noinc", [True, False])
def test_a_count_is_raised_before_the_phase_can_end(noinc: bool) -> None:
    """The reader's 32 arrivals are all that the count asks for, if nothing raises it in time."""
    ring = slots("S")
    slot = kir.Slot(ring, 0)
    full = kir.MBarrier("full", 64 if noinc else 32, 1)
    copy = kir.CpAsync(slot, box(X1), TILE.layout, 4)
    end = kir.AsyncCommit(CP_ASYNC), kir.AsyncAwait(CP_ASYNC, 0)
    give = (copy, kir.CpAsyncMBarrierArrive(full, 0, noinc), *end)
    take = (kir.MBarrierArrive(full, 0), wait(full, 0, 0), load(TILE, slot), store(box(Y1), TILE))
    body = (
        init(full),
        kir.BlockSync(0, 64),
        kir.Role("give", 0, 1, give),
        kir.Role("take", 1, 1, take),
    )
    kernel = single(body, threads=64, buffers=(ring,), barriers=(full,))
    assert both_ways(kernel) == (set() if noinc else {"RAW"})


@pytest.mark.parametrize("known", [True, False])
def test_bytes_are_announced_to_an_arrival_that_was_counted(known: bool) -> None:
    """The copy's own end comes too late to say that it was expected: the phase may be over."""
    ring = slots("S")
    slot = kir.Slot(ring, 0)
    expect = (kir.MBarrierExpectTx(BAR, 0, ring.slot_nbytes),)
    issue = (*expect, kir.TmaLoad(slot, box(X1), BAR, 0))
    read = (wait(BAR, 0, 0), load(TILE, slot), store(box(Y1), TILE))
    met = (kir.BlockSync(1, 64),) if known else ()
    body = (
        init(BAR),
        kir.BlockSync(0, 64),
        kir.Role("take", 0, 1, (*met, ARRIVE, *read)),
        kir.Role("give", 1, 1, (kir.Elect(kir.Per.ROLE, issue), *met)),
    )
    kernel = single(body, threads=64, buffers=(ring,), barriers=(BAR,))
    assert both_ways(kernel) == (set() if known else {"RAW"})


def both_ways(kernel: kir.Kernel) -> set[str]:
    """Kinds of errors, the same with one way for all and with every way."""
    kernel, launch = replace(kernel, requires=()), Launch(1, {})
    short, full = (explore(kernel, launch, reduce=reduce) for reduce in (True, False))
    found = [{f.kind for f in verdict.findings} for verdict in (short, full)]
    assert found[0] == found[1]
    return found[0]


def test_an_arrival_belongs_to_one_phase_where_somebody_waits() -> None:
    """Of two arrivals without an order either is the first; the waiter may take one for two."""
    wait = kir.MBarrierWaitParity(BAR, 0, 0)
    assert kinds(roles((ARRIVE,), (wait,))) == set()
    assert kinds(roles((ARRIVE,), (ARRIVE,), (wait,))) & {"parity", "deadlock"}


def test_an_arrival_that_may_be_early_is_an_error_even_if_it_harms_nobody() -> None:
    """Each lane frees one barrier, then another; a lane that goes round takes another's place."""
    one, two = kir.MBarrier("one", 32, 1), kir.MBarrier("two", 32, 1)
    free = (kir.MBarrierArrive(one, 0), kir.MBarrierArrive(two, 0))
    go, done = kir.MBarrier("go", 1, 1), kir.MBarrierWaitParity(two, 0, 1)
    start = (
        kir.MBarrierWaitParity(one, 0, 0),
        kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(go, 0),)),
    )
    body = (
        init(one, two, go),
        kir.BlockSync(0, 96),
        kir.Role("frees", 0, 1, (*free, kir.MBarrierWaitParity(go, 0, 0), *free)),
        kir.Role("lets", 1, 1, start),
        kir.Role("waits", 2, 1, (kir.MBarrierWaitParity(two, 0, 0), done, *COPY)),
    )
    kernel = single(body, threads=96, barriers=(one, two, go))
    assert kinds(kernel) in ({"parity"}, {"arrivals"})


# --- CTAs at an integer of a semaphore: every one of them as the last-arriving one ----------------


GONE_THROUGH = [one for one in LITMUS if isinstance(one.kernel, kir.Kernel) and not one.refused]


def verdict(kernel: kir.Kernel, ctas: int = 3, *, reduce: bool = True) -> Verdict:
    """Explore a launch of so many CTAs."""
    return explore(kernel, Launch(ctas, {"s": ctas}), reduce=reduce, states=20_000)


def grid_kinds(kernel: kir.Kernel, ctas: int = 3, *, reduce: bool = True) -> set[str]:
    """Return the kinds of its errors; it has an answer."""
    found = verdict(kernel, ctas, reduce=reduce)
    assert found.status in (Status.PASS, Status.FAIL), found
    return {f.kind for f in found.findings if f.severity == "error"}


def forgets(who: Expr) -> kir.LastArriving:
    """The body leaves the output out where a condition holds of the last CTA."""
    return last(*SUM, kir.IfThenElse(who, (), (OUT,)), of=PAIR)


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("who", [0, 1])
def test_every_cta_is_the_last_one(who: int, *, reduce: bool) -> None:
    """What only one of them does wrong is found."""
    assert not grid_kinds(ctas_of(PUT, forgets(eq(kir.BLOCK, 5))), 2, reduce=reduce)
    assert grid_kinds(ctas_of(PUT, forgets(eq(kir.BLOCK, who))), 2, reduce=reduce) == {"coverage"}


def test_a_cta_that_cannot_be_the_last_is_not() -> None:
    """By turns at another integer CTA 2 comes behind all others."""
    following = elect(kir.BlockSerializeRelease(PAIR, 1, (kir.BLOCK + 1) % s))
    turn = kir.BlockSerializeWait(PAIR, 1, kir.BLOCK)
    behind = kir.IfThenElse(eq(kir.BLOCK, 2), (turn, following), ())
    first = kir.IfThenElse(eq(kir.BLOCK, 2), (), (turn, kir.BlockSync(0, 64), following))
    wrong = forgets(s > kir.BLOCK + 1)
    known = ctas_of(PUT, turn, kir.BlockSync(0, 64), wrong, kir.BlockSync(0, 64), following)
    assert not grid_kinds(known)
    early = ctas_of(PUT, first, behind, wrong)
    assert grid_kinds(early) == {
        "coverage"
    }  # those before may come when they have given the turn away


@pytest.mark.parametrize("one", GONE_THROUGH, ids=lambda one: one.name)
def test_one_way_for_each_last_cta_stands_for_all(one: Litmus) -> None:
    """The truth is that of all interleavings, where they can be gone through."""
    run = next((run for run in one.launches if run in SHARES), one.launches[0])
    launch = Launch(run.grid, dict(run.params))
    whole = explore(one.kernel, launch, reduce=False, states=3000)
    assert whole.status in (one.expect.status, Status.UNKNOWN)


def test_what_the_last_cta_knows_is_a_rule() -> None:
    """Without it the sum reads what nobody has released."""
    launch = Launch(2, {"s": 2})
    found = explore(arriving(), launch, without=frozenset({Rule.ELECT_LAST}))
    assert {f.kind for f in found.findings} == {"scope"}


# --- who comes ----------------------------------------------------------------------------------


def test_a_second_coming_is_ordered_after_the_first() -> None:
    """By a meeting at another integer; without it a CTA may be counted twice in one round."""
    twice = (PUT, last(of=PAIR), kir.GridSync(PAIR, 1, s), last(*SUM, OUT, of=PAIR))
    assert not grid_kinds(ctas_of(*twice), 2)
    assert grid_kinds(ctas_of(*twice[:2], *twice[3:]), 2) == {"semaphore"}
    assert not grid_kinds(ctas_of(*twice[:2], *twice[3:]), 1)


def test_the_last_of_groups_comes_again_for_all() -> None:
    """Only the last of each group arrives at the third integer."""
    many = kir.Semaphore("turns", 3)
    inner = kir.LastArriving(many, 2, 2, (*SUM, OUT))
    nested = ctas_of(PUT, kir.LastArriving(many, kir.BLOCK // 2, 2, (inner,)), integers=3)
    assert not grid_kinds(replace(nested, residency="any"), 4)
    three = nested.rewrite(lambda stmt: [replace(inner, ctas=3)] if stmt is inner else None)
    assert grid_kinds(three, 4) == {"semaphore"}
    one = nested.rewrite(lambda stmt: [replace(inner, ctas=1)] if stmt is inner else None)
    assert grid_kinds(one, 4) & {"semaphore", "RAW"}


@pytest.mark.parametrize("other", ["grid", "wait", "release"])
def test_an_integer_that_elects_does_nothing_else(other: str) -> None:
    """CTAs that meet, and turns, would count in the same integer."""
    others: dict[str, kir.Stmt] = {
        "grid": kir.GridSync(PAIR, 0, s),
        "wait": kir.BlockSerializeWait(PAIR, 0, 0),
        "release": elect(kir.BlockSerializeRelease(PAIR, 0, 0)),
    }
    elected = last(*SUM, OUT, of=PAIR)
    assert grid_kinds(ctas_of(PUT, elected, others[other])) == {"semaphore"}
    assert grid_kinds(ctas_of(PUT, others[other], elected)) == {"semaphore"}


def test_nobody_is_the_last_of_none() -> None:
    """The real counter would never wrap."""
    assert grid_kinds(arriving(ctas=s - 3)) == {"semaphore"}


def test_the_same_role_of_every_cta_comes() -> None:
    """CTA 0 by its first two warps, the others by their last two."""
    made = by_roles()
    assert grid_kinds(made, ctas=2) == {"collective"}
    assert not grid_kinds(made, ctas=1)
    assert not grid_kinds(replace(made, body=(by_role(2),)), ctas=2)


def test_single_lanes_cannot_come() -> None:
    """All threads of the role ask."""
    assert grid_kinds(arriving("put alone")) == {"collective"}


# --- what is laid out ahead ---------------------------------------------------------------------


def test_a_variable_may_not_depend_on_who_was_last() -> None:
    """A position that the body moves on has no value behind it, unless nobody asks."""
    p = Var("p")
    steps = kir.ForLoop(t, p, (kir.BlockSync(0, 64),))
    moved = last(kir.Assign(p, p + 1), kir.ForLoop(t, p, ()), *SUM, OUT, of=PAIR)
    assert not grid_kinds(ctas_of(kir.Let(p, 1), PUT, moved), 2)
    assert verdict(ctas_of(kir.Let(p, 1), PUT, moved, steps), 2).status is Status.UNSUPPORTED
    assert not grid_kinds(ctas_of(kir.Let(p, 1), PUT, moved, steps), 1)


def test_a_copy_of_a_skipped_body_is_not_waited_for() -> None:
    """At the end of a CTA only what it has issued must be over."""
    assert not grid_kinds(by_engine("put last", "fetch here take out"), 2)
    assert grid_kinds(by_engine("put last", "fetch get out"), 2) == {"exit"}


@pytest.mark.parametrize(
    ("keep", "inside", "status"),
    [
        (0, "get restage fence join give", Status.PASS),
        (1, "get restage fence join give", Status.UNSUPPORTED),
        (1, "get out", Status.PASS),
    ],
)
def test_groups_may_not_depend_on_who_was_last(keep: int, inside: str, status: Status) -> None:
    """An await that keeps groups counts them; one that keeps none waits for whatever there is."""
    made = by_engine("put last", inside)
    made = replace(made, body=(*made.body, elect(kir.AsyncAwait(BULK, keep))))
    assert verdict(made, 2).status is status


def test_registers_of_the_body_are_the_last_ctas() -> None:
    """Behind it the others have none, unless they are written again."""
    summed, again = last(*SUM, OUT, of=PAIR), load(TOTAL, box(XS, 0))
    uses = kir.Compute(MORE, "add", (TOTAL, TOTAL))
    assert grid_kinds(ctas_of(PUT, summed, uses), 2) == {"RAW"}
    assert not grid_kinds(ctas_of(PUT, summed, again, uses), 2)
    assert not grid_kinds(ctas_of(PUT, again, summed, uses), 2)
    assert not grid_kinds(ctas_of(PUT, summed, uses), 1)


def test_registers_are_not_given_back_in_the_body() -> None:
    """How many there are behind it would depend on who was last."""
    put = kir.Role("put", 0, 2, (load(MINE, box(XS, kir.BLOCK)), PUT))
    adds = kir.Role("sum", 0, 2, (*SUM, OUT))
    give = kir.SetMaxNReg(24, increase=False)
    made = grid((put, last(adds)), (XS, WS, Y1))
    assert not grid_kinds(replace(made, threads=128), 2)
    made = grid((put, last(give, adds)), (XS, WS, Y1))
    found = verdict(replace(made, threads=128, registers=80), 2)
    assert found.status is Status.UNSUPPORTED, found


def test_a_copy_in_flight_is_not_told_of() -> None:
    """Whoever is the last reads what its engine, or that of another CTA, may still write."""
    assert grid_kinds(by_engine(f"{SENT} read last", "get out"), 2) & {"drain", "RAW"}
    assert not grid_kinds(by_engine(f"{SENT} join drain join last", "get out"), 2)
