"""Who executes a statement, and which threads touch an element of a tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from litmus.lives import reused
from litmus.parts import X1, Y1, Body, box, fragment, load, single, slots, store
from matrices import CASES, IMPOSSIBLE

from fuser.kernel import ir as kir
from oracles.prover.prove import prove
from oracles.prover.reachability.fixpoint import judge
from oracles.prover.sites import Overlap, Overlaps, Spread, Threads, kinds, owners
from oracles.verdict import Status

BAR = kir.MBarrier("bar", 2, 1)
S = slots("S")
TILE = fragment("x")


def errors(made: kir.Kernel) -> set[str]:
    """Kinds of the errors."""
    return {v.kind for v in judge(made).violations}


def counted(per: kir.Per, arrivals: int) -> kir.Kernel:
    """Return two warpgroups whose elected threads arrive, and all threads wait."""
    bar = kir.MBarrier("bar", arrivals, 1)
    tile = fragment("x", 128, 1)
    body: Body = (
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar),)),
        kir.BlockSync(0, 256),
        kir.Elect(per, (kir.MBarrierArrive(bar, 0),)),
        kir.MBarrierWaitParity(bar, 0, 0),
        kir.Role("out", 0, 4, (load(tile, box(X1)), store(box(Y1), tile))),
    )
    return single(body, threads=256, barriers=(bar,))


@pytest.mark.parametrize(
    ("per", "threads"), [(kir.Per.ROLE, 1), (kir.Per.WARPGROUP, 2), (kir.Per.WARP, 8)]
)
def test_an_election_counts_its_threads(per: kir.Per, threads: int) -> None:
    """One for the CTA, one for each warpgroup, one for each warp; one more is missed."""
    assert not errors(counted(per, threads))
    assert errors(counted(per, threads + 1)) & {"deadlock", "arrivals"}


@pytest.mark.parametrize("outer", kir.Per)
@pytest.mark.parametrize("inner", kir.Per)
def test_an_election_inside_another_is_the_narrower(outer: kir.Per, inner: kir.Per) -> None:
    """Whoever is not elected outside is not asked inside."""
    threads = {kir.Per.ROLE: 1, kir.Per.WARPGROUP: 2, kir.Per.WARP: 8}
    fewest = min(threads[outer], threads[inner])

    def within(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        arrives = isinstance(stmt, kir.MBarrierArrive)
        return [kir.Elect(inner, (stmt,))] if arrives else None

    assert not errors(counted(outer, fewest).rewrite(within))
    assert errors(counted(outer, fewest + 1).rewrite(within)) & {"deadlock", "arrivals"}


def nested(*, joined: bool) -> kir.Kernel:
    """A role of two warps, of which one writes a tile and the other reads it."""
    other = fragment("z", vector=1)
    inner: Body = (
        kir.Role("writes", 0, 1, (load(TILE, box(X1)), store(kir.Slot(S, 0), TILE))),
        *((kir.BlockSync(1, 64),) if joined else ()),
        kir.Role("reads", 1, 1, (load(other, kir.Slot(S, 0)), store(box(Y1), other))),
    )
    return single((kir.Role("pair", 0, 2, inner),), threads=96, buffers=(S,))


def test_a_role_inside_a_role_is_a_part_of_its_warps() -> None:
    """The parts run apart, and join at a barrier of the outer role."""
    assert not errors(nested(joined=True))
    assert errors(nested(joined=False)) & {"RAW", "WAR"}


def test_warps_in_the_same_roles_are_one_kind() -> None:
    """Lane 0 and the others of the writer, of the reader and of the warp that does neither."""
    assert [k.warps for k in kinds(nested(joined=True)) if k.leads] == [(0,), (1,), (2,)]
    assert sum(k.count for k in kinds(nested(joined=True))) == 96


def test_a_barrier_that_a_part_of_its_threads_reaches_never_opens() -> None:
    """64 threads are named, the inner role has 32."""
    body: Body = (kir.Role("pair", 0, 2, (kir.Role("one", 0, 1, (kir.BlockSync(1, 64),)),)),)
    assert errors(single(body, threads=64)) & {"deadlock", "collective"}


WARPS = 4
KINDS = tuple(
    Threads(2 * warp + (not leads), 0, (warp,), leads, "")
    for warp in range(WARPS)
    for leads in (True, False)
)
SHAPE = (64, 16)
STRIPS = kir.Layout(SHAPE, 2, 32 * WARPS, kir.Deal.STRIPS)
PLAIN = Spread("S", STRIPS, SHAPE, 0)
MATRIX = replace(PLAIN, matrix=True)


def overlaps() -> Overlaps:
    """Return what is known of four warps."""
    return Overlaps(KINDS, 32 * WARPS)


def test_under_one_layout_each_element_has_one_thread() -> None:
    """So a private round trip needs no barrier."""
    found = overlaps().between(PLAIN, PLAIN)
    assert found == {(kind.index, kind.index): Overlap.THREAD for kind in KINDS}


@pytest.mark.parametrize("pair", [(MATRIX, MATRIX), (PLAIN, MATRIX), (MATRIX, PLAIN)])
def test_matrix_accesses_overlap_within_their_warp_only(pair: tuple[Spread, Spread]) -> None:
    """Some lane of the warp that holds an element touches it, and no other warp."""
    found = overlaps().between(*pair)
    for one in KINDS:
        for two in KINDS:
            how = found.get((one.index, two.index), Overlap.NEVER)
            if one.warps != two.warps:
                assert how is Overlap.NEVER
            else:
                assert how is (Overlap.THREAD if one.leads and two.leads else Overlap.WARP)


def test_a_matrix_access_touches_each_element_once() -> None:
    """Lanes of one store do not collide with each other; whole tiles in every warp do."""
    assert not any(overlaps().collide(MATRIX, kind.index) for kind in KINDS)
    each = Spread("S", replace(STRIPS, deal=kir.Deal.EACH_WARP), SHAPE, 0, matrix=True)
    alike = (Threads(0, 0, (0, 1, 2, 3), True, ""), Threads(1, 0, (0, 1, 2, 3), False, ""))
    assert Overlaps(alike, 32 * WARPS).collide(each, 1)


@pytest.mark.parametrize("name", CASES)
def test_lanes_of_a_matrix_access_are_not_told_apart(name: str) -> None:
    """What one lane did before is ordered by a sync of its warp, or a wider one."""
    expected, subject = CASES[name]
    verdict = prove(subject)
    found = {f.kind for f in verdict.findings if f.severity == "error"}
    assert verdict.status is (Status.FAIL if expected else Status.PASS), str(verdict)
    if expected == "collective":  # of a layout it asks first who executes it
        expected = "coverage"
    assert not expected or expected in found


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_instruction_moves_is_refuted(name: str) -> None:
    """Whether or not a race comes with it."""
    verdict = prove(IMPOSSIBLE[name])
    assert verdict.status is Status.FAIL
    assert {f.kind for f in verdict.findings} & {"bounds", "coverage"}


def test_a_tile_that_is_stored_across_is_of_the_warp_that_holds_it() -> None:
    """Rows of the slot are columns of the fragment: a strip has 16 columns of each."""
    across = replace(MATRIX, shape=SHAPE[::-1], crossed=True)
    held = owners(across).reshape(SHAPE[::-1]) // kir.WARP
    assert (held == np.arange(SHAPE[0]) // 16).all()
    lines = Spread("S", kir.Layout(SHAPE[::-1], 8, 32 * WARPS), SHAPE[::-1], 0)
    found = overlaps().between(across, lines)
    assert Overlap.ANY in found.values()
    again = overlaps().between(across, across)
    assert {x // 2 == y // 2 for x, y in again} == {True}


def test_other_rows_to_other_warps_overlap_across_warps() -> None:
    """A matrix load of what another warp has stored needs a barrier of both."""
    turned = replace(STRIPS, shape=SHAPE, deal=kir.Deal.ROUND, vector=2)
    found = overlaps().between(MATRIX, replace(PLAIN, layout=turned))
    assert Overlap.ANY in found.values()


def test_tiles_of_different_shapes_in_one_place_may_overlap_anywhere() -> None:
    """But not outside of the one warp that touches both."""
    other = replace(PLAIN, buffer="T")
    assert set(overlaps().between(PLAIN, other).values()) == {
        Overlap.ANY,
        Overlap.WARP,
        Overlap.THREAD,
    }
    one = Overlaps(KINDS[:2], 32)
    small = Spread("S", kir.Layout((4, 8), 1, 32), (4, 8), 0)
    found = one.between(small, replace(small, buffer="T"))
    assert found == {
        (0, 0): Overlap.THREAD,
        (0, 1): Overlap.WARP,
        (1, 0): Overlap.WARP,
        (1, 1): Overlap.WARP,
    }


@pytest.mark.parametrize("deal", [kir.Deal.STRIPS, kir.Deal.EACH_WARP])
def test_axes_of_extent_one_change_no_owner(deal: kir.Deal) -> None:
    """A batched tile is held as the plain one is."""
    flat = Spread("S", replace(STRIPS, deal=deal), SHAPE, 0)
    deep = Spread("S", replace(STRIPS, deal=deal, shape=(1, *SHAPE)), (1, *SHAPE), 0)
    assert (owners(flat) == owners(deep)).all()


@pytest.mark.parametrize("turned", [False, True])
def test_a_row_of_a_is_read_by_its_warpgroup(*, turned: bool) -> None:
    """By the first lanes of all of its warps; a column, where A is turned around."""
    rows, depth, warps = 256, 16, 8
    result = kir.Layout((rows, 8), 2, 32 * warps, kir.Deal.STRIPS)
    shape = (depth, rows) if turned else (rows, depth)
    found = owners(Spread("A", result, shape, 128, operand=True, turned=turned))
    readers = found.reshape(*shape, 4).transpose((1, 0, 2) if turned else (0, 1, 2))
    for row in range(rows):
        group = row % 128 // 64
        expected = [128 + 128 * group + 32 * warp for warp in range(4)]
        assert (readers[row] == expected).all()


def test_an_axis_of_extent_one_changes_no_reader_of_a() -> None:
    """A batched operand is read as the plain one is."""
    flat = Spread("A", replace(STRIPS, shape=(64, 8)), (64, 16), 0, operand=True)
    assert (owners(flat) == owners(replace(flat, shape=(1, 64, 16)))).all()


def test_bytes_of_a_swizzled_tile_may_be_anybodys() -> None:
    """Which element lies under a barrier is known of row-major tiles only."""
    kernel = reused("wait read left inval put seen get out")
    assert not judge(kernel).violations

    def swizzled(slot: kir.Slot) -> kir.Slot:
        return replace(slot, buffer=replace(slot.buffer, swizzle=128))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Store(kir.Slot() as dst):
                return [replace(stmt, dst=swizzled(dst))]
            case kir.Load(_, kir.Slot(buffer) as src) if buffer.name == "B":
                return [replace(stmt, src=swizzled(src))]
            case _:
                return None

    first, second = kernel.buffers
    moved = replace(kernel.rewrite(rule), buffers=(first, replace(second, swizzle=128)))
    assert {v.kind for v in judge(moved).violations} == {"init"}
