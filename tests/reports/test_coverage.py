"""What was met, and what is legal and was not."""

from __future__ import annotations

from records import record
from reported import frame

from fuser.dtype import DType
from fuser.fusion.ops import OPS
from reports import coverage


def test_what_is_legal_and_was_not_met_is_zero() -> None:
    """An empty cell that nobody can fill is none; of sums the operand counts, not the result."""
    rows = [record("a", ops="add/f32 exp/bf16"), record("a", oracle="simulator", ops="add/f32")]
    section = coverage.operations(frame(*rows))
    table = section.table.set_index("op")
    assert set(table.index) == set(OPS)
    assert (table.loc["add", "f32"], table.loc["add", "f64"]) == (1, 0)
    assert table.loc["add", "f8e4m3"] is None
    assert (table.loc["sum", "i32"], table.loc["cast", "i8"]) == (0, 0)
    pairs = sum(len(coverage.legal(op)) for op in OPS)
    assert section.says.startswith(f"2 of {pairs} legal pairs")
    assert f"and {pairs - 2 - 12} more" in section.says
    assert list(table.columns) == [dtype.name for dtype in DType]


def test_mechanisms_are_counted_per_stages() -> None:
    """A ring depth that was never drawn shows as a hole."""
    rows = [record("a"), record("b", family="tma-pipelined/tma", stages=3)]
    table = coverage.mechanisms(frame(*rows)).table
    assert list(table.columns)[1:] == ["1 stage", "3 stages"]
    assert table.iloc[1, 1:].tolist() == [0, 1]


def test_every_family_adds_up() -> None:
    """A line for each oracle that judged it."""
    rows = [record("a"), record("b", status="fail"), record("b", oracle="gpu")]
    table = coverage.families(frame(*rows)).table
    assert table[["oracle", "cases"]].to_numpy().tolist() == [["prover", 2], ["gpu", 1]]


def test_without_a_case_there_is_a_sentence() -> None:
    """A campaign that was interrupted at once."""
    for make in (coverage.operations, coverage.mechanisms, coverage.families):
        assert make(frame()).says
