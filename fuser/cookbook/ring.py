"""What the recipes of the cookbook share: names, rings of mbarriers, waits by position.

Positions of a ring are counted over its whole life: slot `p % stages`, and parity
`p // stages % 2` for who waits for data, the other one for who waits for room.
"""

from __future__ import annotations

from fuser.expr import Expr, Var
from fuser.kernel import ir as kir

k, p, q, trips = (Var(name) for name in ("k", "p", "q", "trips"))
BULK, CP_ASYNC, WGMMA = kir.AsyncKind.BULK, kir.AsyncKind.CP_ASYNC, kir.AsyncKind.WGMMA
ELECT, PER_WARP = kir.Per.ROLE, kir.Per.WARP


def step(var: Var, by: Expr = 1) -> kir.Assign:
    """Advance a position."""
    return kir.Assign(var, var + by)


def ring(name: str, arrivals: int, stages: int) -> kir.MBarrier:
    """Return a ring of mbarriers."""
    return kir.MBarrier(name, arrivals, stages)


def start(*barriers: kir.MBarrier, threads: int) -> tuple[kir.Stmt, ...]:
    """Initialise barriers by one thread and make them visible to the CTA."""
    inits = tuple(kir.MBarrierInit(barrier) for barrier in barriers)
    return kir.Elect(ELECT, (*inits, kir.FenceMBarrierInit())), kir.BlockSync(0, threads)


def filled(full: kir.MBarrier, at: Expr, stages: int) -> kir.MBarrierWaitParity:
    """Wait until position `at` is filled."""
    return kir.MBarrierWaitParity(full, at % stages, at // stages % 2)


def emptied(empty: kir.MBarrier, at: Expr, stages: int) -> kir.MBarrierWaitParity:
    """Wait until the slot of position `at` is free; at once in the first iteration."""
    return kir.MBarrierWaitParity(empty, at % stages, (at // stages + 1) % 2)


def emptied_next(empty: kir.MBarrier, stages: int) -> kir.MBarrierWaitParity:
    """Wait until the slot of iteration k, just read, is free for iteration k + stages."""
    return kir.MBarrierWaitParity(empty, k % stages, k // stages % 2)
