"""Reachable states: right recipes are proved, and each of their syncs is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from litmus.parts import (
    BULK,
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
)
from litmus.suite import by_name
from sample import some

from fuser.cookbook import recipes
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from oracles.prover import prove
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.fixpoint import Closed, judge, showing
from oracles.prover.reachability.rules import Rule
from oracles.verdict import Status

PROVED = {name: make for name, make in recipes.RECIPES.items() if name != "ping_pong"}
"""`ping_pong` has thousands of states, which takes too long here."""


def kinds(closed: Closed) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in closed.violations}


@pytest.mark.parametrize("name", PROVED)
def test_recipes_close(name: str) -> None:
    """Every state of a right kernel is seen, and nothing is wrong in any."""
    closed = judge(PROVED[name]())
    assert not closed.violations
    assert not closed.reason
    assert closed.checked > closed.states > 0


def without(kernel: kir.Kernel, victim: int) -> kir.Kernel:
    """Return a kernel less its statement number `victim`, in the order of its text."""
    counter = iter(range(len(numbered(kernel))))

    def body(stmts: tuple[kir.Stmt, ...]) -> Iterator[kir.Stmt]:
        for stmt in stmts:
            number = next(counter)
            match stmt:
                case kir.ForLoop() | kir.Role() | kir.Elect():
                    yield replace(stmt, body=tuple(body(stmt.body)))
                case kir.IfThenElse():
                    then = tuple(body(stmt.then))
                    yield replace(stmt, then=then, orelse=tuple(body(stmt.orelse)))
                case _ if number != victim:
                    yield stmt
                case _:
                    pass

    return replace(kernel, body=tuple(body(kernel.body)))


FREE = (kir.FenceMBarrierInit,)
"""Syncs that a kernel of one CTA does not need."""


@pytest.mark.parametrize("name", some(tuple(PROVED), *[*PROVED][::2]))
def test_every_sync_of_a_recipe_is_needed(name: str) -> None:
    """Drop one at a time; only a fence for other CTAs may go, where there are none.

    In `split_k_tma` the thread that releases the turn is the one that has awaited its bulk writes,
    and nobody writes what the last turn's threads may still read: the last barrier may go.
    Without the barrier before it, one arrival for a warpgroup is worth a warning only, and so is a
    fence between ordinary reads and a refill.
    """
    kernel = PROVED[name]()
    for number, (_, stmt) in enumerate(numbered(kernel)):
        if isinstance(stmt, kir.SYNCS):
            closed = judge(without(kernel, number))
            spare = isinstance(stmt, FREE) and kernel.cluster == 1
            spare = spare or (name == "split_k_tma" and number == len(numbered(kernel)) - 3)
            missed = closed.violations or any(
                v.rule in (Rule.WAR, Rule.PROXY_READ) for v in closed.warnings
            )
            assert bool(missed) != spare, line(stmt)


@pytest.mark.parametrize(
    ("dropped", "kind"),
    [
        (kir.WgmmaFence, "fence"),
        (kir.FenceAsyncProxy, "proxy"),
        (kir.BlockSerializeRelease, "deadlock"),
        (kir.BlockSerializeWait, "RAW"),
    ],
)
def test_the_kind_says_what_is_missing(dropped: type, kind: str) -> None:
    """A reader acts on the kind."""
    kernel = recipes.split_k_tma()
    assert kind in kinds(judge(kernel.rewrite(lambda s: [] if isinstance(s, dropped) else None)))


def test_a_release_before_the_bulk_writes_are_done_is_a_drain() -> None:
    """`.read` says that the source may be reused, not that the result is there."""

    def weaker(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.AsyncAwait(kir.AsyncKind.BULK):
                return [replace(stmt, read_only=True)]
            case _:
                return None

    assert "drain" in kinds(judge(recipes.split_k_tma().rewrite(weaker)))


def test_a_relaxed_release_needs_a_fence() -> None:
    """A relaxed store of the turn orders nothing by itself."""

    def relaxed(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        return (
            [replace(stmt, relaxed=True)] if isinstance(stmt, kir.BlockSerializeRelease) else None
        )

    def fenced(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.BlockSerializeRelease):
            return [kir.ThreadFence(kir.Scope.GPU), replace(stmt, relaxed=True)]
        return None

    assert kinds(judge(recipes.split_k().rewrite(relaxed))) == {"scope"}
    assert not judge(recipes.split_k().rewrite(fenced)).violations


def test_turns_need_ctas_that_run() -> None:
    """Nothing says that the CTA of the turn before is ever started."""
    assert "residency" in kinds(judge(replace(recipes.split_k(), residency="any")))


@pytest.mark.parametrize("stages", range(2, 9))
def test_states_grow_with_the_ring_and_no_faster(stages: int) -> None:
    """Positions of a ring are distinguished modulo two rounds; trip counts are not."""
    assert judge(recipes.specialized_ring(stages)).states <= 8 * stages
    assert judge(recipes.wgmma_ring(stages)).states <= 8 * stages


def test_a_guard_that_holds_only_late_is_seen() -> None:
    """From iteration 40 on the producer does not wait."""
    kernel = recipes.specialized_ring(3)
    waits = [s for s in kernel.walk() if isinstance(s, kir.MBarrierWaitParity)]
    loop = next(s for s in kernel.walk() if isinstance(s, kir.ForLoop))

    def skip(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if stmt is not waits[-1]:
            return None
        return [kir.IfThenElse(loop.index < 40, (stmt,))]

    closed = judge(kernel.rewrite(skip))
    assert closed.violations
    assert min(v.trips for v in closed.violations) > 40


def test_lanes_that_do_not_meet_may_be_lapped() -> None:
    """With no steps, lanes 1 to 31 may reach their first wait two phases late."""
    apart = recipes.ping_pong().rewrite(lambda s: [] if isinstance(s, kir.WarpSync) else None)
    assert kinds(judge(apart)) == {"parity"}


def test_the_first_arrival_must_not_be_the_peers_of_the_next_phase() -> None:
    """A CTA that frees the other's slot first may be a turn ahead of the other's own threads."""

    def peer_first(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierArrive(_, _, _, cta) if cta is not None:
                return [replace(stmt, cta=1 - cta)]
            case _:
                return None

    assert kinds(judge(recipes.cluster_multicast().rewrite(peer_first))) == {"parity"}


def test_a_handshake_across_ctas_needs_cluster_scope() -> None:
    """A release or an acquire at cta scope says nothing to the peer."""

    def narrow(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierWaitParity():
                return [replace(stmt, scope=kir.Scope.CTA)]
            case _:
                return None

    assert kinds(judge(recipes.cluster_multicast().rewrite(narrow))) == {"scope", "parity"}


@pytest.mark.parametrize(
    "rule", [Rule.WAIT_ACQUIRES, Rule.SYNC_JOINS, Rule.AWAIT_ORDERS, Rule.FENCE_ORDERS]
)
def test_an_axiom_taken_away_is_missed(rule: Rule) -> None:
    """A right kernel is not proved by less than what it relies on."""
    assert judge(recipes.persistent(2), without=frozenset({rule})).violations


def test_an_obligation_taken_away_is_not_asked() -> None:
    """Without it, the broken kernel goes through: nothing else asks the same."""
    broken = recipes.store_ring().rewrite(
        lambda s: [] if isinstance(s, kir.FenceAsyncProxy) else None
    )
    assert kinds(judge(broken)) == {"proxy"}
    assert not judge(broken, without=frozenset({Rule.PROXY})).violations


def test_what_does_not_repeat_is_refused() -> None:
    """No state can be compared with another if a guard never repeats."""
    kernel = recipes.store_ring()
    loop = next(s for s in kernel.walk() if isinstance(s, kir.ForLoop))
    odd = kir.IfThenElse(loop.index * loop.index % 7 < 3, (kir.BlockSync(0, 128),))
    changed = replace(loop, body=(odd, *loop.body))
    with pytest.raises(UnsupportedError, match="does not repeat"):
        judge(kernel.rewrite(lambda s: [changed] if s is loop else None))


def test_a_value_that_a_role_names_in_its_loop_is_no_loop_of_others() -> None:
    """Threads outside the role walked its loop for the name alone, and lost count of their own."""

    def named(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.ForLoop) and stmt.index.name == "k":
            return [replace(stmt, body=(kir.Let(Var("at"), stmt.index * 16), *stmt.body))]
        return None

    def by_the_load_role(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.Role) and stmt.name == "load":
            return [replace(stmt, body=kir.rewrite(stmt.body, named))]
        return None

    made = compiled(linear(bias=False), hopper("cooperative", 3, 2, persistent=True))
    changed = made.rewrite(by_the_load_role)
    assert changed != made
    assert prove.prove(changed).status is Status.PASS


# --- what may be left when threads are gone: nothing in flight, no barrier half reached -----------


TILE = fragment("x")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))


def test_an_arrival_that_no_barrier_takes_is_an_error() -> None:
    """A named barrier with threads on it at the end was meant to be met."""
    alone = single((kir.NamedArrive(1, 64), *COPY), threads=32)
    assert kinds(judge(alone)) == {"collective"}
    assert not kinds(judge(alone, without=frozenset({Rule.SYNC_COUNT})))


def test_an_arrival_that_is_met_is_none() -> None:
    """The same arrival, with a warp that waits for it."""
    body: Body = (
        kir.Role("gives", 0, 1, (kir.NamedArrive(1, 64), *COPY)),
        kir.Role("takes", 1, 1, (kir.BlockSync(1, 64),)),
    )
    assert not kinds(judge(single(body, threads=64)))


def test_an_arrival_too_many_shows_at_the_trip_count_that_leaves_it() -> None:
    """The giver arrives in each generation, the taker waits in all but the last."""
    given = kir.NamedArrive(1, 64), kir.BlockSync(2, 64)
    body: Body = (
        kir.Role("gives", 0, 1, (kir.ForLoop(k, n, given),)),
        kir.Role(
            "takes",
            1,
            1,
            (
                kir.ForLoop(
                    k, n, (kir.IfThenElse(k + 1 < n, (kir.BlockSync(1, 64),)), kir.BlockSync(2, 64))
                ),
            ),
        ),
        *COPY,
    )
    made = kernel(body, threads=64, tensors=(X1, Y1))
    assert "collective" in kinds(judge(made))


def test_groups_of_threads_that_never_wait_do_not_pile_up() -> None:
    """All threads commit, one waits: the others' empty groups are as good as none."""
    ring = slots("S")
    step: Body = (
        load(TILE, box(XN, k)),
        store(kir.Slot(ring, 0), TILE),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.BlockSync(0, 32),
        elect(kir.TmaStore(box(YN, k), kir.Slot(ring, 0))),
        kir.AsyncCommit(BULK),
        elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        kir.BlockSync(0, 32),
    )
    closed = judge(kernel((kir.ForLoop(k, n, step),), buffers=(ring,)))
    assert not kinds(closed)
    assert not closed.reason
    assert closed.states < 10


