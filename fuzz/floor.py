"""What a campaign must have judged at least to be green; short of it, no failure means little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fuzz.campaign.record import SKIPPED, Record
from fuzz.campaign.summary import ordinary, verdicts
from fuzz.cases.params import FAMILIES

SHARE = 0.9
"""Share of the drawn cases that must be valid, and of each oracle's answers that must be a pass or
a fail.  What is drawn is valid by construction: more refusals mean that the strategy is wrong, or
the compiler that refuses.  Usual are 99.9 % and 100 %."""
SPARE = 2
"""Cases that may fall short of it in any campaign, so that one of ten does not decide."""
LEAST = 0.2
"""Share of the cases that every oracle must be asked about: the others are skipped where its kind
has had its share of the time (`fuzz.budget`).  Usual are 40 % at least."""
MET = 1000
"""Drawn cases from which on every family must be among them; the rarest is one in seventy."""


def shortfalls(records: Iterable[Record], oracles: Sequence[str]) -> Iterator[str]:
    """Say what was asked of these oracles and not judged, by all records of a run, with numbers."""
    counted = ordinary(records)
    drawn = {r.case: r.family for r in counted if r.phase == "generate"}
    cases = verdicts(counted)
    refused = sum(cases.get((case, "build")) == "invalid" for case in drawn)
    if _few(len(drawn) - refused, len(drawn)):
        yield f"{_share(len(drawn) - refused, len(drawn))} drawn cases are valid, {_ASKED}"
    for oracle in oracles:
        every = [status for (_, name), status in cases.items() if name == oracle]
        statuses = [status for status in every if status != SKIPPED]
        if len(every) > SPARE / LEAST and len(statuses) < LEAST * len(every):
            yield f"{oracle} was asked about {_share(len(statuses), len(every))} cases, {_LEAST}"
        left = sum(status in ("unknown", "unsupported") for status in statuses)
        if _few(len(statuses) - left, len(statuses)):
            said = _share(len(statuses) - left, len(statuses))
            yield f"{said} answers of {oracle} are a pass or a fail, {_ASKED}"
    judged = {(r.family, r.oracle) for r in counted if r.status in ("pass", "fail")}
    for family in FAMILIES:
        silent = [oracle for oracle in oracles if (family, oracle) not in judged]
        if silent:
            yield f"{family} was never judged by {', '.join(silent)}; each family is to be"
    met = Counter(drawn.values())
    if len(drawn) >= MET:
        for family in FAMILIES:
            if not met[family]:
                yield f"{family} is in none of {len(drawn)} drawn cases; each family is to be"


_LEAST = f"at least {100 * LEAST:g} % are to be"
_ASKED = f"at least {100 * SHARE:g} % are to be"


def _few(good: int, count: int) -> bool:
    return count - good > SPARE and good < SHARE * count


def _share(some: int, count: int) -> str:
    return f"{some} of {count} ({100 * some / count:.1f} %)"
