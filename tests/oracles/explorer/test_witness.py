"""The way on which the explorer finds a fault, as rows."""

from __future__ import annotations

from litmus.suite import by_name

from fuser.kernel import ir as kir
from oracles.explorer.explore import Launch, witness
from oracles.explorer.witness import ROWS
from oracles.witness import Mark, Witness


def told(name: str, **params: int) -> Witness | None:
    """Return the witness of a litmus in one CTA."""
    kernel = by_name(name).kernel
    assert isinstance(kernel, kir.Kernel)
    return witness(kernel, Launch(1, params))


def test_a_race_begins_with_the_earlier_access() -> None:
    """Lanes are roles; each row says what happens, with numbers and in which iteration."""
    found = told("slot_freed_before_the_wait", n=3)
    assert found is not None
    assert found.trips == (("n", 3), ("gridDim", 1))
    assert found.lanes == ("mma", "load")
    first, last = found.rows[0], found.rows[-1]
    assert (first.mark, first.text) == (Mark.FIRST, "acc <~ wgmma(SA[0], SB[0]) k=0")
    assert (last.mark, last.text) == (Mark.SECOND, "SA[0] <~ tma_load k=2")
    assert len(found.rows) <= ROWS


def test_a_standstill_shows_who_waits_at_what() -> None:
    """First the wait that all others are behind; before it what came to the barriers."""
    found = told("ring_arrivals_one_too_few", n=3)
    assert found is not None
    stuck = [row for row in found.rows if row.text.endswith("forever")]
    assert [(row.lane, row.line) for row in stuck] == [("load", 22), ("use", 15)]
    assert stuck[0].note == "phase 0, 1 arrivals and 0 bytes pending"
    assert found.says.startswith("load at line 22, empty[0] wait parity 0 k=2, forever: phase 0")
    assert not any("init" in row.text for row in found.rows)


def test_a_right_launch_has_no_witness() -> None:
    """Nor has a fault that needs no execution."""
    assert told("product", n=3) is None
    assert told("commit_missing", n=1) is None


def test_lanes_of_one_role_are_told_apart_where_they_conflict() -> None:
    """One of them invalidates what the others may still wait for."""
    found = told("invalidated_while_others_wait")
    assert found is not None
    assert found.lanes == ("warp 0 other lanes", "warp 0 lane 0")
