"""Sections about what was met: the coverage table, operations and types, schedules, families.

Every function is pure: a table of records in, a Section out.
"""

from __future__ import annotations

import pandas as pd

from fuser.dtype import DType
from fuzz.campaign.record import ENOUGH, ORACLES, STATUSES
from reports.page import Section, many
from reports.verdicts import verdicts

_SHOWN = 3
"""Rarest cells of a part that are named."""
PARTS = {
    "operation": "operation, type of its first tensor",
    "pair": "two operations, one behind the other",
    "reduced": "operation, and what reduces its results",
    "schedule": "schedule family, slots of its rings",
    "sharing": "schedule family, how CTAs share tiles",
    "computed": "schedule family, which operands it computes in registers or finds by an index",
    "extents": "kind of kernel, extent beside its tile",
}
"""What the cells of each part of the coverage table are."""


def table(cells: pd.DataFrame) -> Section:
    """Count the legal cells of each part of the coverage table, and those of too few cases."""
    if cells.empty:
        return Section("Coverage", "No cells were counted.", pd.DataFrame())
    rows = []
    for part, title in PARTS.items():
        found = cells[cells["part"] == part]
        if found.empty:
            continue
        rarest = found.sort_values("cases", kind="stable").head(_SHOWN)
        rows.append(
            {
                "part": title,
                "legal cells": len(found),
                "in no case": int((found["cases"] == 0).sum()),
                f"in fewer than {ENOUGH}": int((found["cases"] < ENOUGH).sum()),
                "least": int(found["cases"].min()),
                "rarest": "; ".join(f"{c.row} {c.col} {c.cases}" for c in rarest.itertuples()),
            }
        )
    few, never = int((cells["cases"] < ENOUGH).sum()), int((cells["cases"] == 0).sum())
    least = many(int(cells["cases"].min()), "case")
    says = f"{len(cells) - few:,} of {len(cells):,} legal cells were met by {ENOUGH} drawn cases "
    says += f"or more, {never} by none; the rarest by {least}."
    return Section("Coverage", says, pd.DataFrame(rows))


def operations(cells: pd.DataFrame) -> Section:
    """Count the drawn cases per operation and operand type; what is legal and was not met is 0."""
    order = [dtype.name for dtype in DType]
    return _heat("Operations", "op", cells[cells["part"] == "operation"], order)


def schedules(cells: pd.DataFrame) -> Section:
    """Count the drawn cases per schedule family and slots of its rings; as `operations`."""
    mine = cells[cells["part"] == "schedule"]
    return _heat("Schedules", "family and slots", mine, sorted(set(mine["col"])))


def _heat(title: str, corner: str, cells: pd.DataFrame, order: list[str]) -> Section:
    if cells.empty:
        return Section(title, "No cells were counted.", pd.DataFrame(), look="heat")
    found = cells.pivot_table(index="row", columns="col", values="cases", aggfunc="sum")
    shown = found.reindex(columns=[name for name in order if name in found]).astype(object)
    shown = shown.where(shown.notna(), None).rename_axis(index=corner, columns=None).reset_index()
    met = int((cells["cases"] > 0).sum())
    return Section(
        title, f"{met} of {len(cells)} legal cells were met; counts are cases.", shown, "heat"
    )


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
    met = table["family"].nunique()
    return Section(
        "Families", f"{met} schedule families were met; every row adds up to its cases.", table
    )
