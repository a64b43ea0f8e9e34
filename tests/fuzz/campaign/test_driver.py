"""A driver keeps what it finds, also where shrinking cannot help."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from behaviour import hang
from records import record

from fuser import pipeline
from fuser.kernel import ir as kir
from fuzz import budget
from fuzz.campaign import judge
from fuzz.campaign.child import Child
from fuzz.campaign.driver import (
    Engine,
    Job,
    Judged,
    Message,
    Plan,
    Ready,
    Round,
    Shrunk,
    Skipped,
    needed,
)
from fuzz.campaign.judge import CPU_ORACLES
from fuzz.campaign.mutants import representative
from fuzz.campaign.record import Record, failures, signature
from fuzz.campaign.recorder import BY_DEFAULT
from fuzz.cases.calls import named, others
from fuzz.cases.case import case_id, compiled, from_text, to_text
from fuzz.cases.params import FAMILIES
from fuzz.failures.judge import judge_text
from oracles.verdict import HANGING

PLAN = Plan(60.0, None, 0, ("prover",), 1, (1, 1), Path("none"), False, False, False)
JOB = Job(PLAN, 0, {}, (), False, frozenset())


def found(heard: list[Message]) -> list[str]:
    """Signatures of what a driver reported as failures worth a script."""
    return [signature(message.record) for message in heard if isinstance(message, Shrunk)]


def judged(heard: list[Message]) -> list[Record]:
    """All records that a driver sent."""
    return [r for message in heard if isinstance(message, Judged) for r in message.records]


def test_a_hang_is_reported_as_it_was_found() -> None:
    """Shrinking it would wait for the limit at each step, and asks other oracles than hung."""
    heard: list[Message] = []
    with Child(hang, wall_s=0.5, preload=()) as child:
        engine = Engine(JOB, heard.append, child.call, None)
        case = representative("direct/tma")
        engine.check(case)
        engine.check(case)
    first, shrunk = heard
    assert isinstance(first, Judged)
    assert [r.kind for r in first.records] == ["hang"]
    assert isinstance(shrunk, Shrunk)
    assert shrunk.text == first.text


def test_every_family_is_judged_before_anything_is_drawn() -> None:
    """Whatever the seed: no family is left to chance, nor to the mutants' share of the time."""
    job = replace(JOB, plan=replace(PLAN, seconds=0.0, oracles=CPU_ORACLES), bases=FAMILIES)
    heard: list[Message] = []
    Engine(job, heard.append, partial(judge.judge_text, seconds=0.0), None).run()
    assert isinstance(heard[0], Ready)
    assert isinstance(heard[-1], Round)
    rows = judged(heard)
    assert {r.phase for r in rows} == {"base"}
    assert {r.status for r in rows} == {"pass"}
    assert {(r.family, r.oracle) for r in rows} == {
        (family, oracle) for family in FAMILIES for oracle in ("build", *CPU_ORACLES)
    }


def test_a_pass_that_makes_an_invalid_kernel_is_found_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such cases once counted as invalid, like a user's params, and the campaign as green."""

    def forgetful(kernel: kir.Kernel) -> kir.Kernel:
        return replace(kernel, threads=kernel.threads + 1)

    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES, forgetful))
    heard: list[Message] = []
    engine = Engine(replace(JOB, bases=("direct/tma",)), heard.append, judge_text, None)
    engine.judge_bases()
    (shrunk,) = (message for message in heard if isinstance(message, Shrunk))
    assert signature(shrunk.record) == "build invalid kernel pointwise"
    assert shrunk.record.reason.startswith("CompileError: after forgetful: ")
    heard.clear()
    engine.check(representative("direct/direct"))
    assert not found(heard), "it is known by now"


def test_a_refused_representative_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its params are legal, so the refusal is the compiler's; no script of the case can show it."""
    case = representative("tma-pipelined/direct")
    refused = replace(case, extents={"i0": 3, "i1": 5}, offset=1)
    monkeypatch.setattr(sys.modules["fuzz.campaign.driver"], "representative", lambda _: refused)
    heard: list[Message] = []
    Engine(replace(JOB, bases=("any",)), heard.append, judge_text, None).judge_bases()
    (row,) = judged(heard)
    assert (row.oracle, row.status, row.kind) == ("build", "fail", "refused")
    assert not found(heard)


