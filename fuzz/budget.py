"""What share of the CPU time each kind of judge has: none starves the others.

A drawn case goes to every kind that is within its share.  To one that is beyond it only cases go
that have what it has not met, an operation on a type or a mechanism; where it has taken `SPARE`
times its share, none.  What is left out is recorded as skipped, which is never a pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """Oracles that have one share of the time, and the parts of it that count as theirs."""

    oracles: tuple[str, ...]
    parts: tuple[str, ...]
    share: float


KINDS = {
    "proofs": Kind(("prover",), ("prover",), 0.22),
    "simulation": Kind(
        ("simulator", "differential"),
        (
            "simulator, made-up launches",
            "simulator, launches with values",
            "differential",
            "inputs",
            "reference",
        ),
        0.40,
    ),
    "other schedules": Kind(("schedules",), ("schedules",), 0.08),
    "compiled code": Kind(("assembler", "ptx"), ("assembler", "ptx"), 0.30),
}
"""All kinds.  Who executes PTX needs what the assembler is given, so both have one share.  What is
left of the time, building and drawing, belongs to all."""

SPARE = 1.25
"""Times its share that a kind may take for what it has not met: in short campaigns most cases have
something of this."""
BOTH = "agreement"
"""The oracle that compares two, which both have to be asked."""
COMPARED = ("prover", "simulator")

PROOF_SHARE = 1 / 20
"""Of the seconds of a campaign, the CPU seconds that one proof may take."""
PROOF_S = 3.0, 60.0
"""What these are at least and at most.  99 of 100 proofs take less than a second (measured)."""


def proof_s(seconds: float) -> float:
    """Return the CPU seconds of one proof in a campaign, beyond which it is unknown."""
    least, most = PROOF_S
    return min(max(PROOF_SHARE * seconds, least), most)


def taken(spent: Mapping[str, float]) -> dict[str, float]:
    """Return which part of the CPU seconds each kind has taken."""
    total = max(sum(spent.values()), 1e-9)
    return {
        name: sum(spent.get(part, 0.0) for part in kind.parts) / total
        for name, kind in KINDS.items()
    }


class Budget:
    """Decides which oracles a case goes to, by the CPU seconds that were `spent` until then."""

    def __init__(self, spent: Mapping[str, float]) -> None:
        self._spent = spent
        self._met: dict[str, set[Hashable]] = {name: set() for name in KINDS}

    def skipped(self, features: Iterable[Hashable]) -> dict[str, str]:
        """Return the oracles that a case with these features does not go to, and why."""
        own, out = frozenset(features), dict[str, str]()
        for name, share in taken(self._spent).items():
            kind, met = KINDS[name], self._met[name]
            if share > kind.share * (1.0 if own <= met else SPARE):
                why = f"not judged: {name} had more than {100 * kind.share:.0f} % of the time"
                out |= dict.fromkeys(kind.oracles, why)
            else:
                met |= own
        for name in COMPARED:
            if name in out:
                out[BOTH] = out[name]
        return out
