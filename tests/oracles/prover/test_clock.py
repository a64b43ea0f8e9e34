"""A proof that takes too long says so, and what it was at; one that does not is not disturbed."""

from __future__ import annotations

import gc

import pytest

from fuser.cookbook.recipes import tma_ring
from oracles.prover import clock
from oracles.prover.clock import GaveUpError, limited, working
from oracles.prover.prove import prove
from oracles.verdict import Status


def test_a_proof_beyond_its_limit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the limit, the place, and the way out."""
    monkeypatch.setattr(clock, "OFTEN_S", 0.0)
    verdict = prove(tma_ring(stages=7), limit=1e-4)
    assert verdict.status is Status.UNKNOWN
    assert verdict.reason.startswith("gave up after 0.0001 CPU s, at ")
    assert verdict.reason.endswith("; --limit gives it more")
    assert prove(tma_ring(stages=7), limit=60).status is Status.PASS


def test_a_proof_that_takes_too_much_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign's child would end, and the case with it; what can be collected is, before."""
    monkeypatch.setattr(clock, "OFTEN_S", 0.0)
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(clock, "_resident", lambda: 10)
    monkeypatch.setattr(clock, "MEMORY", -1)
    verdict = prove(tma_ring(stages=5))
    assert verdict.status is Status.UNKNOWN
    assert "MiB of memory, at " in verdict.reason
    assert collected
    collected.clear()
    monkeypatch.setattr(clock, "_resident", lambda: 0 if collected else 10)
    assert prove(tma_ring(stages=5)).status is Status.PASS, "enough was collected"


def test_a_proof_tells_what_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """States by number, and questions."""
    monkeypatch.setattr(clock, "OFTEN_S", 0.0)
    told: list[str] = []
    prove(tma_ring(stages=6), tell=lambda seconds, at: told.append(at))
    assert "state 1" in told
    assert "a question to z3" in told


def test_there_is_no_limit_outside_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one inside another has what is left of it."""
    monkeypatch.setattr(clock, "OFTEN_S", 0.0)
    working("nothing")
    with pytest.raises(GaveUpError, match="at something 3"), limited(0.0), limited(60.0):
        working("something", 3)
    working("nothing")
