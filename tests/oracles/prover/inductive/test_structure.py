"""Two states are the same only if nothing that somebody may ask about differs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from oracles.prover.inductive.structure import Known, Structures
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.fixpoint import Exploration
from oracles.prover.reachability.state import FACTS, State


def _explored(kernel: kir.Kernel) -> Exploration:
    (one,) = fixpoint.judge(kernel).explorations
    return one


RING = _explored(recipes.specialized_ring(3))


def _structures(one: Exploration) -> Structures:
    return Structures(one.world, one.events, one.abstraction.rotation.orbits)


def _still(one: Exploration) -> tuple[int, ...]:
    return (0,) * len(one.abstraction.rotation.orbits)


def test_a_state_is_like_itself() -> None:
    """Nothing in a comparison depends on which object a state is."""
    for number, state in enumerate(RING.recorder.states):
        assert _structures(RING).difference(state.copy(), number, state, _still(RING)) == ""


def test_different_states_differ() -> None:
    """Those that were kept are all different: at most their numbers could make them so."""
    states = RING.recorder.states
    for number, kept in enumerate(states):
        same = [s for s in states if not _structures(RING).difference(s, number, kept, (0,))]
        assert kept in same
        assert len(same) < len(states)


def _middle() -> State:
    """Return a state in which slots are full, groups and waits under way."""
    return max(RING.recorder.states, key=lambda s: len(s.memory)).copy()


def _pending(state: State) -> None:
    next(iter(state.phases.values())).pending += 1


def _bytes(state: State) -> None:
    next(iter(state.phases.values())).nbytes += 16


def _parity(state: State) -> None:
    next(iter(state.phases.values())).parity ^= 1


def _waiters(state: State) -> None:
    phase = next(p for p in state.phases.values() if p.waiters)
    phase.waiters = phase.waiters[1:]


def _dead(state: State) -> None:
    next(iter(state.phases.values())).alive = False


def _place(state: State) -> None:
    state.agents[0].at += 1


def _registers(state: State) -> None:
    state.agents[0].registers += 8


def _access(state: State) -> None:
    where = next(w for w, entries in state.memory.items() if _unknown(state, w))
    state.memory[where] = ()


def _unknown(state: State, where: tuple[int, str, int]) -> bool:
    everybody = state.known_to_all(state.agents)
    return any(not everybody >> FACTS * e.event & 1 for e in state.memory[where])


def _knowledge(state: State) -> None:
    where = next(w for w in state.memory if _unknown(state, w))
    for entry in state.memory[where]:
        state.agents[0].mine ^= 1 << FACTS * entry.event


def _valid(state: State) -> None:
    where = next(iter(state.valid))
    state.valid[where] = not state.valid[where]


def _flight(state: State) -> None:
    numbers = RING.events.numbers.values()
    state.flying[next(e for e in numbers if not state.known_in(0) >> FACTS * e & 1)] = 0, 0


def _barrier(state: State) -> None:
    now = next(iter(state.barriers.values()))
    now.count += 1


CHANGES = (
    _pending, _bytes, _parity, _waiters, _dead, _place, _registers, _access, _knowledge, _valid,
    _flight, _barrier,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__[1:])
def test_whatever_is_changed_is_seen(change: Callable[[State], None]) -> None:
    """One field at a time."""
    kept, other = _middle(), _middle()
    assert _structures(RING).difference(other, 0, kept, (0,)) == ""
    change(other)
    assert _structures(RING).difference(other, 0, kept, (0,)) != ""


def test_a_state_stands_for_those_that_know_as_much_or_more() -> None:
    """Whoever knows less may find something wrong that the kept one does not."""
    more, less = _middle(), _middle()
    where = next(w for w in less.memory if _unknown(less, w))
    for entry in less.memory[where]:
        less.agents[0].mine &= ~(1 << FACTS * entry.event)
    assert less.agents[0].mine != more.agents[0].mine
    assert _structures(RING).difference(more, 0, less, (0,)) == ""
    assert "knowledge of threads" in _structures(RING).difference(less, 0, more, (0,))


@pytest.mark.parametrize(
    ("one", "other", "covers"),
    [
        (Known((0b11,)), Known((0b01,)), True),
        (Known((0b01,)), Known((0b11,)), False),
        (Known((), (None,)), Known((), ((1, frozenset({2})),)), True),
        (Known((), ((1, frozenset({2})),)), Known((), (None,)), False),
        (Known((), ((1, frozenset({2})),)), Known((), ((1, frozenset({2, 3})),)), True),
        (Known((), ((1, frozenset({2, 3})),)), Known((), ((1, frozenset({2})),)), False),
        (Known((), ((1, frozenset({2})),)), Known((), ((1, frozenset()),)), True),
        (Known((), ((1, frozenset()),)), Known((), ((1, frozenset({2})),)), False),
        (Known((), ((1, frozenset({2})),)), Known((), ((4, frozenset({2})),)), False),
    ],
)
def test_the_end_of_a_phase_is_known_by_all_that_came(
    one: Known, other: Known, *, covers: bool
) -> None:
    """The fewer came, the easier; without any it is known by itself alone, if it is asked about."""
    assert one.covers(other) is covers


def test_a_rotated_state_is_the_same_only_by_as_many_slots() -> None:
    """The rings of a state are those of the kept one, moved by as much as the positions."""
    steps = [
        (state, to)
        for _, _, to, state in RING.recorder.steps
        if to is not None and state is not None
    ]
    positions = [(state, to, _ahead(state, RING.recorder.states[to])) for state, to in steps]
    moved = [(state, to, by) for state, to, by in positions if by % 6]
    assert moved, "some step ends in a rotated state"
    for state, to, by in moved:
        kept = RING.recorder.states[to]
        wrong = [r for r in range(6) if r != by % 6 and _same(state, to, kept, r)]
        assert _same(state, to, kept, by)
        assert not wrong


def _same(state: State, number: int, kept: State, by: int) -> bool:
    return not _structures(RING).difference(state, number, kept, (by,))


def _ahead(state: State, kept: State) -> int:
    pairs = zip(state.agents, kept.agents, strict=True)
    return next((a.env["k"] - b.env["k"] for a, b in pairs if "k" in a.env and "k" in b.env), 0)
