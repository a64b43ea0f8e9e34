"""Kernels of CTAs that arrive at an integer of a semaphore, for the tests of several judges."""

from __future__ import annotations

from dataclasses import replace

from litmus.arrivals import PAIR
from litmus.meetings import WS
from litmus.parts import Y1, Body, box, fragment, load, s, store, t
from litmus.turnstiles import XS, grid

from fuser.expr import eq
from fuser.kernel import ir as kir

MINE, MORE, TOTAL = (fragment(name, 64) for name in ("x", "more", "total"))
PUT = store(box(WS, kir.BLOCK), MINE)
ADDED = (load(MORE, box(WS, t + 1)), kir.Compute(TOTAL, "add", (TOTAL, MORE)))
SUM: Body = (load(TOTAL, box(WS, 0)), kir.ForLoop(t, s - 1, ADDED))
OUT = store(box(Y1), TOTAL)


def ctas_of(
    *body: kir.Stmt, integers: int = 2, residency: str = "co-resident", threads: int = 64
) -> kir.Kernel:
    """Return a kernel of `s` CTAs that share a semaphore of some integers."""
    made = grid((load(MINE, box(XS, kir.BLOCK)), *body), (XS, WS, Y1), residency=residency)
    many = kir.Semaphore("turns", integers)
    return replace(made, semaphores=(many,), together=s, threads=threads)


def by_role(first: int) -> kir.Role:
    """Let two warps come, and add up if they are of the last CTA."""
    tile = load(MINE, box(XS, kir.BLOCK))
    elected = kir.LastArriving(PAIR, 0, s, (*SUM, OUT), 1 + first)
    return kir.Role(f"from{first}", first, 2, (tile, PUT, elected))


def by_roles() -> kir.Kernel:
    """CTA 0 comes by its first two warps, the others by their last two."""
    body: Body = (kir.IfThenElse(eq(kir.BLOCK, 0), (by_role(0),), (by_role(2),)),)
    return replace(ctas_of(), threads=128, body=body)
