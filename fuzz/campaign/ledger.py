"""The ledger: Records in one SQLite file (WAL) that survives the end of its writer.

One process writes a file; others may read it.  Not on a network file system.
Source: measured (committed rows survive SIGKILL).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import astuple, fields
from datetime import UTC, datetime
from pathlib import Path

import click

from fuzz.campaign.record import (
    COLUMNS,
    SCHEMA,
    TIMINGS,
    UPGRADE,
    VERSION,
    Record,
    Timing,
    signature,
)
from fuzz.exit_code import USAGE, Command, writing

Fact = str | int | float
"""A value of a run's facts."""

_TABLES = ("runs", "rounds", "cases", "repros", "records")


class LedgerError(click.ClickException):
    """A file is no ledger of this version; use a new file, or the version that wrote it."""

    exit_code = USAGE


class Ledger:
    """An open ledger, to append to and read; made, with its folders, where it does not exist.

    LedgerError if the file is a ledger of another version, or no SQLite file; CannotWrite if it
    cannot be written, by all methods that write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()  # the system says why not; SQLite only that it cannot
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            with self._writing():
                self._prepare()
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise LedgerError(
                f"Ledger({str(path)!r}): {error}; name another file with --ledger"
            ) from error
        except click.ClickException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        """Make the tables of a new file, or bring an older one up; else write nothing."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        while version in UPGRADE:
            step = f"{UPGRADE[version]}; PRAGMA user_version={version + 1}"
            self._db.executescript(f"BEGIN; {step}; COMMIT;")
            version += 1
        if version != VERSION and (version, tables) != (0, 0):
            raise LedgerError(
                f"Ledger({str(self.path)!r}): version {version}, this program writes {VERSION}; "
                "name another file with --ledger"
            )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        if version != VERSION:
            self._db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")

    def _writing(self) -> AbstractContextManager[None]:
        call = f"Ledger({str(self.path)!r})"
        return writing(call, self.path, "name another file with --ledger")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all of a block or nothing; a full disk has ended the transaction by itself."""
        with self._writing(), self._db:
            self._db.execute("BEGIN")
            yield

    def _write(self, statement: str, *row: object) -> None:
        with self._transaction():
            self._db.execute(statement, row)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of it."""
        self._db.close()

    def start(self, name: str, facts: Mapping[str, Fact]) -> str:
        """Begin a run and return its id: `name` with a number if that name was taken."""
        taken = {run for (run,) in self._db.execute("SELECT run FROM runs")}
        run, number = name, 2
        while run in taken:
            run, number = f"{name}.{number}", number + 1
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write("INSERT INTO runs VALUES (?, ?, ?)", run, now, json.dumps(dict(facts)))
        return run

    def resume(self, name: str) -> str | None:
        """Return the newest run that was started under `name`, if there is one."""
        row = self._db.execute(
            "SELECT run FROM runs WHERE run = ? OR run GLOB ? ORDER BY rowid DESC LIMIT 1",
            (name, f"{name}.[0-9]*"),
        ).fetchone()
        return None if row is None else str(row[0])

    def note(self, run: str, facts: Mapping[str, Fact]) -> None:
        """Add facts to a run, over older ones of the same name."""
        known = json.dumps({**self.facts(run), **facts})
        self._write("UPDATE runs SET facts = ? WHERE run = ?", known, run)

    def facts(self, run: str) -> dict[str, Fact]:
        """Return the facts of a run."""
        (found,) = self._db.execute("SELECT facts FROM runs WHERE run = ?", (run,)).fetchone()
        return dict(json.loads(found))

    def append(self, run: str, records: Iterable[Record], *, text: str = "") -> None:
        """Write records of one case in one transaction, with the text of the case."""
        rows = [(run, *astuple(record)) for record in records]
        holes = ", ".join("?" * (len(COLUMNS) + 1))
        with self._transaction():
            self._db.executemany(f"INSERT OR REPLACE INTO records VALUES ({holes})", rows)
            if text and rows:
                self._db.execute("INSERT OR IGNORE INTO cases VALUES (?, ?)", (rows[0][1], text))

    def finish_round(self, run: str, worker: int, round_: int) -> None:
        """Remember that a worker is done with a round, so that a resumed run skips it."""
        self._write("INSERT OR IGNORE INTO rounds VALUES (?, ?, ?)", run, worker, round_)

    def rounds(self, run: str, worker: int) -> set[int]:
        """Return the rounds that a worker has finished."""
        rows = self._db.execute(
            "SELECT round FROM rounds WHERE run = ? AND worker = ?", (run, worker)
        )
        return {int(number) for (number,) in rows}

    def add_repro(self, run: str, failure: str, case: str, path: str) -> None:
        """Remember the script of a shrunk failure, by its signature."""
        statement = "INSERT OR REPLACE INTO repros VALUES (?, ?, ?, ?)"
        self._write(statement, run, failure, case, path)

    def add_timings(self, run: str, timings: Sequence[Timing]) -> None:
        """Write what a benchmark measured of one row."""
        self._db.executescript(TIMINGS)
        holes = ", ".join("?" * (len(fields(Timing)) + 1))
        with self._transaction():
            self._db.executemany(
                f"INSERT OR REPLACE INTO timings VALUES ({holes})",
                [(run, *astuple(timing)) for timing in timings],
            )

    def repros(self, run: str) -> dict[str, str]:
        """Return the paths of the scripts of a run, by the signature of the failure."""
        return dict(self._db.execute("SELECT signature, path FROM repros WHERE run = ?", (run,)))

    def records(self, run: str | None = None) -> list[Record]:
        """Return the records of one run, or of all, in the order of writing."""
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        where, values = ("WHERE run = ?", (run,)) if run is not None else ("", ())
        rows = self._db.execute(f"SELECT {names} FROM records {where} ORDER BY rowid", values)
        return [Record(*row) for row in rows]

    def texts(self, run: str) -> dict[str, str]:
        """Return the texts of the cases of a run, by case id, in the order of writing."""
        rows = self._db.execute(
            'SELECT "case", text FROM cases WHERE "case" IN '
            '(SELECT "case" FROM records WHERE run = ?) ORDER BY rowid',
            (run,),
        )
        return dict(rows)

    def merge(self, shard: Path) -> int:
        """Copy the rows of another ledger that this one lacks; return how many records came."""
        Ledger(shard).close()
        (before,) = self._db.execute("SELECT count(*) FROM records").fetchone()
        self._db.execute("ATTACH ? AS shard", (str(shard),))
        try:
            with self._transaction():
                for table in _TABLES:
                    self._db.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM shard.{table}")
        finally:
            self._db.execute("DETACH shard")
        (after,) = self._db.execute("SELECT count(*) FROM records").fetchone()
        return int(after) - int(before)


def failures(records: Iterable[Record]) -> dict[str, Record]:
    """Return the first record of every failure or harness error, by signature."""
    found: dict[str, Record] = {}
    for record in records:
        if record.status in ("fail", "error") and not record.mutant:
            found.setdefault(signature(record), record)
    return found


@click.command(cls=Command)
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.argument(
    "shards", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def main(target: Path, shards: tuple[Path, ...]) -> None:
    """Merge the ledgers SHARDS into the ledger TARGET."""
    with closing(Ledger(target)) as ledger:
        for shard in shards:
            click.echo(f"{shard}: {ledger.merge(shard)} records")


if __name__ == "__main__":
    main()
