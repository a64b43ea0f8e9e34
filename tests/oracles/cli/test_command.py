"""The command line, run as a person runs it: exit codes, output and mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fuser.cookbook.recipes import tma_ring
from oracles.cli.command import OPEN, PROVED, REFUTED, USAGE, answered, exit_code, main
from oracles.cli.target import Target
from oracles.prover import clock
from oracles.prover.prove import REMEMBERED
from oracles.verdict import Status

FILE = """
import sys
sys.path.append({tests!r})
import kernels as ks
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
good = ks.specialized(3)
spare = ks.staged(2)
join = kir.BlockSync(0, spare.threads)
slow = spare.rewrite(lambda stmt: [join, stmt] if isinstance(stmt, kir.ForLoop) else None)
bad = ks.specialized(3, warp_sync=False)
def pair() -> LaunchSequence: return LaunchSequence("pair", (ks.direct(), ks.staged(2)))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a right and a broken kernel."""
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(tests=str(Path(__file__).parents[2])))
    return path


def run(*words: str | Path) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_proved_kernel_leaves_with_0_and_shows_what_was_checked(file: Path) -> None:
    """Status, claims, time; and what it does not need."""
    done = run("prove", f"{file}:good")
    assert done.exit_code == PROVED, done.output
    assert done.output.startswith("pass        good  ")
    assert "claims checked in" in done.output
    assert "advice" not in done.output
    assert "barrier outside the loops" in run("prove", f"{file}:slow").output


def test_a_proof_beyond_the_limit_leaves_with_3(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither proved nor refuted; the reason says what gives it more time."""
    monkeypatch.setattr(clock, "OFTEN_S", 0.0)
    REMEMBERED.forget()
    done = run("prove", f"{file}:good", "--limit", "0.0001")
    assert done.exit_code == OPEN, done.output
    assert "gave up after 0.0001 CPU s, at " in done.output
    assert "--limit gives it more" in done.output


def test_a_refuted_kernel_leaves_with_1_and_shows_both_lines(file: Path) -> None:
    """What a reader needs to fix it."""
    done = run("prove", f"{file}:bad")
    assert done.exit_code == REFUTED
    assert "error: WAR" in done.output
    assert "   22  x = load(S0[(k % 3)], width=4)" in done.output
    assert "   18  S0[(k % 3)] <~ tma_load(" in done.output
    assert "trips=4" in done.output


def test_a_refutation_says_whether_the_simulator_agrees_and_how_to_see_it(file: Path) -> None:
    """The second opinion, with the command that gives it again."""
    done = run("prove", f"{file}:bad")
    assert ", in this order: the same, WAR at line " in done.output
    words = next(line for line in done.output.splitlines() if line.startswith("  again: "))
    assert run(*words.split(" -m oracles ")[1].split()).exit_code == REFUTED
    assert "replayed" not in run("prove", f"{file}:bad", "--no-replay").output


def test_lines_beside_notes_keep_no_long_coordinates(file: Path) -> None:
    """What is cut at the width may be what matters; coordinates never are."""
    done = run("explain", f"{file}:good")
    assert "tma_load(T0[…])" in done.output
    assert "tma_load(T0[…])" in run("prove", f"{file}:bad").output


def test_of_several_kernels_the_worst_counts(file: Path) -> None:
    """One refuted kernel among proved ones is not a success."""
    done = run("prove", file, "--no-advice")
    assert done.exit_code == REFUTED
    assert [line.split()[:2] for line in done.output.splitlines() if "claims" in line] == [
        ["pass", "good"],
        ["pass", "spare"],
        ["pass", "slow"],
        ["fail", "bad"],
        ["pass", "pair:"],
        ["pass", "pair:"],
    ]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([Status.PASS], PROVED),
        ([Status.PASS, Status.UNKNOWN], OPEN),
        ([Status.UNSUPPORTED], OPEN),
        ([Status.UNSUPPORTED, Status.FAIL, Status.PASS], REFUTED),
        ([], OPEN),
    ],
)
def test_exit_codes_are_ordered(said: list[Status], code: int) -> None:
    """Refuted beats open beats proved; nothing judged is open."""
    assert exit_code(said) == code


