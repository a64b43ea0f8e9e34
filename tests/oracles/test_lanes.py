"""The diagram in text keeps every event, says what is missing, and fits the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from witnesses import RING, long

from oracles.lanes import folded, selected, text
from oracles.witness import Mark, Row, Witness


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_no_line_is_wider_than_asked(width: int) -> None:
    """A wrapped diagram cannot be read."""
    assert max(map(len, text(RING, width=width).splitlines())) <= width


def test_a_width_that_cannot_be_read_is_refused() -> None:
    """The message names the number to give."""
    with pytest.raises(ValueError, match="needs 60 columns"):
        text(RING, width=20)


def test_every_event_and_both_verdict_lines_are_there() -> None:
    """Nothing of a short witness is left out."""
    drawn = text(RING, width=160)
    for row in RING.rows:
        assert row.text in drawn
        assert row.note in drawn
    assert drawn.startswith("specialized: WAR at trips=4\n")
    assert f"missing  {RING.says}" in drawn
    assert f"nearest  {RING.nearest}" in drawn


def test_only_the_two_accesses_are_marked_and_joined() -> None:
    """The eye must find them first."""
    lines = text(RING, width=160).splitlines()
    marked = [line for line in lines if "◆" in line]
    assert len(marked) == 2
    assert marked[0].startswith(" ╔►  18")
    assert marked[1].startswith(" ╚►  23")
    assert sum("●" in line for line in lines) == len(RING.rows) - 2


def test_an_event_stands_in_the_column_of_its_lane() -> None:
    """Who did it is read from the column alone."""
    lines = text(RING, width=160).splitlines()
    head = next(line for line in lines if line.startswith("   line"))
    for row in RING.rows:
        drawn = next(line for line in lines if row.text in line)
        assert drawn.index(row.text) - 2 == head.index(row.lane)


def test_lanes_that_do_not_fit_side_by_side_are_named_in_each_row() -> None:
    """A narrow terminal still shows who does what."""
    drawn = text(RING, width=60)
    assert all(row.lane in drawn for row in RING.rows)
    assert "┬" not in drawn


def test_coordinates_and_idle_lanes_are_left_out() -> None:
    """A box of four coordinates is longer than all the rest of its row."""
    box = Row("a", 1, "S[0] <~ tma_load(T0[(((blockIdx + 1) // 4) * 4)+4, 0+64]) on full[(k % 3)]")
    drawn = text(Witness("k", "RAW", (), "it", "", ("a", "idle"), (box,)))
    assert "S[0] <~ tma_load(T0[…]) on full[(k % 3)]" in drawn
    assert "idle" not in drawn


def test_many_lanes_that_do_the_same_are_shown_once() -> None:
    """Eight warps that pass one barrier are one fact; the accesses are never left out."""
    lanes = ("reader", *(f"warp {i}" for i in range(8)), "writer")
    passes = [Row(lane, 3, "block_sync(0, 320)") for lane in lanes[1:-1]]
    ends = [
        Row("reader", 5, "x = load(S)", "", Mark.FIRST),
        Row("writer", 6, "S = store(y)", "", Mark.SECOND),
    ]
    shown = selected(Witness("k", "WAR", (), "it", "", lanes, (*passes, *ends)), 60)
    assert [row if isinstance(row, int) else row.lane for row in shown] == [
        "warp 0",
        7,
        "reader",
        "writer",
    ]


@given(st.integers(2, 200), st.data())
@settings(max_examples=60)
def test_leaving_out_keeps_both_accesses_and_counts_the_rest(
    rows: int, data: st.DataObject
) -> None:
    """A cut witness must not lose what it is about, nor hide that it was cut."""
    first = data.draw(st.integers(0, rows - 2))
    second = data.draw(st.integers(first + 1, rows - 1))
    witness = long(rows, first, second)
    shown = selected(witness, 20)
    kept = [row for row in shown if isinstance(row, Row)]
    assert len(kept) + sum(n for n in shown if isinstance(n, int)) == rows
    assert len(kept) <= max(20, min(rows, 20))
    assert {witness.rows[first], witness.rows[second]} <= set(kept)
    assert kept == sorted(kept, key=lambda row: row.line)


@given(st.text(alphabet="ab (),[]._", max_size=80), st.integers(4, 30))
def test_folding_loses_nothing_but_spaces_and_fits(says: str, width: int) -> None:
    """Every character of a statement can be read."""
    lines = folded(says, width)
    assert "".join(lines).replace(" ", "") == says.replace(" ", "")
    assert all(len(line) <= width for line in lines)
