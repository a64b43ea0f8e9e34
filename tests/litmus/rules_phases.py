"""Litmus kernels of single rules about mbarriers, phases, and what is read behind them."""

from __future__ import annotations

from dataclasses import replace

from fuser.kernel import ir as kir
from litmus.parts import (
    NBYTES,
    X1,
    XN,
    Y1,
    YN,
    Body,
    Litmus,
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
    n,
    single,
    slots,
    store,
    trips,
    wait,
)

TILE = fragment("x")
COPY = (load(TILE, box(X1)), store(box(Y1), TILE))
"""What a kernel does besides, so that it writes its output."""
S = slots("S")
BAR = kir.MBarrier("bar", 1, 1)
FIRST_STORE = kir.IfThenElse(k < 1, (load(TILE, box(XN, k)), store(kir.Slot(S, 0), TILE)))
LAST_STORE = kir.IfThenElse(k + 1 >= n, (load(TILE, box(XN, k)), store(kir.Slot(S, 0), TILE)))
PING, PONG = kir.MBarrier("ping", 1, 1), kir.MBarrier("pong", 1, 1)
TWENTY = kir.MBarrier("bar", 20, 1)
BOTH = kir.MBarrier("both", 2, 1)
HEARD, SECOND = kir.BlockSync(1, 64), wait(BAR, 0, 1)
TOLD = kir.WarpSync(), kir.NamedArrive(1, 64)
"""By which one warp tells the other what it has done."""


def phases(count: int) -> kir.Elect:
    """Arrive in so many phases; in each one after the end of the one before."""
    body: list[kir.Stmt] = []
    for phase in range(count):
        body += [wait(BAR, 0, phase - 1)] if phase else []
        body += [kir.MBarrierArrive(BAR, 0)]
    return elect(*body)


def signals(signal: Body, waits: Body, bar: kir.MBarrier = BAR, *, tells: int = 0) -> kir.Kernel:
    """Warp `tells` arrives on an mbarrier, the other one waits; no data depends on it."""
    body = (
        init(bar),
        kir.BlockSync(0, 64),
        kir.Role("tells", tells, 1, signal),
        kir.Role("waits", 1 - tells, 1, (*waits, *COPY)),
    )
    return single(body, threads=64, barriers=(bar,))


def tells(bar: kir.MBarrier) -> Body:
    """Arrive in phase k, and wait for its end."""
    return kir.MBarrierArrive(bar, 0), wait(bar, 0, k)


def rounds(first: Body, second: Body, *bars: kir.MBarrier, buffer: bool = False) -> kir.Kernel:
    """Two warps that do something n times; the first also copies a tile each time."""
    copy = (load(TILE, box(XN, k)), store(box(YN, k), TILE))
    start = (init(*bars), kir.BlockSync(0, 64)) if bars else ()
    body = (
        *start,
        kir.Role("first", 0, 1, (kir.ForLoop(k, n, (*copy, *first)),)),
        kir.Role("second", 1, 1, (kir.ForLoop(k, n, second),)),
    )
    return kernel(body, threads=64, barriers=bars, buffers=(S,) if buffer else ())


def late() -> kir.Kernel:
    """One warp loads tiles by TMA, the other waits for all but the first, and is one late."""
    two = slots("S", 2)
    feed = elect(*fill(kir.Slot(two, k % 2), box(XN, k), PING))
    use = kir.IfThenElse(k >= 1, (wait(PING, 0, k), load(TILE, kir.Slot(two, (k + 1) % 2))))
    return replace(rounds((feed,), (use,), PING), buffers=(two,))


def expecting(*body: kir.Stmt) -> kir.Kernel:
    """One warp expects the bytes of a load, which nobody waits for."""
    return single(
        (init(BAR), kir.BlockSync(0, 32), elect(*body), *COPY), buffers=(S,), barriers=(BAR,)
    )


