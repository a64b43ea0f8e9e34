"""The table: kept where a run ended, filled by whom there is, and open where there is nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_devices import FINE

from fuser.runtime.executable import device_present
from fuzz.crosscheck.judge import Answer
from fuzz.exit_code import HARNESS
from fuzz.kernels.semaphores import MEMBERS
from fuzz.kernels.subjects import find
from fuzz.semaphores import sanitizers as compute_sanitizer
from fuzz.semaphores.record import DEVICE, NAME, PROVING, SANITIZERS, Book, Cell, load
from fuzz.semaphores.run import (
    OTHERS,
    begun,
    brief,
    cell,
    difference,
    judge_by_sanitizers,
    judged,
    main,
    row,
    subjects,
)
from oracles.witness import loads

CONTROLS = [f"semaphore {one.key}" for one in MEMBERS.values() if one.name == "control"]
ERROR = "error: drain at line 3: W[((tile // 8) * 64)+64, 0+8] <~ tma_store(SD[0]): late"


def test_a_row_begins_empty() -> None:
    """Not measured until somebody has looked; legal only where it is known."""
    one = row("semaphore split_k_tma/no-barrier-before-release")
    assert (one.base, one.name, one.legal, one.cells) == (
        "split_k_tma", "no barrier before release", True, {},
    )  # fmt: skip
    assert row("mutant tma_ring 2 3").legal is None
    assert row("matmul split_tma 0").legal is True


@pytest.mark.parametrize(
    ("answer", "status", "says", "count", "of"),
    [
        (Answer("pass", checked=14), "silent", "", 0, 14),
        (Answer("fail", ("RAW", "drain"), ERROR, checked=9), "detected", "RAW, drain", 1, 9),
        (Answer("unknown", checked=3), "unknown", "unknown", 0, 3),
        (Answer("unsupported"), "unknown", "unsupported", 0, 0),
        (Answer("error", (), "KeyError: 3"), "unknown", "error", 0, 0),
    ],
)
def test_an_answer_becomes_a_cell(
    answer: Answer, status: str, says: str, count: int, of: int
) -> None:
    """A judge that raises has no answer."""
    found = cell(answer)
    assert (found.status, found.says, found.count, found.of) == (status, says, count, of)


def test_a_pass_without_a_look_is_no_cell() -> None:
    """Zero launches are no evidence."""
    with pytest.raises(ValueError, match="say unknown"):
        cell(Answer("pass"))


def test_coordinates_are_left_out_of_what_is_said() -> None:
    """Lines of products are long; brackets that are no coordinates stay."""
    assert cell(Answer("fail", ("drain",), ERROR)).detail == (
        "error: drain at line 3: W[…] <~ tma_store(SD[0]): late"
    )
    assert brief("at line 4 [CTA 0 warp 1 lanes 1-31]") == "at line 4 [CTA 0 warp 1 lanes 1-31]"


def test_the_difference_is_a_few_statements() -> None:
    """What a reader compares."""
    found = difference(find("semaphore split_k_tma/await-after-release")).splitlines()
    changed = [line for line in found if line[0] in "+-"]
    assert [line[0] for line in changed] == ["+", "-", "-"]
    assert "block_serialize_release(turns[tile]" in changed[0]
    assert len(found) < 14
    assert difference(find("semaphore split_k/control")) == ""


def test_all_that_is_said_of_a_subject() -> None:
    """Three cells, difference and drawable witness; a legal one has no witness."""
    cells, diff, drawn = judged("semaphore split_k_tma/read-only-await")
    assert "+    async_await(bulk, keep=0, read_only)" in diff
    assert loads(drawn).nearest.endswith("waits for its reads only")
    assert {name: c.status for name, c in cells.items()} == dict.fromkeys(PROVING, "detected")
    cells, _, drawn = judged("semaphore split_k_tma/no-barrier-before-release")
    assert drawn == ""
    assert {c.status for c in cells.values()} == {"silent"}


def test_without_a_sanitizer_there_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not installed is not clean."""
    for name in ("PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    if compute_sanitizer.find() is not None:
        pytest.skip("the toolkit of this machine is where nobody can hide it")
    book = Book(tmp_path / NAME, [row(CONTROLS[0])], {})
    judge_by_sanitizers(book, 1, 60.0)
    cells = book.rows[CONTROLS[0]].cells
    assert cells == dict.fromkeys(SANITIZERS, Cell("unknown", "no compute-sanitizer"))


def test_any_subject_can_be_asked_for(tmp_path: Path) -> None:
    """Kernels of a file, what the crosscheck names; a typing mistake is refused."""
    file = tmp_path / "mine.py"
    file.write_text("from fuser.cookbook.recipes import tma_ring\nring = tma_ring(2)\n")
    found = subjects([f"{file}:ring", "template 0 3"], ())
    assert found == [f"of {file}:ring 0", "template 0 3"]
    assert subjects((), ["wide_turns/no-await"]) == ["semaphore wide_turns/no-await"]
    for asked, message in (
        (["--only", "nothing"], "--only nothing: none of semaphore split_k/control"),
        (["template"], "template: find('template'): name a template"),
        ([str(tmp_path / "none.py")], "there is no file"),
    ):
        done = CliRunner().invoke(main, ["--out", str(tmp_path), *asked])
        assert done.exit_code == 2
        assert message in " ".join(done.output.split())


def test_other_subjects_have_a_file_of_their_own(tmp_path: Path) -> None:
    """The report's table of semaphore mutants must not be overwritten."""
    words = ["template 0 8", "--out", str(tmp_path), "--no-device", "--workers", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == HARNESS, done.output
    ((one,), _) = load(tmp_path / OTHERS)
    assert (one.subject, set(one.cells)) == ("template 0 8", set(PROVING))
    assert not (tmp_path / NAME).exists()


def test_without_a_device_nothing_is_claimed_of_it(tmp_path: Path) -> None:
    """Three columns are filled; the exit code says that others are open."""
    words = ["--out", str(tmp_path), "--only", " split_k/relaxed-release", "--workers", "1"]
    done = CliRunner().invoke(main, [*words, "--no-device"])
    assert done.exit_code == HARNESS, done.output
    found, facts = load(tmp_path / NAME)
    assert {row.subject: sorted(row.cells) for row in found} == {
        "semaphore split_k/relaxed-release": sorted(PROVING),
        "semaphore split_k/relaxed-release-behind-a-cta-fence": sorted(PROVING),
        "semaphore split_k/relaxed-release-behind-a-gpu-fence": sorted(PROVING),
    }
    assert "0 wrong answers, 15 cells without an answer" in done.output
    assert "gpu" not in facts
    assert {"started", "host_seconds", "seconds", "nvrtc"} <= set(facts)


def test_a_run_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    """What was answered is kept, of the same kernel only."""
    path, fresh = tmp_path / NAME, [row(name) for name in CONTROLS]
    assert begun(path, CONTROLS, resume=True) == fresh
    book = Book(path, fresh, {})
    book.add(CONTROLS[0], {"gpu": FINE})
    book.add(CONTROLS[1], {"gpu": Cell("unknown", "crash")})
    old = book.rows[CONTROLS[2]]
    book.rows[CONTROLS[2]] = replace(old, digest="another", cells={"gpu": FINE})
    book.save()
    again = Book(path, begun(path, CONTROLS, resume=True), {})
    assert again.rows[CONTROLS[0]].cells == {"gpu": FINE}
    assert again.rows[CONTROLS[2]].cells == {}
    assert again.open("gpu") == CONTROLS[1:]
    assert begun(path, CONTROLS, resume=False) == fresh


def test_when_the_time_is_over_sanitizers_have_no_answer(tmp_path: Path) -> None:
    """Left over is not clean."""
    book = Book(tmp_path / NAME, [row(name) for name in CONTROLS], {})
    judge_by_sanitizers(book, 2, 0.0)
    cells = [cell for row in book.rows.values() for cell in row.cells.values()]
    assert cells == [Cell("unknown", "no time left")] * len(CONTROLS) * len(SANITIZERS)


def test_results_that_cannot_be_written_are_no_defect_found(tmp_path: Path) -> None:
    """Before anybody is asked."""
    (tmp_path / "file").write_text("")
    words = ["--out", str(tmp_path / "file" / "out"), "--only", "split_k/control"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == HARNESS
    assert "cannot be written: Not a directory: " in done.stderr
    assert done.stderr.endswith("; name another folder with --out\n")


@pytest.mark.gpu
def test_on_a_device_every_judge_of_it_is_asked(tmp_path: Path) -> None:
    """The control alone: nobody refuses it."""
    assert device_present()
    words = ["--out", str(tmp_path), "--only", "split_k_tma/control", "--no-sanitizers"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == HARNESS, done.output
    ((one,), facts) = load(tmp_path / NAME)
    columns = [*PROVING, *(name for name in DEVICE if name not in SANITIZERS)]
    assert {name: c.status for name, c in one.cells.items()} == dict.fromkeys(columns, "silent")
    assert facts["gpu"]
