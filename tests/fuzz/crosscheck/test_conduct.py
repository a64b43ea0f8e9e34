"""The crosscheck as a whole: a small run, its files, its exit code."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fuzz.campaign.child import at_work
from fuzz.crosscheck.conduct import Plan, chosen, conduct, exit_code, holds, script, write
from fuzz.crosscheck.judge import Answer, Bucket, Outcome, lost
from fuzz.crosscheck.report import lines
from fuzz.exit_code import CannotWrite
from fuzz.kernels.matmul import COMPILED
from fuzz.kernels.subjects import find

ROOT = Path(__file__).parents[3]
FAIL = Answer("fail", ("RAW",), "error: RAW")


def outcome(bucket: Bucket) -> Outcome:
    """An outcome in a bucket."""
    return Outcome("template 0 3", "persistent", (), (), bucket, FAIL, FAIL)


def test_a_small_run_judges_every_kernel_once(tmp_path: Path) -> None:
    """Each is in one bucket, and in the file; no process of a judge is lost."""
    names = [f"template 0 {i}" for i in range(22)]
    seen = conduct(Plan(names, 5_000, 2, False, tmp_path), Console(quiet=True))
    assert [o.subject for o in seen] == names
    written = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {o["subject"] for o in written} == set(names)
    assert not [o for o in seen if o.bucket == Bucket.BROKEN]
    assert f"of {len(names)}; explorer" in "\n".join(lines(seen))


@pytest.mark.parametrize(
    ("buckets", "code"),
    [
        ([Bucket.SAFE] * 100, 0),
        ([Bucket.SAFE] * 99 + [Bucket.PROVER_OPEN], 0),
        ([Bucket.SAFE] * 98 + [Bucket.PROVER_OPEN, Bucket.EXPLORER_OPEN], 3),
        ([Bucket.UNSAFE] * 99 + [Bucket.FALSE_PROOF], 1),
        ([Bucket.UNSAFE] * 99 + [Bucket.FALSE_ALARM], 1),
        ([Bucket.UNSAFE] * 99 + [Bucket.BROKEN], 3),
        ([Bucket.BROKEN] * 99 + [Bucket.BLIND], 1),
        ([], 3),
    ],
)
def test_the_exit_code_forgives_no_disagreement(buckets: list[Bucket], code: int) -> None:
    """One in a hundred may go without an answer; none may contradict, whatever else broke."""
    assert exit_code([outcome(bucket) for bucket in buckets]) == code


def test_a_run_over_matmuls_holds_where_each_kernel_is_right_and_its_mutants_settled() -> None:
    """A kernel that no judge passes has no mutants worth a score."""
    mutants = [
        Outcome(f"matmul {name} 1", name, ("drop: line 3",), (), Bucket.UNSAFE, FAIL, FAIL, FAIL)
        for name in COMPILED
    ]
    right = Outcome("matmul gated_pipelined 0", "gated_pipelined", (), (), Bucket.SAFE, FAIL, FAIL)
    assert holds("matmul", [*mutants, right])
    assert not holds("matmul", mutants[1:])
    assert not holds("matmul", [*mutants, replace(right, bucket=Bucket.PROVER_OPEN)])
    assert holds("templates", [])
    assert not holds("mutants", [])


def test_a_disagreement_becomes_a_script_that_runs(tmp_path: Path) -> None:
    """It prints the kernel and both verdicts again."""
    path = write(outcome(Bucket.FALSE_PROOF), tmp_path)
    assert path.name == "false_proof_template_0_3.py"
    done = subprocess.run(
        [sys.executable, path], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "kernel persistent" in done.stdout, done.stderr
    assert "prover: " in done.stdout
    assert "explorer: " in done.stdout


def test_a_script_shows_what_was_said() -> None:
    """A reader sees the disagreement without running anything."""
    words = script(outcome(Bucket.FALSE_ALARM))
    assert words.startswith('"""FALSE ALARM: template 0 3')
    assert "# prover: fail: error: RAW" in words
    compile(words, "script", "exec")


def stumble(asked: str) -> Outcome:
    """Crash on kernel 1; let the prover answer on kernel 2 and the explorer hang; 3: the prover."""
    subject, _, _, prover_only = json.loads(asked)
    if subject.endswith(" 1"):
        os._exit(9)
    if subject.endswith(" 2") and not prover_only:
        at_work("explorer", "grid 1, {}")
        while True:
            pass
    if subject.endswith(" 3"):
        assert not prover_only, "it is known that the prover does not come back"
        at_work("prover", "ring")
        os.kill(os.getpid(), signal.SIGSEGV)
    return Outcome(subject, "ring", (), (), Bucket.SAFE, Answer("pass"), Answer("pass"))


def test_crashes_and_hangs_are_outcomes(tmp_path: Path) -> None:
    """A run goes on past a judge that dies, and says which one it was."""
    names = [f"template 0 {i}" for i in range(6)]
    plan = Plan(names, 1000, 2, False, tmp_path, limit_s=1.0)
    seen = conduct(plan, Console(quiet=True), stumble)
    assert [o.bucket for o in seen].count(Bucket.SAFE) == 3
    crash, hang, said = seen[1:4]
    assert (crash.prover.status, crash.explorer.status) == ("error", "unknown")
    assert crash.prover.reason.startswith("crash: ")
    assert (hang.prover.status, hang.explorer.status) == ("pass", "error")
    assert hang.explorer.reason.startswith("hang: no answer within 1 s of CPU time (")
    assert hang.explorer.reason.endswith("while the explorer was at work on grid 1, {}")
    assert said.prover.reason == (
        "crash: killed by signal 11 (SIGSEGV) while the prover was at work on ring"
    )
    assert exit_code(seen) == 3


def test_results_that_cannot_be_written_end_a_run(tmp_path: Path) -> None:
    """At once, with a sentence; also where the disk is full in the middle."""
    (tmp_path / "file").write_text("")
    names = [f"template 0 {i}" for i in range(100)]
    with pytest.raises(CannotWrite, match="Not a directory: .*; name another place with --folder"):
        conduct(Plan(names, 1, 1, False, tmp_path / "file" / "x"), Console(quiet=True), stumble)
    (tmp_path / "broken_template_0_1.py").mkdir()
    with pytest.raises(CannotWrite, match="Is a directory: "):
        conduct(Plan(names, 1, 1, False, tmp_path), Console(quiet=True), stumble)
    assert not multiprocessing.active_children()
    assert 0 < len((tmp_path / "results.jsonl").read_text().splitlines()) < len(names)


def test_a_lost_process_says_which_judge_it_was() -> None:
    """A hang of the explorer is not held against the prover."""
    one = lost("template 0 1", find("template 0 1"), Answer("pass"), "hang: no answer")
    assert (one.prover.status, one.explorer.reason) == ("pass", "hang: no answer")
    other = lost("template 0 1", find("template 0 1"), None, "crash: exit code 9")
    assert (other.prover.status, other.bucket) == ("error", Bucket.BROKEN)


def test_a_sample_of_mutants_is_drawn_by_the_seed() -> None:
    """The same seed judges the same mutants, in the order of the list."""
    names = [str(i) for i in range(50)]
    assert chosen(names, 10, 1) == chosen(names, 10, 1) != chosen(names, 10, 2)
    assert chosen(names, 10, 1) == sorted(chosen(names, 10, 1), key=int)
    assert chosen(names, None, 1) == names
