"""One table of exit codes, kept by every command, and passed through by nox."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fuzz import exit_code
from fuzz.exit_code import (
    CLEAN,
    FAILED,
    HARNESS,
    INTERRUPTED,
    USAGE,
    CannotWrite,
    Command,
    worst,
    writing,
)
from oracles.cli import command

ROOT = Path(__file__).parents[2]
TABLE = (CLEAN, FAILED, USAGE, HARNESS, INTERRUPTED)
MAINS = ("@click.command", "@click.group")
COMMANDS = sorted(
    path
    for room in ("fuzz", "reports")
    for path in (ROOT / room).rglob("*.py")
    if any(word in path.read_text() for word in MAINS)
)


@click.command("raiser", cls=Command)
@click.argument("what")
def raiser(what: str) -> None:
    """Raise."""
    match what:
        case "mistake":
            raise KeyError("of ours")
        case "interrupt":
            raise KeyboardInterrupt
        case "disk":
            with writing("raiser out.txt", Path("out.txt"), "name another file"):
                raise OSError(28, "No space left on device")
        case "usage":
            raise click.UsageError("no such thing")
        case _:
            sys.exit(FAILED)


def test_the_table_is_what_the_documents_say() -> None:
    """One row for each; the judges' own command line means the same by them."""
    assert TABLE == (0, 1, 2, 3, 130)
    rows = re.findall(r"^\| (\d+) \| ", (ROOT / "fuzz" / "README.md").read_text(), re.M)
    assert tuple(map(int, rows)) == TABLE
    own = (command.PROVED, command.REFUTED, command.USAGE, command.OPEN, command.INTERRUPTED)
    assert own == TABLE


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ((), HARNESS),
        ((CLEAN, CLEAN), CLEAN),
        ((CLEAN, HARNESS), HARNESS),
        ((HARNESS, FAILED, CLEAN), FAILED),
        ((FAILED, INTERRUPTED), INTERRUPTED),
    ],
)
def test_a_failure_is_not_hidden_by_what_was_not_judged(codes: tuple[int, ...], code: int) -> None:
    """And nothing at all is not clean."""
    assert worst(codes) == code


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("found", FAILED, ""),
        ("usage", USAGE, "no such thing"),
        ("mistake", HARNESS, "KeyError: 'of ours'"),
        ("interrupt", INTERRUPTED, "interrupted"),
    ],
)
def test_whatever_is_raised_ends_by_the_table(what: str, code: int, says: str) -> None:
    """Python's own exit code for an exception, and click's for Ctrl-C, reads as a failure found."""
    done = CliRunner().invoke(raiser, [what])
    assert done.exit_code == code
    assert says in done.stderr


@pytest.mark.parametrize("number", [30, 20])
def test_making_room_is_no_way_out_of_a_folder_that_is_read_only(number: int) -> None:
    """Or of a folder that is a file."""
    with pytest.raises(CannotWrite) as raised, writing("call", Path("out"), "name another"):
        raise OSError(number, os.strerror(number))
    assert f"cannot be written: {os.strerror(number)} (" in str(raised.value)
    assert str(raised.value).endswith("; name another")


def test_what_cannot_be_written_is_one_sentence_with_numbers() -> None:
    """The call, what is wrong, the way out; and not the code of a failure found."""
    done = CliRunner().invoke(raiser, ["disk"])
    assert done.exit_code == HARNESS
    assert re.fullmatch(
        r"Error: raiser out.txt: cannot be written: No space left on device \([\d,]+ of [\d,]+ "
        r"bytes are free there\); make room, or name another file\n",
        done.stderr,
    )


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_every_command_keeps_to_the_table(path: Path) -> None:
    """By its class, and without numbers of its own."""
    text = path.read_text()
    for word, kind in zip(MAINS, ("Command", "Group"), strict=True):
        assert text.count(f"{word}(") == text.count(f"{word}(cls={kind}")
    assert not re.findall(r"(?:sys\.exit|SystemExit)\(.*\b\d+\b.*\)", text)


def below(asked: click.Command) -> Iterator[click.Command]:
    """Return a command and those of it."""
    yield asked
    for one in asked.commands.values() if isinstance(asked, click.Group) else ():
        yield from below(one)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_every_option_says_what_it_is_and_h_shows_it(path: Path) -> None:
    """And a typing error gets the option that was meant."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for asked in below(import_module(name).main):
        options = [one for one in asked.params if isinstance(one, click.Option)]
        assert [one.opts for one in options if not one.help] == []
        done = CliRunner().invoke(asked, ["-h"])
        assert (done.exit_code, "-h, --help" in done.stdout) == (CLEAN, True), done.output
        if long := [one.opts[0] for one in options if len(one.opts[0]) > 5]:
            wrong = CliRunner().invoke(asked, [long[0][:-1] + "_"])
            assert (wrong.exit_code, "Did you mean" in wrong.stderr) == (USAGE, True)


@pytest.mark.parametrize(
    ("session", "ends", "code"),
    [
        ("fuzz", "exit 0", CLEAN),
        ("fuzz", "exit 1", FAILED),
        ("crosscheck", "exit 2", USAGE),
        ("report", "exit 2", USAGE),
        ("semaphores", "exit 3", HARNESS),
        ("bench", "exit 3", HARNESS),
        ("repro", "exit 1", FAILED),
        ("rules", "exit 3", HARNESS),
        ("proofs", "exit 130", INTERRUPTED),
        ("fuzz", "kill -KILL $$", HARNESS),
    ],
)
def test_nox_ends_with_the_code_of_the_command(
    session: str, ends: str, code: int, tmp_path: Path
) -> None:
    """Not with 1 for all of them.  The interpreter of the command is one that ends at once."""
    pytest.importorskip("nox")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ends}\n")
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "nox", "--envdir", tmp_path, "-s", session],
        cwd=ROOT,
        env={**os.environ, "FUSER_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr


def test_the_table_loads_no_compiler() -> None:
    """The report uses it."""
    text = Path(exit_code.__file__).read_text()
    assert not re.findall(r"^(?:from|import) (?:fuser|oracles|fuzz|reports)", text, re.M)
