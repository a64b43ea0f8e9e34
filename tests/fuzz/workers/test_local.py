"""A driver that dies, waits or swells costs its lane a moment, and says why."""

import threading
import time
from dataclasses import replace

import pytest
from drivers import DIES, HEARS, JOB, SPEAKS, WAITS

from fuzz.campaign import driver
from fuzz.campaign.driver import Message, Round
from fuzz.workers import local
from fuzz.workers.local import Ended, Local, run


def ended(body: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Message]]:
    """Run a driver; return why it ended early, and what it said."""
    monkeypatch.setattr(local, "_DRIVER", body)
    heard: list[Message] = []
    return run(JOB, heard.append, threading.Event()), heard


def test_what_a_driver_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, and then that it is done."""
    monkeypatch.setattr(local, "_DRIVER", SPEAKS)
    with Local(2) as pool:
        pool.start(1, JOB)
        said = [pool.heard(timeout=10.0) for _ in range(4)]
    assert said == [(1, Round(7, True))] * 3 + [(1, Ended(""))]


@pytest.mark.long
def test_drivers_hear_what_the_others_have_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what they have themselves."""
    monkeypatch.setattr(local, "_DRIVER", HEARS)
    drawn, heard = local.Drawn(), list[Message]()
    for worker in range(3):
        run(replace(JOB, worker=worker), heard.append, threading.Event(), drawn)
    told = [one.counts.total() for one in heard if isinstance(one, Round) and not one.complete]
    assert told == [0, 1, 1 + 2]


def test_a_driver_that_crashes_is_named_by_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign starts another."""
    assert ended(DIES, monkeypatch) == ("was killed by signal 11 (SIGSEGV)", [])


def test_a_driver_that_takes_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the number."""
    monkeypatch.setattr(local, "MEMORY", 100 << 20)
    why, _ = ended(WAITS, monkeypatch)
    assert why.startswith("used ")
    assert why.endswith(" MiB of memory, more than 100, and was ended")


def test_a_driver_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A night must not wait for it."""
    monkeypatch.setattr(local, "FAR", 0.0)
    monkeypatch.setattr(local, "GRACE_S", -(JOB.plan.seconds + driver.SHRINK_S - 1) / 2)
    assert ended(WAITS, monkeypatch)[0] == "did not end in time and was ended"


def test_closing_ends_the_drivers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C does not wait for a judgement."""
    monkeypatch.setattr(local, "_DRIVER", WAITS)
    with Local(1) as pool:
        pool.start(0, JOB)
        time.sleep(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < 5
