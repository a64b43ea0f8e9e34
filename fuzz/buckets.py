"""Whether the answers of a campaign add up: each case in one bucket of each oracle, none lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from fuzz.campaign.record import STATUSES, Record
from fuzz.campaign.summary import verdicts

UNASKED = "not asked (the case was not built, or a judge broke)"


def added_up(
    records: Iterable[Record], oracles: Sequence[str], heard: Collection[str], kept: Collection[str]
) -> tuple[str, list[str]]:
    """Return the sum in words, and what is missing from it.

    Parameters
    ----------
    records : iterable of Record
        Of the run, as the ledger has them.
    oracles : sequence of str
        Who was asked.
    heard, kept : collections of str
        Cases that drivers have reported, and cases whose texts the ledger has.

    Returns
    -------
    str, list of str
        A line; a sentence for each way in which the sum is short, none if it adds up.
    """
    answers = verdicts(records)
    cases = {case for case, _ in answers}
    buckets: Counter[str] = Counter()
    silent: dict[str, list[str]] = {}
    for case in sorted(cases):
        said = {name: answers.get((case, name), "") for name in ("build", *oracles)}
        stopped = said["build"] not in ("pass", "") or "error" in said.values()
        for oracle, status in said.items():
            if status:
                buckets[status] += 1
            elif stopped:
                buckets[UNASKED] += 1
            else:
                silent.setdefault(oracle, []).append(case)
    asked = len(oracles) + 1
    counts = ", ".join(f"{buckets[name]} {name}" for name in (*STATUSES, UNASKED))
    total = f"the sum: {len(cases)} cases x {asked} oracles = {len(cases) * asked}: {counts}"
    short = [
        f"{oracle} left {len(lost)} cases without an answer: {_few(lost)}"
        for oracle, lost in silent.items()
    ]
    if lost := sorted(set(heard) - cases):
        short.append(f"{len(lost)} judged cases are not in the ledger: {_few(lost)}")
    if lost := sorted(cases - set(kept)):
        short.append(f"{len(lost)} cases are in the ledger without their texts: {_few(lost)}")
    return total, short


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
