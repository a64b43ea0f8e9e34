"""States that differ in what is known are followed as one: whoever knows more can do no less."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from sample import some

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuzz.kernels.subjects import find
from oracles.prover.reachability import fixpoint, statements, step, sync
from oracles.prover.reachability.canonical import Form
from oracles.prover.reachability.fixpoint import (
    ChoiceError,
    Execution,
    Exploration,
    ForkError,
)
from oracles.prover.reachability.rules import Findings
from oracles.prover.reachability.state import (
    EVERY_FACT,
    FACTS,
    State,
    known_by,
    knows,
    takes_over,
)
from oracles.prover.reachability.statements import ContestError

LESS = 12
"""Ways in which a state is made to know less."""
ROUNDS = 12
"""States of an exploration, and rounds of each, that are gone through."""
KERNELS = (
    *recipes.RECIPES,
    *(
        f"matmul {name} 0"
        for name in ("cooperative_cluster", "ping_pong_cluster", "split_tma", "split_persistent")
    ),
)


def _kernel(name: str) -> kir.Kernel:
    return recipes.RECIPES[name]() if name in recipes.RECIPES else find(name).kernel


def _less(state: State, draw: random.Random) -> State:
    """Return a state in which some threads, or a phase, or all, know less of some events."""
    out = state.copy()
    every = [*out.agents, *out.phases.values(), *out.barriers.values(), *out.products.values()]
    if draw.random() < 0.5:
        every = draw.sample(every, min(2, len(every)))
    facts = sum(1 << n for n in range(out.used.bit_length()) if draw.random() < 0.5)
    # who forgets an event forgets whatever it knows of it
    for n in range(0, out.used.bit_length(), FACTS):
        facts |= (facts >> n & 1) * 0b1111 << n
    for one in every:
        takes_over(one, iter([(EVERY_FACT ^ facts, 0)] * len(known_by(one, 0))))
    return out


class _Run:
    """A state that goes on for a few rounds, and what is found wrong in it."""

    def __init__(self, one: Exploration, state: State) -> None:
        self._one, self.findings = one, Findings()
        self.at = self._begun(state)
        self.over = False

    def _begun(self, state: State) -> Execution:
        one = self._one
        return Execution(one.world, state, one.events, self.findings, one.single_arrivals)

    def goes_on(self) -> bool:
        """Go on to the next gate, the first way of several; whether there is one."""
        self.at.state.pass_gate()
        try:
            self.at.settle()
            self.over = self.at.over()
        except (ForkError, ChoiceError) as error:
            ends = isinstance(error, ChoiceError)  # yes; and of a count that it is larger
            self.at = self._begun(self.at.ways_on(error)[-1 if ends else 0])
        except ContestError as contest:
            self.at = self._begun(contest.states[0])
        return not self.over and not self.findings.failed

    @property
    def places(self) -> list[tuple[object, ...]]:
        """Where threads are."""
        return [(a.at, a.done, a.waiting, a.env) for a in self.at.state.agents]


def _pairs(explored: Iterable[Exploration]) -> Iterator[tuple[_Run, _Run]]:
    """Yield states that were followed, each with one like it that knows less."""
    draw = random.Random(0)
    for one in explored:
        for state in one.recorder.states[:ROUNDS]:
            for _ in range(LESS):
                yield _Run(one, state.copy()), _Run(one, _less(state, draw))


def _compared(explored: Iterable[Exploration]) -> tuple[int, int]:
    """Return how many states that know less go on as well, and in how many something is wrong."""
    well = wrong = 0
    for more, less in _pairs(explored):
        for _ in range(ROUNDS):
            goes_on = more.goes_on()
            less.goes_on()
            if less.findings.failed:
                wrong += 1
                break
            assert not more.findings.failed, more.findings.errors[0].says
            assert more.places == less.places
            if not goes_on:
                break
        well += not less.findings.failed
    return well, wrong


@pytest.mark.parametrize("name", some(KERNELS, *KERNELS[::2]))
def test_who_knows_more_does_as_much_with_no_more_wrong(name: str) -> None:
    """Every rule of a statement asks whether something is known, never whether it is not."""
    well, wrong = _compared(fixpoint.judge(_kernel(name)).explorations)
    assert (well > 0, wrong > 0) == (True, True)


def _waits_by_what_is_known(at: step.Step) -> bool:
    """Wait at the cluster's barrier until a generation is over that is not known to be."""
    done = at.state.barriers.get(sync.CLUSTER_DONE)
    if done is None or knows(at.a.mine, done.last):
        return False
    at.a.arrived = at.a.met = False
    at.a.learns(done.before)
    return True


def test_a_rule_that_asks_for_less_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state would stand for one that goes another way."""
    explored = fixpoint.judge(_kernel("cluster_multicast")).explorations
    monkeypatch.setattr(statements, "cluster_wait", _waits_by_what_is_known)
    with pytest.raises(AssertionError):
        _compared(explored)


# --- what is kept ---------------------------------------------------------------------------------


JOINED = "matmul ping_pong_cluster 0"
"""A kernel whose states differ in what is known."""


def _forgets_all(it: Form, state: State, other: Form) -> None:
    """Forget whatever is known instead of what only one of two states knows."""
    for part, _ in it._parts(state):
        takes_over(part, iter([(0, 0)] * len(known_by(part, 0))))
    it.known = (0,) * len(it.known)


def test_fewer_states_are_kept() -> None:
    """And each of them knows no more than any that it stands for."""
    (one,) = fixpoint.judge(_kernel(JOINED)).explorations
    joined = len(one.recorder.states)
    one._explore(joins=False)
    assert joined < len(one.recorder.states)


def test_what_is_wrong_of_less_than_is_known_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state that stands for two may lack what each of them has in its own way."""
    monkeypatch.setattr(Form, "meet", _forgets_all)
    closed = fixpoint.judge(_kernel(JOINED))
    assert (closed.violations, closed.warnings, closed.reason) == ((), (), "")
    monkeypatch.setattr(
        Exploration, "explore", lambda it: it._explore_by(it.findings.copy(), joins=True)
    )
    assert fixpoint.judge(_kernel(JOINED)).violations
