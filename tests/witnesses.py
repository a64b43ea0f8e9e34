"""Witnesses as a judge would make them, to be drawn."""

from __future__ import annotations

from oracles.witness import Mark, Row, Witness

RING = Witness(
    "specialized",
    "WAR",
    (("trips", 4),),
    "nothing orders x = load(S0[0]) at k=0 before the tma_load into S0[0] at k=3",
    "line 24: mbarrier_arrive(empty[(k % 3)], cta)",
    ("compute lane 0", "compute other lanes", "load thread", "TMA engine"),
    (
        Row("compute lane 0", 12, "mbarrier_init(full, 1)", "full[0]: 1 arrival pending"),
        Row("compute lane 0", 15, "block_sync(0, 160)"),
        Row("load thread", 17, "mbarrier_arrive_expect_tx(full[0], 1024)", "1024 bytes pending"),
        Row("TMA engine", 18, "S0[0] is written", "full[0]: phase 1"),
        Row("compute lane 0", 22, "wait full[0] parity 0 passes"),
        Row("compute lane 0", 24, "arrive empty[0]", "empty[0]: phase 1"),
        Row("load thread", 18, "S0[0] <~ tma_load(T0) k=3", "", Mark.FIRST),
        Row("compute other lanes", 23, "x = load(S0[0]) k=0", "bytes of k=3", Mark.SECOND),
    ),
)
"""A refill that overtakes a read."""


def long(rows: int, first: int, second: int) -> Witness:
    """A witness of many events with its accesses at these positions."""
    marks = {first: Mark.FIRST, second: Mark.SECOND}
    return Witness(
        "long",
        "RAW",
        (),
        "nothing orders it",
        "",
        ("a", "b"),
        tuple(
            Row("ab"[i % 2], i + 1, f"event {i}", "", marks.get(i, Mark.NONE)) for i in range(rows)
        ),
    )
