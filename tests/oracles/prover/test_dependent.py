"""Dependent launches that wait first: which these are, and that it is the same judgement."""

from dataclasses import replace

import kernels
import pytest
from fusions import FAMILIES, compiled
from litmus import dependents, suite

from fuser.expr import Var
from fuser.kernel import ir as kir
from oracles.prover import dependent
from oracles.prover.prove import prove
from oracles.verdict import Status

WAIT = kir.GridDependencyWait()


def first(*body: kir.Stmt) -> bool:
    """Ask of a kernel that begins so, and goes on with a ring of copies."""
    made = kernels.staged(1)
    return dependent.waits_first(replace(made, body=(*body, *made.body)))


def test_what_may_stand_before_the_wait() -> None:
    """Barriers of the CTA, and joins; whatever else is judged with its dependence."""
    barrier = kir.MBarrier("other", 1, 1)
    init = kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(barrier), kir.FenceMBarrierInit()))
    joins = (kir.WarpSync(), kir.ClusterArrive(), kir.ClusterWait(), kir.BlockSync(0, 64))
    assert first(WAIT)
    assert first(init, *joins, WAIT)


@pytest.mark.parametrize(
    "body",
    [
        (),
        (kir.Elect(kir.Per.ROLE, (WAIT,)),),
        (kir.Role("one", 0, 1, (WAIT,)),),
        (kir.IfThenElse(kir.BLOCK < 1, (WAIT,)),),
        (kir.GridDependencyLaunch(),),
        (kir.ForLoop(Var("i"), 2, (WAIT,)),),
    ],
    ids=["nobody", "one thread", "one role", "one CTA", "who lets others go", "a loop"],
)
def test_who_does_not_wait_first(body: tuple[kir.Stmt, ...]) -> None:
    """Then other judgements are asked: some threads may touch memory before any has waited."""
    assert not first(*body)


def test_what_touches_memory_stands_behind_the_wait() -> None:
    """Also where it is inside of other statements."""
    made = kernels.staged(1)
    assert not dependent.waits_first(replace(made, body=(*made.body, WAIT)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_dependence_changes_no_verdict(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed event by event it passes, too."""
    kernel = compiled(FAMILIES[family]).launches[0].kernel
    assert dependent.waits_first(kernel)
    short = prove(kernel)
    monkeypatch.setattr(dependent, "waits_first", lambda _: False)
    renamed = replace(kernel, name="followed")  # what was judged is remembered
    assert short.status is prove(renamed).status is Status.PASS


def test_litmus_kernels_that_are_wrong_do_not_wait_first() -> None:
    """None of those that wait too late, or some threads of which do, is taken for one."""
    broken = [one for one in dependents.LITMUS if one.expect.status is Status.FAIL]
    assert len(broken) >= 5
    for one in broken:
        firsts = [dependent.waits_first(made) for made in suite.kernels(one) if made.dependent]
        assert not firsts or not all(firsts), one.name
