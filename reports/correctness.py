"""Sections about verdicts: totals, disagreements, failures, coverage, mutants, times.

Every function is pure: a table of records in, a Section out.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from markupsafe import Markup

from fuzz.campaign.record import ORACLES, ORDER, PROTOCOL, SHORT, STATUSES, WORST_FIRST
from oracles.witness import loads
from reports.figure import Panel, Spread, spreads
from reports.lanes import svg
from reports.page import Headline, Section

ABOUT = {
    "build": "Lowering, passes and CUDA text",
    "prover": "Races and deadlocks, for every trip count",
    "simulator": "Adversarial clocks, trip counts 0 to 2S + 1",
    "differential": "Simulated values against torch",
    "assembler": "The compile log as a witness",
    "agreement": "Prover against simulator on one trip count",
    "gpu": "Values on the device, poisoned and guarded",
    "mutant": "Kernels with one sync broken, which both judges must kill",
}
"""What an oracle does, in a few words."""

GOALS_MS = {"prover": 100.0, "simulator": 50.0}
"""Median times in milliseconds that a judge should keep."""

COMPARABLE = ("prover", "simulator", "agreement", "differential", "gpu")
"""Oracles of which two can contradict each other: the first pair on syncs, the last on values."""

DRAWN = 4
"""Failures whose execution is drawn, at most."""

_ORDER = {status: position for position, status in enumerate(WORST_FIRST)}


def ordinary(records: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count in totals: no mutants, nothing from shrinking."""
    return records[(records["mutant"] == "") & (records["phase"] != "shrink")]


