"""Groups of CTAs that walk from tile to tile: every tile has a semaphore and a box of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import box, elect, fragment, kernel, load, m, s, store, t, tensor
from litmus.walks import NUMBER, TURN, TURNS, groups, meetings, tile, turnstiles

from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.ctas import group_of
from oracles.prover.reachability.rules import Rule

n = Var("n")


def kinds(closed: fixpoint.Closed) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in closed.violations}


@pytest.mark.parametrize("made", [turnstiles(), meetings()], ids=["turns", "meetings"])
def test_a_group_walks_over_every_nth_tile(made: kir.Kernel) -> None:
    """Its number is where it begins; its index says how it goes on."""
    group = group_of(made)
    assert (group.number, group.place, group.count) == (NUMBER, TURN, s)
    assert group.index == NUMBER + t * groups
    assert group.walk == t
    closed = fixpoint.judge(made)
    assert not closed.violations
    assert not closed.reason


def stepping(step: Expr, *conditions: Expr) -> kir.Kernel:
    """Return the turnstiles with semaphores that are so many steps apart."""

    def moved(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Let(var) if var == tile:
                return [kir.Let(tile, NUMBER + step)]
            case _:
                return None

    made = turnstiles().rewrite(moved)
    params = (*made.params, n)
    return replace(made, params=params, requires=(*made.requires, *conditions))


@pytest.mark.parametrize(
    "step", [t, t * 2, t * n, t * (groups + 1), t * t * groups, (t % 2) * groups, t * NUMBER]
)
def test_steps_that_may_meet_other_families_are_not_answered(step: Expr) -> None:
    """Only steps of as many integers as there are families keep these apart."""
    with pytest.raises(UnsupportedError):
        fixpoint.judge(stepping(step, n >= 1))


def test_how_many_families_there_are_has_to_be_said() -> None:
    """Without a grid of so many groups the walk of one may cross that of another."""
    made = turnstiles()
    free = replace(made, requires=(s >= 1, groups >= 1, eq(kir.GRID % s, 0)))
    with pytest.raises(UnsupportedError):
        fixpoint.judge(free)


def two_ctas(work: Expr, index: Expr, stop: Expr = m) -> kir.Kernel:
    """In every iteration one of two CTAs stores a tile that the other one loads."""
    x, y, w = tensor("X", m), tensor("Y", m), tensor("W", m)
    turns, frag = kir.Semaphore("turns", m), fragment("x", 64)
    body = (
        kir.BlockSerializeWait(turns, index, kir.BLOCK),
        kir.IfThenElse(
            eq(kir.BLOCK, 0),
            (load(frag, box(x, t)), store(box(w, work), frag)),
            (load(frag, box(w, work)), store(box(y, t), frag)),
        ),
        kir.BlockSync(0, 64),
        elect(kir.BlockSerializeRelease(turns, index, (kir.BLOCK + 1) % 2)),
    )
    made = kernel(
        (kir.ForLoop(t, stop, body),),
        threads=64,
        tensors=(x, y, w),
        workspaces=("W",),
        params=(m,),
        requires=(eq(kir.GRID, 2), m >= 1),
    )
    return replace(made, semaphores=(turns,), residency="ticket")


def test_who_waits_at_another_integer_waits_for_nobody() -> None:
    """The turn of the next tile is 0 from the start: it does not tell that this one is over."""
    assert not fixpoint.judge(two_ctas(t, t)).violations
    assert kinds(fixpoint.judge(two_ctas(0, t))) == {"WAR"}


def test_an_index_that_is_no_number_is_not_answered() -> None:
    """In turn 0 all CTAs of a small grid may mean one integer, or another in every launch."""
    with pytest.raises(UnsupportedError, match="which integers are different"):
        fixpoint.judge(two_ctas(t, t * m))


def test_a_tile_that_nobody_has_stored_is_not_loaded() -> None:
    """That the one before was stored says nothing of this one."""
    first = kir.IfThenElse(eq(t, 0), (store(box(tensor("W", m), t), fragment("x", 64)),))

    def once(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Box(of)) if of.name == "W":
                return [first]
            case _:
                return None

    closed = fixpoint.judge(two_ctas(t, t).rewrite(once))
    assert {v.rule for v in closed.violations} == {Rule.WRITTEN}


def test_an_access_behind_others_is_no_proof() -> None:
    """A CTA that reaches a tile when others have left it may be compared with too little.

    The second CTA loads in turn t what the first one stores, and waits for its turn t + 1.
    """
    later = replace(two_ctas(t, t), name="later")

    def delayed(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.BlockSerializeWait(turns, index, turn):
                wait = kir.BlockSerializeWait(turns, index + kir.BLOCK, turn)
                return [kir.IfThenElse(kir.BLOCK + t < m, (wait,))]
            case _:
                return None

    closed = fixpoint.judge(later.rewrite(delayed))
    assert closed.violations or closed.reason


def test_ctas_that_meet_at_different_integers_wait_for_ever() -> None:
    """One of a group is a tile ahead of the others."""
    made = meetings("get put maybe_meet sum out")
    ahead = kir.GridSync(TURNS, NUMBER + (t + 1) * groups, s)

    def skip(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.GridSync():
                return [kir.IfThenElse(eq(TURN, 0), (ahead,), (stmt,))]
            case _:
                return None

    with pytest.raises(UnsupportedError):
        fixpoint.judge(made.rewrite(skip))


def test_a_loop_that_ends_early_for_one_cta_leaves_the_others_waiting() -> None:
    """Trip counts that depend on a CTA's place are followed for each of them."""
    made = turnstiles()
    (loop,) = made.body
    assert isinstance(loop, kir.ForLoop)
    short = replace(loop, stop=ceildiv(m - NUMBER, groups) - TURN)
    assert kinds(fixpoint.judge(replace(made, body=(short,)))) & {"deadlock", "semaphore"}
