"""Bulk copies without a tensor map: runs of memory, clipped bytes, and what lies behind them."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, ceildiv, eq, minimum
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    NBYTES,
    SHARED,
    XN,
    YN,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    m,
    n,
    said,
    slots,
    store,
    trips,
    wait,
)

FULL = kir.MBarrier("full", 1, 2)
RING = slots("S", 2)
AT = kir.Slot(RING, k % 2)
IN_LOOP = "issue wait get sync put"


def arriving(loop: str = IN_LOOP, **own: kir.Stmt) -> kir.Kernel:
    """Take tiles by bulk copies into two slots in turn."""
    tile = fragment("x")
    words: dict[str, kir.Stmt] = {
        "issue": issue(),
        "wait": wait(FULL, k % 2, k // 2),
        "get": load(tile, AT),
        "sync": kir.BlockSync(0, 32),
        "put": store(box(YN, k), tile),
    }
    body = (init(FULL), kir.BlockSync(0, 32), kir.ForLoop(k, n, said(loop, words | own)))
    return kernel(body, buffers=(RING,), barriers=(FULL,))


def issue(nbytes: Expr = NBYTES, src: kir.Box | None = None) -> kir.Elect:
    """Expect so many bytes, and copy a tile."""
    expect = kir.MBarrierArriveExpectTx(FULL, k % 2, nbytes)
    return elect(expect, kir.TmaLoad(AT, src or box(XN, k), FULL, k % 2, bulk=True))


def tail(nbytes: Expr) -> kir.Kernel:
    """Take rows, four at a time, of which there may be fewer at last."""
    x, y = (kir.Tensor(name, DType.F32, (m, 32), (32, 1), 4) for name in "XY")
    here, tile = kir.Box(x, (k * 4, 0), (4, 32), (m, 32)), fragment("x")
    put = store(replace(here, tensor=y), tile)
    get = replace(load(tile, AT), limit=(m - k * 4, 32))
    made = arriving(issue=issue(nbytes, here), get=get, put=put)
    *first, loop = made.body
    assert isinstance(loop, kir.ForLoop), "tiles are taken in a loop"
    body = (*first, replace(loop, stop=ceildiv(m, 4)))
    return replace(made, body=body, tensors=(x, y), params=(m,))


OUT_LOOP = "get drain sync put fence join issue"


def leaving(loop: str = OUT_LOOP, after: str = "end", **own: kir.Stmt) -> kir.Kernel:
    """Send results of two warps off by bulk copies, from one slot."""
    buffer, tile = slots("S"), fragment("x", 64)
    slot = kir.Slot(buffer, 0)
    words: dict[str, kir.Stmt] = {
        "get": load(tile, box(XN, k)),
        "drain": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "sync": kir.BlockSync(0, 64),
        "put": store(slot, tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(1, 64),
        "issue": elect(kir.TmaStore(box(YN, k), slot, bulk=True), kir.AsyncCommit(BULK)),
        "end": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    }
    body = (kir.ForLoop(k, n, said(loop, words | own)), *said(after, words))
    return kernel(body, threads=64, buffers=(buffer,))


ROW = kir.Buffer("R", DType.F32, (128,), 1, 0)
COPIED = minimum(128, m) * 4
"""Bytes of a row that lie before its end, in a slot of 128 elements."""
PART = tuple(Run(1, (("m", many),)) for many in (64, 96))
"""Rows that end before their slot does."""


def row(name: str, extent: Expr = m, *, ragged: bool = False) -> kir.Tensor:
    """Return a row of some elements."""
    return kir.Tensor(name, DType.F32, (extent,), (1,), 4, ragged)


def clipped(
    nbytes: Expr = COPIED,
    read: Expr | None = m,
    *,
    ragged: bool = False,
    first: Expr = 0,
    by_engine: Expr | None = None,
    early: bool = False,
) -> kir.Kernel:
    """Copy a row of up to 128 elements into a slot of 128, and from there, `read` of it.

    Or `by_engine`: so many are copied on by a bulk copy.  `early`: the copy is issued first, its
    bytes are expected behind it.
    """
    x, y, bar, slot = (
        row("X", ragged=ragged),
        row("Y", ragged=ragged),
        kir.MBarrier("full", 1, 1),
        kir.Slot(ROW, 0),
    )
    tile = kir.Fragment("x", DType.F32, kir.Layout((128,), 4, 32))
    copy = kir.TmaLoad(slot, kir.Box(x, (first,), (128,), (m,)), bar, 0, bulk=True)
    expect = kir.MBarrierArriveExpectTx(bar, 0, nbytes)
    out = kir.Box(y, (0,), (128,), (m,))
    body: tuple[kir.Stmt, ...] = (
        kir.Load(tile, slot, 4, limit=None if read is None else (read,)),
        store(out, tile),
    )
    if by_engine is not None:
        put = kir.TmaStore(replace(out, limit=(by_engine,)), slot, bulk=True)
        body = (elect(put, kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0, read_only=True)),)
    made = kernel(
        (
            init(bar),
            kir.BlockSync(0, 32),
            elect(*((copy, expect) if early else (expect, copy))),
            wait(bar, 0, 0),
            *body,
        ),
        buffers=(ROW,),
        barriers=(bar,),
        tensors=(x, y),
        params=(m,),
    )
    return replace(made, requires=(*made.requires, m >= 8, m <= 128, eq(m % 4, 0)))


LITMUS: tuple[Litmus, ...] = (
    legal(
        "tiles_by_bulk_copies",
        "H08",
        arriving(),
        "A tile of whole rows is one run of memory.",
    ),
    broken(
        "bulk_copies_of_more_bytes_than_expected",
        "H08",
        arriving(issue=issue(NBYTES // 2)),
        "bytes",
        "tiles_by_bulk_copies",
        "The copy counts all of its bytes.",
    ),
    broken(
        "bulk_copies_that_nobody_waits_for",
        "H01",
        arriving(IN_LOOP.replace("wait ", "")),
        "RAW parity",
        "tiles_by_bulk_copies",
        "The copy may be under way yet.",
        launches=trips(1, 3),
    ),
    broken(
        "bulk_copies_into_slots_that_are_read",
        "H02",
        arriving("issue wait get put", get=load(fragment("x"), kir.Slot(RING, (k + 1) % 2))),
        "RAW WAR",
        "tiles_by_bulk_copies",
        "The other slot is read, which nobody has waited for.",
        launches=trips(2, 3),
    ),
    legal(
        "results_leave_by_bulk_copies",
        "H40",
        leaving(),
        "As by tensor copies: fenced, joined, drained.",
    ),
    broken(
        "bulk_sources_overwritten_without_a_wait",
        "H40",
        leaving(OUT_LOOP.replace("drain ", "")),
        "WAR",
        "results_leave_by_bulk_copies",
        "The engine may still read the slot.",
        launches=trips(2, 5),
    ),
    broken(
        "bulk_sources_without_a_fence",
        "H20",
        leaving(OUT_LOOP.replace("fence ", "")),
        "proxy",
        "results_leave_by_bulk_copies",
        "Ordinary stores are not seen by the engine.",
        launches=trips(1, 2),
    ),
    broken(
        "bulk_copies_in_flight_at_the_end",
        "H60",
        leaving(after=""),
        "exit",
        "results_leave_by_bulk_copies",
        "The CTA ends while the engine reads its shared memory.",
        launches=trips(1, 2),
    ),
    legal(
        "a_row_that_ends_in_its_slot",
        "H08 H75",
        clipped(),
        "The bytes before the end are expected, copied and read, and no more.",
        launches=PART,
    ),
    legal(
        "a_row_whose_bytes_are_spelled_otherwise",
        "H08",
        clipped(m * 4),
        "Rows have 128 elements at most.",
        launches=PART,
    ),
    legal(
        "a_row_that_is_copied_on",
        "H08 H40",
        clipped(by_engine=m),
        "What one bulk copy has left another one takes.",
        launches=PART,
    ),
    legal(
        "a_row_copied_before_its_bytes_are_expected",
        "H08",
        clipped(early=True),
        "The phase cannot end before the arrival that expects them.",
        launches=PART,
    ),
    broken(
        "a_row_copied_before_more_bytes_are_expected",
        "H08",
        clipped(NBYTES, early=True),
        "bytes",
        "a_row_copied_before_its_bytes_are_expected",
        "The bytes before the end arrive, and no more.",
        launches=PART,
    ),
    broken(
        "a_row_that_is_expected_to_fill_its_slot",
        "H08",
        clipped(NBYTES),
        "bytes",
        "a_row_that_ends_in_its_slot",
        "A bulk copy counts the bytes before the end, not all of its box.",
        launches=PART,
    ),
    broken(
        "a_last_tile_that_is_expected_to_fill_its_slot",
        "H08",
        tail(NBYTES),
        "bytes",
        "a_row_that_ends_in_its_slot",
        "Two of its four rows are copied.",
        launches=(Run(1, (("m", 2),)), Run(1, (("m", 6),))),
    ),
    broken(
        "a_row_read_behind_its_end",
        "H75",
        clipped(read=None),
        "RAW",
        "a_row_that_ends_in_its_slot",
        "Behind its end the copy has left nothing.",
        launches=PART,
    ),
    broken(
        "a_row_read_a_little_behind_its_end",
        "H75",
        clipped(read=m + 4),
        "RAW",
        "a_row_that_ends_in_its_slot",
        "Four elements are nobody's.",
        launches=PART,
    ),
    broken(
        "a_row_of_odd_bytes",
        "H75",
        replace(clipped(ragged=True), requires=(eq(kir.GRID, 1), eq(m, 30))),
        "bounds",
        "a_row_that_ends_in_its_slot",
        "A bulk copy takes multiples of 16 bytes (PTX ISA, cp.async.bulk).",
        launches=(Run(1, (("m", 30),)),),
        refused="is ragged",
    ),
    broken(
        "a_row_from_the_second_element_on",
        "H75",
        clipped(minimum(128, m - 2) * 4, m - 2, first=2),
        "bounds",
        "a_row_that_ends_in_its_slot",
        "Its address is no multiple of 16 bytes.",
        launches=PART,
    ),
)
