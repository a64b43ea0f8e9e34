"""Sections about many runs: how numbers went over time, and the sum of the ledger.

Every function is pure: a line for each campaign in (`reports.read`), a Section out.
"""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from reports.figure import embed, trend
from reports.page import Section, many

_SUMS = ["cases", "answers", "passed", "failed", "open", "mutants", "blind", "records"]


def trends(history: pd.DataFrame) -> Section:
    """Draw throughput and failures of the campaigns over time."""
    runs = _speeds(history)
    if len(runs) < 2:
        return Section("Trends", "One campaign is no trend yet.", pd.DataFrame())
    last, usual = float(runs["speed"].iloc[-1]), float(runs["speed"].iloc[:-1].median())
    says = (
        f"{many(len(runs), 'campaign')}: the last drew {last:.2f} cases a second, those before "
        f"{usual:.2f} (median)."
    )
    lines = {"speed": "drawn cases a second", "failing": "failing cases", "open": "open answers"}
    figures = [
        embed(trend(runs.assign(value=runs[column].astype(float)), what), f"{what} by run")
        for column, what in lines.items()
    ]
    return Section("Trends", says, pd.DataFrame(), figure=Markup("").join(figures))


def total(history: pd.DataFrame) -> Section:
    """Add up the ledger, and say whether its buckets do."""
    table = _speeds(history)
    table["started"] = table["started"].dt.strftime("%Y-%m-%d %H:%M")
    shown = table[["started", "run", "revision", *_SUMS, "seconds", "speed"]]
    sums = shown[_SUMS].sum()
    whole = shown[shown["records"] > 0][_SUMS].sum()
    kept = int(whole["passed"] + whole["failed"] + whole["open"])
    says = (
        f"{many(len(table), 'campaign')}, {int(sums['cases']):,} cases, {int(sums['records']):,} "
        f"records, {int(sums['mutants']):,} mutants; {int(sums['answers']):,} answers: "
        f"{int(sums['passed']):,} passes or refusals, {int(sums['failed']):,} failures, "
        f"{int(sums['open']):,} open"
    )
    adds = kept == int(whole["answers"])
    says += "." if adds else f", which is {kept:,}: the ledger does not add up."
    newest = shown.iloc[::-1].rename(columns={"speed": "cases per s"})
    return Section("Sum of the ledger", says, newest)


def _speeds(history: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with numbers for all that they lack, their seconds and cases a second."""
    words = ("run", "started", "facts", "revision")
    counts = [str(name) for name in history if name not in words]
    seconds = history["facts"].map(lambda facts: float(facts.get("elapsed_s", 0.0))).astype(float)
    # A run whose records were pruned keeps its totals among its facts.
    kept = {name: history["facts"].map(lambda facts, of=name: facts.get(of, 0)) for name in counts}
    runs = history.assign(
        **{name: pd.to_numeric(history[name]).fillna(kept[name]) for name in counts},
        started=pd.to_datetime(history["started"], utc=True, format="ISO8601"),
        seconds=seconds,
    )
    runs["speed"] = (runs["drawn"] / seconds.where(seconds > 0)).fillna(0.0).astype(float)
    return runs.drop(columns="facts")
