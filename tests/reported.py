"""A few records as the reports read them, in which each kind of answer is met."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pandas as pd
from records import record

from fuzz.campaign.record import Cell, Record
from reports.read import Book

FACTS = {"seed": 3, "elapsed_s": 2.0, "gpu": "no device, 0 cases run", "workers": 2}
RUNS = pd.DataFrame({"run": ["r"], "started": ["2026-11-20T10:00:00+00:00"], "facts": [FACTS]})
REPROS = pd.DataFrame(
    {"run": ["r"], "signature": ["prover race direct/tma"], "case": ["c"], "path": ["a.py"]}
)


def frame(*records: Record) -> pd.DataFrame:
    """Records as the report reads them."""
    names = [field.name for field in dataclasses.fields(Record)]
    return pd.DataFrame([dataclasses.asdict(r) for r in records], columns=pd.Index(names))


ROWS = (
    record("a"),
    record("a", oracle="build"),
    record("a", oracle="simulator", subject="k trips=0"),
    record("a", oracle="simulator", subject="k trips=3", status="fail", kind="race"),
    record("b", oracle="build", status="invalid", reason="too much shared memory"),
    record("c", status="fail", kind="race", reason="line 3"),
    record("c", oracle="simulator", status="fail", kind="race"),
    record("d", status="unknown", reason="z3 gave up"),
    record("s", status="fail", kind="race", phase="shrink"),
    record("m", status="pass", mutant="drop line 3: mbarrier_init(full, 1)"),
    record("m", oracle="simulator", status="fail", mutant="drop line 3: mbarrier_init(full, 1)"),
    record(
        "m",
        oracle="mutant",
        status="fail",
        reason="only the simulator",
        mutant="drop line 3: mbarrier_init(full, 1)",
    ),
)
SPLIT = frame(*ROWS)


_NO_RUNS = pd.DataFrame(columns=pd.Index(["run", "started", "facts", "drawn", "answers"]))
_NO_SECONDS = pd.DataFrame(
    columns=pd.Index(["run", "oracle", "family", "seconds", "started", "revision"])
)


def counted(cases: Mapping[Cell, int]) -> pd.DataFrame:
    """The cells of the coverage table, as a ledger has them, with so many cases in each."""
    rows = [(*cell, n) for cell, n in cases.items()]
    return pd.DataFrame(rows, columns=pd.Index(["part", "row", "col", "cases"]))


def book(*records: Record, **changes: object) -> Book:
    """A ledger with these records, or those above, and anything else changed."""
    values: dict[str, object] = {
        "records": frame(*records) if records else SPLIT,
        "repros": REPROS,
        "runs": RUNS,
        "texts": {"c": "case = Case(...)"},
        "before": frozenset(),
        "older": 0,
        "history": _NO_RUNS,
        "speed": _NO_SECONDS,
        "cells": counted({}),
        "timings": pd.DataFrame(),
    }
    return Book(**{**values, **changes})  # type: ignore[arg-type]  # any field
