"""What the judges say of a case that must be right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from math import inf

from sample import ALL

from fuzz.campaign.judge import CPU_ORACLES, judge
from fuzz.campaign.record import Record
from fuzz.cases.case import Case, to_text
from oracles.ptx.judge import NOTHING

SAMPLED = 3
"""Of so many cases one is compiled and executed, and one has other schedules, which are dear."""


def complaints(case: Case) -> list[str]:
    """What any judge objects to."""
    digest = hashlib.sha256(to_text(case).encode()).digest()
    dear = {"assembler": 0, "ptx": 0, "schedules": 1}
    asked = [
        o for o in CPU_ORACLES if ALL or dear.get(o, digest[0] % SAMPLED) == digest[0] % SAMPLED
    ]
    said = records(case, asked)
    # Of empty tensors there is nothing to execute, and the other judges have said so much.
    return [f"{r.oracle}: {r.reason}" for r in said if r.status != "pass" and r.reason != NOTHING]


def records(case: Case, oracles: Iterable[str] = CPU_ORACLES) -> list[Record]:
    """What the judges say of a case; of other calls and schedules one, on any machine."""
    return judge(case, oracles, seconds=inf if ALL else 0.0)
