"""CTAs that all store a part of a workspace, meet, and read what the others have stored."""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    GLOBAL,
    ROLE,
    SHARED,
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
from litmus.turnstiles import SHARES, SPLITS, TURNS, XS, grid, turnstile

WS, YS = tensor("W", s), tensor("Y", s)
FULL = kir.MBarrier("full", 1, 1)
OTHERS = kir.Semaphore("others", 1)


def meeting(
    sentence: str = "put meet sum",
    *,
    residency: str = "ticket",
    together: Expr = s,
    ctas: Expr = s,
) -> kir.Kernel:
    """Each of `s` CTAs stores its tile, and writes the sum of all tiles to a tile of its own."""
    tile, more, total = (fragment(name, 64) for name in ("x", "more", "total"))

    def words() -> dict[str, kir.Stmt]:
        added: Body = (load(more, box(WS, t + 1)), kir.Compute(total, "add", (total, more)))
        return {
            "put": store(box(WS, kir.BLOCK), tile),
            "meet": kir.GridSync(TURNS, 0, ctas),
            "alone": elect(kir.GridSync(TURNS, 0, ctas)),
            "join": kir.BlockSync(0, 64),
            "first": load(total, box(WS, 0)),
            "distant": load(total, box(WS, 5)),
            "others": kir.ForLoop(t, s - 1, added),
            "out": store(box(YS, kir.BLOCK), total),
        }

    said_ = [word.replace("sum", "first others out").split() for word in sentence.split()]
    body = (load(tile, box(XS, kir.BLOCK)), *(said(w, words())[0] for ws in said_ for w in ws))
    made = grid(body, (XS, WS, YS), residency=residency)
    return replace(made, together=together)


