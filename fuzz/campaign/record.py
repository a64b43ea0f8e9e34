"""What a ledger holds: Records and Runs, and the SQL tables that they are stored in.

It imports nothing of ours, so that the report can read a ledger without the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

SKIPPED = "skipped"
"""The status of what nobody was asked for want of time (`fuzz.budget`): no answer, never a pass."""

STATUSES = ("pass", "fail", "unknown", "unsupported", "error", "invalid", SKIPPED)
"""Answers of an oracle, then ``error`` (the harness itself broke), ``invalid`` (a case that the
compiler refused with a documented error) and `SKIPPED`.  Every
case of an oracle ends in exactly one."""

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

LARGE_S = "large_cpu_s"
"""The fact of a run that says how many of these went to large cases (`fuzz.budget`)."""

LEFT = "not judged"
"""First words of the facts of a run that count what there was no time for, and say why."""

Cell = tuple[str, str, str]
"""A cell of the coverage table: its part, its row and its column (`fuzz.cases.features`)."""

ENOUGH = 20
"""Cases that are wanted in each of these, at least."""

WORST_FIRST = ("error", "fail", "unknown", "unsupported", "invalid", SKIPPED, "pass")
"""A case that an oracle judged several times (kernels, trip counts) counts as the worst of them."""

FAILED = ("fail", "error")
"""Statuses that are failures."""

_NUMBER, _NAME = re.compile(r"\b\d+(?:\.\d+)?\b"), re.compile(r"\b(T|[a-z]{4,})\d+(?:_\w+)?\b")
"""Numbers that stand alone, and names of tensors and kernels."""


def first_line(reason: str) -> str:
    """Return the first line of a reason, as a line of a summary has room for it."""
    return reason.split("\n", 1)[0][:160] or "no reason"


def gist(reason: str) -> str:
    """Return what a reason has in common with those of other cases: a line with N for numbers.

    Without the schedules that it names, which are another case's own.
    """
    first = first_line(reason).partition(" under ")[0]
    return _NAME.sub(r"\1N", _NUMBER.sub("N", first))


ENLARGED = "enlarged"
"""How subjects begin of calls at larger extents (`fuzz.cases.enlarged`).  One case in three has
none: that is unknown and counted, but the verdict of the case is that of its other calls."""

ORACLES = (
    "build",
    "prover",
    "simulator",
    "differential",
    "schedules",
    "assembler",
    "agreement",
    "ptx",
    "gpu",
    "mutant",
)
"""Judges in the order in which a report shows them.

`build` says whether the compiler took the case, and made a valid kernel of it; `schedules` whether
the case has the same bits under others; `agreement` whether prover and simulator say the same on a
common trip count; `ptx` whether the kernels' PTX, executed, is in order and has the right values;
`mutant` whether both judges kill a kernel with one sync broken.
"""


TITLES = (
    "build",
    "prover",
    "simulator",
    "differential",
    "schedules",
    "assembler",
    "ptx",
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
    family, load, store, stages, values
        Of the schedule, as ``tma-specialized/tma``; mechanisms; slots of every input ring;
        ``integers`` or ``reals``.
    mutant : str
        The mutation in words; empty for an ordinary case.
    witness : str
        The execution that refutes the subject, as JSON of `oracles.witness`; empty if none.
    confirmed : str
        Space-separated names of what z3 has decided beside the prover's own engine, such as
        ``drain-before-release`` and, for all of the order of events, ``order``.
    lines : str
        Space-separated lines of the kernel's text, of its PTX for `ptx`, that the first finding
        names.
    cause : str
        Of a failure: what cases of one cause share, as `fuzz.failures.identity` names it.
    failure, skeleton, kernel : str
        Of the least case of a failure only: the id of the failure, the kinds of syncs of the
        kernel, and its whole text (its PTX, for `ptx`).
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
    mutant: str = ""
    phase: str = "generate"
    witness: str = ""
    confirmed: str = ""
    lines: str = ""
    cause: str = ""
    failure: str = ""
    skeleton: str = ""
    kernel: str = ""

    @property
    def is_enlarged(self) -> bool:
        """Whether it is about a call at larger extents."""
        return self.subject.startswith(ENLARGED)

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


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one peer takes for one row of the benchmark.

    Parameters
    ----------
    row, kind, says : str
        Name of the row, its kind such as ``Product``, and what it computes.
    peer : str
        Who: ``torch``, `DEFAULT`, another schedule of ours, or what begins with `ROOF`.
    nbytes, flops : int
        Of all tensors, each once; of products.
    roof_us : float
        Microseconds in which the device can move or multiply so much.
    first_s : float
        Seconds of the first call of ours, which compiles or reads the cache; 0 of others.
    samples : str
        Microseconds of a call as a list in JSON; the n-th of all peers were taken side by side.
    """

    row: str
    kind: str
    says: str
    peer: str
    nbytes: int
    flops: int
    roof_us: float
    first_s: float
    samples: str


