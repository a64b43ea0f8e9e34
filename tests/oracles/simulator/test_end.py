"""What is left when no thread can move any more."""

from __future__ import annotations

import kernels
import pytest
from kernels import T0, T1, WARPS, X, Y, add, box
from litmus.distributed import shared

from fuser.kernel import ir as kir
from oracles.simulator.simulate import Launch, search
from oracles.verdict import Status

LAUNCH = Launch(1, {"R": 4, "C": 64, "pitch": 64})


@pytest.mark.parametrize(("arrivals", "warned"), [(1, {"arrivals"}), (2, set())])
def test_a_phase_that_is_left_unfinished_is_a_warning(arrivals: int, warned: set[str]) -> None:
    """Nobody waits for it any more, so nobody is confused; but it may be a count gone wrong."""
    bar = kir.MBarrier("bar", 2, 1)
    arrive = kir.Elect(kir.Per.ROLE, (kir.MBarrierArrive(bar, 0),))
    body: list[kir.Stmt] = [
        kir.Elect(kir.Per.ROLE, (kir.MBarrierInit(bar),)),
        kir.BlockSync(0, 32 * WARPS),
        *[arrive] * arrivals,
        kir.Load(X, box(T0, 0), 4),
        add(),
        kir.Store(box(T1, 0), Y, 4),
    ]
    verdict = search(kernels.kernel("small", body, barriers=(bar,)), LAUNCH, schedules=6)
    assert verdict.status is Status.PASS
    assert {finding.kind for finding in verdict.findings} == warned


@pytest.mark.parametrize(
    ("leave", "kinds"),
    [("relaxed2", {"exit"}), ("fence_cta relaxed2", {"exit"}), ("fence relaxed2", set())],
)
def test_a_peers_tile_is_read_before_the_peer_is_let_go(leave: str, kinds: set[str]) -> None:
    """A relaxed arrival says that a thread came by, not that its read of the peer is over."""
    verdict = search(shared(f"put arrive wait get {leave} wait2 out"), Launch(2, {}), schedules=6)
    assert {finding.kind for finding in verdict.findings} == kinds
