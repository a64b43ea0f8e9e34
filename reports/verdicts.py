"""From records to one verdict per case and oracle: what all sections count."""

from __future__ import annotations

import pandas as pd

from fuzz.campaign.record import ENLARGED, SKIPPED, WORST_FIRST

_ORDER = {status: position for position, status in enumerate(WORST_FIRST)}


def ordinary(records: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count in totals: no mutants, nothing from shrinking."""
    return records[(records["mutant"] == "") & (records["phase"] != "shrink")]


def asked(records: pd.DataFrame) -> pd.DataFrame:
    """Return of these what somebody was asked."""
    rows = ordinary(records)
    return rows[rows["status"] != SKIPPED]


_last: list[pd.DataFrame] = []
"""Records and their verdicts: all sections of a page ask for the same."""


def verdicts(records: pd.DataFrame) -> pd.DataFrame:
    """Return one row per case and oracle, with the worst status that it got.

    Larger calls that there are not do not count, as in `fuzz.campaign.summary.verdicts`.
    """
    if not _last or _last[0] is not records:
        _last[:] = [records, _verdicts(records)]
    return _last[1]


def _verdicts(records: pd.DataFrame) -> pd.DataFrame:
    silent = records["subject"].str.startswith(ENLARGED) & (records["status"] == "unknown")
    ranked = ordinary(records[~silent]).assign(
        rank=lambda rows: rows["status"].map(_ORDER), runs=1, milliseconds=milliseconds
    )
    worst = ranked.sort_values("rank", kind="stable").drop_duplicates(["case", "oracle"])
    sums = ranked.groupby(["case", "oracle"], as_index=False)[["checked", "runs"]].sum()
    return worst.drop(columns=["checked", "runs"]).merge(sums, on=["case", "oracle"])


def milliseconds(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the time of each record."""
    return rows["seconds"] * 1e3
