"""Calls side by side: all take turns, who is far off is not run again."""

from __future__ import annotations

import pytest

from fuser.runtime.tuning import timing
from fuser.runtime.tuning.timing import race


class Runner:
    """A call that takes so long, and knows how often it ran."""

    def __init__(self, us: float) -> None:
        self.us, self.ran = us, 0

    def __call__(self) -> None:
        """Run."""
        self.ran += 1


def timed(call: object) -> float:
    """Take the place of a device; the first run of each is slow."""
    assert isinstance(call, Runner)
    call()
    return call.us * (1.5 if call.ran == 1 else 1.0)


def test_medians_are_of_all_turns_but_the_first() -> None:
    """Who is far off after one run has no time, unless it is the first, which is the default."""
    slow, fast, near, far = calls = [Runner(us) for us in (50.0, 10.0, 15.0, 21.0)]
    assert race(calls, timed, lambda: True) == [50.0, 10.0, 15.0, None]
    assert far.ran == 1
    assert slow.ran == fast.ran == near.ran == 1 + timing.SAMPLES


def test_long_calls_run_seldom() -> None:
    """Two of a second each: no more than a few times."""
    calls = [Runner(1e6), Runner(1e6)]
    race(calls, timed, lambda: True)
    assert {call.ran for call in calls} == {1 + timing.FEWEST}


def test_who_is_told_to_stop_answers_at_once() -> None:
    """A process that ends waits for a run, not for a race."""
    calls = [Runner(1.0), Runner(1.0)]
    assert race(calls, timed, lambda: False) == [1.5, 1.5]
    assert {call.ran for call in calls} == {1}


def test_turns_are_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is always behind the same."""
    calls = [Runner(1.0) for _ in range(4)]
    order: list[object] = []
    race(calls, lambda call: order.append(call) or 1.0, lambda: True)  # type: ignore[func-returns-value]
    turns = [tuple(order[i : i + 4]) for i in range(4, len(order), 4)]
    assert len({*turns}) > timing.SAMPLES // 2
