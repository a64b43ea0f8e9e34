"""The last lines of a campaign: one per oracle, times per family, what stayed open."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from statistics import median

from fuzz.campaign.record import ORACLES, STATUSES, WORST_FIRST, Record
from fuzz.cases.params import FAMILIES


def ordinary(records: Iterable[Record]) -> list[Record]:
    """Return the records that count in totals: no mutants, nothing from shrinking."""
    return [r for r in records if not r.mutant and r.phase == "generate"]


def verdicts(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """Return the worst status per case and oracle."""
    found: dict[tuple[str, str], str] = {}
    for record in ordinary(records):
        key = (record.case, record.oracle)
        worst = found.get(key, "pass")
        found[key] = min(worst, record.status, key=WORST_FIRST.index)
    return found


def lines(records: list[Record]) -> Iterator[str]:
    """Yield the summary of a run, without its last line."""
    cases = verdicts(records)
    built = [status for (_, oracle), status in cases.items() if oracle == "build"]
    if built:
        valid = sum(status != "invalid" for status in built)
        yield f"{len(built)} cases, {100 * valid / len(built):.1f} % valid"
    yield from _oracles(records, cases)
    yield from _families(records)
    yield from _open(records, cases)


def _oracles(records: list[Record], cases: dict[tuple[str, str], str]) -> Iterator[str]:
    for oracle in ORACLES:
        if oracle == "mutant":
            counts = Counter(r.status for r in records if r.oracle == oracle)
        else:
            counts = Counter(status for (_, name), status in cases.items() if name == oracle)
        times = [r.seconds for r in ordinary(records) if r.oracle == oracle]
        if not counts:
            continue
        words = ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s] or s in STATUSES[:4])
        speed = f"; median {1e3 * median(times):.2f} ms" if times else ""
        yield f"{oracle + ':':<14} {words}{speed}"


def _families(records: list[Record]) -> Iterator[str]:
    times: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in ordinary(records):
        times[record.family, record.oracle].append(record)
    for family in FAMILIES:
        words = []
        for oracle, name in (("prover", "proof"), ("simulator", "simulation")):
            rows = times[family, oracle]
            if rows:
                middle = 1e3 * median(r.seconds for r in rows)
                claims = sum(r.checked for r in rows)
                words.append(f"median {name} {middle:.1f} ms, {claims} claims in {len(rows)} runs")
        if words:
            yield f"  {family + ':':<24} {'; '.join(words)}"


def _open(records: list[Record], cases: dict[tuple[str, str], str]) -> Iterator[str]:
    """Count unknown and unsupported answers, and list each reason once."""
    judged = sum(oracle != "build" for _, oracle in cases)
    reasons = Counter(
        (r.status, r.oracle, r.reason.splitlines()[0][:160] if r.reason else "no reason")
        for r in ordinary(records)
        if r.status in ("unknown", "unsupported", "invalid")
    )
    left = sum(status in ("unknown", "unsupported") for status in cases.values())
    if judged:
        yield f"unknown or unsupported: {left} of {judged} answers ({100 * left / judged:.2f} %)"
    for (status, oracle, reason), count in reasons.most_common():
        yield f"  {count} x {oracle} {status}: {reason}"
    warned: dict[tuple[str, str], set[str]] = {}
    for r in ordinary(records):
        for line in r.reason.splitlines():
            if line.startswith("warning: "):
                kind = line.removeprefix("warning: ").split()[0]
                warned.setdefault((r.oracle, kind), set()).add(r.case)
    for (oracle, kind), found in sorted(warned.items()):
        yield f"  {len(found)} cases with a warning: {oracle} {kind}"
