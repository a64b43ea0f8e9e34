"""A recorder keeps the witness of a refutation with its record, and never loses a crash."""

from __future__ import annotations

import os
import signal

from witnesses import RING

from fuser.errors import CompileError
from fuzz.campaign.child import Child, Lost
from fuzz.campaign.mutants import representative
from fuzz.campaign.recorder import Recorder
from fuzz.cases.case import to_text
from oracles.prover.prove import ORDER
from oracles.verdict import Confirmation, Finding, Status, Verdict
from oracles.witness import Witness, loads


def refuted() -> Recorder:
    """A recorder that has just heard a refutation."""
    case = representative("direct/direct")
    recorder = Recorder(case, to_text(case))
    verdict = Verdict("prover", Status.FAIL, 1, (Finding("WAR", "line 3", "late", trips=4),))
    recorder.ask("prover", "k", lambda: verdict)
    return recorder


def segfault(_: str) -> str:
    """Ask a simulator that dies, between two others."""
    recorder = refuted()

    def judge() -> Verdict:
        os.kill(os.getpid(), signal.SIGSEGV)
        return Verdict("simulator", Status.PASS, 1)

    recorder.ask("simulator", "k trips=3", judge)
    return "alive"


def test_a_parent_knows_which_judge_it_lost() -> None:
    """Whatever happens, the recorder has said before who is asked, and about what."""
    with Child(segfault, preload=()) as child:
        answer = child.call("")
    assert isinstance(answer, Lost)
    assert (answer.kind, answer.judge) == ("crash", "simulator")
    assert answer.reason == (
        "killed by signal 11 (SIGSEGV) while the simulator was at work on k trips=3"
    )


def test_a_witness_goes_with_the_record_of_its_refutation() -> None:
    """The report draws it beside the failure."""
    recorder = refuted()
    recorder.show("k", lambda: RING)
    (record,) = recorder.records
    assert (record.status, record.kind) == ("fail", "WAR")
    assert loads(record.witness) == RING


def test_what_z3_has_confirmed_goes_with_the_record() -> None:
    """The share of proofs by both engines is counted from it."""
    recorder = refuted()
    confirmed = (Confirmation("mma-result-coverage", 2), Confirmation(ORDER, 9))
    recorder.ask("prover", "k", lambda: Verdict("prover", Status.PASS, 1, confirmed=confirmed))
    assert recorder.records[-1].confirmed == "mma-result-coverage order"
    assert [record.in_full for record in recorder.records] == [False, True]


def test_what_the_compiler_makes_wrong_is_a_failure_of_its_own() -> None:
    """Not a user's params, and not the harness's fault either."""

    def refused() -> Verdict:
        raise CompileError("NVRTC refused the kernel", "refused by NVRTC", log="line 3: no")

    def broken() -> Verdict:
        raise KeyError("fulll")

    recorder = refuted()
    del recorder.records[:]
    recorder.ask("assembler", "k", refused)
    recorder.ask("build", "", broken)
    recorder.ask("prover", "k", broken)
    assert [(r.oracle, r.status, r.kind) for r in recorder.records] == [
        ("assembler", "fail", "refused by NVRTC"),
        ("build", "fail", "KeyError"),
        ("prover", "error", "KeyError"),
    ]
    assert "line 3: no" in recorder.records[0].reason


def test_without_a_witness_the_record_stays_as_it_is() -> None:
    """Not every judge has an execution to show."""
    recorder = refuted()
    recorder.show("k", lambda: None)
    assert [record.witness for record in recorder.records] == [""]


def test_a_search_that_breaks_is_a_record_of_its_own() -> None:
    """The refutation stands, and the harness's bug is seen."""

    def broken() -> Witness | None:
        raise ZeroDivisionError("a bug of the drawing")

    recorder = refuted()
    recorder.show("k", broken)
    assert [record.status for record in recorder.records] == ["fail", "error"]
    assert recorder.records[1].kind == "ZeroDivisionError"
