"""What convinces a reader that a kernel is wrong: one execution, lane by lane, and what is missing.

Pure data, made by a judge, kept in a ledger as a line of JSON, and drawn by others; like
`verdict`, it knows nothing of kernels.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import cast


class Mark(Enum):
    """Which of the two conflicting accesses a row is."""

    NONE = ""
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class Row:
    """One event of the execution.

    Parameters
    ----------
    lane : str
        Who: one of `Witness.lanes`.
    line : int
        Line of the statement in the kernel's text, from 1; 0 if it belongs to none.
    text : str
        What happens, such as ``"full[1] wait parity 0"`` or ``"S[1] tma_load finishes"``.
    note : str
        State after it, such as ``"phase 2, 1 of 4 arrivals and 1024 bytes pending"``.
    mark : Mark
        Whether it is one of the two accesses in conflict.
    """

    lane: str
    line: int
    text: str
    note: str = ""
    mark: Mark = Mark.NONE


@dataclass(frozen=True, slots=True)
class Witness:
    """An execution that goes wrong, in the order in which it happens.

    Parameters
    ----------
    kernel : str
        Name of the kernel.
    kind : str
        Kind of the finding.
    trips : mapping of name to count, as pairs
        The trip counts (or launch) for which it happens; the smallest that show it.
    says : str
        The missing order: "nothing orders the completion of wgmma k=0 before the TMA issue k=4".
    nearest : str
        The sync that could carry it, with its line; empty if there is none.
    lanes : tuple of str
        Agents: roles, threads, engines, other CTAs; only those that appear.
    rows : tuple of Row
        Events, earliest first.
    """

    kernel: str
    kind: str
    trips: tuple[tuple[str, int], ...]
    says: str
    nearest: str
    lanes: tuple[str, ...]
    rows: tuple[Row, ...]


def dumps(witness: Witness) -> str:
    """Return a witness as JSON."""
    return json.dumps(asdict(witness), default=_mark, ensure_ascii=False)


def loads(text: str) -> Witness:
    """Return the witness that `dumps` wrote; ValueError if the text is no such JSON."""
    try:
        parts = json.loads(text)
        rows = tuple(Row(**{**row, "mark": Mark(row["mark"])}) for row in parts.pop("rows"))
        trips = tuple((str(name), int(count)) for name, count in parts.pop("trips"))
        return Witness(**parts | {"lanes": tuple(parts["lanes"]), "rows": rows, "trips": trips})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"witness.loads({text[:60]!r}): no witness ({error})") from error


def _mark(value: object) -> str:
    return str(cast(Mark, value).value)
