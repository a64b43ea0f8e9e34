"""What every oracle answers with: a Verdict, its Status and its Findings.

It knows nothing of compilers, kernels or arrays, so that every judge may import it.
"""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The four answers of an oracle; only PASS is praise."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"


HANGING = "undecided, hanging on rounding"
"""What a reason says of elements whose right value is not known."""

KINDS = {
    "RAW": "a read is not ordered after the write it must see (shared, global or registers)",
    "WAR": "a write is not ordered after an earlier read of its bytes",
    "WAW": "two writes of the same bytes are not ordered",
    "drain": "a release publishes bulk writes that are still in flight",
    "scope": "ordered, but at a scope that does not reach the other CTA",
    "proxy": "ordered, but no proxy fence stands between ordinary and asynchronous access",
    "fence": "wgmma may use registers before earlier accesses of them are done",
    "parity": "a wait may see another phase than its own",
    "arrivals": "arrivals of a phase are not what the barrier was initialised for",
    "bytes": "a phase expects other bytes than are copied",
    "group": "a wait covers no copy: nothing was committed, or by another thread",
    "init": "a barrier is used before its life, after it, or before it is visible",
    "deadlock": "threads wait forever",
    "collective": "a statement is executed by other threads than it needs",
    "registers": "setmaxnreg asks for registers that there are not",
    "semaphore": "turns are out of order, or not left as the next launch expects",
    "residency": "a CTA waits for one that may never run, or uses one that may not have begun",
    "exit": "something is in flight at the end of a CTA",
    "determinism": "the bits depend on the interleaving",
    "dependency": "an access is not ordered after the end of the launches before this one",
    "map": "a tensor map says something else than the copy through it",
    "bounds": "an index outside its slots, a shape outside its limits",
    "coverage": "an element of an output is written by nobody, or twice",
    "unread": "a slot is filled and never read",
}
"""Kinds of findings about synchronisation, the same words from every judge."""

SEVERITIES = ("error", "warning")
"""How bad a finding is: an error is a defect, a warning is worth a look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing an oracle saw.

    Parameters
    ----------
    kind : str
        Short class of the defect, such as ``"race"`` or ``"value"``; failures are grouped by it.
    where : str
        The place, in the words of what was judged (a line of the kernel text, an output).
    witness : str
        What convinces a reader: a trace, a model, or the worst element.
    severity : str
        ``"error"`` or ``"warning"``.
    lines : tuple of int
        Lines of the kernel's text that `where` names, the earlier access first; empty if it names
        something else.
    trips : int or None
        The smallest trip count that shows it; None where it does not depend on one.
    launch : tuple of (name, value)
        Parameters and grid of a launch that shows it; empty where none is known, or all do.

    Raises
    ------
    ValueError
        If the severity is neither.
    """

    kind: str
    where: str
    witness: str
    severity: str = "error"
    lines: tuple[int, ...] = ()
    trips: int | None = None
    launch: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"Finding(severity={self.severity!r}): pick one of {SEVERITIES}")

    def __str__(self) -> str:
        return f"{self.severity}: {self.kind} at {self.where}: {self.witness}"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a second engine has decided, too: its name, and by how many questions."""

    name: str
    questions: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one oracle about one thing.

    Parameters
    ----------
    oracle : str
        Name of the judge.
    status : Status
        PASS says that every claim was checked and holds; the other three are never praise.
    checked : int
        Claims (or elements) that were really checked; at least 1 where status is PASS.
    findings : tuple of Finding
        What was seen; no error stands beside a PASS, and a FAIL has at least one.
    reason : str
        Why the status is UNKNOWN or UNSUPPORTED, or what limits a PASS.
    states : int
        States that were explored; 0 where the judge counts none.
    confirmed : tuple of Confirmation
        What z3 has decided beside the judge's own engine, each by its name.

    Raises
    ------
    ValueError
        If the parts contradict each other; an oracle that does that is wrong itself.
    """

    oracle: str
    status: Status
    checked: int
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    states: int = 0
    confirmed: tuple[Confirmation, ...] = ()

    @property
    def confirmed_by(self) -> tuple[str, ...]:
        """The names of what z3 has decided; ``"order"`` is all of the order of events."""
        return tuple(one.name for one in self.confirmed)

    def __post_init__(self) -> None:
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if self.checked < 0:
            raise ValueError(f"Verdict({self.oracle!r}): checked is {self.checked}; count from 0")
        if self.status is Status.PASS and self.checked == 0:
            raise ValueError(
                f"Verdict({self.oracle!r}, PASS): nothing was checked; answer UNKNOWN instead"
            )
        if self.status is Status.PASS and errors:
            raise ValueError(f"Verdict({self.oracle!r}, PASS): {errors[0]}; answer FAIL")
        if self.status is Status.FAIL and not errors:
            raise ValueError(f"Verdict({self.oracle!r}, FAIL): no finding says why; add an error")

    def __str__(self) -> str:
        head = f"{self.oracle}: {self.status.value} ({self.checked} checked)"
        if self.reason:
            head += f": {self.reason}"
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])
