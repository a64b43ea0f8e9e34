"""The benchmark's rows and table, as far as they can be judged without a GPU."""

from __future__ import annotations

from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from fuzz.bench import pointwise, products, reductions
from fuzz.bench.__main__ import main
from fuzz.bench.row import DEFAULT, table

ROWS = [*pointwise.rows(), *products.rows(), *reductions.rows()]


def test_every_row_has_its_name_its_fusion_and_candidates() -> None:
    """`--only` picks by name; a candidate that cannot be made would fail on the device only."""
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert len(row.fusion().outputs) == 1, row.name
        assert row.candidates(), row.name
        assert row.roof_us > 1, row.name


def test_the_table_compares_the_best_of_ours_with_the_best_peer() -> None:
    """A copy kernel is a roof, nobody's alternative; a default that was refused is said."""
    row = ROWS[0]
    times = {"torch": 12.0, "compile": 10.0, "copy w4 v1": 7.0, DEFAULT: 9.0, "ours, tma": 8.0}
    said = shown(row.name, times)
    for word in ("compile", "10.0", "tma", "8.0", "1.250", "1.111", "0.875"):
        assert word in said
    assert "refused" in shown(row.name, {"torch": 12.0, "ours, tma": 8.0})


def shown(name: str, times: dict[str, float]) -> str:
    """Return the table of one row as text."""
    text = StringIO()
    Console(file=text, width=200).print(table(ROWS, {name: times}))
    return text.getvalue()


def test_nothing_is_measured_without_a_device_and_that_is_said() -> None:
    """A benchmark that measured nothing is no success."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuzz.bench.__main__.device_present", lambda: False)
        done = CliRunner().invoke(main, ["--only", "G1"])
    assert done.exit_code == 3
    assert "nothing was measured" in done.output