# --- refutations are shown by a launch, or they are none ------------------------------------------


BAR = kir.MBarrier("bar", 1, 1)


def stuck_if(condition: Expr, *requires: Expr) -> kir.Kernel:
    """Wait forever where a condition holds."""
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(BAR),)),
        kir.BlockSync(0, 32),
        kir.IfThenElse(condition, (kir.MBarrierWaitParity(BAR, 0, 0),)),
        *COPY,
    )
    made = kernel(body, barriers=(BAR,), tensors=(X1, Y1))
    return replace(made, requires=(*made.requires, *requires))


def test_a_launch_that_meets_the_condition_is_found() -> None:
    """The parameters are part of the launch that shows it."""
    found = showing(stuck_if(eq(n, 3)), 3, policy="default")
    assert found is not None
    assert found.params == {"n": 3}
    assert prove.prove(stuck_if(eq(n, 3))).status is Status.FAIL


def test_a_condition_that_no_launch_meets_refutes_nothing() -> None:
    """What is required of launches excludes it; the states do not know, the cases do."""
    never = stuck_if(eq(n % 2, 1), eq(n % 4, 0))
    assert judge(never).violations
    assert showing(never, 0, policy="default") is None
    assert prove.prove(never).status is Status.PASS
    assert prove.prove(stuck_if(eq(n % 2, 1), eq(n % 3, 0))).status is Status.FAIL


