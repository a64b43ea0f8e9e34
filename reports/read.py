"""A ledger as tables: what the pages are made of.  Reads only, also while a campaign writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pandas as pd

from fuzz.campaign.record import BENCH, COLUMNS, SKIPPED, VERSION, Record, signature

_HISTORY = f"""
WITH answers AS (
    SELECT run, "case", oracle, max(phase = 'generate') AS drawn,
        max(status IN ('fail', 'error')) AS bad, max(status IN ('unknown', 'unsupported')) AS left
    FROM records WHERE mutant = '' AND phase != 'shrink' AND status != '{SKIPPED}'
    GROUP BY run, "case", oracle),
totals AS (
    SELECT run, count(DISTINCT "case") AS cases,
        count(DISTINCT "case") FILTER (WHERE drawn) AS drawn,
        count(*) AS answers, count(*) FILTER (WHERE NOT bad AND NOT left) AS passed,
        count(*) FILTER (WHERE bad) AS failed, count(*) FILTER (WHERE left AND NOT bad) AS open,
        count(DISTINCT "case") FILTER (WHERE bad) AS failing
    FROM answers GROUP BY run),
work AS (
    SELECT run, count(*) AS records, sum(phase = 'shrink') AS shrinking, sum(seconds) AS judging_s,
        sum(oracle = 'mutant') AS mutants, sum(oracle = 'mutant' AND status = 'fail') AS blind
    FROM records GROUP BY run)
SELECT runs.run, started, facts, cases, drawn, answers, passed, failed, open, failing, records,
    shrinking, judging_s, mutants, blind
FROM runs LEFT JOIN totals USING (run) LEFT JOIN work USING (run) ORDER BY started, runs.rowid
"""
"""Each run in a line; `passed`, `failed` and `open` are answers, one for each case and oracle."""

_SPEED = f"""
SELECT run, oracle, family, seconds FROM records
WHERE oracle IN ('build', 'prover', 'assembler') AND mutant = '' AND phase != 'shrink'
    AND status != '{SKIPPED}'
"""

_COUNTED = """
SELECT part, "row", col, sum(cases) AS cases FROM cells WHERE run IN ({})
GROUP BY part, "row", col ORDER BY min(rowid)
"""
"""Of runs, as many as there are places for in the braces."""


@dataclass(frozen=True, slots=True)
class Book:
    """A ledger that was read.

    Parameters
    ----------
    records, repros : DataFrame
        Of the chosen runs.
    runs : DataFrame
        The chosen ones, with their facts as dicts.
    texts : dict
        Python of the cases that have failed, by id.
    before : frozenset of str
        Signatures of what has failed in runs older than the chosen ones, or than the last of all.
    older : int
        How many of these there are.
    history : DataFrame
        A line for each campaign of the ledger, the oldest first; `revision` is that of the source.
    speed : DataFrame
        Seconds of compiling and proving in all runs.
    cells : DataFrame
        Drawn cases in each legal cell of the coverage table: `part`, `row`, `col`, `cases`.
    timings : DataFrame
        Of all benchmarks, `samples` as lists, with facts, revision and start of their runs.
    """

    records: pd.DataFrame
    repros: pd.DataFrame
    runs: pd.DataFrame
    texts: dict[str, str]
    before: frozenset[str]
    older: int
    history: pd.DataFrame
    speed: pd.DataFrame
    cells: pd.DataFrame
    timings: pd.DataFrame


def read(ledger: Path, chosen: Sequence[str]) -> Book:
    """Read a ledger; all its runs where none is named.

    Raises
    ------
    click.UsageError
        If the file is no ledger of this version, or lacks a run.
    """
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                raise click.UsageError(
                    f"{ledger}: version {version} of a ledger, this program reads {VERSION}; "
                    "write a new one with `python -m fuzz`"
                )
            return _read(db, ledger, chosen)
    except (sqlite3.DatabaseError, pd.errors.DatabaseError) as error:
        raise click.UsageError(f"{ledger}: {error}; name a ledger of `python -m fuzz`") from error


def _read(db: sqlite3.Connection, ledger: Path, chosen: Sequence[str]) -> Book:
    every = _with_facts(pd.read_sql_query("SELECT * FROM runs ORDER BY started, rowid", db))
    for run in chosen:
        if run not in set(every["run"]):
            raise click.UsageError(
                f"--run {run}: not among the {len(every)} runs of {ledger}; "
                f"pick from {', '.join(every['run'])}"
            )
    campaigns = every[~every["run"].str.startswith(BENCH)]
    runs = campaigns[campaigns["run"].isin(chosen)] if chosen else campaigns
    places = ", ".join("?" * len(runs))
    names = list(runs["run"])
    records, repros = (
        pd.read_sql_query(
            f"SELECT * FROM {table} WHERE run IN ({places}) ORDER BY rowid", db, params=names
        )
        for table in ("records", "repros")
    )
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    failed = pd.read_sql_query(
        f"SELECT run, {columns} FROM records WHERE status IN ('fail', 'error') AND mutant = ''", db
    )
    # Of all runs, those before the last; shards of one night that are named are one.
    first = (runs["started"].min() if chosen else runs["started"].max()) if len(runs) else ""
    older = campaigns[campaigns["started"] < first]
    texts = db.execute(
        'SELECT "case", text FROM cases WHERE "case" IN '
        "(SELECT \"case\" FROM records WHERE status IN ('fail', 'error') AND mutant = '')"
    )
    history = _with_facts(pd.read_sql_query(_HISTORY, db))
    return Book(
        records=records,
        repros=repros,
        runs=runs,
        texts=dict(texts.fetchall()),
        before=frozenset(signatures(failed[failed["run"].isin(older["run"])])),
        older=len(older),
        history=history[~history["run"].str.startswith(BENCH)],
        speed=pd.read_sql_query(_SPEED, db).merge(every, on="run"),
        cells=pd.read_sql_query(_COUNTED.format(places), db, params=names),
        timings=_timings(db, every),
    )


def signatures(records: pd.DataFrame) -> pd.Series[str]:
    """Return what each record shows that is a failure."""
    rows = records[list(COLUMNS)].to_dict("records")
    named = [signature(Record(**{str(k): v for k, v in row.items()})) for row in rows]
    return pd.Series(named, index=records.index, dtype=str)


def _with_facts(runs: pd.DataFrame) -> pd.DataFrame:
    facts = runs["facts"].map(json.loads)
    return runs.assign(facts=facts, revision=facts.map(lambda found: found.get("fuser", "")))


def _timings(db: sqlite3.Connection, runs: pd.DataFrame) -> pd.DataFrame:
    known = "SELECT count(*) FROM sqlite_master WHERE name = 'timings'"
    if not db.execute(known).fetchone()[0]:
        return pd.DataFrame()
    found = pd.read_sql_query("SELECT * FROM timings ORDER BY rowid", db)
    return found.assign(samples=found["samples"].map(json.loads)).merge(runs, on="run")
