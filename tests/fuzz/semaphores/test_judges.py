"""The judges of the release family that need no GPU, in the words of the table."""

from __future__ import annotations

import pytest

from fuzz.semaphores.family import FAMILY, member
from fuzz.semaphores.judges import brief, cell, difference, judged, rows
from oracles.verdict import Finding, Status, Verdict
from oracles.witness_json import loads

PASS = Verdict("judge", Status.PASS, 7, reason="closure alone")
DRAIN = Finding("drain", "line 3: W[((tile // 8) * 64)+64, 0+8] <~ tma_store(SD[0])", "late")
FAIL = Verdict("judge", Status.FAIL, 2, (DRAIN, Finding("proxy", "line 9", "-", "warning")))


def test_a_table_begins_empty() -> None:
    """Not measured until somebody has looked."""
    assert [row.key for row in rows()] == [one.key for one in FAMILY]
    assert not any(row.cells for row in rows())


@pytest.mark.parametrize(
    ("verdicts", "status", "says", "count", "of"),
    [
        ([PASS, PASS], "silent", "", 0, 14),
        ([PASS, FAIL], "betrayed", "drain", 1, 9),
        ([PASS, Verdict("judge", Status.UNKNOWN, 3)], "unknown", "unknown", 0, 10),
        ([Verdict("judge", Status.UNSUPPORTED, 0)], "unknown", "unsupported", 0, 0),
    ],
)
def test_verdicts_become_a_cell(
    verdicts: list[Verdict], status: str, says: str, count: int, of: int
) -> None:
    """The last verdict decides; only errors count."""
    found = cell(verdicts)
    assert (found.status, found.says, found.count, found.of) == (status, says, count, of)


def test_nobody_asked_is_no_cell() -> None:
    """Zero launches are no evidence."""
    with pytest.raises(ValueError, match="nobody was asked"):
        cell([])


def test_coordinates_are_left_out_of_what_is_said() -> None:
    """Lines of products are long; brackets that are no coordinates stay."""
    assert cell([FAIL]).detail == "error: drain at line 3: W[…] <~ tma_store(SD[0]): late"
    assert brief("at line 4 [CTA 0 warp 1 lanes 1-31]") == "at line 4 [CTA 0 warp 1 lanes 1-31]"


def test_the_difference_is_a_few_statements() -> None:
    """What a reader compares."""
    found = difference(member("split_k_tma/await-after-release")).splitlines()
    changed = [line for line in found if line[0] in "+-"]
    assert [line[0] for line in changed] == ["+", "-", "-"]
    assert "block_serialize_release(turns[tile]" in changed[0]
    assert len(found) < 14
    assert difference(member("split_k/control")) == ""


def test_all_that_is_told_of_a_member() -> None:
    """Difference, drawable witness and three cells; a legal one has no witness."""
    diff, drawn, cells = judged("split_k_tma/read-only-await")
    assert "+    async_await(bulk, keep=0, read_only)" in diff
    assert loads(drawn).nearest.endswith("waits for its reads only")
    assert {name: c.status for name, c in cells.items()} == dict.fromkeys(
        ("prover", "simulator", "explorer"), "betrayed"
    )
    _, drawn, cells = judged("split_k_tma/no-barrier-before-release")
    assert drawn == ""
    assert {c.status for c in cells.values()} == {"silent"}
