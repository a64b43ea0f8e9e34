"""A witness survives the ledger."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import often
from witnesses import RING

from oracles.witness import Mark, Row, Witness, dumps, loads

TEXT = st.text(max_size=12)
ROWS = st.builds(Row, TEXT, st.integers(0, 99), TEXT, TEXT, st.sampled_from(Mark))
WITNESSES = st.builds(
    Witness,
    TEXT,
    TEXT,
    st.lists(st.tuples(TEXT, st.integers(0, 9))).map(tuple),
    TEXT,
    TEXT,
    st.lists(TEXT, max_size=3).map(tuple),
    st.lists(ROWS, max_size=4).map(tuple),
)


@settings(max_examples=often(100, 30))
@given(WITNESSES)
def test_what_is_written_is_read_again(witness: Witness) -> None:
    """Marks and tuples included, so that it can be compared."""
    assert loads(dumps(witness)) == witness


def test_it_is_one_line() -> None:
    """A ledger's column, not a file."""
    assert "\n" not in dumps(RING)


@pytest.mark.parametrize("text", ["", "3", "{}", json.dumps({"rows": [], "trips": []}), "[]"])
def test_what_is_no_witness_is_refused(text: str) -> None:
    """A broken ledger must not draw an empty picture."""
    with pytest.raises(ValueError, match="no witness"):
        loads(text)
