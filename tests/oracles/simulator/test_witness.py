"""A failing run in lanes and rows."""

from __future__ import annotations

import kernels
import pytest

from fuser.cookbook.recipes import RECIPES, split_k_tma, wgmma_ring
from fuzz.mutation.operators import drop_each_sync
from oracles.simulator.simulate import Launch, simulate, witness
from oracles.simulator.witness import ROWS
from oracles.verdict import KINDS, Status
from oracles.witness import Mark, Witness


def checked(found: Witness | None) -> Witness:
    """Check what holds for every witness."""
    assert found is not None
    assert found.kind in KINDS
    assert 0 < len(found.rows) <= ROWS
    assert set(found.lanes) == {row.lane for row in found.rows}
    assert found.says
    return found


def test_a_race_marks_both_accesses() -> None:
    """The refill of a slot against the read that nobody waited for."""
    launch = Launch(1, {"R": 4, "C": 64 * 7, "pitch": 64 * 7})
    found = checked(witness(kernels.specialized(3, arrive_early=True), launch))
    marks = {row.mark: row for row in found.rows if row.mark is not Mark.NONE}
    assert found.kind == "WAR"
    assert marks[Mark.SECOND].text == "writing S0[0]"
    assert "load(S0[0])" in marks[Mark.FIRST].text
    assert marks[Mark.SECOND].lane == "TMA engine"
    assert dict(found.trips)["C"] == 64 * 7
    assert any("pending" in row.note for row in found.rows)


def test_a_standstill_shows_who_waits() -> None:
    """Every thread that is stuck, and for what."""
    launch = Launch(1, {"R": 4, "C": 64, "pitch": 64})
    found = checked(witness(kernels.pipelined(3, 2, nbytes=2 * kernels.NBYTES), launch))
    assert found.kind in ("deadlock", "bytes")
    stuck = [row for row in found.rows if row.text == "full[0] wait parity 0 k=0, forever"]
    assert [row.note for row in stuck] == [f"{kernels.NBYTES} bytes of phase 0 are missing"]
    assert stuck[0].mark is Mark.SECOND


def test_engines_are_lanes_of_their_own() -> None:
    """Tensor cores, store engines and copy engines beside the threads."""
    ring = wgmma_ring()
    mutant = next(m for m in drop_each_sync(ring) if "async_await(wgmma, keep=1)" in m.change)
    found = checked(witness(mutant.kernel, Launch(1, {"M": 64, "N": 8, "K": 16 * 9})))
    assert {"tensor core", "TMA engine"} <= set(found.lanes)
    turns = split_k_tma()
    mutant = next(m for m in drop_each_sync(turns) if "async_await(bulk" in m.change)
    launch = Launch(2, {"M": 64, "N": 8, "K": 32, "splits": 2})
    found = checked(witness(mutant.kernel, launch))
    assert found.kind == "drain"


def test_a_right_run_has_no_witness() -> None:
    """Nor has a launch that breaks a precondition."""
    assert witness(wgmma_ring(), Launch(1, {"M": 64, "N": 8, "K": 16})) is None
    assert witness(wgmma_ring(), Launch(2, {"M": 64, "N": 8, "K": 16})) is None


@pytest.mark.parametrize("name", ["tma_ring", "store_ring", "wgmma_ring", "cp_async_ring"])
def test_every_failing_mutant_has_a_readable_witness(name: str) -> None:
    """Whatever breaks first."""
    params = {"R": 4, "C": 64 * 7} if "ring" in name else {}
    params = params if name in ("tma_ring", "store_ring") else {"M": 64, "N": 8, "K": 16 * 7}
    for mutant in drop_each_sync(RECIPES[name]()):
        launch = Launch(1, params)
        if simulate(mutant.kernel, launch).status is Status.FAIL:
            checked(witness(mutant.kernel, launch))
