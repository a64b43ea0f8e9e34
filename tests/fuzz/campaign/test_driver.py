"""A driver keeps what it finds, also where shrinking cannot help."""

from __future__ import annotations

from multiprocessing import Pipe
from pathlib import Path

from behaviour import hang

from fuzz.campaign.child import Child
from fuzz.campaign.driver import Job, Judged, Shrunk, _Engine
from fuzz.campaign.mutants import representative


def test_a_hang_is_reported_as_it_was_found(tmp_path: Path) -> None:
    """Shrinking it would wait for the limit at each step, and asks other oracles than hung."""
    job = Job(0, 1, 0, 60.0, None, ("prover",), False, False, frozenset(), tmp_path)
    inbox, outbox = Pipe(duplex=False)
    with Child(hang, wall_s=0.5, preload=()) as child:
        engine = _Engine(job, outbox, child, None)
        engine._deadline = float("inf")
        case = representative("direct/tma")
        engine._check(case)
        engine._check(case)
    judged, shrunk = inbox.recv(), inbox.recv()
    assert isinstance(judged, Judged)
    assert [record.kind for record in judged.records] == ["hang"]
    assert isinstance(shrunk, Shrunk)
    assert shrunk.text == judged.text
    assert not inbox.poll()
