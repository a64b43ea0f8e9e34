"""Statements: registers that warpgroups give back and take, and products that they share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.parts import X1, XN, Y1, YN, Body, box, fragment, k, kernel, load, n, single, store
from litmus.suite import by_name

from fuser.kernel import ir as kir
from oracles.prover.reachability.fixpoint import judge
from oracles.prover.reachability.rules import Rule

TILE = fragment("x", 128)
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))


def less(registers: int) -> kir.Stmt:
    """Give registers back."""
    return kir.SetMaxNReg(registers, increase=False)


def more(registers: int) -> kir.Stmt:
    """Take registers."""
    return kir.SetMaxNReg(registers, increase=True)


def meet(number: int) -> kir.Stmt:
    """Meet another warpgroup."""
    return kir.BlockSync(number, 256)


def groups(*roles: Body) -> kir.Kernel:
    """Return warpgroups that do this each, with 128 registers a thread at launch."""
    body = tuple(kir.Role(f"r{i}", 4 * i, 4, words) for i, words in enumerate(roles))
    made = single(
        (*body[:-1], replace(body[-1], body=(*body[-1].body, *COPY))), threads=128 * len(roles)
    )
    return replace(made, registers=128)


def kinds(made: kir.Kernel, *without: Rule) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in judge(made, without=frozenset(without)).violations}


def test_registers_given_back_are_taken() -> None:
    """The usual way: a loader gives, two consumers take, nobody waits for anything else."""
    assert not kinds(groups((less(40),), (more(168),), (more(168),)))


def test_a_giver_that_waits_for_the_taker_never_gives() -> None:
    """Both stand still: the taker in front of its registers, the giver at the barrier."""
    stands = groups((meet(1), less(40)), (more(216), meet(1)))
    assert kinds(stands) & {"deadlock", "registers"}
    assert not kinds(groups((less(40), meet(1)), (more(216), meet(1))))


def test_without_the_rule_registers_are_always_there() -> None:
    """The budget is what blocks; without it the same kernel ends."""
    stands = groups((meet(1), less(40)), (more(216), meet(1)))
    assert not kinds(stands, Rule.BUDGET)


def test_registers_are_given_back_and_taken_in_two_steps() -> None:
    """What a role takes later waits for what is given back later."""
    two = groups((less(96), meet(1), less(40)), (more(160), meet(1), more(216)))
    assert not kinds(two)
    late = groups((less(96), meet(1), meet(2), less(40)), (more(160), meet(1), more(216), meet(2)))
    assert kinds(late) & {"deadlock", "registers"}


def returned(number: int, *between: kir.Stmt) -> Body:
    """Take registers and give them back."""
    return (more(168), *between, kir.BlockSync(number, 128), less(128))


def test_registers_are_enough_for_one_after_the_other() -> None:
    """Both orders are gone through: whoever comes first gives back what the other waits for."""
    assert not kinds(groups((less(88),), returned(1), returned(2)))


def test_registers_kept_by_who_comes_first() -> None:
    """One order is fine, the other leaves a warpgroup waiting."""
    for takers in ((returned(1), (more(168),)), ((more(168),), returned(1))):
        assert kinds(groups((less(88),), *takers)) & {"deadlock", "registers"}


def test_registers_kept_until_the_other_has_some() -> None:
    """Whoever comes first waits for the other, which waits for its registers."""
    takers = returned(1, kir.BlockSync(3, 256)), returned(2, kir.BlockSync(3, 256))
    assert kinds(groups((less(88),), *takers)) & {"deadlock", "registers"}
    assert not kinds(groups((less(48),), *takers))


def test_a_loop_between_giving_and_taking_changes_nothing() -> None:
    """Threads that wait for registers stay behind while others go round."""
    tile = fragment("x", 128)
    step = (load(tile, box(XN, k)), store(box(YN, k), tile))
    loop = kir.ForLoop(k, n, step)
    body = (
        kir.Role("give", 0, 4, (loop, less(40))),
        kir.Role("take", 4, 4, (more(216),)),
    )
    assert not kinds(replace(kernel(body, threads=256), registers=128))


# --- what one warp of a warpgroup knows of the others through a product of theirs -----------------


ONE = "one_arrival_per_warpgroup_is_a_warning"


def made() -> kir.Kernel:
    """A warpgroup frees its slots by one thread."""
    found = by_name(ONE).kernel
    assert isinstance(found, kir.Kernel)
    return found


@pytest.mark.parametrize(("policy", "errors"), [("default", set()), ("strict", {"WAR", "proxy"})])
def test_one_arrival_for_four_warps_is_a_matter_of_policy(policy: str, errors: set[str]) -> None:
    """Three warps' reads are covered by the word of the fourth: worth a warning, or an error."""
    closed = judge(made(), policy=policy)
    assert {v.kind for v in closed.violations} <= errors
    assert ("WAR" in {v.kind for v in closed.warnings}) is (policy == "default")


def test_an_arrival_before_the_wait_releases_nothing() -> None:
    """The product tells of the other warps only once its end has been seen."""
    late = next(s for s in made().walk() if isinstance(s, kir.AsyncAwait))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.ForLoop) and late in stmt.body:
            at = stmt.body.index(late)
            body = (*stmt.body[:at], *stmt.body[at + 1 :], late)
            return [replace(stmt, body=body)]
        return None

    assert {v.kind for v in judge(made().rewrite(rule)).violations} & {"WAR", "parity"}


def test_without_the_await_s_edge_nothing_is_known() -> None:
    """The knowledge comes with the await's axiom, and goes with it."""
    closed = judge(made(), without=frozenset({Rule.AWAIT_ORDERS}))
    assert closed.violations