def by_engine(sentence: str) -> kir.Kernel:
    """The same for two neighbours by TMA: each stores its tile, and loads the first one."""
    buffer, back = slots("S"), slots("B", 1, 512)
    tile, total = fragment("x", 64), fragment("total", 64)
    words: dict[str, kir.Stmt] = {
        "stage": store(kir.Slot(buffer, 0), tile),
        "fence": kir.FenceAsyncProxy(SHARED),
        "join": kir.BlockSync(0, 64),
        "send": elect(kir.TmaStore(box(WS, kir.BLOCK), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
        "read": elect(kir.AsyncAwait(BULK, 0, read_only=True)),
        "put": store(box(WS, kir.BLOCK), tile),
        "meet": kir.GridSync(TURNS, 0, s),
        "get": load(total, box(WS, 0)),
        "fetch": kir.Elect(
            ROLE,
            (
                kir.FenceAsyncProxy(GLOBAL),
                kir.MBarrierArriveExpectTx(FULL, 0, 512),
                kir.TmaLoad(kir.Slot(back, 0), box(WS, 0), FULL, 0),
            ),
        ),
        "fetch_bare": kir.Elect(
            ROLE,
            (
                kir.MBarrierArriveExpectTx(FULL, 0, 512),
                kir.TmaLoad(kir.Slot(back, 0), box(WS, 0), FULL, 0),
            ),
        ),
        "here": wait(FULL, 0, 0),
        "take": load(total, kir.Slot(back, 0)),
        "out": store(box(YS, kir.BLOCK), total),
    }
    fetches = "fetch" in sentence
    start: Body = (init(FULL), kir.BlockSync(0, 64)) if fetches else ()
    body = (*start, load(tile, box(XS, kir.BLOCK)), *said(sentence, words))
    made = grid(
        body, (XS, WS, YS), buffers=(buffer, back) if fetches else (buffer,),
        barriers=(FULL,) if fetches else (),
    )  # fmt: skip
    return replace(made, together=s)


def among_roles(
    made: kir.Kernel, beside: Body = (), *, warps: int = 2, ahead: Body = (), number: int = 1
) -> kir.Kernel:
    """Let a role of two warps do all of it, by a barrier of its own; another one stands beside.

    What is `ahead` is executed by all threads before.
    """

    def numbered(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.GridSync() | kir.BlockSerializeWait():
                return [replace(stmt, barrier=number)]
            case kir.LastArriving():
                inner = kir.rewrite(stmt.body, numbered)
                return [replace(stmt, body=inner, barrier=number)]
            case kir.BlockSync():
                return [replace(stmt, barrier=number)]
            case _:
                return None

    mine = kir.rewrite(made.body, numbered)
    other = kir.Role("beside", 2, warps, beside or (kir.BlockSync(2, 64),))
    return replace(made, threads=64 + 32 * warps, body=(*ahead, kir.Role("sum", 0, 2, mine), other))


SENT = "stage fence join send"
LITMUS: tuple[Litmus, ...] = (
    legal(
        "ctas_meet",
        "H80",
        meeting(),
        "What any of them stored precedes what any of them reads behind the meeting.",
        launches=SPLITS,
    ),
    legal(
        "all_ctas_at_once_meet",
        "H80",
        meeting(residency="co-resident", together=1),
        "All run at once, so nobody waits for one that does not.",
        launches=SPLITS,
    ),
    legal(
        "ctas_meet_again",
        "H80",
        meeting("put meet sum meet put"),
        "The second stores follow all reads; the semaphore was left at 0.",
        launches=SPLITS,
    ),
    broken(
        "ctas_do_not_meet",
        "H80",
        meeting("put join sum"),
        "RAW",
        "ctas_meet",
        "A barrier of one CTA says nothing of the others.",
        launches=SHARES,
    ),
    broken(
        "ctas_meet_too_early",
        "H80",
        meeting("meet put join sum"),
        "RAW",
        "ctas_meet",
        "What is stored behind the grid barrier is not released by it.",
        launches=SHARES,
    ),
    broken(
        "the_part_of_a_distant_cta_is_read_unmet",
        "H80",
        meeting("put distant out meet"),
        "RAW",
        "ctas_meet",
        "Only where there are six CTAs is it anybody's.",
        launches=(Run(6, (("s", 6),)), Run(8, (("s", 8),))),
    ),
    broken(
        "stores_while_others_read",
        "H80",
        meeting("put meet sum put"),
        "WAR",
        "ctas_meet_again",
        "Nothing orders the second store behind the reads of other CTAs.",
        launches=SHARES,
    ),
    broken(
        "ctas_that_may_never_run_meet",
        "H81",
        meeting(residency="any", together=1),
        "residency",
        "ctas_meet",
        "Those that wait may keep the others from starting.",
        launches=SHARES,
    ),
    broken(
        "too_few_run_together",
        "H81",
        meeting(together=1),
        "residency",
        "ctas_meet",
        "Tickets say who has started, not who is going to.",
        launches=SHARES,
    ),
    broken(
        "one_more_is_waited_for",
        "H80",
        meeting(ctas=s + 1, together=s + 1),
        "deadlock collective residency",
        "ctas_meet",
        "Nobody else ever comes.",
        launches=SHARES,
    ),
    broken(
        "one_thread_meets",
        "H80",
        meeting("put alone sum"),
        "collective RAW",
        "ctas_meet",
        "All threads of each CTA have to.",
        launches=SHARES,
        refused="must reach it",
    ),
    legal(
        "engines_are_drained_before_the_meeting",
        "H41",
        by_engine(f"{SENT} drain meet get out"),
        "The copy is performed when its thread arrives at the grid barrier.",
        launches=SPLITS,
    ),
    broken(
        "engines_in_flight_at_the_meeting",
        "H41",
        by_engine(f"{SENT} read meet get out"),
        "drain RAW",
        "engines_are_drained_before_the_meeting",
        "Only the source has been read.",
        launches=SHARES,
    ),
    legal(
        "an_engine_reads_behind_the_meeting",
        "H46",
        by_engine("put meet fetch here take out"),
        "A proxy fence of global memory stands between the meeting and the copy.",
        launches=SPLITS,
    ),
    broken(
        "an_engine_reads_unfenced",
        "H46",
        by_engine("put meet fetch_bare here take out"),
        "proxy",
        "an_engine_reads_behind_the_meeting",
        "The meeting orders the generic proxy only.",
        launches=SHARES,
    ),
    legal(
        "a_role_meets",
        "H80",
        among_roles(meeting()),
        "The same role of every CTA, by a barrier of its own.",
        launches=SPLITS,
    ),
    broken(
        "a_role_meets_by_the_barrier_of_another",
        "H80",
        among_roles(meeting(), (kir.BlockSync(1, 64),)),
        "collective RAW deadlock",
        "a_role_meets",
        "Its threads may pass with those of the other role.",
        launches=SHARES,
    ),
    broken(
        "two_roles_meet",
        "H80",
        among_roles(meeting(), (kir.GridSync(TURNS, 0, s, 2),)),
        "collective RAW deadlock",
        "a_role_meets",
        "A CTA counts twice, so that half of them go on without the others.",
        launches=SHARES,
    ),
    broken(
        "two_roles_of_unequal_size_meet",
        "H80",
        among_roles(meeting(), (kir.GridSync(TURNS, 0, s, 2),), warps=1),
        "collective RAW deadlock",
        "two_roles_meet_at_integers_of_their_own",
        "A CTA counts twice, whichever of its roles comes first.",
        launches=SHARES,
    ),
    legal(
        "two_roles_meet_at_integers_of_their_own",
        "H80",
        replace(
            among_roles(meeting(), (kir.GridSync(OTHERS, 0, s, 2),), warps=1),
            semaphores=(TURNS, OTHERS),
        ),
        "Each integer counts one role of each CTA.",
        launches=SPLITS,
    ),
    legal(
        "a_role_meets_after_a_join_of_all",
        "H80",
        among_roles(meeting(), ahead=(kir.BlockSync(0, 128),)),
        "All threads join by another barrier than the role.",
        launches=SPLITS,
    ),
    broken(
        "a_role_meets_by_the_barrier_of_all",
        "H80",
        among_roles(meeting(), ahead=(kir.BlockSync(1, 128),)),
        "collective",
        "a_role_meets_after_a_join_of_all",
        "The barrier by which a role joins before it waits for CTAs is its own.",
        launches=SHARES,
    ),
    legal(
        "a_role_takes_turns",
        "H43",
        among_roles(turnstile()),
        "What stands beside it has nothing to do with the turns.",
        launches=SPLITS,
    ),
    broken(
        "a_role_takes_turns_by_the_barrier_of_another",
        "H43",
        among_roles(turnstile(), (kir.BlockSync(1, 64),)),
        "collective RAW deadlock",
        "a_role_takes_turns",
        "Its threads may pass with those of the other role.",
        launches=SHARES,
    ),
)