LITMUS: tuple[Litmus, ...] = (
    legal(
        "rule_first_phase_awaited",
        "H03 H04 H09",
        signals((phases(1),), (wait(BAR, 0, 0),)),
        "One phase, awaited.",
    ),
    broken(
        "rule_only_the_second_phase_awaited",
        "H03",
        signals((phases(2),), (wait(BAR, 0, 1),)),
        "parity",
        "rule_first_phase_awaited",
        "A wait for parity 1 passes at once while phase 0 runs.",
    ),
    broken(
        "rule_second_phase_awaited_late",
        "H03",
        signals((phases(2),), (load(TILE, box(X1)), wait(BAR, 0, 1))),
        "parity",
        "rule_first_phase_awaited",
        "The same by a warp that comes later: it may still come first.",
    ),
    legal(
        "rule_second_phase_awaited_when_both_are_over",
        "H03",
        signals((phases(2), *TOLD), (HEARD, wait(BAR, 0, 1))),
        "The test of the parity sees the last phase that is over, whoever saw the one before.",
    ),
    legal(
        "rule_second_of_bare_phases_awaited",
        "H03",
        signals((elect(*(kir.MBarrierArrive(BAR, 0) for _ in range(2))), *TOLD), (HEARD, SECOND)),
        "The same where the warp that arrives has not waited either.",
    ),
    legal(
        "rule_third_phase_awaited_when_all_are_over",
        "H03 H04",
        signals((phases(3), *TOLD), (HEARD, wait(BAR, 0, 2))),
        "Two phases were never observed, and are over for sure.",
    ),
    legal(
        "rule_second_phase_awaited_when_the_first_is_over",
        "H03",
        signals(
            (phases(1), *TOLD, elect(wait(BAR, 0, 0), kir.MBarrierArrive(BAR, 0))), (HEARD, SECOND)
        ),
        "It is not over yet, but the phase before is.",
    ),
    broken(
        "rule_second_phase_awaited_while_a_third_may_end",
        "H04",
        signals(
            (phases(2), *TOLD, elect(wait(BAR, 0, 1), kir.MBarrierArrive(BAR, 0))), (HEARD, SECOND)
        ),
        "parity deadlock",
        "rule_second_phase_awaited_when_both_are_over",
        "Once phase 2 is over the test of parity 1 fails, for ever.",
    ),
    broken(
        "rule_first_phase_awaited_when_both_are_over",
        "H04",
        signals((phases(2), *TOLD), (HEARD, wait(BAR, 0, 0))),
        "parity deadlock",
        "rule_second_phase_awaited_when_both_are_over",
        "Phase 0 is no more the last one that is over.",
    ),
    broken(
        "rule_one_wait_for_three_phases",
        "H04",
        signals((phases(3),), (wait(BAR, 0, 0),)),
        "parity",
        "rule_first_phase_awaited",
        "It passes after phase 0 or after phase 2, and may be late for both while phase 1 runs.",
    ),
    broken(
        "rule_a_warp_too_many_arrives",
        "H09",
        signals((kir.MBarrierArrive(TWENTY, 0),), (wait(TWENTY, 0, 0),), TWENTY),
        "arrivals parity",
        "rule_first_phase_awaited",
        "32 threads arrive on a barrier that takes 20 a phase.",
    ),
    legal(
        "rule_warps_in_turn",
        "H03 H16",
        rounds(
            (elect(*tells(PING), wait(PONG, 0, k)),),
            (elect(wait(PING, 0, k), *tells(PONG)),),
            PING,
            PONG,
        ),
        "The first tells the second, and waits for its answer.",
    ),
    broken(
        "rule_warps_wait_for_each_other",
        "H16",
        rounds(
            (elect(wait(PONG, 0, k), *tells(PING)),),
            (elect(wait(PING, 0, k), *tells(PONG)),),
            PING,
            PONG,
        ),
        "deadlock",
        "rule_warps_in_turn",
        "Each waits for the other before it arrives.",
    ),
    broken(
        "rule_first_phase_not_awaited",
        "H03",
        rounds(
            (elect(*tells(PING), wait(PONG, 0, k)),),
            (elect(kir.IfThenElse(k >= 1, (wait(PING, 0, k),)), *tells(PONG)),),
            PING,
            PONG,
        ),
        "parity",
        "rule_warps_in_turn",
        "The first wait is for phase 1, and passes at once while phase 0 runs.",
    ),
    legal(
        "rule_both_wait",
        "H03 H04 H12 H16",
        rounds((elect(*tells(BOTH)),), (elect(*tells(BOTH)),), BOTH),
        "Neither arrives again before the phase is over.",
    ),
    broken(
        "rule_one_runs_ahead",
        "H04",
        rounds((elect(*tells(BOTH)),), (elect(kir.MBarrierArrive(BOTH, 0)),), BOTH),
        "parity arrivals deadlock",
        "rule_both_wait",
        "The second warp may arrive twice in one phase, in place of the first.",
        launches=trips(2),
    ),
    broken(
        "rule_one_stops_early",
        "H12",
        rounds((elect(*tells(BOTH)),), (elect(kir.IfThenElse(k < 3, tells(BOTH))),), BOTH),
        "deadlock arrivals",
        "rule_both_wait",
        "Phase 3 gets one of its two arrivals.",
    ),
    broken(
        "rule_first_one_stops_early",
        "H12",
        rounds((elect(kir.IfThenElse(k < 3, tells(BOTH))),), (elect(*tells(BOTH)),), BOTH),
        "deadlock arrivals",
        "rule_both_wait",
        "The same with the warps exchanged: whichever an engine looks at first.",
    ),
    broken(
        "rule_two_writers",
        "H70",
        rounds(
            (store(kir.Slot(S, 0), TILE),),
            (load(TILE, box(XN, k)), store(kir.Slot(S, 0), TILE)),
            buffer=True,
        ),
        "WAW",
        "rule_writers_in_turn",
        "Nothing orders the stores of the two warps.",
    ),
    legal(
        "rule_writers_in_turn",
        "H70",
        rounds(
            (
                store(kir.Slot(S, 0), TILE),
                kir.WarpSync(),
                elect(*tells(PING), wait(PONG, 0, k)),
                kir.WarpSync(),
            ),
            (
                elect(wait(PING, 0, k)),
                kir.WarpSync(),
                load(TILE, box(XN, k)),
                store(kir.Slot(S, 0), TILE),
                kir.WarpSync(),
                elect(*tells(PONG)),
            ),
            PING,
            PONG,
            buffer=True,
        ),
        "The second warp stores after the first one's signal, and signals the first one in turn.",
    ),
    broken(
        "rule_writers_in_turn_for_one_trip",
        "H70",
        rounds(
            (FIRST_STORE, kir.IfThenElse(n < 2, (kir.NamedArrive(1, 64),))),
            (kir.IfThenElse(n < 2, (kir.BlockSync(1, 64),)), LAST_STORE),
            buffer=True,
        ),
        "WAW",
        "rule_writers_in_turn",
        "Signalled only where the first step is the last.",
    ),
    broken(
        "rule_read_one_phase_late",
        "H03",
        late(),
        "RAW WAR WAW parity exit",
        "rule_both_wait",
        "The first wait is for phase 1, and what phase 0 brought is read behind it.",
    ),
    broken(
        "rule_read_of_nothing_in_a_loop",
        "H70",
        rounds((), (load(TILE, kir.Slot(S, 0)),), buffer=True),
        "RAW",
        "rule_read_after_a_store",
        "Nobody writes the slot.",
    ),
    legal(
        "rule_bytes_come",
        "H08",
        expecting(*fill(kir.Slot(S, 0), box(X1), BAR), wait(BAR, 0, 0)),
        "The bytes that are expected come.",
    ),
    broken(
        "rule_bytes_never_come",
        "H08",
        expecting(kir.MBarrierArriveExpectTx(BAR, 0, NBYTES)),
        "bytes",
        "rule_bytes_come",
        "Expected, never copied, and never waited for.",
    ),
)
"""Every litmus of this file."""
