"""Which threads meet at an element, as the certificate reads it: as closure does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.matmul_kernels import round_trip

from fuser.dtype import DType
from fuser.kernel import ir as kir
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.events.footprint import Access, Footprints, holders, meetings
from oracles.prover.reachability.program.tiles import Spread, owners
from oracles.prover.trace import Trace, read


def accesses(of: kir.Kernel) -> tuple[Trace, list[Access]]:
    """Return a kernel's trace, and its accesses of shared memory."""
    trace = read(of)
    found = Footprints(trace).accesses.values()
    return trace, [how for how in found if how is not None]


def test_plain_accesses_of_one_layout_do_not_meet() -> None:
    """Each element has one thread."""
    kernel = round_trip("put get warp", put_matrix=False, get_matrix=False)
    trace, (put, get) = accesses(kernel)
    assert meetings(trace, put, get) == frozenset()


@pytest.mark.parametrize(("put_matrix", "get_matrix"), [(True, True), (True, False), (False, True)])
def test_matrix_accesses_meet_within_their_warp(*, put_matrix: bool, get_matrix: bool) -> None:
    """Lanes are not told apart, warps are."""
    kernel = round_trip("put warp get warp2", put_matrix=put_matrix, get_matrix=get_matrix)
    trace, (put, get) = accesses(kernel)
    found = meetings(trace, put, get)
    assert found
    assert all(meeting.same_warp for meeting in found)


def test_lanes_of_one_matrix_store_touch_different_elements() -> None:
    """So the store does not collide with itself, though it meets itself an iteration later."""
    trace = read(round_trip("put warp get warp2"))
    footprints = Footprints(trace)
    put = next(i for i, how in footprints.accesses.items() if how is not None)
    assert not footprints.collides(put)
    assert footprints.meetings(put, put)


@pytest.mark.parametrize("deal", kir.Deal)
@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_both_engines_know_the_same_owners(deal: kir.Deal, lead: tuple[int, ...]) -> None:
    """Two readings of one definition."""
    layout = kir.Layout((*lead, 32, 16), 2, 64, deal)
    buffer = kir.Buffer("S", DType.BF16, layout.shape, 1, 0)
    how = Access(buffer, layout, 0, 64)
    spread = Spread("S", layout, layout.shape, 0)
    assert holders(how) == [frozenset(row) for row in owners(spread).tolist()]
    assert how.held == len({thread for row in holders(how) for thread in row})


def test_a_matrix_access_in_turn_is_not_modelled() -> None:
    """Validation refuses it; nothing is said of it here."""
    layout = kir.Layout((32, 16), 2, 64)
    buffer = kir.Buffer("S", DType.BF16, layout.shape, 1, 0)
    with pytest.raises(UnsupportedError, match="ldmatrix or stmatrix in turn"):
        _ = replace(Access(buffer, layout, 0, 64), matrix=True).held
