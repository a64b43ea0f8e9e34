"""The launches that judges take where none is given: legal, few, and on both sides of each turn."""

from __future__ import annotations

from dataclasses import replace

import kernels as ks
import pytest
from litmus import sizes
from litmus.meetings import meeting
from litmus.numbers import turns, waiting
from litmus.parts import (
    NBYTES,
    XN,
    YN,
    Litmus,
    box,
    elect,
    fragment,
    k,
    load,
    m,
    n,
    s,
    slots,
    store,
)
from litmus.parts import kernel as litmus_kernel
from litmus.suite import by_name
from litmus.turnstiles import turnstile

from fuser.cookbook.recipes import RECIPES, split_k, tma_ring
from fuser.cookbook.ring import emptied, filled, ring, start
from fuser.expr import Expr, Var, both, eq, minimum
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.explorer.explore import explore
from oracles.launches.choose import MOST, choose
from oracles.launches.wishes import Reading
from oracles.prover.launches import broken, counted
from oracles.simulator.simulate import search
from oracles.verdict import Status


@pytest.mark.parametrize("name", RECIPES)
def test_every_chosen_launch_is_one_of_the_kernel(name: str) -> None:
    """By the prover's reading of what a launch keeps; and they are always the same ones."""
    kernel = RECIPES[name]()
    found = choose(kernel)
    assert 4 <= len(found.launches) <= MOST
    for one in found.launches:
        assert not broken(kernel, {**one.params, kir.GRID.name: one.grid})
    assert choose(kernel) == found


@pytest.mark.parametrize("name", ["tma_ring", "wgmma_ring", "cluster_multicast", "persistent"])
def test_rings_begin_fill_and_turn_over(name: str) -> None:
    """Trip counts 0, 1, S - 1, S, S + 1 and 2 S + 1."""
    kernel = RECIPES[name]()
    stages = max(b.slots for b in kernel.buffers)
    counts = {counted(kernel, x.grid, x.params).trips["k"] for x in choose(kernel).launches}
    assert counts >= {0, 1, stages - 1, stages, stages + 1, 2 * stages + 1}


def test_ctas_that_share_a_tile_are_one_two_and_three() -> None:
    """A turnstile with a first and a last CTA only hides what happens in between."""
    found = choose(split_k()).launches
    assert {1, 2, 3} <= {one.params["splits"] for one in found}
    assert all(one.grid % one.params["splits"] == 0 for one in found)


REQUIRED: list[tuple[Expr, ...]] = [
    (eq(n % 7, 3), eq(m, n + 5)),
    (eq(m, n), eq(n + m, s * 6), n >= 13),
    (n <= 8, eq(m, 2 * n), eq(s % 5, 4)),
    (eq(n % m, 2), m >= 3),
    (eq(n * m, 36), n < m),
]


@pytest.mark.parametrize("requires", REQUIRED, ids=str)
def test_what_a_kernel_requires_is_kept(requires: tuple[Expr, ...]) -> None:
    """Sizes that depend on each other are found together."""
    x = fragment("x")
    loop = kir.ForLoop(k, n, (load(x, box(XN, k)), store(box(YN, k), x)))
    kernel = replace(litmus_kernel((loop,)), params=(n, m, s))
    kernel = replace(kernel, requires=(*kernel.requires, *requires))
    found = choose(kernel).launches
    assert found
    for one in found:
        assert not broken(kernel, {**one.params, kir.GRID.name: one.grid})


def test_a_guard_is_met_on_both_sides_wherever_it_lies() -> None:
    """A kernel may go wrong from the fortieth turn on, or for one value of a parameter."""
    x, late = fragment("x"), Var("late")
    body = (load(x, box(XN, k)), kir.IfThenElse(k >= 40, ()), store(box(YN, k), x))
    kernel = litmus_kernel(
        (kir.ForLoop(k, n, body), kir.IfThenElse(both(eq(late, 517), late < m), ()))
    )
    found = choose(replace(kernel, params=(n, m, late))).launches
    assert any(one.params["n"] > 40 for one in found)
    assert any(one.params["late"] == 517 < one.params["m"] for one in found)


def test_values_of_a_subject_are_read_where_it_stands() -> None:
    """Turns of a loop at both of its ends, and only where a guard lets them through."""
    body = kir.ForLoop(k, n, (kir.IfThenElse(k >= 3, (kir.IfThenElse(k < m, ()),)),))
    reading = Reading(replace(litmus_kernel((body,)), params=(n, m)))
    seen = {str(x.expr): values for x, values in reading.seen([20, 9, 1]).items()}
    assert seen["(turn 0 - 3)"] == {-3, -2, -1, 14, 15, 16}
    assert seen["(m - turn 0)"] == {-8, -9, -10}


def test_a_loop_that_never_runs_costs_nothing() -> None:
    """An end below 0 is no less work than none."""
    x = fragment("x")
    loop = kir.ForLoop(k, n - 8, (load(x, box(XN, k)), store(box(YN, k), x)))
    found = choose(replace(litmus_kernel((loop,)), requires=(n <= 6, eq(kir.GRID, 1)))).launches
    assert {one.params["n"] for one in found} >= {0, 6}


def test_many_ctas_are_launched_where_fewer_cannot_be() -> None:
    """All other sizes may be anything: nothing but the number of CTAs is too small."""
    x = fragment("x")
    loop = kir.ForLoop(k, n, (load(x, box(XN, k)), store(box(YN, k), x)))
    kernel = replace(litmus_kernel((loop,)), params=(n, s))
    found = choose(replace(kernel, requires=(eq(kir.GRID, s * 11), s >= 1))).launches
    assert found
    assert all(one.grid == 11 * one.params["s"] for one in found)


