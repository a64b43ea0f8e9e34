"""The turnstile that most pairs about grids are variants of: CTAs add to one tile by turns."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    GLOBAL,
    SHARED,
    W1,
    Y1,
    Body,
    Run,
    box,
    elect,
    fragment,
    init,
    kernel,
    load,
    s,
    said,
    slots,
    store,
    tensor,
    wait,
)

TURNS = kir.Semaphore("turns", 1)
XS = tensor("X", s)
SPLITS = tuple(Run(count, (("s", count),)) for count in (1, 2, 3))
SHARES = (Run(2, (("s", 2),)), Run(3, (("s", 3),)))
"""Launches in which CTAs meet at all."""
ALONE_TOO = (Run(1, (("s", 1),)), Run(3, (("s", 3),)))
RELEASE = "turn add join release"
LAST = (kir.BLOCK + 1) % s


def turnstile(
    sentence: str = RELEASE,
    *,
    residency: str = "ticket",
    turn: Expr = kir.BLOCK,
    to: Expr = LAST,
    **own: kir.Stmt,
) -> kir.Kernel:
    """Each of `s` CTAs adds its tile to the workspace in its turn; the last writes the output."""
    tile, so_far, total = (fragment(name, 64) for name in ("x", "so_far", "total"))
    again, sum_again = fragment("so_far", 64), fragment("total", 64)
    first = (kir.Compute(total, "cast", (tile,)),)
    later = (load(again, box(W1)), kir.Compute(sum_again, "add", (tile, so_far)))
    words: dict[str, kir.Stmt] = {
        "turn": kir.BlockSerializeWait(TURNS, 0, turn),
        "add": kir.IfThenElse(eq(kir.BLOCK, 0), first, later),
        "write": kir.IfThenElse(
            s > kir.BLOCK + 1, (store(box(W1), total),), (store(box(Y1), total),)
        ),
        "join": kir.BlockSync(0, 64),
        "release": elect(kir.BlockSerializeRelease(TURNS, 0, to)),
        "relaxed": elect(kir.BlockSerializeRelease(TURNS, 0, to, relaxed=True)),
        "fenced": elect(
            kir.ThreadFence(kir.Scope.GPU),
            kir.BlockSerializeRelease(TURNS, 0, to, relaxed=True),
        ),
        "fenced_cta": elect(
            kir.ThreadFence(kir.Scope.CTA),
            kir.BlockSerializeRelease(TURNS, 0, to, relaxed=True),
        ),
        "fenced_late": elect(
            kir.BlockSerializeRelease(TURNS, 0, to, relaxed=True),
            kir.ThreadFence(kir.Scope.GPU),
        ),
        "all_fence": kir.ThreadFence(kir.Scope.GPU),
        "narrow": elect(kir.BlockSerializeRelease(TURNS, 0, to, kir.Scope.CTA)),
        "turn_cta": kir.BlockSerializeWait(TURNS, 0, turn, kir.Scope.CTA),
    }
    words |= own
    body = (load(tile, box(XS, kir.BLOCK)), *said(sentence.replace("add", "add write"), words))
    return grid(body, (XS, W1, Y1), residency=residency)


def grid(
    body: Body,
    tensors: tuple[kir.Tensor, ...],
    *,
    residency: str = "ticket",
    buffers: tuple[kir.Buffer, ...] = (),
    barriers: tuple[kir.MBarrier, ...] = (),
    workspaces: tuple[str, ...] = ("W",),
) -> kir.Kernel:
    """Return a kernel of `s` CTAs of two warps that share semaphores."""
    made = kernel(
        body,
        threads=64,
        tensors=tensors,
        workspaces=workspaces,
        params=(s,),
        requires=(s >= 1, eq(kir.GRID, s)),
        buffers=buffers,
        barriers=barriers,
    )
    return replace(made, semaphores=(TURNS,), residency=residency)


def by_engine(
    first: str = "store commit done",
    later: str = "fence add commit done",
    *,
    last: str = "join_last back out",
    after: str = "join release",
) -> kir.Kernel:
    """Each of `s` CTAs sends its tile to the workspace by TMA in its turn."""
    buffer, tile, back = slots("S"), fragment("x", 64), fragment("back", 64)

    def words() -> dict[str, kir.Stmt]:
        return {
            "store": kir.TmaStore(box(W1), kir.Slot(buffer, 0)),
            "add": kir.TmaReduce(box(W1), kir.Slot(buffer, 0)),
            "fence": kir.FenceAsyncProxy(GLOBAL),
            "fence_shared": kir.FenceAsyncProxy(SHARED),
            "commit": kir.AsyncCommit(BULK),
            "done": kir.AsyncAwait(BULK, 0),
            "read": kir.AsyncAwait(BULK, 0, read_only=True),
            "join_last": kir.BlockSync(1, 64),
            "back": load(back, box(W1)),
            "out": store(box(Y1), back),
            "join": kir.BlockSync(0, 64),
            "release": elect(kir.BlockSerializeRelease(TURNS, 0, LAST)),
            "late": elect(kir.AsyncAwait(BULK, 0)),
        }

    issue = kir.IfThenElse(eq(kir.BLOCK, 0), said(first, words()), said(later, words()))
    body = (
        load(tile, box(XS, kir.BLOCK)),
        store(kir.Slot(buffer, 0), tile),
        kir.FenceAsyncProxy(SHARED),
        kir.BlockSerializeWait(TURNS, 0, kir.BLOCK),
        elect(issue),
        kir.IfThenElse(eq(kir.BLOCK + 1, s), said(last, words())),
        *said(after, words()),
    )
    return grid(body, (XS, W1, Y1), buffers=(buffer,))


def relay(
    fence: str = "fence", *, wait_for: str = "turn", keep: str = "join release"
) -> kir.Kernel:
    """CTA 0 stores a tile to the workspace; CTA 1 loads it by TMA and writes the output."""
    buffer, bar = slots("S"), kir.MBarrier("full", 1, 1)
    x, tile, back = tensor("X"), fragment("x", 64), fragment("back", 64)
    words: dict[str, kir.Stmt] = {
        "fence": kir.FenceAsyncProxy(GLOBAL),
        "fence_shared": kir.FenceAsyncProxy(SHARED),
        "turn": kir.BlockSerializeWait(TURNS, 0, 1),
        "join": kir.BlockSync(0, 64),
        "release": elect(kir.BlockSerializeRelease(TURNS, 0, 1)),
    }
    fill = (
        kir.MBarrierArriveExpectTx(bar, 0, 512),
        kir.TmaLoad(kir.Slot(buffer, 0), box(W1), bar, 0),
    )
    give = (load(tile, box(x)), store(box(W1), tile), *said(keep, words))
    take = (
        *said(wait_for, words),
        elect(*said(fence, words), *fill),
        wait(bar, 0, 0),
        load(back, kir.Slot(buffer, 0)),
        store(box(Y1), back),
        elect(kir.BlockSerializeRelease(TURNS, 0, 0)),
    )
    body = (
        init(bar),
        kir.BlockSync(1, 64),
        kir.IfThenElse(eq(kir.BLOCK, 0), give, take),
    )
    made = grid(body, (x, W1, Y1), buffers=(buffer,), barriers=(bar,))
    return replace(made, params=(), requires=(eq(kir.GRID, 2),))


def added(*, determinism: str = "unordered", joined: str = "") -> kir.Kernel:
    """Three warps add tiles atomically to a base; `joined` sets barriers between their turns."""
    x, others = tensor("X"), tensor("Z", 3)
    tile, part, back = fragment("x", 96, 4), fragment("p"), fragment("back", 96, 4)

    def turn(number: int) -> Body:
        role = kir.Role(
            f"add{number}",
            number,
            1,
            (load(part, box(others, number)), kir.AtomicAdd(box(W1), part)),
        )
        return (role, kir.BlockSync(2, 96)) if joined else (role,)

    body = (
        load(tile, box(x)),
        store(box(W1), tile),
        kir.BlockSync(0, 96),
        *turn(0),
        *turn(1),
        *turn(2),
        kir.BlockSync(1, 96),
        load(back, box(W1)),
        store(box(Y1), back),
    )
    made = kernel(body, threads=96, tensors=(x, others, W1, Y1), workspaces=("W",), params=())
    return replace(made, determinism=determinism)


def partial(limit: int, rows: int = 6) -> kir.Kernel:
    """Two CTAs store a tile of four rows each to an output of `rows`, clipped at `limit`."""
    x = kir.Tensor("X", DType.F32, (rows, 32), (32, 1), 4)
    y = kir.Tensor("Y", DType.F32, (rows, 32), (32, 1), 4)
    tile = fragment("x")
    at = (kir.BLOCK * 4, 0)
    body = (
        kir.Load(tile, kir.Box(x, at, (4, 32), (rows, 32)), 4),
        kir.Store(kir.Box(y, at, (4, 32), (limit, 32)), tile, 4),
    )
    made = kernel(body, tensors=(x, y), params=())
    return replace(made, requires=(eq(kir.GRID, 2),))
