"""What was met, and what is legal and was not."""

from __future__ import annotations

from records import record
from reported import counted, frame

from fuzz.cases.features import legal
from reports import coverage

MET = {
    ("operation", "add", "f32"): 25,
    ("operation", "add", "i32"): 0,
    ("operation", "exp", "f16"): 3,
    ("schedule", "direct/tma", "1"): 40,
    ("schedule", "tma-pipelined/tma", "1"): 20,
    ("schedule", "tma-pipelined/tma", "3-4"): 0,
}


def test_what_is_legal_and_was_not_met_is_zero() -> None:
    """An empty cell that nobody can fill is none; types are in the order of their sizes."""
    section = coverage.operations(counted(MET))
    table = section.table.set_index("op")
    assert list(table.columns) == ["f32", "f16", "i32"]
    assert (table.loc["add", "f32"], table.loc["add", "i32"]) == (25, 0)
    assert table.loc["add", "f16"] is None
    assert section.says.startswith("2 of 3 legal cells were met")


def test_schedules_are_counted_per_slots() -> None:
    """A ring depth that was never drawn shows as a hole; of direct loads there is none."""
    table = coverage.schedules(counted(MET)).table.set_index("family and slots")
    assert list(table.loc["tma-pipelined/tma"]) == [20, 0]
    assert list(table.loc["direct/tma"]) == [40, None]


def test_each_part_says_how_many_cells_have_too_few_cases() -> None:
    """A cell with as many as are wanted is not among them."""
    section = coverage.table(counted(MET))
    assert section.says.startswith(
        "3 of 6 legal cells were met by 20 drawn cases or more, 2 by none"
    )
    first, second = section.table.drop(columns=["part", "rarest"]).to_numpy().tolist()
    assert (first, second) == ([3, 1, 2, 0], [3, 1, 1, 0])
    assert section.table["rarest"][0] == "add i32 0; exp f16 3; add f32 25"


def test_every_part_of_the_table_is_shown() -> None:
    """In an order of its own, whatever the ledger's."""
    cells = dict.fromkeys(legal(), 1)
    shown = coverage.table(counted(cells)).table
    assert list(shown["part"]) == list(coverage.PARTS.values())
    assert shown["legal cells"].sum() == len(cells)


def test_every_family_adds_up() -> None:
    """A line for each oracle that judged it."""
    rows = [record("a"), record("b", status="fail"), record("b", oracle="gpu")]
    table = coverage.families(frame(*rows)).table
    assert table[["oracle", "cases"]].to_numpy().tolist() == [["prover", 2], ["gpu", 1]]


def test_without_a_case_there_is_a_sentence() -> None:
    """A campaign that was interrupted at once."""
    assert coverage.families(frame()).says
    for make in (coverage.operations, coverage.schedules, coverage.table):
        assert make(counted({})).says == "No cells were counted."
