"""Tiles in other orders than they come: chunks of a CTA, from the end, in triangles, in pairs."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, Var, ceildiv, eq, maximum, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fill,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    p,
    slots,
    store,
    t,
    tensor,
    trips,
    wait,
)


def ring(
    tile: Expr,
    *loops: tuple[Var, Expr],
    at: Expr = k,
    inner: Body = (),
    stages: int = 2,
    params: tuple[Var, ...] = (n,),
    requires: tuple[Expr, ...] = (eq(kir.GRID, 1),),
    guard: Expr | None = None,
    rows: Expr = n,
    out: Expr | None = None,
) -> kir.Kernel:
    """Return a ring that loads and stores tile `tile` in every iteration of some loops.

    Its position is `at`; `inner` is what an iteration of the innermost loop ends with.
    """
    buffer, held = slots("S", stages), fragment("x")
    full, empty = kir.MBarrier("full", 1, stages), kir.MBarrier("empty", 32, stages)
    x, y = tensor("X", rows), tensor("Y", rows)
    slot, turn = at % stages, at // stages
    use: Body = (
        wait(full, slot, turn),
        load(held, kir.Slot(buffer, slot)),
        kir.MBarrierArrive(empty, slot),
        store(box(y, tile if out is None else out), held),
    )
    copy = fill(kir.Slot(buffer, slot), box(x, tile), full, slot)
    feed: Body = (elect(wait(empty, slot, turn + 1), *copy),)

    def walk(body: Body) -> Body:
        steps = tuple(replace(s) for s in inner)
        body = (kir.IfThenElse(guard, (*body, *steps)),) if guard is not None else (*body, *steps)
        for index, stop in reversed(loops):
            body = (kir.ForLoop(index, stop, body),)
        return body

    body = (
        *((kir.Let(p, 0),) if inner else ()),
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("use", 0, 1, walk(use)),
        kir.Role("load", 1, 1, walk(feed)),
    )
    return kernel(
        body,
        threads=64,
        buffers=(buffer,),
        barriers=(full, empty),
        tensors=(x, y),
        params=params,
        requires=requires,
    )


def chunks(size: int, *, step: int = 0) -> kir.Kernel:
    """Each CTA takes a chunk of so many tiles, the last one what is left."""
    first = kir.BLOCK * (step or size)
    count = maximum(minimum(size, n - first), 0)
    return ring(first + k, (k, count), requires=(eq(kir.GRID, ceildiv(n, size)),))


def guarded_chunks(size: int, *, until: Expr = n) -> kir.Kernel:
    """Each CTA goes through a whole chunk, and leaves out what is behind the end."""
    at = kir.BLOCK * size + k
    return ring(at, (k, size), requires=(eq(kir.GRID, ceildiv(n, size)),), guard=at < until)


STEP = (kir.Assign(p, p + 1),)
"""What makes a ring run on."""


def of(count: int, grid: int = 1) -> Run:
    """Return a launch of some CTAs by n."""
    return Run(grid, (("n", count),))


def several(*sizes: tuple[int, int]) -> tuple[Run, ...]:
    """Return launches by n and m."""
    return tuple(Run(1, (("n", a), ("m", b))) for a, b in sizes)


LITMUS: tuple[Litmus, ...] = (
    legal(
        "tiles_from_the_end",
        "H10 H16",
        ring(n - 1 - k, (k, n)),
        "Slots go forward, whatever tile is in them.",
    ),
    legal(
        "tiles_from_the_end_of_three_slots",
        "H10 H16",
        ring(n - k - 1, (k, n), stages=3),
        "Slots go forward, whatever tile is in them.",
    ),
    broken(
        "tiles_from_behind_the_end",
        "H10 H71",
        ring(n - k, (k, n)),
        "coverage",
        "tiles_from_the_end",
        "The first tile lies behind the end, and tile 0 is left out.",
        launches=trips(1, 4),
    ),
    legal(
        "chunks_of_four_tiles",
        "H10 H71",
        chunks(4),
        "The last CTA has what is left.",
        launches=(of(1), of(4), of(7, 2)),
    ),
    legal(
        "chunks_of_three_tiles_guarded",
        "H10 H71",
        guarded_chunks(3),
        "The last CTA leaves out what there is not.",
        launches=(of(2), of(3), of(7, 3)),
    ),
    broken(
        "chunks_of_three_tiles_guarded_too_early",
        "H71",
        guarded_chunks(3, until=n - 1),
        "coverage",
        "chunks_of_three_tiles_guarded",
        "The last tile is nobody's.",
        launches=(of(1), of(7, 3)),
    ),
    broken(
        "chunks_of_four_tiles_that_overlap",
        "H71",
        chunks(4, step=3),
        "coverage WAW RAW",
        "chunks_of_four_tiles",
        "The last tile of each chunk is the first of the next.",
        launches=(of(8, 2),),
    ),
    legal(
        "tiles_of_rows_of_a_size",
        "H10 H16",
        ring(t * m + k, (t, n), (k, m), at=p, inner=STEP, params=(n, m), rows=n * m),
        "Rows follow each other; the ring runs on.",
        launches=several((0, 2), (1, 3), (2, 3)),
    ),
    broken(
        "tiles_of_rows_of_another_size",
        "H71",
        ring(t * m + k, (t, m), (k, n), at=p, inner=STEP, params=(n, m), rows=n * m),
        "coverage",
        "tiles_of_rows_of_a_size",
        "Rows are as long as there are rows.",
        launches=several((1, 3), (3, 2)),
    ),
    legal(
        "tiles_of_rows_from_the_end",
        "H10 H16",
        ring(t * m + (m - 1 - k), (t, n), (k, m), at=p, inner=STEP, params=(n, m), rows=n * m),
        "In each row the last comes first.",
        launches=several((0, 2), (1, 3), (2, 3)),
    ),
    legal(
        "each_tile_by_its_neighbour",
        "H71",
        ring(
            kir.BLOCK // 2 * 2 + 1 - kir.BLOCK % 2,
            (k, 1),
            requires=(eq(kir.GRID, n), eq(n % 2, 0)),
        ),
        "CTAs of a pair take each other's tiles.",
        launches=(Run(2, (("n", 2),)), Run(4, (("n", 4),))),
    ),
    broken(
        "each_tile_by_its_neighbour_of_an_odd_number",
        "H71",
        ring(
            kir.BLOCK // 2 * 2 + 1 - kir.BLOCK % 2,
            (k, 1),
            requires=(eq(kir.GRID, n), n >= 1),
        ),
        "coverage",
        "each_tile_by_its_neighbour",
        "The last CTA has no neighbour.",
        launches=(Run(1, (("n", 1),)), Run(3, (("n", 3),))),
    ),
)
