"""Litmus kernels that a single rule decides: without it an engine passes them, or refuses them.

Each is as small as it can be, so that nothing but the rule in question has a say.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr
from fuser.kernel import ir as kir
from litmus.named import handover
from litmus.parts import (
    BULK,
    X1,
    XN,
    Y1,
    YN,
    Litmus,
    box,
    broken,
    elect,
    fragment,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    single,
    store,
    trips,
)
from litmus.rules_phases import TILE, S


def looped(index: Expr) -> kir.Kernel:
    """Pass n tiles through a buffer of one slot, at an index."""
    at = kir.Slot(S, index)
    body = (load(TILE, box(XN, k)), store(at, TILE), load(TILE, at), store(box(YN, k), TILE))
    return kernel((kir.ForLoop(k, n, body),), buffers=(S,))


def read(*words: kir.Stmt) -> kir.Kernel:
    """Return a warp that stores what it finds in its slot."""
    return single((*words, load(TILE, kir.Slot(S, 0)), store(box(Y1), TILE)), buffers=(S,))


def sent(sentence: str) -> kir.Kernel:
    """Return a warp that sends its tile by TMA."""
    words: dict[str, kir.Stmt] = {
        "issue": kir.TmaStore(box(Y1), kir.Slot(S, 0)),
        "commit": kir.AsyncCommit(BULK),
        "done": kir.AsyncAwait(BULK, 0),
    }
    put = (load(TILE, box(X1)), store(kir.Slot(S, 0), TILE), kir.FenceAsyncProxy(kir.Space.SHARED))
    return single((*put, kir.WarpSync(), elect(*said(sentence, words))), buffers=(S,))


def registers(first: int, *, increase: bool) -> kir.Kernel:
    """Return a warpgroup that changes its registers."""
    x = fragment("x", 128)
    body = (kir.SetMaxNReg(first, increase=increase), load(x, box(X1)), store(box(Y1), x))
    return replace(single(body, threads=128), registers=128)


LITMUS: tuple[Litmus, ...] = (
    legal("rule_slot_inside", "H01", looped(0 * k), "Slot 0 is the only one.", launches=trips(2)),
    broken(
        "rule_slot_outside",
        "H02",
        looped(k),
        "bounds",
        "rule_slot_inside",
        "From the second tile on the slot does not exist.",
        launches=trips(2),
    ),
    legal(
        "rule_read_after_a_store",
        "H70",
        read(load(TILE, box(X1)), store(kir.Slot(S, 0), TILE)),
        "The thread reads what it wrote.",
    ),
    broken(
        "rule_read_of_nothing",
        "H70",
        read(),
        "RAW",
        "rule_read_after_a_store",
        "Nobody has written the slot.",
    ),
    legal(
        "rule_store_committed",
        "H42",
        sent("issue commit done"),
        "Committed, so the await covers it.",
    ),
    broken(
        "rule_store_never_committed",
        "H42",
        sent("issue done"),
        "group exit",
        "rule_store_committed",
        "An await covers committed groups only, so the copy is in flight at the end.",
    ),
    broken(
        "rule_last_tile_not_handed_over",
        "H72",
        handover(
            "get put maybe free",
            "wait read done out",
            maybe=kir.IfThenElse(k + 1 < n, (kir.NamedArrive(1, 64),)),
        ),
        "deadlock collective arrivals",
        "handover",
        "The taker waits for a last arrival that never comes.",
        launches=trips(1, 5),
    ),
    legal(
        "rule_registers_given",
        "H75",
        registers(64, increase=False),
        "From 128 registers to 64.",
    ),
    broken(
        "rule_registers_given_by_asking",
        "H75",
        registers(64, increase=True),
        "registers",
        "rule_registers_given",
        "An increase from 128 to 64.",
    ),
)
"""Every litmus of this file."""
