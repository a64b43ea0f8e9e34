"""CTAs that store their parts and go on; the last-arriving one reads what all have stored."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from litmus.meetings import FULL, SENT, WS, YS, among_roles
from litmus.parts import (
    BULK,
    GLOBAL,
    ROLE,
    SHARED,
    Y1,
    Body,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    legal,
    load,
    s,
    said,
    slots,
    store,
    t,
    tensor,
    wait,
)
from litmus.turnstiles import ALONE_TOO, SHARES, SPLITS, TURNS, XS, grid

PAIR = kir.Semaphore("turns", 2)
PAIRS = tuple(Run(2 * count, (("s", count),)) for count in (1, 2))


def last(
    *body: kir.Stmt, at: Expr = 0, ctas: Expr = s, of: kir.Semaphore = TURNS
) -> kir.LastArriving:
    """`body` by the last of so many CTAs."""
    return kir.LastArriving(of, at, ctas, body)


def arriving(
    sentence: str = "put last",
    inside: str = "sum out",
    *,
    at: Expr = 0,
    ctas: Expr = s,
    apart: bool = False,
    **own: kir.Stmt,
) -> kir.Kernel:
    """Each of `s` CTAs stores its tile; the last-arriving one writes the sum of all tiles.

    With `apart` every CTA has a tile of the output of its own.
    """
    tile, more, total = (fragment(name, 64) for name in ("x", "more", "total"))
    y = YS if apart else Y1
    added: Body = (load(more, box(WS, t + 1)), kir.Compute(total, "add", (total, more)))

    def words() -> dict[str, kir.Stmt]:
        return {
            "put": store(box(WS, kir.BLOCK), tile),
            "join": kir.BlockSync(0, 64),
            "first": load(total, box(WS, 0)),
            "others": kir.ForLoop(t, s - 1, added),
            "out": store(box(y, kir.BLOCK if apart else 0), total),
            "mine": store(box(y, kir.BLOCK if apart else 0), tile),
            **own,
        }

    def parsed(text: str) -> Body:
        return said(text.replace("sum", "first others"), words())

    body: list[kir.Stmt] = [load(tile, box(XS, kir.BLOCK))]
    for word in sentence.split():
        match word:
            case "last":
                body.append(last(*parsed(inside), at=at, ctas=ctas))
            case "pass":
                body.append(last(at=at, ctas=ctas))
            case "alone":
                body.append(elect(last(*parsed(inside), at=at, ctas=ctas)))
            case "most":
                body.append(kir.IfThenElse(s > kir.BLOCK + 1, (last(*parsed(inside)),)))
            case _:
                body += parsed(word)
    return grid(tuple(body), (XS, WS, y), residency="any")


def of_two_groups(index: Expr) -> kir.Kernel:
    """Two times `s` CTAs, which arrive at one integer of two; each group has an output."""
    tile, more, total = (fragment(name, 64) for name in ("x", "more", "total"))
    group = kir.BLOCK // s
    tiles, parts, sums = tensor("X", 2 * s), tensor("W", 2 * s), tensor("Y", 2)
    added: Body = (
        load(more, box(parts, group * s + t + 1)),
        kir.Compute(total, "add", (total, more)),
    )
    adds: Body = (
        load(total, box(parts, group * s)),
        kir.ForLoop(t, s - 1, added),
        store(box(sums, group), total),
    )
    body: Body = (
        load(tile, box(tiles, kir.BLOCK)),
        store(box(parts, kir.BLOCK), tile),
        last(*adds, at=index, of=PAIR),
    )
    made = grid(body, (tiles, parts, sums), residency="any")
    return replace(made, semaphores=(PAIR,), requires=(s >= 1, eq(kir.GRID, 2 * s)))


def by_engine(sentence: str, inside: str) -> kir.Kernel:
    """Each CTA sends or stores its tile; the last one fetches the first tile, or reads it."""
    buffer, back = slots("S"), slots("B", 1, 512)
    tile, total = fragment("x", 64), fragment("total", 64)
    fetch: Body = (
        kir.MBarrierArriveExpectTx(FULL, 0, 512),
        kir.TmaLoad(kir.Slot(back, 0), box(WS, 0), FULL, 0),
    )
    words: dict[str, kir.Stmt] = {
        "stage": store(kir.Slot(buffer, 0), tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(0, 64),
        "send": elect(kir.TmaStore(box(WS, kir.BLOCK), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
        "read": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "put": store(box(WS, kir.BLOCK), tile),
        "get": load(total, box(WS, 0)),
        "fetch": kir.Elect(ROLE, (kir.FenceAsyncProxy(GLOBAL), *fetch)),
        "fetch_bare": kir.Elect(ROLE, fetch),
        "here": wait(FULL, 0, 0),
        "take": load(total, kir.Slot(back, 0)),
        "out": store(box(Y1), total),
        "restage": store(kir.Slot(buffer, 0), total),
        "give": elect(kir.TmaStore(box(Y1), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "last": last(),
    }
    words["last"] = last(*said(inside, words))
    body = (
        init(FULL), kir.BlockSync(0, 64), load(tile, box(XS, kir.BLOCK)), *said(sentence, words),
    )  # fmt: skip
    return grid(
        body, (XS, WS, Y1), residency="any", buffers=(buffer, back), barriers=(FULL,),
    )  # fmt: skip


LITMUS: tuple[Litmus, ...] = (
    legal(
        "the_last_cta_adds_up",
        "H80 H84",
        arriving(),
        "It knows what all CTAs stored before they came; nobody waits for another.",
        launches=SPLITS,
    ),
    legal(
        "the_last_cta_joins_its_threads_again",
        "H80",
        arriving("put last mine", "sum join put", apart=True),
        "Barriers and stores of its own stand in the body; what follows is of every CTA.",
        launches=SPLITS,
    ),
    legal(
        "nothing_is_left_to_the_last_cta",
        "H80",
        arriving("mine pass", apart=True),
        "The integer is 0 again when all have come.",
        launches=SPLITS,
    ),
    legal(
        "two_groups_have_a_last_cta_each",
        "H80",
        of_two_groups(kir.BLOCK // s),
        "Each group counts at an integer of its own.",
        launches=PAIRS,
    ),
    legal(
        "the_last_cta_of_two_launches",
        "H80",
        LaunchSequence("two", (arriving(), arriving())),
        "The first launch leaves the integer at 0 for the second.",
        launches=SPLITS,
    ),
    legal(
        "a_role_has_a_last_cta",
        "H80",
        among_roles(arriving(inside="sum join out")),
        "The same role of every CTA, by a barrier of its own.",
        launches=SPLITS,
    ),
    legal(
        "engines_are_drained_before_the_cta_comes",
        "H41",
        by_engine(f"{SENT} drain last", "get out"),
        "The copy is performed when its thread comes.",
        launches=SPLITS,
    ),
    legal(
        "an_engine_reads_for_the_last_cta",
        "H46",
        by_engine("put last", "fetch here take out"),
        "A proxy fence of global memory stands in the body before the copy.",
        launches=SPLITS,
    ),
    legal(
        "engines_write_and_the_last_cta_fetches",
        "H41 H46",
        by_engine(f"{SENT} drain last", "fetch here take out"),
        "Drained before the coming, fenced behind it.",
        launches=SPLITS,
    ),
    legal(
        "an_engine_stores_for_the_last_cta",
        "H40 H80",
        by_engine("put last", "get restage fence join give drain"),
        "Groups of the body are awaited in the body.",
        launches=SPLITS,
    ),
    broken(
        "an_engine_of_the_last_cta_is_not_awaited",
        "H40 H80",
        by_engine("put last", "get restage fence join give"),
        "exit",
        "an_engine_stores_for_the_last_cta",
        "It may read shared memory of a CTA that has ended.",
        launches=ALONE_TOO,
    ),
    broken(
        "all_ctas_add_up",
        "H80",
        arriving("put pass sum out", apart=True),
        "RAW",
        "the_last_cta_adds_up",
        "Those that are not the last learn nothing of the others.",
        launches=SHARES,
    ),
    broken(
        "stored_behind_the_coming",
        "H80",
        arriving("last put"),
        "RAW",
        "the_last_cta_adds_up",
        "What a CTA stores after its arrival is not released by that.",
        launches=SHARES,
    ),
    broken(
        "stores_while_the_last_cta_reads",
        "H80",
        arriving("put last put"),
        "WAR WAW",
        "the_last_cta_adds_up",
        "The last CTA may read while others store again.",
        launches=SHARES,
    ),
    broken(
        "all_ctas_store_the_output",
        "H80 H84",
        arriving("put last mine"),
        "WAW coverage",
        "the_last_cta_adds_up",
        "Outside the body the statement is of every CTA.",
        launches=SHARES,
    ),
    broken(
        "one_cta_fewer_is_counted",
        "H80",
        arriving(ctas=s - 1),
        "semaphore collective RAW",
        "the_last_cta_adds_up",
        "One is elected before all have come, and the integer is left at 1.",
        launches=SHARES,
    ),
    broken(
        "one_cta_more_is_counted",
        "H80",
        arriving(ctas=s + 1),
        "semaphore collective coverage",
        "the_last_cta_adds_up",
        "None is the last, and the next launch begins at another number than 0.",
        launches=SHARES,
    ),
    broken(
        "one_cta_does_not_come",
        "H80",
        arriving("put most"),
        "semaphore coverage",
        "the_last_cta_adds_up",
        "None is the last.",
        launches=SHARES,
    ),
    broken(
        "ctas_come_twice",
        "H80",
        arriving("put pass last"),
        "semaphore RAW",
        "the_last_cta_adds_up",
        "A CTA may be counted twice while another one has not come at all.",
        launches=SHARES,
    ),
    broken(
        "ctas_disagree_on_their_number",
        "H80",
        arriving(ctas=s + kir.BLOCK),
        "collective semaphore RAW",
        "the_last_cta_adds_up",
        "Each compares the integer with a bound of its own.",
        launches=SHARES,
    ),
    broken(
        "no_such_integer",
        "H80",
        arriving(at=s),
        "bounds",
        "the_last_cta_adds_up",
        "The semaphore has one integer.",
        launches=SHARES,
    ),
    broken(
        "two_groups_count_at_one_integer",
        "H80",
        of_two_groups(kir.BLOCK * 0),
        "semaphore collective RAW",
        "two_groups_have_a_last_cta_each",
        "The first `s` that arrive may be of both groups.",
        launches=PAIRS[1:],
    ),
    broken(
        "groups_are_mixed_up",
        "H80",
        of_two_groups(kir.BLOCK % 2),
        "RAW",
        "two_groups_have_a_last_cta_each",
        "The last of those that arrive at an integer adds up tiles of others.",
        launches=PAIRS[1:],
    ),
    broken(
        "one_thread_comes",
        "H80",
        arriving("put alone"),
        "collective RAW",
        "the_last_cta_adds_up",
        "All threads of each CTA have to.",
        launches=SHARES,
        refused="must reach it",
    ),
    broken(
        "a_role_comes_by_the_barrier_of_another",
        "H80",
        among_roles(arriving(inside="sum join out"), (kir.BlockSync(1, 64),)),
        "collective RAW deadlock",
        "a_role_has_a_last_cta",
        "Its threads may pass with those of the other role.",
        launches=SHARES,
    ),
    broken(
        "two_roles_come",
        "H80",
        among_roles(arriving(inside="sum join out"), (replace(last(), barrier=2),)),
        "collective semaphore RAW",
        "a_role_has_a_last_cta",
        "A CTA counts twice, so that one is elected before all have come.",
        launches=SHARES,
    ),
    broken(
        "engines_in_flight_as_the_cta_comes",
        "H41",
        by_engine(f"{SENT} read last", "get out"),
        "drain RAW",
        "engines_are_drained_before_the_cta_comes",
        "Only the source has been read.",
        launches=SHARES,
    ),
    broken(
        "engines_drained_behind_the_coming",
        "H41",
        by_engine(f"{SENT} last drain", "get out"),
        "drain RAW",
        "engines_are_drained_before_the_cta_comes",
        "The last CTA may read before the copies of others are performed.",
        launches=SHARES,
    ),
    broken(
        "an_engine_reads_unfenced_for_the_last_cta",
        "H46",
        by_engine("put last", "fetch_bare here take out"),
        "proxy",
        "an_engine_reads_for_the_last_cta",
        "The last CTA learns in the generic proxy only.",
        launches=SHARES,
    ),
)
