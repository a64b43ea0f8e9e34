"""The runner: children that hang or crash cost one cell, and where there is no GPU it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_devices import FINE, broken, fake

from fuser.runtime import device_present
from fuzz.exit_code import HARNESS
from fuzz.release_family import FAMILY
from fuzz.release_gpu import Device, begun, judge_by_sanitizers, main
from fuzz.release_judges import rows
from fuzz.release_launches import asked, judge
from fuzz.release_record import DEVICE, NAME, PROVING, SANITIZERS, Book, Cell, load


def device() -> Device:
    """A runner of the fake."""
    return Device(fake, "probe", limit_s=20.0)


def test_whatever_a_kernel_does_the_next_one_is_judged() -> None:
    """After everything but a plain answer there is a new process."""
    one = device()
    try:
        pids = [one.ask("who").of]
        assert one.ask("plain") == FINE
        assert one.ask("who").of == pids[0]
        for request, status, says in (
            ("stuck", "betrayed", "hang"),
            ("crash", "unknown", "crash"),
            ("cuda", "betrayed", "CUDA error"),
            ("mistake", "unknown", "error"),
        ):
            cell = one.ask(request)
            assert (cell.status, cell.says) == (status, says)
            pids.append(one.ask("who").of)
        assert len(set(pids)) == len(pids)
    finally:
        one.close()


def test_a_child_that_does_not_answer_hangs() -> None:
    """At the limit, which here is short."""
    one = Device(fake, "probe", limit_s=1.5)
    try:
        cell = one.ask("hang")
        assert (cell.status, cell.says) == ("betrayed", "hang")
        assert cell.detail.startswith("no answer within 3 s by the clock (")
        assert one.ask("plain") == FINE
    finally:
        one.close()


def test_a_device_that_is_lost_is_not_blamed_on_the_next_kernel() -> None:
    """The run ends; what was measured is kept."""
    one = Device(broken, "probe", limit_s=20.0)
    try:
        with pytest.raises(RuntimeError, match="does not run an unchanged kernel any more"):
            one.ask("anything")
    finally:
        one.close()


def test_without_a_device_nothing_is_claimed_of_it(tmp_path: Path) -> None:
    """Three columns are filled; the exit code says that others are open."""
    words = ["--out", str(tmp_path), "--only", "split_k/relaxed-release", "--workers", "1"]
    done = CliRunner().invoke(main, [*words, "--no-device"])
    assert done.exit_code == HARNESS, done.output
    found, facts = load(tmp_path / NAME)
    assert {row.key: sorted(row.cells) for row in found} == {
        "split_k/relaxed-release": sorted(PROVING),
        "split_k/relaxed-release-behind-a-cta-fence": sorted(PROVING),
        "split_k/relaxed-release-behind-a-gpu-fence": sorted(PROVING),
    }
    assert "0 wrong answers, 15 cells without an answer" in done.output
    assert "gpu" not in facts
    assert {"started", "host_seconds", "seconds", "nvrtc"} <= set(facts)


def test_a_run_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    """What was answered is kept, of the same kernel only."""
    chosen = tuple(m for m in FAMILY if m.name == "control")
    path = tmp_path / NAME
    assert begun(path, chosen, resume=True) == rows(chosen)
    book = Book(path, rows(chosen), {})
    book.add("split_k/control", "gpu", FINE)
    book.add("split_k_tma/control", "gpu", Cell("unknown", "crash"))
    old = book.rows["wide_turns/control"]
    book.rows["wide_turns/control"] = replace(old, digest="another", cells={"gpu": FINE})
    book.save()
    again = Book(path, begun(path, chosen, resume=True), {})
    assert again.rows["split_k/control"].cells == {"gpu": FINE}
    assert again.rows["wide_turns/control"].cells == {}
    assert again.open("gpu") == [m.key for m in chosen[1:]]
    assert begun(path, chosen, resume=False) == rows(chosen)


def test_when_the_time_is_over_sanitizers_have_no_answer(tmp_path: Path) -> None:
    """Left over is not clean."""
    chosen = tuple(m for m in FAMILY if m.name == "control")
    book = Book(tmp_path / NAME, rows(chosen), {})
    judge_by_sanitizers(book, 2, 0.0)
    cells = [cell for row in book.rows.values() for cell in row.cells.values()]
    assert cells == [Cell("unknown", "no time left")] * len(chosen) * len(SANITIZERS)


def test_results_that_cannot_be_written_are_no_defect_found(tmp_path: Path) -> None:
    """Before anybody is asked."""
    (tmp_path / "file").write_text("")
    words = ["--out", str(tmp_path / "file" / "out"), "--only", "split_k/control"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == HARNESS
    assert "cannot be written: Not a directory: " in done.stderr
    assert done.stderr.endswith("; name another folder with --out\n")


def test_a_kernel_that_is_none_is_refused(tmp_path: Path) -> None:
    """A filter that fits nothing must not look like a clean run."""
    done = CliRunner().invoke(main, ["--out", str(tmp_path), "--only", "nothing"])
    assert done.exit_code == 2
    assert "--only nothing: no kernel of that name; there are split_k/control" in done.output


@pytest.mark.gpu
def test_a_hang_is_seen_and_the_device_goes_on() -> None:
    """The second launch of a kernel that leaves its semaphore dirty waits for ever."""

    def request(name: str) -> str:
        return asked(f"split_k/{name}", delays=False, launches=8, seconds=10.0)

    one = Device(judge, request("control"))
    try:
        cell = one.ask(request("semaphore-not-reset"))
        assert (cell.status, cell.says, cell.of) == ("betrayed", "hang", 2)
        assert one.ask(request("control")).status == "silent"
    finally:
        one.close()


@pytest.mark.gpu
def test_on_a_device_every_judge_of_it_is_asked(tmp_path: Path) -> None:
    """The control alone: nobody refuses it."""
    assert device_present()
    words = ["--out", str(tmp_path), "--only", "split_k_tma/control", "--no-sanitizers"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == HARNESS, done.output
    ((row,), facts) = load(tmp_path / NAME)
    assert {name: c.status for name, c in row.cells.items()} == dict.fromkeys(
        (*PROVING, *DEVICE[:2]), "silent"
    )
    assert facts["gpu"]
