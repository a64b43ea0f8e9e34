"""Tests of the life of an mbarrier: who uses it has met its maker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.aliases import EPILOGUE, epilogue

from fuser.kernel import ir as kir
from oracles.prover.invariants.check import confirm
from oracles.prover.reachability import fixpoint
from oracles.verdict import Status


def met(sentence: str) -> kir.Kernel:
    """Return a loop of copies without a barrier before it; `meet` is one in it."""
    made = epilogue(offset=512)
    begin = next(i for i, s in enumerate(made.body) if isinstance(s, kir.BlockSync))
    loop = next(s for s in made.body if isinstance(s, kir.ForLoop))
    words = dict(zip(EPILOGUE.split(), loop.body, strict=True))
    words["meet"] = made.body[begin]
    body = tuple(words[word] for word in sentence.split())
    rest = [replace(s, body=body) if s is loop else s for s in made.body]
    return replace(made, body=(*rest[:begin], *rest[begin + 1 :]))


@pytest.mark.parametrize(
    ("sentence", "safe"),
    [
        (EPILOGUE.replace("fill", "meet fill"), True),
        (EPILOGUE.replace("fill", "fill meet"), True),
        (EPILOGUE.replace("wait", "wait meet"), False),
        (EPILOGUE, False),
    ],
)
def test_a_barrier_in_the_loop_makes_an_mbarrier_visible_behind_it(
    sentence: str, safe: bool
) -> None:
    """All threads reach it in the first iteration, before they use the mbarrier."""
    kernel = met(sentence)
    assert bool(fixpoint.judge(kernel).violations) is not safe
    assert confirm(kernel).status is (Status.PASS if safe else Status.FAIL)


def test_a_barrier_in_a_loop_of_no_trips_makes_nothing_visible() -> None:
    """Behind the loop it is not sure that it was met."""
    made = met(EPILOGUE.replace("fill", "meet fill"))
    (full,) = made.barriers
    kernel = replace(made, body=(*made.body, kir.MBarrierWaitParity(full, 0, 1)))
    assert confirm(kernel).status is not Status.PASS
    assert fixpoint.judge(kernel).violations


def test_an_mbarrier_that_is_initialised_behind_the_loop_is_not_visible_in_it() -> None:
    """Where its maker has left the loop, the others have used it."""
    made = epilogue(offset=512)
    first, *rest = made.body
    assert any(isinstance(s, kir.MBarrierInit) for s in kir.walk((first,)))
    late = replace(made, body=(*rest, first))
    assert fixpoint.judge(late).violations
    assert confirm(late).status is Status.FAIL
