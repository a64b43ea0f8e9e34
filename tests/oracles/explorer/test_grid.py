"""CTAs at an integer of a semaphore: every one of them as the last to come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from arrived import MINE, MORE, OUT, PUT, SUM, TOTAL, by_role, by_roles, ctas_of
from litmus.arrivals import LITMUS, PAIR, arriving, by_engine, last
from litmus.meetings import SENT, WS
from litmus.parts import BULK, Y1, Litmus, box, elect, load, s, t
from litmus.turnstiles import SHARES, XS, grid

from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from oracles.explorer.explore import Launch, Rule, explore
from oracles.verdict import Status, Verdict

GONE_THROUGH = [one for one in LITMUS if isinstance(one.kernel, kir.Kernel) and not one.refused]


def verdict(kernel: kir.Kernel, ctas: int = 3, *, reduce: bool = True) -> Verdict:
    """Explore a launch of so many CTAs."""
    return explore(kernel, Launch(ctas, {"s": ctas}), reduce=reduce, states=20_000)


def kinds(kernel: kir.Kernel, ctas: int = 3, *, reduce: bool = True) -> set[str]:
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
    assert not kinds(ctas_of(PUT, forgets(eq(kir.BLOCK, 5))), 2, reduce=reduce)
    assert kinds(ctas_of(PUT, forgets(eq(kir.BLOCK, who))), 2, reduce=reduce) == {"coverage"}


def test_a_cta_that_cannot_be_the_last_is_not() -> None:
    """By turns at another integer CTA 2 comes behind all others."""
    following = elect(kir.BlockSerializeRelease(PAIR, 1, (kir.BLOCK + 1) % s))
    turn = kir.BlockSerializeWait(PAIR, 1, kir.BLOCK)
    behind = kir.IfThenElse(eq(kir.BLOCK, 2), (turn, following), ())
    first = kir.IfThenElse(eq(kir.BLOCK, 2), (), (turn, kir.BlockSync(0, 64), following))
    wrong = forgets(s > kir.BLOCK + 1)
    known = ctas_of(PUT, turn, kir.BlockSync(0, 64), wrong, kir.BlockSync(0, 64), following)
    assert not kinds(known)
    early = ctas_of(PUT, first, behind, wrong)
    assert kinds(early) == {"coverage"}  # those before may come when they have given the turn away


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
    assert not kinds(ctas_of(*twice), 2)
    assert kinds(ctas_of(*twice[:2], *twice[3:]), 2) == {"semaphore"}
    assert not kinds(ctas_of(*twice[:2], *twice[3:]), 1)


def test_the_last_of_groups_comes_again_for_all() -> None:
    """Only the last of each group arrives at the third integer."""
    many = kir.Semaphore("turns", 3)
    inner = kir.LastArriving(many, 2, 2, (*SUM, OUT))
    nested = ctas_of(PUT, kir.LastArriving(many, kir.BLOCK // 2, 2, (inner,)), integers=3)
    assert not kinds(replace(nested, residency="any"), 4)
    three = nested.rewrite(lambda stmt: [replace(inner, ctas=3)] if stmt is inner else None)
    assert kinds(three, 4) == {"semaphore"}
    one = nested.rewrite(lambda stmt: [replace(inner, ctas=1)] if stmt is inner else None)
    assert kinds(one, 4) & {"semaphore", "RAW"}


@pytest.mark.parametrize("other", ["grid", "wait", "release"])
def test_an_integer_that_elects_does_nothing_else(other: str) -> None:
    """CTAs that meet, and turns, would count in the same integer."""
    others: dict[str, kir.Stmt] = {
        "grid": kir.GridSync(PAIR, 0, s),
        "wait": kir.BlockSerializeWait(PAIR, 0, 0),
        "release": elect(kir.BlockSerializeRelease(PAIR, 0, 0)),
    }
    elected = last(*SUM, OUT, of=PAIR)
    assert kinds(ctas_of(PUT, elected, others[other])) == {"semaphore"}
    assert kinds(ctas_of(PUT, others[other], elected)) == {"semaphore"}


def test_nobody_is_the_last_of_none() -> None:
    """The real counter would never wrap."""
    assert kinds(arriving(ctas=s - 3)) == {"semaphore"}


def test_the_same_role_of_every_cta_comes() -> None:
    """CTA 0 by its first two warps, the others by their last two."""
    made = by_roles()
    assert kinds(made, ctas=2) == {"collective"}
    assert not kinds(made, ctas=1)
    assert not kinds(replace(made, body=(by_role(2),)), ctas=2)


def test_single_lanes_cannot_come() -> None:
    """All threads of the role ask."""
    assert kinds(arriving("put alone")) == {"collective"}


# --- what is laid out ahead ---------------------------------------------------------------------


def test_a_variable_may_not_depend_on_who_was_last() -> None:
    """A position that the body moves on has no value behind it, unless nobody asks."""
    p = Var("p")
    steps = kir.ForLoop(t, p, (kir.BlockSync(0, 64),))
    moved = last(kir.Assign(p, p + 1), kir.ForLoop(t, p, ()), *SUM, OUT, of=PAIR)
    assert not kinds(ctas_of(kir.Let(p, 1), PUT, moved), 2)
    assert verdict(ctas_of(kir.Let(p, 1), PUT, moved, steps), 2).status is Status.UNSUPPORTED
    assert not kinds(ctas_of(kir.Let(p, 1), PUT, moved, steps), 1)


def test_a_copy_of_a_skipped_body_is_not_waited_for() -> None:
    """At the end of a CTA only what it has issued must be over."""
    assert not kinds(by_engine("put last", "fetch here take out"), 2)
    assert kinds(by_engine("put last", "fetch get out"), 2) == {"exit"}


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
    assert kinds(ctas_of(PUT, summed, uses), 2) == {"RAW"}
    assert not kinds(ctas_of(PUT, summed, again, uses), 2)
    assert not kinds(ctas_of(PUT, again, summed, uses), 2)
    assert not kinds(ctas_of(PUT, summed, uses), 1)


def test_registers_are_not_given_back_in_the_body() -> None:
    """How many there are behind it would depend on who was last."""
    put = kir.Role("put", 0, 2, (load(MINE, box(XS, kir.BLOCK)), PUT))
    adds = kir.Role("sum", 0, 2, (*SUM, OUT))
    give = kir.SetMaxNReg(24, increase=False)
    made = grid((put, last(adds)), (XS, WS, Y1))
    assert not kinds(replace(made, threads=128), 2)
    made = grid((put, last(give, adds)), (XS, WS, Y1))
    found = verdict(replace(made, threads=128, registers=80), 2)
    assert found.status is Status.UNSUPPORTED, found


def test_a_copy_in_flight_is_not_told_of() -> None:
    """Whoever is the last reads what its engine, or that of another CTA, may still write."""
    assert kinds(by_engine(f"{SENT} read last", "get out"), 2) & {"drain", "RAW"}
    assert not kinds(by_engine(f"{SENT} join drain join last", "get out"), 2)
