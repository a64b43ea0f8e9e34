"""Knowledge: what joins, fences and waits hand on, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.ptx import clocks as clocks_
from oracles.ptx.clocks import ASYNC_GLOBAL, ASYNC_SHARED, GENERIC, NEVER, Clocks, LimitError


def knows(clocks: Clocks, thread: int, agent: int, since: int, plane: int = GENERIC) -> bool:
    """Ask about one thread and one agent."""
    return bool(clocks.knows(plane, *(np.array([x]) for x in (thread, agent, since)))[0])


def joined(clocks: Clocks, *threads: int) -> None:
    """Join threads as a barrier does."""
    who = np.array(threads)
    clocks.row[who] = clocks.released(who)


def test_a_join_tells_what_was_before_it() -> None:
    """Nothing that comes later, and only those who came."""
    clocks = Clocks(4)
    early = clocks.tick()
    assert knows(clocks, 0, 0, early)
    assert not knows(clocks, 1, 0, early)
    joined(clocks, 0, 1)
    late = clocks.tick()
    assert knows(clocks, 1, 0, early)
    assert not knows(clocks, 1, 0, late)
    assert not knows(clocks, 2, 0, early)
    joined(clocks, 1, 2)
    assert knows(clocks, 2, 0, early)


def test_the_asynchronous_proxy_needs_a_fence() -> None:
    """By the writer before the join, or by the reader behind it; by space."""
    clocks = Clocks(3)
    early = clocks.tick()
    joined(clocks, 0, 1)
    assert not knows(clocks, 1, 0, early, ASYNC_SHARED)
    clocks.fence(np.array([1]), (ASYNC_SHARED,))
    assert knows(clocks, 1, 0, early, ASYNC_SHARED)
    assert not knows(clocks, 1, 0, early, ASYNC_GLOBAL)
    joined(clocks, 1, 2)
    assert knows(clocks, 2, 0, early, ASYNC_SHARED)
    assert not knows(clocks, 0, 0, clocks.tick(), ASYNC_SHARED)
    clocks.fence(np.array([0]), (ASYNC_SHARED, ASYNC_GLOBAL))
    assert knows(clocks, 0, 0, clocks.now, ASYNC_GLOBAL)


def test_copies_in_flight_are_known_to_nobody() -> None:
    """Not to the thread that issued them, either."""
    clocks = Clocks(2)
    column = clocks.column(("copies", 0))
    assert not knows(clocks, 0, column, NEVER + 1)
    clocks.learn(np.array([0]), column, 5)
    assert knows(clocks, 0, column, 5)
    assert not knows(clocks, 0, column, 6)
    assert not knows(clocks, 1, column, 5)


def test_a_fence_before_the_wait_covers_no_copy() -> None:
    """cp.async is asynchronous, though of the generic proxy."""
    clocks = Clocks(2)
    first = clocks.copy_columns()
    issued = clocks.tick()
    clocks.fence(np.array([0]), (ASYNC_SHARED,))
    assert not knows(clocks, 0, first, issued)
    clocks.copied[GENERIC, 0] = clocks.tick()
    assert knows(clocks, 0, first, issued)
    assert not knows(clocks, 0, first, issued, ASYNC_SHARED)
    clocks.fence(np.array([0]), (ASYNC_SHARED,))
    assert knows(clocks, 0, first, issued, ASYNC_SHARED)
    joined(clocks, 0, 1)
    assert knows(clocks, 1, first, issued)


def test_rows_are_found_again_when_nobody_holds_them() -> None:
    """Knowledge survives; the pool does not grow with the length of a launch."""
    clocks = Clocks(8)
    early = clocks.tick()
    held = clocks.released(np.array([0]))
    clocks.holders.append(lambda: [held])
    for _ in range(1000):
        joined(clocks, 1, 2)
        joined(clocks, 3, 4)
        clocks.tick()
        clocks.collect()
    assert len(clocks.known) <= 32
    clocks.acquire(np.array([7]), held)
    assert knows(clocks, 7, 0, early)


def test_an_acquire_keeps_what_was_known() -> None:
    """It adds."""
    clocks = Clocks(3)
    early = clocks.tick()
    joined(clocks, 0, 2)
    row = clocks.released(np.array([1]))
    clocks.acquire(np.array([2]), row)
    assert knows(clocks, 2, 0, early)
    assert knows(clocks, 2, 1, early)


def test_a_burst_within_an_instruction_does_not_double_the_rows_for_ever() -> None:
    """What was made since the last collection is collected before the next one is needed."""
    clocks = Clocks(64)
    for _ in range(50):
        for thread in range(64):
            clocks.learn(np.array([thread]), thread, clocks.tick())
        clocks.collect()
    assert len(clocks.known) <= 256


def test_rows_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it a launch is too long to judge, and the process keeps its memory."""
    monkeypatch.setattr(clocks_, "MOST_BYTES", 1 << 10)
    clocks = Clocks(8)
    rows = [clocks.released(np.array([0])) for _ in range(len(clocks.free))]
    assert len({*rows}) == len(rows)
    with pytest.raises(LimitError, match="know different things"):
        clocks.released(np.array([0]))