def test_a_kernel_that_nothing_satisfies_gets_none() -> None:
    """Judges say so: what was not run is no pass."""
    for condition in (eq(ks.R + 1, 0), eq(ks.R, 10**6), eq(ks.R // ks.C, 10**6)):
        kernel = replace(ks.direct(), requires=(condition,))
        assert choose(kernel).launches == ()
        for verdict in (explore(kernel), search(kernel, schedules=1)):
            assert verdict.status is Status.UNSUPPORTED
            assert f"that keeps what it requires: {condition}" in verdict.reason


@pytest.mark.parametrize("one", sizes.LITMUS, ids=lambda one: one.name)
def test_judges_see_what_odd_sizes_show(one: Litmus) -> None:
    """Without a launch: each of these passes where sizes are changed one at a time."""
    assert isinstance(one.kernel, kir.Kernel)
    for verdict in (explore(one.kernel), search(one.kernel, schedules=6)):
        assert verdict.status is one.expect.status, verdict


@pytest.mark.parametrize(
    "name", ["a_barrier_where_a_count_is_no_larger", "turn_not_awaited", "turnstile"]
)
def test_other_judges_choose_for_themselves(name: str) -> None:
    """Launches of several CTAs too."""
    one = by_name(name)
    assert isinstance(one.kernel, kir.Kernel)
    assert explore(one.kernel).status is one.expect.status


FAR: dict[str, kir.Kernel] = {
    "a turn that two CTAs take": turnstile(turn=minimum(kir.BLOCK, 9)),
    "a turn that is released twice": turnstile(to=(minimum(kir.BLOCK, 11) + 1) % s),
    "a meeting of fewer": meeting(ctas=minimum(s, 9), residency="co-resident", together=1),
    "waits up to a number of CTAs": waiting(s < 12),
    "a join in the first CTAs": turns(kir.BLOCK < 30),
    "a join in parts of a period": turns(kir.BLOCK // 5 % 3 < 2),
    "a join below a scaled count": turns(m // 2 + 9 > kir.BLOCK, counts=True),
    "a join where nothing is added": turns(eq(m + (kir.BLOCK > 9), m), counts=True),
}


@pytest.mark.parametrize("name", FAR)
def test_many_ctas_are_launched_where_a_comparison_needs_them(name: str) -> None:
    """And one CTA more than that, which reads what the last one of these did wrong."""
    for verdict in (explore(FAR[name]), search(FAR[name], schedules=6)):
        assert verdict.status is Status.FAIL, verdict


@pytest.mark.parametrize(("count", "stages"), [(3, 3), (4, 1), (4, 2), (8, 2)])
def test_a_ring_runs_until_arrivals_too_many_make_up_a_phase(count: int, stages: int) -> None:
    """A thread that arrives once too often in every round frees a slot early in round `count`."""

    def freed(times: int) -> kir.Kernel:
        slot, x = kir.Slot(slots("S", stages), k % stages), fragment("x")
        full, empty = ring("full", 1, stages), ring("empty", count, stages)
        expect = kir.MBarrierArriveExpectTx(full, k % stages, NBYTES)
        copy = expect, kir.TmaLoad(slot, box(XN, k), full, k % stages)
        arrivals = (kir.MBarrierArrive(empty, k % stages),) * times
        read = (filled(full, k, stages), load(x, slot), kir.WarpSync(), elect(*arrivals))
        loops = (
            (*read, store(box(YN, k), x)),
            (elect(emptied(empty, k, stages), *copy),),
        )
        roles = (kir.Role(f"r{w}", w, 1, (kir.ForLoop(k, n, of),)) for w, of in enumerate(loops))
        body = (*start(full, empty, threads=64), *roles)
        barriers = (full, empty)
        return litmus_kernel(body, threads=64, buffers=(slot.buffer,), barriers=barriers)

    for times, status in ((count, Status.PASS), (count + 1, Status.FAIL)):
        for verdict in (explore(freed(times)), search(freed(times), schedules=6)):
            assert verdict.status is status, verdict


def test_a_program_is_launched_as_it_is_told() -> None:
    """Sizes of one of its kernels say nothing of the next."""
    pair = LaunchSequence("pair", (tma_ring(), tma_ring()))
    with pytest.raises(ValueError, match="launch for each of its kernels"):
        explore(pair)
    with pytest.raises(ValueError, match="give launches for a program"):
        search(pair, schedules=1)


def late_slot(number: int, *, cut: int = 1) -> kir.Kernel:
    """Load tiles from a slot that is another one in a single turn, along rows cut into boxes."""
    from_here = kir.Tensor("X", XN.dtype, (n * 4 * cut, 32), (32, 1), XN.aligned)
    tile, buffer = fragment("x"), slots("S", 2)
    other = (k + eq(k % 12, number)) % 2
    source = replace(box(from_here, k), limit=from_here.extents)
    body = (load(tile, source), store(kir.Slot(buffer, other), tile), store(box(YN, k), tile))
    return litmus_kernel((kir.ForLoop(k, n, body),), buffers=(buffer,), tensors=(from_here, YN))


@pytest.mark.parametrize("number", [5, 9, 11])
def test_a_turn_that_only_a_slot_depends_on_is_reached(number: int) -> None:
    """It is an expression of a statement, and no condition."""
    longest = max(one.params["n"] for one in choose(late_slot(number)).launches)
    assert longest > number


def test_what_is_cut_into_boxes_is_counted_in_them() -> None:
    """A parameter that counts tiles is no size of a tile: rings are to turn over."""
    kernel = late_slot(0, cut=4)
    assert Reading(kernel).tiles[n] == 1
    assert {0, 1, 2, 3, 5} <= {one.params["n"] for one in choose(kernel).launches}
