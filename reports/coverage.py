"""Sections about what was met: operations and types, mechanisms and stages, families.

Every function is pure: a table of records in, a Section out.
"""

from __future__ import annotations

from collections import Counter

import pandas as pd

from fuser.dtype import DType
from fuser.fusion.ops import ALL, CASTS, OPS
from fuzz.campaign.record import ORACLES, STATUSES
from reports.page import Section, many
from reports.verdicts import judged, verdicts

_TYPES = tuple(dtype.name for dtype in DType)
_SHOWN = 12
"""Empty cells that are named in words."""


def legal(op: str) -> set[str]:
    """Return the operand types that an operation takes, by name."""
    # The table says of these what results may be.
    operands = {"cast": CASTS, "sum": ALL, "prod": ALL, "cumsum": ALL}.get(op, OPS[op].allowed)
    return {dtype.name for dtype in operands}


def operations(records: pd.DataFrame) -> Section:
    """Count the judged cases per operation and operand type; what is legal and was not met is 0."""
    built = judged(records)
    facts = built["ops"].str.split().explode().dropna()
    pairs = facts[facts.str.contains("/")].str.split("/", n=1, expand=True)
    if pairs.empty:
        return Section("Operations", "No operation was met.", pd.DataFrame(), look="heat")
    met = Counter(zip(pairs[0], pairs[1], strict=True))
    names = sorted({op for op, _ in met} | set(OPS))
    known = {(op, dtype) for op in OPS for dtype in legal(op)}
    table = pd.DataFrame(
        [
            {"op": op}
            | {dtype: met.get((op, dtype), 0 if (op, dtype) in known else None) for dtype in _TYPES}
            for op in names
        ],
        dtype=object,
    )
    missed = sorted(known - set(met))
    listed = ", ".join("/".join(pair) for pair in missed[:_SHOWN])
    more = f" and {len(missed) - _SHOWN} more" if len(missed) > _SHOWN else ""
    says = f"{len(known) - len(missed)} of {len(known)} legal pairs of operation and operand type "
    says += f"were met; counts are cases. Not met: {listed}{more}." if missed else "were met."
    return Section("Operations", says, table, look="heat")


def mechanisms(records: pd.DataFrame) -> Section:
    """Count the judged cases per load and store mechanism and stages."""
    built = judged(records)
    if built.empty:
        return Section("Mechanisms", "No schedule was met.", pd.DataFrame(), look="heat")
    counts = built.groupby(["family", "stages"]).size().unstack(fill_value=0)
    table = counts.rename_axis(index="load / store", columns=None).reset_index()
    first, *counted = table.columns
    table.columns = pd.Index([first, *(many(int(name), "stage") for name in counted)])
    met, cells = int((counts > 0).sum().sum()), counts.size
    says = f"{met} of {cells} pairs of mechanism and number of stages were met; counts are cases."
    return Section("Mechanisms", says, table, look="heat")


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
