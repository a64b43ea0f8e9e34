"""Who hands slots back, when, and how often."""

from dataclasses import replace

import pytest
from product_kernels import (
    CLUSTER,
    COOPERATIVE,
    MBARRIERS,
    PING_PONG,
    PIPELINED,
    kernel,
    loops,
    roles,
)

from fuser.kernel import ir as kir
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.kernels.matmul import MATMULS
from oracles.prover.prove import prove
from oracles.verdict import Status


def arrivals(made: kir.Kernel, name: str) -> list[kir.MBarrierArrive]:
    """Arrivals at a barrier."""
    return [s for s in made.walk() if isinstance(s, kir.MBarrierArrive) and s.barrier.name == name]


def test_every_reading_warp_is_counted() -> None:
    """Eight warps share a tile; in ping-pong four read each slot."""
    counts = {
        name: next(b.arrivals for b in kernel(p).barriers if b.name == "empty")
        for name, p in (("both", COOPERATIVE), ("one", PING_PONG), ("copies", MBARRIERS))
    }
    assert counts == {"both": 8, "one": 4, "copies": 4}


@pytest.mark.parametrize("in_flight", range(3))
def test_the_slot_of_so_many_turns_ago_goes_back(in_flight: int) -> None:
    """And the last ones behind the flush, for the next tile."""
    made = kernel(replace(COOPERATIVE, stages=5, prefetch=4 - in_flight))
    found = arrivals(made, "empty")
    assert len(found) == 1 + in_flight
    position = next(s.var for s in made.walk() if isinstance(s, kir.Let) and s.var.name == "p")
    back = position + (5 - in_flight) if in_flight else position
    assert found[0].slot == back % 5


def test_one_role_hands_nothing_back() -> None:
    """A join of the CTA does it."""
    assert not arrivals(kernel(PIPELINED), "empty")


def test_lanes_join_before_they_hand_back_what_they_read() -> None:
    """Ordinary loads: one lane arrives for all."""
    (loop,) = [
        found
        for found in loops(roles(kernel(MBARRIERS))["compute"].body)
        if any(isinstance(s, kir.Mma) for s in found.body)
    ]
    names = [type(s).__name__ for s in loop.body]
    at = names.index("WarpSync")
    assert names[at - 1] == "Load"
    assert names[at + 1] == "Elect"


def test_lanes_join_behind_the_flush_if_they_have_read_late() -> None:
    """Of two operands that a step computes the second one is read behind the join of the step."""
    tiles = {
        name: loops(roles(MATMULS[name].template().kernel)["compute"].body)[0]
        for name in ("computed_cooperative", "computed_two_weights")
    }
    joins = {
        name: [stmt for stmt in loop.body if isinstance(stmt, kir.WarpSync)]
        for name, loop in tiles.items()
    }
    assert not joins["computed_cooperative"]
    (join,) = joins["computed_two_weights"]
    made = MATMULS["computed_two_weights"].template().kernel
    assert prove(made).status is Status.PASS
    bad = without(made, join)
    assert bad != made
    assert prove(bad).status is Status.FAIL


@pytest.mark.parametrize("params", [COOPERATIVE, PING_PONG, MBARRIERS])
def test_no_arrival_is_one_too_many(params: MatmulParams | AmpereParams) -> None:
    """Without any one of them the kernel hangs."""
    made = kernel(params)
    assert prove(made).status is Status.PASS
    for victim in arrivals(made, "empty"):
        assert prove(without(made, victim)).status is Status.FAIL


def without(made: kir.Kernel, victim: kir.Stmt) -> kir.Kernel:
    """The kernel without a statement."""
    return made.rewrite(lambda stmt: [] if stmt is victim else None)


# --- clusters: CTA 0 loads what all share, and learns from each when it may -----------------------


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (4, 1)])
def test_one_cta_loads_the_shared_operand_for_all(cluster: tuple[int, int]) -> None:
    """Along rows the columns' operand is shared, and the other way round."""
    made = kernel(replace(COOPERATIVE, cluster=cluster), m=1024, n=256)
    ctas = cluster[0] * cluster[1]
    assert made.cluster == ctas
    loads = [s for s in made.walk() if isinstance(s, kir.TmaLoad)]
    masks = {s.dst.buffer.name: s.multicast for s in loads}
    shared, own = ("S_T1", "S_T0") if cluster[0] > 1 else ("S_T0", "S_T1")
    assert masks == {shared: (1 << ctas) - 1, own: None}
    expected = {s.nbytes for s in made.walk() if isinstance(s, kir.MBarrierArriveExpectTx)}
    assert expected == {(128 + 32) * 64 * 2}, "every CTA expects both"
    assert prove(made).status is Status.PASS


def test_readers_of_other_ctas_tell_cta_0_of_slots_that_it_fills() -> None:
    """Each reading warp arrives at home and at CTA 0's barrier, and releases shared memory only."""
    made = kernel(CLUSTER)
    arrivals = [s for s in made.walk() if isinstance(s, kir.MBarrierArrive)]
    home, far = ([s for s in arrivals if s.barrier.name == name] for name in ("empty", "shared"))
    assert [s.slot for s in home] == [s.slot for s in far]
    assert {(s.cta, s.scope, s.space) for s in far} == {(0, kir.Scope.CLUSTER, kir.Space.SHARED)}
    each = (made.cluster - 1) * home[0].barrier.arrivals
    assert {s.barrier.arrivals for s in far} == {each}
    others = [
        s
        for s in made.walk()
        if isinstance(s, kir.IfThenElse) and any(one in s.then for one in far)
    ]
    assert {s.condition for s in others} == {kir.RANK >= 1}


@pytest.mark.parametrize("name", ["empty", "shared"])
def test_no_wait_for_room_is_idle(name: str) -> None:
    """Without either, CTA 0 writes over what somebody still reads."""
    made = kernel(CLUSTER)
    (victim,) = [
        s
        for s in kir.walk(roles(made)["load"].body)
        if isinstance(s, kir.MBarrierWaitParity) and s.barrier.name == name
    ]
    assert prove(without(made, victim)).status is Status.FAIL


@pytest.mark.parametrize("name", ["empty", "shared"])
def test_no_arrival_is_idle(name: str) -> None:
    """Without one the phase does not end, and the ring stops."""
    made = kernel(CLUSTER)
    victims = [
        s for s in made.walk() if isinstance(s, kir.MBarrierArrive) and s.barrier.name == name
    ]
    for victim in victims:
        assert prove(without(made, victim)).status is Status.FAIL


def test_kernels_without_clusters_have_no_shared_slots() -> None:
    """The pass leaves them alone."""
    assert {b.name for b in kernel(COOPERATIVE).barriers} == {"full", "empty"}
