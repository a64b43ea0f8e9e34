"""Sections about mutants: which judge notices which broken sync.

Every function is pure: a table of records in, a Section out.
"""

from __future__ import annotations

import pandas as pd

from fuzz.campaign.record import WORST_FIRST
from reports.page import Section, Share, many

FATES = ["killed by both", "redundant", "blind judge", "undecided", "other", "error"]
_CHANGE = r"^(?P<change>.*?) ?(?:line \d+)?:? ?(?P<statement>\w+)\("
"""``drop line 9: mbarrier_init(full, 1)``: how a sync is broken, and which."""


def mutants(records: pd.DataFrame) -> Section:
    """Count, per schedule family, what became of the kernels with one sync broken."""
    rows = records[records["oracle"] == "mutant"]
    if rows.empty:
        return Section("Mutants", "No mutant was judged.", pd.DataFrame())
    counts = rows.assign(fate=_fates(rows)).groupby(["family", "fate"]).size()
    wide = counts.unstack(fill_value=0)
    shown = [name for name in FATES if name in wide or name in FATES[:3]]
    wide = wide.reindex(columns=shown, fill_value=0)
    table = wide.rename_axis(columns=None).reset_index()
    table.insert(1, "mutants", wide.sum(axis=1).to_numpy())
    killed, redundant, blind = (int(wide[name].sum()) for name in FATES[:3])
    says = (
        f"{many(len(rows), 'mutant')}: {killed} killed by both judges, "
        f"{many(redundant, 'redundant sync')}, "
        f"{blind} past a blind judge. A family without a row has no sync to break."
    )
    return Section("Mutants", says, table)


def matrix(records: pd.DataFrame) -> Section:
    """Say, per kind of change and sync, how many mutants both judges kill."""
    rows = records[records["oracle"] == "mutant"]
    if rows.empty:
        return Section("Kill matrix", "No mutant was judged.", pd.DataFrame(), look="heat")
    parts = rows["mutant"].str.extract(_CHANGE)
    named = rows.assign(
        change=parts["change"].fillna(rows["mutant"].str.split().str[0]).str.strip(),
        statement=parts["statement"].fillna("other"),
        fate=_fates(rows),
    )
    named = named[named["fate"] != "redundant"]  # nobody should kill a kernel that is right
    dead = named["fate"] == "killed by both"
    changes = sorted(named["change"].unique())
    lines = []
    for statement, part in named.groupby("statement"):
        cells = {
            change: Share(int(dead[where.index].sum()), len(where))
            for change, where in part.groupby("change")
        }
        lines.append({"sync": statement} | {change: cells.get(change) for change in changes})
    table = pd.DataFrame(lines, dtype=object)
    killed = int(dead.sum())
    says = (
        f"Both judges kill {killed:,} of {many(len(named), 'mutant')} that are wrong; rows are "
        "syncs, columns how they are broken. Redundant ones, proved to be right, are left out."
    )
    return Section("Kill matrix", says, table, look="heat")


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
    rank = table["status"].map(WORST_FIRST.index) + (table["conclusion"] == "killed by both")
    table = table.assign(rank=rank).sort_values("rank", kind="stable")
    judges = [name for name in ("prover", "simulator") if name in table]
    table = table[["family", "mutation", *judges, "status", "conclusion"]].fillna("")
    return Section("Kills", "Every mutant, those that were not killed by both judges first.", table)


def _fates(rows: pd.DataFrame) -> pd.Series[str]:
    fate = rows["reason"].str.extract(r"^(killed by both|redundant)", expand=False)
    fate = fate.where(rows["status"] == "pass", rows["status"]).fillna("other")
    return fate.replace({"fail": "blind judge", "unknown": "undecided"})
