"""Litmus kernels of single rules about CTAs that meet: clusters, turns on a semaphore, sums."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    Y1,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    legal,
    load,
    s,
    said,
    single,
    store,
    t,
    tensor,
)
from litmus.rules_phases import TILE, S
from litmus.turnstiles import TURNS, XS, grid

TURNS_OF = kir.Semaphore("turns", t)
TILE_NUMBER, TURN = kir.BLOCK // s, kir.BLOCK % s


def meeting(*words: kir.Stmt) -> kir.Kernel:
    """Return two CTAs of a cluster that copy a tile each, and meet or do not."""
    x, y = tensor("X", 2), tensor("Y", 2)
    copy = (load(TILE, box(x, kir.BLOCK)), store(box(y, kir.BLOCK), TILE))
    made = single((*words, *copy), tensors=(x, y))
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


def turns(*words: kir.Stmt) -> kir.Kernel:
    """CTAs of a semaphore that copy a tile each, in turn or not; no data is shared."""
    y = tensor("Y", s)
    x = fragment("x", 64)
    copy = (load(x, box(XS, kir.BLOCK)), store(box(y, kir.BLOCK), x))
    return grid((*copy, *words), (XS, y), workspaces=())


def shared(
    sentence: str = "turn add write join release",
    *,
    to: Expr = (TURN + 1) % s,
    residency: str = "ticket",
    part: Expr = TILE_NUMBER,
) -> kir.Kernel:
    """CTAs of a tile add to it in turn; t tiles, each with a semaphore of its own.

    `part` is where in the workspace they do so.
    """
    x, w, y = tensor("X", t * s), tensor("W", t), tensor("Y", t)
    tile, before, total = (fragment(name, 64) for name in ("x", "before", "total"))
    first = (kir.Compute(total, "cast", (tile,)),)
    later = (load(before, box(w, part)), kir.Compute(total, "add", (tile, before)))
    staged, back = kir.Slot(S, 0), fragment("back", 64)
    into = box(w, part) if "last" in sentence else box(y, TILE_NUMBER)
    issue = kir.IfThenElse(
        eq(TURN, 0),
        (kir.TmaStore(into, staged),),
        (kir.FenceAsyncProxy(kir.Space.GLOBAL), kir.TmaReduce(into, staged)),
    )
    last = (kir.BlockSync(1, 64), load(back, box(w, part)), store(box(y, TILE_NUMBER), back))
    words: dict[str, kir.Stmt] = {
        "turn": kir.BlockSerializeWait(TURNS_OF, TILE_NUMBER, TURN),
        "add": kir.IfThenElse(eq(TURN, 0), first, later),
        "write": kir.IfThenElse(
            s > TURN + 1, (store(box(w, part), total),), (store(box(y, TILE_NUMBER), total),)
        ),
        "put": store(staged, tile),
        "fence": kir.FenceAsyncProxy(kir.Space.SHARED),
        "send": elect(issue, kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0)),
        "send_read": elect(issue, kir.AsyncCommit(BULK), kir.AsyncAwait(BULK, 0, read_only=True)),
        "last": kir.IfThenElse(eq(TURN + 1, s), last),
        "join": kir.BlockSync(0, 64),
        "release": elect(kir.BlockSerializeRelease(TURNS_OF, TILE_NUMBER, to)),
    }
    body = (load(tile, box(x, kir.BLOCK)), *said(sentence, words))
    made = grid(body, (x, w, y), residency=residency, buffers=(S,) if "put" in sentence else ())
    needs = (s >= 1, t >= 1, eq(kir.GRID, t * s))
    return replace(made, params=(s, t), requires=needs, semaphores=(TURNS_OF,))


def sums() -> kir.Kernel:
    """CTAs add a tile each to the output, in whatever order they come."""
    x = fragment("x", 64)
    made = grid((load(x, box(XS, kir.BLOCK)), kir.AtomicAdd(box(Y1), x)), (XS, Y1), workspaces=())
    return replace(made, semaphores=(), determinism="bitwise")


SENT = "put fence turn send last join release"

_LEAVE = elect(kir.BlockSerializeRelease(TURNS, 0, 0))
_PAIR = (Run(2),)
_TWO = (Run(2, (("s", 2),)),)
_TILES = (Run(4, (("s", 2), ("t", 2))),)

LITMUS: tuple[Litmus, ...] = (
    legal(
        "rule_pair_meets",
        "H65",
        meeting(kir.ClusterArrive(), kir.ClusterWait()),
        "Arrive, then wait.",
        launches=_PAIR,
    ),
    broken(
        "rule_pair_waits_without_arriving",
        "H65",
        meeting(kir.ClusterWait()),
        "collective",
        "rule_pair_meets",
        "A wait needs the arrival of its own thread before it.",
        launches=_PAIR,
    ),
    broken(
        "rule_pair_arrives_and_never_waits",
        "H65",
        meeting(kir.ClusterArrive()),
        "collective",
        "rule_pair_meets",
        "Whoever arrives at the cluster's barrier waits there, too.",
        launches=_PAIR,
    ),
    legal(
        "rule_turn_at_cta_scope_that_tells_nothing",
        "H80 H62",
        turns(
            kir.BlockSerializeWait(TURNS, 0, kir.BLOCK, kir.Scope.CTA),
            kir.BlockSync(0, 64),
            elect(kir.BlockSerializeRelease(TURNS, 0, (kir.BLOCK + 1) % kir.GRID)),
        ),
        "The turn comes all the same; nothing that the CTA before did is looked at.",
        launches=_TWO,
    ),
    legal(
        "rule_turn_taken_and_released",
        "H80",
        turns(
            kir.BlockSerializeWait(TURNS, 0, kir.BLOCK),
            kir.BlockSync(0, 64),
            elect(kir.BlockSerializeRelease(TURNS, 0, (kir.BLOCK + 1) % kir.GRID)),
        ),
        "Each CTA in its turn.",
        launches=_TWO,
    ),
    broken(
        "rule_turn_released_by_everybody",
        "H80",
        turns(_LEAVE),
        "semaphore",
        "rule_turn_taken_and_released",
        "Nobody waits for a turn, and all release one.",
        launches=_TWO,
    ),
    legal(
        "rule_sum_in_turn",
        "H80 H83 H84",
        shared(),
        "Waited for, collected, released, left at 0.",
        launches=_TILES,
    ),
    broken(
        "rule_sum_leaves_its_turn",
        "H80",
        shared(to=TURN + 1),
        "semaphore",
        "rule_sum_in_turn",
        "The next launch finds the number of turns instead of 0.",
        launches=_TILES,
    ),
    broken(
        "rule_sum_of_ctas_that_may_not_run",
        "H84",
        shared(residency="any"),
        "residency",
        "rule_sum_in_turn",
        "Nothing says that the CTA of the turn before is ever started.",
        launches=_TILES,
    ),
    legal(
        "rule_sum_by_the_engine",
        "H41",
        shared(SENT),
        "Each CTA awaits its own bulk writes before it gives its turn away.",
        launches=_TILES,
    ),
    broken(
        "rule_sum_released_in_flight",
        "H41",
        shared(SENT.replace("send", "send_read")),
        "drain RAW WAR WAW",
        "rule_sum_by_the_engine",
        "The source has been read; that the sum is there is not known.",
        launches=_TILES,
    ),
    broken(
        "rule_output_released_in_flight",
        "H41",
        replace(shared("put fence turn send_read join release"), determinism="unordered"),
        "drain WAW",
        "rule_sum_by_the_engine",
        "The same where the sums are the output, which no CTA reads back.",
        launches=_TILES,
    ),
    broken(
        "rule_sums_in_any_order_bitwise",
        "H83",
        sums(),
        "determinism",
        "rule_sum_in_turn",
        "The sum is rounded differently in each order.",
        launches=_TWO,
    ),
)
"""Every litmus of this file."""
