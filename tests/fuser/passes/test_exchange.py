"""CTAs of a cluster that store parts of rows into each other: every sync, with it and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from norms import (
    CLUSTER,
    CLUSTER_BULK,
    CLUSTER_RING,
    add_rms_norm,
    launches,
    layer_norm_dx,
    softmax,
)

from fuser import pipeline
from fuser.expr import Expr
from fuser.fusion.definition import Fusion
from fuser.kernel import ir as kir
from fuser.passes import exchange as pass_
from fuser.passes.exchange import exchange
from fuser.schedule.params import NormParams
from oracles.prover.prove import prove
from oracles.verdict import Status

SCHEDULES = {"a row": CLUSTER, "rows by cp.async": CLUSTER_RING, "rows in bulk": CLUSTER_BULK}


def kernel(params: NormParams = CLUSTER_BULK, fusion: Callable[[], Fusion] = softmax) -> kir.Kernel:
    """Return the kernel of a fusion, finished."""
    (launch,) = launches(fusion(), params)
    return launch.kernel


@pytest.mark.parametrize("params", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("fusion", [softmax, add_rms_norm, layer_norm_dx])
def test_exchanges_are_proved(params: NormParams, fusion: Callable[[], Fusion]) -> None:
    """Of one reduction, of two one behind the other, and of two that do with one."""
    assert prove(kernel(params, fusion)).status is Status.PASS


def _expects(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.MBarrierArriveExpectTx) and stmt.barrier.name == "sent1"


def _waits(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.MBarrierWaitParity) and stmt.barrier.name == "sent"


def _sends(stmt: kir.Stmt) -> bool:
    return isinstance(stmt, kir.StAsync) and stmt.dst.cta == 1


NEEDED: dict[str, Callable[[kir.Stmt], bool]] = {
    "the wait for parts": _waits,
    "what is expected": _expects,
    "what the second CTA gets": _sends,
    "arrivals at the join": lambda stmt: isinstance(stmt, kir.ClusterArrive),
    "waits at the join": lambda stmt: isinstance(stmt, kir.ClusterWait),
    "joins": lambda stmt: isinstance(stmt, kir.ClusterArrive | kir.ClusterWait),
    "arrivals in the loop": lambda stmt: (
        isinstance(stmt, kir.IfThenElse) and isinstance(stmt.then[0], kir.ClusterArrive)
    ),
}


@pytest.mark.parametrize("drop", NEEDED.values(), ids=NEEDED)
def test_without_any_of_its_syncs_a_kernel_is_refuted(drop: Callable[[kir.Stmt], bool]) -> None:
    """Each is there for a reason."""
    broken = kir.rewrite(kernel().body, lambda stmt: [] if drop(stmt) else None)
    assert broken != kernel().body
    assert prove(replace(kernel(), body=broken)).status is Status.FAIL


def test_parts_are_waited_for_at_the_scope_of_the_cluster() -> None:
    """At that of the CTA nobody else's are acquired."""

    def narrow(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.MBarrierWaitParity(scope=kir.Scope.CLUSTER):
                return [replace(stmt, scope=kir.Scope.CTA)]
            case _:
                return None

    assert prove(kernel().rewrite(narrow)).status is Status.FAIL


def test_slots_are_those_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join in every iteration, if there are slots for one; none may be used twice between."""
    monkeypatch.setattr(pipeline, "_finished", pipeline._finished.__wrapped__)  # anew each time
    monkeypatch.setattr(pass_, "SLOTS", 2)
    assert prove(kernel()).status is Status.PASS

    def all_of_one(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        joins = isinstance(stmt, kir.IfThenElse) and isinstance(stmt.then[0], kir.ClusterArrive)
        return [] if joins else None

    monkeypatch.setattr(pass_, "SLOTS", 8)
    made = kernel()
    (parts,) = (b for b in made.buffers if b.name == "S_cta_T3")
    assert parts.slots == 8  # of two CTAs, in four iterations
    assert prove(made.rewrite(all_of_one)).status is Status.FAIL


def test_each_cta_stores_one_slot_of_every_cta() -> None:
    """Its own number says which, and all barriers expect as many bytes."""
    made = kernel(CLUSTER)
    sends = [stmt for stmt in made.walk() if isinstance(stmt, kir.StAsync)]
    found: dict[str, list[tuple[Expr, Expr | None]]] = {}
    for send in sends:
        found.setdefault(send.dst.buffer.name, []).append((send.dst.index, send.dst.cta))
    assert list(found.values()) == [[(kir.RANK, cta) for cta in range(4)]] * 2
    expected = {s.nbytes for s in made.walk() if isinstance(s, kir.MBarrierArriveExpectTx)}
    assert expected == {4 * sends[0].dst.buffer.slot_nbytes}


def test_kernels_without_peers_stay_as_they_are() -> None:
    """Nobody is joined, and nothing is waited for."""
    made = kernel(replace(CLUSTER_BULK, tile=(1, 256), cluster=1))
    assert exchange(made) is made
