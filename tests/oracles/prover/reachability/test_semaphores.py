"""CTAs that take turns: who shares a semaphore, what a turn knows, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import fragment, load, slots, store
from litmus.sums import reversed_turns
from litmus.turnstiles import TURNS, by_engine, turnstile

from fuser.cookbook import recipes
from fuser.expr import Var, eq
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability.ctas import MANY, group_of, largest, readings
from oracles.prover.reachability.fixpoint import Closed, judge
from oracles.prover.reachability.rules import Rule

s, t = Var("s"), Var("t")
WAIT = kir.BlockSerializeWait


def kinds(closed: Closed) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in closed.violations}


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