def test_a_failure_that_does_not_come_back_is_kept_as_it_was_found() -> None:
    """It once ended the driver, and was lost."""

    def judge(asked: str) -> list[Record]:
        text = asked.split("\n", 1)[1]
        built = record(case_id(text), oracle="build")
        alone = not asked.startswith("# oracles: ")
        return [built, replace(built, oracle="prover", status="pass" if alone else "fail")]

    heard: list[Message] = []
    job = replace(JOB, plan=replace(PLAN, oracles=("prover", "simulator"), most=3))
    Engine(job, heard.append, judge, None).run()
    assert found(heard) == ["prover fail direct/tma"]
    last = heard[-1]
    assert isinstance(last, Round)
    assert (last.number, last.complete, bool(last.counts)) == (0, False, True)
    assert {r.phase for r in judged(heard)} == {"generate", "shrink"}


def test_the_call_that_fails_is_made_smaller() -> None:
    """It is a case of its own, whose script needs no other call to show what is wrong."""
    case = representative("direct/tma")
    _, second, *_ = others(case, compiled(case))

    def judge(asked: str) -> list[Record]:
        text = asked.split("\n", 1)[1]
        built, own = record(case_id(text), oracle="build"), text == to_text(case)
        status = "fail" if own or from_text(text).seed == second.seed else "pass"
        subject = named(second) if own else "own launch"
        return [built, replace(built, oracle="differential", status=status, subject=subject)]

    heard: list[Message] = []
    Engine(JOB, heard.append, judge, None).check(case)
    (shrunk,) = (message for message in heard if isinstance(message, Shrunk))
    assert from_text(shrunk.text).seed == second.seed
    assert shrunk.record.subject == "own launch"


@pytest.mark.parametrize("partial_", [False, True])
def test_what_hangs_on_rounding_is_no_smaller_case(*, partial_: bool) -> None:
    """Without the fault nobody could judge it; where the failure itself is such, it is one."""
    case = representative("direct/tma")

    def judge(asked: str) -> list[Record]:
        text = asked.split("\n", 1)[1]
        said = HANGING if partial_ or text != to_text(case) else "2 elements wrong"
        built = record(case_id(text), oracle="build")
        return [built, replace(built, oracle="differential", status="fail", reason=said)]

    heard: list[Message] = []
    Engine(JOB, heard.append, judge, None).check(case)
    (shrunk,) = (message for message in heard if isinstance(message, Shrunk))
    assert (shrunk.text != to_text(case)) == partial_


def test_a_failure_is_asked_for_by_who_can_see_it() -> None:
    """What breaks a launch is not seen by who only builds; a crash may be anybody's."""
    every = ("prover", "simulator")
    assert needed(record("a", oracle="build"), every) == every
    assert needed(record("a", oracle="build", subject=""), every) == ()
    assert needed(record("a", oracle="build", subject=f"{BY_DEFAULT} at i0=520"), every) == ()
    assert needed(record("a", oracle="build", subject="", kind="crash"), every) == every
    assert needed(record("a", oracle="differential"), every) == ("differential",)


# --- what there is no time for ------------------------------------------------------------------


def passes(asked: str) -> list[Record]:
    """Every oracle that is asked, and the compiler, passes a case."""
    head, text = asked.split("\n", 1)
    names = head.removeprefix("# oracles: ").split(", ")
    return [record(case_id(text), oracle=name) for name in ("build", *names)]


def test_a_judge_that_had_its_share_is_not_asked_and_that_is_recorded() -> None:
    """Each case is still in one bucket of each oracle; given cases go to all."""
    heard: list[Message] = []
    job = replace(JOB, plan=replace(PLAN, oracles=("prover", "ptx")), bases=("direct/direct",))
    engine = Engine(job, heard.append, passes, None, {"ptx": 1.0})
    engine.judge_bases()
    assert {r.oracle: r.status for r in judged(heard)} == {
        "build": "pass",
        "prover": "pass",
        "ptx": "pass",
    }
    heard.clear()
    engine.check_fresh(representative("direct/tma"))
    rows = {r.oracle: r for r in judged(heard)}
    assert {name: row.status for name, row in rows.items()} == {
        "build": "pass",
        "prover": "pass",
        "ptx": "skipped",
    }
    assert rows["ptx"].reason.startswith("not judged: compiled code had more than")
    assert len({row.case for row in rows.values()}) == 1


