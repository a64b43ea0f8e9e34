"""What the compiler makes of a file is shown without a GPU; what is not there is guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fuser.__main__ import ASKED, FINAL, main
from fuser.pipeline import STAGES

FILE = """
from fuser.fusion.definition import FusionDefinition
from fuser.runtime.executable import Executable
from fuser.schedule.params import PointwiseParams
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=["rows", 512], dtype="bf16")
    fd.add_output(fd.ops.relu(x + 1))
ring = PointwiseParams((8, 64), 2, 4, 1, "tma", "direct", stages=3)
run = Executable(fd.fusion(), ring)
def kernel():
    from fuser.cookbook.recipes import tma_ring
    return tma_ring(stages=2)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a fusion, a schedule, and a kernel by hand."""
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def show(*words: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["show", *map(str, words)])


def heads(done: Result) -> list[str]:
    """Return the stages that were printed."""
    return [line.strip("= ") for line in done.stdout.splitlines() if line.startswith("=== ")]


def test_a_schedule_of_the_file_is_shown_down_to_ptx(file: Path) -> None:
    """Every stage, in order; the finished kernel is not shown twice."""
    done = show(file, "--stage", "all")
    assert (done.exit_code, done.stderr) == (0, "")
    assert heads(done) == ["explain", *STAGES, "ptx"]
    assert set(heads(done)) == set(ASKED) - {"kernel"}
    assert "=== overlay ===\nas before\n" in done.stdout
    assert ".target sm_90a" in done.stdout
    assert "PointwiseParams tma-pipelined/direct, tile 8x64" in done.stdout


def test_one_stage_is_shown_alone(file: Path) -> None:
    """The kernel after a pass that has changed nothing is still that kernel."""
    done = show(file, "--stage", "overlay", "--extent", "rows=24")
    assert heads(done) == ["overlay"]
    assert done.stdout.startswith("for rows=24; others with --extent")
    assert "kernel pointwise0" in done.stdout
    assert (
        show(file, "--stage", "kernel").stdout.split("===")[2]
        == (show(file, "--stage", FINAL).stdout.split("===")[2])
    )


def test_a_definition_gets_the_heuristics_schedule(file: Path) -> None:
    """Named, it stands for its fusion alone."""
    assert "PointwiseParams direct/direct" in show(f"{file}:fd", "--stage", "explain").stdout


def test_a_kernel_by_hand_is_shown(file: Path) -> None:
    """There is no fusion, and no pass."""
    done = show(f"{file}:kernel")
    assert heads(done) == ["kernel", "cuda"]


def test_a_file_is_shown_as_far_as_it_got(file: Path) -> None:
    """The README's example calls the GPU in its last line."""
    file.write_text(FILE + "1 / 0\n")
    done = show(file, "--stage", "fusion")
    assert done.exit_code == 0
    assert "mine.py: line 13: ZeroDivisionError: division by zero\nwhat follows" in done.stderr
    assert "T1: bf16[rows, 512] = add(T0, 1)" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("{}s", "there is no file .*mine.pys; did you mean mine.py?"),
        ("{}:rin", "mine.py defines no rin; did you mean ring"),
        ("{}:ring", "there is no fusion; define a FusionDefinition"),
        ("{} --stage cudda", "'cudda' is no stage; did you mean cuda?"),
        ("{} --extent row=4", "'row=4': did you mean rows?"),
        ("{} --extent rows=x", "write --extent rows=8192"),
    ],
)
def test_what_is_not_there_is_guessed(file: Path, words: str, says: str) -> None:
    """The exit code says that the request is wrong."""
    done = show(*words.format(file).split())
    assert done.exit_code == 2
    assert done.stdout == ""
    assert re.search(says, done.stderr), done.stderr


def test_what_the_compiler_refuses_is_said(file: Path) -> None:
    """In the words of the compiler."""
    file.write_text(FILE.replace("(8, 64), 2", "(64, 256), 8").replace("=3", "=8"))
    done = show(file)
    assert done.exit_code == 2
    assert re.search(r"Error: show .*mine.py: PointwiseParams.*; use ", done.stderr)