def verdicts(records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per case and oracle, with the worst status that it got."""
    ranked = ordinary(records).assign(
        rank=lambda rows: rows["status"].map(_ORDER), runs=1, milliseconds=_milliseconds
    )
    worst = ranked.sort_values("rank", kind="stable").drop_duplicates(["case", "oracle"])
    sums = ranked.groupby(["case", "oracle"], as_index=False)[["checked", "runs"]].sum()
    return worst.drop(columns=["checked", "runs"]).merge(sums, on=["case", "oracle"])


def headline(records: pd.DataFrame, runs: pd.DataFrame) -> Headline:
    """Say what a reader must know first."""
    cases = verdicts(records)
    bad = cases[cases["status"].isin(["fail", "error"])]
    blind = records[(records["oracle"] == "mutant") & (records["status"] == "fail")]
    judged = cases["case"].nunique()
    short = [text for facts in runs["facts"] if (text := str(facts.get(SHORT, "")))]
    if bad.empty and blind.empty and judged:
        status, says = "pass", f"{_many(judged, 'case')}, no failure"
        if short:
            status, says = "unknown", f"{says}, but {SHORT}: {'; '.join(short)}"
    elif not judged and blind.empty:
        status, says = "unknown", "No case was judged"
    else:
        status = "fail"
        says = f"{bad['case'].nunique():,} of {judged:,} cases failed"
        says += f", {_many(len(blind), 'mutant')} survived a blind judge" if len(blind) else ""
    chosen = cases[cases["phase"] == "generate"]
    drawn = chosen["case"].nunique()
    valid = chosen[chosen["oracle"] == "build"]["status"].ne("invalid")
    seconds = sum(float(facts.get("elapsed_s", 0)) for facts in runs["facts"])
    numbers = [("Claims and elements checked", f"{int(cases['checked'].sum()):,}")]
    if len(valid):
        numbers.append(("Valid cases", f"{100 * valid.mean():.1f} %"))
    if seconds:
        speed = f"{drawn / seconds:,.1f}"
        numbers += [("Time", f"{seconds:,.0f} s"), ("Cases per second", speed)]
    if len(runs):
        seeds = sorted({str(facts.get("seed", "")) for facts in runs["facts"]} - {""})
        began = str(runs["started"].iloc[-1]).replace("T", " ")[:16] + " UTC"
        numbers.append(("Seed" if len(seeds) == 1 else "Seeds", ", ".join(seeds)))
        numbers.append(("Started", began))
    return Headline(status, says, tuple(numbers))


def totals(records: pd.DataFrame, runs: pd.DataFrame) -> Section:
    """Count, per oracle, in which bucket every case ended."""
    cases = verdicts(records)
    mutants = records[records["oracle"] == "mutant"]
    unit = dict.fromkeys(ORACLES, "cases") | {"mutant": "mutants"}
    counts = (
        pd.concat([cases[["oracle", "status"]], mutants[["oracle", "status"]]])
        .value_counts()
        .unstack(fill_value=0)
        .reindex(index=list(ORACLES), columns=list(STATUSES), fill_value=0)
    )
    gpu = ", ".join(sorted({str(facts["gpu"]) for facts in runs["facts"] if "gpu" in facts}))
    table = counts.reset_index().assign(
        cases=counts.sum(axis=1).to_numpy(),
        unit=lambda rows: rows["oracle"].map(unit),
        about=lambda rows: rows["oracle"].map(ABOUT),
        note=lambda rows: rows["oracle"].map({"gpu": gpu}).fillna(""),
    )
    origin = cases.drop_duplicates("case")["phase"]
    drawn, bases, again = (int((origin == name).sum()) for name in ("generate", "base", "corpus"))
    says = (
        f"{drawn:,} cases were drawn, {bases} stand for a schedule family each, {again} have "
        "failed before; in each oracle every case ends in exactly one bucket, the worst of its "
        "kernels and trip counts."
    )
    return Section("Oracles", says, table, look="tiles")


def families(records: pd.DataFrame) -> Section:
    """Count, per schedule family and oracle, in which bucket every case ended."""
    cases = verdicts(records)
    counts = cases.groupby(["family", "oracle", "status"]).size().unstack(fill_value=0)
    table = counts.reindex(columns=list(STATUSES), fill_value=0).reset_index()
    place = {name: position for position, name in enumerate(ORACLES)}
    table = table.sort_values(
        ["family", "oracle"],
        key=lambda names: names.map(place).fillna(0) if names.name == "oracle" else names,
    )
    table.insert(2, "cases", table[list(STATUSES)].sum(axis=1))
    table = table.loc[:, [*table.columns[:3], *(s for s in STATUSES if table[s].any())]]
    many = table["family"].nunique()
    says = f"{many} schedule families were met; every row adds up to its cases."
    return Section("Families", says, table)


def times(records: pd.DataFrame) -> Section:
    """Give the median times of the two judges per schedule family, with what they checked."""
    rows = ordinary(records)
    rows = rows[rows["oracle"].isin(GOALS_MS)].assign(milliseconds=_milliseconds)
    table: list[dict[str, object]] = []
    panels = []
    for oracle, goal in GOALS_MS.items():
        parts = {str(name): part for name, part in rows[rows["oracle"] == oracle].groupby("family")}
        drawn = tuple(_spread(name, part["milliseconds"]) for name, part in parts.items())
        table += [
            {
                "family": spread.name,
                "oracle": oracle,
                "runs": len(part),
                "median ms": spread.p50,
                "95 % ms": spread.p95,
                "goal ms": goal,
                "claims": int(part["checked"].sum()),
                "claims per run": float(part["checked"].median()),
                "confirmed in full": _confirmed(part) if oracle == "prover" else "",
            }
            for spread, part in zip(drawn, parts.values(), strict=True)
        ]
        if len(parts) == rows["family"].nunique():
            panels.append(Panel(f"{oracle} time per run", "ms", goal, drawn))
    proofs = rows[(rows["oracle"] == "prover") & (rows["status"] == "pass")]
    late = sum(row["median ms"] > row["goal ms"] for row in table)  # type: ignore[operator]
    says = (
        f"{late} of {len(table)} medians are above their goal. Lines show 5 to 95 %, boxes 25 to "
        f"75 %, ticks the median. z3 confirms all of the order in {_confirmed(proofs)} of "
        f"{len(proofs)} proofs."
    )
    return Section("Times", says, pd.DataFrame(table), figure=spreads(tuple(panels)))


def operations(records: pd.DataFrame) -> Section:
    """Count the judged cases per operation and operand type."""
    built = _judged(records)
    facts = built["ops"].str.split().explode().dropna()
    pairs = facts[facts.str.contains("/")].str.split("/", n=1, expand=True)
    if pairs.empty:
        return Section("Operations", "No operation was met.", pd.DataFrame(), look="heat")
    counts = pairs.groupby([0, 1]).size().unstack(fill_value=0)
    order = [name for name in ("f64", "f32", "f16", "bf16", "i32", "i64", "bool") if name in counts]
    table = counts[order].rename_axis(index="op", columns=None).reset_index()
    met = int((counts > 0).sum().sum())
    says = (
        f"{len(table)} operations met {met} pairs of operation and operand type; counts are cases."
    )
    return Section("Operations", says, table, look="heat")


def mechanisms(records: pd.DataFrame) -> Section:
    """Count the judged cases per load and store mechanism and stages."""
    built = _judged(records)
    if built.empty:
        return Section("Mechanisms", "No schedule was met.", pd.DataFrame(), look="heat")
    counts = built.groupby(["family", "stages"]).size().unstack(fill_value=0)
    table = counts.rename_axis(index="load / store", columns=None).reset_index()
    first, *counted = table.columns
    table.columns = pd.Index([first, *(_many(int(name), "stage") for name in counted)])
    met = int((counts > 0).sum().sum())
    says = f"{met} pairs of mechanism and number of stages were met; counts are cases."
    return Section("Mechanisms", says, table, look="heat")


def disagreements(records: pd.DataFrame) -> Section:
    """List the cases on which two oracles gave opposite answers."""
    cases = verdicts(records)
    wide = cases.pivot(index="case", columns="oracle", values="status")
    wide = wide.reindex(columns=list(COMPARABLE))
    opposite = wide["agreement"].eq("fail")
    for one, other in (("prover", "simulator"), ("differential", "gpu")):
        opposite |= wide[one].eq("pass") & wide[other].eq("fail")
        opposite |= wide[one].eq("fail") & wide[other].eq("pass")
    split = wide[opposite].astype(object).fillna("").rename_axis(columns=None).reset_index()
    says = f"{len(split)} of {len(wide):,} cases split the oracles; each is a bug in one of them."
    return Section("Disagreements", says, split)


def failures(records: pd.DataFrame, repros: pd.DataFrame) -> Section:
    """List the failures, one row per signature, by its least case, with the script of that."""
    rows = records[(records["mutant"] == "") & records["status"].isin(["fail", "error"])]
    kind = rows["kind"].where(rows["kind"] != "", rows["status"])
    kind = kind.where(~kind.isin(PROTOCOL), "protocol")
    cause = rows["cause"].where(rows["cause"] != "", rows["family"])
    rows = rows.assign(signature=rows["oracle"] + " " + kind + " " + cause)
    least = rows.sort_values("failure", key=lambda ids: ids == "", kind="stable")
    first = least.drop_duplicates("signature").sort_index()
    counts = rows.groupby("signature")["case"].nunique()
    table = first.assign(cases=first["signature"].map(counts)).merge(
        repros[["signature", "path"]].rename(columns={"path": "repro"}), on="signature", how="left"
    )
    table["reason"] = table["reason"].str.slice(0, 600)
    table = table[
        ["status", "oracle", "kind", "family", "cases", "case", "reason", "repro"]
    ].fillna("")
    kinds, cases = _many(len(table), "kind"), _many(rows["case"].nunique(), "case")
    says = f"{kinds} of failure in {cases} (shrinking included); python FILE replays one alone."
    return Section("Failures", says, table, figure=drawings(first["witness"]))


def drawings(witnesses: Iterable[str]) -> Markup | None:
    """Draw the first few executions of those that a ledger holds as JSON; None without any."""
    found = [loads(text) for text in witnesses if text]
    return Markup("").join(svg(witness) for witness in found[:DRAWN]) if found else None


def unanswered(records: pd.DataFrame) -> Section:
    """List why oracles gave no answer, or refused a case."""
    cases = verdicts(records)
    rows = cases[cases["status"].isin(["unknown", "unsupported", "invalid"])]
    judged = len(cases[cases["oracle"] != "build"])
    open_ = int(rows["status"].isin(["unknown", "unsupported"]).sum())
    share = 100 * open_ / judged if judged else 0.0
    by_reason = rows.groupby(["status", "oracle", "reason"])
    table = by_reason.agg(cases=("case", "nunique"), case=("case", "first")).reset_index()
    table = table.sort_values("cases", ascending=False)
    table = table[["status", "oracle", "cases", "reason", "case"]]
    says = f"{open_} of {judged:,} answers ({share:.2f} %) are unknown or unsupported."
    return Section("Unanswered", says, table)


def warnings(records: pd.DataFrame) -> Section:
    """List what oracles remarked on cases that they pass: spills, fences at the weaker place."""
    rows = ordinary(records)
    lines = rows.assign(warning=rows["reason"].str.split("\n")).explode("warning")
    lines = lines[lines["warning"].str.startswith("warning: ", na=False)]
    kind = lines["warning"].str.extract(r"^warning: (\S+)", expand=False)
    by_kind = lines.assign(kind=kind).groupby(["oracle", "kind"])
    table = by_kind.agg(
        cases=("case", "nunique"), example=("warning", "first"), case=("case", "first")
    )
    table = table.reset_index().sort_values("cases", ascending=False)
    many = table["cases"].sum()
    says = f"{many:,} times an oracle passed a case with a remark; none is a failure."
    return Section("Warnings", says, table)


def mutants(records: pd.DataFrame) -> Section:
    """Count, per schedule family, what became of the kernels with one sync broken."""
    rows = records[records["oracle"] == "mutant"]
    if rows.empty:
        return Section("Mutants", "No mutant was judged.", pd.DataFrame())
    fate = rows["reason"].str.extract(r"^(killed by both|redundant)", expand=False)
    fate = fate.where(rows["status"] == "pass", rows["status"]).fillna("other")
    fate = fate.replace({"fail": "blind judge", "unknown": "undecided"})
    order = ["killed by both", "redundant", "blind judge", "undecided", "other", "error"]
    counts = rows.assign(fate=fate).groupby(["family", "fate"]).size().unstack(fill_value=0)
    shown = [name for name in order if name in counts or name in order[:3]]
    counts = counts.reindex(columns=shown, fill_value=0)
    table = counts.rename_axis(columns=None).reset_index()
    table.insert(1, "mutants", counts.sum(axis=1).to_numpy())
    killed, redundant, blind = (int(counts[name].sum()) for name in order[:3])
    says = (
        f"{_many(len(rows), 'mutant')}: {killed} killed by both judges, "
        f"{_many(redundant, 'redundant sync')}, "
        f"{blind} past a blind judge. A family without a row has no sync to break."
    )
    return Section("Mutants", says, table)


def kills(records: pd.DataFrame) -> Section:
    """List what each judge said of every mutant, those that were not killed by both first."""
    rows = records[records["mutant"] != ""]
    if rows.empty:
        return Section("Kills", "No mutant was judged.", pd.DataFrame())
    keys = ["family", "mutant"]
    wide = rows.pivot_table(index=keys, columns="oracle", values="status", aggfunc="first")
    wide = wide.map(lambda status: {"fail": "killed", "pass": "survived"}.get(status, status))
    final = rows[rows["oracle"] == "mutant"].drop_duplicates(keys).set_index(keys)
    table = wide.drop(columns="mutant", errors="ignore").join(final[["status", "reason"]])
    table = table.reset_index().rename(columns={"mutant": "mutation", "reason": "conclusion"})
    rank = table["status"].map(_ORDER) + (table["conclusion"] == "killed by both")
    table = table.assign(rank=rank).sort_values("rank", kind="stable")
    judges = [name for name in ("prover", "simulator") if name in table]
    table = table[["family", "mutation", *judges, "status", "conclusion"]].fillna("")
    return Section("Kills", "Every mutant, those that were not killed by both judges first.", table)


def environment(runs: pd.DataFrame) -> Section:
    """Show what each run was made with."""
    facts = pd.DataFrame(list(runs["facts"]), index=runs["run"]).T if len(runs) else pd.DataFrame()
    table = facts.rename_axis(index="fact", columns=None).reset_index()
    table = table.astype(object).fillna("").astype(str)
    return Section("Environment", f"{_many(len(runs), 'run')} in this report.", table)


def _judged(records: pd.DataFrame) -> pd.DataFrame:
    cases = verdicts(records)
    judged = cases[~cases["status"].isin(["invalid", "error"]) & (cases["oracle"] != "build")]
    return judged.drop_duplicates("case")


def _confirmed(rows: pd.DataFrame) -> int:
    """Count the proofs of which z3 has decided all of the order."""
    names = rows[rows["status"] == "pass"]["confirmed"].str.split()
    return int(names.map(lambda found: ORDER in found).sum())


def _milliseconds(rows: pd.DataFrame) -> pd.Series[float]:
    return rows["seconds"] * 1e3


def _spread(name: str, values: pd.Series[float]) -> Spread:
    quantiles = values.clip(lower=1e-3).quantile([0.05, 0.25, 0.5, 0.75, 0.95])
    return Spread(name, *(float(value) for value in quantiles))


def _many(count: int, what: str) -> str:
    """Count things: `1 case`, `2 cases`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
