"""Which threads meet at an element of a shared tile, as the invariants ask it."""

from __future__ import annotations

import kernels as ks
import pytest
from litmus.matmul_kernels import round_trip

from fuser.kernel import ir as kir
from oracles.prover.invariants.graph import Footprints
from oracles.prover.invariants.trace import read
from oracles.prover.sites import Overlap


def test_plain_accesses_of_one_layout_do_not_meet() -> None:
    """Each element has one thread."""
    feet = Footprints(read(round_trip("put get warp", put_matrix=False, get_matrix=False)))
    put, get = feet.spreads
    assert not list(feet.overlaps(put, get))


@pytest.mark.parametrize(("put_matrix", "get_matrix"), [(True, True), (True, False), (False, True)])
def test_matrix_accesses_overlap_within_their_warp(*, put_matrix: bool, get_matrix: bool) -> None:
    """Lanes are not distinguished, warps are."""
    kernel = round_trip("put warp get warp2", put_matrix=put_matrix, get_matrix=get_matrix)
    feet = Footprints(read(kernel))
    put, get = feet.spreads
    found = list(feet.overlaps(put, get))
    assert found
    assert all(how is Overlap.WARP for *_, how in found)


def test_lanes_of_one_matrix_store_touch_different_elements() -> None:
    """So the store does not collide with itself, though it meets itself an iteration later."""
    feet = Footprints(read(round_trip("put warp get warp2")))
    put, _ = feet.spreads
    assert not feet.collides(put)
    assert list(feet.overlaps(put, put))


def test_the_same_layout_meets_only_itself() -> None:
    """A private round trip needs no barrier; a change of layout does."""
    feet = Footprints(read(ks.relaid(same=True)))
    store, load = feet.spreads
    assert not list(feet.overlaps(store, load))
    feet = Footprints(read(ks.relaid()))
    assert any(how is Overlap.ANY for *_, how in feet.overlaps(store, load))


def test_a_broadcast_tile_meets_many_threads() -> None:
    """One shared element handed to a row of threads is read by threads that did not write it."""
    narrow = kir.Buffer("S0", ks.X.dtype, (ks.ROWS, 1), 1, 0)
    column = kir.Fragment("c", ks.X.dtype, kir.Layout((ks.ROWS, 1), 1, 32 * ks.WARPS))
    body: list[kir.Stmt] = [
        kir.Load(column, kir.Box(ks.T0, (0, 0), (ks.ROWS, 1), (ks.R, ks.C)), 1),
        kir.Store(kir.Slot(narrow, 0), column, 1),
        kir.Load(ks.X, kir.Slot(narrow, 0), 1),
    ]
    feet = Footprints(read(ks.kernel("broadcast", body, buffers=(narrow,))))
    store, load = feet.spreads
    assert list(feet.overlaps(store, load))
