"""Nested roles and elections: which threads are told apart."""

from __future__ import annotations

import pytest
from litmus.parts import X1, Y1, Body, box, fragment, load, single, slots, store

from fuser.kernel import ir as kir
from oracles.prover.reachability.fixpoint import judge
from oracles.prover.threads import kinds

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
