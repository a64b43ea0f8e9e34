"""A witness as a line of JSON, to be kept in a ledger and drawn later."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import cast

from oracles.witness import Mark, Row, Witness


def dumps(witness: Witness) -> str:
    """Return a witness as JSON."""
    return json.dumps(asdict(witness), default=_mark, ensure_ascii=False)


def loads(text: str) -> Witness:
    """Return the witness that `dumps` wrote.

    Raises
    ------
    ValueError
        If the text is no such JSON.
    """
    try:
        parts = json.loads(text)
        rows = tuple(Row(**{**row, "mark": Mark(row["mark"])}) for row in parts.pop("rows"))
        trips = tuple((str(name), int(count)) for name, count in parts.pop("trips"))
        return Witness(**parts | {"lanes": tuple(parts["lanes"]), "rows": rows, "trips": trips})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"witness_json.loads({text[:60]!r}): no witness ({error})") from error


def _mark(value: object) -> str:
    return str(cast(Mark, value).value)
