"""What failed once is kept as text, beside the ledger."""

import os
from pathlib import Path

from records import record

from fuzz.campaign import corpus
from fuzz.campaign.mutants import representative
from fuzz.cases.case import case_id, from_text, to_text


def test_a_text_of_the_corpus_is_a_case(tmp_path: Path) -> None:
    """The newest first, for campaigns that have no time for all; a case is kept once."""
    ledger = tmp_path / "some.sqlite"
    assert corpus.texts(ledger) == {}
    for age, family in enumerate(("direct/direct", "direct/tma", "direct/direct")):
        text = to_text(representative(family))
        corpus.add(ledger, record(case_id(text), status="fail", kind="WAR"), text)
        path = tmp_path / "corpus" / f"{case_id(text)}.py"
        os.utime(path, ns=(age, age))
    found = list(corpus.texts(ledger).values())
    assert [from_text(text).params.family for text in found] == ["direct/direct", "direct/tma"]
    assert found[0].startswith("# prover WAR direct/tma\n")