BENCH = "bench"
"""What the name of a benchmark's run begins with."""
DEFAULT = "ours, default"
"""The peer whose schedule is chosen by the heuristics."""
ROOF = "copy"
"""Peers whose name begins so show what the memory can do; nobody would use them instead."""

VERSION = 5
"""`PRAGMA user_version` of a ledger with these tables."""

_CELLS = """
CREATE TABLE IF NOT EXISTS cells (run TEXT, part TEXT, "row" TEXT, col TEXT, cases INTEGER,
    PRIMARY KEY (run, part, "row", col));
"""
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, started TEXT NOT NULL, facts TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS rounds (run TEXT, worker INTEGER, round INTEGER,
    PRIMARY KEY (run, worker, round));
CREATE TABLE IF NOT EXISTS cases ("case" TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS repros (run TEXT, signature TEXT, "case" TEXT, path TEXT,
    PRIMARY KEY (run, signature));
CREATE TABLE IF NOT EXISTS records (run TEXT, {", ".join(f'"{name}"' for name in COLUMNS)},
    PRIMARY KEY (run, "case", oracle, subject, mutant, phase));
CREATE TABLE IF NOT EXISTS timings (run TEXT, {", ".join(f.name for f in fields(Timing))},
    PRIMARY KEY (run, row, peer));
{_CELLS.strip()}
"""
"""Tables: the runs with their facts as JSON, rounds done, texts of cases, shrunk failures, rows of
benchmarks, and how many cases that were drawn and judged are in each legal cell.

What belongs to a run names it in its first column; the id of a run is the same on all machines."""

UPGRADE = {
    1: "ALTER TABLE records ADD COLUMN witness TEXT DEFAULT ''",
    2: "ALTER TABLE records ADD COLUMN confirmed TEXT DEFAULT ''",
    3: "; ".join(
        (
            *(
                f"ALTER TABLE records ADD COLUMN {name} TEXT DEFAULT ''"
                for name in ("lines", "cause", "failure", "skeleton", "kernel")
            ),
            "ALTER TABLE runs RENAME TO nameless",
            SCHEMA.strip().removesuffix(";"),
            "INSERT INTO runs SELECT run, started, facts, lower(hex(randomblob(16))) "
            "FROM nameless ORDER BY rowid",
            "DROP TABLE nameless",
        )
    ),
    4: f"{_CELLS.strip()} ALTER TABLE records DROP COLUMN ops",
}
"""What turns a ledger of an older version into one of the next."""


PROTOCOL = frozenset({"arrivals", "bytes", "deadlock", "init", "parity"})
"""Findings of one mistake about a barrier: whose comes first depends on the rest of the kernel."""


def signature(record: Record) -> str:
    """Name what a record shows, alike for all cases of one cause: ``prover protocol empty``."""
    kind = "protocol" if record.kind in PROTOCOL else record.kind or record.status
    return f"{record.oracle} {kind} {record.cause or record.family}"


def failures(records: Sequence[Record]) -> list[Record]:
    """Return the failures of a case, one per signature; the first is the failure of the case.

    They are in the order of `TITLES`: what is further from the cause may follow from it.

    Where prover and simulator both refute a kernel they agree about it, also if the simulator finds
    nothing at the trip counts that the prover names: that is no failure of its own.
    """
    refuted = {
        (r.oracle, r.subject.split()[0]) for r in records if r.status == "fail" and r.subject
    }
    found: dict[str, Record] = {}
    for record in records:
        both = {("prover", record.subject), ("simulator", record.subject)} <= refuted
        if record.status in FAILED and not (record.oracle == "agreement" and both):
            found.setdefault(signature(record), record)
    return sorted(found.values(), key=lambda record: TITLES.index(record.oracle))
