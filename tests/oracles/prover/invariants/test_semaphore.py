"""Tests of CTAs that take turns: proved for all turns at once, and never where one is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import elect
from litmus.rules_turns import shared, turns
from litmus.turnstiles import RELEASE, TURNS, by_engine, turnstile

from fuser.cookbook import recipes
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import K, N
from oracles.prover.invariants.check import RLIMIT, confirm
from oracles.prover.invariants.semaphore import TILE, alone, split
from oracles.prover.invariants.trace import Axiom, Obligation, Rule
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status

s, t = Var("s"), Var("t")


def fenced(*, behind: bool, alone: bool) -> kir.Kernel:
    """Return turns of engines whose sources are fenced behind the wait, or by one thread."""
    made = by_engine()
    at = next(i for i, s in enumerate(made.body) if isinstance(s, kir.BlockSerializeWait))
    wait, fence = made.body[at], made.body[at - 1]
    fence = elect(fence) if alone else fence
    both = (wait, fence) if behind else (fence, wait)
    return replace(made, body=(*made.body[: at - 1], *both, *made.body[at + 1 :]))


RIGHT = {
    "split_k": recipes.split_k(),
    "split_k with four stages": recipes.split_k(4),
    "split_k_tma": recipes.split_k_tma(),
    "one tile": turnstile(),
    "by engine": by_engine(),
    "several tiles": shared(),
    "a relaxed release behind a fence": turnstile("turn add join fenced"),
    "sources fenced behind the wait": fenced(behind=True, alone=False),
    "sources fenced by who sends them": fenced(behind=True, alone=True),
}
WRONG: dict[str, tuple[kir.Kernel, Rule | None]] = {
    "nothing collects the writers": (turnstile("turn add release"), None),
    "collected behind the release": (turnstile("turn add release join"), None),
    "a relaxed release": (turnstile("turn add join relaxed"), None),
    "a fence behind a relaxed release": (turnstile("turn add join fenced_late"), None),
    "a fence of the CTA": (turnstile("turn add join fenced_cta"), None),
    "a release of the CTA": (turnstile("turn add join narrow"), None),
    "a wait of the CTA": (turnstile("turn_cta add join release"), None),
    "added before the turn": (turnstile("add turn join release"), None),
    "nobody waits, and nobody shares": (
        turns(elect(kir.BlockSerializeRelease(TURNS, 0, 0))),
        Obligation.TURNS,
    ),
    "nobody waits": (turnstile("add join release"), None),
    "nobody releases": (turnstile("turn add join"), None),
    "the same turn again": (turnstile(to=kir.BLOCK), None),
    "left at the number of turns": (turnstile(to=kir.BLOCK + 1), Obligation.CLEAN),
    "CTAs that may never run": (turnstile(residency="any"), Obligation.RESIDENT),
    "sources read, sums not there": (by_engine("store commit read"), None),
    "reduced without a fence": (by_engine(later="add commit done"), Obligation.REMOTE),
    "a fence of shared memory": (
        by_engine(later="fence_shared add commit done"),
        Obligation.REMOTE,
    ),
    "a fence behind the reduction": (by_engine(later="add fence commit done"), Obligation.REMOTE),
    "never committed": (by_engine("store done"), None),
    "one thread fences before the others have met it": (
        fenced(behind=False, alone=True),
        Obligation.PROXY,
    ),
    "all tiles in one place": (shared(part=0), Obligation.APART),
}
"""Wrong kernels, with the one rule that sees it, where there is one."""


def status(kernel: kir.Kernel, *without: Rule) -> Status:
    """Return what z3 says without some rules."""
    return confirm(kernel, rlimit=RLIMIT, without=frozenset(without)).status


@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
def test_right_turns_are_proved(kernel: kir.Kernel) -> None:
    """For any number of CTAs, and any number of tiles; not without what a wait acquires."""
    assert confirm(kernel).checked > 10
    assert status(kernel) is Status.PASS
    assert status(kernel, Axiom.TAKEN) is not Status.PASS


@pytest.mark.parametrize(("kernel", "rule"), WRONG.values(), ids=WRONG)
def test_wrong_turns_are_not(kernel: kir.Kernel, rule: Rule | None) -> None:
    """Each is refuted by the other engine too, but the last one, which that leaves open."""
    closed = fixpoint.judge(kernel)
    assert closed.violations or closed.reason
    assert status(kernel) is not Status.PASS
    assert rule is None or status(kernel, rule) is Status.PASS


def test_a_turn_is_a_number_of_all_turns() -> None:
    """Expressions of the launch become the turn `K` of `N`, and the tile."""
    parts = split(recipes.split_k(), frozenset())
    assert parts is not None
    splits = Var("splits")
    assert parts.sharing.plain(kir.BLOCK // splits) == TILE
    assert parts.sharing.plain((Var("turn") + 1) % splits) == (K + 1) % N
    assert not any(isinstance(stmt, kir.ForLoop) for stmt in parts.turn.walk())
    assert not any(isinstance(stmt, kir.BlockSerializeWait) for stmt in parts.rest.walk())


def test_tiles_may_lie_beside_each_other() -> None:
    """Whichever way CTAs are dealt to tiles: each pair of tile and turn is one CTA."""

    def crosswise(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.BlockSerializeWait():
                return [replace(stmt, index=kir.BLOCK % t, turn=kir.BLOCK // t)]
            case kir.BlockSerializeRelease():
                return [replace(stmt, index=kir.BLOCK % t)]
            case _:
                return None

    parts = split(shared().rewrite(crosswise), frozenset())
    assert parts is not None
    assert (parts.sharing.tiles, parts.sharing.turns) == (t, s)
    assert parts.sharing.plain(kir.BLOCK // t + 1) == K + 1


def test_boxes_tell_semaphores_apart_or_do_not() -> None:
    """A box of the tile's own does, for all extents; one that tiles share does not."""
    parts = split(shared(), frozenset())
    assert parts is not None
    (own,) = {
        s.src
        for s in parts.turn.walk()
        if isinstance(s, kir.Load) and isinstance(s.src, kir.Box) and s.src.tensor.name == "W"
    }
    assert alone(parts, own)
    assert not alone(parts, replace(own, origin=(0, 0)))


@pytest.mark.parametrize(
    ("turn", "says"),
    [((s - 1) - kir.BLOCK, "which CTAs share them"), (kir.BLOCK % 3, "which CTAs share them")],
)
def test_turns_of_unknown_ctas_are_unsupported(turn: Expr, says: str) -> None:
    """Else a turn might be nobody's."""
    verdict = confirm(turnstile(turn=turn, to=0))
    assert verdict.status is Status.UNSUPPORTED
    assert says in verdict.reason


def test_what_only_some_turns_do_is_asked_of_those() -> None:
    """The last turn's reads need no barrier before its release; a first turn's do."""
    kernel = recipes.split_k_tma()
    last = [i for i, stmt in enumerate(kernel.body) if stmt == kir.BlockSync(0, 128)][-1]
    assert status(replace(kernel, body=(*kernel.body[:last], *kernel.body[last + 1 :]))) is (
        Status.PASS
    )
    first = kir.IfThenElse(eq(kir.BLOCK, 0), (), (kir.BlockSync(0, 64),))
    assert status(turnstile(RELEASE.replace("join", "maybe"), maybe=first)) is not Status.PASS
