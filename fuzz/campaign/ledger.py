"""The ledger: Records in one SQLite file (WAL) that survives the end of its writer.

One process writes a file, others may read it meanwhile; `fuzz.ledger` has the commands.  Not on a
network file system.
Source: measured (committed rows survive SIGKILL).
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TypeVar

import click
from filelock import FileLock, Timeout

from fuzz.campaign.record import (
    COLUMNS,
    SCHEMA,
    SKIPPED,
    UPGRADE,
    VERSION,
    Cell,
    Record,
    Timing,
    signature,
)
from fuzz.exit_code import USAGE, writing

Fact = str | int | float
"""A value of a run's facts."""

_OTHER = "name another file with --ledger; `sqlite3 FILE .recover` saves what is left of a ledger"

PRUNED = "pruned"
"""The fact of a run whose records are gone: since when."""


F = TypeVar("F", bound=Callable[..., object])


def ledger_option(says: str) -> Callable[[F], F]:
    """Return the option --ledger of a command: what it is to that command, for its help."""
    return click.option(
        "--ledger",
        default=Path("reports", "out", "ledger.sqlite"),
        show_default=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help=says,
    )


class LedgerError(click.ClickException):
    """A file is no ledger of this version, is damaged, or is being written by somebody else."""

    exit_code = USAGE


@dataclass(frozen=True, slots=True)
class Totals:
    """A run in a line: cases that were drawn and given, and how many failed or stayed open.

    `mutants` were judged; `answers` are those of cases, of which `open` are unknown or unsupported.
    """

    drawn: int
    given: int
    mutants: int
    answers: int
    failing: int
    open: int