def test_a_judge_that_breaks_is_neither_a_proof_nor_a_refutation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An exception would leave with 1, and a script would take the kernel for broken."""

    def broken(target: Target) -> list[Status]:
        raise ZeroDivisionError("a bug of the judge")

    assert answered(Target("ring", tma_ring()), broken) == [Status.UNKNOWN]
    said = capsys.readouterr()
    assert said.out == ""
    assert "ring: the judge itself broke" in said.err
    assert "ZeroDivisionError: a bug of the judge" in said.err


def test_strict_policy_reaches_the_judge(file: Path) -> None:
    """A missing fence between reads and a refill is an error there."""
    assert run("prove", f"{file}:good", "--policy", "strict").exit_code == REFUTED


def test_simulation_finds_the_trip_count_alone_and_says_how_to_repeat_it(file: Path) -> None:
    """Nobody should have to guess parameters."""
    done = run("simulate", f"{file}:bad")
    assert done.exit_code == REFUTED
    again = next(line for line in done.output.splitlines() if line.startswith("  again: "))
    words = again.split(" -m oracles ")[1].split()
    repeated = run(*words)
    assert repeated.exit_code == REFUTED
    assert "small launches" not in repeated.output


def test_a_failing_schedule_is_drawn_and_told_once(file: Path) -> None:
    """The diagram replaces the judge's own list of steps."""
    done = run("simulate", f"{file}:bad")
    assert done.output.count("◆") == 2
    assert "missing  " in done.output
    assert "last steps" not in done.output


def test_the_explorer_is_asked_for_every_interleaving(file: Path) -> None:
    """The third judge, on the same launches."""
    assert run("explore", f"{file}:spare").exit_code == PROVED
    done = run("explore", f"{file}:bad")
    assert done.exit_code == REFUTED
    assert "error: WAR" in done.output
    assert run("explore", f"{file}:good", "--states", "3").exit_code == OPEN


def test_a_simulated_pass_says_what_was_run(file: Path) -> None:
    """It judges some launches, not of all."""
    done = run("simulate", f"{file}:good", "--schedules", "6")
    assert done.exit_code == PROVED
    assert "small launches were run, and a pass is about those alone" in done.output
    assert "6 schedules" in done.output
    for count in range(5):
        assert f"(k runs {count}x)" in done.output


def test_a_kernel_without_small_launches_is_unsupported(tmp_path: Path) -> None:
    """Nothing was run: neither a pass nor a mistake of whoever asked."""
    file = tmp_path / "large.py"
    file.write_text(
        "from dataclasses import replace\n"
        "from fuser.cookbook.recipes import tma_ring\n"
        "from fuser.expr import Var, eq\n"
        'large = replace(tma_ring(3), requires=(eq(Var("R"), 10**6),))\n'
    )
    for how in ("simulate", "explore"):
        done = run(how, f"{file}:large")
        assert done.exit_code == OPEN
        assert "unsupported " in done.output
        assert "give one by --grid G --set R=N" in done.output


def test_explanations_stand_beside_the_syncs(file: Path) -> None:
    """One column of text, one of reasons."""
    done = run("explain", f"{file}:good")
    assert done.exit_code == PROVED
    rows = [line for line in done.output.splitlines() if "warp_sync()" in line]
    assert len(rows) == 1
    assert "without it: WAR line 22" in rows[0]
    assert "needless for this kernel" in run("explain", f"{file}:slow").output


def test_a_broken_kernel_is_shown_without_explanations(file: Path) -> None:
    """Its findings come instead."""
    done = run("explain", f"{file}:bad")
    assert done.exit_code == REFUTED
    assert "see `prove`" in done.output
    assert "without it" not in done.output


@pytest.mark.parametrize("how", ["prove", "simulate", "explore", "explain"])
def test_programs_are_judged_as_well(file: Path, how: str) -> None:
    """Several launches in a row are what the compiler makes of one fusion."""
    done = run(how, f"{file}:pair")
    assert done.exit_code == PROVED, done.output
    assert "pass  " in done.output


MISTAKES = [
    (("prove", "nowhere.py"), "there is no file nowhere.py"),
    (("prove", "fuser/cookbook/recipes.py:wgma_ring"), "did you mean wgmma_ring?"),
    (("prove", "tests/witnesses.py"), "the file offers no kernel"),
    (("simulate", "fuser/cookbook/recipes.py:tma_ring", "--set", "Z=3"), "has no parameter Z"),
    (("simulate", "fuser/cookbook/recipes.py:tma_ring", "--set", "R"), "not NAME=N"),
    (("explore", "fuser/cookbook/recipes.py:tma_ring", "--set", "R=1"), "no value for C"),
    (("prove",), "Missing argument 'FILE.py[:NAME]'"),
    (("prove", "fuser/cookbook/recipes.py", "--policy", "lax"), "'lax' is not one of"),
    (
        ("simulate", "fuser/cookbook/recipes.py:tma_ring", "--schedules", "0"),
        "0 is not in the range",
    ),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_wrong_request_leaves_with_2_and_a_message(words: tuple[str, ...], says: str) -> None:
    """On the error stream, so that a pipe gets answers alone."""
    done = run(*words)
    assert done.exit_code == USAGE
    assert says in done.stderr
    assert done.stdout == ""


def test_it_is_run_as_a_module() -> None:
    """`python -m oracles` is what the documents say."""
    words = [sys.executable, "-m", "oracles", "prove", "fuser/cookbook/recipes.py:nope"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == USAGE
    assert done.stderr.startswith(
        "fuser/cookbook/recipes.py:nope: there is no nope in fuser/cookbook/recipes.py"
    )
