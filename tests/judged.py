"""What the judges say of a case that must be right."""

from __future__ import annotations

import hashlib

from sample import ALL

from fuzz.campaign.judge import CPU_ORACLES, judge
from fuzz.cases.case import Case, to_text

COMPILED = 3
"""Of so many cases one is compiled, too, which costs as much as all other judges."""


def complaints(case: Case) -> list[str]:
    """What any judge objects to."""
    digest = hashlib.sha256(to_text(case).encode()).digest()
    compiles = ALL or digest[0] % COMPILED == 0
    asked = [one for one in CPU_ORACLES if compiles or one != "assembler"]
    return [f"{r.oracle}: {r.reason}" for r in judge(case, asked) if r.status != "pass"]