def test_extents_that_are_multiples_of_a_parameter_have_launches() -> None:
    """`16 * n` elements are aligned to 8 for every n."""
    one = by_name("accumulator_read_in_flight").kernel
    assert isinstance(one, kir.Kernel)
    found = showing(one, 1, policy="default")
    assert found is not None
    assert found.params == {"n": 1}


def test_loops_of_different_length_under_one_name_have_launches() -> None:
    """One loop has a trip less than the other, and both are called k."""
    verdict = prove.prove(by_name("ring_last_load_left_out").kernel)
    assert verdict.status is Status.FAIL
    assert {f.kind for f in verdict.findings} & {"deadlock", "arrivals"}


def test_a_loop_with_a_round_more_than_its_count_has_launches() -> None:
    """What goes wrong in round 40 of `n + 1` needs an `n` of 40, and 41 rounds."""
    late = kir.IfThenElse(k >= 40, (kir.MBarrierWaitParity(BAR, 0, 0),))
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(BAR),)),
        kir.BlockSync(0, 32),
        kir.ForLoop(k, n + 1, (late,)),
        *COPY,
    )
    made = kernel(body, barriers=(BAR,), tensors=(X1, Y1))
    found = showing(made, 40, policy="default")
    assert found is not None
    assert found.trips == {"k": 41}


