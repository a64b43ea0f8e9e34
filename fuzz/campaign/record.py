"""What a ledger holds: Records and Runs, and the SQL tables that they are stored in.

It imports nothing of ours, so that the report can read a ledger without the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

STATUSES = ("pass", "fail", "unknown", "unsupported", "error", "invalid")
"""Answers of an oracle, then ``error`` (the harness itself broke) and ``invalid`` (a case that the
compiler refused with a documented error).  Every case of an oracle ends in exactly one."""

PHASES = ("corpus", "base", "generate", "shrink")
"""Where a case comes from: it has failed once, it stands for a schedule family, it was drawn, or it
was tried to make a failure smaller; this last kind counts in no total."""

ORDER = "order"
"""In `Record.confirmed`: z3 has decided all of the order of events."""

SHORT = "not enough was judged"
"""The fact of a run that says so: what of `fuzz.floor` it falls short of, or nothing."""

CPU_S = "cpu_s"
"""First word of the facts of a run that say where its CPU seconds went, as `cpu_s prover`; those of
drivers that were killed are missing."""

WORST_FIRST = ("error", "fail", "unknown", "unsupported", "invalid", "pass")
"""A case that an oracle judged several times (kernels, trip counts) counts as the worst of them."""

ORACLES = (
    "build",
    "prover",
    "simulator",
    "differential",
    "schedules",
    "assembler",
    "agreement",
    "gpu",
    "mutant",
)
"""Judges in the order in which a report shows them.

`build` says whether the compiler took the case, and made a valid kernel of it; `schedules` whether
the case has the same bits under others; `agreement` whether prover and simulator say the same on a
common trip count; `mutant` whether both judges kill a kernel with one sync broken.
"""


TITLES = (
    "build",
    "prover",
    "simulator",
    "differential",
    "schedules",
    "assembler",
    "gpu",
    "agreement",
    "mutant",
)
"""Of which oracle the failure is that names a case: the nearest to the cause first.  What is wrong
with values may follow from a race, and that judges disagree from what one of them has found."""


@dataclass(frozen=True, slots=True)
class Record:
    """One row: what one oracle said about one subject of one case.

    Parameters
    ----------
    case : str
        Id of the case; its text is in the ledger too.
    oracle, status, phase : str
        Of `ORACLES`, `STATUSES`, `PHASES`.
    subject : str
        What was judged: a kernel, with a trip count if that was given, or a mutation.
    checked : int
        Claims or elements that were really checked.
    seconds : float
        CPU time of the oracle alone.
    kind, reason : str
        Class of the first finding, such as ``race``; all findings, or why there is no answer.
    family, load, store, stages, values, ops
        Of the schedule, as ``tma-specialized/tma``; mechanisms; slots of every input ring;
        ``integers`` or ``reals``; space-separated ``op/dtype`` facts of the fusion.
    mutant : str
        The mutation in words; empty for an ordinary case.
    witness : str
        The execution that refutes the subject, as JSON of `oracles.witness`; empty if none.
    confirmed : str
        Space-separated names of what z3 has decided beside the prover's own engine, such as
        ``drain-before-release`` and, for all of the order of events, ``order``.
    """

    case: str
    oracle: str
    subject: str
    status: str
    checked: int
    seconds: float
    kind: str
    reason: str
    family: str
    load: str
    store: str
    stages: int
    values: str
    ops: str
    mutant: str = ""
    phase: str = "generate"
    witness: str = ""
    confirmed: str = ""

    @property
    def in_full(self) -> bool:
        """Whether z3 has decided all of the order of events."""
        return ORDER in self.confirmed.split()

    def __post_init__(self) -> None:
        for name, known in (("status", STATUSES), ("oracle", ORACLES), ("phase", PHASES)):
            if (said := getattr(self, name)) not in known:
                raise ValueError(f"Record({name}={said!r}): pick one of {known}")


COLUMNS = tuple(field.name for field in fields(Record))
"""Columns of the table `records` besides `run`."""

VERSION = 3
"""`PRAGMA user_version` of a ledger with these tables."""

UPGRADE = {
    1: "ALTER TABLE records ADD COLUMN witness TEXT DEFAULT ''",
    2: "ALTER TABLE records ADD COLUMN confirmed TEXT DEFAULT ''",
}
"""What turns a ledger of an older version into one of the next."""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, started TEXT NOT NULL, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (run TEXT, worker INTEGER, round INTEGER,
    PRIMARY KEY (run, worker, round));
CREATE TABLE IF NOT EXISTS cases ("case" TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS repros (run TEXT, signature TEXT, "case" TEXT, path TEXT,
    PRIMARY KEY (run, signature));
CREATE TABLE IF NOT EXISTS records (run TEXT, {", ".join(f'"{name}"' for name in COLUMNS)},
    PRIMARY KEY (run, "case", oracle, subject, mutant, phase));
"""
"""Tables: the runs with their facts as JSON, rounds done, texts of cases, shrunk failures, rows."""


def signature(record: Record) -> str:
    """Name the failure that a record stands for, as ``prover race tma-pipelined/tma``."""
    return f"{record.oracle} {record.kind or record.status} {record.family}"