class Ledger:
    """An open ledger, to append to and read; made, with its folders, where it does not exist.

    One process at a time writes: who begins a run, merges or prunes holds the file until `close`.
    LedgerError if the file is a ledger of another version, no SQLite file, damaged, or held by
    another process; CannotWrite if it cannot be written, by all methods that write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(f"{path}.lock", timeout=0)
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()  # the system says why not; SQLite only that it cannot
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            with self._writing():
                self._prepare()
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
            raise self._refused(
                f"version {version}, this program writes {VERSION}; move it away, or name another "
                "file with --ledger; the program that wrote it can read it"
            )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        if version != VERSION:
            self._db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        (self._before,) = self._db.execute("SELECT ifnull(max(rowid), 0) FROM records").fetchone()

    def _refused(self, why: str) -> LedgerError:
        return LedgerError(f"Ledger({str(self.path)!r}): {why}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        call = f"Ledger({str(self.path)!r})"
        try:
            with writing(call, self.path, "name another file with --ledger"):
                yield
        except sqlite3.DatabaseError as error:
            raise self._refused(f"{error}; {_OTHER}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all of a block or nothing; a full disk has ended the transaction by itself."""
        with self._writing(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def _write(self, statement: str, *row: object) -> None:
        with self._transaction():
            self._db.execute(statement, row)

    def hold(self) -> None:
        """Become the one who writes, until `close`; see first that no page is damaged."""
        with self._writing():
            try:
                self._lock.acquire()
            except Timeout as error:
                raise self._refused(
                    f"another process is writing it ({self._newest()}); wait for its end, or name "
                    "another file with --ledger"
                ) from error
        with self._writing():
            (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise self._refused(f"damaged: {found.splitlines()[-1]}; {_OTHER}")

    def _newest(self) -> str:
        found = self._db.execute("SELECT run, started FROM runs ORDER BY rowid DESC").fetchone()
        return "run {}, begun {}".format(*found) if found else "a first run"

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of it."""
        self._db.close()
        self._lock.release(force=True)

    def start(self, name: str, facts: Mapping[str, Fact]) -> str:
        """Begin a run and return its id: `name` with a number if that name was taken."""
        self.hold()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        run = self._free(name)
        row = (run, now, json.dumps(dict(facts)), uuid.uuid4().hex)
        self._write("INSERT INTO runs VALUES (?, ?, ?, ?)", *row)
        return run

    def _free(self, name: str) -> str:
        taken = {run for (run,) in self._db.execute("SELECT run FROM runs")}
        names = (f"{name}.{number}" if number > 1 else name for number in count(1))
        return next(run for run in names if run not in taken)

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

    def append(
        self, run: str, records: Sequence[Record], *, text: str = "", cells: Iterable[Cell] = ()
    ) -> None:
        """Write records of one case in one transaction, with its text, and count it in its cells.

        What an earlier opening of the ledger wrote of the same subjects goes: a round that was cut
        off is drawn again, and a judge that was killed in it is asked again.  Such a case counts
        once, and one that the compiler refuses not at all.
        """
        rows = [(run, *astuple(record)) for record in records]
        holes = ", ".join("?" * (len(COLUMNS) + 1))
        judged = {(run, r.case, r.phase, r.mutant, self._before) for r in records}
        refused = any(r.oracle == "build" and r.status == "invalid" for r in records)
        with self._transaction():
            if rows and not refused and not self._counted(run, records[0].case):
                self._db.executemany(
                    "UPDATE cells SET cases = cases + 1 "
                    'WHERE run = ? AND part = ? AND "row" = ? AND col = ?',
                    [(run, *cell) for cell in cells],
                )
            self._db.executemany(
                'DELETE FROM records WHERE run = ? AND "case" = ? AND phase = ? AND mutant = ? '
                "AND rowid <= ?",
                judged,
            )
            self._db.executemany(f"INSERT OR REPLACE INTO records VALUES ({holes})", rows)
            if text and rows:
                self._db.execute("INSERT OR IGNORE INTO cases VALUES (?, ?)", (rows[0][1], text))

    def _counted(self, run: str, case: str) -> bool:
        """Whether a run has records of a case that was drawn."""
        drawn = 'SELECT 1 FROM records WHERE run = ? AND "case" = ? AND phase = ? LIMIT 1'
        return self._db.execute(drawn, (run, case, "generate")).fetchone() is not None

    def expect(self, run: str, cells: Iterable[Cell]) -> None:
        """Name the cells that cases of a run can be in; no case is counted in another one."""
        with self._transaction():
            self._db.executemany(
                "INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, 0)",
                [(run, *cell) for cell in cells],
            )

    def cells(self, run: str) -> dict[Cell, int]:
        """Return how many cases are in each cell that cases of a run can be in."""
        found = 'SELECT part, "row", col, cases FROM cells WHERE run = ?'
        return {(part, *at): n for part, *at, n in self._db.execute(found, (run,))}

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

    def runs(self) -> Iterator[tuple[str, datetime, dict[str, Fact], Totals]]:
        """Return each run, when it began, its facts, and its totals, the oldest first."""
        for run, started, facts in self._db.execute(
            "SELECT run, started, facts FROM runs ORDER BY started, rowid"
        ):
            known = json.loads(facts)
            yield run, datetime.fromisoformat(started), known, self._totals(run, known)

    def _totals(self, run: str, facts: Mapping[str, Fact]) -> Totals:
        """Count the records of a run; of a pruned one, what was counted then."""
        names = [field.name for field in fields(Totals)]
        counts: Sequence[Fact] = [facts[name] for name in names if PRUNED in facts]
        if not counts:
            counts = self._db.execute(_TOTALS, (run,)).fetchone()
        return Totals(*map(int, counts))

    def prune(self, before: datetime) -> list[str]:
        """Forget the records of runs that began before a time, and return these runs.

        Their facts and totals stay, for the trend; cases that no run needs go with them.
        """
        self.hold()
        old = [
            (run, facts, totals)
            for run, started, facts, totals in self.runs()
            if started < before and PRUNED not in facts
        ]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._transaction():
            for run, facts, totals in old:
                kept = json.dumps({**facts, **asdict(totals), PRUNED: now})
                self._db.execute("UPDATE runs SET facts = ? WHERE run = ?", (kept, run))
                for table in self._of_a_run("main"):
                    self._db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
            self._db.execute('DELETE FROM cases WHERE "case" NOT IN (SELECT "case" FROM records)')
        with self._writing():
            self._db.execute("VACUUM")
        return [run for run, _, _ in old]

    def _of_a_run(self, schema: str) -> list[str]:
        """Return the tables whose rows belong to a run, which their first column names."""
        rows = self._db.execute(
            f"SELECT m.name FROM {schema}.sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table' AND m.name != 'runs' AND c.cid = 0 AND c.name = 'run'"
        )
        return [name for (name,) in rows]

    def merge(self, shard: Path) -> int:
        """Copy the runs of another ledger that this one lacks; return how many records came.

        A run that both have, by its id, is taken from the one that has more records of it; another
        run of a name that is taken gets a number.
        """
        Ledger(shard).close()
        self.hold()
        self._db.execute("ATTACH ? AS shard", (str(shard),))
        try:
            with self._transaction():
                came = sum(map(self._take, self._db.execute("SELECT * FROM shard.runs").fetchall()))
                self._db.execute("INSERT OR IGNORE INTO cases SELECT * FROM shard.cases")
        finally:
            self._db.execute("DETACH shard")
        return came

    def _take(self, row: tuple[str, str, str, str]) -> int:
        """Copy a run of the attached shard; return how many records more there are."""
        theirs, started, facts, id_ = row
        counted = "SELECT count(*) FROM {}.records WHERE run = ?"
        (many,) = self._db.execute(counted.format("shard"), (theirs,)).fetchone()
        known = self._db.execute("SELECT run FROM runs WHERE id = ?", (id_,)).fetchone()
        ours = known[0] if known else self._free(theirs)
        (few,) = self._db.execute(counted.format("main"), (ours,)).fetchone()
        if known and (few >= many or PRUNED in self.facts(ours)):
            return 0
        self._db.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", (ours, started, facts, id_)
        )
        for table in self._of_a_run("shard"):
            _, *rest = (
                name for _, name, *_ in self._db.execute(f"PRAGMA shard.table_info({table})")
            )
            names = ", ".join(f'"{name}"' for name in rest)
            self._db.execute(f"DELETE FROM {table} WHERE run = ?", (ours,))
            self._db.execute(
                f"INSERT INTO {table} SELECT ?, {names} FROM shard.{table} WHERE run = ? "
                "ORDER BY rowid",
                (ours, theirs),
            )
        return int(many) - int(few)


def failures(records: Iterable[Record]) -> dict[str, Record]:
    """Return the first record of every failure or harness error, by signature."""
    found: dict[str, Record] = {}
    for record in records:
        if record.status in ("fail", "error") and not record.mutant:
            found.setdefault(signature(record), record)
    return found


_TOTALS = f"""
WITH answers AS (
    SELECT "case", oracle, max(phase = 'generate') AS drawn,
        max(status IN ('fail', 'error')) AS bad, max(status IN ('unknown', 'unsupported')) AS left
    FROM records WHERE run = ?1 AND mutant = '' AND phase != 'shrink' AND status != '{SKIPPED}'
    GROUP BY "case", oracle)
SELECT count(DISTINCT "case") FILTER (WHERE drawn), count(DISTINCT "case") FILTER (WHERE NOT drawn),
    (SELECT count(*) FROM records WHERE run = ?1 AND oracle = 'mutant'), count(*),
    count(DISTINCT "case") FILTER (WHERE bad), count(*) FILTER (WHERE left AND NOT bad)
FROM answers
"""
"""The numbers of `Totals`, in its order."""