def test_ctas_of_a_cluster_are_told_apart_by_their_block() -> None:
    """`BLOCK` is another number in each CTA of a cluster, not one for all."""
    bar = kir.MBarrier("bar", 1, 1)
    tile = fragment("x")
    own = kir.IfThenElse(
        eq(kir.BLOCK % 2, 0),
        (kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(bar, 0),)),),
    )
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar),)),
        kir.BlockSync(0, 32),
        own,
        kir.MBarrierWaitParity(bar, 0, 0),
        load(tile, box(X1)),
    )
    made = replace(kernel(body, barriers=(bar,), tensors=(X1, Y1)), outputs=(), cluster=2)
    made = replace(made, requires=(eq(kir.GRID, 2),))
    assert prove.prove(made).status is Status.FAIL


def test_a_number_without_a_value_is_not_followed() -> None:
    """A statement moved out of its loop asks for an index that no thread has there."""
    with pytest.raises(UnsupportedError, match="k has no value here"):
        judge(stuck_if(k < 1))


def test_a_launch_that_divides_by_nothing_is_passed_over() -> None:
    """Without tiles a tile has no number; launches with tiles show what goes wrong."""
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(BAR),)),
        kir.BlockSync(0, 32),
        kir.ForLoop(k, n, (kir.IfThenElse(eq(k // n, 0), (kir.MBarrierWaitParity(BAR, 0, 0),)),)),
        *COPY,
    )
    found = showing(kernel(body, barriers=(BAR,), tensors=(X1, Y1)), 0, policy="default")
    assert found is not None
    assert found.params == {"n": 1}


def test_a_dependent_kernel_without_statements_is_left_open() -> None:
    """Nobody waits for the launches before, and there is no line to show."""
    closed = judge(replace(kernel((), tensors=(), params=()), dependent=True))
    assert closed.reason.endswith("nothing is executed, so nobody waits for the launches before")
