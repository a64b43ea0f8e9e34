"""The section of semaphore mutants: right words and colours for every answer, and for none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from witnesses import RING

from fuzz.exit_code import CLEAN, USAGE
from fuzz.kernels.semaphores import MEMBERS
from fuzz.semaphores.record import JUDGES, NAME, Book, Cell, Row, load, misjudged, unanswered
from oracles.witness import dumps
from reports import semaphores
from reports.__main__ import SHIPPED, main
from reports.page import Headline

SEEN, SILENT = Cell("detected", "drain", 2, 9, detail="line <3>"), Cell("silent", "", 0, 5)
OPEN = Cell("unknown", "timeout", seconds=90.0)
VALUES = Cell("detected", "values", 37, 400)
CELLS = {"prover": SEEN, "simulator": SILENT, "gpu": VALUES, "racecheck": OPEN, "memcheck": SILENT}
BROKEN = Row(
    "split_k/x", "split_k", "x < y", "Wrong.", False, "", "+ new\n- old\n  same", "", CELLS
)
CONTROL = Row("split_k/control", "split_k", "control", "As it is.", True, "", "", "", CELLS)
ROWS = (CONTROL, BROKEN)


@pytest.mark.parametrize(
    ("row", "tones"),
    [
        (BROKEN, {"prover": "pass", "simulator": "fail", "gpu": "pass", "memcheck": "quiet"}),
        (CONTROL, {"prover": "fail", "simulator": "pass", "gpu": "fail", "memcheck": "pass"}),
    ],
)
def test_a_judge_that_is_wrong_is_red(row: Row, tones: dict[str, str]) -> None:
    """Silence is a fault only of who has to notice; not asked is neither right nor wrong."""
    expected = dict.fromkeys(JUDGES, "missing") | tones | {"racecheck": "unknown"}
    assert {judge: semaphores.tone(row, judge) for judge in JUDGES} == expected


def test_the_table_has_a_cell_for_every_judge() -> None:
    """With counts; what was not measured says so."""
    body = str(semaphores.section(ROWS, {"gpu": "NVIDIA H200", "launches": 400}).body)
    assert body.count("not measured") == 2 * 3 + 3  # cells, and heads of columns
    cells = re.findall(r'<td class="(\w+)"><span>(\w+(?: \w+)?)</span>(?:<small>([^<]*))?', body)
    assert len(cells) == 2 * len(JUDGES)
    assert ("pass", "detected", "37 of 400 launches") in cells
    assert ("pass", "killed", "drain") in cells
    assert ("unknown", "unknown", "timeout") in cells
    assert ("quiet", "silent", "") in cells
    assert "NVIDIA H200, launches 400" in body
    assert "x &lt; y" in body
    assert "line &lt;3&gt;" in body


def test_the_difference_folds_out() -> None:
    """Lines that are gone, added, and kept."""
    body = str(semaphores.section(ROWS, {}).body)
    assert '<span class="added">+ new</span>' in body
    assert '<span class="gone">- old</span>' in body
    assert '<span class="same">  same</span>' in body
    assert body.count('<tr class="fold" hidden>') == 2


def test_heads_count_the_defects_that_were_noticed() -> None:
    """Legal kernels are no defects."""
    assert semaphores.noticed(ROWS, "prover") == "1 of 1"
    assert semaphores.noticed(ROWS, "memcheck") == "0 of 1"
    assert semaphores.noticed(ROWS, "synccheck") == "not measured"


def test_the_sentence_counts_what_is_wrong_and_what_is_open() -> None:
    """Two false alarms, one blind judge; three columns not asked, one without an answer."""
    said = semaphores.says(ROWS)
    assert said.startswith(
        "1 broken ways to pass a semaphore on, and 1 legal kernels: 3 wrong answers, "
    )
    assert "8 cells without one. 0 defects are noticed by a proof or a simulation alone." in said
    assert semaphores.headline(ROWS).status == "fail"
    assert semaphores.headline(()).status == "unknown"
    assert semaphores.headline((Row("k", "k", "k", "", True),)).status == "unknown"
    full = Row("k", "k", "k", "", True, cells=dict.fromkeys(JUDGES, SILENT))
    assert semaphores.headline((full,)).status == "pass"


def test_a_wrong_answer_is_told_at_the_head_of_the_page() -> None:
    """A page that begins green must not end red."""
    fine = Headline("pass", "10 cases, no failure", (("Seed", "0"),))
    head = semaphores.joined(fine, ROWS)
    assert head.status == "fail"
    assert head.says == "10 cases, no failure; 3 wrong answers about semaphores"
    assert semaphores.joined(fine, ()) == fine


def test_results_beside_a_ledger_become_a_page(tmp_path: Path) -> None:
    """Even without the ledger; the execution that goes wrong is drawn."""
    drawn = Row("split_k/x", "split_k", "x", "Wrong.", False, "", "", dumps(RING), CELLS)
    Book(tmp_path / NAME, [drawn], {})
    assert CliRunner().invoke(main, [str(tmp_path / "ledger.sqlite")]).exit_code == CLEAN
    page = (tmp_path / "index.html").read_text()
    assert 'id="semaphores"' in page
    assert '<svg class="lanes' in page or 'class="lanes"' in page


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Leaving them out would look like a report without such a section."""
    (tmp_path / NAME).write_text("{}")
    done = CliRunner().invoke(main, [str(tmp_path / "ledger.sqlite")])
    assert done.exit_code == USAGE
    assert "no table of semaphore mutants" in done.stderr


def test_without_any_results_there_is_no_page(tmp_path: Path) -> None:
    """And the message says how to get some."""
    done = CliRunner().invoke(main, [str(tmp_path / "ledger.sqlite")])
    assert done.exit_code == USAGE
    assert "make one with `python -m fuzz`" in done.stderr
    assert not (tmp_path / "index.html").exists()


def test_what_is_shipped_answers_everywhere() -> None:
    """Every judge was asked of every kernel, on a GPU too, and none was wrong."""
    rows, facts = load(SHIPPED)
    assert facts["gpu"] == "NVIDIA H200"
    assert [row.subject for row in rows] == [f"semaphore {key}" for key in MEMBERS]
    assert unanswered(rows) == 0
    assert not misjudged(rows)
