"""Tests of what is claimed of a kernel: enough, and no more than its policy asks for."""

from __future__ import annotations

import pytest
from litmus.aliases import OVERLAID, overlaid
from litmus.parts import XN, YN, box, elect, fragment, k, kernel, load, n, slots, store
from litmus.products import refilled
from litmus.rules_phases import BOTH, rounds

from fuser.kernel import ir as kir
from oracles.prover.invariants.check import RLIMIT, confirm
from oracles.prover.invariants.trace import Obligation
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status

PRODUCT = "fill wait fence mma commit"


@pytest.mark.parametrize(
    ("known", "proved", "strict"),
    [
        ("await free room", True, False),
        ("await join", True, True),
        ("await free", False, False),
        ("await", False, False),
        ("free await room", False, False),
    ],
)
def test_one_arrival_stands_for_the_warps_of_a_product_if_it_is_awaited(
    known: str, proved: bool, strict: bool
) -> None:
    """By default; an arrival before the end of its own part, or one that nobody sees, does not."""
    subject = refilled(f"{PRODUCT} {known}")
    assert (confirm(subject).status is Status.PASS) is proved
    assert (confirm(subject, policy="strict").status is Status.PASS) is strict


def test_arrivals_of_two_phases_are_told_apart_by_waits_alone() -> None:
    """A wait of one of two who arrive does not keep the other from arriving twice."""
    arrive = elect(kir.MBarrierArrive(BOTH, 0))
    known = elect(kir.MBarrierArrive(BOTH, 0), kir.MBarrierWaitParity(BOTH, 0, k % 2))
    assert confirm(rounds((known,), (known,), BOTH)).status is Status.PASS
    assert confirm(rounds((known,), (arrive,), BOTH)).status is Status.FAIL
    assert confirm(rounds((arrive,), (arrive,), BOTH)).status is not Status.PASS


@pytest.mark.parametrize(("sentence", "safe"), [("over_a ", True), (" sync_b", False)])
def test_the_same_bytes_by_two_names_are_touched_by_the_same_threads(
    sentence: str, safe: bool
) -> None:
    """Two buffers over each other are one, for who holds which element."""
    subject = overlaid(OVERLAID.replace(sentence, ""), offset=0)
    assert bool(fixpoint.judge(subject).violations) is not safe
    assert confirm(subject).status is (Status.PASS if safe else Status.FAIL)


def taking_turns(late: int, *, joined: bool) -> kir.Kernel:
    """Two layouts write one slot: the second from iteration `late` on."""
    buffer, mine, yours = slots("S"), fragment("x", 64), fragment("z", 64, vector=1)
    slot = kir.Slot(buffer, 0)
    again = kir.IfThenElse(k >= late, (load(yours, box(XN, k)), store(slot, yours)))
    step = (
        load(mine, box(XN, k)),
        store(slot, mine),
        kir.BlockSync(0, 64),
        again,
        *((kir.BlockSync(1, 64),) if joined else ()),
        store(box(YN, k), mine),
    )
    return kernel((kir.ForLoop(k, n, step),), threads=64, buffers=(buffer,))


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("joined", [True, False])
def test_an_access_may_begin_some_iterations_late(late: int, joined: bool) -> None:
    """The first that comes after an earlier access is not one turn away then, but later."""
    subject = taking_turns(late, joined=joined)
    assert bool(fixpoint.judge(subject).violations) is not joined
    assert confirm(subject).status is (Status.PASS if joined else Status.FAIL)


def test_an_access_that_skips_turns_is_unsupported_if_it_is_not_wrong() -> None:
    """What is claimed then is too little for a proof, and no reason for an alarm."""
    subject = taking_turns(40, joined=True)
    verdict = confirm(subject)
    assert verdict.status is Status.UNSUPPORTED
    assert "it runs where it did not run 1 iterations before" in verdict.reason
    free = confirm(subject, rlimit=RLIMIT, without=frozenset({Obligation.RETURN}))
    assert free.status is Status.PASS
    assert confirm(taking_turns(40, joined=False)).status is Status.FAIL
