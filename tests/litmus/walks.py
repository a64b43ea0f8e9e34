"""Groups of CTAs that share tiles and walk from one to the next, with turns in each of them."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, Var, ceildiv, eq
from fuser.kernel import ir as kir
from litmus.parts import (
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
    s,
    said,
    store,
    t,
    tensor,
)

groups, tile, u = Var("groups"), Var("tile"), Var("u")
NUMBER, TURN = kir.BLOCK // s, kir.BLOCK % s
TURNS = kir.Semaphore("turns", m)
XM, WM, YM = tensor("X", m * s), tensor("W", m), tensor("Y", m)
WMS = tensor("W", m * s)
AHEAD = (TURN + 1) % s


def walks(*sizes: tuple[int, int, int]) -> tuple[Run, ...]:
    """Return launches by CTAs of a group, groups, and tiles."""
    return tuple(Run(a * b, (("s", a), ("groups", b), ("m", c))) for a, b, c in sizes)


WALKS = walks((1, 1, 1), (2, 1, 3), (3, 1, 2), (2, 2, 3))
SHARED_WALKS = walks((2, 2, 3), (3, 1, 2))


def walked(body: Body, tensors: tuple[kir.Tensor, ...]) -> kir.Kernel:
    """Return a kernel of groups of `s` CTAs, each of which walks over every `groups`-th tile."""
    trips = ceildiv(m - NUMBER, groups)
    loop = kir.ForLoop(t, trips, (kir.Let(tile, NUMBER + t * groups), *body))
    made = kernel(
        (loop,),
        threads=64,
        tensors=tensors,
        workspaces=("W",),
        params=(s, groups, m),
        requires=(s >= 1, groups >= 1, eq(kir.GRID, groups * s)),
    )
    return replace(made, semaphores=(TURNS,), residency="ticket")


def turnstiles(
    sentence: str = "get turn add join release",
    *,
    index: Expr = tile,
    work: Expr = tile,
    to: Expr = AHEAD,
    **own: kir.Stmt,
) -> kir.Kernel:
    """In every tile each CTA of a group adds to the workspace in its turn; the last one writes."""
    x, so_far, total = (fragment(name, 64) for name in ("x", "so_far", "total"))
    release = elect(kir.BlockSerializeRelease(TURNS, index, to))
    sums = (load(so_far, box(WM, work)), kir.Compute(total, "add", (x, so_far)))
    words: dict[str, kir.Stmt] = {
        "get": load(x, box(XM, tile * s + TURN)),
        "turn": kir.BlockSerializeWait(TURNS, index, TURN),
        "sum": kir.IfThenElse(eq(TURN, 0), (kir.Compute(total, "cast", (x,)),), sums),
        "write": kir.IfThenElse(
            eq(TURN + 1, s), (store(box(YM, tile), total),), (store(box(WM, work), total),)
        ),
        "join": kir.BlockSync(0, 64),
        "release": release,
        "at_first": kir.IfThenElse(eq(t, 0), (release,)),
    }
    words |= own
    body = said(sentence.replace("add", "sum write"), words)
    return walked(body, (XM, WM, YM))


def skipping() -> kir.Kernel:
    """The second CTA of each group leaves every other tile out."""
    made = turnstiles()
    (loop,) = made.body
    assert isinstance(loop, kir.ForLoop)
    let, *rest = loop.body
    skips = kir.IfThenElse(eq((t % 2) * TURN, 1), (), tuple(rest))
    return replace(made, body=(replace(loop, body=(let, skips)),))


def two_groups(*, between: int) -> kir.Kernel:
    """Two groups of two CTAs, of which one takes tiles 0, 2, ... and the other one 1, 3, ...

    Its semaphore is `between` further in each: 1 is also what the other group is at.
    """
    number, turn = kir.BLOCK // 2, kir.BLOCK % 2
    x, before, total = (fragment(name, 64) for name in ("x", "before", "total"))
    index = number + t * between
    body = (
        load(x, box(tensor("X", 8), tile * 2 + turn)),
        kir.BlockSerializeWait(kir.Semaphore("turns", 4), index, turn),
        kir.IfThenElse(
            eq(turn, 0),
            (store(box(tensor("W", 4), tile), x),),
            (
                load(before, box(tensor("W", 4), tile)),
                kir.Compute(total, "add", (x, before)),
                store(box(tensor("Y", 4), tile), total),
            ),
        ),
        kir.BlockSync(0, 64),
        elect(kir.BlockSerializeRelease(kir.Semaphore("turns", 4), index, (turn + 1) % 2)),
    )
    loop = kir.ForLoop(t, 2, (kir.Let(tile, number + t * 2), *body))
    made = kernel(
        (loop,),
        threads=64,
        tensors=(tensor("X", 8), tensor("W", 4), tensor("Y", 4)),
        workspaces=("W",),
        params=(),
        requires=(eq(kir.GRID, 4),),
    )
    return replace(made, semaphores=(kir.Semaphore("turns", 4),), residency="co-resident")


def meetings(
    sentence: str = "get put meet sum out", *, work: Expr = tile, index: Expr = tile
) -> kir.Kernel:
    """In every tile all CTAs of a group store a part, meet, and add up all parts."""
    x, more, total = (fragment(name, 64) for name in ("x", "more", "total"))
    others = (load(more, box(WMS, work * s + u + 1)), kir.Compute(total, "add", (total, more)))
    words: dict[str, kir.Stmt] = {
        "get": load(x, box(XM, tile * s + TURN)),
        "put": store(box(WMS, work * s + TURN), x),
        "meet": kir.GridSync(TURNS, index, s),
        "meet2": kir.GridSync(TURNS, index, s),
        "maybe_meet": kir.IfThenElse(t < 1, (kir.GridSync(TURNS, index, s),)),
        "first": load(total, box(WMS, work * s)),
        "others": kir.ForLoop(u, s - 1, others),
        "out": kir.IfThenElse(eq(TURN, 0), (store(box(YM, tile), total),)),
    }
    body = said(sentence.replace("sum", "first others"), words)
    return replace(walked(body, (XM, WMS, YM)), together=s)


def flagged(reader: str) -> kir.Kernel:
    """One CTA stores a tile in every round and sets a flag; another reads it and clears it."""
    inputs, outputs, flag = tensor("X", m), tensor("Y", m), kir.Semaphore("flag", 1)
    x, y = fragment("x", 64), fragment("y", 64)

    def says(turn: int) -> kir.Stmt:
        return elect(kir.BlockSerializeRelease(flag, 0, turn))

    words: dict[str, kir.Stmt] = {
        "set_yet": kir.BlockSerializeWait(flag, 0, 1),
        "read": load(y, box(W1)),
        "join": kir.BlockSync(0, 64),
        "clear": says(0),
        "out": store(box(outputs, t), y),
    }
    give = (
        kir.BlockSerializeWait(flag, 0, 0),
        load(x, box(inputs, t)),
        store(box(W1), x),
        kir.BlockSync(0, 64),
        says(1),
    )
    loops = (kir.ForLoop(t, m, give),), (kir.ForLoop(t, m, said(reader, words)),)
    body = (kir.IfThenElse(eq(kir.BLOCK, 0), *loops),)
    made = kernel(
        body,
        threads=64,
        tensors=(inputs, W1, outputs),
        workspaces=("W",),
        params=(m,),
        requires=(eq(kir.GRID, 2),),
    )
    return replace(made, semaphores=(flag,), residency="co-resident")


LITMUS: tuple[Litmus, ...] = (
    legal(
        "turnstiles_of_several_tiles",
        "H80 H81 H84",
        turnstiles(),
        "Every tile has a semaphore and a workspace of its own, left at 0 by its last turn.",
        launches=WALKS,
    ),
    broken(
        "turnstiles_before_one_workspace",
        "H80",
        turnstiles(work=NUMBER),
        "RAW WAR WAW",
        "turnstiles_of_several_tiles",
        "The first turn of the next tile waits for nobody, and overwrites what is still read.",
        launches=SHARED_WALKS,
    ),
    broken(
        "a_turnstile_used_again_without_reset",
        "H80",
        turnstiles(index=NUMBER, work=NUMBER, to=TURN + 1),
        "semaphore deadlock",
        "turnstiles_of_several_tiles",
        "In the second tile turn 0 never comes.",
        launches=SHARED_WALKS,
    ),
    broken(
        "turnstiles_left_as_they_are",
        "H80",
        turnstiles(to=TURN + 1),
        "semaphore",
        "turnstiles_of_several_tiles",
        "Nobody in this launch minds; the next one finds the number of CTAs instead of 0.",
        launches=SHARED_WALKS,
    ),
    broken(
        "turns_released_in_the_first_tile_only",
        "H80 H16",
        turnstiles("get turn add join at_first"),
        "deadlock",
        "turnstiles_of_several_tiles",
        "In the second tile the second CTA waits forever.",
        launches=walks((2, 1, 2), (3, 1, 2)),
    ),
    broken(
        "a_cta_skips_a_tile",
        "H80",
        skipping(),
        "deadlock semaphore coverage",
        "turnstiles_of_several_tiles",
        "Nobody takes its turn: those behind it wait forever, or the semaphore stays at it.",
        launches=walks((2, 1, 2), (3, 1, 2)),
    ),
    broken(
        "released_without_a_barrier_in_every_tile",
        "H81",
        turnstiles("get turn add release"),
        "RAW WAW WAR",
        "turnstiles_of_several_tiles",
        "The release covers what its own warp has written.",
        launches=SHARED_WALKS,
    ),
    legal(
        "two_groups_that_walk_in_turn",
        "H80",
        two_groups(between=2),
        "Even tiles are one group's, odd ones the other's.",
        launches=(Run(4),),
    ),
    broken(
        "two_groups_on_one_integer",
        "H80",
        two_groups(between=1),
        "semaphore RAW WAR WAW deadlock",
        "two_groups_that_walk_in_turn",
        "The second tile of the first group has the semaphore of the other's first tile.",
        launches=(Run(4),),
    ),
    legal(
        "ctas_meet_in_every_tile",
        "H80",
        meetings(),
        "Parts of one tile are stored before its meeting, and nowhere else again.",
        launches=WALKS,
    ),
    legal(
        "ctas_meet_twice_in_every_tile",
        "H80",
        meetings("get put meet sum meet2 out", work=NUMBER, index=NUMBER),
        "All have read the parts of a tile before anybody stores those of the next.",
        launches=WALKS,
    ),
    broken(
        "ctas_meet_once_for_parts_of_every_tile",
        "H80",
        meetings(work=NUMBER, index=NUMBER),
        "WAR",
        "ctas_meet_twice_in_every_tile",
        "Who is done reads no more, and stores the next part while others still read.",
        launches=SHARED_WALKS,
    ),
    broken(
        "ctas_meet_in_the_first_tile_only",
        "H80",
        meetings("get put maybe_meet sum out"),
        "RAW",
        "ctas_meet_in_every_tile",
        "What was stored for the second tile is released by no grid barrier.",
        launches=SHARED_WALKS,
    ),
    legal(
        "a_flag_cleared_in_every_round",
        "H80",
        flagged("set_yet read join clear out"),
        "Each CTA sets what the other waits for, so that it sees no earlier round's value.",
        launches=tuple(Run(2, (("m", count),)) for count in (0, 1, 3)),
    ),
    broken(
        "a_flag_cleared_before_the_tile_is_read",
        "H80",
        flagged("set_yet clear read out"),
        "WAR RAW",
        "a_flag_cleared_in_every_round",
        "The next tile may be stored over the one that is read.",
        launches=(Run(2, (("m", 3),)),),
    ),
)
