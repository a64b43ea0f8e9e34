"""What share of the CPU time each kind of judge has, and large cases: none starves the others.

A drawn case goes to every kind that is within its share.  To one that is beyond it only cases go
that have what it has not met, an operation on a type or a mechanism; where it has taken `SPARE`
times its share, none.  What is left out is recorded as skipped, which is never a pass; large cases
that are left out are counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """Oracles that have one share of the time, and the parts of it that count as theirs."""

    oracles: tuple[str, ...]
    parts: tuple[str, ...]
    share: float


KINDS = {
    "proofs": Kind(("prover",), ("prover",), 0.25),
    "simulation": Kind(
        ("simulator", "differential"),
        (
            "simulator, made-up launches",
            "simulator, launches with values",
            "differential",
            "inputs",
            "reference",
        ),
        0.45,
    ),
    "other schedules": Kind(("schedules",), ("schedules",), 0.06),
    "compiled code": Kind(("assembler", "ptx"), ("assembler", "ptx"), 0.24),
}
"""All kinds.  Who executes PTX needs what the assembler is given, so both have one share.  What is
left of the time, building and drawing, belongs to all."""

SPARE = 1.25
"""Times its share that a kind may take for what it has not met: in short campaigns most cases have
something of this."""
BOTH = "agreement"
"""The oracle that compares two, which both have to be asked."""
COMPARED = ("prover", "simulator")

LARGE = 7_000
"""Characters of the CUDA text of one kernel from which a case is large: one in four is, and they
take seven tenths of the time (measured; no other number says so well how long a case takes)."""
LARGE_SHARE = 0.2
"""Share of the CPU time that is spent on them."""
LARGE_CASES = "large cases"

PROOF_SHARE = 1 / 30
"""Of the seconds of a campaign, the CPU seconds that one proof may take."""
PROOF_S = 1.5, 60.0
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
    """Decides which oracles a case goes to, by the CPU seconds that were `spent` until then.

    `large_s` are those that were spent on large cases.
    """

    def __init__(self, spent: Mapping[str, float]) -> None:
        self._spent = spent
        self._met: dict[str, set[Hashable]] = {name: set() for name in (*KINDS, LARGE_CASES)}
        self.large_s = 0.0

    def skipped(self, features: Iterable[Hashable]) -> dict[str, str]:
        """Return the oracles that a case with these features does not go to, and why."""
        own, out = frozenset(features), dict[str, str]()
        for name, share in taken(self._spent).items():
            kind = KINDS[name]
            if self._goes(name, share, kind.share, own):
                continue
            why = f"not judged: {name} had more than {100 * kind.share:.0f} % of the time"
            out |= dict.fromkeys(kind.oracles, why)
        for name in COMPARED:
            if name in out:
                out[BOTH] = out[name]
        return out

    def leaves(self, size: int, features: Iterable[Hashable]) -> bool:
        """Tell whether a case is left out: kernels of its `size` have had their share."""
        share = self.large_s / max(self._total(), 1e-9)
        return size > LARGE and not self._goes(LARGE_CASES, share, LARGE_SHARE, frozenset(features))

    @contextmanager
    def judging(self, size: int) -> Iterator[None]:
        """Count what is spent inside on a case of this size."""
        before = self._total()
        yield
        if size > LARGE:
            self.large_s += self._total() - before

    def _goes(self, name: str, share: float, most: float, own: frozenset[Hashable]) -> bool:
        met = self._met[name]
        if share > most * (1.0 if own <= met else SPARE):
            return False
        met |= own
        return True

    def _total(self) -> float:
        return sum(self._spent.values())
