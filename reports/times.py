"""Sections about time: judges per family, what confirms proofs, where a campaign's time went.

Every function is pure: a table of records in, a Section out.
"""

from __future__ import annotations

from collections import Counter

import pandas as pd

from fuzz.budget import KINDS, LARGE_CASES, LARGE_SHARE
from fuzz.campaign.record import CPU_S, LARGE_S, LEFT, ORDER, SKIPPED
from reports.figure import embed, spreads, stacks
from reports.page import Section, many
from reports.verdicts import asked, milliseconds, ordinary

GOALS_MS = {"prover": 100.0, "simulator": 50.0}
"""Median times in milliseconds that a judge should keep."""
_POINTS = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
_SLOW = 10
"""Slowest proofs that are listed."""


def times(records: pd.DataFrame) -> Section:
    """Give the median times of the two judges per schedule family, with what they checked."""
    rows = asked(records)
    rows = rows[rows["oracle"].isin(GOALS_MS)].assign(milliseconds=milliseconds)
    if rows.empty:
        return Section("Times", "No kernel was proved or simulated.", pd.DataFrame())
    groups = rows.groupby(["family", "oracle"])
    points = groups["milliseconds"].quantile(pd.Index(_POINTS.values())).clip(lower=1e-3).unstack()
    points.columns = pd.Index(_POINTS)
    sums = groups.agg(
        runs=("checked", "size"),
        claims=("checked", "sum"),
        each=("checked", "median"),
    )
    full = groups[["status", "confirmed"]].apply(_confirmed).rename("full")
    found = points.join(sums).join(full).reset_index()
    table = pd.DataFrame(
        {
            "family": found["family"],
            "oracle": found["oracle"],
            "runs": found["runs"],
            "median ms": found["p50"],
            "95 % ms": found["p95"],
            "goal ms": found["oracle"].map(GOALS_MS),
            "claims": found["claims"],
            "claims per run": found["each"],
            "confirmed in full": found["full"].where(found["oracle"] == "prover").astype(object),
        }
    ).fillna({"confirmed in full": ""})
    late = int((table["median ms"] > table["goal ms"]).sum())
    says = (
        f"{late} of {len(table)} medians are above their goal (dashed). Lines show 5 to 95 %, "
        "boxes 25 to 75 %, ticks the median."
    )
    return Section("Times", says, table, figure=embed(spreads(found, GOALS_MS), says))


def proofs(records: pd.DataFrame) -> Section:
    """Say how far z3 confirms the proofs, by which invariants, and which take longest."""
    rows = asked(records)
    rows = rows[rows["oracle"] == "prover"]
    if rows.empty:
        return Section("Proofs", "Nothing was proved.", pd.DataFrame())
    counts = rows["status"].value_counts()
    passed = rows[rows["status"] == "pass"]
    ms = milliseconds(rows)
    says = (
        f"{many(len(rows), 'kernel')} judged for all trip counts: {len(passed):,} proved, "
        f"{int(counts.get('fail', 0))} refuted, {int(counts.get('unknown', 0))} unknown, "
        f"{int(counts.get('unsupported', 0))} unsupported, {int(counts.get('error', 0))} broken. "
        f"z3 confirms all of the order in {_confirmed(passed):,} of {len(passed):,} proofs. "
        f"Median {ms.median():.1f} ms, 99 % within {ms.quantile(0.99):,.0f} ms; the slowest:"
    )
    names = passed["confirmed"].str.split().explode().dropna().value_counts()
    if len(names):
        counted = (f"{name} in {count:,}" for name, count in names.items() if name != ORDER)
        says = says.replace(" Median", f" Named invariants: {', '.join(counted) or 'none'}. Median")
    slow = rows.assign(ms=ms).nlargest(_SLOW, "ms")
    return Section(
        "Proofs", says, slow[["case", "subject", "family", "status", "checked", "ms", "confirmed"]]
    )


def spent(records: pd.DataFrame, runs: pd.DataFrame) -> Section:
    """Say where the time of a campaign went: by oracle, and by why a case was judged."""
    part = records["phase"].where(records["mutant"] == "", "mutants")
    names = {"generate": "drawn cases", "base": "bases", "corpus": "corpus", "shrink": "shrinking"}
    rows = records.assign(name=records["oracle"], part=part.replace(names))
    table = rows.groupby(["name", "part"])["seconds"].sum().reset_index()
    facts = [dict(found) for found in runs["facts"]]
    room = sum(float(f.get("elapsed_s", 0)) * float(f.get("workers", 1)) for f in facts)
    judging = float(table["seconds"].sum())
    says = f"{judging:,.1f} s of judging"
    if room:
        says += (
            f", {100 * judging / room:.0f} % of the {room:,.0f} s that the workers had; the rest "
            "is drawing cases, waiting for a core, and starting"
        )
    figure = embed(stacks(table, "seconds"), says) if judging else None
    wide = table.pivot(index="name", columns="part", values="seconds").fillna(0.0)
    wide.insert(0, "seconds", wide.sum(axis=1))
    wide = wide.sort_values("seconds", ascending=False).rename_axis(index="oracle", columns=None)
    return Section("Where the time went", f"{says}.", wide.reset_index(), figure=figure)


def budget(records: pd.DataFrame, runs: pd.DataFrame) -> Section:
    """Say what each kind of judge had of the CPU time, and may have, and what was left out."""
    facts: Counter[str] = Counter()
    for found in runs["facts"]:
        facts.update({n: v for n, v in dict(found).items() if isinstance(v, int | float)})
    cpu = {name.removeprefix(f"{CPU_S} "): s for name, s in facts.items() if name.startswith(CPU_S)}
    rest = {name: int(n) for name, n in facts.items() if name.startswith(LEFT)}
    rows = ordinary(records)
    left = rows[rows["status"] == SKIPPED].groupby("oracle")["case"].nunique()
    lines = [
        (
            name,
            ", ".join(kind.oracles),
            kind.share,
            sum(cpu.get(part, 0.0) for part in kind.parts),
            max(int(left.get(oracle, 0)) for oracle in kind.oracles),
        )
        for name, kind in KINDS.items()
    ]
    large = sum(n for name, n in rest.items() if name.startswith(f"{LEFT} {LARGE_CASES}"))
    lines.append((LARGE_CASES, "all", LARGE_SHARE, float(facts[LARGE_S]), large))
    total = sum(cpu.values())
    table = pd.DataFrame(
        {
            "kind": name,
            "judges": judges,
            "at most %": 100 * share,
            "had %": 100 * seconds / max(total, 1e-9),
            "CPU seconds": seconds,
            "cases left out": count,
        }
        for name, judges, share, seconds, count in lines
    )
    says = (
        f"Of {total:,.0f} CPU seconds. Where a kind has had its share, drawn cases go to it only "
        "with an operation, a type or a mechanism that it has not met; what is left out is no pass."
    )
    if rest:
        counts = (f"{n:,} {name.removeprefix(LEFT).strip()}" for name, n in rest.items())
        says += f" Not judged: {'; '.join(counts)}."
    return Section("Shares of the judges", says, table if cpu else pd.DataFrame())


def _confirmed(rows: pd.DataFrame) -> int:
    """Count the proofs of which z3 has decided all of the order."""
    names = rows[rows["status"] == "pass"]["confirmed"].str.split()
    return int(names.map(lambda found: ORDER in found).sum())
