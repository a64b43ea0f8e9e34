"""Clusters: CTA 0 loads what all share, and learns from each when it may."""

from dataclasses import replace

import pytest
from product_kernels import CLUSTER, COOPERATIVE, kernel, roles

from fuser.kernel import ir as kir
from oracles.prover.prove import prove
from oracles.verdict import Status


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


def test_the_relay_is_one_thread_of_the_load_role() -> None:
    """It waits at home and arrives at CTA 0's barrier, in the other CTAs only."""
    made = kernel(CLUSTER)
    relay = roles(made)["relay"]
    assert relay.warps == 1
    (others,) = relay.body
    assert isinstance(others, kir.IfThenElse)
    assert others.condition == (kir.RANK >= 1)
    (far,) = [s for s in kir.walk(relay.body) if isinstance(s, kir.MBarrierArrive)]
    assert (far.cta, far.scope, far.barrier.arrivals) == (0, kir.Scope.CLUSTER, 1)


@pytest.mark.parametrize("name", ["empty", "shared"])
def test_no_wait_of_the_relay_is_idle(name: str) -> None:
    """Without either, CTA 0 writes over what another CTA still reads."""
    made = kernel(CLUSTER)
    role = roles(made)["relay" if name == "empty" else "loader"]
    (victim,) = [
        s
        for s in kir.walk(role.body)
        if isinstance(s, kir.MBarrierWaitParity) and s.barrier.name == name
    ]
    broken = made.rewrite(lambda stmt: [] if stmt is victim else None)
    assert prove(broken).status is Status.FAIL


def test_kernels_without_clusters_have_no_relay() -> None:
    """The pass leaves them alone."""
    assert "relay" not in roles(kernel(COOPERATIVE))
