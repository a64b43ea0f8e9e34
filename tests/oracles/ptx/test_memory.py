"""Conflicts of accesses, seen by a memory with two threads and an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracles.ptx.clocks import NEVER, Clocks
from oracles.ptx.memory import BARRIER, Space


class Seen:
    """A small memory that notes what it reports."""

    def __init__(self, name: str = "shared", *, home: list[int] | None = None) -> None:
        self.clocks = Clocks(4, np.array(home or [0, 0, 0, 0]))
        self.kinds: list[str] = []
        self.space = Space(name, 256, 4, self.clocks, self.note, name == "shared")
        self.clocks.tick()

    def note(self, kind: str, *_: Any) -> None:
        """Keep the kind of a finding."""
        self.kinds.append(kind)

    def write(self, thread: int, place: int, **how: Any) -> None:
        """Write a word."""
        self.clocks.tick()
        self.space.write(np.array([[place // 4]]), np.array([thread]), **how)

    def read(self, thread: int, place: int, **how: Any) -> None:
        """Read a word."""
        self.clocks.tick()
        self.space.read(np.array([[place // 4]]), np.array([thread]), **how)

    def join(self, *threads: int) -> None:
        """Join threads."""
        who = np.array(threads)
        self.clocks.row[who] = self.clocks.released(who)


def test_conflicts_have_their_names() -> None:
    """Read after write, write after write, write after read; joined, they are none."""
    for first, second, kind in (
        ("write", "read", "RAW"),
        ("write", "write", "WAW"),
        ("read", "write", "WAR"),
    ):
        for joins in (False, True):
            seen = Seen()
            seen.write(0, 8)
            seen.join(0, 1)
            getattr(seen, first)(0, 8)
            if joins:
                seen.join(0, 1)
            getattr(seen, second)(1, 8)
            assert seen.kinds == ([] if joins else [kind])


def test_each_of_several_readers_counts() -> None:
    """A writer that knows of all but one is too early."""
    for known in ((1, 2), (1, 2, 3)):
        seen = Seen()
        seen.write(0, 8)
        seen.join(0, 1, 2, 3)
        for thread in (1, 2, 3):
            seen.read(thread, 8)
        seen.join(0, *known)
        seen.write(0, 8)
        assert seen.kinds == ([] if len(known) == 3 else ["WAR"])


def test_readers_of_one_instruction_are_all_remembered() -> None:
    """Two threads read one word at once; the writer knows the last one."""
    seen = Seen()
    seen.write(0, 8)
    seen.join(0, 1, 2)
    seen.clocks.tick()
    seen.space.read(np.array([[2], [2]]), np.array([1, 2]))
    seen.join(0, 2)
    seen.write(0, 8)
    assert seen.kinds == ["WAR"]


def test_a_copy_in_flight_conflicts_with_all() -> None:
    """Until it is over, and that is known."""
    seen = Seen()
    column = seen.clocks.column(("copies", 0))
    agent = np.array([column])
    seen.write(0, 8, agent=agent, time=NEVER + 1, asynchronous=True)
    seen.read(0, 8)
    assert seen.kinds == ["RAW"]
    seen.space.written[2] = seen.clocks.tick()
    seen.read(0, 8)
    assert seen.kinds == ["RAW", "RAW"]
    seen.clocks.learn(np.array([0]), column, seen.clocks.now)
    seen.read(0, 8)
    assert seen.kinds == ["RAW", "RAW"]


def test_work_of_another_cta_needs_a_proxy_fence_in_global_memory() -> None:
    """For asynchronous accesses only, and only there."""
    for home, kinds in (([0, 0, 0, 0], []), ([0, 1, 1, 1], ["proxy"])):
        seen = Seen("global", home=home)
        column = seen.clocks.column(("bulk writes", 0), 0)
        seen.write(0, 8, agent=np.array([column]), asynchronous=True)
        seen.clocks.learn(np.array([0]), column, seen.clocks.now)
        seen.join(0, 1)
        seen.read(1, 8)
        assert seen.kinds == []
        seen.read(1, 8, asynchronous=True)
        assert seen.kinds == kinds
        seen.clocks.fence(np.array([1]), (2,))
        seen.read(1, 8, asynchronous=True)
        assert seen.kinds == kinds


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        ({"strong": True}, {"strong": True}, []),
        ({"strong": True}, {}, ["WAW"]),
        ({"strong": True}, {"strong": True, "asynchronous": True}, ["WAW"]),
        ({"strong": True, "asynchronous": True}, {"strong": True, "asynchronous": True}, []),
    ],
)
def test_strong_writes_of_one_proxy_do_not_race(
    first: dict[str, bool], second: dict[str, bool], kinds: list[str]
) -> None:
    """Reductions by threads and by engines are not atomic towards each other."""
    seen = Seen("global")
    seen.write(0, 8, **first)
    seen.write(1, 8, **second)
    assert seen.kinds == kinds


def test_an_mbarrier_is_no_data() -> None:
    """Where one lives, nobody stores."""
    seen = Seen()
    seen.space.flags[2] = BARRIER
    seen.write(0, 8)
    assert seen.kinds == ["init"]