def test_where_cases_are_counted_all_are_judged() -> None:
    """A campaign that is resumed judges what one does that nobody disturbed."""
    heard: list[Message] = []
    job = replace(JOB, plan=replace(PLAN, oracles=("ptx",), most=3))
    engine = Engine(job, heard.append, passes, None, {"ptx": 1.0})
    engine.check_fresh(representative("direct/tma"))
    assert {r.status for r in judged(heard)} == {"pass"}


def test_large_cases_that_had_their_share_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody judges them, and they may come again."""
    monkeypatch.setattr(budget, "LARGE", 0)
    heard: list[Message] = []
    seconds = {"build": 1.0}

    def judge(asked: str) -> list[Record]:
        seconds["build"] += 1.0
        return passes(asked)

    engine = Engine(JOB, heard.append, judge, None, seconds)
    engine.check_fresh(representative("direct/tma"))
    assert engine.large_s == 1.0
    heard.clear()
    engine.check_fresh(representative("direct/direct"))
    engine.check_fresh(representative("direct/direct"))
    why = "they had more than 20 % of the time"
    assert heard == [Skipped(1, budget.LARGE_CASES, why)] * 2


# --- what failed before --------------------------------------------------------------------------


def test_the_corpus_is_judged_first_and_counted() -> None:
    """A bug that comes back must be seen in the first second, and not be searched for again."""
    good, stale = to_text(representative("direct/direct")), "from fuzz.cases.case import Phase\n"
    job = replace(JOB, corpus={"new.py": good, "stale.py": stale, "old.py": good})
    failed = record(case_id(good), status="fail", kind="WAR")
    heard: list[Message] = []
    engine = Engine(job, heard.append, lambda _: [failed], None)
    engine.replay(float("inf"))
    assert [r.phase for r in judged(heard)] == ["corpus", "shrink", "corpus"], "one is shown"
    (skipped,) = (message for message in heard if isinstance(message, Skipped))
    assert skipped.why.startswith("stale.py is no case any more: ImportError")
    assert set(found(heard)) == {signature(failed)}
    engine.check(from_text(good))  # raises nothing: it is known
    heard.clear()
    engine.replay(0.0)
    assert heard == [Skipped(3, "of the corpus", "no time left")]


# --- which failure names a case ------------------------------------------------------------------


def test_the_failure_nearest_to_its_cause_names_a_case() -> None:
    """Judges that disagree come last, and values after the races that they follow from."""
    oracles = ("agreement", "ptx", "assembler", "differential", "simulator", "prover", "build")
    rows = [record("a", oracle=name, status="fail", kind="x", subject="") for name in oracles]
    assert [r.oracle for r in failures(rows)] == [
        "build",
        "prover",
        "simulator",
        "differential",
        "assembler",
        "ptx",
        "agreement",
    ]


@pytest.mark.parametrize(
    ("simulated", "named"),
    [
        ({"k trips=3": "fail", "k trips=4": "pass"}, ["prover", "simulator"]),
        ({"k trips=3": "pass", "k trips=4": "pass"}, ["prover", "agreement"]),
        ({"k trips=4": "pass", "other trips=4": "fail"}, ["prover", "simulator", "agreement"]),
    ],
)
def test_judges_that_both_refute_a_kernel_agree(
    simulated: dict[str, str], named: list[str]
) -> None:
    """A kernel without its waits is the compiler's failure, whatever witness is not replayed."""
    rows = [record("a", status="fail", kind="WAR")]
    rows += [
        record("a", oracle="simulator", subject=subject, status=status, kind="race")
        for subject, status in simulated.items()
    ]
    rows.append(record("a", oracle="agreement", status="fail", kind="not replayed"))
    assert [r.oracle for r in failures(rows)] == named
