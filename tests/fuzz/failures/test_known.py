"""What is known is told apart from what is new, by a file that everybody has."""

from pathlib import Path

from click.testing import CliRunner
from records import record

from fuzz.campaign.mutants import representative
from fuzz.campaign.repro import written
from fuzz.cases.case import from_text, to_text
from fuzz.exit_code import CLEAN, USAGE
from fuzz.failures.identity import identified
from fuzz.failures.known import Entry, entries, main, status, texts, write

CASE = to_text(representative("direct/direct"))
IDENTITY = identified(record("a", status="fail", kind="WAR"), from_text(CASE))


def test_the_file_of_the_project_is_read() -> None:
    """Each entry under the id that its fields make, with a case."""
    for name, entry in entries().items():
        assert entry.identity.id == name
        from_text(entry.case)


def test_failures_are_new_known_or_back(tmp_path: Path) -> None:
    """By their identity alone; their cases are judged by every campaign."""
    file = tmp_path / "known.json"
    entry = Entry(IDENTITY, CASE, "seen", since="2026-01-01")
    shown = record("x", status="fail", failure=IDENTITY.id)
    write({}, file)
    assert status(shown, file) == "new"
    write({IDENTITY.id: entry}, file)
    assert status(shown, file) == "known since 2026-01-01"
    assert texts(file) == {f"known {IDENTITY.id}": CASE}
    done = CliRunner().invoke(main, ["--fixed", IDENTITY.id, "--file", str(file)])
    assert done.exit_code == CLEAN
    assert status(shown, file).startswith("back, fixed on 20")


def test_what_does_not_fail_is_not_known(tmp_path: Path) -> None:
    """Nor is what is no repro, nor fixed what nobody knows."""
    file, path = tmp_path / "known.json", tmp_path / "some.py"
    write({}, file)
    path.write_text(written(record("x"), CASE))
    for words, says in (([str(path)], "nothing wrong"), (["--fixed", "abc"], "not known")):
        done = CliRunner().invoke(main, [*words, "--file", str(file)])
        assert done.exit_code == USAGE, done.output
        assert says in done.stderr
    assert entries(file) == {}
