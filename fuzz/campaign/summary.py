"""The last lines of a campaign: one per oracle, times per family, what stayed open."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from fuzz.budget import KINDS, LARGE_CASES, LARGE_SHARE, taken
from fuzz.campaign.record import (
    ENOUGH,
    ORACLES,
    SKIPPED,
    STATUSES,
    TITLES,
    WORST_FIRST,
    Cell,
    Record,
    failures,
    first_line,
    gist,
    signature,
)
from fuzz.cases.params import FAMILIES
from fuzz.failures import known

NAMED = 5
"""Cells without a case that are named."""
ANSWERED = ("pass", "fail")
"""Statuses that are an answer."""


def ordinary(records: Iterable[Record]) -> list[Record]:
    """Return the records that count in totals: no mutants, nothing from shrinking."""
    return [r for r in records if not r.mutant and r.phase != "shrink"]


def asked(records: Iterable[Record]) -> list[Record]:
    """Return of these what somebody was asked."""
    return [r for r in ordinary(records) if r.status != SKIPPED]


def verdicts(records: Iterable[Record]) -> dict[tuple[str, str], str]:
    """Return the worst status per case and oracle; larger calls that there are not do not count."""
    found: dict[tuple[str, str], str] = {}
    for record in ordinary(records):
        if record.is_enlarged and record.status == "unknown":
            continue
        key = (record.case, record.oracle)
        worst = found.get(key, "pass")
        found[key] = min(worst, record.status, key=WORST_FIRST.index)
    return found


def lines(records: list[Record]) -> Iterator[str]:
    """Yield the summary of a run, without its last line."""
    cases = verdicts(records)
    yield from _origins(records, cases)
    yield from _oracles(records, cases)
    yield from _families(records)
    yield from _open(records, cases)


def failures_of_cases(records: Iterable[Record]) -> list[Record]:
    """Return the failure of every case that has one: that which is nearest to its cause."""
    by_case: dict[str, list[Record]] = defaultdict(list)
    for record in ordinary(records):
        by_case[record.case].append(record)
    return [found[0] for rows in by_case.values() if (found := failures(rows))]


def rates(records: Iterable[Record], seconds: float, unit: str = "second") -> str:
    """Count cases, kernels proved or refuted, and calls with values, all and each per second.

    A call has a launch for each kernel of its program; one on a GPU counts once, however often it
    was launched.
    """
    counted = ordinary(records)
    compared = {
        (r.case, r.subject) for r in counted if r.oracle == "differential" and r.status in ANSWERED
    }
    parts = {
        "cases": len({r.case for r in counted}),
        "kernels proved": sum(r.oracle == "prover" and r.status in ANSWERED for r in counted),
        "calls compared": len(compared),
        "kernels x extents judged": sum(
            r.oracle == "simulator" and (r.case, r.subject.partition(" ")[2]) in compared
            for r in counted
        ),
    }
    if launched := sum(r.oracle == "gpu" and r.status in ANSWERED for r in counted):
        parts["calls on the GPU"] = launched
    says = (f"{n} {what} ({n / max(seconds, 1e-9):.2f})" for what, n in parts.items())
    return f"{', '.join(says)}; in brackets per {unit}"


def covered(cells: Mapping[Cell, int]) -> str:
    """Say how many of the cells that cases can be in have enough of them, and name empty ones."""
    few, least = sum(n < ENOUGH for n in cells.values()), min(cells.values(), default=0)
    never = [" ".join(cell) for cell, n in sorted(cells.items()) if not n]
    says = f"coverage: {len(cells) - few} of {len(cells)} legal cells in {ENOUGH} cases or more"
    if not never:
        return f"{says}, the rarest in {least}"
    more = f" and {len(never) - NAMED} more" if len(never) > NAMED else ""
    return f"{says}, {len(never)} in none: {', '.join(never[:NAMED])}{more}"


def kinds(spent: Mapping[str, float], large_s: float) -> str:
    """Say what each kind of judge had of the CPU time, and large cases, and what they may have."""
    large = f"{LARGE_CASES} {100 * large_s / max(sum(spent.values()), 1e-9):.0f} % of "
    large += f"{100 * LARGE_SHARE:.0f}"
    says = (
        f"{name} {100 * s:.0f} % of {100 * KINDS[name].share:.0f}"
        for name, s in taken(spent).items()
    )
    return f"shares of the CPU time, and of how much at most: {', '.join((*says, large))}"


def shares(spent: Mapping[str, float]) -> str:
    """Say where the CPU time went, the largest part first."""
    total = max(sum(spent.values()), 1e-9)
    parts = sorted(spent.items(), key=lambda item: -item[1])
    says = ", ".join(f"{part} {100 * seconds / total:.1f} %" for part, seconds in parts)
    return f"{total:.1f} CPU seconds: {says}"


def failing(records: list[Record], repros: Mapping[str, Path]) -> Iterator[str]:
    """Name every failure with the script that shows it, those nearest to their causes first.

    Cases of one signature are one failure, and what else a case fails of follows from it.
    """
    of_cases = failures_of_cases(records)
    many = Counter(map(signature, of_cases))
    least = {signature(r): r for r in records if r.failure}
    for record in sorted(of_cases, key=lambda r: (TITLES.index(r.oracle), signature(r))):
        failure = signature(record)
        if cases := many.pop(failure, 0):
            shown = least.get(failure, record)
            where = f"repro {repros[failure]}" if failure in repros else "without a repro"
            said = f"{known.status(shown)}, {cases} case{'s' * (cases > 1)}"
            yield f"{failure}: {said}, {where}: {first_line(shown.reason)}"
    for record in records:
        blind = record.oracle == "mutant" and record.status == "fail"
        if record.mutant and (blind or record.status == "error"):
            yield f"{signature(record)}: {record.mutant}: {first_line(record.reason)}"


def _origins(records: list[Record], cases: dict[tuple[str, str], str]) -> Iterator[str]:
    """Count the cases by where they come from, and those that fail."""
    origin = {r.case: r.phase for r in ordinary(records)}
    failing = {case for (case, _), status in cases.items() if status in ("fail", "error")}
    names = {
        "corpus": "of the corpus",
        "base": "one of each family or type",
        "generate": "drawn",
    }
    for phase, name in names.items():
        mine = {case for case, where in origin.items() if where == phase}
        said = f"{len(mine)} cases {name}, {len(mine & failing)} failing"
        if phase == "generate" and mine:
            valid = sum(cases.get((case, "build")) != "invalid" for case in mine)
            said += f", {100 * valid / len(mine):.1f} % valid"
        yield said


def _oracles(records: list[Record], cases: dict[tuple[str, str], str]) -> Iterator[str]:
    for oracle in ORACLES:
        if oracle == "mutant":
            counts = Counter(r.status for r in records if r.oracle == oracle)
        else:
            counts = Counter(status for (_, name), status in cases.items() if name == oracle)
        times = [r.seconds for r in asked(records) if r.oracle == oracle]
        if not counts:
            continue
        words = ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s] or s in STATUSES[:4])
        speed = f"; median {1e3 * median(times):.2f} ms" if times else ""
        yield f"{oracle + ':':<14} {words}{speed}"


def _families(records: list[Record]) -> Iterator[str]:
    times: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in asked(records):
        times[record.family, record.oracle].append(record)
    for family in FAMILIES:
        words = []
        for oracle, name in (("prover", "proof"), ("simulator", "simulation")):
            rows = times[family, oracle]
            if rows:
                middle = 1e3 * median(r.seconds for r in rows)
                claims = sum(r.checked for r in rows)
                words.append(f"median {name} {middle:.1f} ms, {claims} claims in {len(rows)} runs")
        proofs = [r for r in times[family, "prover"] if r.status == "pass"]
        if proofs:
            full = sum(r.in_full for r in proofs)
            words.append(f"{full} of {len(proofs)} proofs confirmed in full by z3")
        if words:
            yield f"  {family + ':':<24} {'; '.join(words)}"


def _open(records: list[Record], cases: dict[tuple[str, str], str]) -> Iterator[str]:
    """Count unknown and unsupported answers, and list each reason once."""
    judged = sum(o != "build" and status != SKIPPED for (_, o), status in cases.items())
    reasons = Counter(
        (r.status, r.oracle, gist(r.reason))
        for r in ordinary(records)
        if r.status in ("unknown", "unsupported", "invalid", SKIPPED)
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
