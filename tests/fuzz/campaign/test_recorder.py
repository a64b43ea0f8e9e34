"""A clerk keeps the witness of a refutation with its record, and never loses a crash."""

from __future__ import annotations

from witnesses import RING

from fuzz.campaign.mutants import representative
from fuzz.campaign.recorder import Clerk
from fuzz.cases.case import to_text
from oracles.verdict import Finding, Status, Verdict
from oracles.witness import Witness
from oracles.witness_json import loads


def refuted() -> Clerk:
    """A clerk that has just heard a refutation."""
    case = representative("direct/direct")
    clerk = Clerk(case, to_text(case))
    verdict = Verdict("prover", Status.FAIL, 1, (Finding("WAR", "line 3", "trips=4"),))
    clerk.ask("prover", "k", lambda: verdict)
    return clerk


def test_a_witness_goes_with_the_record_of_its_refutation() -> None:
    """The report draws it beside the failure."""
    clerk = refuted()
    clerk.show("k", lambda: RING)
    (record,) = clerk.records
    assert (record.status, record.kind) == ("fail", "WAR")
    assert loads(record.witness) == RING


def test_without_a_witness_the_record_stays_as_it_is() -> None:
    """Not every judge has an execution to show."""
    clerk = refuted()
    clerk.show("k", lambda: None)
    assert [record.witness for record in clerk.records] == [""]


def test_a_search_that_breaks_is_a_record_of_its_own() -> None:
    """The refutation stands, and the harness's bug is seen."""

    def broken() -> Witness | None:
        raise ZeroDivisionError("a bug of the drawing")

    clerk = refuted()
    clerk.show("k", broken)
    assert [record.status for record in clerk.records] == ["fail", "error"]
    assert clerk.records[1].kind == "ZeroDivisionError"
