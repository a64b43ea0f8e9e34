"""A ring through which a known number of passes goes on, each of a length that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.expr import Expr, Var, both, eq, maximum
from fuser.kernel import ir as kir
from litmus.parts import (
    X1,
    Y1,
    Litmus,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    kernel,
    legal,
    load,
    n,
    q,
    slots,
    store,
    t,
    tensor,
    trips,
    wait,
)

at = Var("at")


def passes(
    length: Expr, stages: int, *, late: Expr = 0, unmet: Expr = 0, count: int = 2
) -> kir.Kernel:
    """Return a kernel of two warps: one fills the ring in each pass, the other reads it.

    Where `unmet` holds the ring is filled without a wait, where `late` does the reader waits for
    the phase after the one it means.
    """
    buffer, x, tiles = slots("S", stages), fragment("x"), tensor("Z", n + count)
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 1, stages)
    slot, turn = at % stages, at // stages

    def side(*body: kir.Stmt) -> tuple[kir.Stmt, ...]:
        inner = kir.ForLoop(q, length, (*body, kir.Assign(at, at + 1)))
        return kir.Let(at, 0), kir.ForLoop(t, count, (inner,))

    here, freed = wait(full, slot, turn), wait(empty, slot, turn + 1)
    use = side(
        here if late == 0 else kir.IfThenElse(late, (wait(full, slot, turn + 1),), (here,)),
        load(x, kir.Slot(buffer, slot)),
        kir.FenceAsyncProxy(kir.Space.SHARED),
        kir.WarpSync(),
        elect(kir.MBarrierArrive(empty, slot)),
    )
    feed = side(
        elect(
            freed if unmet == 0 else kir.IfThenElse(unmet, (), (freed,)),
            *fill(kir.Slot(buffer, slot), box(tiles, q), full, slot),
        )
    )
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, (*use, load(x, box(X1)), store(box(Y1), x))),
        kir.Role("load", 1, 1, feed),
    )
    tensors = (X1, tiles, Y1)
    return kernel(body, threads=64, buffers=(buffer,), barriers=(full, empty), tensors=tensors)


LENGTHS: dict[str, Expr] = {"as_long": n, "shorter": maximum(n - t, 0), "longer": n + t}
"""How long a pass is beside the one before."""


def by_length() -> Iterator[Litmus]:
    """Yield passes over rings, and such as go wrong in the second pass or late in it."""
    for name, length in LENGTHS.items():
        for stages in (1, 2):
            yield legal(
                f"passes_{name}_over_{stages}",
                "H01 H05",
                passes(length, stages),
                "Positions go on from one pass to the next.",
                launches=trips(0, 1, 3, 4),
            )
        yield legal(
            f"three_passes_{name}",
            "H01 H05",
            passes(length, 2, count=3),
            "Positions go on from one pass to the next.",
            launches=trips(0, 1, 3),
        )
        yield broken(
            f"second_pass_{name}_of_another_phase",
            "H01 H05",
            passes(length, 2, late=eq(t, 1)),
            "parity RAW WAR deadlock",
            f"passes_{name}_over_2",
            "In the second pass the reader waits for a phase that has not begun.",
            launches=trips(2, 3),
        )
        yield broken(
            f"second_pass_{name}_fills_a_full_slot",
            "H01 H05",
            passes(length, 1, unmet=both(t >= 1, q >= 3)),
            "parity arrivals WAW WAR",
            f"passes_{name}_over_1",
            "The fourth tile of the second pass is copied over one that may not have been read.",
            launches=trips(5),
        )


LITMUS: tuple[Litmus, ...] = tuple(by_length())
