"""A ring of one warp that another warp empties, by named barriers both ways."""

from __future__ import annotations

from dataclasses import replace

from fuser.cookbook import recipes
from fuser.cookbook.ring import k, trips
from fuser.kernel import ir as kir


def signalled() -> kir.Kernel:
    """One warp stores tiles that the other one loads, by named barriers both ways."""
    pair = 2 * kir.WARP
    layout = kir.Layout((4, 64), 4, kir.WARP)
    ring = recipes.store_ring()
    (buffer,) = ring.buffers
    x = kir.Fragment("x", buffer.dtype, layout)
    slot = kir.Slot(replace(buffer, slots=1), 0)
    let = ring.body[0]
    give = (
        kir.IfThenElse(k >= 1, (kir.BlockSync(2, pair),)),
        kir.Store(slot, x, 4),
        kir.NamedArrive(1, pair),
    )
    take = (
        kir.BlockSync(1, pair),
        kir.Load(x, slot, 4),
        kir.IfThenElse(k + 1 < trips, (kir.NamedArrive(2, pair),)),
    )
    body = (
        let,
        kir.Role("give", 0, 1, (kir.ForLoop(k, trips, give),)),
        kir.Role("take", 1, 1, (kir.ForLoop(k, trips, take),)),
    )
    return replace(ring, name="signalled", threads=pair, buffers=(slot.buffer,), body=body)
