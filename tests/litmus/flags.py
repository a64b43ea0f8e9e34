"""Flags in global memory: who sets them, who clears them, and tiles told of while others leave."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    SHARED,
    W1,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    kernel,
    legal,
    load,
    m,
    said,
    slots,
    store,
    t,
    tensor,
)

X3, W3, Y3 = tensor("X", 3), tensor("W", 3), tensor("Y", 3)
FLAG = kir.Semaphore("flag", 1)
X1, Y1 = tensor("X"), tensor("Y")


def sets(of: kir.Semaphore, at: Expr, value: Expr) -> kir.Stmt:
    """Set a flag by one thread."""
    return elect(kir.BlockSerializeRelease(of, at, value))


def two(
    first: Body,
    second: Body,
    *,
    flags: kir.Semaphore = FLAG,
    tensors: tuple[kir.Tensor, ...],
    buffers: tuple[kir.Buffer, ...] = (),
    params: tuple[Var, ...] = (m,),
    before: Body = (),
) -> kir.Kernel:
    """Return a kernel of two CTAs, with what each of them does."""
    made = kernel(
        (*before, kir.IfThenElse(eq(kir.BLOCK, 0), first, second)),
        threads=64,
        buffers=buffers,
        tensors=tensors,
        workspaces=("W",),
        params=params,
        requires=(eq(kir.GRID, 2),),
    )
    return replace(made, semaphores=(flags,), residency="co-resident")


def told_at_the_end(reader: str = "wait read out join clear") -> kir.Kernel:
    """One CTA stores all tiles and then sets a flag; the other one reads them and clears it."""
    x, y = fragment("x", 64), fragment("y", 64)
    give = (
        kir.ForLoop(t, 3, (load(x, box(X3, t)), store(box(W3, t), x))),
        kir.BlockSync(0, 64),
        sets(FLAG, 0, 1),
    )
    words: dict[str, kir.Stmt] = {
        "wait": kir.BlockSerializeWait(FLAG, 0, 1),
        "read": kir.ForLoop(t, 3, (load(y, box(W3, t)), store(box(Y3, t), y))),
        "out": kir.WarpSync(),
        "join": kir.BlockSync(0, 64),
        "clear": sets(FLAG, 0, 0),
    }
    return two(give, said(reader, words), tensors=(X3, W3, Y3), params=())


def told_each(
    giver: str = "get put join tell",
    reader: str = "wait read out",
    after: str = "join clears",
) -> kir.Kernel:
    """One CTA tells of each tile by a flag of its own; the other clears all flags at the end."""
    flags = kir.Semaphore("flags", 3)
    x, y = fragment("x", 64), fragment("y", 64)
    give: dict[str, kir.Stmt] = {
        "get": load(x, box(X3, t)),
        "put": store(box(W3, t), x),
        "join": kir.BlockSync(0, 64),
        "tell": sets(flags, t, 1),
    }
    take: dict[str, kir.Stmt] = {
        "wait": kir.BlockSerializeWait(flags, t, 1),
        "read": load(y, box(W3, t)),
        "out": store(box(Y3, t), y),
        "join": kir.BlockSync(0, 64),
        "clear": sets(flags, t, 0),
        "clears": kir.ForLoop(t, 3, (sets(flags, t, 0),)),
    }
    second = (kir.ForLoop(t, 3, said(reader, take)), *said(after, take))
    return two(
        (kir.ForLoop(t, 3, said(giver, give)),),
        second,
        flags=flags,
        tensors=(X3, W3, Y3),
        params=(),
    )


def told_as_they_leave(
    giver: str, *, keep: int = 1, read_only: bool = False, stages: int = 2
) -> kir.Kernel:
    """One CTA sends tiles by TMA and tells of the one before while the next is on its way."""
    flags = kir.Semaphore("flags", 3)
    buffer, x, y = slots("S", stages), fragment("x", 64), fragment("y", 64)
    send = (kir.TmaStore(box(W3, t), kir.Slot(buffer, t % stages)), kir.AsyncCommit(BULK))
    words: dict[str, kir.Stmt] = {
        "get": load(x, box(X3, t)),
        "put": store(kir.Slot(buffer, t % stages), x),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(0, 64),
        "send": elect(*send),
        "kept": elect(kir.AsyncAwait(BULK, keep, read_only)),
        "tell_last": kir.IfThenElse(t > 0, (sets(flags, t - 1, 1),)),
        "left": kir.BlockSync(0, 64),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
        "tell_end": sets(flags, 2, 1),
    }
    end = said("drain tell_end", words)
    take = (
        kir.BlockSerializeWait(flags, t, 1),
        load(y, box(W3, t)),
        store(box(Y3, t), y),
        kir.BlockSync(0, 64),
        sets(flags, t, 0),
    )
    first = (kir.ForLoop(t, 3, said(giver, words)), *end)
    return two(
        first,
        (kir.ForLoop(t, 3, take),),
        flags=flags,
        tensors=(X3, W3, Y3),
        buffers=(buffer,),
        params=(),
    )


def one_in_flight(giver: str = "stage send drain tell") -> kir.Kernel:
    """One CTA sends one tile and tells of it; the other one reads it."""
    buffer, x, y = slots("S"), fragment("x", 64), fragment("y", 64)
    words: dict[str, kir.Stmt] = {
        "stage": store(kir.Slot(buffer, 0), x),
        "send": elect(kir.TmaStore(box(W1), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
        "sources": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "tell": sets(FLAG, 0, 1),
    }
    stage = (kir.FenceAsyncProxy(SHARED), kir.BlockSync(0, 64))
    give = (load(x, box(X1)), words["stage"], *stage, *said(giver.replace("stage ", ""), words))
    take = (
        kir.BlockSerializeWait(FLAG, 0, 1),
        load(y, box(W1)),
        store(box(Y1), y),
        kir.BlockSync(0, 64),
        sets(FLAG, 0, 0),
    )
    return two(give, take, tensors=(X1, W1, Y1), buffers=(buffer,), params=())


def told_twice(giver: str, reader: str = "wait read out wait_end") -> kir.Kernel:
    """One CTA sets the flag of a tile twice; the other clears it behind a second flag."""
    flags = kir.Semaphore("flags", 2)
    x, y = fragment("x", 64), fragment("y", 64)
    words: dict[str, kir.Stmt] = {
        "get": load(x, box(X1)),
        "put": store(box(W1), x),
        "join": kir.BlockSync(0, 64),
        "tell": sets(flags, 0, 1),
        "again": sets(flags, 0, 1),
        "again_weakly": elect(kir.BlockSerializeRelease(flags, 0, 1, relaxed=True)),
        "end": sets(flags, 1, 1),
        "end_weakly": elect(kir.BlockSerializeRelease(flags, 1, 1, relaxed=True)),
    }
    words |= {
        "wait": kir.BlockSerializeWait(flags, 0, 1),
        "read": load(y, box(W1)),
        "out": store(box(Y1), y),
        "wait_end": kir.BlockSerializeWait(flags, 1, 1),
    }
    clear = (kir.BlockSync(0, 64), sets(flags, 0, 0), sets(flags, 1, 0))
    take = (*said(reader, words), *clear)
    return two(said(giver, words), take, flags=flags, tensors=(X1, W1, Y1), params=())


def passed_round(
    ctas: int, sentence: str = "turn get add put join release", *, last: Expr | None = None
) -> kir.Kernel:
    """CTAs add to one tile in turns, round after round."""
    turns = kir.Semaphore("turns", 1)
    xs = tensor("X", m * ctas)
    x, so_far, total = (fragment(name, 64) for name in ("x", "so_far", "total"))
    number = t * ctas + kir.BLOCK
    words: dict[str, kir.Stmt] = {
        "turn": kir.BlockSerializeWait(turns, 0, kir.BLOCK),
        "get": load(x, box(xs, number)),
        "add": kir.IfThenElse(
            eq(number, 0),
            (kir.Compute(total, "cast", (x,)),),
            (load(so_far, box(W1)), kir.Compute(total, "add", (x, so_far))),
        ),
        "put": store(box(W1), total),
        "join": kir.BlockSync(0, 64),
        "release": sets(turns, 0, (kir.BLOCK + 1) % ctas),
    }
    final = kir.IfThenElse(eq(kir.BLOCK, ctas - 1), (store(box(Y1), total),))
    made = kernel(
        (kir.ForLoop(t, m, said(sentence, words)), final),
        threads=64,
        tensors=(xs, W1, Y1),
        workspaces=("W",),
        params=(m,),
        requires=(eq(kir.GRID, ctas), m >= 1),
    )
    return replace(made, semaphores=(turns,), residency="co-resident")


def of(*counts: int, grid: int = 2) -> tuple[Run, ...]:
    """Return launches by m."""
    return tuple(Run(grid, (("m", count),)) for count in counts)


LEAVES = "get put fence join send kept left tell_last"
LITMUS: tuple[Litmus, ...] = (
    legal(
        "a_flag_set_twice",
        "H80 H81",
        told_twice("get put join tell again end"),
        "Whichever of the two is seen covers the tile, and both precede the clearing.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_set_again_while_it_may_be_cleared",
        "H80",
        told_twice("get put join tell end again"),
        "semaphore",
        "a_flag_set_twice",
        "Nothing orders it before the clearing: the next launch may find 1.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_set_twice_and_cleared_at_once",
        "H80",
        told_twice("get put join tell again", "wait read out"),
        "semaphore",
        "a_flag_set_twice",
        "The first lets the clearing come, and the second may come behind it.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_cleared_behind_one_set_relaxed",
        "H81",
        told_twice("get put join tell again end_weakly"),
        "semaphore",
        "a_flag_set_twice",
        "The flag that lets the clearing come may be seen before the other one is set again.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_cleared_behind_one_set_relaxed_that_is_seen_first",
        "H81",
        told_twice("get put join tell again end_weakly", "wait_end wait read out"),
        "semaphore",
        "a_flag_set_twice",
        "The flag of the tile may be seen as set first, and be set again behind the clearing.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_set_before_the_tile_and_behind_it",
        "H80",
        told_twice("get tell put join again end"),
        "RAW",
        "a_flag_set_twice",
        "The reader may see the first of the two.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_set_again_relaxed",
        "H81",
        told_twice("get put join tell again_weakly end"),
        "RAW scope semaphore",
        "a_flag_set_twice",
        "The reader may see the second, which releases nothing.",
        launches=(Run(2),),
    ),
    legal(
        "a_flag_cleared_after_the_loop_of_another_cta",
        "H80",
        told_at_the_end(),
        "Nobody waits for it any more, and the next launch finds 0.",
        launches=(Run(2),),
    ),
    broken(
        "a_flag_cleared_by_nobody",
        "H80",
        told_at_the_end("wait read out join"),
        "semaphore",
        "a_flag_cleared_after_the_loop_of_another_cta",
        "The next launch finds 1, and its reader does not wait.",
        launches=(Run(2),),
    ),
    broken(
        "tiles_read_before_the_flag_is_set",
        "H80",
        told_at_the_end("read wait out join clear"),
        "RAW",
        "a_flag_cleared_after_the_loop_of_another_cta",
        "Nothing orders the stores before the loads.",
        launches=(Run(2),),
    ),
    legal(
        "tiles_told_of_in_a_loop",
        "H80",
        told_each(),
        "Each tile has a flag, set when it is stored; all are cleared when all were read.",
        launches=(Run(2),),
    ),
    legal(
        "tiles_told_of_in_a_loop_and_cleared_in_it",
        "H80",
        told_each(reader="wait read out join clear", after=""),
        "A flag is cleared when its tile was read, and never set again.",
        launches=(Run(2),),
    ),
    broken(
        "tiles_told_of_before_they_are_stored",
        "H80",
        told_each("get join tell put"),
        "RAW WAR",
        "tiles_told_of_in_a_loop",
        "The flag says nothing of a store behind it.",
        launches=(Run(2),),
    ),
    broken(
        "tiles_told_of_by_the_first_warp",
        "H81",
        told_each("get put tell"),
        "RAW",
        "tiles_told_of_in_a_loop",
        "Nothing collects the stores of the other warp.",
        launches=(Run(2),),
    ),
    broken(
        "tiles_told_of_and_not_waited_for",
        "H80",
        told_each(reader="read wait out"),
        "RAW",
        "tiles_told_of_in_a_loop",
        "The load comes before the wait.",
        launches=(Run(2),),
    ),
    legal(
        "a_tile_told_of_while_the_next_leaves",
        "H40 H41",
        told_as_they_leave(LEAVES),
        "One store may be in flight: that of the tile that is told of next time.",
        launches=(Run(2),),
    ),
    broken(
        "a_tile_told_of_while_it_leaves",
        "H40 H41",
        told_as_they_leave(LEAVES, keep=2, stages=3),
        "drain RAW",
        "a_tile_told_of_while_the_next_leaves",
        "Two stores may be in flight, and one is of the tile that is told of.",
        launches=(Run(2),),
    ),
    broken(
        "a_tile_told_of_when_its_source_was_read",
        "H40 H41",
        told_as_they_leave(LEAVES, read_only=True),
        "drain RAW",
        "a_tile_told_of_while_the_next_leaves",
        "The await of the reads says nothing of the writes.",
        launches=(Run(2),),
    ),
    legal(
        "one_tile_sent_and_told_of",
        "H40",
        one_in_flight(),
        "It has been performed when the flag is set.",
        launches=(Run(2),),
    ),
    broken(
        "one_tile_told_of_when_its_source_is_read",
        "H40 H41",
        one_in_flight("stage send sources tell drain"),
        "drain RAW",
        "one_tile_sent_and_told_of",
        "The write may come after the flag.",
        launches=(Run(2),),
    ),
    *(
        legal(
            f"turns_of_{ctas}_ctas_round_after_round",
            "H80",
            passed_round(ctas),
            "The turn comes back to the first when all had theirs.",
            launches=of(*range(1, rounds + 1), grid=ctas),
        )
        for ctas, rounds in ((2, 3), (3, 2))
    ),
    broken(
        "turns_of_2_ctas_and_read_before_it",
        "H80",
        passed_round(2, "get add turn put join release"),
        "RAW WAR",
        "turns_of_2_ctas_round_after_round",
        "The sum so far is read before the turn has come.",
        launches=of(1, 3),
    ),
    broken(
        "turns_of_3_ctas_without_a_barrier",
        "H81",
        passed_round(3, "turn get add put release"),
        "RAW WAR WAW",
        "turns_of_3_ctas_round_after_round",
        "The release covers what its own warp has stored.",
        launches=of(1, 2, grid=3),
    ),
)
