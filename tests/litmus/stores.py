"""The loop of staged TMA stores that pairs about bulk groups and proxy fences are variants of."""

from __future__ import annotations

from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    SHARED,
    XN,
    YN,
    box,
    elect,
    fragment,
    k,
    kernel,
    load,
    n,
    said,
    slots,
    store,
)

OUT_LOOP = "get drain sync put fence join issue"


def leaving(
    loop: str = OUT_LOOP, after: str = "end", *, stages: int = 1, **own: kir.Stmt
) -> kir.Kernel:
    """Return a kernel of two warps whose results leave by TMA from `stages` slots."""
    buffer, tile = slots("S", stages), fragment("x", 64)
    slot = k % stages
    words: dict[str, kir.Stmt] = {
        "get": load(tile, box(XN, k)),
        "drain": elect(kir.AsyncAwait(BULK, stages - 1, read_only=True)),
        "sync": kir.BlockSync(0, 64),
        "put": store(kir.Slot(buffer, slot), tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(1, 64),
        "issue": elect(kir.TmaStore(box(YN, k), kir.Slot(buffer, slot)), kir.AsyncCommit(BULK)),
        "end": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
    }
    words |= own
    body = (kir.ForLoop(k, n, said(loop, words)), *said(after, words))
    return kernel(body, threads=64, buffers=(buffer,))
